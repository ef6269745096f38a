//! The decision engine: the lifecycle, hysteresis, doubts and the cap.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::type_complexity,
    reason = "helpers of tests fail as tests do; tables are wide"
)]

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use support::{ACCOUNT, Answers, REGION, machine, policy, verdict};
use veneer_steering::commitments::{Sample, Target};
use veneer_steering::decisions::{Decision, Machine, Memory, Policy, Reason, State, decide, price_launches};

fn m5() -> Target {
    Target::family("m5", REGION)
}

/// A plan of $100/h for m5 with this utilisation.
fn used(percent: f64) -> Answers {
    let mut answers = Answers::empty();
    answers.plan(
        "arn:a",
        [ACCOUNT, "m5", REGION],
        [100.0, 100.0 - percent, percent],
    );
    answers
}

#[test]
fn a_plan_is_active_below_the_threshold_while_capacity_remains() {
    for (numbers, expected) in [
        ([10.0, 4.0, 60.0], "Active capacity-available"),
        ([10.0, 0.6, 94.0], "Active capacity-available"),
        ([10.0, 0.5, 94.99], "Active capacity-available"),
        ([10.0, 0.5, 95.0], "Removed utilization-above-threshold"),
        ([10.0, 0.0, 100.0], "Removed utilization-above-threshold"),
        ([10.0, 0.0, 60.0], "Removed no-capacity-left"),
        ([10.0, -1.0, 60.0], "Removed no-capacity-left"),
        ([0.0, 0.0, 0.0], "Removed utilization-above-threshold"),
    ] {
        let mut answers = Answers::empty();
        answers.plan("arn:a", [ACCOUNT, "m5", REGION], numbers);
        answers.plan("arn:c", [ACCOUNT, "", ""], numbers);
        for existing in [&[][..], &[m5(), Target::compute()]] {
            let decisions = answers.decide(existing, &[]);
            assert_eq!(verdict(&decisions, &m5()), expected, "{numbers:?}");
            assert_eq!(verdict(&decisions, &Target::compute()), expected, "{numbers:?}");
            assert_eq!(decisions[0].should_exist(), expected.starts_with("Active"));
        }
    }
}

#[test]
fn reserved_instances_are_active_while_one_is_unused() {
    let target = Target::reserved("m5.large", REGION);
    for (owned, used, expected) in [
        (3.0, 0.0, "Active reserved-instances-available"),
        (3.0, 2.0, "Active reserved-instances-available"),
        (3.0, 3.0, "Removed no-unused-reserved-instances"),
        (0.0, 0.0, "Removed no-unused-reserved-instances"),
    ] {
        let mut answers = Answers::empty();
        answers.reserve(ACCOUNT, REGION, "", "m5.large", owned);
        answers.running("us-west-2a", "m5.large", "reserved_instance", used);
        assert_eq!(
            verdict(&answers.decide(&[], &[]), &target),
            expected,
            "{owned} {used}"
        );
    }
    // The series has gone, and the data is fresh.
    let gone = Answers::empty().decide(std::slice::from_ref(&target), &[]);
    assert_eq!(verdict(&gone, &target), "Removed no-commitment");
}

#[test]
fn stale_data_preserves_what_exists_and_makes_nothing_new() {
    let mut answers = used(10.0);
    answers.age(ACCOUNT, "savings_plans", 4000.0);
    assert_eq!(
        verdict(&answers.decide(&[m5()], &[]), &m5()),
        "Preserved stale-data"
    );
    assert_eq!(answers.decide(&[], &[]), []);
    let preserved = &answers.decide(&[m5()], &[])[0];
    assert!(preserved.should_exist());
    assert_eq!(
        preserved.doubt.as_deref(),
        Some("the data is 4000 s old, the limit is 3900 s")
    );
    // Used up or not, nobody knows.
    let mut answers = used(99.0);
    answers.age(ACCOUNT, "savings_plans", 4000.0);
    assert_eq!(
        verdict(&answers.decide(&[m5()], &[]), &m5()),
        "Preserved stale-data"
    );
}

#[test]
fn preserved_becomes_active_or_removed_with_fresh_data() {
    let mut memory = Memory::default();
    let existing = BTreeSet::from([m5()]);
    let mut stale = used(10.0);
    stale.age(ACCOUNT, "savings_plans", 4000.0);
    let mut states = Vec::new();
    for answers in [used(10.0), stale.clone(), used(10.0), stale, used(97.0)] {
        let decision = &decide(&answers.ledger(), &existing, &[], policy(), &mut memory)[0];
        assert!(decision.changed);
        states.push(decision.state);
    }
    use State::{Active, Preserved, Removed};
    assert_eq!(states, [Active, Preserved, Active, Preserved, Removed]);
}

