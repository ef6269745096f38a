//! Instructions that three fixed workloads execute, counted by callgrind: the same on a busy machine and on an idle one.
//!
//! `bench/INSTRUCTIONS` holds the counts of the committed code. A change of more than 5 % either way is reported, so
//! that a slower program is noticed and a faster one is recorded.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{overlay, schedule};

/// A change that is worth a look, in percent.
const NOTABLE: f64 = 5.0;

/// What is counted. Reading the input is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// 100 overlays × 10 pools × 1,724 types, from scratch, and ten times with one overlay changed
    Overlays,
    /// 5,000 pods without constraints
    Generic,
    /// 5,000 pods, a fifth each of Karpenter's benchmark mix
    Diverse,
}

impl Workload {
    const ALL: [Self; 3] = [Self::Overlays, Self::Generic, Self::Diverse];

    fn name(self) -> &'static str {
        match self {
            Self::Overlays => "overlays",
            Self::Generic => "generic",
            Self::Diverse => "diverse",
        }
    }
}

/// Runs one workload once, for callgrind to watch.
pub(crate) fn run(workload: Workload) -> Result<()> {
    match workload {
        Workload::Overlays => {
            let mut work = overlay::workload(100)?;
            counted_workload(&mut work);
        }
        Workload::Generic => counted_workload(&mut schedule::workload(5_000, schedule::Mix::Generic)?),
        Workload::Diverse => counted_workload(&mut schedule::workload(5_000, schedule::Mix::Diverse)?),
    }
    Ok(())
}

/// Callgrind counts while this function runs; its name is given to it.
#[inline(never)]
fn counted_workload(work: &mut dyn FnMut()) {
    work();
}

/// Counts every workload, compares with the record, and replaces the record if asked to.
pub(crate) fn compare(record: bool) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("INSTRUCTIONS");
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| workload | instructions recorded | now | change |\n|---|---|---|---|"
    )?;
    let (mut notable, mut lines) = (Vec::new(), String::new());
    for workload in Workload::ALL {
        let now = count(workload)?;
        lines.push_str(&format!("{} {now}\n", workload.name()));
        let before = recorded
            .lines()
            .find_map(|line| line.strip_prefix(workload.name())?.trim().parse::<u64>().ok());
        let Some(before) = before else {
            writeln!(out, "| {} | none | {now} | |", workload.name())?;
            continue;
        };
        let change = 100.0 * (now as f64 / before as f64 - 1.0);
        writeln!(out, "| {} | {before} | {now} | {change:+.2} % |", workload.name())?;
        if change.abs() > NOTABLE {
            notable.push(workload.name());
        }
        out.flush()?;
    }
    if record {
        std::fs::write(&file, lines)?;
    } else if !notable.is_empty() {
        bail!(
            "the instructions of {} changed by more than {NOTABLE} %; look at `valgrind --tool=callgrind target/release/bench workload {}`, \
             and if the change is meant, record it with `bench/run instructions --record`",
            notable.join(" and "),
            notable[0]
        );
    }
    Ok(())
}

fn count(workload: Workload) -> Result<u64> {
    let data: PathBuf = std::env::temp_dir().join(format!("veneer-callgrind-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--collect-atstart=no",
            "--toggle-collect=*counted_workload*",
        ])
        .arg(format!("--callgrind-out-file={}", data.display()))
        .arg(std::env::current_exe()?)
        .args(["workload", workload.name()])
        .output()
        .context("starting valgrind; install it (Debian: apt-get install valgrind)")?;
    let _ = std::fs::remove_file(&data);
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {text}");
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse::<u64>().ok())
        .with_context(|| format!("valgrind collected nothing: {text}"))?;
    ensure!(
        collected > 1_000_000,
        "valgrind saw only {collected} instructions of {}",
        workload.name()
    );
    Ok(collected)
}
