//! Small scenarios, one rule each: order, selectors, pools, taints, daemonsets, limits, existing nodes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use serde_json::{Value, json};
use veneer_engine::packing::{Options, PreferencePolicy};

#[path = "support/scenarios.rs"]
mod scenarios;
use scenarios::*;

#[test]
fn generic_pods_fill_one_node_and_keep_every_type_that_fits() {
    let results = run(&objects(vec![default_pool()], pods(7, "1", "1Gi", &json!({}))));
    assert_eq!(counts(&results), [7]);
    // 100m of each type is kept for the kubelet, so 7 pods do not fit on 4 processors, but on 8.
    let expected = [
        "g8.large",
        "c8.large",
        "g16.large",
        "c16.large",
        "g32.large",
        "c32.large",
        "g64.large",
        "c64.large",
    ];
    assert_eq!(names(&results, 0, &catalogue()), expected);
    let requests = &results.new_node_claims[0].requests;
    let text: Vec<String> = requests
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    assert_eq!(text, ["cpu=7", "memory=7Gi", "pods=7"]);
    assert_eq!(demand(&results, 0, "karpenter.sh/nodepool"), "In [default]");
    assert_eq!(demand(&results, 0, HOSTNAME), "");
}

#[test]
fn a_full_node_is_followed_by_another() {
    let results = run(&objects(vec![default_pool()], pods(70, "1", "1Gi", &json!({}))));
    assert_eq!(counts(&results), [7, 63]);
}

#[test]
fn pods_go_by_cpu_then_memory_then_age_then_uid() {
    let mut pods = vec![
        pod("small", "1", "1Gi", json!({})),
        pod("large", "30", "1Gi", json!({})),
        pod("wide", "30", "9Gi", json!({})),
        pod("younger", "30", "1Gi", json!({})),
    ];
    pods[1]["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    pods[3]["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let results = run(&objects(vec![default_pool()], pods));
    let placed: Vec<&[usize]> = results
        .new_node_claims
        .iter()
        .map(|claim| claim.pods.as_slice())
        .collect();
    assert_eq!(
        placed,
        [&[1, 0][..], &[2, 3][..]],
        "wide, younger, then large on the next one, and small beside it"
    );
}

#[test]
fn selectors_and_affinity_narrow_the_types() {
    for (spec, expected) in [
        (
            json!({ "nodeSelector": { "kubernetes.io/arch": "arm64" } }),
            "g64.large",
        ),
        (
            json!({ "nodeSelector": { "beta.kubernetes.io/arch": "amd64" } }),
            "c64.large",
        ),
        (
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/arch", "operator": "NotIn", "values": ["arm64"] }] }] } } } }),
            "c64.large",
        ),
        (
            json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 1, "preference": { "matchExpressions": [
                { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] }] } }] } } }),
            "g64.large",
        ),
        // The first of the OR-ed terms cannot be had, so the second one counts.
        (
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"] }] },
                { "matchExpressions": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] }] }] } } } }),
            "g64.large",
        ),
    ] {
        let results = run(&objects(vec![default_pool()], pods(1, "40", "1Gi", &spec)));
        assert_eq!(names(&results, 0, &catalogue()), [expected], "{spec}");
    }
}

#[test]
fn a_preference_that_cannot_be_had_is_dropped_or_ignored() {
    let spec = json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 9, "preference": { "matchExpressions": [
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"] }] } },
        { "weight": 1, "preference": { "matchExpressions": [
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] }] } }] } } });
    let objects = objects(vec![default_pool()], pods(1, "40", "1Gi", &spec));
    assert_eq!(names(&run(&objects), 0, &catalogue()), ["g64.large"]);
    let ignoring = Options {
        preferences: PreferencePolicy::Ignore,
        ..Options::default()
    };
    assert_eq!(
        names(&run_with(&objects, &ignoring), 0, &catalogue()),
        ["g64.large", "c64.large"]
    );
}

#[test]
fn pools_are_tried_by_weight_and_then_by_name_backwards() {
    let one = |name, weight: Value| pool(name, json!({}), json!({ "weight": weight }));
    for (pools, expected) in [
        (
            vec![one("a", json!(1)), one("b", json!(50)), one("c", json!(10))],
            "b",
        ),
        (
            vec![
                one("a", json!(null)),
                one("c", json!(null)),
                one("b", json!(null)),
            ],
            "c",
        ),
    ] {
        let results = run(&objects(pools, pods(1, "1", "1Gi", &json!({}))));
        assert_eq!(results.new_node_claims[0].node_pool, expected);
    }
}

#[test]
fn taints_keep_pods_away_and_soft_ones_are_tolerated_last() {
    let taint = |effect: &str| json!({ "taints": [{ "key": "team", "value": "ml", "effect": effect }] });
    let tolerates = json!({ "tolerations": [{ "key": "team", "operator": "Exists" }] });
    let hard = pool("default", taint("NoSchedule"), json!({}));
    let results = run(&objects(vec![hard.clone()], pods(1, "1", "1Gi", &json!({}))));
    assert_eq!(reason(&results), "the pod does not tolerate team=ml:NoSchedule");
    assert_eq!(
        counts(&run(&objects(vec![hard], pods(1, "1", "1Gi", &tolerates)))),
        [1]
    );
    let soft = pool("soft", taint("PreferNoSchedule"), json!({ "weight": 10 }));
    let results = run(&objects(
        vec![soft.clone(), default_pool()],
        pods(1, "1", "1Gi", &json!({})),
    ));
    assert_eq!(results.new_node_claims[0].node_pool, "default");
    assert_eq!(
        counts(&run(&objects(vec![soft], pods(1, "1", "1Gi", &json!({}))))),
        [1]
    );
}

