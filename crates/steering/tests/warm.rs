//! Spares of Overprovisioners in a cluster in memory: how many there are, who gets them, and how they come and go.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::collections::BTreeSet;

use cluster::{Cluster, read};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, veneer};
use veneer_engine::plan::{Action, Target, condition_true, label, name};
use veneer_engine::provision::Market;
use veneer_steering::warm::{Mode, Spares, keep};

fn spec(more: Value) -> Value {
    let mut spec = json!({"targetNodePools": ["default"]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

fn count(count: i64) -> Value {
    spec(json!({"sizing": {"count": count}}))
}

fn names(claims: &[std::sync::Arc<NodeClaim>]) -> Vec<String> {
    claims.iter().map(|one| name(&one.metadata).to_owned()).collect()
}

fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
    let node = cluster.node(node);
    let taints = node.spec.as_ref().unwrap().taints.iter().flatten();
    taints.map(|taint| taint.key.clone()).collect()
}

fn instance_type(claim: &NodeClaim) -> &str {
    label(&claim.metadata, "node.kubernetes.io/instance-type").unwrap()
}

/// The numbers of a status: desired, ready, in use.
fn numbers(cluster: &Cluster, named: &str) -> (i32, i32, i32) {
    let status = cluster.status(named);
    (status.desired, status.ready, status.in_use)
}

#[test]
fn a_spare_joins_with_its_taint_and_labels_and_counts_as_one() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let spares = cluster.spares("warm");
    assert_eq!(spares.len(), 2);
    for spare in &spares {
        let node = cluster.node(name(&spare.metadata));
        let taint = &node.spec.as_ref().unwrap().taints.as_ref().unwrap()[0];
        assert_eq!(
            (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()),
            ("karpenter.sh/overprovisioned", Some("true"), "NoSchedule")
        );
        for metadata in [&spare.metadata, &node.metadata] {
            let of = |key| label(metadata, key);
            assert_eq!(of("karpenter.sh/capacity-type"), Some("overprovisioned"));
            assert_eq!(of("veneer.io/purchase-option"), Some("spot"));
            assert_eq!(of("veneer.io/overprovisioned"), Some("true"));
            assert_eq!(of("veneer.io/overprovisioner"), Some("warm"));
            assert_eq!(of("karpenter.sh/nodepool"), Some("default"));
        }
        assert_eq!(instance_type(spare), "small", "the pool's cheapest");
    }
    assert_eq!(numbers(&cluster, "warm"), (2, 2, 0));
    assert_eq!(cluster.condition("warm", "Ready"), "True Ready ");
    assert_eq!(cluster.condition("warm", "SizingValid"), "True SizingValid ");
    assert_eq!(cluster.condition("warm", "TargetsFound"), "True TargetsFound ");
    assert!(cluster.reasons().contains(&"SpareLaunched"));
    // Nothing more happens, also when time passes: empty spares are not consolidated.
    let created = cluster.created.len();
    cluster.pass_time(3600);
    cluster.settle();
    assert_eq!(
        (cluster.created.len(), cluster.spares("warm").len()),
        (created, 2)
    );
}

#[test]
fn a_pending_pod_gets_a_running_spare_and_no_new_claim() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    let before = cluster.created.clone();
    cluster.pod("a", "1");
    // One pass is enough, without waiting for more pods.
    let plan = cluster.decide();
    let texts: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
    assert!(
        texts[0].ends_with("set metadata and taints"),
        "the node comes first: {texts:?}"
    );
    assert!(!texts.iter().any(|text| text.contains("create")), "{texts:?}");
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    cluster.settle();
    let node = cluster.node_of("a").unwrap();
    assert_eq!(cluster.created, before);
    assert_eq!(taints(&cluster, &node), [""; 0]);
    let used = cluster.used("warm");
    assert_eq!(names(&used), [node.clone()]);
    for metadata in [&used[0].metadata, &cluster.node(&node).metadata] {
        assert_eq!(label(metadata, "karpenter.sh/capacity-type"), Some("spot"));
        assert_eq!(label(metadata, "veneer.io/overprovisioned"), Some("used"));
    }
    assert_eq!(numbers(&cluster, "warm"), (1, 1, 1));
    assert!(cluster.reasons().contains(&"SpareUsed"));
}

