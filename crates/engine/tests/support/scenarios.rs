//! Objects for small packing scenarios, and what to read off the results.
#![allow(dead_code, reason = "each file of scenarios uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{Objects, Options, Problem, Results, solve};

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Types `c2` … `c64` with 2 GiB per processor, for both architectures, in three zones, spot and on demand.
pub(crate) fn catalogue() -> Arc<Catalogue> {
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

pub(crate) fn pool(name: &str, template: Value, rest: Value) -> Value {
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

pub(crate) fn default_pool() -> Value {
    pool("default", json!({}), json!({}))
}

pub(crate) fn pod(name: &str, cpu: &str, memory: &str, spec: Value) -> Value {
    let mut all = json!({ "containers": [{ "name": "main",
        "resources": { "requests": { "cpu": cpu, "memory": memory } } }] });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } }, "spec": all })
}

pub(crate) fn pods(count: usize, cpu: &str, memory: &str, spec: &Value) -> Vec<Value> {
    (0..count)
        .map(|at| pod(&format!("p{at:03}"), cpu, memory, spec.clone()))
        .collect()
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    objects
        .into_iter()
        .map(|object| serde_json::from_value(object).unwrap())
        .collect()
}

pub(crate) fn read_shared<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<Arc<T>> {
    read(objects).into_iter().map(Arc::new).collect()
}

pub(crate) fn objects(pools: Vec<Value>, pods: Vec<Value>) -> Objects {
    Objects {
        pods: read(pods).into_iter().collect(),
        node_pools: read(pools),
        ..Objects::default()
    }
}

pub(crate) fn run_with(objects: &Objects, options: &Options<'_>) -> Results {
    solve(&Problem::from_objects(objects, &catalogue()), options)
}

pub(crate) fn run(objects: &Objects) -> Results {
    run_with(objects, &Options::default())
}

/// The number of pods on each claim, in the order of the claims.
pub(crate) fn counts(results: &Results) -> Vec<usize> {
    results
        .new_node_claims
        .iter()
        .map(|claim| claim.pods.len())
        .collect()
}

pub(crate) fn names(results: &Results, claim: usize, catalogue: &Catalogue) -> Vec<String> {
    let claim = &results.new_node_claims[claim];
    claim
        .instance_types
        .iter()
        .map(|entry| catalogue.types[*entry].name.to_string())
        .collect()
}

/// What a claim demands of a label, in words.
pub(crate) fn demand(results: &Results, claim: usize, key: &str) -> String {
    let requirements = &results.new_node_claims[claim].requirements;
    let requirement = results.vocabulary.get(key).and_then(|key| requirements.get(key));
    requirement.map_or_else(String::new, |requirement| {
        requirement.describe(&results.vocabulary)
    })
}

pub(crate) fn reason(results: &Results) -> String {
    let reasons = results.unschedulable.iter().flat_map(|pod| &pod.reasons);
    reasons
        .map(|reason| reason.message.clone())
        .collect::<Vec<_>>()
        .join("; ")
}

pub(crate) fn node(name: &str, cpu: &str, labels: Value, taints: Value) -> Value {
    let mut all = json!({ HOSTNAME: name, ZONE: "a", "kubernetes.io/arch": "amd64" });
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "labels": all }, "spec": { "providerID": format!("x://{name}"), "taints": taints },
        "status": { "allocatable": { "cpu": cpu, "memory": "64Gi", "pods": "110" },
                    "capacity": { "cpu": cpu, "memory": "64Gi", "pods": "110" } } })
}

pub(crate) fn spread(key: &str, more: Value) -> Value {
    let mut constraint = json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } });
    constraint
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "topologySpreadConstraints": [constraint] })
}

pub(crate) fn affinity(kind: &str, key: &str) -> Value {
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": key, "labelSelector": { "matchLabels": { "app": "web" } } }] } } })
}
