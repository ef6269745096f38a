//! `veneer reconcile`: a bill of AWS against the rules, hour by hour and line by line.

pub(crate) mod reports;
mod table;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::output;
use reports::ReportArgs;

/// Replays the usage of an AWS bill by the rules and says where the two differ, and why
///
/// Reads Cost and Usage Reports 2.0 (and the older ones) or FOCUS 1.x as CSV, also gzip, replays every clock hour with the
/// Reserved Instances and Savings Plans that the report has, and compares who pays for what: coverage, effective cost and
/// waste. A difference is an order that AWS does not document, a mistake with a name, or unexplained. Reports may be larger
/// than memory; lines wait for their hour in a temporary folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer reconcile --cur report-00001.csv.gz report-00002.csv.gz
  veneer reconcile --cur exports/BILLING_PERIOD=2026-10/ -o json
  veneer reconcile --cur october.csv --sharing off
  veneer reconcile --cur october.csv --sharing prioritized --group shop=111122223333,444455556666

Exit codes: 0 the bill is as the rules say, 1 mistakes or unexplained differences, 2 bad usage or input.")]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    reports: ReportArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn run(args: &ReconcileArgs) -> Result<ExitCode> {
    let report = args.reports.reconcile()?;
    let mut out = output::stdout();
    match args.output {
        Format::Table => table::write(&mut out, &report)?,
        Format::Json => output::json(&mut out, &report)?,
    }
    out.flush()?;
    Ok(match report.is_right() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