#[test]
fn keep_empty_makes_up_for_used_spares_and_keep_minimum_does_not() {
    for (strategy, left) in [("KeepEmpty", 5), ("KeepMinimum", 3)] {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner(
            "warm",
            spec(json!({"sizing": {"count": 5}, "strategy": strategy})),
        );
        cluster.settle();
        cluster.pod("a", "1500m");
        cluster.pod("b", "1500m");
        cluster.settle();
        assert_eq!(cluster.spares("warm").len(), left, "{strategy}");
        assert_eq!(cluster.used("warm").len(), 2, "{strategy}");
        assert_eq!(
            numbers(&cluster, "warm"),
            (i32::try_from(left).unwrap(), i32::try_from(left).unwrap(), 2)
        );
        // When the used ones go away, the stock is five again.
        cluster.remove_pod("a");
        cluster.remove_pod("b");
        cluster.pass_time(120);
        cluster.settle();
        assert_eq!(
            cluster.used("warm").len(),
            0,
            "{strategy}: used spares are consolidated like any node"
        );
        assert_eq!(cluster.spares("warm").len(), 5, "{strategy}");
    }
}

#[test]
fn a_percentage_follows_the_nodes_that_are_not_spares() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", spec(json!({"sizing": {"percentage": 50}})));
    cluster.settle();
    assert_eq!(cluster.created.len(), 0, "an empty pool has no share");
    for pod in 0..5 {
        cluster.pod(&format!("p{pod}"), "1500m");
        cluster.settle();
        // The first pod gets a node of its own, and then a spare comes; from then on pods get spares.
        let nodes = pod + 1;
        assert_eq!(
            cluster.spares("warm").len(),
            (nodes + 1) / 2,
            "{nodes} nodes in use"
        );
    }
    for pod in 0..5 {
        cluster.remove_pod(&format!("p{pod}"));
    }
    cluster.pass_time(120);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
    assert_eq!(cluster.snapshot.instances.len(), 0);
    assert_eq!(numbers(&cluster, "warm"), (0, 0, 0));
}

#[test]
fn two_overprovisioners_add_up_and_keep_their_own() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("one", count(2));
    cluster.overprovisioner("two", count(3));
    cluster.settle();
    let (one, two) = (names(&cluster.spares("one")), names(&cluster.spares("two")));
    assert_eq!((one.len(), two.len()), (2, 3));
    cluster.overprovisioner("one", count(0));
    cluster.settle();
    assert_eq!(cluster.spares("one").len(), 0);
    assert_eq!(names(&cluster.spares("two")), two);
    // A pool of several has the sizing by itself.
    cluster.pool("other", |_| {});
    cluster.overprovisioner(
        "two",
        json!({"targetNodePools": ["default", "other"], "sizing": {"count": 3}}),
    );
    cluster.settle();
    assert_eq!(cluster.spares("two").len(), 6);
    let pools = cluster.status("two").node_pools;
    let pools: Vec<(&str, i32, i32)> = pools
        .iter()
        .map(|pool| (pool.name.as_str(), pool.desired, pool.ready))
        .collect();
    assert_eq!(pools, [("default", 3, 3), ("other", 3, 3)]);
}

#[test]
fn the_shape_is_the_most_common_type_in_use_or_fits_the_largest_pod() {
    let mut cluster = Cluster::with_pool();
    // Nodes in use: two of large, one of medium.
    for (pod, cpu) in [("a", "7"), ("b", "7"), ("c", "3")] {
        cluster.pod(pod, cpu);
        cluster.settle();
    }
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    assert_eq!(instance_type(&cluster.spares("warm")[0]), "large");

    // Nobody is there, but pods wait.
    let mut cluster = Cluster::with_pool();
    cluster.wait_for_pods();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "strategy": "KeepMinimum"})),
    );
    cluster.pod_with(
        "big",
        "5",
        json!({"nodeSelector": {"karpenter.sh/nodepool": "default"}}),
    );
    cluster.pod_with(
        "other",
        "50",
        json!({"nodeSelector": {"karpenter.sh/nodepool": "elsewhere"}}),
    );
    cluster.settle();
    let spare = cluster.used("warm");
    assert_eq!(
        instance_type(&spare[0]),
        "large",
        "made for the largest pod that the pool can take"
    );
    assert_eq!(cluster.node_of("big"), spare[0].metadata.name);
}

