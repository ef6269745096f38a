//! Decides about a generated cluster and prints the time it takes: `consolidate NODES PODS [CATALOGUE]`.
//!
//! Nodes are between a fifth and all full; a fifth of the pods are spread over zones or hosts, keep apart on hosts or
//! choose a zone, and some are protected. First a pass over everything with nothing remembered, then passes after one
//! change each. CATALOGUE is a file in the format of Karpenter's KWOK provider; a small one of its own without it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a program to measure with, not part of the pure library"
)]

#[path = "../tests/support/fleet.rs"]
mod fleet;

use std::sync::Arc;
use std::time::Instant;

use fleet::{Fleet, Random, merge};
use serde_json::json;
use veneer_engine::catalogue::kwok;
use veneer_engine::disruption::Outcome;
use veneer_engine::provision::Market;

fn generate(nodes: u64, pods: u64, catalogue: Option<&str>) -> Fleet {
    let mut random = Random(7);
    let mut fleet = Fleet::new();
    let types: Vec<&str> = match catalogue {
        Some(path) => {
            let text = std::fs::read_to_string(path).unwrap();
            fleet.market = Market::new(Arc::new(kwok::parse(&text, path).unwrap()));
            vec![
                "c5.4xlarge",
                "m5.4xlarge",
                "r5.4xlarge",
                "c5.9xlarge",
                "m5.8xlarge",
            ]
        }
        None => vec!["c.16", "m.16", "r.16", "c.32", "m.32"],
    };
    for pool in ["a", "b", "c"] {
        fleet.pool(
            pool,
            json!({"spec": {"disruption": {"budgets": [{"nodes": "10%"}]}}}),
        );
    }
    let sizes: Vec<u64> = types
        .iter()
        .map(|name| {
            let all = &fleet.market.catalogue().types;
            let it = all.iter().find(|it| *it.name == **name).unwrap();
            let cpu = veneer_engine::plan::api_list(&it.allocatable())["cpu"].0.clone();
            match cpu.strip_suffix('m') {
                Some(milli) => milli.parse().unwrap(),
                None => cpu.parse::<u64>().unwrap() * 1000,
            }
        })
        .collect();
    let mut made = 0;
    for node in 0..nodes {
        let kind = usize::try_from(random.below(5)).unwrap();
        let name = format!("node-{node:05}");
        let zone = *random.one_of(&["zone-a", "zone-b", "zone-c"]);
        let zone = if catalogue.is_some() {
            zone.replace("zone-", "test-zone-")
        } else {
            zone.to_owned()
        };
        let pool = *random.one_of(&["a", "b", "c"]);
        fleet.node(
            &name,
            pool,
            types[kind],
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}),
        );
        let wanted = (pods * (node + 1) / nodes).saturating_sub(made);
        let fill = sizes[kind] * (20 + random.below(80)) / 100;
        for at in 0..wanted {
            let app = format!("app-{}", random.below(200));
            let cpu = (fill / wanted.max(1)).max(50) / 50 * 50;
            let mut more = json!({"metadata": {"labels": {"app": app}}});
            match random.below(25) {
                0 => merge(
                    &mut more,
                    json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 5,
                    "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}}}]}}),
                ),
                1 => merge(
                    &mut more,
                    json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 5,
                    "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}}}]}}),
                ),
                2 => merge(
                    &mut more,
                    json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}}),
                ),
                3 => {
                    let alone = format!("alone-{}", random.below(50));
                    merge(
                        &mut more,
                        json!({"metadata": {"labels": {"app": alone}}, "spec": {"affinity": {"podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": alone}}}]}}}}),
                    );
                }
                4 if at == 0 => merge(
                    &mut more,
                    json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
                ),
                _ => {}
            }
            fleet.pod(&format!("pod-{made:06}"), &name, &format!("{cpu}m"), more);
            made += 1;
        }
    }
    fleet
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (nodes, pods) = (number(0, 1_000), number(1, 20_000));
    let mut fleet = generate(nodes, pods, arguments.get(2).map(String::as_str));
    fleet.market.update(&fleet.snapshot);
    let began = Instant::now();
    let decision = fleet.decide();
    let full = began.elapsed();
    let saved: f64 = decision.started.iter().map(|command| command.saving).sum();
    let stays = decision
        .fates
        .iter()
        .filter(|fate| matches!(fate.outcome, Outcome::Stays(_)))
        .count();
    println!(
        "{nodes} nodes, {pods} pods: {full:?}; {} commands save ${saved:.2}/h; {stays} nodes stay, each with a reason; {} steps, held {:?}",
        decision.started.len(),
        decision.steps,
        decision.held,
    );
    for round in 0..5 {
        let at = usize::try_from(round * pods / 5).unwrap();
        let pod = Arc::make_mut(&mut fleet.snapshot.pods[at]);
        pod.metadata.resource_version = Some(round.to_string());
        decide(&mut fleet, "after a change that matters to nobody");
        fleet.snapshot.pods.remove(at);
        decide(&mut fleet, "after a pod has gone");
        let name = fleet.snapshot.nodes[at % fleet.snapshot.nodes.len()]
            .metadata
            .name
            .clone();
        fleet.pod(&format!("new-{round}"), &name.unwrap(), "100m", json!({}));
        decide(&mut fleet, "after a pod has come");
    }
    decide(&mut fleet, "without a change");
}

fn decide(fleet: &mut Fleet, when: &str) {
    let began = Instant::now();
    let decision = fleet.decide();
    println!("{when}: {:?} (new: {})", began.elapsed(), decision.is_new);
}
