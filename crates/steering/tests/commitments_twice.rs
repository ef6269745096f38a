//! Several exporters that are scraped at once: what they tell together counts once.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::{ACCOUNT, Answers, REGION, balance};
use veneer_steering::commitments::{Ledger, Target};

fn left(ledger: &Ledger, target: &Target) -> f64 {
    balance(ledger, target).unwrap().unwrap().left
}

#[test]
fn two_exporters_that_tell_the_same_series_are_one() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [ACCOUNT, "m5", REGION], [4.0, 2.0, 50.0])
        .plan("arn:a", [ACCOUNT, "m5", REGION], [4.0, 1.5, 60.0])
        .reserve(ACCOUNT, REGION, "", "m5.large", 3.0)
        .reserve(ACCOUNT, REGION, "", "m5.large", 3.0);
    for answer in [&mut answers.0.reserved, &mut answers.0.remaining] {
        let last = answer.as_mut().unwrap().last_mut().unwrap();
        last.labels
            .insert("instance".to_owned(), "10.0.0.2:8080".to_owned());
    }
    let ledger = answers.ledger();
    let m5 = balance(&ledger, &Target::family("m5", REGION)).unwrap().unwrap();
    assert_eq!((m5.owned, m5.left, m5.utilization), (4.0, 1.5, Some(60.0)));
    assert_eq!(left(&ledger, &Target::reserved("m5.large", REGION)), 3.0);
    // Whatever else the two say about themselves, and under whatever name.
    let last = answers.0.reserved.as_mut().unwrap().last_mut().unwrap();
    for (label, value) in [
        ("job", "veneer-export"),
        ("account_name", "Production"),
        ("team", "b"),
    ] {
        last.labels.insert(label.to_owned(), value.to_owned());
    }
    assert_eq!(
        left(&answers.ledger(), &Target::reserved("m5.large", REGION)),
        3.0
    );
    // Two reservations of one type are two.
    let last = answers.0.reserved.as_mut().unwrap().last_mut().unwrap();
    last.labels.insert("reservation_id".to_owned(), "two".to_owned());
    assert_eq!(
        left(&answers.ledger(), &Target::reserved("m5.large", REGION)),
        6.0
    );
}
