//! Packs one pod with many terms and prints the time and the peak of memory: `hostile_pod FORM COUNT [PODS]`.
//!
//! FORM is `node` (preferred node affinity), `or` (OR-ed required terms), `near` and `apart` (preferred pod affinity and
//! anti-affinity), `spread` (soft spreads) or `plain`. With PODS there are so many, each with its own labels.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program to measure with, not part of the pure library"
)]

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use veneer_engine::catalogue::aws;
use veneer_engine::packing::{Objects, Options, Problem, solve};

fn pod(form: &str, terms: usize, number: usize) -> Pod {
    let many = |term: &dyn Fn(usize) -> Value| Value::Array((0..terms).map(term).collect());
    let expressions = |at: usize| json!({ "matchExpressions": [{ "key": format!("example.com/label-{at}"), "operator": "In", "values": ["a"] }] });
    let rule = |at: usize| {
        json!({ "topologyKey": if at.is_multiple_of(2) { "topology.kubernetes.io/zone" } else { "kubernetes.io/hostname" },
            "labelSelector": { "matchLabels": { "app": format!("app-{number}-{at}") } } })
    };
    let weighted = |at: usize| json!({ "weight": 1 + at % 100, "podAffinityTerm": rule(at) });
    let preferred = |terms: Value| json!({ "preferredDuringSchedulingIgnoredDuringExecution": terms });
    let mut spec = json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } } }] });
    match form {
        "node" => {
            let term = |at: usize| json!({ "weight": 1 + at % 100, "preference": expressions(at) });
            spec["affinity"]["nodeAffinity"] = preferred(many(&term));
        }
        "or" => {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                many(&expressions);
        }
        "near" => spec["affinity"]["podAffinity"] = preferred(many(&weighted)),
        "apart" => {
            let own = |at: usize| {
                let mut term = weighted(at);
                if at < terms / 2 {
                    term["podAffinityTerm"]["labelSelector"] = json!({ "matchLabels": { "app": "hostile" } });
                    term["podAffinityTerm"]["namespaces"] = json!(["hostile", format!("other-{at}")]);
                }
                term
            };
            spec["affinity"]["podAntiAffinity"] = preferred(many(&own));
        }
        "spread" => {
            let spread = |at: usize| {
                let mut spread = rule(at);
                spread["maxSkew"] = json!(1 + at % 7);
                spread["whenUnsatisfiable"] = json!("ScheduleAnyway");
                spread
            };
            spec["topologySpreadConstraints"] = many(&spread);
        }
        _ => {}
    }
    serde_json::from_value(json!({
        "metadata": { "name": format!("pod-{number}"), "namespace": "hostile", "uid": format!("{number:06}"),
            "labels": { "app": "hostile" } },
        "spec": spec,
    }))
    .unwrap()
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, form, count, rest @ ..] = arguments.as_slice() else {
        println!("usage: hostile_pod node|or|near|apart|spread|plain COUNT [PODS]");
        return;
    };
    let pods = rest.first().map_or(1, |pods| pods.parse().unwrap());
    let count = count.parse().unwrap();
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let node_pool = serde_json::from_value(json!({
        "metadata": { "name": "default" },
        "spec": { "template": { "spec": { "requirements": [],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" } } } },
    }))
    .unwrap();
    let objects = Objects {
        pods: (0..pods).map(|number| pod(form, count, number)).collect(),
        node_pools: vec![node_pool],
        ..Objects::default()
    };
    let before = peak_mib();
    let start = Instant::now();
    let problem = Problem::from_objects(&objects, &catalogue);
    let results = solve(&problem, &Options::default());
    println!(
        "{pods} pods with {count} terms of {form}: {:?}, input {before} MiB, peak {} MiB, {} claims, {} unschedulable",
        start.elapsed(),
        peak_mib(),
        results.new_node_claims.len(),
        results.unschedulable.len(),
    );
}
