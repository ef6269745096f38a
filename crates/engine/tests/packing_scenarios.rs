//! Small scenarios, one constraint each, and the worked examples of the bin-packing guide.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{
    MinValuesPolicy, Objects, Options, PreferencePolicy, Problem, ReservedMode, Results, solve,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Types `c2` … `c64` with 2 GiB per processor, for both architectures, in three zones, spot and on demand.
fn catalogue() -> Arc<Catalogue> {
    let offering = |capacity_type: &str, zone: &str, price: f64| {
        let requirement = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        json!({ "Price": price, "Available": true, "Requirements": [
            requirement("karpenter.sh/capacity-type", capacity_type), requirement(ZONE, zone)] })
    };
    let mut types = Vec::new();
    for cpu in [2, 4, 8, 16, 32, 64] {
        for (family, architecture, price) in [("c", "amd64", 0.05), ("g", "arm64", 0.04)] {
            let price = f64::from(cpu) * price;
            let offerings: Vec<Value> = ["a", "b", "c"]
                .iter()
                .flat_map(|zone| {
                    [
                        offering("on-demand", zone, price),
                        offering("spot", zone, price / 3.0),
                    ]
                })
                .collect();
            types.push(json!({
                "name": format!("{family}{cpu}.large"), "architecture": architecture, "operatingSystems": ["linux"],
                "resources": { "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 2), "pods": "110" },
                "offerings": offerings,
            }));
        }
    }
    Arc::new(kwok::parse(&Value::Array(types).to_string(), "test").unwrap())
}

fn pool(name: &str, template: Value, rest: Value) -> Value {
    let mut spec = json!({ "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        "requirements": [] });
    spec.as_object_mut()
        .unwrap()
        .extend(template.as_object().unwrap().clone());
    let mut all = json!({ "template": { "spec": spec } });
    all.as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    json!({ "metadata": { "name": name }, "spec": all })
}

fn default_pool() -> Value {
    pool("default", json!({}), json!({}))
}

fn pod(name: &str, cpu: &str, memory: &str, spec: Value) -> Value {
    let mut all = json!({ "containers": [{ "name": "main",
        "resources": { "requests": { "cpu": cpu, "memory": memory } } }] });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } }, "spec": all })
}

fn pods(count: usize, cpu: &str, memory: &str, spec: &Value) -> Vec<Value> {
    (0..count)
        .map(|at| pod(&format!("p{at:03}"), cpu, memory, spec.clone()))
        .collect()
}

fn read<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    objects
        .into_iter()
        .map(|object| serde_json::from_value(object).unwrap())
        .collect()
}

fn objects(pools: Vec<Value>, pods: Vec<Value>) -> Objects {
    Objects {
        pods: read(pods),
        node_pools: read(pools),
        ..Objects::default()
    }
}

fn run_with(objects: &Objects, options: &Options<'_>) -> Results {
    solve(&Problem::from_objects(objects, &catalogue()), options)
}

fn run(objects: &Objects) -> Results {
    run_with(objects, &Options::default())
}

/// The number of pods on each claim, in the order of the claims.
fn counts(results: &Results) -> Vec<usize> {
    results
        .new_node_claims
        .iter()
        .map(|claim| claim.pods.len())
        .collect()
}

fn names(results: &Results, claim: usize, catalogue: &Catalogue) -> Vec<String> {
    let claim = &results.new_node_claims[claim];
    claim
        .instance_types
        .iter()
        .map(|entry| catalogue.types[*entry].name.to_string())
        .collect()
}

/// What a claim demands of a label, in words.
fn demand(results: &Results, claim: usize, key: &str) -> String {
    let requirements = &results.new_node_claims[claim].requirements;
    let requirement = results.vocabulary.get(key).and_then(|key| requirements.get(key));
    requirement.map_or_else(String::new, |requirement| {
        requirement.describe(&results.vocabulary)
    })
}

fn reason(results: &Results) -> String {
    let reasons = results.unschedulable.iter().flat_map(|pod| &pod.reasons);
    reasons
        .map(|reason| reason.message.clone())
        .collect::<Vec<_>>()
        .join("; ")
}

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

