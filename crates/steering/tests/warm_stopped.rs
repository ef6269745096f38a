//! Spares that are stopped or hibernated, and how they start.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/spares.rs"]
mod spares;

use std::collections::BTreeSet;

use cluster::Cluster;
use serde_json::json;
use spares::{count, instance_type, names, spec, taints};
use veneer_api::labels::{karpenter, veneer};
use veneer_engine::plan::{condition_true, label, name};

#[test]
fn stopped_spares_leave_the_cluster_and_start_when_pods_need_them() {
    for (state, does) in [("Stopped", "stop"), ("Hibernated", "hibernate")] {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner(
            "cold",
            spec(json!({"sizing": {"count": 2}, "state": state, "strategy": "KeepMinimum"})),
        );
        cluster.settle();
        assert_eq!(cluster.calls, [does, does], "{state}");
        assert_eq!(cluster.snapshot.nodes.len(), 0, "its node leaves the cluster");
        assert_eq!(cluster.snapshot.instances.len(), 2);
        let status = cluster.status("cold");
        assert_eq!(
            (
                status.node_pools[0].stopped,
                status.node_pools[0].ready,
                status.ready
            ),
            (2, 0, 2)
        );
        assert_eq!(cluster.condition("cold", "Ready"), "True Ready ");
        let spare = &cluster.spares("cold")[0];
        assert_eq!(label(&spare.metadata, veneer::PURCHASE_OPTION), Some("on-demand"));
        assert_eq!(
            spare
                .metadata
                .annotations
                .as_ref()
                .unwrap()
                .contains_key("veneer.io/hibernation"),
            state == "Hibernated"
        );
        // Time does not end it, and it stays stopped.
        cluster.pass_time(7200);
        cluster.settle();
        assert_eq!((cluster.spares("cold").len(), cluster.calls.len()), (2, 2));
        let created = cluster.created.len();
        cluster.pod("a", "1");
        cluster.settle();
        assert_eq!(cluster.created.len(), created);
        assert_eq!(cluster.calls[2..], ["start small"]);
        let used = cluster.used("cold");
        assert_eq!(cluster.node_of("a"), used[0].metadata.name);
        assert!(condition_true(&used[0], "Initialized"));
        assert_eq!(
            label(&used[0].metadata, karpenter::CAPACITY_TYPE),
            Some("on-demand")
        );
        assert!(cluster.reasons().contains(&"SpareStopped"));
        // It lives like any other node: empty, it goes.
        cluster.remove_pod("a");
        cluster.pass_time(120);
        cluster.settle();
        assert_eq!(cluster.used("cold").len(), 0);
        assert_eq!(cluster.spares("cold").len(), 2, "and the stock is full again");
    }
}

#[test]
fn a_start_that_never_joins_is_given_up_after_the_registration_timeout() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Stopped", "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    cluster.pass_time(3 * 3600);
    cluster.joins = false;
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(cluster.used("cold").len(), 1);
    cluster.pass_time(14 * 60);
    cluster.settle();
    assert_eq!(
        cluster.used("cold").len(),
        1,
        "fifteen minutes from the start, not from the launch"
    );
    cluster.joins = true;
    cluster.pass_time(2 * 60);
    cluster.settle();
    assert!(cluster.calls.contains(&"delete registration_timeout".to_owned()));
    assert!(cluster.node_of("a").is_some(), "on another node");
}

#[test]
fn a_spare_that_pods_get_before_its_launch_has_its_own_capacity_type_back() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.requirements = serde_json::from_value(json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]))
        .unwrap();
    });
    cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": "Stopped"})));
    let plan = cluster.decide();
    for action in plan.actions {
        cluster.act(action);
    }
    assert!(cluster.spares("cold")[0].status.is_none(), "not launched yet");
    cluster.pod("a", "1");
    cluster.settle();
    let used = &cluster.used("cold")[0];
    assert_eq!(cluster.node_of("a"), used.metadata.name);
    let node = cluster.node(&cluster.node_of("a").unwrap());
    for metadata in [&used.metadata, &node.metadata] {
        assert_eq!(label(metadata, karpenter::CAPACITY_TYPE), Some("on-demand"));
        assert_eq!(label(metadata, veneer::OVERPROVISIONED), Some("used"));
    }
    // It lives like any other node: empty, it goes.
    let name = used.metadata.name.clone();
    cluster.remove_pod("a");
    cluster.pass_time(120);
    cluster.settle();
    assert!(cluster.claims(|claim| claim.metadata.name == name).is_empty());
}

