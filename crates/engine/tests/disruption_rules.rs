//! What goes, what stays, and what is said about it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/fleet.rs"]
mod fleet;

use std::sync::Arc;

use fleet::{Fleet, merge, read};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use veneer_engine::disruption::{Blocker, Command, Decision, Outcome};
use veneer_engine::plan::Action;

fn outcome<'d>(decision: &'d Decision, node: &str) -> &'d Outcome {
    let found = decision.fates.iter().find(|fate| fate.node == node);
    &found.unwrap_or_else(|| panic!("no fate of {node}")).outcome
}

fn words(decision: &Decision, node: &str) -> Vec<&'static str> {
    match outcome(decision, node) {
        Outcome::Stays(blockers) => blockers.iter().map(Blocker::word).collect(),
        Outcome::Goes(_) => vec!["goes"],
        Outcome::Leaving => vec!["leaving"],
    }
}

fn command<'d>(decision: &'d Decision, node: &str) -> &'d Command {
    match outcome(decision, node) {
        Outcome::Goes(command) => command,
        other => panic!("{node}: {other:?}"),
    }
}

fn deleted(decision: &Decision) -> Vec<String> {
    let actions = decision.plan.actions.iter();
    let mut names: Vec<String> = actions
        .filter_map(|action| match action {
            Action::DeleteClaim { target, .. } => Some(target.name.clone()),
            _ => None,
        })
        .collect();
    names.sort();
    names
}

fn created(decision: &Decision) -> Vec<veneer_api::NodeClaim> {
    let actions = decision.plan.actions.iter();
    actions
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some((**claim).clone()),
            _ => None,
        })
        .collect()
}

/// Two nodes of four processors; the pods of one fit on the other.
fn pair() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.pool("default", json!({}));
    fleet.node("a", "default", "c.4", json!({}));
    fleet.node("b", "default", "c.4", json!({}));
    fleet.pod("one", "a", "1", json!({}));
    fleet.pod("two", "b", "1500m", json!({}));
    fleet
}

#[test]
fn a_node_whose_pods_fit_elsewhere_goes_without_a_replacement() {
    let decision = pair().decide();
    assert_eq!(deleted(&decision), ["claim-a"]);
    assert!(created(&decision).is_empty());
    let command = command(&decision, "a");
    assert_eq!((command.reason, command.replacements), ("underutilized", 0));
    assert!((command.saving - 0.18).abs() < 1e-9, "{command:?}");
    assert_eq!(words(&decision, "b"), ["OthersFirst"]);
}

/// One full node of a dear type, for which a cheaper one would do.
fn dear() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.pool("default", json!({}));
    fleet.node("a", "default", "r.8", json!({}));
    fleet.pod("one", "a", "6", json!({}));
    fleet
}

