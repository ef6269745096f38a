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
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use veneer_api::labels::karpenter;
use veneer_engine::plan::{Action, Plan, name};

/// Pods with the nodes that a plan nominates for them.
fn nominated(plan: &Plan) -> Vec<(&str, &str)> {
    // A nomination that is withdrawn has no node.
    let actions = plan.actions.iter();
    let nominations = actions.filter_map(|action| match action {
        Action::Nominate { pod, node } => Some((pod.name.as_str(), node.as_deref().unwrap_or("-"))),
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

/// Forgets what the scheduler was told about a pod, as it does itself when the pod fits nowhere.
fn take_back(cluster: &mut Cluster, pod: &str) {
    let pods = cluster.snapshot.pods.iter_mut();
    for known in pods.filter(|known| name(&known.metadata) == pod) {
        Arc::make_mut(known).metadata.annotations = None;
    }
}

/// The cluster with a pod that was nominated for a node which does not take pods yet, and what opens that node.
fn nominated_for_a_closed_node() -> (Cluster, Vec<Action>) {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    let plan = when_it_joins(&mut cluster);
    let (nominations, others): (Vec<Action>, Vec<Action>) = plan
        .actions
        .into_iter()
        .partition(|action| matches!(action, Action::Nominate { .. }));
    assert_eq!(nominations.len(), 1);
    nominations.into_iter().for_each(|action| cluster.act(action));
    (cluster, others)
}

#[test]
fn a_nomination_that_was_taken_back_is_made_again_when_the_node_takes_pods() {
    let (mut cluster, opens) = nominated_for_a_closed_node();
    assert_eq!(nominated(&cluster.decide()), [], "it is nominated");
    take_back(&mut cluster, "one");
    for _ in 0..5 {
        // Whatever it is told, kube-scheduler cannot place it yet, and each attempt costs it a request.
        cluster.pass_time(1);
        assert_eq!(nominated(&cluster.decide()), []);
    }
    opens.into_iter().for_each(|action| cluster.act(action));
    let mut told = Vec::new();
    for _ in 0..5 {
        let plan = cluster.decide();
        told.extend(nominated(&plan).iter().map(|(pod, _)| (*pod).to_owned()));
        plan.actions.into_iter().for_each(|action| cluster.act(action));
        cluster.pass_time(1);
    }
    assert_eq!(told, ["one"]);
}

#[test]
fn a_nomination_that_somebody_else_has_changed_is_changed_back_after_a_second() {
    let (mut cluster, _) = nominated_for_a_closed_node();
    assert_eq!(nominated(&cluster.decide()), []);
    let pod = Arc::make_mut(&mut cluster.snapshot.pods[0]);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert("veneer.io/nominated-node".to_owned(), "elsewhere".to_owned());
    let plan = cluster.decide();
    assert_eq!(nominated(&plan), []);
    assert!(plan.look_again.unwrap() > cluster.now);
    cluster.pass_time(1);
    assert_eq!(nominated(&cluster.decide()).len(), 1);
}

#[test]
fn once_its_node_takes_pods_the_scheduler_is_believed() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    let plan = when_it_joins(&mut cluster);
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    let mut told = 0;
    for _ in 0..20 {
        take_back(&mut cluster, "one");
        cluster.pass_time(1);
        let plan = cluster.decide();
        told += nominated(&plan).len();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    assert!(
        told <= 2,
        "told {told} times that it fits where the scheduler has refused it"
    );
}

#[test]
fn pods_that_a_hard_spread_counts_are_not_nominated() {
    let spread = |otherwise: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": otherwise, "labelSelector": {"matchLabels": {"app": "web"}}}]})
    };
    for (otherwise, labels, expected) in [
        ("DoNotSchedule", json!({"app": "web"}), vec![]),
        ("ScheduleAnyway", json!({"app": "web"}), vec!["spread", "other"]),
        // Pods of the constraint itself are not counted by it, so neither of the two is.
        ("DoNotSchedule", json!({"app": "api"}), vec!["other"]),
    ] {
        let mut cluster = Cluster::with_pool();
        cluster.pod_with("spread", "1", spread(otherwise));
        cluster.pod("other", "1");
        for (at, label) in [(0, json!({"app": "web"})), (1, labels.clone())] {
            let pod = Arc::make_mut(&mut cluster.snapshot.pods[at]);
            pod.metadata.labels = Some(serde_json::from_value(label).unwrap());
        }
        let mut told: Vec<String> = Vec::new();
        for _ in 0..10 {
            let plan = cluster.decide();
            told.extend(nominated(&plan).iter().map(|(pod, _)| (*pod).to_owned()));
            plan.actions.into_iter().for_each(|action| cluster.act(action));
        }
        told.sort_unstable();
        let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        expected.sort_unstable();
        told.dedup();
        assert_eq!(told, expected, "{otherwise} {labels}");
    }
}

#[test]
fn a_nomination_that_is_not_expected_any_more_is_withdrawn() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    let annotations = [("veneer.io/nominated-node".to_owned(), "gone".to_owned())];
    Arc::make_mut(&mut cluster.snapshot.pods[0]).metadata.annotations = Some(annotations.into());
    let plan = cluster.decide();
    assert_eq!(nominated(&plan), [("one", "-")]);
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert_eq!(nominated(&cluster.decide()), []);
}

#[test]
fn nominated_pods_keep_their_room_when_others_are_decided_about() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "3");
    let plan = when_it_joins(&mut cluster);
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    let claims = cluster.created.len();
    // Larger pods are packed first, and this one fits on the node, too, if nobody else goes there.
    cluster.pod("two", "3500m");
    let mut told = Vec::new();
    for _ in 0..6 {
        let plan = cluster.decide();
        told.extend(nominated(&plan).into_iter().map(|(pod, _)| pod.to_owned()));
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    assert!(!told.contains(&"one".to_owned()), "{told:?}");
    assert!(
        cluster.created.len() > claims,
        "the second pod gets a node of its own"
    );
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

/// kube-scheduler makes room for the pod on a node by preemption.
fn preempts(cluster: &mut Cluster, pod: &str, node: &str) {
    let pods = cluster.snapshot.pods.iter_mut();
    for known in pods.filter(|known| name(&known.metadata) == pod) {
        let status = Arc::make_mut(known).status.get_or_insert_default();
        status.nominated_node_name = Some(node.to_owned());
    }
}

#[test]
fn a_preemption_that_kube_scheduler_has_forgotten_is_withdrawn() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("high", "1");
    cluster.pod("victim", "1");
    preempts(&mut cluster, "high", "full");
    let now = cluster.now;
    let victim = Arc::make_mut(&mut cluster.snapshot.pods[1]);
    victim.spec.get_or_insert_default().node_name = Some("full".to_owned());
    victim.metadata.deletion_timestamp = Some(Time(now));
    // As long as the victim is there the pod is left to kube-scheduler.
    for _ in 0..30 {
        assert_eq!(nominated(&cluster.decide()), []);
        cluster.pass_time(1);
    }
    assert_eq!(cluster.created.len(), 0);
    cluster.snapshot.pods.truncate(1);
    for _ in 0..8 {
        cluster.pass_time(1);
        let plan = cluster.decide();
        assert_eq!(nominated(&plan), []);
        assert!(plan.look_again.is_some(), "nothing else would make it look");
    }
    cluster.pass_time(1);
    assert_eq!(nominated(&cluster.decide()), [("high", "-")]);
    // A preemption on another node is a new one.
    preempts(&mut cluster, "high", "other");
    cluster.pass_time(9);
    assert_eq!(nominated(&cluster.decide()), []);
}
