//! The report as one page for a meeting: charts are drawn in the file, nothing is loaded from elsewhere.

use std::io::{self, Write};

use super::table::{NOT_RIGHT, RULE, period, spend, tables};
use super::{Commitment, Savings, Spend};
use crate::output::Columns;

const STYLE: &str = include_str!("page.css");

/// The chart of days, in its own units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
/// The widest column of a chart with few days.
const WIDEST: f64 = 90.0;

pub(super) fn write(out: &mut impl Write, savings: &Savings) -> io::Result<()> {
    let period = escape(&period(savings));
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>What commitments saved, {period}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>What commitments saved</h1>\n<p class=\"period\">{period}</p>"
    )?;
    if !savings.bill_is_right {
        let (before, command, after) = match NOT_RIGHT.split('`').collect::<Vec<_>>().as_slice() {
            [before, command, after] => (*before, *command, *after),
            _ => (NOT_RIGHT, "", ""),
        };
        writeln!(
            out,
            "<p class=\"warning\">{before}<code>{command}</code>{after}</p>"
        )?;
    }
    numbers(out, savings)?;
    if !savings.by_commitment.is_empty() {
        writeln!(out, "<h2>How much of each commitment was used</h2>")?;
        for one in &savings.by_commitment {
            used(out, one)?;
        }
    }
    if savings.by_day.len() > 1 {
        writeln!(out, "<h2>What each day cost</h2>")?;
        days(out, &savings.by_day)?;
    }
    for (heading, columns) in tables(savings) {
        writeln!(out, "<h2>{heading}</h2>")?;
        table(out, &columns)?;
    }
    if !savings.by_day.is_empty() {
        writeln!(out, "<details>\n<summary>Days</summary>")?;
        table(out, &spend("DAY", &savings.by_day))?;
        writeln!(out, "</details>")?;
    }
    writeln!(out, "<p class=\"note\">{RULE}</p>\n</main>\n</body>\n</html>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn numbers(out: &mut impl Write, savings: &Savings) -> io::Result<()> {
    writeln!(out, "<dl class=\"numbers\">")?;
    for (name, number, more) in [
        (
            "Saved",
            format!("${:.2}", savings.saved),
            format!("about ${:.2} a month", savings.saved_per_month),
        ),
        (
            "Unused",
            format!("${:.2}", savings.unused),
            format!("{:.2}% of what commitments cost", savings.unused_percent),
        ),
        (
            "Still on demand",
            format!("${:.2}", savings.on_demand),
            format!("of ${:.2} at list prices", savings.list),
        ),
        (
            "Covered",
            format!("{:.1}%", savings.coverage_percent),
            "of usage at list prices, spot aside".to_owned(),
        ),
    ] {
        writeln!(
            out,
            "<div><dt>{name}</dt><dd>{number}<small>{more}</small></dd></div>"
        )?;
    }
    writeln!(out, "</dl>")
}

/// A bar for one commitment.
fn used(out: &mut impl Write, one: &Commitment) -> io::Result<()> {
    let ends = match (&one.end, one.ends_soon) {
        (Some(end), true) => format!(", ends {}", end.get(..10).unwrap_or(end)),
        _ => String::new(),
    };
    writeln!(
        out,
        "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\"><span class=\"fill\" style=\"width:{:.1}%\"></span></span>\
         <span class=\"value\">{:.1}%, ${:.2} unused{ends}</span></div>",
        escape(&one.what),
        one.used_percent.clamp(0.0, 100.0),
        one.used_percent,
        one.unused,
    )
}

/// Stacked columns: commitments below, on demand on top of them, spot above.
fn days(out: &mut impl Write, days: &[Spend]) -> io::Result<()> {
    let highest = days.iter().map(|day| day.effective).fold(0.0, f64::max);
    if highest <= 0.0 {
        return Ok(());
    }
    writeln!(
        out,
        "<p class=\"legend\"><span class=\"covered\">commitments, used</span> <span class=\"on-demand\">on demand</span> \
         <span class=\"spot\">spot</span> <span class=\"most\">highest: ${highest:.2}</span></p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"What each day cost\">"
    )?;
    #[allow(clippy::cast_precision_loss, reason = "days of a report are few")]
    let step = WIDTH / days.len() as f64;
    let width = (step * 0.8).min(WIDEST);
    let mut left = (step - width) / 2.0;
    for day in days {
        writeln!(
            out,
            "<g><title>{}: ${:.2} (commitments ${:.2}, on demand ${:.2}, spot ${:.2})</title>",
            escape(&day.name),
            day.effective,
            day.covered,
            day.on_demand,
            day.spot
        )?;
        let mut bottom = HEIGHT;
        for (class, amount) in [
            ("covered", day.covered),
            ("on-demand", day.on_demand),
            ("spot", day.spot),
        ] {
            let height = amount.max(0.0) / highest * HEIGHT;
            bottom -= height;
            writeln!(
                out,
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{bottom:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
            )?;
        }
        writeln!(out, "</g>")?;
        left += step;
    }
    let ends = [days.first(), days.last()].map(|day| day.map_or(String::new(), |day| escape(&day.name)));
    writeln!(
        out,
        "</svg>\n<p class=\"axis\"><span>{}</span><span>{}</span></p>",
        ends[0], ends[1]
    )
}

fn table(out: &mut impl Write, columns: &Columns) -> io::Result<()> {
    let is_number: Vec<bool> = columns.titles().map(|(_, is_number)| is_number).collect();
    let class = |at: usize| match is_number.get(at) {
        Some(true) => " class=\"number\"",
        _ => "",
    };
    writeln!(out, "<div class=\"wide\"><table>\n<thead><tr>")?;
    for (at, (title, _)) in columns.titles().enumerate() {
        writeln!(out, "<th scope=\"col\"{}>{}</th>", class(at), escape(&title))?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in columns.rows() {
        let cells = row.iter().enumerate();
        let cells: Vec<String> = cells
            .map(|(at, cell)| format!("<td{}>{}</td>", class(at), escape(cell)))
            .collect();
        writeln!(out, "<tr>{}</tr>", cells.join(""))?;
    }
    writeln!(out, "</tbody></table></div>")
}
