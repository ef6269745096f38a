//! What `consolidateAfter` and `consolidationPolicy` ask for beyond whether a node may go.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/fleet.rs"]
mod fleet;

use fleet::{Fleet, read};
use serde_json::{Value, json};
use veneer_engine::disruption::{Blocker, Decision, Outcome};

fn words(decision: &Decision, node: &str) -> Vec<&'static str> {
    let fate = decision.fates.iter().find(|fate| fate.node == node);
    match &fate.unwrap_or_else(|| panic!("no fate of {node}")).outcome {
        Outcome::Stays(blockers) => blockers.iter().map(Blocker::word).collect(),
        Outcome::Goes(_) => vec!["goes"],
        Outcome::Leaving => vec!["leaving"],
    }
}

/// A node of two processors, the cheapest there is, whose pod fits on another of four.
fn pair(disruption: Value) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.pool("default", json!({"spec": {"disruption": disruption}}));
    fleet.node("a", "default", "c.2", json!({}));
    fleet.node("b", "default", "c.4", json!({}));
    fleet.pod("one", "a", "1", json!({}));
    fleet.pod("two", "b", "2500m", json!({}));
    fleet
}

fn edit_claim(fleet: &mut Fleet, node: &str, change: impl Fn(&mut Value)) {
    let name = format!("claim-{node}");
    let mut claims = fleet.snapshot.node_claims.iter_mut();
    let claim = claims
        .find(|one| one.metadata.name.as_deref() == Some(&name))
        .unwrap();
    let mut value = serde_json::to_value(&**claim).unwrap();
    change(&mut value);
    *claim = read(value);
}

