//! The tables that every format shows, and the report for a terminal.

use std::io::{self, Write};

use super::{Savings, Spend};
use crate::output::{Align, Columns, paragraph};

/// How "saved" is counted, for formats that people read without this program at hand.
pub(super) const RULE: &str = "Saved is the list price of what commitments covered minus what they cost, unused parts included. A month has 730 hours.";
pub(super) const NOT_RIGHT: &str =
    "The bill is not as the rules say: `veneer reconcile` with the same reports tells where.";

pub(super) fn write(out: &mut impl Write, savings: &Savings) -> io::Result<()> {
    for sentence in summary(savings) {
        paragraph(out, &sentence)?;
    }
    for (_, table) in tables(savings) {
        writeln!(out)?;
        table.write(out)?;
    }
    if !savings.bill_is_right {
        writeln!(out)?;
        paragraph(out, NOT_RIGHT)?;
    }
    Ok(())
}

/// From when to when.
pub(super) fn period(savings: &Savings) -> String {
    let time = |time: &Option<String>| time.clone().unwrap_or_else(|| "?".to_owned());
    format!("{} to {}", time(&savings.from), time(&savings.to))
}

/// The report in two sentences.
pub(super) fn summary(savings: &Savings) -> [String; 2] {
    [
        format!(
            "{}: commitments cost ${:.2} and paid for ${:.2} at list prices; saved ${:.2} (about ${:.2} a month).",
            period(savings),
            savings.commitments,
            savings.list - savings.on_demand,
            savings.saved,
            savings.saved_per_month,
        ),
        format!(
            "Unused: ${:.2} ({:.2}% of what commitments cost). Still on demand: ${:.2}.",
            savings.unused, savings.unused_percent, savings.on_demand
        ),
    ]
}

/// The tables with their headings; days are for charts and spreadsheets.
pub(super) fn tables(savings: &Savings) -> Vec<(&'static str, Columns)> {
    let mut tables = Vec::new();
    if !savings.by_commitment.is_empty() {
        tables.push(("Commitments", commitments(savings)));
    }
    if !savings.uncovered.is_empty() {
        tables.push(("Still on demand", uncovered(savings)));
    }
    if savings.by_account.len() > 1 {
        tables.push(("Accounts", spend("ACCOUNT", &savings.by_account)));
    }
    tables
}

fn commitments(savings: &Savings) -> Columns {
    let mut columns = Columns::new()
        .column("COMMITMENT", Align::Left)
        .column("WHAT", Align::Left)
        .column("COST", Align::Right)
        .column("USED", Align::Right)
        .column("UNUSED", Align::Right)
        .column("USED %", Align::Right)
        .column("ENDS", Align::Left);
    for one in &savings.by_commitment {
        let end = one.end.as_deref().and_then(|end| end.get(..10)).unwrap_or("?");
        columns.row(vec![
            one.id.clone(),
            one.what.clone(),
            format!("{:.2}", one.cost),
            format!("{:.2}", one.used),
            format!("{:.2}", one.unused),
            format!("{:.1}", one.used_percent),
            match one.ends_soon {
                true => format!("{end}, soon"),
                false => end.to_owned(),
            },
        ]);
    }
    columns
}

fn uncovered(savings: &Savings) -> Columns {
    let mut columns = Columns::new()
        .fixed("ON DEMAND")
        .column("COST", Align::Right)
        .column("PER HOUR", Align::Right)
        .column("COVERAGE", Align::Right);
    for one in &savings.uncovered {
        columns.row(vec![
            one.family.clone(),
            format!("{:.2}", one.on_demand),
            format!("{:.4}", one.per_hour),
            format!("{:.1}%", one.coverage_percent),
        ]);
    }
    columns
}

pub(super) fn spend(title: &'static str, all: &[Spend]) -> Columns {
    let mut columns = Columns::new()
        .fixed(title)
        .column("ON DEMAND", Align::Right)
        .column("COVERED", Align::Right)
        .column("SPOT", Align::Right)
        .column("EFFECTIVE", Align::Right)
        .column("COVERAGE", Align::Right);
    for one in all {
        columns.row(vec![
            one.name.clone(),
            format!("{:.2}", one.on_demand),
            format!("{:.2}", one.covered),
            format!("{:.2}", one.spot),
            format!("{:.2}", one.effective),
            format!("{:.1}%", one.coverage_percent),
        ]);
    }
    columns
}
