//! Pods are nominated for the nodes that were launched for them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::sync::Arc;

use cluster::Cluster;
use serde_json::json;
use veneer_api::labels::karpenter;
use veneer_engine::plan::{Action, Plan, name};

/// Pods with the nodes that a plan nominates for them.
fn nominated(plan: &Plan) -> Vec<(&str, &str)> {
    let actions = plan.actions.iter();
    let nominations = actions.filter_map(|action| match action {
        Action::Nominate { pod, node } => Some((pod.name.as_str(), node.as_str())),
        _ => None,
    });
    nominations.collect()
}

/// Carries out passes until a node has joined; gives the plan that is made then.
fn when_it_joins(cluster: &mut Cluster) -> Plan {
    for _ in 0..10 {
        let plan = cluster.decide();
        if !cluster.snapshot.nodes.is_empty() {
            return plan;
        }
        assert_eq!(nominated(&plan), [], "there is no node yet");
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    panic!("no node joins");
}

#[test]
fn a_pod_is_nominated_before_its_node_takes_pods() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    cluster.pod_with("never", "100m", json!({"preemptionPolicy": "Never"}));
    let plan = when_it_joins(&mut cluster);
    let node = name(&cluster.snapshot.nodes[0].metadata).to_owned();
    assert_eq!(nominated(&plan), [("one", node.as_str())]);
    let at = |which: fn(&Action) -> bool| plan.actions.iter().position(which).unwrap();
    let opens = at(
        |action| matches!(action, Action::PatchNode { change, .. } if change.labels.contains_key(karpenter::REGISTERED)),
    );
    assert!(at(|action| matches!(action, Action::Nominate { .. })) < opens);
}

#[test]
fn a_nomination_that_the_scheduler_took_back_is_made_again() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    let plan = when_it_joins(&mut cluster);
    let without = cluster.snapshot.pods.clone();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert_eq!(nominated(&cluster.decide()), [], "it is nominated");
    // What was written is given a second to be seen.
    cluster.snapshot.pods = without;
    let plan = cluster.decide();
    assert_eq!(nominated(&plan), []);
    assert!(plan.look_again.unwrap() > cluster.now);
    cluster.pass_time(1);
    assert_eq!(nominated(&cluster.decide()).len(), 1);
    // Another node than it was told is told at once.
    let pod = Arc::make_mut(&mut cluster.snapshot.pods[0]);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert("veneer.io/nominated-node".to_owned(), "elsewhere".to_owned());
    cluster.pass_time(1);
    assert_eq!(nominated(&cluster.decide()).len(), 1);
}

#[test]
fn pods_that_have_come_are_not_nominated() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    when_it_joins(&mut cluster);
    let node = name(&cluster.snapshot.nodes[0].metadata).to_owned();
    let pod = Arc::make_mut(&mut cluster.snapshot.pods[0]);
    pod.spec.get_or_insert_default().node_name = Some(node);
    cluster.pass_time(2);
    assert_eq!(nominated(&cluster.decide()), []);
}
