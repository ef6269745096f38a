//! From the answers of a metrics server to what is left of each commitment.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "helpers of tests fail as tests do; tables are wide"
)]

mod support;

use proptest::prelude::*;
use support::{ACCOUNT, Answers, OTHER, REGION, balance, doubt, now, scope, seconds};
use veneer_steering::commitments::{
    Balance, Certainty, Doubt, Kind, Ledger, Sample, Target, ec2_types, size_factor,
};

fn left(ledger: &Ledger, target: &Target) -> f64 {
    balance(ledger, target).unwrap().unwrap().left
}

#[test]
fn the_series_of_a_plan_are_joined_by_its_name() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [ACCOUNT, "m5", REGION], [10.0, 4.0, 60.0])
        .plan("arn:b", [ACCOUNT, "c5", REGION], [2.0, 1.0, 50.0])
        .plan("arn:c", [ACCOUNT, "", ""], [8.0, 2.0, 75.0]);
    let ledger = answers.ledger();
    let expected = |owned, left, utilization, certainty| {
        Some(Ok(Balance {
            owned,
            left,
            utilization: Some(utilization),
            certainty,
        }))
    };
    assert_eq!(
        balance(&ledger, &Target::family("m5", REGION)),
        expected(10.0, 4.0, 60.0, Certainty::Exact)
    );
    assert_eq!(
        balance(&ledger, &Target::family("c5", REGION)),
        expected(2.0, 1.0, 50.0, Certainty::Exact)
    );
    // Fargate, Lambda and other accounts may have used some of it.
    assert_eq!(
        balance(&ledger, &Target::compute()),
        expected(8.0, 2.0, 75.0, Certainty::AtMost)
    );
    assert_eq!(
        ledger.books[&Kind::ComputeSavingsPlan].as_ref().unwrap().data_at,
        now() - seconds(60)
    );
}

#[test]
fn plans_of_one_kind_are_added_up_and_the_larger_one_weighs_more() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [ACCOUNT, "m5", REGION], [3.0, 0.0, 100.0])
        .plan("arn:b", [ACCOUNT, "m5", REGION], [1.0, 1.0, 0.0]);
    let sum = balance(&answers.ledger(), &Target::family("m5", REGION))
        .unwrap()
        .unwrap();
    assert_eq!((sum.owned, sum.left, sum.utilization), (4.0, 1.0, Some(75.0)));
}

#[test]
fn reserved_instances_and_family_plans_count_in_their_account_and_region_only() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [OTHER, "m5", REGION], [1.0, 1.0, 0.0])
        .plan("arn:b", [ACCOUNT, "r5", "eu-west-1"], [1.0, 1.0, 0.0])
        .reserve(OTHER, REGION, "", "m5.large", 3.0)
        .reserve(ACCOUNT, "eu-west-1", "", "m5.large", 3.0)
        .reserve(ACCOUNT, REGION, "", "c5.large", 2.0);
    let ledger = answers.ledger();
    let family = ledger.books[&Kind::Ec2InstanceSavingsPlan].as_ref().unwrap();
    assert!(family.balances.is_empty(), "{family:?}");
    let reserved = ledger.books[&Kind::ReservedInstance].as_ref().unwrap();
    assert_eq!(
        reserved.balances.keys().collect::<Vec<_>>(),
        [&Target::reserved("c5.large", REGION)]
    );
}

#[test]
fn compute_plans_count_from_every_account_unless_sharing_is_off() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [ACCOUNT, "", ""], [1.0, 1.0, 0.0])
        .plan("arn:b", [OTHER, "", ""], [2.0, 2.0, 0.0])
        .age(OTHER, "savings_plans", 90.0);
    assert_eq!(left(&answers.ledger(), &Target::compute()), 3.0);
    let mut alone = scope();
    alone.shared_plans = false;
    let ledger = Ledger::read(&answers.0, &alone);
    assert_eq!(left(&ledger, &Target::compute()), 1.0);
    assert_eq!(ledger.age, Some(seconds(60)));
    assert_eq!(answers.ledger().age, Some(seconds(90)));
}