#[test]
fn every_fault_preserves_every_overlay() {
    let all = [m5(), Target::compute(), Target::reserved("m5.large", REGION)];
    let whole = || {
        let mut answers = used(10.0);
        answers.plan("arn:c", [ACCOUNT, "", ""], [1.0, 1.0, 0.0]);
        answers.reserve(ACCOUNT, REGION, "", "m5.large", 1.0);
        answers
    };
    let failed = || Err::<Vec<Sample>, _>("500".to_owned());
    let mut faults = [(); 7].map(|()| whole());
    faults[0].0.commitment = failed();
    faults[1].0.remaining = failed();
    faults[2].0.utilization = failed();
    faults[3].0.reserved = failed();
    faults[4].0.running = failed();
    faults[5].0.freshness = failed();
    faults[6].0.freshness = Ok(Vec::new());
    for (at, answers) in faults.iter().enumerate() {
        for decision in answers.decide(&all, &[]) {
            assert!(decision.should_exist(), "fault {at}: {decision:?}");
        }
        for decision in answers.decide(&[], &[]).iter().filter(|one| one.doubt.is_some()) {
            assert!(!decision.should_exist(), "fault {at}: {decision:?}");
        }
    }
    // Values that are no number, in every series and place.
    for series in 0..4 {
        let mut answers = whole();
        let observation = &mut answers.0;
        let answer = match series {
            0 => &mut observation.commitment,
            1 => &mut observation.remaining,
            2 => &mut observation.utilization,
            _ => &mut observation.reserved,
        };
        for sample in answer.as_mut().unwrap() {
            sample.value = f64::NAN;
        }
        assert!(
            answers.decide(&all, &[]).iter().all(Decision::should_exist),
            "series {series}"
        );
    }
    // An empty and fresh answer is no fault: nothing is left.
    assert!(
        Answers::empty()
            .decide(&all, &[])
            .iter()
            .all(|one| one.state == State::Removed)
    );
}

#[test]
fn a_plan_without_its_commitment_keeps_every_family_overlay() {
    let mut answers = used(10.0);
    answers.0.commitment = Ok(Vec::new());
    let other = Target::family("c5", REGION);
    let decisions = answers.decide(&[m5(), other.clone()], &[]);
    assert_eq!(verdict(&decisions, &m5()), "Preserved incomplete-data");
    assert_eq!(verdict(&decisions, &other), "Preserved incomplete-data");
}

#[test]
fn an_overlay_returns_only_well_below_the_threshold() {
    let mut memory = Memory::default();
    let mut existing = BTreeSet::new();
    let mut step = |percent: f64| {
        let decisions = decide(&used(percent).ledger(), &existing, &[], policy(), &mut memory);
        let decision = &decisions[0];
        if decision.should_exist() {
            existing.insert(m5());
        } else {
            existing.remove(&m5());
        }
        (decision.reason.as_str(), decision.changed)
    };
    // It has never been removed: the threshold alone counts.
    assert_eq!(step(93.0), ("capacity-available", true));
    assert_eq!(step(94.9), ("capacity-available", false));
    assert_eq!(step(95.0), ("utilization-above-threshold", true));
    assert_eq!(step(94.0), ("waiting-for-hysteresis", true));
    assert_eq!(step(90.0), ("waiting-for-hysteresis", false));
    assert_eq!(step(96.0), ("utilization-above-threshold", true));
    assert_eq!(step(89.9), ("capacity-available", true));
    assert_eq!(step(94.0), ("capacity-available", false));
}

#[test]
fn a_plan_that_never_had_an_overlay_does_not_wait() {
    let mut memory = Memory::default();
    let none = BTreeSet::new();
    decide(&used(96.0).ledger(), &none, &[], policy(), &mut memory);
    let decision = &decide(&used(94.0).ledger(), &none, &[], policy(), &mut memory)[0];
    assert_eq!(decision.state, State::Active);
}