#[test]
fn a_hibernated_instance_keeps_its_type_and_makes_room_when_that_is_not_available() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Hibernated", "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    cluster.short = vec!["small".to_owned()];
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(cluster.calls[..2], ["hibernate", "start small: short"]);
    assert!(cluster.calls.contains(&"delete insufficient_capacity".to_owned()));
    assert!(!cluster.calls.iter().any(|call| call.starts_with("change type")));
    assert!(cluster.node_of("a").is_some(), "on a new node of another type");
}

#[test]
fn a_stopped_instance_that_cannot_start_becomes_another_type_or_makes_room() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Stopped", "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    cluster.short = vec!["small".to_owned(), "medium".to_owned()];
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(
        cluster.calls[1..],
        [
            "start small: short",
            "change type to medium",
            "start medium: short",
            "change type to large",
            "start large"
        ]
    );
    assert_eq!(instance_type(&cluster.used("cold")[0]), "large");
    assert_eq!(cluster.node_of("a"), cluster.used("cold")[0].metadata.name);

    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Stopped", "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    cluster.short = ["small", "medium", "large", "giant"].map(str::to_owned).to_vec();
    cluster.pod("a", "1");
    cluster.settle();
    assert!(
        cluster.calls.contains(&"delete insufficient_capacity".to_owned()),
        "{:?}",
        cluster.calls
    );
    assert!(cluster.reasons().contains(&"InsufficientCapacityError"));
    let node = cluster.node_of("a").unwrap();
    let claims = cluster.claims(|claim| name(&claim.metadata) == node);
    assert_eq!(
        label(&claims[0].metadata, veneer::OVERPROVISIONED),
        None,
        "a new launch"
    );
}

#[test]
fn a_stopped_instance_that_vanished_is_replaced() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": "Stopped"})));
    cluster.settle();
    let old = names(&cluster.spares("cold"));
    cluster.snapshot.instances.clear();
    cluster.settle();
    let new = names(&cluster.spares("cold"));
    assert_eq!(new.len(), 1);
    assert_ne!(new, old);
}

#[test]
fn the_hybrid_uses_the_hottest_first_and_warms_up_behind() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("hot", spec(json!({"sizing": {"count": 1}})));
    cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 3}, "state": "Stopped"})));
    cluster.settle();
    let hot = names(&cluster.spares("hot"));
    let cold: BTreeSet<String> = names(&cluster.spares("cold")).into_iter().collect();
    assert_eq!((hot.len(), cold.len()), (1, 3));
    cluster.pod("a", "1500m");
    cluster.settle();
    assert_eq!(cluster.node_of("a"), Some(hot[0].clone()), "the running one");
    let warmed = names(&cluster.spares("hot"));
    assert_eq!(warmed.len(), 1);
    assert!(cold.contains(&warmed[0]), "a stopped one took its place");
    assert_eq!(
        cluster
            .calls
            .iter()
            .filter(|call| call.starts_with("start"))
            .count(),
        1
    );
    assert_eq!(taints(&cluster, &warmed[0]), ["karpenter.sh/overprovisioned"]);
    let behind: BTreeSet<String> = names(&cluster.spares("cold")).into_iter().collect();
    assert_eq!(behind.len(), 3, "and a new one was launched behind it");
    assert!(!behind.contains(&warmed[0]));
    // A burst takes the running one and starts stopped ones; nothing waits for a launch.
    let created = cluster.created.len();
    cluster.joins = true;
    for pod in 0..3 {
        cluster.pod(&format!("b{pod}"), "1500m");
    }
    // First the running one, which needs no further pods to be waited for, and then the others for those that are left.
    for used in [2, 4] {
        let plan = cluster.decide();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
        assert_eq!(cluster.used("hot").len() + cluster.used("cold").len(), used);
    }
    cluster.settle();
    assert!(cluster.created.len() > created, "for the spares behind");
    let own = cluster.claims(|claim| label(&claim.metadata, veneer::OVERPROVISIONED).is_none());
    assert_eq!(own.len(), 0, "and only for those");
    assert_eq!(
        (cluster.spares("hot").len(), cluster.spares("cold").len()),
        (1, 3)
    );
    for pod in 0..3 {
        let node = cluster.node_of(&format!("b{pod}")).unwrap();
        let used: Vec<String> = names(&cluster.used("hot"))
            .into_iter()
            .chain(names(&cluster.used("cold")))
            .collect();
        assert!(used.contains(&node), "{node}");
    }
}