#[test]
fn freshness_is_judged_for_plans_and_reserved_instances_separately() {
    let limit = 65.0 * 60.0;
    for (plans, reserved, expected) in [
        (60.0, 60.0, [None, None, None]),
        (limit, limit, [None, None, None]),
        (limit + 1.0, 60.0, [None, Some("stale-data"), Some("stale-data")]),
        (60.0, limit + 1.0, [Some("stale-data"), None, None]),
        (f64::NAN, 60.0, [None, Some("no-freshness"), Some("no-freshness")]),
        (60.0, f64::INFINITY, [Some("no-freshness"), None, None]),
        (-5.0, -5.0, [None, None, None]),
    ] {
        let mut answers = Answers::empty();
        answers
            .age(ACCOUNT, "savings_plans", plans)
            .age(ACCOUNT, "reserved_instances", reserved);
        let ledger = answers.ledger();
        let found = Kind::ALL.map(|kind| doubt(&ledger, kind));
        assert_eq!(found, expected, "{plans} {reserved}");
    }
}

#[test]
fn without_a_freshness_series_nothing_is_believed() {
    let mut answers = Answers::empty();
    answers.0.freshness = Ok(Vec::new());
    let ledger = answers.ledger();
    for kind in Kind::ALL {
        assert_eq!(doubt(&ledger, kind), Some("no-freshness"), "{kind}");
    }
    assert_eq!(ledger.age, None);
    let words: Vec<String> = ledger
        .doubts()
        .map(|(kind, doubt)| format!("{kind}: {doubt}"))
        .collect();
    assert_eq!(
        words[0],
        "reserved-instance: no series lumina_data_freshness_seconds says how old the Reserved Instances of account 111111111111 are"
    );
    // That of another account does not say anything about ours.
    answers.age(OTHER, "savings_plans", 1.0);
    assert_eq!(
        doubt(&answers.ledger(), Kind::Ec2InstanceSavingsPlan),
        Some("no-freshness")
    );
    // A shared plan of an account whose data has no age is not believed either.
    let mut answers = Answers::empty();
    answers.plan("arn:b", [OTHER, "", ""], [2.0, 2.0, 0.0]);
    assert_eq!(
        doubt(&answers.ledger(), Kind::ComputeSavingsPlan),
        Some("no-freshness")
    );
    assert_eq!(doubt(&answers.ledger(), Kind::Ec2InstanceSavingsPlan), None);
    answers.age(OTHER, "SavingsPlans", 4000.0);
    let ledger = answers.ledger();
    assert_eq!(doubt(&ledger, Kind::ComputeSavingsPlan), Some("stale-data"));
    let (_, stale) = ledger.doubts().next().unwrap();
    assert_eq!(stale.to_string(), "the data is 4000 s old, the limit is 3900 s");
}

#[test]
fn a_failed_query_puts_exactly_the_kinds_in_doubt_that_need_it() {
    let (ri, ec2, compute) = (
        Kind::ReservedInstance,
        Kind::Ec2InstanceSavingsPlan,
        Kind::ComputeSavingsPlan,
    );
    let failed = || Err("timed out".to_owned());
    let cases: [(fn(&mut Answers, Result<Vec<Sample>, String>), &[Kind]); 6] = [
        (|answers, failed| answers.0.commitment = failed, &[ec2, compute]),
        (|answers, failed| answers.0.remaining = failed, &[ec2, compute]),
        (|answers, failed| answers.0.utilization = failed, &[ec2, compute]),
        (|answers, failed| answers.0.reserved = failed, &[ri]),
        (|answers, failed| answers.0.running = failed, &[ri]),
        (
            |answers, failed| answers.0.freshness = failed,
            &[ri, ec2, compute],
        ),
    ];
    for (at, (fail, expected)) in cases.into_iter().enumerate() {
        let mut answers = Answers::empty();
        fail(&mut answers, failed());
        let ledger = answers.ledger();
        let doubted: Vec<Kind> = ledger.doubts().map(|(kind, _)| kind).collect();
        assert_eq!(doubted, expected, "query {at}");
        assert!(
            ledger
                .doubts()
                .all(|(_, doubt)| doubt.category() == "query-failed")
        );
    }
}