fn node(name: &str, cpu: &str, labels: Value, taints: Value) -> Value {
    let mut all = json!({ HOSTNAME: name, ZONE: "a", "kubernetes.io/arch": "amd64" });
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "labels": all }, "spec": { "providerID": format!("x://{name}"), "taints": taints },
        "status": { "allocatable": { "cpu": cpu, "memory": "64Gi", "pods": "110" },
                    "capacity": { "cpu": cpu, "memory": "64Gi", "pods": "110" } } })
}

#[test]
fn existing_nodes_come_first_with_what_their_pods_leave() {
    let mut objects = objects(vec![default_pool()], pods(6, "1", "1Gi", &json!({})));
    objects.nodes = read(vec![
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
    objects.node_claims = read(vec![json!({
        "metadata": { "name": "claim", "labels": { "karpenter.sh/nodepool": "default" } },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" }, "requirements": [],
            "startupTaints": [{ "key": "boot", "effect": "NoSchedule" }] },
        "status": { "providerID": "x://1", "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" },
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "10" } } })]);
    objects.nodes = read(vec![json!({ "metadata": { "name": "node", "labels": {
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
    objects.nodes = read(vec![leaving]);
    objects.pods = read(vec![pod("p", "1", "1Gi", json!({ "nodeName": "n0" }))]);
    assert_eq!(counts(&run(&objects)), [1]);
    // It ran already, so a claim that is gone since does not hold it back, as it would a pending pod.
    let lost = json!({ "nodeName": "n0", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "gone" } }] });
    objects.pods = read(vec![pod("p", "1", "1Gi", lost)]);
    assert_eq!(counts(&run(&objects)), [1]);
}

fn spread(key: &str, more: Value) -> Value {
    let mut constraint = json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } });
    constraint
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "topologySpreadConstraints": [constraint] })
}

#[test]
fn a_zone_spread_gives_every_zone_its_share() {
    let results = run(&objects(
        vec![default_pool()],
        pods(7, "1", "1Gi", &spread(ZONE, json!({}))),
    ));
    let zones: BTreeSet<String> = (0..3).map(|claim| demand(&results, claim, ZONE)).collect();
    assert_eq!(zones, ["In [a]", "In [b]", "In [c]"].map(str::to_owned).into());
    let mut counts = counts(&results);
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
}

#[test]
fn a_hostname_spread_bounds_the_pods_of_one_node() {
    let results = run(&objects(
        vec![default_pool()],
        pods(5, "1", "1Gi", &spread(HOSTNAME, json!({ "maxSkew": 2 }))),
    ));
    let mut counts = counts(&results);
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 2]);
}

#[test]
fn min_domains_demands_more_zones_than_there_are() {
    let spec = spread(ZONE, json!({ "minDomains": 4 }));
    let results = run(&objects(vec![default_pool()], pods(5, "1", "1Gi", &spec)));
    assert_eq!(
        results.unschedulable.len(),
        2,
        "with a fourth zone missing, each zone takes one pod"
    );
    assert_eq!(
        results.unschedulable[0].reasons[0].message,
        format!("topology spread by {ZONE} leaves no domain for it")
    );
}

#[test]
fn a_soft_spread_gives_way() {
    let spec = spread(
        "example.com/rack",
        json!({ "whenUnsatisfiable": "ScheduleAnyway" }),
    );
    assert_eq!(
        counts(&run(&objects(vec![default_pool()], pods(3, "1", "1Gi", &spec)))),
        [3]
    );
}

fn affinity(kind: &str, key: &str) -> Value {
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": key, "labelSelector": { "matchLabels": { "app": "web" } } }] } } })
}

#[test]
fn affinity_keeps_pods_in_one_zone_and_anti_affinity_on_nodes_of_their_own() {
    let together = run(&objects(
        vec![default_pool()],
        pods(80, "1", "1Gi", &affinity("podAffinity", ZONE)),
    ));
    assert_eq!(together.new_node_claims.len(), 2);
    let zones: BTreeSet<String> = (0..2).map(|claim| demand(&together, claim, ZONE)).collect();
    assert_eq!(zones.len(), 1, "{zones:?}");
    let apart = run(&objects(
        vec![default_pool()],
        pods(4, "1", "1Gi", &affinity("podAntiAffinity", HOSTNAME)),
    ));
    assert_eq!(counts(&apart), [1, 1, 1, 1]);
}

