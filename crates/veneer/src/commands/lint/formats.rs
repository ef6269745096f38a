//! Findings for people, for programs and for a GitHub workflow.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;
use veneer_engine::overlay::advice::Level;

use crate::finding::{Finding, Rule};
use crate::output::{self, Align, Columns};

pub(super) fn text(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    for finding in findings {
        let (place, level, rule) = (finding.place(), finding.level(), finding.rule.id());
        writeln!(out, "{place}: {level}: {} [{rule}]", finding.sentence())?;
        if !finding.fix.is_empty() {
            writeln!(out, "    fix: {}", finding.fix)?;
        }
    }
    Ok(())
}

/// `2 errors, 1 warning`.
pub(super) fn summary(findings: &[Finding]) -> String {
    let parts: Vec<String> = [Level::Error, Level::Warning, Level::Info]
        .into_iter()
        .filter_map(
            |level| match findings.iter().filter(|finding| finding.level() == level).count() {
                0 => None,
                1 => Some(format!("1 {level}")),
                // There is no plural of info.
                count if level == Level::Info => Some(format!("{count} {level}")),
                count => Some(format!("{count} {level}s")),
            },
        )
        .collect();
    if parts.is_empty() {
        "no findings".to_owned()
    } else {
        parts.join(", ")
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    findings: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    file: &'a str,
    line: usize,
    level: String,
    rule: &'static str,
    object: &'a str,
    field: &'a str,
    message: &'a str,
    fix: &'a str,
}

pub(super) fn json(out: &mut impl Write, findings: &[Finding]) -> Result<()> {
    let entries = findings.iter().map(|finding| Entry {
        file: &finding.file,
        line: finding.line,
        level: finding.level().to_string(),
        rule: finding.rule.id(),
        object: &finding.object,
        field: &finding.field,
        message: &finding.message,
        fix: &finding.fix,
    });
    let findings = Findings {
        findings: entries.collect(),
    };
    output::json(out, &findings)
}

/// Workflow commands, which GitHub shows at the line in the pull request.
pub(super) fn github(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    for finding in findings {
        let command = match finding.level() {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "notice",
        };
        let fix = if finding.fix.is_empty() {
            String::new()
        } else {
            format!("\nfix: {}", finding.fix)
        };
        writeln!(
            out,
            "::{command} file={},line={},title={}::{}",
            property(&finding.file),
            finding.line.max(1),
            property(finding.rule.id()),
            data(&format!("{}{fix}", finding.sentence())),
        )?;
    }
    Ok(())
}

pub(super) fn rules(out: &mut impl Write) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("RULE", Align::Left)
        .column("LEVEL", Align::Left)
        .column("WHAT", Align::Left);
    for rule in Rule::all() {
        columns.row(vec![
            rule.id().to_owned(),
            rule.level().to_string(),
            rule.summary().to_owned(),
        ]);
    }
    columns.write(out)
}
