//! The captures in the guide are what the commands print.
//!
//! A fenced block `console` that begins with `$ veneer …` is run, and must show standard output followed by standard
//! error. `UPDATE_CAPTURES=1 cargo test -p veneer --test guide` writes them anew.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use support::{root, veneer, veneer_at};

const PAGES: [&str; 12] = [
    "overlays",
    "diagnose",
    "lint",
    "convert",
    "catalog",
    "simulate",
    "explain-pod",
    "what-if",
    "explain-nodepool",
    "consolidation",
    "overprovisioner",
    "ec2",
];
const FENCE: &str = "```";

/// What the command of a capture prints; `$ COLUMNS=80 veneer …` sets the width.
fn printed(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (columns, words) = match words.split_first() {
        Some((first, rest)) if first.starts_with("COLUMNS=") => (first.strip_prefix("COLUMNS="), rest),
        _ => (None, words.as_slice()),
    };
    let arguments = words
        .strip_prefix(&["veneer"])
        .unwrap_or_else(|| panic!("{command}"));
    let said = match columns {
        Some(columns) => veneer_at(columns.parse().unwrap(), arguments),
        None => veneer(arguments),
    };
    format!("{}{}", said.out, said.err)
}

/// The page with every capture made anew.
fn renewed(page: &str) -> (String, usize) {
    let (mut renewed, mut captures, mut inside) = (String::new(), 0, false);
    for line in page.lines() {
        if inside && line.starts_with(FENCE) {
            inside = false;
        }
        if !inside {
            renewed.push_str(line);
            renewed.push('\n');
        }
        if let Some(command) = line
            .strip_prefix("$ ")
            .filter(|_| renewed.ends_with("```console\n"))
        {
            renewed.push_str(&format!("{line}\n{}", printed(command)));
            captures += 1;
        }
        inside |= line == "```console";
    }
    (renewed, captures)
}

#[test]
fn captures_in_the_guide_are_what_the_commands_print() {
    let mut captures = 0;
    for page in PAGES {
        let path = root().join(format!("docs/src/{page}.md"));
        let written = std::fs::read_to_string(&path).unwrap();
        let (renewed, count) = renewed(&written);
        captures += count;
        if std::env::var_os("UPDATE_CAPTURES").is_some() {
            std::fs::write(&path, renewed).unwrap();
        } else {
            assert!(
                written == renewed,
                "docs/src/{page}.md is out of date; UPDATE_CAPTURES=1 renews it:\n{renewed}"
            );
        }
    }
    assert!(captures >= 6, "{captures}");
}