#[test]
fn an_empty_and_fresh_answer_means_that_nothing_is_owned() {
    let ledger = Answers::empty().ledger();
    for kind in Kind::ALL {
        let book = ledger.books[&kind].as_ref().unwrap();
        assert!(book.balances.is_empty() && book.unlisted.is_none(), "{kind}");
    }
}

#[test]
fn a_missing_series_or_value_puts_that_target_in_doubt_and_no_other() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for position in 0..3 {
            let mut numbers = [4.0, 2.0, 50.0];
            numbers[position] = bad;
            let mut answers = Answers::empty();
            answers
                .plan("arn:a", [ACCOUNT, "m5", REGION], numbers)
                .plan("arn:b", [ACCOUNT, "m5", REGION], [1.0, 1.0, 0.0])
                .plan("arn:c", [ACCOUNT, "c5", REGION], [1.0, 1.0, 0.0]);
            let ledger = answers.ledger();
            let m5 = balance(&ledger, &Target::family("m5", REGION)).unwrap();
            assert_eq!(m5.unwrap_err().category(), "incomplete-data", "{position} {bad}");
            assert_eq!(left(&ledger, &Target::family("c5", REGION)), 1.0);
        }
    }
    let whole = || {
        let mut answers = Answers::empty();
        answers.plan("arn:a", [ACCOUNT, "m5", REGION], [4.0, 2.0, 50.0]);
        answers.plan("arn:c", [ACCOUNT, "", ""], [4.0, 2.0, 50.0]);
        answers
    };
    let m5 = Target::family("m5", REGION);
    let mut answers = whole();
    answers.0.remaining = Ok(Vec::new());
    assert_eq!(
        balance(&answers.ledger(), &m5).unwrap().unwrap_err(),
        Doubt::Incomplete("plan arn:a has no series savings_plan_remaining_capacity".to_owned())
    );
    let mut answers = whole();
    answers.0.utilization = Ok(Vec::new());
    assert!(balance(&answers.ledger(), &m5).unwrap().is_err());
    // Without its commitment nobody can say which family a plan is for: any of them may still be paid for.
    let mut answers = whole();
    answers.0.commitment = Ok(Vec::new());
    let ledger = answers.ledger();
    assert!(
        ledger.books[&Kind::Ec2InstanceSavingsPlan]
            .as_ref()
            .unwrap()
            .unlisted
            .is_some()
    );
    assert!(balance(&ledger, &Target::compute()).unwrap().is_err());
}

#[test]
fn plans_of_other_kinds_do_not_count() {
    let mut answers = Answers::empty();
    answers.plan("arn:a", [ACCOUNT, "", ""], [4.0, 2.0, 50.0]);
    for answer in [
        &mut answers.0.commitment,
        &mut answers.0.remaining,
        &mut answers.0.utilization,
    ] {
        let sample = &mut answer.as_mut().unwrap()[0];
        sample.labels.insert("type".to_owned(), "sagemaker".to_owned());
    }
    let ledger = answers.ledger();
    assert!(
        ledger.books[&Kind::ComputeSavingsPlan]
            .as_ref()
            .unwrap()
            .balances
            .is_empty()
    );
}