#[test]
fn a_dear_node_is_replaced_and_its_replacement_comes_first() {
    let mut fleet = dear();
    let decision = fleet.decide();
    let command = command(&decision, "a").clone();
    assert_eq!(command.replacement.as_ref().unwrap().0, "c.8");
    assert!(
        (command.saving - (0.065 - 0.045) * 8.0).abs() < 1e-9,
        "{command:?}"
    );
    assert!(
        deleted(&decision).is_empty(),
        "not before the replacement is there"
    );
    let [claim] = &created(&decision)[..] else {
        panic!()
    };
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["veneer.io/replaces"], "underutilized 1 claim-a");
    let types = claim.spec.requirements.iter();
    let types = types
        .clone()
        .find(|one| one.key == "node.kubernetes.io/instance-type");
    assert_eq!(types.unwrap().values, ["c.8", "m.8"], "only what is cheaper");

    // The replacement exists: the node is tainted and leaves; nothing is decided twice.
    let mut claim = claim.clone();
    claim.metadata.uid = Some("new".to_owned());
    fleet.snapshot.node_claims.push(Arc::new(claim.clone()));
    let decision = fleet.decide();
    assert_eq!(words(&decision, "a"), ["leaving"]);
    assert!(created(&decision).is_empty() && deleted(&decision).is_empty());
    let tainted = decision.plan.actions.iter().any(|action| {
        matches!(action, Action::PatchNode { target, change } if target.name == "a"
            && change.taints.iter().flatten().any(|taint| taint.key == "karpenter.sh/disrupted"))
    });
    assert!(tainted, "{:?}", decision.plan.actions);

    // It is initialised: the old one goes.
    claim.status = Some(
        serde_json::from_value(json!({"conditions": [{"type": "Initialized", "status": "True",
        "reason": "Initialized", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z"}]}))
        .unwrap(),
    );
    fleet.snapshot.node_claims.pop();
    fleet.snapshot.node_claims.push(Arc::new(claim));
    assert_eq!(deleted(&fleet.decide()), ["claim-a"]);
}

#[test]
fn a_replacement_needs_room_within_the_limits_beside_what_it_replaces() {
    let limited = |cpu: &str| {
        let mut fleet = dear();
        let pool = Arc::make_mut(&mut fleet.snapshot.node_pools[0]);
        pool.spec.limits = serde_json::from_value(json!({"cpu": cpu})).unwrap();
        fleet
    };
    let decision = limited("15").decide();
    assert_eq!(words(&decision, "a"), ["Limits"]);
    assert!(decision.plan.actions.is_empty(), "{:?}", decision.plan.actions);
    let Outcome::Stays(blockers) = outcome(&decision, "a") else {
        panic!()
    };
    assert_eq!(
        blockers[0].remedy(),
        "higher spec.limits of NodePool default, or room on other nodes for default/one"
    );
    assert_eq!(created(&limited("16").decide()).len(), 1);
}

#[test]
fn a_replacement_that_fails_lets_the_node_go_on() {
    let mut fleet = dear();
    let taints = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
    let mut node = serde_json::to_value(&*fleet.snapshot.nodes[0]).unwrap();
    merge(&mut node, taints);
    fleet.snapshot.nodes[0] = read(node);
    fleet.policy.validation = SignedDuration::from_secs(15);
    let decision = fleet.decide();
    let untainted = decision.plan.actions.iter().any(|action| {
        matches!(action, Action::PatchNode { change, .. } if change.taints.as_ref().is_some_and(Vec::is_empty))
    });
    assert!(untainted, "{:?}", decision.plan.actions);
}

#[test]
fn a_command_that_lost_its_reason_takes_its_replacement_back() {
    let mut fleet = dear();
    let mut claim = created(&fleet.decide()).remove(0);
    claim.metadata.uid = Some("new".to_owned());
    fleet.snapshot.node_claims.push(Arc::new(claim.clone()));
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    fleet.pod("guard", "a", "1", protected);
    let decision = fleet.decide();
    assert_eq!(deleted(&decision), [claim.metadata.name.unwrap()]);
}

#[test]
fn a_command_is_looked_at_again_before_it_starts() {
    let mut fleet = pair();
    fleet.policy.validation = SignedDuration::from_secs(15);
    assert!(deleted(&fleet.decide()).is_empty());
    fleet.now += SignedDuration::from_secs(14);
    assert!(deleted(&fleet.decide()).is_empty());
    fleet.now += SignedDuration::from_secs(1);
    assert_eq!(deleted(&fleet.decide()), ["claim-a"]);

    let mut fleet = pair();
    fleet.policy.validation = SignedDuration::from_secs(15);
    let _ = fleet.decide();
    fleet.now += SignedDuration::from_secs(15);
    fleet.pod("late", "b", "2", json!({}));
    assert!(deleted(&fleet.decide()).is_empty(), "there is no room any more");
}

#[test]
fn an_unchanged_cluster_is_not_looked_at_again() {
    let mut fleet = pair();
    fleet.pool("other", json!({}));
    fleet.pod("big", "b", "2", json!({}));
    let first = fleet.decide();
    assert!(first.is_new);
    let second = fleet.decide();
    assert!(!second.is_new);
    assert_eq!(first.fates, second.fates);
    fleet.overlay("cheap", json!({"requirements": [], "priceAdjustment": "-50%"}));
    assert!(fleet.decide().is_new, "an overlay wakes consolidation");
}

#[test]
fn an_overlay_moves_nodes_over_and_back() {
    let mut fleet = Fleet::new();
    fleet.pool("default", json!({}));
    fleet.node("a", "default", "c.8", json!({}));
    fleet.pod("one", "a", "6", json!({}));
    assert_eq!(words(&fleet.decide(), "a"), ["NotCheaper"]);
    fleet.overlay(
        "r-is-cheap",
        json!({"priceAdjustment": "-50%", "requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r.8"]}]}),
    );
    let decision = fleet.decide();
    assert_eq!(command(&decision, "a").replacement.as_ref().unwrap().0, "r.8");
}

#[test]
fn every_reason_to_stay_is_said() {
    let do_not = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    type Change = Box<dyn Fn(&mut Fleet)>;
    let on_pool = |change: Value| -> Change {
        Box::new(move |fleet| {
            let mut pool = serde_json::to_value(&*fleet.snapshot.node_pools[0]).unwrap();
            merge(&mut pool, change.clone());
            fleet.snapshot.node_pools[0] = read(pool);
        })
    };
    let on_node = |change: Value| -> Change {
        Box::new(move |fleet| {
            let mut node = serde_json::to_value(&*fleet.snapshot.nodes[0]).unwrap();
            merge(&mut node, change.clone());
            fleet.snapshot.nodes[0] = read(node);
        })
    };
    let on_pod = |change: Value| -> Change {
        Box::new(move |fleet| {
            let mut pod = serde_json::to_value(&*fleet.snapshot.pods[0]).unwrap();
            merge(&mut pod, change.clone());
            fleet.snapshot.pods[0] = read(pod);
        })
    };
    let cases: Vec<(&str, Change)> = vec![
        ("NodeDoNotDisrupt", on_node(do_not.clone())),
        ("PodDoNotDisrupt", on_pod(do_not)),
        (
            "PodDoNotDisrupt",
            on_pod(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "5m"}}})),
        ),
        (
            "Spare",
            on_node(json!({"metadata": {"labels": {"karpenter.sh/capacity-type": "overprovisioned"}}})),
        ),
        ("StaticNodePool", on_pool(json!({"spec": {"replicas": 2}}))),
        (
            "ConsolidationOff",
            on_pool(json!({"spec": {"disruption": {"consolidateAfter": "Never"}}})),
        ),
        (
            "WhenEmpty",
            on_pool(json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}}})),
        ),
        (
            "Budget",
            on_pool(json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}})),
        ),
        (
            "PodDisruptionBudget",
            Box::new(|fleet| fleet.pdb("pdb", json!({"matchLabels": {"app": "one"}}), 0)),
        ),
        (
            "SeveralPodDisruptionBudgets",
            Box::new(|fleet| {
                fleet.pdb("pdb", json!({"matchLabels": {"app": "one"}}), 1);
                fleet.pdb("everything", json!({}), 1);
            }),
        ),
        (
            "PodsExpected",
            Box::new(|fleet| {
                let until = fleet.now + SignedDuration::from_secs(9);
                fleet.snapshot.nominations.insert("a".to_owned(), until);
            }),
        ),
        (
            "ConsolidateAfter",
            Box::new(|fleet| {
                let mut claim = (*fleet.snapshot.node_claims[0]).clone();
                let status = claim.status.as_mut().unwrap();
                status.conditions.retain(|one| one.type_ != "Consolidatable");
                fleet.snapshot.node_claims[0] = Arc::new(claim);
                fleet.snapshot.pod_events.insert("a".to_owned(), fleet.now);
            }),
        ),
        (
            "PriceUnknown",
            on_node(json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "x.1"}}})),
        ),
        (
            "NoPlace",
            on_pod(json!({"spec": {"nodeSelector": {"disk": "fast"}}})),
        ),
    ];
    for (expected, change) in cases {
        let mut fleet = pair();
        change(&mut fleet);
        let decision = fleet.decide();
        let found = words(&decision, "a");
        assert!(found.contains(&expected), "{expected}: {found:?}");
        let Outcome::Stays(blockers) = outcome(&decision, "a") else {
            panic!()
        };
        for blocker in blockers {
            assert!(!blocker.to_string().is_empty() && !blocker.remedy().is_empty());
        }
    }
}

