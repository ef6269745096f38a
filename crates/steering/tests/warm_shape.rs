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
use veneer_steering::warm::shape::typical;

fn chosen(cluster: &Cluster, state: &SpareState) -> Result<String, String> {
    let mut market = Market::new(catalogue());
    market.update(&cluster.snapshot);
    let pool = &cluster.snapshot.node_pools[0];
    let option = typical(&cluster.snapshot, None, pool, state, &mut market, cluster.now)?;
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
fn the_types_of_nodes_say_nothing_about_what_pods_need() {
    let mut cluster = Cluster::with_pool();
    assert_eq!(running(&cluster), "small", "the cheapest, if nothing is known");
    claim(&mut cluster, "a", "default", "large", &json!({}));
    assert_eq!(running(&cluster), "small");
}

#[test]
fn a_few_large_pods_do_not_decide_for_many_small_ones() {
    let with = |small: usize, large: usize| {
        let mut cluster = Cluster::with_pool();
        node(&mut cluster, "mine", "default");
        for at in 0..small {
            pod(
                &mut cluster,
                &format!("s{at}"),
                "mine",
                ("ReplicaSet", "small"),
                &["1"],
            );
        }
        for at in 0..large {
            pod(
                &mut cluster,
                &format!("l{at}"),
                "mine",
                ("ReplicaSet", "large"),
                &["6"],
            );
        }
        running(&cluster)
    };
    assert_eq!(with(9, 1), "small", "nine of ten are served");
    assert_eq!(with(8, 1), "large", "eight of nine are not enough");
}

#[test]
fn pods_that_need_other_nodes_are_served_as_far_as_one_type_can() {
    let mut cluster = Cluster::with_pool();
    cluster.pod_with(
        "a",
        "1",
        json!({"nodeSelector": {"node.kubernetes.io/instance-type": "large"}}),
    );
    for at in 0..2 {
        let medium = json!({"nodeSelector": {"node.kubernetes.io/instance-type": "medium"}});
        cluster.pod_with(&format!("b{at}"), "1", medium);
    }
    assert_eq!(running(&cluster), "medium");
}

/// A workload with a template for pods of this size.
fn workload(kind: &str, named: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": named, "namespace": "shop", "uid": named, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": named}}, "serviceName": named, "template": {
            "metadata": {"labels": {"app": named}},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}},
        "kind": kind})
}

#[test]
fn with_no_pods_the_largest_template_that_the_pool_takes_decides() {
    let mut cluster = Cluster::with_pool();
    cluster
        .snapshot
        .deployments
        .push(read(workload("Deployment", "web", "1")));
    assert_eq!(running(&cluster), "small");
    cluster
        .snapshot
        .stateful_sets
        .push(read(workload("StatefulSet", "db", "3")));
    assert_eq!(running(&cluster), "medium");
    cluster.snapshot.jobs.push(read(workload("Job", "report", "6")));
    assert_eq!(running(&cluster), "large");
    cluster
        .snapshot
        .deployments
        .push(read(workload("Deployment", "huge", "500")));
    assert_eq!(running(&cluster), "large", "nobody takes that one");
    let mut done = workload("Job", "done", "40");
    done["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    cluster.snapshot.jobs.push(read(done));
    assert_eq!(running(&cluster), "large", "that one is over");
    // What pods need counts for more than what they might need.
    cluster.pod("one", "3");
    assert_eq!(running(&cluster), "medium");
}

/// The type of new spares with this shape, or what is wrong.
fn shaped(cluster: &mut Cluster, shape: Value) -> Result<String, String> {
    cluster.overprovisioner(
        "warm",
        json!({"targetNodePools": ["default"], "sizing": {"count": 1}, "nodeShape": shape}),
    );
    let mut market = Market::new(catalogue());
    market.update(&cluster.snapshot);
    let (pool, one) = (
        &cluster.snapshot.node_pools[0],
        &cluster.snapshot.overprovisioners[0],
    );
    let state = &SpareState::Running;
    let option = typical(
        &cluster.snapshot,
        Some(one),
        pool,
        state,
        &mut market,
        cluster.now,
    )?;
    Ok(option.instance_type)
}

#[test]
fn the_overprovisioner_can_say_what_a_spare_has_room_for() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    cluster
        .snapshot
        .deployments
        .push(read(workload("Deployment", "web", "3")));
    cluster.snapshot.jobs.push(read(workload("Job", "report", "6")));
    let mut template = workload("PodTemplate", "burst", "7");
    template["template"] = template["spec"]["template"].take();
    cluster.snapshot.pod_templates.push(read(template));
    let ok = |cluster: &mut Cluster, shape| shaped(cluster, shape).unwrap();
    assert_eq!(
        ok(&mut cluster, json!({"instanceTypes": ["large", "medium"]})),
        "medium"
    );
    assert_eq!(
        ok(&mut cluster, json!({"resources": {"cpu": "3", "memory": "20Gi"}})),
        "large"
    );
    let by = |group: &str, kind: &str, name: &str| json!({"scalableRef": {"apiGroup": group, "kind": kind, "namespace": "shop", "name": name}});
    assert_eq!(ok(&mut cluster, by("apps", "Deployment", "web")), "medium");
    assert_eq!(ok(&mut cluster, by("batch", "Job", "report")), "large");
    let by_template = json!({"podTemplateRef": {"namespace": "shop", "name": "burst"}});
    assert_eq!(ok(&mut cluster, by_template), "large");
    // What cannot be met is said.
    for (shape, says) in [
        (
            json!({"instanceTypes": ["t9.huge"]}),
            "none of the types that spec.nodeShape leaves (t9.huge)",
        ),
        (
            json!({"resources": {"cpu": "500"}}),
            "spec.nodeShape.resources: no type of NodePool default",
        ),
        (
            json!({"resources": {"cpu": "-1"}}),
            "spec.nodeShape.resources: expected an amount above 0 for cpu",
        ),
        (
            by("apps", "StatefulSet", "web"),
            "spec.nodeShape: there is no StatefulSet shop/web",
        ),
        (json!({}), "spec.nodeShape: set exactly one of"),
    ] {
        let fault = shaped(&mut cluster, shape).unwrap_err();
        assert!(fault.contains(says), "{fault}");
    }
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
    assert_eq!(with(&|at| format!("huge-{at}")), "medium");
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
