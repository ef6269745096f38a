//! `bench`: runs Karpenter's packages and ours on the same input, one after the other in one go, and prints ratios.

#![allow(
    clippy::indexing_slicing,
    reason = "a benchmark may fail loudly on input that it made itself"
)]

mod explain;
mod instructions;
mod overlay;
mod scale_to_zero;
mod schedule;
mod standalone;
mod trace;
mod workloads_command;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Side-by-side benchmarks. Absolute times depend on the machine; the ratios are what counts.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Overlays × 10 pools × Karpenter's AWS catalogue: reconcile and apply, from scratch and after one change
    Overlay {
        /// How many overlays; may be given several times
        #[arg(long, default_values_t = [100, 500])]
        overlays: Vec<usize>,
    },
    /// The scheduler on the pods of Karpenter's own benchmark
    Schedule {
        /// How many pods; may be given several times
        #[arg(long, default_values_t = [1_000, 5_000, 20_000])]
        pods: Vec<usize>,
        /// Which pods; may be given several times
        #[arg(long, value_enum, default_values = ["generic", "diverse"])]
        mix: Vec<schedule::Mix>,
        /// Which instance types; may be given several times
        #[arg(long, value_enum, default_values = ["fake", "aws"])]
        types: Vec<schedule::Types>,
    },
    /// `veneer explain pod` and `veneer simulate --propose` on a large cluster, beside one Solve of Karpenter
    Explain {
        /// How many pods wait
        #[arg(long, default_value_t = 5_000)]
        pods: usize,
        /// How many nodes there are
        #[arg(long, default_value_t = 1_000)]
        nodes: usize,
        /// Which pods; Karpenter takes minutes for the diverse ones
        #[arg(long, value_enum, default_value = "generic")]
        mix: schedule::Mix,
    },
    /// Standalone mode and Karpenter on real clusters: the same manifests, kwok nodes
    Standalone(standalone::Arguments),
    /// How long nodes stay after their pods have gone, on both sides
    ScaleToZero(scale_to_zero::Arguments),
    /// Random clusters and workloads on Karpenter and on standalone mode; fails if ours leaves a pod that Karpenter runs
    Workloads(workloads_command::Arguments),
    /// Instructions of three fixed workloads (callgrind) against those on record
    Instructions {
        /// Puts the counts on record
        #[arg(long)]
        record: bool,
    },
    /// One of those workloads, once
    #[command(hide = true)]
    Workload { which: instructions::Workload },
    /// Our half of a benchmark, in a process of its own so that its memory can be measured
    #[command(hide = true)]
    ScheduleOurs {
        /// The case, as JSON
        case: std::path::PathBuf,
        /// The instance types
        catalogue: std::path::PathBuf,
        /// Schedules once only
        #[arg(long)]
        once: bool,
    },
    /// Our half of a benchmark, in a process of its own so that its memory can be measured
    #[command(hide = true)]
    OverlayOurs {
        /// The case, as JSON
        case: std::path::PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Overlay { overlays } => overlay::side_by_side(&overlays),
        What::OverlayOurs { case } => overlay::ours(&case),
        What::Explain { pods, nodes, mix } => explain::side_by_side(pods, nodes, mix),
        What::Standalone(arguments) => standalone::side_by_side(&arguments),
        What::ScaleToZero(arguments) => scale_to_zero::side_by_side(&arguments),
        What::Workloads(arguments) => {
            if workloads_command::workloads(&arguments)? {
                return Ok(());
            }
            anyhow::bail!("pods are left that Karpenter runs: see the cases that say FAIL")
        }
        What::Instructions { record } => instructions::compare(record),
        What::Workload { which } => instructions::run(which),
        What::Schedule { pods, mix, types } => schedule::side_by_side(&pods, &mix, &types),
        What::ScheduleOurs {
            case,
            catalogue,
            once,
        } => schedule::ours(&case, &catalogue, once),
    }
}
