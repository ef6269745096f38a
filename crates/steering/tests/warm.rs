//! Spares of Overprovisioners in a cluster in memory: how many there are, and who gets them.

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
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use spares::{count, instance_type, names, numbers, spec, taints};
use veneer_engine::plan::{Action, label, name};

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
    assert_eq!(names(&used), std::slice::from_ref(&node));
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
        let nodes: usize = pod + 1;
        assert_eq!(
            cluster.spares("warm").len(),
            nodes.div_ceil(2),
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
    // A small spot node costs 0.04 an hour in zone-a and 0.05 in zone-b, and there are as many in both.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 9}, "maxHourlySpend": "0.24"})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 5);
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
    assert_eq!(names(&cluster.used("warm")), std::slice::from_ref(&node));
    assert_eq!(taints(&cluster, &node), [""; 0]);
    assert_eq!(cluster.node_of("tolerant"), Some(node));
}

#[test]
fn a_used_spare_never_becomes_a_spare_again() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.disruption.consolidate_after = "Never".to_owned();
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
