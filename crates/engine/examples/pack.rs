//! Packs generated pods and prints the time it takes: `pack KIND COUNT CATALOGUE [TIMES]`.
//!
//! KIND is one of
//! - `generic`: pods that demand nothing;
//! - `diverse`: a fifth each generic, zone spread, hostname spread, zone affinity, hostname anti-affinity, as in
//!   Karpenter's own benchmark;
//! - `preferring`: pods with preferences that cannot all be had;
//! - `distinct`: no two pods alike in size, labels or demands;
//! - `impossible`: pods that fit nowhere, between others that do;
//! - `nodes`: generic pods and as many existing nodes as a tenth of them.
//!
//! CATALOGUE is a file in the format of Karpenter's KWOK provider, or a region of the embedded AWS catalogue.
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

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::packing::{Objects, Options, Problem, solve};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn letter(&mut self) -> &'static str {
        ["a", "b", "c", "d", "e", "f", "g"][self.below(7) as usize]
    }
}

const PREFERRING: u64 = 5;
const DISTINCT: u64 = 6;
const IMPOSSIBLE: u64 = 7;

fn node(number: u64) -> Node {
    let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "58" });
    serde_json::from_value(json!({
        "metadata": { "name": format!("node-{number}"), "labels": {
            "kubernetes.io/hostname": format!("node-{number}"), "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": format!("zone-{}", number % 3) } },
        "spec": { "providerID": format!("x://{number}") },
        "status": { "allocatable": amounts, "capacity": amounts },
    }))
    .unwrap()
}

fn pod(kind: u64, number: u64, random: &mut Random) -> Pod {
    let cpu = [100, 250, 500, 1000, 1500][random.below(5) as usize];
    let memory = [100, 256, 512, 1024, 2048, 4096][random.below(6) as usize];
    let mut labels = json!({ "my-label": random.letter() });
    let mut spec = json!({ "containers": [{ "name": "main", "resources": {
        "requests": { "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } } }] });
    let spread = |key: &str, random: &mut Random| {
        json!([{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "my-label": random.letter() } } }])
    };
    let term = |key: &str, labels: &Value| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": key, "labelSelector": { "matchLabels": labels } }] })
    };
    match kind {
        1 => spec["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", random),
        2 => spec["topologySpreadConstraints"] = spread("kubernetes.io/hostname", random),
        3 => {
            labels = json!({ "my-affinity": random.letter() });
            spec["affinity"] = json!({ "podAffinity": term("topology.kubernetes.io/zone", &labels) });
        }
        4 => {
            labels = json!({ "app": "nginx" });
            spec["affinity"] = json!({ "podAntiAffinity": term("kubernetes.io/hostname", &labels) });
        }
        PREFERRING => {
            labels = json!({ "app": "nginx" });
            let apart = |weight: u32, key: &str| {
                json!({ "weight": weight, "podAffinityTerm": {
                    "topologyKey": key, "labelSelector": { "matchLabels": { "app": "nginx" } } } })
            };
            spec["affinity"] = json!({
                "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {
                    "matchExpressions": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] }] } }] },
                "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    apart(10, "topology.kubernetes.io/zone"), apart(1, "kubernetes.io/hostname")] },
            });
        }
        DISTINCT => {
            labels = json!({ "app": format!("app-{number}") });
            spec["containers"][0]["resources"]["requests"]["cpu"] =
                json!(format!("{}m", 100 + number % 7919));
            spec["containers"][0]["resources"]["requests"]["memory"] =
                json!(format!("{}Ki", 100_000 + number));
            spec["affinity"] = json!({ "podAntiAffinity": term("kubernetes.io/hostname", &labels) });
            spec["tolerations"] = json!([{ "key": format!("taint-{number}"), "operator": "Exists" }]);
        }
        IMPOSSIBLE if number.is_multiple_of(2) => {
            spec["nodeSelector"] = json!({ "example.com/rack": format!("r{}", number % 50) });
        }
        _ => {}
    }
    serde_json::from_value(json!({
        "metadata": { "name": format!("pod-{number}"), "namespace": "default", "labels": labels,
            "uid": format!("{:016x}-{number}", random.below(u64::MAX)) },
        "spec": spec,
    }))
    .unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, count, catalogue, rest @ ..] = arguments.as_slice() else {
        println!("usage: pack generic|diverse|preferring|distinct|impossible|nodes COUNT CATALOGUE [TIMES]");
        return;
    };
    let count: u64 = count.parse().unwrap();
    let times: usize = rest.first().map_or(1, |times| times.parse().unwrap());
    let catalogue = if catalogue.contains('/') {
        kwok::parse(&std::fs::read_to_string(catalogue).unwrap(), catalogue).unwrap()
    } else {
        aws::region(catalogue).unwrap().catalogue
    };
    let catalogue = Arc::new(catalogue);
    let mut random = Random(42);
    let pods = (0..count)
        .map(|number| {
            let kind = match kind.as_str() {
                "diverse" => number * 5 / count,
                "preferring" => PREFERRING,
                "distinct" => DISTINCT,
                "impossible" => IMPOSSIBLE,
                _ => 0,
            };
            pod(kind, number, &mut random)
        })
        .collect();
    let node_pool = serde_json::from_value(json!({
        "metadata": { "name": "default" },
        "spec": { "template": { "spec": { "requirements": [],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" } } } },
    }))
    .unwrap();
    let nodes = if kind == "nodes" { count / 10 } else { 0 };
    let objects = Objects {
        pods,
        nodes: (0..nodes).map(|number| Arc::new(node(number))).collect(),
        node_pools: vec![node_pool],
        ..Objects::default()
    };
    for _ in 0..times {
        let start = Instant::now();
        let problem = Problem::from_objects(&objects, &catalogue);
        let ready = start.elapsed();
        let results = solve(&problem, &Options::default());
        println!(
            "{count} {kind} pods, {} types: {:?} (overlays {ready:?}), {} claims, {} unschedulable, {} steps, held {:?}",
            catalogue.types.len(),
            start.elapsed(),
            results.new_node_claims.len(),
            results.unschedulable.len(),
            results.steps,
            results.held,
        );
    }
}