#[test]
fn a_type_too_small_for_every_pod_is_not_taken_though_it_is_common() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("a", "1");
    cluster.settle();
    // The node in use is small; the pods that are left are larger than that, and one of them goes nowhere.
    cluster.remove_pod("a");
    cluster.wait_for_pods();
    cluster.pod_with("b", "3", json!({"nodeSelector": {"absent": "yes"}}));
    cluster.pod("c", "3");
    cluster.overprovisioner("warm", count(1));
    let plan = cluster.decide();
    let types = plan.actions.iter().find_map(|action| match action {
        Action::CreateClaim(claim) => claim
            .spec
            .requirements
            .iter()
            .find(|one| one.key == "node.kubernetes.io/instance-type")
            .map(|one| one.values.clone()),
        _ => None,
    });
    assert_eq!(types.unwrap(), ["medium"]);
}

#[test]
fn pods_that_no_spare_takes_get_nodes_of_their_own() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    cluster.pod("big", "6");
    cluster.pod_with(
        "elsewhere",
        "1",
        json!({"nodeSelector": {"topology.kubernetes.io/zone": "zone-b"}}),
    );
    cluster.settle();
    let spare = names(&cluster.spares("warm"));
    assert_eq!(spare.len(), 1);
    assert_eq!(cluster.used("warm").len(), 0);
    assert!(!spare.contains(&cluster.node_of("big").unwrap()));
    assert!(!spare.contains(&cluster.node_of("elsewhere").unwrap()));
    // The capacity type that the pod asks for is the restored one.
    cluster.pod_with(
        "spot",
        "1500m",
        json!({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}),
    );
    cluster.settle();
    assert_eq!(cluster.node_of("spot"), Some(spare[0].clone()));
}

#[test]
fn a_pod_that_waits_for_its_own_node_does_not_eat_the_buffer() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("first", "1500m");
    cluster.joins = false;
    cluster.settle();
    assert_eq!(cluster.created.len(), 1);
    // A spare comes up before that node.
    cluster.overprovisioner("warm", count(1));
    cluster.joins = true;
    cluster.pass_time(60);
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (1, 0));
    assert_eq!(cluster.node_of("first"), None);
    cluster.pod("second", "1500m");
    cluster.settle();
    assert_eq!(cluster.used("warm").len(), 1, "the new pod does get it");
    let spare = names(&cluster.used("warm"))[0].clone();
    cluster.let_join();
    cluster.settle();
    // Which of the two goes where is up to the scheduler.
    let nodes: BTreeSet<Option<String>> = [cluster.node_of("first"), cluster.node_of("second")].into();
    assert_eq!(nodes, [Some(cluster.created[0].clone()), Some(spare)].into());
    assert_eq!(
        cluster.created.len(),
        3,
        "one for the first pod, one spare, and one to make up for it"
    );
}

#[test]
fn spares_that_are_on_their_way_are_given_too_and_open_from_the_start() {
    let mut cluster = Cluster::with_pool();
    cluster.joins = false;
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    assert_eq!(cluster.status("warm").node_pools[0].warming, 1);
    assert_eq!(
        cluster.condition("warm", "Ready"),
        "False Warming 0 of 1 spares are ready"
    );
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(cluster.created.len(), 1, "no second claim");
    assert_eq!(cluster.used("warm").len(), 1);
    cluster.let_join();
    cluster.settle();
    assert_eq!(cluster.node_of("a"), Some(cluster.created[0].clone()));
    assert_eq!(taints(&cluster, &cluster.created[0]), [""; 0]);
}

