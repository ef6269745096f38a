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

/// The commit of a build that is meant to be used: `VENEER_COMMIT` says it where there is no clone, as in an image. A build for tests names none, or every
/// commit would compile everything anew.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=VENEER_COMMIT");
    let said = std::env::var("VENEER_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    if said.is_some() || std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return said;
    }
    // It grows with every commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists())
    {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn main() {
    let build = commit().map_or_else(|| "unnamed build".to_owned(), |commit| format!("commit {commit}"));
    println!("cargo:rustc-env=VENEER_BUILD={build}");
    println!(
        "cargo:rustc-env=VENEER_CATALOG_DATE={}",
        catalog_date().as_deref().unwrap_or("an unknown day")
    );
}
