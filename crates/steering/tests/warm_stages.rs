//! How far a spare is, how many nodes a pool has beside its spares, and what people are told about an Overprovisioner.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/spares.rs"]
mod spares;

use cluster::{Cluster, read};
use serde_json::{Value, json};
use spares::{count, spec};
use veneer_engine::plan::{Action, Instance, InstanceState, Snapshot};
use veneer_steering::warm::{Spares, Stage};

fn claim(name: &str, labels: Value, annotations: Value, conditions: Value) -> Value {
    let mut all = json!({"karpenter.sh/nodepool": "default"});
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().unwrap().clone());
    json!({"metadata": {"name": name, "labels": all, "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        "status": {"providerID": "id", "conditions": conditions}})
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!([{"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

/// The stage of a spare whose annotation, condition, node and instance are given.
fn stage(power: Option<&str>, conditions: Value, has_node: bool, state: Option<InstanceState>) -> Stage {
    let annotations = power.map_or(json!({}), |power| json!({"veneer.io/power": power}));
    let labels = json!({"veneer.io/overprovisioned": "true", "veneer.io/overprovisioner": "o"});
    let node = read(json!({"metadata": {"name": "n"}, "spec": {"providerID": "id"}}));
    let snapshot = Snapshot {
        node_claims: vec![read(claim("a", labels, annotations, conditions))],
        nodes: has_node.then_some(node).into_iter().collect(),
        instances: state
            .map(|state| Instance {
                provider_id: "id".to_owned(),
                claim: "a".to_owned(),
                launched: "2026-01-01T00:00:00Z".parse().unwrap(),
                state,
            })
            .into_iter()
            .collect(),
        ..Snapshot::default()
    };
    Spares::of(&snapshot).empty_of("o", "default")[0].stage
}

#[test]
fn a_running_spare_is_ready_with_its_node_and_a_stopped_one_without() {
    let initialised = |status| condition("Initialized", status, "x");
    let running = Some(InstanceState::Running);
    assert_eq!(stage(None, initialised("True"), true, running), Stage::Ready);
    assert_eq!(stage(None, initialised("True"), false, running), Stage::Warming);
    assert_eq!(stage(None, initialised("False"), true, running), Stage::Warming);
    let left = || condition("Registered", "False", veneer_engine::lifecycle::STOPPED);
    let stopped = Some(InstanceState::Stopped);
    assert_eq!(stage(Some("stop"), left(), false, stopped), Stage::Stopped);
    assert_eq!(
        stage(Some("hibernate"), left(), false, stopped),
        Stage::Hibernated
    );
    // Its node is still there, its instance is not stopped yet or unknown, or it has not left the cluster.
    assert_eq!(stage(Some("stop"), left(), true, stopped), Stage::Stopping);
    let stopping = Some(InstanceState::Stopping);
    assert_eq!(stage(Some("stop"), left(), false, stopping), Stage::Stopping);
    assert_eq!(stage(Some("stop"), left(), false, None), Stage::Stopping);
    for (status, reason) in [
        ("True", veneer_engine::lifecycle::STOPPED),
        ("False", "NodeNotFound"),
    ] {
        let stays = condition("Registered", status, reason);
        assert_eq!(stage(Some("stop"), stays, false, stopped), Stage::Stopping);
    }
}

#[test]
fn used_spares_and_other_nodes_are_counted_and_pods_of_daemons_are_none() {
    let used = json!({"veneer.io/overprovisioned": "used", "veneer.io/overprovisioner": "o"});
    let pod = |kind: &str| {
        json!({"metadata": {"name": kind, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x", "controller": true}]},
            "spec": {"nodeName": "n", "containers": []}})
    };
    let mut snapshot = Snapshot {
        node_claims: vec![
            read(claim("a", used, json!({}), json!([]))),
            read(claim("b", json!({}), json!({}), json!([]))),
            read(claim("c", json!({}), json!({}), json!([]))),
        ],
        nodes: vec![read(
            json!({"metadata": {"name": "n"}, "spec": {"providerID": "id"}}),
        )],
        pods: vec![read(pod("DaemonSet"))],
        ..Snapshot::default()
    };
    let spares = Spares::of(&snapshot);
    assert_eq!(spares.base_of("default"), 3);
    assert!(!spares.used_of("o", "default")[0].has_pods);
    snapshot.pods.push(read(pod("StatefulSet")));
    snapshot.pods.push(read(pod("ReplicaSet")));
    assert!(Spares::of(&snapshot).used_of("o", "default")[0].has_pods);
}

/// The warnings about Overprovisioners in what would be done now, with their texts.
fn warnings(cluster: &mut Cluster) -> Vec<(&'static str, String)> {
    let actions = cluster.decide().actions;
    let mut told = Vec::new();
    for action in actions {
        if let Action::Announce(event) = &action
            && event.is_warning
        {
            told.push((event.reason, event.message.clone()));
        }
        cluster.act(action);
    }
    told
}

#[test]
fn a_fault_is_told_once_and_again_when_it_is_another_one() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "lost",
        json!({"targetNodePools": ["gone"], "sizing": {"count": 1}}),
    );
    let told = warnings(&mut cluster);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, "NodePoolNotFound");
    assert!(told[0].1.contains("gone"), "{told:?}");
    assert_eq!(warnings(&mut cluster), [], "nothing has changed");
    assert!(
        cluster
            .condition("lost", "Ready")
            .starts_with("False NodePoolNotFound")
    );
    // Spares on their way are no fault.
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("slow", count(1));
    assert_eq!(warnings(&mut cluster), []);
    assert!(cluster.condition("slow", "Ready").starts_with("False Warming"));
    // A number that cannot be read is one of the sizing.
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("odd", spec(json!({"sizing": {"percentage": 101}})));
    let told = warnings(&mut cluster);
    assert_eq!(
        told.iter().map(|one| one.0).collect::<Vec<_>>(),
        ["SizingInvalid"]
    );
    assert_eq!(warnings(&mut cluster), []);
}