/// A pod came to the node or left it at a time, and `consolidateAfter` has not passed since.
fn pods_came(fleet: &mut Fleet, node: &str, at: &str) {
    edit_claim(fleet, node, |claim| {
        claim["status"]["lastPodEventTime"] = json!(at);
        let conditions = claim["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|one| one["type"] != "Consolidatable");
    });
}

#[test]
fn pods_are_not_moved_to_a_node_that_others_have_just_come_to() {
    let mut fleet = pair(json!({"consolidateAfter": "10m"}));
    assert_eq!(words(&fleet.decide_afresh(), "a"), ["goes"]);
    pods_came(&mut fleet, "b", "2026-01-01T11:55:00Z");
    let decision = fleet.decide_afresh();
    assert_eq!(words(&decision, "a"), ["DestinationConsolidateAfter"]);
    let said: Vec<String> = decision
        .fates
        .iter()
        .filter(|fate| fate.node == "a")
        .flat_map(|fate| match &fate.outcome {
            Outcome::Stays(blockers) => blockers.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(
        said,
        [
            "only b has room for default/one, and pods came or went there less than its consolidateAfter ago; quiet at \
          2026-01-01T12:05:00Z"
        ]
    );
    fleet.now = "2026-01-01T12:05:00Z".parse().unwrap();
    assert_eq!(
        words(&fleet.decide_afresh(), "a"),
        ["goes"],
        "consolidateAfter has passed"
    );
}

#[test]
fn a_node_that_is_never_consolidated_takes_pods_of_others() {
    let mut fleet = pair(json!({"consolidateAfter": "10m"}));
    fleet.pool(
        "never",
        json!({"spec": {"disruption": {"consolidateAfter": "Never"}}}),
    );
    let never = |value: &mut Value| value["metadata"]["labels"]["karpenter.sh/nodepool"] = json!("never");
    pods_came(&mut fleet, "b", "2026-01-01T11:59:59Z");
    edit_claim(&mut fleet, "b", never);
    let mut node = serde_json::to_value(&*fleet.snapshot.nodes[1]).unwrap();
    never(&mut node);
    fleet.snapshot.nodes[1] = read(node);
    assert_eq!(words(&fleet.decide_afresh(), "a"), ["goes"]);
}

#[test]
fn without_consolidate_after_no_node_is_closed_to_pods() {
    let mut fleet = pair(json!({"consolidateAfter": "0s"}));
    edit_claim(&mut fleet, "b", |claim| {
        claim["status"]["lastPodEventTime"] = json!("2026-01-01T12:00:00Z");
    });
    assert_eq!(words(&fleet.decide_afresh(), "a"), ["goes"]);
}

#[test]
fn a_pod_that_has_not_started_may_go_to_a_node_that_others_have_just_come_to() {
    let mut fleet = pair(json!({"consolidateAfter": "10m"}));
    let mut pod = serde_json::to_value(&*fleet.snapshot.pods[0]).unwrap();
    pod["status"] = json!({"phase": "Pending"});
    fleet.snapshot.pods[0] = read(pod);
    pods_came(&mut fleet, "b", "2026-01-01T11:55:00Z");
    assert_eq!(words(&fleet.decide_afresh(), "a"), ["goes"]);
}

#[test]
fn the_pods_of_a_drifted_node_may_go_to_a_node_that_others_have_just_come_to() {
    let mut fleet = pair(json!({"consolidateAfter": "10m"}));
    pods_came(&mut fleet, "b", "2026-01-01T11:55:00Z");
    edit_claim(&mut fleet, "a", |claim| {
        let drifted = json!({"type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        claim["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(drifted);
    });
    let decision = fleet.decide_afresh();
    let [command] = &decision.started[..] else {
        panic!("{:?}", decision.started)
    };
    assert_eq!((command.reason, command.replacements), ("drifted", 0));
    let moves = [("default/one".to_owned(), Some("b".to_owned()))];
    assert_eq!(command.moves, moves);
}

/// A node with nine small pods for which a slightly cheaper one would do, in a pool of two that cost about the same.
fn busy(policy: &str) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.pool(
        "default",
        json!({"spec": {"disruption": {"consolidationPolicy": policy}}}),
    );
    fleet.node("a", "default", "m.8", json!({}));
    fleet.node("b", "default", "c.8", json!({}));
    for pod in 0..9 {
        fleet.pod(&format!("small-{pod}"), "a", "800m", json!({}));
    }
    fleet.pod("large", "b", "7500m", json!({}));
    fleet
}

#[test]
fn a_balanced_pool_does_not_move_many_pods_for_little() {
    // Saved: 0.04 of 0.76 dollars, 5.3 %. Disturbed: 10 of 12, 83 %.
    let decision = busy("WhenEmptyOrUnderutilized").decide();
    assert_eq!(words(&decision, "a"), ["goes"]);
    let mut fleet = busy("Balanced");
    let decision = fleet.decide();
    assert_eq!(words(&decision, "a"), ["Balanced"]);
    assert!(decision.started.is_empty());
    let fate = decision.fates.iter().find(|fate| fate.node == "a").unwrap();
    let Outcome::Stays(blockers) = &fate.outcome else {
        panic!()
    };
    assert_eq!(
        blockers[0].to_string(),
        "NodePool default has consolidationPolicy Balanced: this would save 5.3 % of what the pool costs and disturb 83.3 % of it, \
         and has to save at least half the share that it disturbs"
    );
}

#[test]
fn a_balanced_pool_lets_a_node_go_that_costs_more_than_it_disturbs() {
    let mut fleet = pair(json!({"consolidationPolicy": "Balanced"}));
    // Saved: a third of what the pool costs. Disturbed: half of the pool.
    let decision = fleet.decide();
    assert_eq!(words(&decision, "a"), ["goes"]);
    assert!(fleet.decide_afresh().started.len() == 1);
}

#[test]
fn every_balanced_pool_of_a_command_has_to_approve() {
    // Two nodes that one new node replaces: one of a pool that does not ask, and one with many pods of a pool that does.
    let fleet = |policy: &str| {
        let mut fleet = Fleet::new();
        fleet.pool("plain", json!({}));
        fleet.pool(
            "other",
            json!({"spec": {"disruption": {"consolidationPolicy": policy}}}),
        );
        fleet.node("a", "plain", "r.8", json!({}));
        fleet.node("b", "other", "c.4", json!({}));
        fleet.node(
            "rest",
            "other",
            "m.64",
            json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
        );
        fleet.pod("one", "a", "5", json!({}));
        for pod in 0..9 {
            fleet.pod(&format!("small-{pod}"), "b", "300m", json!({}));
        }
        fleet.pod("full", "rest", "63", json!({}));
        fleet
    };
    let together = |decision: &Decision| decision.started.iter().any(|command| command.nodes.len() == 2);
    assert!(together(&fleet("WhenEmptyOrUnderutilized").decide()));
    let decision = fleet("Balanced").decide();
    assert!(!together(&decision), "{:?}", decision.started);
    assert_eq!(words(&decision, "a"), ["goes"], "by itself");
}
