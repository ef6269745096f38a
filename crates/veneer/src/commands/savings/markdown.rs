//! The report for a page or a chat.

use std::io::{self, Write};

use super::Savings;
use super::table::{NOT_RIGHT, RULE, spend, summary, tables};
use crate::output::Columns;

pub(super) fn write(out: &mut impl Write, savings: &Savings) -> io::Result<()> {
    writeln!(out, "# What commitments saved\n")?;
    for sentence in summary(savings) {
        writeln!(out, "{sentence}")?;
    }
    for (heading, table) in tables(savings) {
        section(out, heading, &table)?;
    }
    if !savings.by_day.is_empty() {
        section(out, "Days", &spend("DAY", &savings.by_day))?;
    }
    writeln!(out, "\n{RULE}")?;
    if !savings.bill_is_right {
        writeln!(out, "\n**{NOT_RIGHT}**")?;
    }
    Ok(())
}

fn section(out: &mut impl Write, heading: &str, table: &Columns) -> io::Result<()> {
    writeln!(out, "\n## {heading}\n")?;
    let (mut titles, mut rule) = (String::from("|"), String::from("|"));
    for (title, is_number) in table.titles() {
        titles.push_str(&format!(" {title} |"));
        rule.push_str(if is_number { "---:|" } else { "---|" });
    }
    writeln!(out, "{titles}\n{rule}")?;
    for row in table.rows() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}