#[test]
fn the_threshold_is_configurable() {
    for (threshold, expected) in [
        (50.0, State::Removed),
        (50.1, State::Active),
        (100.0, State::Active),
    ] {
        let policy = Policy {
            threshold,
            ..policy()
        };
        let decisions = decide(
            &used(50.0).ledger(),
            &BTreeSet::new(),
            &[],
            policy,
            &mut Memory::default(),
        );
        assert_eq!(decisions[0].state, expected, "{threshold}");
    }
}

#[test]
fn without_a_pool_that_may_use_them_there_are_no_overlays() {
    let policy = Policy {
        any_pool: false,
        ..policy()
    };
    let existing = BTreeSet::from([m5()]);
    let decisions = decide(
        &used(10.0).ledger(),
        &existing,
        &[],
        policy,
        &mut Memory::default(),
    );
    assert_eq!(verdict(&decisions, &m5()), "Removed no-on-demand-only-pool");
}

#[test]
fn what_is_left_must_cover_a_typical_node() {
    let mut answers = Answers::empty();
    answers.plan("arn:a", [ACCOUNT, "m5", REGION], [10.0, 1.0, 90.0]);
    let old = 100_000;
    for (prices, expected) in [
        (&[][..], "Active capacity-available"),
        (&[1.0], "Active capacity-available"),
        (&[1.1], "Removed too-small-for-typical-node"),
        // The middle one counts, not the largest.
        (&[0.5, 0.6, 9.0], "Active capacity-available"),
        (&[0.5, 2.0, 9.0], "Removed too-small-for-typical-node"),
        (&[0.5, 9.0], "Active capacity-available"),
    ] {
        let machines: Vec<Machine> = prices
            .iter()
            .enumerate()
            .map(|(at, price)| machine(&format!("n{at}"), "m5.large", *price, old))
            .collect();
        assert_eq!(
            verdict(&answers.decide(&[], &machines), &m5()),
            expected,
            "{prices:?}"
        );
    }
    // Nodes of other families say nothing about this one.
    let machines = [machine("n", "c5.large", 9.0, old)];
    assert_eq!(
        verdict(&answers.decide(&[], &machines), &m5()),
        "Active capacity-available"
    );
}

#[test]
fn launches_since_the_data_are_charged_in_the_order_in_which_aws_applies_commitments() {
    let mut answers = Answers::empty();
    answers
        .reserve(ACCOUNT, REGION, "", "m5.large", 1.0)
        .plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, 1.0, 50.0])
        .plan("arn:c", [ACCOUNT, "", ""], [100.0, 5.0, 50.0]);
    let machines = [
        machine("a-old", "m5.large", 0.4, 61),
        machine("b", "m5.large", 0.4, 50),
        machine("c", "m5.large", 0.8, 40),
        machine("d", "m5.large", 0.8, 30),
        machine("e", "c5.large", 1.0, 20),
    ];
    let decisions = answers.decide(&[], &machines);
    let used = |target: &Target| decisions.iter().find(|one| one.target == *target).unwrap().used;
    // The first takes the reservation, the next two the plan until it is empty, the rest goes to the Compute plan.
    let reserved = used(&Target::reserved("m5.large", REGION));
    assert_eq!((reserved.machines, reserved.taken), (1, 1.0));
    let family = used(&m5());
    assert_eq!((family.machines, family.taken), (2, 1.0));
    let compute = used(&Target::compute());
    assert_eq!(compute.machines, 2);
    assert!((compute.taken - 1.6).abs() < 1e-9, "{compute:?}");
    assert!(decisions.iter().all(|one| one.used.overshoot == 0.0));
    let target = Target::reserved("m5.large", REGION);
    assert_eq!(verdict(&decisions, &target), "Removed used-up-by-launches");
    assert_eq!(verdict(&decisions, &m5()), "Removed used-up-by-launches");
    assert_eq!(
        verdict(&decisions, &Target::compute()),
        "Active capacity-available"
    );
}

#[test]
fn launches_that_lift_a_plan_past_the_threshold_end_its_overlay() {
    let decisions = used(90.0).decide(&[m5()], &[machine("a", "m5.large", 5.0, 1)]);
    assert_eq!(verdict(&decisions, &m5()), "Removed used-up-by-launches");
    let decisions = used(90.0).decide(&[m5()], &[machine("a", "m5.large", 4.9, 1)]);
    assert_eq!(verdict(&decisions, &m5()), "Active capacity-available");
}

