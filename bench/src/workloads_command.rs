//! `bench workloads`: runs the cases of many seeds on both sides.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use veneer_bench::sides::{Rates, Side, veneer_beside_this};
use veneer_bench::workloads::report::{
    HEADER, Outcome, Verdict, append, judge, print_case, print_summary, read,
};
use veneer_bench::workloads::{Setup, generate, run};

/// What is run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many cases
    #[arg(long, default_value_t = 10)]
    cases: u64,
    /// The seed of the first case; the others follow
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Request rates of kube-scheduler and kube-controller-manager
    #[arg(long, value_enum, default_value = "default")]
    rates: WhichRates,
    /// Which side runs
    #[arg(long, value_enum, default_value = "both")]
    side: WhichSide,
    /// Adds a line of JSON for each side of each case to this file, and skips what is in it already
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// Keeps the logs of the sides on which pods are left, in folders of this one
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Runs nothing: prints the cases and the summary of a file that --append has written
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Runs nothing: prints what the cases are
    #[arg(long)]
    show: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum WhichRates {
    Default,
    Raised,
    Both,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum WhichSide {
    Karpenter,
    Veneer,
    Both,
}

/// Runs what the arguments say; false if ours left a pod that Karpenter ran.
pub(crate) fn workloads(arguments: &Arguments) -> Result<bool> {
    let mut out = std::io::stdout();
    if let Some(path) = &arguments.summary {
        let outcomes = read(path)?;
        print_summary(&mut out, &outcomes, Verdict::Good)?;
        return Ok(true);
    }
    let seeds = arguments.from..arguments.from + arguments.cases;
    if arguments.show {
        for seed in seeds {
            writeln!(out, "{:#?}", generate(seed))?;
        }
        return Ok(true);
    }
    let veneer = veneer_beside_this()?;
    let mut outcomes: Vec<Outcome> = match &arguments.append {
        Some(path) => read(path)?,
        None => Vec::new(),
    };
    let rates: &[Rates] = match arguments.rates {
        WhichRates::Default => &[Rates::Default],
        WhichRates::Raised => &[Rates::Raised],
        WhichRates::Both => &[Rates::Default, Rates::Raised],
    };
    let sides: &[Side] = match arguments.side {
        WhichSide::Karpenter => &[Side::Karpenter],
        WhichSide::Veneer => &[Side::Veneer],
        WhichSide::Both => &[Side::Karpenter, Side::Veneer],
    };
    writeln!(out, "{HEADER}")?;
    let mut of_this_run = BTreeSet::new();
    for seed in seeds {
        let case = generate(seed);
        for rates in rates {
            of_this_run.insert((seed, *rates));
            for side in sides {
                if find(&outcomes, seed, *rates, *side).is_some() {
                    continue;
                }
                let setup = Setup {
                    rates: *rates,
                    veneer: &veneer,
                    logs: arguments.logs.as_deref(),
                    settle: true,
                };
                let outcome = run(&case, *side, setup)
                    .with_context(|| format!("seed {seed} on {side} at {rates} rates"))?;
                if let Some(path) = &arguments.append {
                    append(path, &outcome)?;
                }
                outcomes.push(outcome);
            }
            let (theirs, ours) = (
                find(&outcomes, seed, *rates, Side::Karpenter),
                find(&outcomes, seed, *rates, Side::Veneer),
            );
            match (theirs, ours) {
                (Some(theirs), Some(ours)) => print_case(&mut out, theirs, ours)?,
                (Some(alone), None) | (None, Some(alone)) => {
                    writeln!(out, "{:>5} {rates} {}", seed, serde_json::to_string(alone)?)?;
                }
                (None, None) => {}
            }
            out.flush()?;
        }
    }
    outcomes.retain(|outcome| of_this_run.contains(&(outcome.seed, outcome.rates)));
    print_summary(&mut out, &outcomes, Verdict::Dearer)?;
    let is_failed = |(seed, rates): &(u64, Rates)| {
        let theirs = find(&outcomes, *seed, *rates, Side::Karpenter);
        let ours = find(&outcomes, *seed, *rates, Side::Veneer);
        theirs
            .zip(ours)
            .is_some_and(|(theirs, ours)| judge(theirs, ours) == Verdict::Fail)
    };
    Ok(!of_this_run.iter().any(is_failed))
}

fn find(outcomes: &[Outcome], seed: u64, rates: Rates, side: Side) -> Option<&Outcome> {
    outcomes
        .iter()
        .find(|outcome| outcome.seed == seed && outcome.rates == rates && outcome.side == side)
}
