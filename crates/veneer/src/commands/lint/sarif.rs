//! Findings as SARIF 2.1.0, which code scanning services read.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use veneer_engine::overlay::advice::Level;

use crate::finding::{Finding, Rule};
use crate::output;

pub(super) fn write(out: &mut impl Write, findings: &[Finding]) -> Result<()> {
    let rules: Vec<Rule> = Rule::all().collect();
    let described: Vec<Value> = rules
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id(),
                "shortDescription": { "text": rule.summary() },
                "defaultConfiguration": { "level": level(rule.level()) },
            })
        })
        .collect();
    let results: Vec<Value> = findings.iter().map(|finding| result(finding, &rules)).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "veneer",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": described,
            } },
            "results": results,
        }],
    });
    output::json(out, &log)
}

fn result(finding: &Finding, rules: &[Rule]) -> Value {
    let fix = if finding.fix.is_empty() {
        String::new()
    } else {
        format!(
            "
Fix: {}",
            finding.fix
        )
    };
    json!({
        "ruleId": finding.rule.id(),
        "ruleIndex": rules.iter().position(|rule| *rule == finding.rule),
        "level": level(finding.level()),
        "message": { "text": format!("{}{fix}", finding.sentence()) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&finding.file) },
            "region": { "startLine": finding.line.max(1) },
        } }],
    })
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "note",
    }
}

/// The path as a URI reference: what is special there is written in percent.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~!$&'()*+,;=@:".contains(&byte);
    path.trim_start_matches("./")
        .bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