/// What one node every 30 s does to $1.00/h that is left, when each node costs $0.40/h; the data comes every 300 s.
/// Gives the dollars beyond the commitment when the interval ends.
fn overshoot(looks_at_launches: bool) -> f64 {
    let mut answers = Answers::empty();
    answers.plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, 1.0, 80.0]);
    answers.age(ACCOUNT, "savings_plans", 0.0);
    let ledger = answers.ledger();
    let mut memory = Memory::default();
    let mut existing = BTreeSet::from([m5()]);
    let (mut steered, mut machines) = (0.0, Vec::new());
    for launch in 1..=10 {
        if !existing.contains(&m5()) {
            continue;
        }
        // Karpenter launches while the overlay is there; the controller looks right after.
        machines.push(machine(&format!("n{launch:02}"), "m5.large", 0.4, -30 * launch));
        steered += 0.4;
        let seen: &[Machine] = if looks_at_launches { &machines } else { &[] };
        if !decide(&ledger, &existing, seen, policy(), &mut memory)[0].should_exist() {
            existing.clear();
        }
    }
    f64::max(steered - 1.0, 0.0)
}

#[test]
fn the_cap_bounds_the_overshoot_to_one_node_where_the_plain_loop_overshoots_by_an_interval() {
    let (capped, plain) = (overshoot(true), overshoot(false));
    assert!(capped <= 0.4 + 1e-9, "{capped}");
    assert!((plain - 3.0).abs() < 1e-9, "{plain}");
}

#[test]
fn a_burst_of_one_batch_is_reported_as_what_it_costs_beyond_the_commitment() {
    let mut answers = Answers::empty();
    answers.plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, 1.0, 80.0]);
    let burst: Vec<Machine> = (0..5)
        .map(|at| machine(&format!("n{at}"), "m5.large", 0.4, 1))
        .collect();
    let decision = &answers.decide(&[m5()], &burst)[0];
    assert_eq!(
        verdict(std::slice::from_ref(decision), &m5()),
        "Removed used-up-by-launches"
    );
    assert!(
        (decision.used.overshoot - 1.0).abs() < 1e-9,
        "{:?}",
        decision.used
    );
    assert_eq!(decision.used.machines, 3);
}

#[test]
fn a_solver_prices_launches_beyond_the_commitment_at_list() {
    let priced = price_launches(&[0.4; 5], 1.0, 0.95);
    let expected = [0.02, 0.02, 0.4 - 0.2 * 0.95, 0.4, 0.4];
    for (found, expected) in priced.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{priced:?}");
    }
    assert_eq!(price_launches(&[0.4], 0.0, 0.95), [0.4]);
    assert_eq!(price_launches(&[0.4], -3.0, 0.95), [0.4]);
}

fn any_percent() -> impl Strategy<Value = f64> {
    prop_oneof![0.0_f64..120.0, Just(95.0), Just(90.0), Just(f64::NAN)]
}

proptest! {
    #[test]
    fn the_same_input_gives_the_same_decisions(percent in any_percent(), age in 0.0_f64..8000.0, exists: bool) {
        let mut answers = used(percent);
        answers.age(ACCOUNT, "savings_plans", age);
        let existing: Vec<Target> = exists.then(m5).into_iter().collect();
        let machines = [machine("a", "m5.large", 0.5, 30), machine("b", "m5.large", 0.4, 20)];
        let mut turned = machines.clone();
        turned.reverse();
        prop_assert_eq!(answers.decide(&existing, &machines), answers.decide(&existing, &turned));
    }

    #[test]
    fn doubt_changes_nothing(percent in any_percent(), exists: bool, age in 3901.0_f64..1e6) {
        let mut answers = used(percent);
        answers.age(ACCOUNT, "savings_plans", age);
        let existing: Vec<Target> = exists.then(m5).into_iter().collect();
        let decisions = answers.decide(&existing, &[]);
        prop_assert_eq!(decisions.iter().filter(|one| one.should_exist()).count(), existing.len());
    }

    #[test]
    fn another_launch_never_brings_an_overlay_back(
        left in 0.1_f64..5.0, prices in prop::collection::vec(0.05_f64..1.0, 0..12),
    ) {
        let mut answers = Answers::empty();
        answers.plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, left, 50.0]);
        // A cheap fleet, so that the typical node does not depend on the launches.
        let mut machines: Vec<Machine> =
            (0..40).map(|at| machine(&format!("old{at}"), "m5.large", 0.01, 9_999)).collect();
        let mut gone = false;
        for (at, price) in prices.iter().enumerate() {
            machines.push(machine(&format!("new{at}"), "m5.large", *price, 5));
            let exists = answers.decide(&[m5()], &machines)[0].should_exist();
            prop_assert!(!(gone && exists));
            gone = !exists;
        }
    }

    #[test]
    fn what_is_taken_and_what_is_beyond_add_up_to_the_cost(
        left in 0.0_f64..3.0, shared in 0.0_f64..3.0, prices in prop::collection::vec(0.05_f64..1.0, 0..12),
    ) {
        let mut answers = Answers::empty();
        answers.plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, left, 50.0]);
        answers.plan("arn:c", [ACCOUNT, "", ""], [100.0, shared, 50.0]);
        let launches: Vec<Machine> = prices
            .iter()
            .enumerate()
            .map(|(at, price)| machine(&format!("n{at}"), "m5.large", *price, 5))
            .collect();
        let decisions = answers.decide(&[], &launches);
        let sum: f64 = decisions.iter().map(|one| one.used.taken + one.used.overshoot).sum();
        prop_assert!((sum - prices.iter().sum::<f64>()).abs() < 1e-6);
        prop_assert!(decisions.iter().all(|one| one.used.taken <= one.balance.unwrap().left + 1e-9));
    }
}

