//! How many Reserved Instances are owned and unused, from series in the form that Lumina writes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "helpers of tests fail as tests do; tables are wide"
)]

mod support;

use support::{ACCOUNT, Answers, OTHER, REGION, balance};
use veneer_steering::commitments::{Certainty, Doubt, Kind, Ledger, Sample, Target, is_size_flexible};

fn left(ledger: &Ledger, target: &Target) -> f64 {
    balance(ledger, target).unwrap().unwrap().left
}

#[test]
fn only_some_families_are_size_flexible() {
    for family in ["m5", "c6i", "t3", "i3"] {
        assert!(is_size_flexible(family), "{family}");
    }
    for family in ["g4dn", "p5", "inf2", "u7i-6tb", "hpc7a"] {
        assert!(!is_size_flexible(family), "{family}");
    }
    let mut answers = Answers::empty();
    answers
        .reserve(ACCOUNT, REGION, "", "g5.xlarge", 4.0)
        .running("us-west-2a", "g5.2xlarge", "reserved_instance", 1.0)
        .running("us-west-2a", "g5.xlarge", "reserved_instance", 1.0);
    let found = balance(&answers.ledger(), &Target::reserved("g5.xlarge", REGION)).unwrap();
    let found = found.unwrap();
    assert_eq!((found.left, found.certainty), (3.0, Certainty::Exact));
    let mut answers = Answers::empty();
    answers.reserve(ACCOUNT, REGION, "", "i3.8xlarge", 2.0).running(
        "us-west-2a",
        "i3.metal",
        "reserved_instance",
        1.0,
    );
    assert_eq!(
        left(&answers.ledger(), &Target::reserved("i3.8xlarge", REGION)),
        0.0
    );
}

/// What Lumina writes: `ec2_reserved_instance` is 1 whatever the number, which stands in the count of the family.
#[test]
fn the_number_of_reserved_instances_is_that_of_the_family() {
    type Series = &'static [(&'static str, &'static str)];
    type Used = &'static [(&'static str, &'static str, f64)];
    type Expected = &'static [(&'static str, f64, f64, Certainty)];
    let cases: [(&str, Series, Option<f64>, Used, Expected); 9] = [
        (
            "six, of which two are used",
            &[("", "m6i.xlarge")],
            Some(6.0),
            &[("us-west-2a", "m6i.xlarge", 2.0)],
            &[("m6i.xlarge", 6.0, 4.0, Certainty::AtMost)],
        ),
        (
            "zonal ones, all used",
            &[("us-west-2a", "c6i.2xlarge")],
            Some(3.0),
            &[("us-west-2a", "c6i.2xlarge", 3.0)],
            &[("c6i.2xlarge", 3.0, 0.0, Certainty::Exact)],
        ),
        (
            "zonal ones, used in another zone",
            &[("us-west-2a", "c6i.2xlarge")],
            Some(3.0),
            &[("us-west-2b", "c6i.2xlarge", 1.0)],
            &[("c6i.2xlarge", 3.0, 3.0, Certainty::Exact)],
        ),
        (
            "two types, and as many as are used or present: each is known",
            &[("us-west-2a", "m5.large"), ("us-west-2a", "m5.xlarge")],
            Some(3.0),
            &[("us-west-2a", "m5.large", 2.0)],
            &[
                ("m5.large", 2.0, 0.0, Certainty::Exact),
                ("m5.xlarge", 1.0, 1.0, Certainty::Exact),
            ],
        ),
        (
            "two types, and more than that: any of them may be unused",
            &[("us-west-2a", "m5.large"), ("us-west-2a", "m5.xlarge")],
            Some(5.0),
            &[("us-west-2a", "m5.large", 2.0)],
            &[
                ("m5.large", 4.0, 2.0, Certainty::Assumed),
                ("m5.xlarge", 3.0, 3.0, Certainty::Assumed),
            ],
        ),
        (
            "regional ones of two types",
            &[("", "m5.large"), ("", "m5.xlarge")],
            Some(4.0),
            &[("us-west-2a", "m5.large", 1.0)],
            &[
                ("m5.large", 3.0, 3.0, Certainty::Assumed),
                ("m5.xlarge", 3.0, 3.0, Certainty::Assumed),
            ],
        ),
        (
            "no count: one that is used may not be the only one",
            &[("", "m5.large")],
            None,
            &[("us-west-2a", "m5.large", 1.0)],
            &[("m5.large", 1.0, 1.0, Certainty::Assumed)],
        ),
        (
            "no count, and nothing in use",
            &[("", "m5.large")],
            None,
            &[],
            &[("m5.large", 1.0, 1.0, Certainty::AtMost)],
        ),
        (
            "a count that is older than what runs",
            &[("us-west-2a", "m5.large")],
            Some(1.0),
            &[("us-west-2a", "m5.large", 3.0)],
            &[("m5.large", 3.0, 0.0, Certainty::Exact)],
        ),
    ];
    for (what, present, count, used, expected) in cases {
        let mut answers = Answers::empty();
        for (zone, it) in present {
            answers.reserve(ACCOUNT, REGION, zone, it, 1.0);
        }
        let family = present[0].1.split('.').next().unwrap();
        if let Some(count) = count {
            answers.family_count(family, count);
        }
        for (zone, it, count) in used {
            answers.running(zone, it, "reserved_instance", *count);
        }
        let ledger = answers.ledger();
        for (it, owned, left, certainty) in expected {
            let (zone, _) = present.iter().find(|(_, one)| one == it).unwrap();
            let target = Target::reserved_in(it, REGION, zone);
            let found = balance(&ledger, &target).unwrap().unwrap();
            assert_eq!(
                (found.owned, found.left, found.certainty),
                (*owned, *left, *certainty),
                "{what}: {it}"
            );
        }
    }
}

