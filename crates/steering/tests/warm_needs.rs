//! Spares follow what the pods of their pool need: replaced when none fits on them, spread over zones, and told.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/spares.rs"]
mod spares;

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Cluster, catalogue};
use serde_json::json;
use spares::{count, instance_type, names, spec};
use veneer_engine::plan::{Action, label};
use veneer_steering::warm::Beside;

fn types(cluster: &Cluster) -> Vec<String> {
    let spares = cluster.spares("warm");
    spares.iter().map(|one| instance_type(one).to_owned()).collect()
}

fn zones(cluster: &Cluster, owner: &str) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for spare in cluster.spares(owner) {
        let zone = label(&spare.metadata, "topology.kubernetes.io/zone").unwrap();
        *zones.entry(zone.to_owned()).or_default() += 1;
    }
    zones
}

#[test]
fn spares_that_no_pod_fits_on_are_replaced_one_at_a_time_and_ready_says_why() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        let wants =
            json!([{"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["giant"]}]);
        pool.spec.template.spec.requirements = serde_json::from_value(wants).unwrap();
    });
    cluster.overprovisioner("warm", count(3));
    cluster.settle();
    assert_eq!(types(&cluster), ["small"; 3]);
    assert_eq!(cluster.condition("warm", "Ready"), "True Ready ");
    let old: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    // Pods come that fit on none of them, and get nodes of their own.
    for pod in ["a", "b", "c", "d"] {
        cluster.pod(pod, "3");
    }
    cluster.joins = false;
    cluster.settle();
    let left = |cluster: &Cluster| {
        let spares = names(&cluster.spares("warm"));
        spares.iter().filter(|one| old.contains(*one)).count()
    };
    assert_eq!(
        left(&cluster),
        2,
        "the next one waits until its replacement is ready"
    );
    let ready = cluster.condition("warm", "Ready");
    assert_eq!(
        ready,
        "False NoPodFits NodePool default: none of its pods fits on 2 of 3 spares (small); they are replaced one at a time"
    );
    cluster.let_join();
    cluster.settle();
    assert_eq!(types(&cluster), ["medium"; 3]);
    assert_eq!(cluster.condition("warm", "Ready"), "True Ready ");
    let told = cluster
        .events
        .iter()
        .filter(|event| event.reason == "SpareRenewed");
    assert_eq!(told.count(), 3);
    assert!(
        ["a", "b", "c", "d"]
            .iter()
            .all(|pod| cluster.node_of(pod).is_some())
    );
    // The next ones find room there.
    let made: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    cluster.pod("e", "3");
    cluster.settle();
    assert!(made.contains(&cluster.node_of("e").unwrap()));
}

#[test]
fn what_pods_needed_lately_counts_when_they_are_gone() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("a", "3");
    cluster.settle();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    assert_eq!(types(&cluster), ["medium"]);
    cluster.remove_pod("a");
    cluster.pass_time(23 * 3600);
    cluster.settle();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    assert_eq!(types(&cluster), ["medium"; 2]);
    cluster.pass_time(2 * 3600);
    cluster.settle();
    cluster.overprovisioner("warm", count(3));
    cluster.settle();
    assert!(types(&cluster).contains(&"small".to_owned()), "long forgotten");
}

#[test]
fn a_spare_whose_type_is_short_at_the_moment_is_not_judged() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("a", "3");
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let before = names(&cluster.spares("warm"));
    for capacity_type in ["on-demand", "spot"] {
        for zone in ["zone-a", "zone-b"] {
            cluster.snapshot.shortages.push(veneer_engine::plan::Shortage {
                instance_type: "medium".to_owned(),
                capacity_type: capacity_type.to_owned(),
                zone: zone.to_owned(),
            });
        }
    }
    cluster.settle();
    assert_eq!(names(&cluster.spares("warm")), before);
}

#[test]
fn another_shape_replaces_the_spares_that_do_not_have_it() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    let shape = json!({"sizing": {"count": 2}, "nodeShape": {"resources": {"cpu": "6"}}});
    cluster.overprovisioner("warm", spec(shape));
    cluster.settle();
    assert_eq!(types(&cluster), ["large"; 2]);
    let missing = json!({"sizing": {"count": 3}, "nodeShape": {
        "scalableRef": {"kind": "Deployment", "namespace": "shop", "name": "web"}}});
    cluster.overprovisioner("warm", spec(missing));
    cluster.settle();
    assert_eq!(
        types(&cluster),
        ["large"; 2],
        "nothing changes while it is unknown"
    );
    assert_eq!(
        cluster.condition("warm", "Ready"),
        "False NodeShapeInvalid spec.nodeShape: there is no Deployment shop/web; create it, or name one that exists"
    );
    cluster.snapshot.unseen_kinds.insert("Deployment");
    cluster.settle();
    assert_eq!(
        cluster.condition("warm", "Ready"),
        "False NodeShapeInvalid spec.nodeShape: Deployment shop/web cannot be seen: the ClusterRole of the controller does not allow to list and watch Deployment objects; add the rule (the chart has it)"
    );
}

