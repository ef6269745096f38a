//! Zonal Reserved Instances cover one type in one zone: their balances, the launches that use them, and overlays that say so.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

#[path = "support/committed.rs"]
mod committed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use committed::CATALOGUE;
use serde_json::json;
use support::{ACCOUNT, Answers, REGION, balance, machine, now, ordered, rendering, verdict};
use veneer_engine::overlay::{Evaluator, Overlay, Pool, TieBreak, Verdict};
use veneer_steering::cap;
use veneer_steering::commitments::{Ledger, Target};
use veneer_steering::decisions::Machine;
use veneer_steering::machines::{Prices, SeenMachine, machines};
use veneer_steering::overlays::{MixedPools, Naming, Rendering, Weights, cost_aware};
use veneer_steering::steer::{Decider, Settings, SteeredPool};

const ZONE: &str = "topology.kubernetes.io/zone";

fn regional() -> Target {
    Target::reserved("m5.large", REGION)
}

fn zonal(zone: &str) -> Target {
    Target::reserved_in("m5.large", REGION, zone)
}

/// Two regional ones, two in zone a and one in zone b, none of them in use.
fn answers() -> Answers {
    let mut answers = Answers::empty();
    answers
        .reserve(ACCOUNT, REGION, "", "m5.large", 2.0)
        .reserve(ACCOUNT, REGION, "us-west-2a", "m5.large", 2.0)
        .reserve(ACCOUNT, REGION, "us-west-2b", "m5.large", 3.0);
    answers
}

fn left(ledger: &Ledger, target: &Target) -> f64 {
    balance(ledger, target).unwrap().unwrap().left
}

/// An m5.large that was asked for half a minute ago and is, or will be, in one of these zones.
fn launched(name: &str, zones: &[&str]) -> Machine {
    Machine {
        zones: zones.iter().map(ToString::to_string).collect(),
        ..machine(name, "m5.large", 0.096, 30)
    }
}

#[test]
fn every_zone_has_a_balance_of_its_own_beside_that_of_the_region() {
    let mut answers = answers();
    answers
        .running("us-west-2a", "m5.large", "reserved_instance", 3.0)
        .running("us-west-2c", "m5.large", "reserved_instance", 1.0);
    let ledger = answers.ledger();
    // Two of the three in zone a use those of the zone; the third and the one in zone c the regional ones.
    assert_eq!(left(&ledger, &zonal("us-west-2a")), 0.0);
    assert_eq!(left(&ledger, &zonal("us-west-2b")), 3.0);
    assert_eq!(left(&ledger, &regional()), 0.0);
    let decisions = answers.decide(&[], &[]);
    for (target, expected, rule) in [
        (
            zonal("us-west-2a"),
            "Removed no-unused-reserved-instances",
            "Zonal Reserved Instances: this type and size in this zone",
        ),
        (
            zonal("us-west-2b"),
            "Active reserved-instances-available",
            "Zonal Reserved Instances: this type and size in this zone",
        ),
        (
            regional(),
            "Removed no-unused-reserved-instances",
            "Regional Reserved Instances: every size of the family",
        ),
    ] {
        assert_eq!(verdict(&decisions, &target), expected, "{target:?}");
        let decision = decisions.iter().find(|one| one.target == target).unwrap();
        assert!(decision.rule.starts_with(rule), "{}", decision.rule);
        assert!(decision.rule.contains("(rules 2, 3, "), "{}", decision.rule);
    }
}

#[test]
fn launches_use_those_of_their_zone_first_and_never_those_of_another() {
    let used = |machines: &[Machine]| {
        let decisions = answers().decide(&[], machines);
        [zonal("us-west-2a"), zonal("us-west-2b"), regional()].map(|target| {
            let found = decisions.iter().find(|one| one.target == target).unwrap();
            found.used.taken
        })
    };
    assert_eq!(used(&[launched("a", &["us-west-2a"])]), [1.0, 0.0, 0.0]);
    assert_eq!(used(&[launched("c", &["us-west-2c"])]), [0.0, 0.0, 1.0]);
    let three = ["1", "2", "3"].map(|name| launched(name, &["us-west-2a"]));
    assert_eq!(used(&three), [2.0, 0.0, 1.0]);
    // Where it comes to is not known yet: it may use any, so it counts against a zonal one, as Karpenter's choice by weight would.
    assert_eq!(used(&[launched("any", &[])]), [0.0, 1.0, 0.0]);
    assert_eq!(
        used(&[launched("either", &["us-west-2a", "us-west-2c"])]),
        [1.0, 0.0, 0.0]
    );
    let decisions = answers().decide(&[], &three[..2]);
    assert_eq!(
        verdict(&decisions, &zonal("us-west-2a")),
        "Removed used-up-by-launches"
    );
    assert_eq!(
        verdict(&decisions, &regional()),
        "Active reserved-instances-available"
    );
}

