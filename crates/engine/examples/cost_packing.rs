//! Packs generated clusters by Karpenter's order and by cost, and prints what that saves and how far it can be from
//! the best: `cost_packing [CLUSTERS [RUNS [-v]]]`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a program to measure with, not part of the pure library"
)]

use std::sync::Arc;
use std::time::Instant;

use veneer_engine::catalogue::aws;
use veneer_engine::packing::{Options, Problem, cost, solve};

#[path = "../tests/support/clusters.rs"]
mod clusters;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count: u64 = arguments.first().map_or(200, |text| text.parse().unwrap());
    let cost_runs: usize = arguments
        .get(1)
        .map_or(Options::default().cost_runs, |text| text.parse().unwrap());
    let is_verbose = arguments.get(2).is_some();
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let options = Options {
        cost_runs,
        ..Options::default()
    };
    let (mut dearer, mut cheaper, mut pods) = (0, 0, 0);
    let (mut saving, mut gap, mut excess, mut seconds, mut slowest) = (0.0, 0.0, 0.0, 0.0, 0.0_f64);
    for seed in 0..count {
        let objects = clusters::cluster(seed, &clusters::AWS);
        let problem = Problem::from_objects(&objects, &catalogue);
        let start = Instant::now();
        let ffd = solve(&problem, &options);
        let ffd_time = start.elapsed();
        let start = Instant::now();
        let found = cost::solve(&problem, &options);
        let time = start.elapsed();
        pods += objects.pods.len();
        dearer += usize::from(found.hourly > found.ffd_hourly);
        dearer += usize::from(found.results.unschedulable.len() > ffd.unschedulable.len());
        cheaper += usize::from(found.hourly < found.ffd_hourly - 1e-9);
        let saved = if found.ffd_hourly > 0.0 {
            1.0 - found.hourly / found.ffd_hourly
        } else {
            0.0
        };
        let over = if found.lower_bound > 0.0 {
            found.hourly / found.lower_bound - 1.0
        } else {
            0.0
        };
        saving += saved;
        gap += found.gap;
        excess += over;
        seconds += time.as_secs_f64();
        slowest = slowest.max(time.as_secs_f64());
        if is_verbose {
            println!(
                "{seed:4}: {:5} pods, {:3} → {:3} claims, {:3} unplaced, ${:8.3} → ${:8.3} ≥ ${:8.3}  saving {:5.1} %  gap {:5.1} %  {} runs, {:?} → {:?}",
                objects.pods.len(),
                ffd.new_node_claims.len(),
                found.results.new_node_claims.len(),
                found.results.unschedulable.len(),
                found.ffd_hourly,
                found.hourly,
                found.lower_bound,
                100.0 * saved,
                100.0 * found.gap,
                found.runs,
                ffd_time,
                time,
            );
        }
    }
    let mean = |total: f64| 100.0 * total / count as f64;
    println!("{count} clusters, {pods} pods, at most {cost_runs} packings each");
    println!("dearer or fewer pods placed: {dearer}");
    println!("strictly cheaper: {cheaper}");
    println!("mean saving: {:.2} %", mean(saving));
    println!("mean gap (share of the bill): {:.2} %", mean(gap));
    println!("mean excess over the lower bound: {:.2} %", mean(excess));
    println!(
        "time: {:.3} s mean, {slowest:.3} s at most",
        seconds / count as f64
    );
}