#[test]
fn spot_nodes_are_replaced_by_spot_nodes_only_with_enough_choice() {
    let spot = json!({"metadata": {"labels": {"karpenter.sh/capacity-type": "spot"}}});
    let mut fleet = Fleet::new();
    let both = json!({"spec": {"template": {"spec": {"requirements": []}}}});
    fleet.pool("default", both);
    fleet.node("a", "default", "r.8", spot.clone());
    fleet.pod("one", "a", "1", json!({}));
    assert_eq!(words(&fleet.decide(), "a"), ["SpotToSpot"]);
    fleet.policy.spot_to_spot = true;
    let decision = fleet.decide_afresh();
    let Outcome::Stays(blockers) = outcome(&decision, "a") else {
        panic!()
    };
    let [Blocker::SpotToSpot { cheaper, needed, .. }] = &blockers[..] else {
        panic!("{blockers:?}")
    };
    assert_eq!((*cheaper, *needed), (8, Some(15)));
    // From the dearest there are.
    let mut fleet = Fleet::new();
    fleet.policy.spot_to_spot = true;
    fleet.pool(
        "default",
        json!({"spec": {"template": {"spec": {"requirements": []}}}}),
    );
    fleet.node("a", "default", "r.64", spot);
    fleet.pod("one", "a", "1", json!({}));
    let decision = fleet.decide();
    let claim = &created(&decision)[0];
    let types = claim
        .spec
        .requirements
        .iter()
        .find(|one| one.key.ends_with("instance-type"));
    assert_eq!(types.unwrap().values.len(), 15);
}

