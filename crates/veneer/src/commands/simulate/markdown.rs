//! The report as a comment on a pull request.

use std::io::{self, Write};

use super::change::Change;
use super::report::{Report, Why};
use super::table::{costs, difference, summary};

/// How many pods a list names.
const NAMED: usize = 10;

pub(super) fn write(out: &mut impl Write, report: &Report<'_>) -> io::Result<()> {
    match &report.change {
        Some(change) => write_change(out, change)?,
        None => writeln!(out, "**{}**", summary(report))?,
    }
    if !report.unschedulable.is_empty() {
        writeln!(out, "\n| unschedulable pod | why |\n|---|---|")?;
        for pod in report.unschedulable.iter().take(NAMED) {
            let reasons: Vec<String> = pod.reasons.iter().map(Why::sentence).collect();
            writeln!(
                out,
                "| `{}` | {} |",
                pod.pod,
                reasons.join("<br>").replace('|', "\\|")
            )?;
        }
        more(out, report.unschedulable.len())?;
    }
    Ok(())
}

fn write_change(out: &mut impl Write, change: &Change) -> io::Result<()> {
    writeln!(out, "**{}**\n", change.verdict)?;
    writeln!(out, "| | before | after |\n|---|---:|---:|")?;
    let (before, after) = (&change.before, &change.after);
    writeln!(out, "| nodes | {} | {} |", before.nodes, after.nodes)?;
    for (name, before, after) in costs(change) {
        writeln!(out, "| {name} | {before} | {after} |")?;
    }
    writeln!(
        out,
        "| unschedulable pods | {} | {} |",
        before.unschedulable, after.unschedulable
    )?;
    for kind in &change.instance_types {
        let name = format!("`{}` {}", kind.instance_type, kind.capacity_type);
        writeln!(out, "| {name} | {} | {} |", kind.before, kind.after)?;
    }
    writeln!(out, "\n{}", difference(change))?;
    for (title, pods) in [
        ("No place any more", &change.pods_lost),
        ("A place at last", &change.pods_gained),
        ("Run now and would move", &change.pods_evicted),
        ("Wait now and would go elsewhere", &change.pods_moved),
    ] {
        if !pods.is_empty() {
            let names: Vec<String> = pods.iter().take(NAMED).map(|pod| format!("`{pod}`")).collect();
            write!(out, "\n{title} ({}): {}", pods.len(), names.join(", "))?;
            more(out, pods.len())?;
        }
    }
    Ok(())
}

fn more(out: &mut impl Write, count: usize) -> io::Result<()> {
    match count.saturating_sub(NAMED) {
        0 => writeln!(out),
        rest => writeln!(out, " and {rest} more"),
    }
}