#[test]
fn limits_of_the_pool_and_of_spending_hold() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec
            .limits
            .insert("cpu".to_owned(), Quantity("7".to_owned()));
    });
    cluster.overprovisioner("warm", count(5));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 3, "of two processors each");
    assert_eq!(
        cluster.condition("warm", "SizingValid"),
        "False LimitReached NodePool default: its spec.limits leave room for 3 of 5 spares; raise them, or ask for fewer"
    );
    assert!(
        cluster
            .condition("warm", "Ready")
            .starts_with("False LimitReached")
    );
    cluster.edit_pool("default", |pool| {
        pool.spec
            .limits
            .insert("nodes".to_owned(), Quantity("4".to_owned()));
        pool.spec
            .limits
            .insert("cpu".to_owned(), Quantity("100".to_owned()));
    });
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 4);
    cluster.edit_pool("default", |pool| pool.spec.limits.clear());
    // A small spot node costs 0.04 an hour.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 9}, "maxHourlySpend": "0.24"})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 6);
    assert!(cluster.condition("warm", "SizingValid").starts_with(
        "False SpendLimitReached NodePool default: 9 spares would cost more than spec.maxHourlySpend"
    ),);
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 9}, "maxHourlySpend": "0.1"})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 2, "what is too expensive goes");
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "maxHourlySpend": "0"})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "maxHourlySpend": "1"})),
    );
    cluster.settle();
    assert_eq!(cluster.condition("warm", "Ready"), "True Ready ");
}

#[test]
fn too_many_spares_go_the_newest_first_and_never_with_pods() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let old: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    cluster.pass_time(60);
    cluster.overprovisioner("warm", count(4));
    cluster.settle();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let left: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    assert_eq!(left, old);
    assert!(cluster.reasons().contains(&"SpareRemoved"));
    // One that is only on its way goes before those that are ready, though it is not newer.
    cluster.joins = false;
    cluster.overprovisioner("warm", count(3));
    cluster.settle();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let left: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    assert_eq!(left, old);
    // A pod that tolerates everything sits on a spare: that one is used, and stays.
    cluster.joins = true;
    cluster.pod_with("tolerant", "1", json!({"tolerations": [{"operator": "Exists"}]}));
    cluster.schedule();
    let node = cluster.node_of("tolerant").unwrap();
    assert!(old.contains(&node));
    cluster.overprovisioner("warm", count(0));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
    assert_eq!(names(&cluster.used("warm")), [node.clone()]);
    assert_eq!(taints(&cluster, &node), [""; 0]);
    assert_eq!(cluster.node_of("tolerant"), Some(node));
}

#[test]
fn a_used_spare_never_becomes_a_spare_again() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.disruption.consolidate_after = "Never".to_owned()
    });
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    cluster.pod("a", "1");
    cluster.settle();
    cluster.remove_pod("a");
    cluster.pass_time(3600);
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (0, 1));
}

#[test]
fn spares_that_nobody_asks_for_go_and_a_wrong_object_changes_nothing() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let kept = names(&cluster.spares("warm"));
    cluster.overprovisioner("warm", spec(json!({"sizing": {"count": 5, "percentage": 3}})));
    cluster.settle();
    assert_eq!(names(&cluster.spares("warm")), kept);
    assert!(
        cluster
            .condition("warm", "SizingValid")
            .starts_with("False Invalid spec.sizing: both")
    );
    assert!(cluster.condition("warm", "Ready").starts_with("False Invalid"));
    assert!(cluster.reasons().contains(&"SizingInvalid"));
    // Another pool: the old ones go, and what is missing is named.
    cluster.overprovisioner(
        "warm",
        json!({"targetNodePools": ["gone"], "sizing": {"count": 1}}),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
    assert_eq!(
        cluster.condition("warm", "TargetsFound"),
        "False NodePoolNotFound spec.targetNodePools: there is no NodePool \"gone\"; create it, or remove the name"
    );
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 2);
    cluster.snapshot.overprovisioners.clear();
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
    assert_eq!(cluster.snapshot.instances.len(), 0);
}

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
    let plan = cluster.decide();
    let made = plan
        .actions
        .iter()
        .filter(|action| matches!(action, Action::CreateClaim(_)))
        .count();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert_eq!(cluster.used("hot").len() + cluster.used("cold").len(), 4);
    cluster.settle();
    assert!(
        made > 0 && cluster.created.len() > created,
        "only for the spares behind"
    );
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
    // What cannot hibernate, since it was not launched for it, is stopped.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "state": "Hibernated"})),
    );
    cluster.settle();
    assert_eq!(cluster.calls[4..], ["stop", "stop"]);

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
        pool.spec.template.spec.node_class_ref.name = "gone".to_owned()
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

