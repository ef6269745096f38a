//! `veneer savings`: what commitments save and waste, and what is still on demand, from a bill of AWS.

mod csv;
mod html;
mod markdown;
mod table;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use veneer_reports::{CommitmentTotals, Report, UsageTotals, seconds_of_time};

use super::reconcile::reports::ReportArgs;
use crate::output;

/// Shows what each commitment saves and wastes, which end soon, and what is still on demand
///
/// Reads the same reports as `veneer reconcile`, which says whether the bill is right; here are the numbers of the bill. What
/// was saved is the list price of covered usage minus what commitments cost, unused parts included.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer savings --cur october.csv.gz
  veneer savings --cur exports/ --ending-within 60 -o json
  veneer savings --cur october.csv --fail-on-waste 10%
  veneer savings --cur october.csv -o html > october.html

Exit codes: 0 fine, 1 more waste than --fail-on-waste allows, 2 bad usage or input.")]
pub(crate) struct SavingsArgs {
    #[command(flatten)]
    reports: ReportArgs,

    /// Commitments that end within so many days after the report are marked
    #[arg(long, value_name = "DAYS", default_value = "30")]
    ending_within: u32,

    /// Ends with exit code 1 if more than so many percent of what commitments cost is unused
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    fail_on_waste: Option<f64>,

    /// Output format: csv is for spreadsheets, html is one file with charts that needs no network
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    Markdown,
    Html,
}

/// `10` and `10%` alike.
fn percentage(text: &str) -> Result<f64> {
    let number: f64 = text
        .strip_suffix('%')
        .unwrap_or(text)
        .trim()
        .parse()
        .map_err(|_| anyhow!("expected a percentage such as 10 or 10%"))?;
    ensure!(
        (0.0..=100.0).contains(&number),
        "expected a percentage from 0 to 100"
    );
    Ok(number)
}

/// What became of a commitment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Commitment {
    id: String,
    what: String,
    account: String,
    cost: f64,
    used: f64,
    unused: f64,
    used_percent: f64,
    end: Option<String>,
    ends_soon: bool,
}

/// What a family still costs on demand.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Uncovered {
    family: String,
    on_demand: f64,
    per_hour: f64,
    coverage_percent: f64,
}

/// What an account or a day costs, unused commitments aside.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spend {
    name: String,
    on_demand: f64,
    /// Its share of what commitments cost.
    covered: f64,
    spot: f64,
    effective: f64,
    coverage_percent: f64,
}

impl Spend {
    fn of(totals: &UsageTotals) -> Self {
        Self {
            name: totals.name.clone(),
            on_demand: totals.on_demand.billed,
            covered: totals.covered.billed,
            spot: totals.spot,
            effective: totals.effective.billed,
            coverage_percent: totals.coverage_percent.billed,
        }
    }
}

/// What a bill says of commitments.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Savings {
    from: Option<String>,
    to: Option<String>,
    hours: u64,
    currency: String,
    /// Usage at list prices, spot aside.
    list: f64,
    on_demand: f64,
    /// The share of usage at list prices that commitments cover, in percent.
    coverage_percent: f64,
    spot: f64,
    /// What commitments cost, used or not.
    commitments: f64,
    /// On demand, spot and commitments.
    paid: f64,
    unused: f64,
    unused_percent: f64,
    /// The list price of covered usage minus what commitments cost.
    saved: f64,
    saved_per_hour: f64,
    /// At 730 hours.
    saved_per_month: f64,
    by_commitment: Vec<Commitment>,
    uncovered: Vec<Uncovered>,
    by_account: Vec<Spend>,
    by_day: Vec<Spend>,
    /// Whether the bill is as the rules say; `veneer reconcile` tells more.
    bill_is_right: bool,
}

pub(crate) fn run(args: &SavingsArgs) -> Result<ExitCode> {
    let report = args.reports.reconcile()?;
    let savings = savings(&report, args.ending_within);
    let mut out = output::stdout();
    match args.output {
        Format::Table => table::write(&mut out, &savings)?,
        Format::Json => output::json(&mut out, &savings)?,
        Format::Csv => csv::write(&mut out, &savings)?,
        Format::Markdown => markdown::write(&mut out, &savings)?,
        Format::Html => html::write(&mut out, &savings)?,
    }
    out.flush()?;
    let is_wasteful = args
        .fail_on_waste
        .is_some_and(|limit| savings.unused_percent > limit);
    Ok(ExitCode::from(u8::from(is_wasteful)))
}

fn percent(part: f64, of: f64) -> f64 {
    match of > 0.0 {
        true => cents(100.0 * part / of),
        false => 0.0,
    }
}

fn cents(amount: f64) -> f64 {
    (amount * 100.0).round() / 100.0
}

fn savings(report: &Report, ending_within: u32) -> Savings {
    let to = report.to.as_deref().and_then(seconds_of_time);
    let ends_soon = |one: &CommitmentTotals| {
        let end = one.end.as_deref().and_then(seconds_of_time);
        end.zip(to)
            .is_some_and(|(end, to)| end <= to.saturating_add(i64::from(ending_within) * 86_400))
    };
    let by_commitment: Vec<Commitment> = report
        .commitments
        .iter()
        .map(|one| Commitment {
            id: one.id.clone(),
            what: one.what.clone(),
            account: one.account.clone(),
            cost: one.cost,
            used: one.used.billed,
            unused: one.unused.billed,
            used_percent: percent(one.used.billed, one.cost),
            end: one.end.clone(),
            ends_soon: ends_soon(one),
        })
        .collect();
    #[allow(clippy::cast_precision_loss, reason = "hours of a report are few")]
    let hours = report.hours.max(1) as f64;
    let mut uncovered: Vec<Uncovered> = report
        .families
        .iter()
        .filter(|one| one.on_demand.billed > 0.0)
        .map(|one| Uncovered {
            family: one.name.clone(),
            on_demand: one.on_demand.billed,
            per_hour: one.on_demand.billed / hours,
            coverage_percent: one.coverage_percent.billed,
        })
        .collect();
    uncovered.sort_by(|a, b| {
        b.on_demand
            .total_cmp(&a.on_demand)
            .then_with(|| a.family.cmp(&b.family))
    });
    let commitments: f64 = by_commitment.iter().map(|one| one.cost).sum();
    let saved = report.total.covered_list.billed - commitments;
    Savings {
        from: report.from.clone(),
        to: report.to.clone(),
        hours: report.hours,
        currency: report.currency.clone(),
        list: report.total.covered_list.billed + report.total.on_demand.billed,
        on_demand: report.total.on_demand.billed,
        coverage_percent: report.total.coverage_percent.billed,
        spot: report.total.spot,
        paid: report.total.on_demand.billed + report.total.spot + commitments,
        commitments,
        unused: report.unused.billed,
        unused_percent: percent(report.unused.billed, commitments),
        saved,
        saved_per_hour: saved / hours,
        saved_per_month: saved / hours * 730.0,
        by_commitment,
        uncovered,
        by_account: report.accounts.iter().map(Spend::of).collect(),
        by_day: report.days.iter().map(Spend::of).collect(),
        bill_is_right: report.is_right(),
    }
}
