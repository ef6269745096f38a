//! The packing policy `cost`: never worse than first-fit decreasing, and never below its own lower bound.
#![allow(unreachable_pub, reason = "the generator is shared with an example")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{Objects, Options, Problem, cost, solve};

#[path = "support/clusters.rs"]
mod clusters;
use clusters::Random;

/// Types from `(name, processors, GiB, price)`, in one zone, on demand.
fn catalogue(types: &[(&str, u64, u64, f64)]) -> Arc<Catalogue> {
    let types: Vec<Value> = types
        .iter()
        .map(|(name, cpu, memory, price)| {
            let requirement =
                |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
            json!({ "name": name, "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": { "cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": "110" },
                "offerings": [{ "Price": price, "Available": true, "Requirements": [
                    requirement("karpenter.sh/capacity-type", "on-demand"),
                    requirement("topology.kubernetes.io/zone", "a")] }] })
        })
        .collect();
    Arc::new(kwok::parse(&Value::Array(types).to_string(), "test").unwrap())
}

fn objects(pods: &[(u64, u64)]) -> Objects {
    let pods = pods.iter().enumerate().map(|(at, (milli, mebi))| {
        serde_json::from_value(
            json!({ "metadata": { "name": format!("p{at:03}"), "namespace": "default" },
            "spec": { "containers": [{ "name": "main", "resources": {
                "requests": { "cpu": format!("{milli}m"), "memory": format!("{mebi}Mi") } } }] } }),
        )
        .unwrap()
    });
    let pool = json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": { "requirements": [],
        "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" } } } } });
    Objects {
        pods: pods.collect(),
        node_pools: vec![serde_json::from_value(pool).unwrap()],
        ..Objects::default()
    }
}

/// What a type leaves to pods.
fn room(catalogue: &Catalogue, entry: usize) -> (f64, f64) {
    let list = catalogue.types[entry].allocatable();
    let amount = |name: &str| list.get(name).unwrap().nanos().unwrap() as f64 / 1e9;
    (amount("cpu"), amount("memory") / 1024.0 / 1024.0)
}

/// The cheapest of all partitions of the pods into nodes, by trying every one.
fn optimum(pods: &[(u64, u64)], catalogue: &Catalogue) -> f64 {
    fn price(load: (f64, f64), types: &[((f64, f64), f64)]) -> f64 {
        types
            .iter()
            .filter(|(room, _)| load.0 <= room.0 + 1e-9 && load.1 <= room.1 + 1e-6)
            .map(|(_, price)| *price)
            .fold(f64::INFINITY, f64::min)
    }
    fn place(rest: &[(u64, u64)], nodes: &mut Vec<(f64, f64)>, types: &[((f64, f64), f64)], best: &mut f64) {
        let Some(((milli, mebi), rest)) = rest.split_first() else {
            let total: f64 = nodes.iter().map(|load| price(*load, types)).sum();
            *best = best.min(total);
            return;
        };
        let pod = (*milli as f64 / 1000.0, *mebi as f64);
        for at in 0..nodes.len() {
            nodes[at] = (nodes[at].0 + pod.0, nodes[at].1 + pod.1);
            place(rest, nodes, types, best);
            nodes[at] = (nodes[at].0 - pod.0, nodes[at].1 - pod.1);
        }
        nodes.push(pod);
        place(rest, nodes, types, best);
        nodes.pop();
    }
    let types: Vec<_> = catalogue
        .types
        .iter()
        .enumerate()
        .map(|(entry, it)| (room(catalogue, entry), it.offerings[0].price))
        .collect();
    let mut best = f64::INFINITY;
    place(pods, &mut Vec::new(), &types, &mut best);
    best
}

#[test]
fn four_and_two_processors_are_taken_where_eight_cost_more() {
    let catalogue = catalogue(&[("c2", 2, 16, 0.1), ("c4", 4, 32, 0.2), ("c8", 8, 64, 0.4)]);
    let objects = objects(&[(1500, 1024), (1500, 1024), (1500, 1024)]);
    let problem = Problem::from_objects(&objects, &catalogue);
    let found = cost::solve(&problem, &Options::default());
    assert!((found.ffd_hourly - 0.4).abs() < 1e-9, "{}", found.ffd_hourly);
    assert!((found.hourly - 0.3).abs() < 1e-9, "{}", found.hourly);
    assert!(
        found.lower_bound <= found.hourly && found.lower_bound > 0.2,
        "{}",
        found.lower_bound
    );
}