#[test]
fn drifted_nodes_are_replaced_even_by_dearer_ones_and_wait_for_their_budget() {
    let mut fleet = dear();
    for at in 0..2 {
        if at == 1 {
            fleet.node("b", "default", "c.8", json!({}));
            fleet.pod("two", "b", "6", json!({}));
        }
        let mut claim = (*fleet.snapshot.node_claims[at]).clone();
        let drifted = json!({"type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "",
            "lastTransitionTime": format!("2026-01-01T0{}:00:00Z", 9 - at)});
        claim
            .status
            .as_mut()
            .unwrap()
            .conditions
            .push(serde_json::from_value(drifted).unwrap());
        fleet.snapshot.node_claims[at] = Arc::new(claim);
    }
    let mut pool = (*fleet.snapshot.node_pools[0]).clone();
    pool.spec.disruption.budgets[0].nodes = "1".to_owned();
    fleet.snapshot.node_pools[0] = Arc::new(pool);
    let decision = fleet.decide();
    assert_eq!(
        command(&decision, "b").reason,
        "drifted",
        "the one that drifted first"
    );
    assert_eq!(words(&decision, "a"), ["OthersFirst"]);
    assert_eq!(created(&decision).len(), 1);
}

#[test]
fn several_nodes_are_replaced_by_one_where_that_saves() {
    let mut fleet = Fleet::new();
    fleet.pool("default", json!({}));
    for node in ["a", "b", "d"] {
        fleet.node(node, "default", "r.4", json!({}));
        fleet.pod(&format!("on-{node}"), node, "2500m", json!({}));
    }
    let decision = fleet.decide();
    let command = command(&decision, "a");
    assert_eq!(command.nodes.len(), 3, "{command:?}");
    assert_eq!(
        command.replacement.as_ref().unwrap().0,
        "c.8",
        "7.5 of 8 processors"
    );
}