#[test]
fn a_doubt_about_one_target_makes_nothing_new() {
    let mut answers = used(f64::NAN);
    answers.reserve(ACCOUNT, REGION, "", "m5.large", f64::NAN);
    let decisions = answers.decide(&[], &[]);
    assert_eq!(decisions.len(), 2);
    for decision in decisions {
        assert_eq!(
            (decision.state, decision.reason.as_str()),
            (State::Removed, "incomplete-data")
        );
        assert!(!decision.should_exist() && decision.balance.is_none());
    }
}

#[test]
fn launches_that_leave_less_than_a_typical_node_are_named_as_the_reason() {
    let mut answers = Answers::empty();
    answers.plan("arn:a", [ACCOUNT, "m5", REGION], [100.0, 1.0, 50.0]);
    let machines = [machine("a", "m5.large", 0.6, 5)];
    assert_eq!(
        verdict(&answers.decide(&[], &machines), &m5()),
        "Removed used-up-by-launches"
    );
    let old = [machine("a", "m5.large", 0.6, 9_999)];
    assert_eq!(
        verdict(&answers.decide(&[], &old), &m5()),
        "Active capacity-available"
    );
}

#[test]
fn an_overlay_that_was_asked_for_waits_even_if_nobody_saw_it_exist() {
    let mut memory = Memory::default();
    let none = BTreeSet::new();
    let mut step = |percent: f64| {
        decide(&used(percent).ledger(), &none, &[], policy(), &mut memory)[0]
            .reason
            .as_str()
    };
    assert_eq!(step(50.0), "capacity-available");
    assert_eq!(step(96.0), "utilization-above-threshold");
    assert_eq!(step(94.0), "waiting-for-hysteresis");
}

#[test]
fn a_new_plan_after_the_old_one_ended_does_not_wait() {
    let mut memory = Memory::default();
    let existing = BTreeSet::from([m5()]);
    let reason = |answers: &Answers, existing: &BTreeSet<Target>, memory: &mut Memory| {
        decide(&answers.ledger(), existing, &[], policy(), memory)[0]
            .reason
            .as_str()
    };
    assert_eq!(
        reason(&used(96.0), &existing, &mut memory),
        "utilization-above-threshold"
    );
    assert_eq!(reason(&Answers::empty(), &existing, &mut memory), "no-commitment");
    assert_eq!(
        reason(&used(94.0), &BTreeSet::new(), &mut memory),
        "capacity-available"
    );
}

#[test]
fn reasons_are_said_in_words() {
    for (reason, words) in [
        (
            Reason::TooSmallForTypicalNode,
            "what is left covers no further node",
        ),
        (Reason::UsedUpByLaunches, "launches since the last data use it up"),
        (Reason::UtilizationAboveThreshold, "nearly all of it is used"),
        (Reason::NoUnusedReservedInstances, "all of them are used"),
        (
            Reason::WaitingForHysteresis,
            "used up lately, not yet free enough",
        ),
        (Reason::QueryFailed, "query failed"),
    ] {
        assert_eq!(reason.in_words(), words);
    }
}