#[test]
fn anti_affinity_of_a_running_pod_keeps_others_away() {
    let mut objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &json!({})));
    objects.nodes = read(vec![node("n0", "4", json!({}), json!([]))]);
    let mut spec = affinity("podAntiAffinity", HOSTNAME);
    spec["nodeName"] = json!("n0");
    objects.pods.extend(read(vec![pod("loner", "1", "1Gi", spec)]));
    let results = run(&objects);
    assert!(results.existing_nodes.is_empty());
    assert_eq!(counts(&results), [1]);
}

#[test]
fn host_ports_are_taken_once_per_node() {
    let port = json!({ "containers": [{ "name": "m", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    assert_eq!(
        counts(&run(&objects(vec![default_pool()], pods(3, "1", "1Gi", &port)))),
        [1, 1, 1]
    );
}

#[test]
fn a_volume_keeps_its_pod_in_its_zone() {
    let spec = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] });
    let mut objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &spec));
    assert_eq!(
        reason(&run(&objects)),
        "PersistentVolumeClaim default/data does not exist; create it or remove the volume"
    );
    objects.pvcs = read(vec![
        json!({ "metadata": { "name": "data", "namespace": "default",
        "annotations": { "pv.kubernetes.io/bind-completed": "yes" } }, "spec": { "volumeName": "pv" } }),
    ]);
    objects.pvs = read(vec![
        json!({ "metadata": { "name": "pv" }, "spec": { "nodeAffinity": { "required": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": ["b"] }] }] } } } }),
    ]);
    assert_eq!(demand(&run(&objects), 0, ZONE), "In [b]");
}

#[test]
fn a_node_attaches_only_as_many_volumes_as_its_driver_allows() {
    let spec = |claim: usize| json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": format!("data-{claim}") } }] });
    let with_volumes: Vec<Value> = (0..3)
        .map(|at| pod(&format!("p{at}"), "1", "1Gi", spec(at)))
        .collect();
    let mut objects = objects(vec![default_pool()], with_volumes);
    objects.nodes = read(vec![node("n0", "8", json!({}), json!([]))]);
    objects.csi_nodes = read(vec![json!({ "metadata": { "name": "n0" }, "spec": { "drivers": [
        { "name": "ebs.csi.aws.com", "nodeID": "n0", "allocatable": { "count": 2 } }] } })]);
    objects.storage_classes = read(vec![json!({ "metadata": { "name": "fast" },
        "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer" })]);
    let claim = |at: usize| {
        json!({ "metadata": { "name": format!("data-{at}"), "namespace": "default" },
        "spec": { "storageClassName": "fast" } })
    };
    objects.pvcs = read((0..3).map(claim).collect());
    let results = run(&objects);
    assert_eq!(results.existing_nodes[0].pods.len(), 2);
    assert_eq!(counts(&results), [1]);
}

#[test]
fn min_values_are_kept_or_lowered() {
    let demanding = pool(
        "default",
        json!({ "requirements": [{ "key": "kubernetes.io/arch",
        "operator": "Exists", "minValues": 2 }] }),
        json!({}),
    );
    let arm = json!({ "nodeSelector": { "kubernetes.io/arch": "arm64" } });
    let objects = objects(vec![demanding], pods(1, "1", "1Gi", &arm));
    assert!(!reason(&run(&objects)).is_empty());
    let lenient = Options {
        min_values: MinValuesPolicy::BestEffort,
        ..Options::default()
    };
    let results = run_with(&objects, &lenient);
    assert_eq!(counts(&results), [1]);
    assert!(results.new_node_claims[0].min_values_relaxed);
}

#[test]
fn a_pod_that_needs_devices_is_refused_with_the_reason() {
    let spec = json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }] });
    let results = run(&objects(vec![default_pool()], pods(1, "1", "1Gi", &spec)));
    assert!(
        reason(&results).contains("dynamic resource allocation"),
        "{}",
        reason(&results)
    );
}

#[test]
fn a_pod_that_is_too_large_is_told_so() {
    let results = run(&objects(vec![default_pool()], pods(1, "100", "1Gi", &json!({}))));
    let expected = "no instance type is large enough (the pod asks for cpu 100, memory 1Gi, pods 1, DaemonSets included)";
    assert_eq!(reason(&results), expected);
}