#[test]
fn daemonsets_take_their_share_of_every_node_they_run_on() {
    let mut objects = objects(vec![default_pool()], pods(3, "1", "1Gi", &json!({})));
    let template = json!({ "spec": { "containers": [{ "name": "d",
        "resources": { "requests": { "cpu": "1" } } }] } });
    objects.daemon_sets = read(vec![
        json!({ "metadata": { "name": "d", "namespace": "kube-system" },
        "spec": { "selector": {}, "template": template } }),
    ]);
    let results = run(&objects);
    assert_eq!(names(&results, 0, &catalogue())[0], "g8.large");
    let cpu = results.new_node_claims[0]
        .requests
        .get("cpu")
        .unwrap()
        .to_string();
    assert_eq!(cpu, "4", "three pods and the daemonset");
}

#[test]
fn limits_bound_what_a_pool_launches() {
    let limited = |limits: Value| pool("default", json!({}), json!({ "limits": limits }));
    let results = run(&objects(
        vec![limited(json!({ "cpu": "16" }))],
        pods(4, "6", "1Gi", &json!({})),
    ));
    assert_eq!(
        counts(&results),
        [2],
        "one node of 16 processors, counted as if it had them all"
    );
    assert_eq!(names(&results, 0, &catalogue()), ["g16.large", "c16.large"]);
    assert_eq!(results.unschedulable.len(), 2);
    assert_eq!(
        results.unschedulable[0].reasons[0].message,
        "every instance type would exceed what its limits leave"
    );
    let results = run(&objects(
        vec![limited(json!({ "nodes": "0" }))],
        pods(1, "6", "1Gi", &json!({})),
    ));
    assert_eq!(reason(&results), "its limit on the number of nodes is used up");
}

#[test]
fn existing_nodes_come_first_with_what_their_pods_leave() {
    let mut objects = objects(vec![default_pool()], pods(6, "1", "1Gi", &json!({})));
    objects.nodes = read_shared(vec![
        node("n2", "4", json!({}), json!([])),
        node("n1", "4", json!({}), json!([])),
        node(
            "n0",
            "4",
            json!({}),
            json!([{ "key": "x", "effect": "NoSchedule" }]),
        ),
    ]);
    let mut bound = pod("bound", "2500m", "1Gi", json!({ "nodeName": "n1" }));
    bound["status"] = json!({ "phase": "Running" });
    let mut done = pod("done", "4", "1Gi", json!({ "nodeName": "n2" }));
    done["status"] = json!({ "phase": "Succeeded" });
    objects.pods.extend(read(vec![bound, done]));
    let results = run(&objects);
    let placed: Vec<(&str, usize)> = results
        .existing_nodes
        .iter()
        .map(|node| (node.name.as_str(), node.pods.len()))
        .collect();
    assert_eq!(placed, [("n1", 1), ("n2", 4)]);
    assert_eq!(counts(&results), [1]);
}

#[test]
fn a_claim_in_flight_takes_pods_and_its_startup_taints_are_overlooked() {
    let mut objects = objects(vec![default_pool()], pods(2, "1", "1Gi", &json!({})));
    objects.node_claims = read_shared(vec![json!({
        "metadata": { "name": "claim", "labels": { "karpenter.sh/nodepool": "default" } },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" }, "requirements": [],
            "startupTaints": [{ "key": "boot", "effect": "NoSchedule" }] },
        "status": { "providerID": "x://1", "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" },
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "10" } } })]);
    objects.nodes = read_shared(vec![json!({ "metadata": { "name": "node", "labels": {
        "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "c4.large" } },
        "spec": { "providerID": "x://1", "taints": [{ "key": "boot", "effect": "NoSchedule" },
            { "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" }] } })]);
    let results = run(&objects);
    assert_eq!(results.existing_nodes.len(), 1);
    assert_eq!(
        (
            results.existing_nodes[0].name.as_str(),
            results.existing_nodes[0].pods.len()
        ),
        ("claim", 2)
    );
    assert!(results.new_node_claims.is_empty());
}

#[test]
fn pods_of_a_node_that_goes_away_are_placed_again() {
    let mut objects = objects(vec![default_pool()], vec![]);
    let mut leaving = node("n0", "4", json!({}), json!([]));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    objects.nodes = read_shared(vec![leaving]);
    objects.pods = read(vec![pod("p", "1", "1Gi", json!({ "nodeName": "n0" }))])
        .into_iter()
        .collect();
    assert_eq!(counts(&run(&objects)), [1]);
    // It ran already, so a claim that is gone since does not hold it back, as it would a pending pod.
    let lost = json!({ "nodeName": "n0", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "gone" } }] });
    objects.pods = read(vec![pod("p", "1", "1Gi", lost)]).into_iter().collect();
    assert_eq!(counts(&run(&objects)), [1]);
}
