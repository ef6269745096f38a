//! `veneer chaos`: histories in which everything goes wrong, for those who change Veneer.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use veneer_world::chaos::{History, KINDS, Report, run as play, shrink};

/// Runs small embedded worlds with faults and checks after every step that nothing is lost, doubled or touched
///
/// Each history follows from its seed: crashes between any two actions, late watches, refused writes, failed launches, lost
/// answers, fleets that come in part, messages that come late or twice, two leaders at once, wrong clocks, gaps of Prometheus,
/// malformed objects, shortages and interruptions. A history that breaks an
/// invariant is made as small as it can be and shown as one command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 every invariant holds, 1 one does not, 2 bad usage.")]
pub(crate) struct ChaosArgs {
    /// How many histories
    #[arg(long, value_name = "N", default_value_t = 200)]
    histories: u64,

    /// The seed of the first one; the others follow
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// For how many simulated minutes faults happen
    #[arg(long, value_name = "M", default_value_t = 24)]
    minutes: i64,

    /// Kinds of fault to leave out: crash, refuse, launch, answer, stale, clock, gap, malformed, fleet, message, split, scheduler
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    without: Vec<String>,

    /// Prints everything that happens in the first history
    #[arg(long)]
    log: bool,
}

pub(crate) fn run(args: &ChaosArgs) -> Result<ExitCode> {
    let mut without: Vec<&'static str> = Vec::new();
    for kind in &args.without {
        match KINDS.iter().find(|known| **known == kind.as_str()) {
            Some(known) => without.push(known),
            None => bail!(
                "--without {kind:?} is no kind of fault; expected some of {}",
                KINDS.join(", ")
            ),
        }
    }
    if args.minutes < 1 {
        bail!("--minutes is {}; expected 1 or more", args.minutes);
    }
    let history = |seed| History {
        minutes: args.minutes,
        without: without.clone(),
        ..History::new(seed)
    };
    let mut out = io::stdout().lock();
    if args.log {
        out.write_all(play(&history(args.seed))?.log.as_bytes())?;
    }
    let (next, report) = (AtomicU64::new(0), Mutex::new(Report::default()));
    let failed: Result<(), _> = std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= args.histories {
                return Ok(());
            }
            let seed = args.seed.wrapping_add(number);
            let outcome = play(&history(seed))?;
            report
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .add(seed, &outcome);
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(veneer_world::ScenarioError("a history panicked".to_owned())))
        })
    });
    failed.map_err(|error| anyhow!(error))?;
    let report = report
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    writeln!(
        out,
        "{} histories, {} steps, {} broken",
        report.histories,
        report.steps,
        report.failed.len()
    )?;
    if let Some((seed, what)) = report.failed.iter().min() {
        let smallest = shrink(&history(*seed))?;
        writeln!(out, "seed {seed}: {what}\n  {}", smallest.command())?;
    }
    out.flush()?;
    Ok(if report.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