#[test]
fn the_bound_is_below_the_optimum_and_the_answer_is_not() {
    let mut optimal = 0;
    const CASES: u64 = 300;
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let types: Vec<(String, u64, u64, f64)> = (0..2 + random.below(4))
            .map(|at| {
                let (cpu, ratio) = (*random.pick(&[2, 4, 8, 16]), *random.pick(&[2, 4, 8]));
                let price = cpu as f64 * 0.04 + (cpu * ratio) as f64 * 0.005;
                let price = price * (0.7 + random.below(60) as f64 / 100.0);
                (format!("t{at}"), cpu, cpu * ratio, price)
            })
            .collect();
        let types: Vec<_> = types
            .iter()
            .map(|(name, cpu, memory, price)| (name.as_str(), *cpu, *memory, *price))
            .collect();
        let catalogue = catalogue(&types);
        let pods: Vec<(u64, u64)> = (0..1 + random.below(6))
            .map(|_| (100 + 100 * random.below(30), 128 + 128 * random.below(40)))
            .collect();
        let objects = objects(&pods);
        let problem = Problem::from_objects(&objects, &catalogue);
        let found = cost::solve(&problem, &Options::default());
        assert!(found.hourly <= found.ffd_hourly, "seed {seed}");
        assert!(found.lower_bound <= found.hourly, "seed {seed}");
        if found.results.unschedulable.is_empty() {
            let best = optimum(&pods, &catalogue);
            assert!(
                found.lower_bound <= best + 1e-9,
                "seed {seed}: bound {} > {best}",
                found.lower_bound
            );
            assert!(
                found.hourly >= best - 1e-9,
                "seed {seed}: {} < {best}",
                found.hourly
            );
            optimal += u64::from(found.hourly <= best + 1e-9);
        } else {
            optimal += 1;
        }
    }
    assert!(optimal * 10 >= CASES * 9, "only {optimal} of {CASES} are optimal");
}

#[test]
fn generated_clusters_get_cheaper_and_every_pod_keeps_its_place() {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let options = Options {
        cost_runs: 40,
        ..Options::default()
    };
    let mut cheaper = 0;
    for seed in 1000..1006 {
        let objects = clusters::cluster(seed, &clusters::AWS);
        let problem = Problem::from_objects(&objects, &catalogue);
        let ffd = solve(&problem, &options);
        let found = cost::solve(&problem, &options);
        assert!(found.hourly <= found.ffd_hourly, "seed {seed}");
        assert!(found.lower_bound <= found.hourly * (1.0 + 1e-9), "seed {seed}");
        assert!(found.runs <= 40, "seed {seed}: {} runs", found.runs);
        let unplaced = |results: &veneer_engine::packing::Results| -> Vec<usize> {
            results.unschedulable.iter().map(|entry| entry.pod).collect()
        };
        let before = unplaced(&ffd);
        assert!(
            unplaced(&found.results).iter().all(|pod| before.contains(pod)),
            "seed {seed}"
        );
        let claims = found.results.new_node_claims.iter().flat_map(|claim| &claim.pods);
        let nodes = found.results.existing_nodes.iter().flat_map(|node| &node.pods);
        let mut placed: Vec<usize> = claims.chain(nodes).copied().collect();
        placed.extend(unplaced(&found.results));
        placed.sort_unstable();
        assert_eq!(placed, (0..objects.pods.len()).collect::<Vec<_>>(), "seed {seed}");
        cheaper += usize::from(found.hourly < found.ffd_hourly);
        let again = cost::solve(&problem, &options);
        assert_eq!(again.hourly.to_bits(), found.hourly.to_bits(), "seed {seed}");
    }
    assert!(cheaper >= 3, "only {cheaper} of 6 are cheaper");
}

#[test]
fn without_a_budget_the_answer_is_karpenters() {
    let catalogue = catalogue(&[("c2", 2, 16, 0.1), ("c4", 4, 32, 0.2), ("c8", 8, 64, 0.4)]);
    let objects = objects(&[(1500, 1024), (1500, 1024), (1500, 1024)]);
    let problem = Problem::from_objects(&objects, &catalogue);
    for options in [
        Options {
            cost_runs: 1,
            ..Options::default()
        },
        Options {
            should_stop: &|| true,
            ..Options::default()
        },
    ] {
        let found = cost::solve(&problem, &options);
        assert_eq!(found.runs, 1);
        assert_eq!(found.hourly.to_bits(), found.ffd_hourly.to_bits());
    }
}
