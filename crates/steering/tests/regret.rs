//! Pods that were moved in vain are not moved again and again.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use veneer_engine::disruption::Command;
use veneer_engine::plan::{Action, Plan, Snapshot};
use veneer_steering::regret::Regret;

fn at(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
}

/// A workload of some pods.
fn snapshot(pods: usize) -> Snapshot {
    let pod = |number: usize| {
        serde_json::from_value(json!({"metadata": {"name": format!("web-{number}"), "uid": format!("uid-{number}"),
            "namespace": "default",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]}}))
        .unwrap()
    };
    Snapshot {
        pods: (0..pods).map(|number| Arc::new(pod(number))).collect(),
        ..Snapshot::default()
    }
}

fn moves() -> [Command; 1] {
    [Command {
        reason: "underutilized",
        nodes: vec!["node".to_owned()],
        replacements: 0,
        replacement: None,
        saving: 1.0,
        moves: vec![("default/web-0".to_owned(), Some("other".to_owned()))],
    }]
}

/// A launch for the first pod.
fn launch(regret: &mut Regret, pods: usize, now: Timestamp) {
    let claim = serde_json::from_value(json!({"metadata": {"name": "claim"}, "spec": {"requirements": [],
        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}))
    .unwrap();
    let mut plan = Plan::default();
    plan.push(Action::CreateClaim(Box::new(claim)));
    let expected: BTreeMap<String, String> = [("uid-0".to_owned(), "claim".to_owned())].into();
    regret.launched(&plan, &expected, &snapshot(pods), now);
}

#[test]
fn each_regret_holds_the_workload_for_longer_and_a_good_move_forgets_it() {
    let mut regret = Regret::default();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..4 {
        regret.started(&moves(), &snapshot(3), at(now));
        launch(&mut regret, 3, at(now + 1));
        let held = regret.held(at(now + 1));
        let pause = (held["web"].as_second() - at(now + 1).as_second()) / 60;
        pauses.push(pause);
        now += 1 + pause;
        assert!(regret.held(at(now)).is_empty());
    }
    assert_eq!(pauses, [5, 120, 360, 360]);
    regret.started(&moves(), &snapshot(3), at(now));
    regret.started(&moves(), &snapshot(3), at(now + 5));
    launch(&mut regret, 3, at(now + 6));
    assert_eq!(regret.held(at(now + 6))["web"], at(now + 11));
}

#[test]
fn a_launch_for_more_pods_or_much_later_is_nobodys_fault() {
    let mut regret = Regret::default();
    launch(&mut regret, 3, at(0));
    regret.started(&moves(), &snapshot(3), at(1));
    launch(&mut regret, 4, at(2));
    assert!(regret.held(at(2)).is_empty(), "the workload was scaled up");
    launch(&mut regret, 3, at(3));
    assert!(regret.held(at(3)).is_empty(), "two minutes are over");
}