#[test]
fn reserved_instances_are_counted_as_unused_where_the_data_says_who_uses_them() {
    let large = Target::reserved("m5.large", REGION);
    let zonal = Target::reserved_in("m5.large", REGION, "us-west-2b");
    let xlarge = Target::reserved("m5.xlarge", REGION);
    let metal = Target::reserved("m5.metal", REGION);
    let unused = |build: &dyn Fn(&mut Answers), target: &Target| {
        let mut answers = Answers::empty();
        build(&mut answers);
        left(&answers.ledger(), target)
    };
    // Nothing says who is covered: all that are owned count.
    assert_eq!(
        unused(
            &|a| {
                a.reserve(ACCOUNT, REGION, "", "m5.large", 3.0);
            },
            &large
        ),
        3.0
    );
    let cases: [(&str, &[(&str, &str, f64)], &[(&str, &str, f64)], &Target, f64); 9] = [
        (
            "one is used",
            &[("", "m5.large", 3.0)],
            &[("us-west-2a", "m5.large", 1.0)],
            &large,
            2.0,
        ),
        (
            "all are used",
            &[("", "m5.large", 3.0)],
            &[("us-west-2a", "m5.large", 3.0)],
            &large,
            0.0,
        ),
        (
            "more than all",
            &[("", "m5.large", 3.0)],
            &[("us-west-2a", "m5.large", 5.0)],
            &large,
            0.0,
        ),
        (
            "a larger size uses two",
            &[("", "m5.large", 3.0)],
            &[("us-west-2a", "m5.xlarge", 1.0)],
            &large,
            1.0,
        ),
        (
            "smaller ones use a half each",
            &[("", "m5.xlarge", 2.0)],
            &[("us-west-2a", "m5.large", 1.0)],
            &xlarge,
            1.0,
        ),
        (
            "another family uses none",
            &[("", "m5.large", 3.0)],
            &[("us-west-2a", "c5.large", 3.0)],
            &large,
            3.0,
        ),
        (
            "a zonal one is used in its zone",
            &[("us-west-2a", "m5.large", 1.0), ("", "m5.large", 1.0)],
            &[("us-west-2a", "m5.large", 1.0)],
            &large,
            1.0,
        ),
        (
            "a zonal one is not used in another",
            &[("us-west-2b", "m5.large", 2.0)],
            &[("us-west-2a", "m5.large", 1.0)],
            &zonal,
            2.0,
        ),
        (
            "metal by its own type",
            &[("", "m5.metal", 2.0)],
            &[("us-west-2a", "m5.metal", 1.0)],
            &metal,
            1.0,
        ),
    ];
    for (what, owned, running, target, expected) in cases {
        let found = unused(
            &|answers| {
                for (zone, it, count) in owned {
                    answers.reserve(ACCOUNT, REGION, zone, it, *count);
                }
                for (zone, it, count) in running {
                    answers.running(zone, it, "reserved_instance", *count);
                    answers.running(zone, it, "on_demand", 7.0);
                }
            },
            target,
        );
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_reservation_whose_count_is_no_number_is_in_doubt() {
    let mut answers = Answers::empty();
    answers
        .reserve(ACCOUNT, REGION, "", "m5.large", f64::NAN)
        .reserve(ACCOUNT, REGION, "", "c5.large", 1.0);
    let ledger = answers.ledger();
    let doubted = balance(&ledger, &Target::reserved("m5.large", REGION))
        .unwrap()
        .unwrap_err();
    assert_eq!(doubted.to_string(), "ec2_reserved_instance of m5.large is NaN");
    assert_eq!(left(&ledger, &Target::reserved("c5.large", REGION)), 1.0);
}

#[test]
fn sizes_count_as_aws_normalises_them() {
    for (it, factor) in [
        ("t3.nano", Some(0.25)),
        ("t3.micro", Some(0.5)),
        ("t3.small", Some(1.0)),
        ("t3.medium", Some(2.0)),
        ("m5.large", Some(4.0)),
        ("m5.xlarge", Some(8.0)),
        ("m5.24xlarge", Some(192.0)),
        ("m5.metal", Some(192.0)),
        ("i3.metal", Some(128.0)),
        ("m7i.metal-24xl", Some(192.0)),
        ("u-6tb1.112xlarge", Some(896.0)),
        ("zz9.metal", None),
        ("m5", None),
        ("m5.huge", None),
    ] {
        assert_eq!(size_factor(it), factor, "{it}");
    }
}

proptest! {
    #[test]
    fn adding_up_does_not_depend_on_the_order(
        plans in prop::collection::vec((0.1_f64..50.0, 0.0_f64..1.0), 1..8),
        rotate in 0_usize..8,
    ) {
        let build = |order: &[usize]| {
            let mut answers = Answers::empty();
            for &at in order {
                let (commitment, share) = plans[at];
                let numbers = [commitment, commitment * (1.0 - share), 100.0 * share];
                answers.plan(&format!("arn:{at}"), [ACCOUNT, "m5", REGION], numbers);
            }
            balance(&answers.ledger(), &Target::family("m5", REGION)).unwrap().unwrap()
        };
        let mut order: Vec<usize> = (0..plans.len()).collect();
        let first = build(&order);
        order.rotate_left(rotate % plans.len());
        prop_assert_eq!(first, build(&order));
        let utilization = first.utilization.unwrap();
        prop_assert!((0.0..=100.0 + 1e-9).contains(&utilization));
        let told = 100.0 * (1.0 - first.left / first.owned);
        prop_assert!((utilization - told).abs() < 1e-6);
    }

    #[test]
    fn more_use_never_leaves_more(owned in 0_u32..20, used in 0_u32..30) {
        let left_with = |used: u32| {
            let mut answers = Answers::empty();
            answers.reserve(ACCOUNT, REGION, "", "m5.xlarge", f64::from(owned));
            answers.running("us-west-2a", "m5.2xlarge", "reserved_instance", f64::from(used));
            left(&answers.ledger(), &Target::reserved("m5.xlarge", REGION))
        };
        let (less, more) = (left_with(used), left_with(used + 1));
        prop_assert!(more <= less && less <= f64::from(owned) && more >= 0.0);
    }
}

#[test]
fn a_number_that_one_exporter_does_not_know_is_not_taken_from_the_other() {
    let good = [4.0, 2.0, 50.0];
    for position in 0..3 {
        for nan_first in [false, true] {
            let mut bad = good;
            bad[position] = f64::NAN;
            let mut answers = Answers::empty();
            let at = [ACCOUNT, "m5", REGION];
            let (first, second) = if nan_first { (bad, good) } else { (good, bad) };
            answers.plan("arn:a", at, first).plan("arn:a", at, second);
            let found = balance(&answers.ledger(), &Target::family("m5", REGION)).unwrap();
            assert!(found.is_err(), "{position} {nan_first}: {found:?}");
        }
    }
    for (first, second) in [(1.0, f64::NAN), (f64::NAN, 1.0)] {
        let mut answers = Answers::empty();
        answers
            .reserve(ACCOUNT, REGION, "", "m5.large", first)
            .reserve(ACCOUNT, REGION, "", "m5.large", second);
        let last = answers.0.reserved.as_mut().unwrap().last_mut().unwrap();
        last.labels.insert("pod".to_owned(), "two".to_owned());
        let found = balance(&answers.ledger(), &Target::reserved("m5.large", REGION)).unwrap();
        assert!(found.is_err(), "{first} {second}: {found:?}");
    }
}

#[test]
fn the_age_that_is_shown_is_that_of_data_in_scope() {
    let mut answers = Answers::empty();
    answers
        .age(ACCOUNT, "pricing", 9_000.0)
        .age(OTHER, "reserved_instances", 8_000.0)
        .age(ACCOUNT, "reserved_instances", 70.0);
    assert_eq!(answers.ledger().age, Some(seconds(70)));
    answers.age(OTHER, "savings_plans", 80.0);
    assert_eq!(answers.ledger().age, Some(seconds(80)));
}

#[test]
fn amounts_that_cannot_be_are_doubted_and_named() {
    let plan = |numbers| {
        let mut answers = Answers::empty();
        answers.plan("arn:a", [ACCOUNT, "m5", REGION], numbers);
        balance(&answers.ledger(), &Target::family("m5", REGION)).unwrap()
    };
    for (numbers, named) in [
        (
            [-1.0, 0.0, 0.0],
            "savings_plan_hourly_commitment of plan arn:a is -1",
        ),
        (
            [1e9, 1e9, 0.0],
            "savings_plan_hourly_commitment of plan arn:a is 1000000000",
        ),
        (
            [10.0, 400.0, 10.0],
            "savings_plan_remaining_capacity of plan arn:a is 400",
        ),
        (
            [10.0, 4.0, -50.0],
            "savings_plan_utilization_percent of plan arn:a is -50",
        ),
    ] {
        let doubt = plan(numbers).unwrap_err();
        assert_eq!(doubt.category(), "implausible-data", "{doubt}");
        assert!(doubt.to_string().starts_with(named), "{doubt}");
    }
    // A plan that is used beyond its commitment says so with these, and rounding is no lie.
    assert_eq!(plan([10.0, -3.0, 130.0]).unwrap().left, 0.0);
    assert_eq!(plan([10.0, 10.005, 0.0]).unwrap().left, 10.005);
    for count in [-2.0, 1.5, 1e7] {
        let mut answers = Answers::empty();
        answers
            .reserve(ACCOUNT, REGION, "", "p5.48xlarge", count)
            .reserve(ACCOUNT, REGION, "", "m5.large", 3.0);
        let ledger = answers.ledger();
        let doubt = balance(&ledger, &Target::reserved("p5.48xlarge", REGION))
            .unwrap()
            .unwrap_err();
        assert_eq!(doubt.category(), "implausible-data", "{doubt}");
        assert!(
            doubt.to_string().contains(&format!("p5.48xlarge is {count}")),
            "{doubt}"
        );
        assert_eq!(left(&ledger, &Target::reserved("m5.large", REGION)), 3.0);
    }
}

#[test]
fn commitments_for_types_that_the_catalog_does_not_know_are_doubted() {
    let mut answers = Answers::empty();
    answers
        .plan("arn:a", [ACCOUNT, "m5", REGION], [10.0, 4.0, 60.0])
        .plan("arn:b", [ACCOUNT, "z99", REGION], [10.0, 4.0, 60.0])
        .plan("arn:c", [ACCOUNT, "", ""], [8.0, 2.0, 75.0])
        .reserve(ACCOUNT, REGION, "", "m5.large", 3.0)
        .reserve(ACCOUNT, REGION, "", "m5.gigantic", 3.0);
    let mut ledger = answers.ledger();
    // A catalog of another provider says nothing about EC2.
    ledger.doubt_unknown_types(&ec2_types(["c-1x-amd64-linux", "s-4x-arm64-linux"]));
    assert_eq!(ledger, answers.ledger());
    ledger.doubt_unknown_types(&ec2_types(["m5.large", "m5.metal", "c5.24xlarge"]));
    let doubts = |target: &Target| {
        balance(&ledger, target)
            .unwrap()
            .err()
            .map(|doubt| doubt.to_string())
    };
    assert_eq!(doubts(&Target::reserved("m5.large", REGION)), None);
    assert_eq!(doubts(&Target::family("m5", REGION)), None);
    assert_eq!(doubts(&Target::compute()), None);
    for target in [
        Target::reserved("m5.gigantic", REGION),
        Target::family("z99", REGION),
    ] {
        let doubt = doubts(&target).unwrap();
        assert!(
            doubt.contains(&format!("{:?}", target.covers)) && doubt.contains("catalog"),
            "{doubt}"
        );
    }
}
