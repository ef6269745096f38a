//! Measures one pass over a generated cluster with tenants that mean no good: `adversaries NODES TENANTS [PODS TERMS]`.
//!
//! Prints the steps, the processor time of the pass and the peak of memory. With 0 tenants it is the same cluster without
//! them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program to measure with, not part of the pure library"
)]

#[path = "../tests/support/crowd.rs"]
mod crowd;

use crowd::{Size, admit, catalogue, cycle, nominated_in_shop, snapshot, start};
use k8s_openapi::jiff::SignedDuration;
use veneer_world::adversary::{Kind, Scale, tenant};

/// The processor time of this process so far, in seconds.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let size = Size {
        nodes: number(0, 300),
        pods_per_node: 11,
        pending: 200,
    };
    let tenants = number(1, 200);
    let (pods, terms) = (number(2, 5), number(3, 150));
    let kind = number(4, usize::MAX);
    let catalogue = catalogue();
    let mut cluster = snapshot(&catalogue, size);
    for at in 0..tenants {
        let scale = Scale {
            pods,
            terms,
            distinct: at % 2 == 0,
        };
        let of = if kind == usize::MAX { at } else { kind };
        admit(
            &mut cluster,
            &tenant(11, of, scale),
            kind == usize::MAX && at % 10 == 0,
        );
    }
    let before = processor();
    let input = peak_mib();
    let mut cycle = cycle(&catalogue);
    for second in 0..3 {
        let began = processor();
        let pass = cycle.pass(
            &mut cluster,
            second,
            start() + SignedDuration::from_secs(i64::try_from(second).unwrap() * 20),
        );
        println!(
            "pass {second}: {} pods, {tenants} tenants of {:?}: {} steps, {:.2} s of processor time, {} of {} pods of others placed, held {:?}",
            cluster.pods.len(),
            Kind::ALL.get(kind),
            pass.steps,
            processor() - began,
            nominated_in_shop(&pass),
            size.pending,
            pass.held.len(),
        );
    }
    println!(
        "total {:.2} s, input {input} MiB, peak {} MiB",
        processor() - before,
        peak_mib()
    );
}
