//! A reconciliation for people.

use std::io::{self, Write};

use veneer_reports::{Example, Pair, Report, UsageTotals};

use crate::output::{Align, Columns, counted, paragraph};

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let hours = usize::try_from(report.hours).unwrap_or(usize::MAX);
    paragraph(
        out,
        &format!(
            "{} of reports, {} to {}: {} replayed.",
            counted(usize::try_from(report.lines).unwrap_or(usize::MAX), "line"),
            report.from.as_deref().unwrap_or("?"),
            report.to.as_deref().unwrap_or("?"),
            counted(hours, "hour"),
        ),
    )?;
    let lines = report.line_hours;
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("LINE-HOURS", Align::Left)
        .column("COUNT", Align::Right);
    for (name, count) in [
        ("as the rules say, within $0.000001", lines.agreed),
        (
            "equals in another order, which AWS does not document (rule 15)",
            lines.order_among_equals,
        ),
        (
            "mistakes, and what follows from them in the same hour",
            lines.mistaken,
        ),
        ("unexplained", lines.unexplained),
    ] {
        columns.row(vec![name.to_owned(), count.to_string()]);
    }
    columns.write(out)?;
    writeln!(out)?;
    let mut columns = Columns::new()
        .fixed("TOTAL")
        .column("BILLED", Align::Right)
        .column("BY THE RULES", Align::Right)
        .column("DIFFERENCE", Align::Right);
    let total = &report.total;
    let spot = Pair {
        billed: total.spot,
        replayed: total.spot,
    };
    for (name, pair) in [
        ("on demand", total.on_demand),
        ("covered by commitments", total.covered),
        ("spot", spot),
        ("effective cost", total.effective),
        ("unused commitments", report.unused),
    ] {
        let mut row = vec![name.to_owned()];
        row.extend(dollars(pair));
        columns.row(row);
    }
    let coverage = total.coverage_percent;
    columns.row(vec![
        "coverage".to_owned(),
        format!("{:.2}%", coverage.billed),
        format!("{:.2}%", coverage.replayed),
        format!("{:+.2}%", coverage.billed - coverage.replayed),
    ]);
    columns.write(out)?;
    if report.other != 0.0 {
        writeln!(out)?;
        paragraph(
            out,
            &format!(
                "${:.2} more is for what no commitment covers: storage, traffic, taxes, credits.",
                report.other
            ),
        )?;
    }
    if !report.commitments.is_empty() {
        writeln!(out)?;
        let mut columns = Columns::new()
            .column("COMMITMENT", Align::Left)
            .column("WHAT", Align::Left)
            .column("COST", Align::Right)
            .column("USED", Align::Right)
            .column("BY THE RULES", Align::Right)
            .column("UNUSED", Align::Right)
            .column("BY THE RULES", Align::Right);
        for one in &report.commitments {
            columns.row(vec![
                one.id.clone(),
                one.what.clone(),
                format!("{:.4}", one.cost),
                format!("{:.4}", one.used.billed),
                format!("{:.4}", one.used.replayed),
                format!("{:.4}", one.unused.billed),
                format!("{:.4}", one.unused.replayed),
            ]);
        }
        columns.write(out)?;
    }
    usage(out, "ACCOUNT", &report.accounts)?;
    usage(out, "FAMILY", &report.families)?;
    for mistake in &report.mistakes {
        writeln!(out)?;
        let rules: Vec<String> = mistake.rules.iter().map(ToString::to_string).collect();
        paragraph(
            out,
            &format!(
                "MISTAKE {}: {} (rule {}): {}, ${:+.6} against the rules",
                mistake.kind,
                mistake.meaning,
                rules.join(", "),
                counted(usize::try_from(mistake.count).unwrap_or(usize::MAX), "time"),
                mistake.dollars,
            ),
        )?;
        examples(out, &mistake.examples)?;
    }
    if !report.unexplained.is_empty() {
        writeln!(out)?;
        paragraph(
            out,
            "UNEXPLAINED: no rule gives these lines, and no known mistake does",
        )?;
        examples(out, &report.unexplained)?;
    }
    writeln!(out)?;
    for note in &report.notes {
        paragraph(out, &format!("Note: {note}."))?;
    }
    paragraph(
        out,
        match (report.is_right(), report.hours) {
            (true, 0) => "No mistake was found in the lines; no hour was replayed.",
            (true, _) => "The bill is as the rules say.",
            (false, _) => "The bill is not as the rules say.",
        },
    )
}

fn dollars(pair: Pair) -> [String; 3] {
    let difference = pair.billed - pair.replayed;
    [
        format!("{:.6}", pair.billed),
        format!("{:.6}", pair.replayed),
        if difference.abs() < 5e-7 {
            "0".to_owned()
        } else {
            format!("{difference:+.6}")
        },
    ]
}

fn usage(out: &mut impl Write, title: &'static str, all: &[UsageTotals]) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut columns = Columns::new()
        .fixed(title)
        .column("ON DEMAND", Align::Right)
        .column("COVERED", Align::Right)
        .column("SPOT", Align::Right)
        .column("EFFECTIVE", Align::Right)
        .column("BY THE RULES", Align::Right)
        .column("COVERAGE", Align::Right);
    for one in all {
        columns.row(vec![
            one.name.clone(),
            format!("{:.4}", one.on_demand.billed),
            format!("{:.4}", one.covered.billed),
            format!("{:.4}", one.spot),
            format!("{:.4}", one.effective.billed),
            format!("{:.4}", one.effective.replayed),
            format!("{:.1}%", one.coverage_percent.billed),
        ]);
    }
    columns.write(out)
}

/// So many of a kind are shown; JSON has more.
const SHOWN: usize = 5;

fn examples(out: &mut impl Write, examples: &[Example]) -> io::Result<()> {
    for one in examples.iter().take(SHOWN) {
        let parts = [
            one.place.as_deref().unwrap_or_default(),
            &one.time,
            &one.account,
            &one.resource,
            &one.what,
            &one.commitment,
            &format!("billed ${:.6}, by the rules ${:.6}", one.billed, one.expected),
            &one.note,
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        paragraph(out, &format!("  {}", parts.join(", ")))?;
    }
    if examples.len() > SHOWN {
        writeln!(out, "  … more with -o json")?;
    }
    Ok(())
}