#[test]
fn spares_expire_one_at_a_time() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.expire_after = "24h".to_owned()
    });
    cluster.overprovisioner("warm", count(3));
    cluster.settle();
    let old: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    cluster.pass_time(24 * 3600 - 1);
    cluster.settle();
    assert_eq!(
        names(&cluster.spares("warm"))
            .into_iter()
            .collect::<BTreeSet<_>>(),
        old
    );
    cluster.pass_time(1);
    cluster.joins = false;
    cluster.settle();
    let old_left = |cluster: &Cluster| {
        let left = names(&cluster.spares("warm"));
        left.iter().filter(|one| old.contains(*one)).count()
    };
    assert_eq!(
        old_left(&cluster),
        2,
        "the next one waits until its replacement is ready"
    );
    assert_eq!(cluster.spares("warm").len(), 3);
    cluster.let_join();
    cluster.settle();
    assert_eq!(old_left(&cluster), 0);
    assert_eq!(cluster.spares("warm").len(), 3);
    assert!(cluster.reasons().contains(&"SpareRenewed"));
    let expired = cluster
        .calls
        .iter()
        .filter(|call| *call == "delete expired")
        .count();
    assert_eq!(expired, 3);
}

#[test]
fn hibernated_spares_are_renewed_after_sixty_days_and_drifted_ones_at_once() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Hibernated"})),
    );
    cluster.settle();
    let old = names(&cluster.spares("cold"));
    cluster.pass_time(60 * 24 * 3600 - 1);
    cluster.settle();
    assert_eq!(names(&cluster.spares("cold")), old);
    let due = cluster.decide().look_again.unwrap();
    assert!(due.duration_since(cluster.now).as_millis() <= 1000, "{due}");
    cluster.pass_time(1);
    cluster.settle();
    let new = names(&cluster.spares("cold"));
    assert_ne!(new, old);

    let drifted: veneer_api::Condition = serde_json::from_value(json!({
        "type": "Drifted", "status": "True", "reason": "Drifted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}))
    .unwrap();
    let target = Target {
        name: new[0].clone(),
        ..Target::default()
    };
    cluster.edit_claim(&target, |claim| {
        claim.status.as_mut().unwrap().conditions.push(drifted.clone())
    });
    cluster.settle();
    assert_ne!(
        names(&cluster.spares("cold")),
        new,
        "a stopped one that drifted is replaced"
    );

    // A running one that drifted is left alone until it is used.
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let warm = names(&cluster.spares("warm"));
    let target = Target {
        name: warm[0].clone(),
        ..Target::default()
    };
    cluster.edit_claim(&target, |claim| {
        claim.status.as_mut().unwrap().conditions.push(drifted)
    });
    cluster.settle();
    assert_eq!(names(&cluster.spares("warm")), warm);
}

#[test]
fn a_scheduled_override_opens_and_closes_on_time() {
    let mut cluster = Cluster::with_pool();
    // The cluster starts on Monday at midnight.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "scheduledOverrides": [
            {"schedule": "0 9 * * mon-fri", "duration": "8h", "sizing": {"count": 4}}]})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    let status = cluster.status("warm");
    assert_eq!(status.active_override, None);
    assert_eq!(
        status.next_override.unwrap().start.0.to_string(),
        "2026-01-05T09:00:00Z"
    );
    cluster.pass_time(9 * 3600 - 1);
    cluster.settle();
    let plan = cluster.decide();
    assert_eq!(plan.look_again.unwrap().to_string(), "2026-01-05T09:00:00Z");
    assert_eq!(cluster.spares("warm").len(), 1);
    cluster.pass_time(1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 4);
    let active = cluster.status("warm").active_override.unwrap();
    assert_eq!((active.index, active.schedule.as_str()), (0, "0 9 * * mon-fri"));
    assert_eq!(active.end.0.to_string(), "2026-01-05T17:00:00Z");
    cluster.pass_time(8 * 3600 - 1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 4);
    cluster.pass_time(1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    assert_eq!(cluster.status("warm").active_override, None);
    let overrides: Vec<&str> = cluster
        .reasons()
        .into_iter()
        .filter(|reason| reason.starts_with("Override"))
        .collect();
    assert_eq!(overrides, ["OverrideStarted", "OverrideEnded"]);
}