#[test]
fn a_run_can_be_stopped() {
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let options = Options {
        should_stop: &stop,
        ..Options::default()
    };
    let results = run_with(
        &objects(vec![default_pool()], pods(9, "1", "1Gi", &json!({}))),
        &options,
    );
    assert!(results.stopped);
    assert_eq!(counts(&results), [3]);
}

/// A catalogue with one type that has a reservation for two instances, beside on-demand capacity.
fn with_reservation() -> Arc<Catalogue> {
    let offering = |values: &[(&str, &str)], price: f64, capacity: i64| {
        let requirements: Vec<Value> = values
            .iter()
            .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }))
            .collect();
        json!({ "Price": price, "Available": true, "Requirements": requirements, "ReservationCapacity": capacity })
    };
    let reserved = [
        ("karpenter.sh/capacity-type", "reserved"),
        (ZONE, "a"),
        ("karpenter.k8s.aws/capacity-reservation-id", "cr-1"),
    ];
    let on_demand = [("karpenter.sh/capacity-type", "on-demand"), (ZONE, "a")];
    let types = json!([{ "name": "c4.large", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": { "cpu": "4", "memory": "8Gi", "pods": "110" },
        "offerings": [offering(&reserved, 0.0, 2), offering(&on_demand, 0.2, 0)] }]);
    Arc::new(kwok::parse(&types.to_string(), "test").unwrap())
}

#[test]
fn reserved_capacity_is_used_up_and_then_waited_for_or_bought() {
    let objects = objects(vec![default_pool()], pods(3, "3", "1Gi", &json!({})));
    for (mode, claims, reserved) in [
        (ReservedMode::Strict, 2, 2),
        (ReservedMode::Fallback, 3, 2),
        (ReservedMode::Off, 3, 0),
    ] {
        let options = Options {
            reserved: mode,
            ..Options::default()
        };
        let results = solve(&Problem::from_objects(&objects, &with_reservation()), &options);
        assert_eq!(results.new_node_claims.len(), claims, "{mode:?}");
        let of_reservation = (0..claims)
            .filter(|claim| demand(&results, *claim, "karpenter.sh/capacity-type") == "In [reserved]");
        assert_eq!(of_reservation.count(), reserved, "{mode:?}");
        if mode == ReservedMode::Strict {
            assert_eq!(
                reason(&results),
                "reserved capacity would do, but all of it is taken for now"
            );
        }
    }
}

fn ec2_pool(requirements: Value) -> Value {
    json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": { "requirements": requirements,
        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" } } } } })
}

/// Seed: ten pods of 12 vCPU go on one node of at least 128 vCPU, and both architectures stay candidates.
#[test]
fn ten_pods_of_twelve_vcpu_make_one_node_of_at_least_128() {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let general = json!([{ "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] }]);
    let objects = objects(vec![ec2_pool(general)], pods(10, "12", "1Gi", &json!({})));
    let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    assert_eq!(counts(&results), [10]);
    let names = names(&results, 0, &catalogue);
    let has = |suffix: &str, graviton: bool| {
        names
            .iter()
            .any(|name| name.ends_with(suffix) && is_graviton(name) == graviton)
    };
    assert!(
        has("32xlarge", false) && has("48xlarge", false) && has("48xlarge", true),
        "{names:?}"
    );
    assert!(!has("24xlarge", false) && !has("24xlarge", true));
}

fn is_graviton(name: &str) -> bool {
    let family = name.split('.').next().unwrap_or_default();
    let after_digit = family.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    after_digit
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with('g')
}

/// Seed: a pool capped at 128 vCPU with a claim of 100 vCPU has x86 candidates only, nearly all of 32xlarge.
#[test]
fn a_cap_at_128_vcpu_leaves_no_graviton_for_100() {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let capped = json!([
        { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
        { "key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["129"] }]);
    let objects = objects(vec![ec2_pool(capped)], pods(10, "10", "1Gi", &json!({})));
    let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    assert_eq!(counts(&results), [10]);
    let names = names(&results, 0, &catalogue);
    assert!(!names.is_empty());
    assert!(names.iter().all(|name| !is_graviton(name)), "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.ends_with(".32xlarge") || name.contains("metal")),
        "{names:?}"
    );
}