#[test]
fn consolidation_counts_as_paid_for_what_runs_in_the_zone_of_a_reservation() {
    let ledger = answers().ledger();
    let of = |zone: &str, count: usize| {
        let machines: Vec<Machine> = (0..count).map(|at| launched(&at.to_string(), &[zone])).collect();
        cap::paid_for(&machines, &ledger).len()
    };
    assert_eq!(of("us-west-2a", 9), 4, "two of the zone and two regional ones");
    assert_eq!(of("us-west-2b", 9), 5);
    assert_eq!(of("us-west-2c", 9), 2);
}

#[test]
fn a_machine_is_where_its_label_says_or_where_its_requirements_let_it_go() {
    let it = "node.kubernetes.io/instance-type";
    let claim = |labels: serde_json::Value| -> SeenMachine {
        let claim: veneer_api::NodeClaim = serde_json::from_value(json!({
            "metadata": {"name": "one", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": it, "operator": "In", "values": ["m5.large"]},
                    {"key": ZONE, "operator": "In", "values": ["us-west-2a", "us-west-2b"]}]}}))
        .unwrap();
        SeenMachine::from(&claim)
    };
    let zones = |seen: SeenMachine| {
        machines([seen].iter(), [].iter(), &Prices::default())[0]
            .zones
            .clone()
    };
    assert_eq!(zones(claim(json!({}))), ["us-west-2a", "us-west-2b"]);
    assert_eq!(
        zones(claim(json!({it: "m5.large", ZONE: "us-west-2b"}))),
        ["us-west-2b"]
    );
    let node = json!({"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {it: "m5.large", ZONE: "us-west-2c"}});
    let node = SeenMachine::of_node(&serde_json::from_value(node).unwrap());
    let found = machines([].iter(), [node].iter(), &Prices::default());
    assert_eq!(found[0].zones, ["us-west-2c"]);
}

/// On-demand prices of m5.large by zone, and whether every overlay counts, as Karpenter evaluates them.
fn evaluated(rendering: &Rendering, targets: &[Target]) -> (BTreeMap<String, f64>, bool) {
    let overlays: Vec<_> = targets
        .iter()
        .map(|target| Overlay::read(&cost_aware(target, rendering), &CATALOGUE.rules))
        .collect();
    let pool = Pool {
        name: "default".to_owned(),
        labels: Vec::new(),
    };
    let mut evaluator = Evaluator::new(Arc::clone(&CATALOGUE), TieBreak::default());
    let evaluation = evaluator.evaluate(&[pool], &overlays);
    let all_ready = evaluation.verdicts().iter().all(|one| *one == Verdict::Ready);
    let mut adjusted = evaluation.prices(0).iter();
    let mut prices = BTreeMap::new();
    for instance_type in &CATALOGUE.types {
        for offering in &instance_type.offerings {
            let price = *adjusted.next().unwrap();
            let vocabulary = &CATALOGUE.vocabulary;
            if *instance_type.name == *"m5.large" && offering.capacity_type(vocabulary) == Some("on-demand") {
                prices.insert(
                    offering.zone(vocabulary).unwrap().to_owned(),
                    price / offering.price,
                );
            }
        }
    }
    (prices, all_ready)
}

#[test]
fn a_zonal_overlay_makes_its_zone_cheap_and_no_other() {
    let (prices, all_ready) = evaluated(&rendering(ordered()), &[zonal("us-west-2a")]);
    assert!(all_ready);
    assert!(prices.len() > 2, "{prices:?}");
    for (zone, share) in prices {
        let expected = if zone == "us-west-2a" { 0.05 } else { 1.0 };
        assert!((share - expected).abs() < 1e-6, "{zone}: {share}");
    }
}

#[test]
fn zonal_and_regional_overlays_of_one_type_do_not_conflict() {
    let targets = [
        regional(),
        zonal("us-west-2a"),
        zonal("us-west-2b"),
        Target::family("m5", REGION),
        Target::compute(),
    ];
    let rendering = rendering(ordered());
    let (prices, all_ready) = evaluated(&rendering, &targets);
    assert!(all_ready);
    assert!(prices.values().all(|share| (share - 0.05).abs() < 1e-6));
    // With one weight for both, Karpenter would leave one of them out.
    let same = Rendering {
        zonal_weight: rendering.weights.reserved_instance,
        ..rendering
    };
    assert!(!evaluated(&same, &targets).1);
}

#[test]
fn the_weight_of_zonal_ones_is_free_and_above_that_of_regional_ones() {
    let weights = |reserved_instance, ec2_instance_savings_plan, compute_savings_plan| Weights {
        reserved_instance,
        ec2_instance_savings_plan,
        compute_savings_plan,
    };
    let usual = Weights::default();
    for (configured, taken, expected) in [
        (usual, vec![], 31),
        (usual, vec![1, 31, 32, 34], 33),
        (weights(30, 31, 10), vec![], 32),
        (weights(10, 11, 12), vec![13], 14),
        // Nothing is above the highest.
        (weights(10_000, 9_999, 10), vec![9_998], 9_997),
    ] {
        let taken: BTreeSet<i32> = taken.into_iter().collect();
        assert_eq!(configured.zonal(&taken), expected, "{configured:?} {taken:?}");
    }
}

#[test]
fn a_preference_with_the_weight_of_zonal_ones_moves_it() {
    let settings = Settings {
        threshold: 95.0,
        hysteresis: 5.0,
        disabled: false,
        weights: Weights::default(),
        naming: Naming::default(),
        pricing: ordered(),
        family_label: None,
        mixed_pools: MixedPools::Include,
        preferences: true,
    };
    let mut decider = Decider::new(settings);
    decider.learn(now(), answers().ledger());
    let annotations = BTreeMap::from([(
        "veneer.io/preference.31".to_owned(),
        "kubernetes.io/arch=arm64 adjust=-10%".to_owned(),
    )]);
    let pool = SteeredPool {
        name: "web",
        uid: "1",
        annotations: &annotations,
        requirements: &[],
        node_class_group: "karpenter.k8s.aws",
        deleting: false,
    };
    let decided = decider.decide(&[pool], &[], &[]);
    let weights: BTreeMap<&str, i32> = decided
        .actions
        .iter()
        .map(|action| match action {
            veneer_steering::overlays::Action::Create(overlay) => {
                (action.name(), overlay.spec.weight.unwrap())
            }
            other => unreachable!("{other:?}"),
        })
        .collect();
    let expected = [
        ("cost-aware-ri-m5.large-us-west-2", 30),
        ("cost-aware-ri-m5.large-us-west-2a", 32),
        ("cost-aware-ri-m5.large-us-west-2b", 32),
        ("pref-web-31", 31),
    ];
    assert_eq!(weights, BTreeMap::from(expected));
}

#[test]
fn a_zone_that_cannot_be_one_is_a_doubt_about_its_type() {
    for zone in ["Us-West-2a", "a b", "-a", "{}", &"a".repeat(64)] {
        let mut answers = Answers::empty();
        answers
            .reserve(ACCOUNT, REGION, zone, "m5.large", 1.0)
            .reserve(ACCOUNT, REGION, "", "m5.large", 1.0)
            .reserve(ACCOUNT, REGION, "us-west-2a", "c5.large", 1.0);
        let ledger = answers.ledger();
        for target in [zonal(zone), regional()] {
            let doubt = balance(&ledger, &target).unwrap().unwrap_err();
            assert_eq!(doubt.category(), "implausible-data", "{zone}");
        }
        let other = Target::reserved_in("c5.large", REGION, "us-west-2a");
        assert_eq!(left(&ledger, &other), 1.0);
    }
}