#[test]
fn overlapping_overrides_are_pointed_out_once() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "scheduledOverrides": [
            {"schedule": "0 9 * * *", "duration": "8h", "sizing": {"count": 2}},
            {"schedule": "0 16 * * *", "duration": "2h", "sizing": {"count": 3}}]})),
    );
    cluster.settle();
    let expected = "True OverridesOverlap spec.scheduledOverrides[1] and [0] are both in force at 2026-01-05T16:00:00Z; \
                    [0] counts, since it comes first; change their times or their order if that is not wanted";
    assert_eq!(cluster.condition("warm", "SizingValid"), expected);
    cluster.pass_time(24 * 3600);
    cluster.settle();
    assert_eq!(
        cluster.condition("warm", "SizingValid"),
        expected,
        "looked for once"
    );
}

#[test]
fn objects_that_the_door_would_refuse_get_a_condition_all_the_same() {
    let cases = [
        (
            spec(json!({"sizing": {}})),
            "spec.sizing: neither count nor percentage is set; set one of them",
        ),
        (
            spec(json!({"sizing": {"count": 1, "percentage": 1}})),
            "spec.sizing: both count and percentage are set; remove one of them",
        ),
        (
            spec(json!({"sizing": {"count": -1}})),
            "spec.sizing.count: -1 is negative; expected a number of nodes from 0",
        ),
        (
            spec(json!({"sizing": {"percentage": 101}})),
            "spec.sizing.percentage: expected 0 to 100, found 101",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "state": "Sleeping"})),
            "spec.state: unknown state \"Sleeping\"; expected one of Running, Stopped, Hibernated",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "strategy": "KeepFull"})),
            "spec.strategy: unknown strategy \"KeepFull\"; expected one of KeepEmpty, KeepMinimum",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "maxHourlySpend": "much"})),
            "spec.maxHourlySpend: expected dollars per hour, such as \"12.50\", found \"much\"",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "maxHourlySpend": "-1"})),
            "spec.maxHourlySpend: expected dollars per hour, such as \"12.50\", found \"-1\"",
        ),
        (
            json!({"targetNodePools": ["default", "default"], "sizing": {"count": 1}}),
            "spec.targetNodePools: \"default\" is listed twice; remove one of them",
        ),
        (
            json!({"targetNodePools": [], "sizing": {"count": 1}}),
            "spec.targetNodePools: no NodePool is listed; add one",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 31 2 *", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].schedule \"0 9 31 2 *\" never comes: none of its months has such a day; change the day of month or the month",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 * * fri-mon", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].schedule: day of week \"fri-mon\": the range \"fri-mon\" runs backwards; write it as two, such as \"fri-sat,sun-mon\" for \"fri-mon\"",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 * * *", "timeZone": "Mars/Base", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].timeZone \"Mars/Base\" is unknown; expected an IANA name, such as \"UTC\" or \"Europe/Berlin\"",
        ),
    ];
    for (spec, expected) in cases {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner("wrong", spec);
        cluster.settle();
        assert_eq!(
            cluster.condition("wrong", "SizingValid"),
            format!("False Invalid {expected}")
        );
        assert_eq!(
            cluster.condition("wrong", "Ready"),
            format!("False Invalid {expected}")
        );
        assert_eq!(cluster.created.len(), 0, "{expected}");
    }
}

