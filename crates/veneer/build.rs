//! Which commit is built, and of which day the embedded prices are: `veneer --version` says both.
#![allow(clippy::print_stdout, reason = "cargo listens there")]

use std::path::Path;
use std::process::Command;

/// What git answers; none outside of a clone.
fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (answer.status.success() && !text.is_empty()).then_some(text)
}

/// The newest date among the sources of the catalog.
fn catalog_date() -> Option<String> {
    let sources = "../../catalog/data/SOURCES.md";
    println!("cargo:rerun-if-changed={sources}");
    let sources = std::fs::read_to_string(sources).ok()?;
    let dates = sources.split('|').map(str::trim).filter(|text| {
        let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        text.len() == 10 && text.starts_with("20") && [2, 3, 5, 6, 8, 9].into_iter().all(is_digit)
    });
    dates.max().map(ToOwned::to_owned)
}

fn main() {
    println!("cargo:rerun-if-env-changed=VENEER_COMMIT");
    // It grows with every commit; an image is built without a clone and says the commit itself.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists())
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let commit = std::env::var("VENEER_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=10", "HEAD"]));
    println!(
        "cargo:rustc-env=VENEER_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    println!(
        "cargo:rustc-env=VENEER_CATALOG_DATE={}",
        catalog_date().as_deref().unwrap_or("unknown")
    );
}