#[test]
fn another_state_changes_the_spares_that_exist() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.requirements = serde_json::from_value(json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]))
        .unwrap();
    });
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let spares = names(&cluster.spares("warm"));
    cluster.overprovisioner("warm", spec(json!({"sizing": {"count": 2}, "state": "Stopped"})));
    cluster.settle();
    assert_eq!(names(&cluster.spares("warm")), spares);
    assert_eq!(cluster.calls, ["stop", "stop"]);
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    assert_eq!(names(&cluster.spares("warm")), spares);
    assert_eq!(cluster.calls[2..], ["start small", "start small"]);
    assert_eq!(taints(&cluster, &spares[0]), ["karpenter.sh/overprovisioned"]);
    // What cannot hibernate, since it was not launched for it, is stopped until another takes its place.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "state": "Hibernated"})),
    );
    cluster.settle();
    let renewed = [
        "stop",
        "stop",
        "delete expired",
        "hibernate",
        "delete expired",
        "hibernate",
    ];
    assert_eq!(cluster.calls[4..], renewed);

    // Spot instances cannot be stopped, so others take their place.
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let spot = names(&cluster.spares("warm"));
    cluster.overprovisioner("warm", spec(json!({"sizing": {"count": 1}, "state": "Stopped"})));
    cluster.settle();
    let spares = cluster.spares("warm");
    assert_ne!(names(&spares), spot);
    assert_eq!(
        label(&spares[0].metadata, veneer::PURCHASE_OPTION),
        Some("on-demand")
    );
    assert_eq!(cluster.snapshot.instances.len(), 1);
}

#[test]
fn states_that_a_pool_cannot_have_are_said_with_the_fix() {
    let spot_only = |pool: &mut veneer_api::NodePool| {
        pool.spec.template.spec.requirements = serde_json::from_value(json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]))
        .unwrap();
    };
    let mut cluster = Cluster::new();
    cluster.pool("default", spot_only);
    cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": "Stopped"})));
    cluster.settle();
    let found = cluster.condition("cold", "SizingValid");
    assert!(
        found.starts_with("False NoInstanceType NodePool default: Stopped spares are on-demand"),
        "{found}"
    );
    assert!(
        found.contains("allow on-demand in its requirements, or use state Running"),
        "{found}"
    );
    assert_eq!(cluster.created.len(), 0);

    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.requirements = serde_json::from_value(json!([
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["giant"]}]))
        .unwrap();
    });
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Hibernated"})),
    );
    cluster.settle();
    let found = cluster.condition("cold", "SizingValid");
    assert!(
        found.starts_with("False NoInstanceType NodePool default: none of its types can hibernate"),
        "{found}"
    );
    assert_eq!(cluster.created.len(), 0);
    cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": "Stopped"})));
    cluster.settle();
    assert_eq!(cluster.spares("cold").len(), 1);

    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.node_class_ref.name = "gone".to_owned();
    });
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    assert!(
        cluster
            .condition("warm", "Ready")
            .starts_with("False NodePoolNotReady NodePool default is not ready")
    );
    assert_eq!(cluster.created.len(), 0);
}