#[test]
fn spares_spread_over_zones_and_follow_the_pods_that_are_short_of_room() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(4));
    cluster.settle();
    assert_eq!(
        zones(&cluster, "warm"),
        [("zone-a".to_owned(), 2), ("zone-b".to_owned(), 2)].into()
    );
    // Three of four pods that wait can only be in zone-b.
    let mut cluster = Cluster::with_pool();
    cluster.wait_for_pods();
    for pod in 0..3 {
        let there = json!({"nodeSelector": {"topology.kubernetes.io/zone": "zone-b"}});
        cluster.pod_with(&format!("b{pod}"), "1500m", there);
    }
    let here = json!({"nodeSelector": {"topology.kubernetes.io/zone": "zone-a"}});
    cluster.pod_with("a", "1500m", here);
    cluster.overprovisioner("warm", count(4));
    let plan = cluster.decide();
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for action in &plan.actions {
        if let Action::CreateClaim(claim) = action {
            let zone = claim
                .spec
                .requirements
                .iter()
                .find(|one| one.key == "topology.kubernetes.io/zone");
            *made.entry(zone.unwrap().values[0].clone()).or_default() += 1;
        }
    }
    assert_eq!(made, [("zone-a".to_owned(), 1), ("zone-b".to_owned(), 3)].into());
}

#[test]
fn spares_are_bought_as_the_pods_demand() {
    let mut cluster = Cluster::with_pool();
    let on_demand = json!({"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}});
    cluster.pod_with("a", "1", on_demand);
    cluster.settle();
    cluster.overprovisioner("warm", count(2));
    cluster.settle();
    for spare in cluster.spares("warm") {
        assert_eq!(
            label(&spare.metadata, "veneer.io/purchase-option"),
            Some("on-demand")
        );
    }
}

#[test]
fn pods_do_not_fill_spares_on_their_way_one_by_one_where_nodes_of_their_own_cost_less() {
    let mut cluster = Cluster::new();
    // Ten spares of two processors for a pod each, although a node of eight would take seven for the price of four.
    cluster.pool("default", |pool| {
        let wants = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["giant"]}]);
        pool.spec.template.spec.requirements = serde_json::from_value(wants).unwrap();
    });
    cluster.wait_for_pods();
    cluster.joins = false;
    let shape = json!({"sizing": {"count": 10}, "nodeShape": {"instanceTypes": ["small"]}});
    cluster.overprovisioner("warm", spec(shape));
    cluster.settle();
    assert_eq!(cluster.status("warm").node_pools[0].warming, 10);
    for pod in 0..10 {
        cluster.pod(&format!("p{pod}"), "1100m");
        cluster.pass_time(0);
        cluster.settle();
    }
    assert_eq!(
        cluster.used("warm").len(),
        0,
        "no spare is taken while more pods come"
    );
    cluster.pass_time(2);
    cluster.settle();
    assert_eq!(cluster.used("warm").len(), 0);
    cluster.let_join();
    cluster.settle();
    let own = cluster.claims(|claim| label(&claim.metadata, "veneer.io/overprovisioned").is_none());
    let types: Vec<&str> = own.iter().map(|one| instance_type(one)).collect();
    assert!(types.iter().all(|one| *one != "small"), "{types:?}");
    assert_eq!(cluster.spares("warm").len(), 10);
}

#[test]
fn beside_a_karpenter_spares_carry_its_own_fingerprint_of_the_pool() {
    let mut cluster = Cluster::with_pool();
    cluster.edit_pool("default", |pool| {
        pool.metadata.annotations = Some(
            [
                ("karpenter.sh/nodepool-hash", "123"),
                ("karpenter.sh/nodepool-hash-version", "v3"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
    });
    cluster.overprovisioner("warm", count(1));
    let mut snapshot = cluster.snapshot.clone();
    let plan = Beside::new(catalogue()).pass(&mut snapshot, cluster.now);
    let claim = plan.actions.iter().find_map(|action| match action {
        Action::CreateClaim(claim) => Some(claim),
        _ => None,
    });
    let annotations = claim.unwrap().metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["karpenter.sh/nodepool-hash"], "123");
    assert_eq!(annotations["karpenter.sh/nodepool-hash-version"], "v3");
}

#[test]
fn spares_that_were_launched_for_being_stopped_are_renewed_when_they_shall_hibernate() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", spec(json!({"sizing": {"count": 2}, "state": "Stopped"})));
    cluster.settle();
    let old: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "state": "Hibernated"})),
    );
    cluster.settle();
    let spares = cluster.spares("warm");
    assert_eq!(spares.len(), 2);
    for spare in &spares {
        assert!(!old.contains(spare.metadata.name.as_deref().unwrap()));
        let annotations = spare.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations["veneer.io/power"], "hibernate");
    }
    assert_eq!(cluster.condition("warm", "Ready"), "True Ready ");
}
