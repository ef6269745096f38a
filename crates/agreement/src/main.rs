//! `agreement`: generates cases, asks Karpenter's packages and ours, and prints where they differ.

mod schedule_command;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{Parser, Subcommand};
use veneer_agreement::class_hash::ClassHashes;
use veneer_agreement::disruption::Disruptions;
use veneer_agreement::fleet::Fleets;
use veneer_agreement::launch::Launches;
use veneer_agreement::overlays::Overlays;
use veneer_agreement::quantity::Quantities;
use veneer_agreement::requirements::RequirementPairs;
use veneer_agreement::{Report, Subject, aws_oracle, check, oracle};

/// Holds the engine against Karpenter's own packages. Exit code 1 if they differ.
#[derive(Parser)]
struct Command {
    /// What to compare
    #[command(subcommand)]
    subject: Kind,
}

#[derive(clap::Args)]
struct Arguments {
    /// How many cases; 200,000, or 2,000 of those that take long
    #[arg(long)]
    cases: Option<u64>,
    /// Where the cases come from; random if not given, and always printed
    #[arg(long)]
    seed: Option<u64>,
    /// Only the case of this number, in full
    #[arg(long)]
    only: Option<u64>,
}

#[derive(Subcommand)]
enum Kind {
    /// Quantities: parsing, printing, arithmetic
    Quantity(Arguments),
    /// Requirements: compatibility and intersection
    Requirements(Arguments),
    /// NodeOverlays: verdicts, prices and capacity
    Overlay(Arguments),
    /// Consolidation: what one pass saves
    Disruption(Arguments),
    /// Fleet requests: what EC2 is asked for a claim
    Fleet(Arguments),
    /// Launches: launch templates with their user data, and fleets, parameter by parameter
    Launch(Arguments),
    /// Fingerprints of EC2NodeClasses
    ClassHash(Arguments),
    /// The scheduler: where pods go and what would be launched
    Schedule(schedule_command::Arguments),
    /// Answers what Karpenter's own test suites ask, line by line (see oracle/suites)
    Suites,
}

fn main() -> Result<ExitCode> {
    match Command::parse().subject {
        Kind::Quantity(arguments) => run(&Quantities, &oracle()?, &arguments),
        Kind::Requirements(arguments) => run(&RequirementPairs, &oracle()?, &arguments),
        Kind::Overlay(arguments) => run(&Overlays::new()?, &oracle()?, &arguments),
        Kind::Disruption(mut arguments) => {
            arguments.cases.get_or_insert(2_000);
            let subject = Disruptions::default();
            let code = run(&subject, &oracle()?, &arguments)?;
            writeln!(std::io::stdout(), "{:?}", subject.totals())?;
            Ok(code)
        }
        Kind::Fleet(mut arguments) => {
            arguments.cases.get_or_insert(2_000);
            run(&Fleets::new()?, &aws_oracle()?, &arguments)
        }
        Kind::Launch(mut arguments) => {
            arguments.cases.get_or_insert(2_000);
            let subject = Launches::new()?;
            let code = run(&subject, &aws_oracle()?, &arguments)?;
            writeln!(std::io::stdout(), "compared: {:?}", subject.compared())?;
            Ok(code)
        }
        Kind::ClassHash(arguments) => run(&ClassHashes, &aws_oracle()?, &arguments),
        Kind::Schedule(arguments) => schedule_command::run(&arguments),
        Kind::Suites => {
            veneer_agreement::suites::serve(std::io::stdin().lock(), std::io::stdout().lock())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn random_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 % 1_000_000_000
}

fn run<S: Subject>(subject: &S, oracle: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(random_seed);
    let cases = arguments.cases.unwrap_or(200_000);
    let numbers = arguments.only.map_or(0..cases, |only| only..only + 1);
    let mut err = std::io::stderr().lock();
    let live = err.is_terminal();
    let mut shown = Instant::now();
    let report = check(subject, oracle, seed, numbers, &mut |done, differing, elapsed| {
        if live && shown.elapsed() > Duration::from_secs(1) {
            shown = Instant::now();
            let _ = write!(
                err,
                "\r{done} cases, {differing} differ, {:.0}/s ",
                rate(done, elapsed)
            );
            let _ = err.flush();
        }
    })?;
    if live {
        writeln!(err)?;
    }
    print(&report, seed, arguments.only.is_some())
}

fn print(report: &Report, seed: u64, verbose: bool) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for difference in &report.differences {
        writeln!(out, "--seed {seed} --only {}", difference.number)?;
        writeln!(out, "  case {}", difference.case)?;
        if verbose {
            writeln!(out, "  answer {}", difference.answer)?;
        }
        for detail in &difference.details {
            writeln!(out, "  {detail}")?;
        }
    }
    writeln!(
        out,
        "{} cases, {} differences, seed {seed}, {:.1} s ({:.0}/s)",
        report.cases,
        report.differing,
        report.elapsed.as_secs_f64(),
        rate(report.cases, report.elapsed)
    )?;
    Ok(if report.differing == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn rate(cases: u64, elapsed: Duration) -> f64 {
    cases as f64 / elapsed.as_secs_f64().max(1e-9)
}