#[test]
fn static_pools_and_spares_do_not_fight() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| pool.spec.replicas = Some(2));
    cluster.overprovisioner("warm", spec(json!({"sizing": {"percentage": 50}})));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    assert_eq!(cluster.snapshot.nodes.len(), 3);
    cluster.pass_time(600);
    cluster.settle();
    assert_eq!(cluster.created.len(), 3);
}

#[test]
fn daemons_on_a_spare_do_not_make_it_used() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let node = names(&cluster.spares("warm"))[0].clone();
    cluster.snapshot.pods.push(read(json!({
        "metadata": {"name": "agent", "namespace": "default", "uid": "uid-agent",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d"}]},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    })));
    cluster.settle();
    assert_eq!(cluster.used("warm").len(), 0);
    cluster.overprovisioner("warm", count(0));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
}

#[test]
fn what_a_crash_left_half_done_is_finished() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    // The node was opened, and the claim was not written.
    cluster.pod("a", "1500m");
    let plan = cluster.decide();
    let first = plan.actions.into_iter().next().unwrap();
    assert!(matches!(first, Action::PatchNode { .. }));
    cluster.act(first);
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (1, 1));
    // The claim was written, and the node was not opened.
    cluster.pod("b", "1500m");
    let plan = cluster.decide();
    let second = plan
        .actions
        .into_iter()
        .find(|action| matches!(action, Action::PatchClaim { .. }));
    cluster.act(second.unwrap());
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (0, 2));
    assert!(cluster.node_of("b").is_some());
    assert_eq!(cluster.created.len(), 2);
}

/// What is decided beside a Karpenter, for the cluster as it is.
fn beside_karpenter(cluster: &Cluster) -> Vec<Action> {
    let mut market = Market::new(cluster::catalogue());
    market.update(&cluster.snapshot);
    let mut spares = Spares::of(&cluster.snapshot);
    keep(
        &cluster.snapshot,
        &mut spares,
        &mut market,
        Mode::Companion,
        cluster.now,
    )
    .actions
}

#[test]
fn beside_a_karpenter_spares_keep_their_capacity_type_and_are_protected() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    let actions = beside_karpenter(&cluster);
    let claims: Vec<&NodeClaim> = actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(&**claim),
            _ => None,
        })
        .collect();
    assert_eq!(claims.len(), 2);
    for claim in &claims {
        assert_eq!(label(&claim.metadata, karpenter::CAPACITY_TYPE), None);
        assert_eq!(label(&claim.metadata, veneer::OVERPROVISIONED), Some("true"));
        let annotations = claim.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[karpenter::DO_NOT_DISRUPT], "true");
        assert_eq!(claim.spec.taints[0].key, "karpenter.sh/overprovisioned");
    }
    // Once it has joined and a pod needs it, the protection goes with the taint.
    let claim = claims[0].clone();
    cluster.act(Action::CreateClaim(Box::new(claim)));
    cluster.snapshot.overprovisioners.clear();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let node = names(&cluster.spares("warm"))[0].clone();
    let remove_option = |labels: &mut Option<std::collections::BTreeMap<String, String>>| {
        labels.as_mut().unwrap().remove(veneer::PURCHASE_OPTION);
    };
    let target = Target {
        name: node.clone(),
        ..Target::default()
    };
    cluster.edit_claim(&target, |claim| remove_option(&mut claim.metadata.labels));
    cluster.edit_node(&target, |node| remove_option(&mut node.metadata.labels));
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(cluster.node_of("a"), Some(node.clone()));
    for metadata in [&cluster.used("warm")[0].metadata, &cluster.node(&node).metadata] {
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[karpenter::DO_NOT_DISRUPT], "false");
    }
}

#[test]
fn beside_a_karpenter_stopped_spares_are_refused_with_what_to_use_instead() {
    for state in ["Stopped", "Hibernated"] {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": state})));
        for action in beside_karpenter(&cluster) {
            assert!(!matches!(action, Action::CreateClaim(_)), "{action}");
            cluster.act(action);
        }
        assert_eq!(
            cluster.condition("cold", "Ready"),
            format!(
                "False Invalid spec.state: {state} spares need Veneer to launch instances itself, and here Karpenter does; \
                 use state Running, or run Veneer with --mode standalone"
            )
        );
    }
}
