//! When kube-scheduler refuses what the simulation expects, kube-scheduler is right; and what that costs is bounded.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::sync::Arc;

use cluster::{Cluster, Refused};
use veneer_api::NodeClaim;
use veneer_api::labels::veneer;
use veneer_engine::plan::name;
use veneer_steering::refusals::MOST_EXTRA;

fn is_extra(claim: &NodeClaim) -> bool {
    let annotations = claim.metadata.annotations.iter().flatten();
    annotations
        .into_iter()
        .any(|(key, _)| key == veneer::REFUSED_CLASS)
}

/// Lets time pass, second by second.
fn run(cluster: &mut Cluster, seconds: i64) {
    for _ in 0..seconds {
        cluster.pass_time(1);
        cluster.settle();
    }
}

/// A cluster with a node that has room, and that the scheduler refuses for a pod.
fn with_a_refused_node() -> Cluster {
    let mut cluster = Cluster::with_pool();
    cluster.pod("first", "1");
    cluster.settle();
    assert!(cluster.node_of("first").is_some());
    let nodes = cluster.snapshot.nodes.iter();
    cluster.refused_nodes = Refused::Named(nodes.map(|node| name(&node.metadata).to_owned()).collect());
    cluster.pod("second", "500m");
    let pod = Arc::make_mut(cluster.snapshot.pods.last_mut().unwrap());
    let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].message =
        Some("0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity.".to_owned());
    cluster
}

#[test]
fn a_pod_that_is_refused_where_it_fits_gets_a_node() {
    let mut cluster = with_a_refused_node();
    let before = cluster.created.len();
    run(&mut cluster, 10);
    assert_eq!(
        cluster.created.len(),
        before,
        "the scheduler may not have looked yet"
    );
    run(&mut cluster, 20);
    assert!(cluster.node_of("second").is_some());
    assert_eq!(cluster.created.len(), before + 1);
    let event = cluster
        .events
        .iter()
        .find(|event| event.reason == "SchedulerDisagrees")
        .unwrap();
    assert!(event.is_warning);
    assert!(
        event
            .message
            .contains("didn't match scheduler-enforced node affinity"),
        "{}",
        event.message
    );
    assert_eq!(event.subject.target.name, "second");
}

#[test]
fn while_pods_of_its_kind_are_bound_a_pod_waits_for_its_turn() {
    let mut cluster = with_a_refused_node();
    // Others of the same kind come and are bound at once, so the scheduler works its way through them.
    let Refused::Named(refused) = std::mem::take(&mut cluster.refused_nodes) else {
        panic!()
    };
    for at in 0..20 {
        cluster.pass_time(2);
        cluster.pod(&format!("other-{at}"), "500m");
        let plan = cluster.decide();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
        let pods = cluster.snapshot.pods.iter_mut();
        for pod in pods.filter(|pod| name(&pod.metadata).starts_with("other")) {
            let pod = Arc::make_mut(pod);
            pod.spec.as_mut().unwrap().node_name = Some(refused[0].clone());
        }
        cluster
            .snapshot
            .pods
            .retain(|pod| !name(&pod.metadata).starts_with("other") || at % 2 == 0);
    }
    assert!(!cluster.reasons().contains(&"SchedulerDisagrees"));
    assert!(cluster.claims(is_extra).is_empty());
}

#[test]
fn a_scheduler_that_refuses_every_node_costs_one_node_at_a_time_and_ever_fewer() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("first", "1");
    cluster.settle();
    cluster.refused_nodes = Refused::All;
    for at in 0..50 {
        cluster.pod(&format!("same-{at}"), "500m");
    }
    let before = cluster.created.len();
    let mut hourly = Vec::new();
    for _ in 0..3 {
        let began = cluster.created.len();
        for _ in 0..3_600 / 5 {
            run(&mut cluster, 1);
            cluster.pass_time(4);
            let extra = cluster.claims(is_extra);
            assert!(extra.len() <= 1, "{} extra nodes at a time", extra.len());
        }
        hourly.push(cluster.created.len() - began);
    }
    // What is launched because the simulation itself wants it comes first.
    assert!(hourly[0] < before + 20, "{hourly:?}");
    assert!(
        hourly[1] <= 6 && hourly[2] <= 6,
        "at most one in ten minutes: {hourly:?}"
    );
}

#[test]
fn many_kinds_of_refused_pods_have_few_extra_nodes_together() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("first", "1");
    cluster.settle();
    cluster.refused_nodes = Refused::All;
    for at in 0..40 {
        cluster.pod(&format!("kind-{at}"), &format!("{}m", 10 + at));
    }
    for _ in 0..120 {
        run(&mut cluster, 1);
        let extra = cluster.claims(is_extra).len();
        assert!(extra <= MOST_EXTRA, "{extra} extra nodes");
    }
}

#[test]
fn a_new_process_finds_the_extra_node_of_the_one_before() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("first", "1");
    cluster.settle();
    cluster.refused_nodes = Refused::All;
    cluster.pod("second", "500m");
    for _ in 0..8 {
        run(&mut cluster, 20);
        cluster.reset_cycle();
        assert!(cluster.claims(is_extra).len() <= 1);
    }
    assert_eq!(cluster.claims(is_extra).len(), 1);
}