#[test]
fn a_family_count_that_is_no_count_is_a_doubt_about_its_types() {
    for count in [f64::NAN, -1.0, 2.5] {
        let mut answers = Answers::empty();
        answers
            .reserve(ACCOUNT, REGION, "", "m5.large", 1.0)
            .reserve(ACCOUNT, REGION, "", "c5.large", 1.0)
            .family_count("m5", count)
            .family_count("c5", 2.0);
        let ledger = answers.ledger();
        let doubt = balance(&ledger, &Target::reserved("m5.large", REGION))
            .unwrap()
            .unwrap_err();
        assert!(
            doubt
                .to_string()
                .starts_with("ec2_reserved_instance_count of m5 is"),
            "{doubt}"
        );
        assert_eq!(left(&ledger, &Target::reserved("c5.large", REGION)), 2.0);
    }
}

#[test]
fn an_exporter_that_counts_what_is_unused_is_believed_before_presence_and_costs() {
    let mut answers = Answers::empty();
    answers
        .reserve(ACCOUNT, REGION, "", "m5.large", 1.0)
        .reserve(ACCOUNT, REGION, "", "m5.xlarge", 1.0)
        .family_count("m5", 9.0)
        .count("", "m5.large", 4.0, 1.5)
        .count("us-west-2a", "m5.xlarge", 2.0, 2.0);
    let found = |answers: &Answers, target: &Target| {
        let balance = balance(&answers.ledger(), target)?.unwrap();
        Some((balance.owned, balance.left, balance.certainty))
    };
    let large = Target::reserved("m5.large", REGION);
    let zonal = Target::reserved_in("m5.xlarge", REGION, "us-west-2a");
    assert_eq!(found(&answers, &large), Some((4.0, 1.0, Certainty::Exact)));
    assert_eq!(found(&answers, &zonal), Some((2.0, 2.0, Certainty::Exact)));
    assert_eq!(found(&answers, &Target::reserved("m5.xlarge", REGION)), None);
    // Two exporters are one, and the one that saw more in use is right; other platforms are not for nodes.
    answers
        .count("", "m5.large", 4.0, 0.5)
        .count("", "c5.large", 1.0, 1.0);
    for answer in [&mut answers.0.counted, &mut answers.0.unused] {
        let last = answer.as_mut().unwrap().last_mut().unwrap();
        last.labels.insert("platform".to_owned(), "Windows".to_owned());
    }
    assert_eq!(found(&answers, &large), Some((4.0, 0.0, Certainty::Exact)));
    assert_eq!(found(&answers, &Target::reserved("c5.large", REGION)), None);
}

#[test]
fn counts_that_cannot_be_are_a_doubt_about_their_type() {
    for (owned, unused, doubt) in [
        (f64::NAN, 1.0, "incomplete-data"),
        (2.0, f64::NAN, "incomplete-data"),
        (2.0, 3.0, "implausible-data"),
        (2.0, -1.0, "implausible-data"),
        (1.5, 1.0, "implausible-data"),
    ] {
        let mut answers = Answers::empty();
        answers
            .count("", "m5.large", owned, unused)
            .count("", "c5.large", 2.0, 1.0);
        let ledger = answers.ledger();
        let found = balance(&ledger, &Target::reserved("m5.large", REGION)).unwrap();
        assert_eq!(found.unwrap_err().category(), doubt, "{owned} {unused}");
        assert_eq!(left(&ledger, &Target::reserved("c5.large", REGION)), 1.0);
    }
    let mut answers = Answers::empty();
    answers.count("", "m5.large", 2.0, 1.0).0.unused = Ok(Vec::new());
    let found = balance(&answers.ledger(), &Target::reserved("m5.large", REGION)).unwrap();
    assert_eq!(found.unwrap_err().category(), "incomplete-data");
}

#[test]
fn stale_data_of_another_region_or_account_changes_nothing_here() {
    let region = |answers: &mut Answers, account: &str, region: &str, data: &str, age: f64| {
        let labels = [("account_id", account), ("region", region), ("data_type", data)];
        let samples = answers.0.freshness.as_mut().unwrap();
        samples.push(Sample::new(&labels, age));
    };
    let stale = 2.0 * 65.0 * 60.0;
    for (account, where_, data, is_stale) in [
        (ACCOUNT, "eu-west-1", "reserved_instances", false),
        (ACCOUNT, "eu-west-1", "ec2_instances", false),
        (OTHER, REGION, "reserved_instances", false),
        ("", "", "pricing", false),
        ("", "", "spot-pricing", false),
        (ACCOUNT, REGION, "reserved_instances", true),
        (ACCOUNT, REGION, "ec2_instances", true),
    ] {
        let mut answers = Answers::empty();
        answers.reserve(ACCOUNT, REGION, "", "m5.large", 1.0);
        region(&mut answers, account, where_, data, stale);
        let book = &answers.ledger().books[&Kind::ReservedInstance];
        let found = matches!(book, Err(Doubt::Stale { .. }));
        assert_eq!(found, is_stale, "{account} {where_} {data}");
    }
}
