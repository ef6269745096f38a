//! Which type a new spare is of, asked directly.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;

use cluster::{Cluster, catalogue, read};
use serde_json::{Value, json};
use veneer_api::overprovisioner::SpareState;
use veneer_engine::provision::Market;
use veneer_steering::warm::shape::choose;

fn chosen(cluster: &Cluster, state: &SpareState) -> Result<String, String> {
    let mut market = Market::new(catalogue());
    market.update(&cluster.snapshot);
    let pool = &cluster.snapshot.node_pools[0];
    let option = choose(&cluster.snapshot, pool, state, &mut market, cluster.now)?;
    Ok(option.instance_type)
}

fn running(cluster: &Cluster) -> String {
    chosen(cluster, &SpareState::Running).unwrap()
}

/// A claim of a type in a pool; `more` adds to its metadata.
fn claim(cluster: &mut Cluster, named: &str, pool: &str, instance_type: &str, more: &Value) {
    let mut metadata = json!({"name": named, "uid": format!("uid-{named}"), "labels": {
        "karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": instance_type}});
    if let Some(labels) = more["labels"].as_object() {
        metadata["labels"].as_object_mut().unwrap().extend(labels.clone());
    }
    if let Some(at) = more.get("deletionTimestamp") {
        metadata["deletionTimestamp"] = at.clone();
    }
    cluster.snapshot.node_claims.push(read(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata,
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}})));
}

/// A pod on a node, of an owner, with a container for each amount.
fn pod(cluster: &mut Cluster, named: &str, node: &str, owner: (&str, &str), cpu: &[&str]) {
    let containers = cpu
        .iter()
        .enumerate()
        .map(|(at, cpu)| json!({"name": format!("c{at}"), "resources": {"requests": {"cpu": cpu}}}));
    cluster.snapshot.pods.push(read(json!({
        "metadata": {"name": named, "namespace": "default", "uid": format!("uid-{named}"), "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": owner.1, "controller": true}]},
        "spec": {"nodeName": node, "containers": containers.collect::<Vec<Value>>()},
        "status": {"phase": "Running"}})));
}

fn node(cluster: &mut Cluster, named: &str, pool: &str) {
    cluster.snapshot.nodes.push(read(json!({
        "metadata": {"name": named, "labels": {"karpenter.sh/nodepool": pool}}})));
}

#[test]
fn the_most_common_type_is_that_of_the_nodes_in_use_of_the_pool() {
    let mut cluster = Cluster::with_pool();
    assert_eq!(running(&cluster), "small", "the cheapest, if nothing is known");
    let plain = json!({});
    claim(&mut cluster, "a", "default", "medium", &plain);
    assert_eq!(running(&cluster), "medium");
    claim(&mut cluster, "b", "default", "large", &plain);
    assert_eq!(running(&cluster), "large", "of equals the first by name");
    claim(&mut cluster, "c", "default", "medium", &plain);
    assert_eq!(running(&cluster), "medium", "the most common");
    // Neither other pools, nor what goes, nor spares count.
    for at in 0..3 {
        claim(&mut cluster, &format!("other-{at}"), "other", "large", &plain);
        let going = json!({"deletionTimestamp": "2026-01-05T00:00:00Z"});
        claim(&mut cluster, &format!("going-{at}"), "default", "large", &going);
        let spare = json!({"labels": {"veneer.io/overprovisioned": "true"}});
        claim(&mut cluster, &format!("spare-{at}"), "default", "large", &spare);
    }
    assert_eq!(running(&cluster), "medium");
}

#[test]
fn the_largest_pod_on_the_nodes_of_the_pool_decides() {
    type Case<'t> = (&'t str, &'t str, (&'t str, &'t str), &'t [&'t str]);
    let with = |pods: &[Case<'_>]| {
        let mut cluster = Cluster::with_pool();
        node(&mut cluster, "mine", "default");
        node(&mut cluster, "yours", "other");
        for (named, on, owner, cpu) in pods {
            pod(&mut cluster, named, on, *owner, cpu);
        }
        running(&cluster)
    };
    let set = ("ReplicaSet", "x");
    assert_eq!(
        with(&[("a", "mine", set, &["1"]), ("b", "mine", set, &["3"])]),
        "medium"
    );
    assert_eq!(
        with(&[("a", "mine", set, &["3"]), ("b", "mine", set, &["1"])]),
        "medium"
    );
    assert_eq!(
        with(&[
            ("a", "mine", set, &["1", "1", "1"]),
            ("b", "mine", set, &["1500m"])
        ]),
        "medium",
        "containers are added up"
    );
    assert_eq!(
        with(&[("a", "mine", set, &["1"]), ("b", "yours", set, &["3"])]),
        "small",
        "a pod of another pool"
    );
    assert_eq!(
        with(&[
            ("a", "mine", set, &["1"]),
            ("b", "mine", ("DaemonSet", "agent"), &["3"])
        ]),
        "small",
        "a pod of a DaemonSet"
    );
}

#[test]
fn copies_of_a_pod_that_fits_nowhere_do_not_hide_the_others() {
    let with = |owner: &dyn Fn(usize) -> String| {
        let mut cluster = Cluster::with_pool();
        node(&mut cluster, "mine", "default");
        for at in 0..6 {
            let owner = owner(at);
            pod(
                &mut cluster,
                &format!("huge-{at}"),
                "mine",
                ("ReplicaSet", &owner),
                &["500"],
            );
        }
        pod(&mut cluster, "z", "mine", ("ReplicaSet", "z"), &["3"]);
        running(&cluster)
    };
    assert_eq!(with(&|_| "huge".to_owned()), "medium");
    assert_eq!(
        with(&|at| format!("huge-{at}")),
        "small",
        "five kinds are tried at most"
    );
}

#[test]
fn a_daemon_set_needs_room_beside_the_pod() {
    let mut cluster = Cluster::with_pool();
    node(&mut cluster, "mine", "default");
    pod(&mut cluster, "a", "mine", ("ReplicaSet", "x"), &["1500m"]);
    assert_eq!(running(&cluster), "small");
    cluster.snapshot.daemon_sets.push(read(json!({
        "metadata": {"name": "agent", "namespace": "kube-system", "uid": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}}})));
    assert_eq!(running(&cluster), "medium");
}

#[test]
fn stopped_spares_need_a_pool_that_allows_on_demand() {
    let with = |operator: &str, values: &[&str]| {
        let mut cluster = Cluster::new();
        cluster.pool("default", |pool| {
            let wants =
                json!([{"key": "karpenter.sh/capacity-type", "operator": operator, "values": values}]);
            pool.spec.template.spec.requirements = serde_json::from_value(wants).unwrap();
        });
        chosen(&cluster, &SpareState::Stopped).is_ok()
    };
    assert!(with("In", &["on-demand"]));
    assert!(!with("In", &["spot"]));
    assert!(with("NotIn", &["spot"]));
    assert!(!with("NotIn", &["on-demand"]));
    assert!(!with("DoesNotExist", &[]));
    assert!(with("Exists", &[]));
}
