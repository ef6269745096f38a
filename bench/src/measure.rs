//! Measuring: the median of repeated runs, and the peak memory of a process.

use std::time::Instant;

use anyhow::{Context, Result};

/// The median time in milliseconds of running `work`, repeated until it has taken a while, after one run to warm up.
pub fn median_ms<T>(mut work: impl FnMut() -> T) -> f64 {
    std::hint::black_box(work());
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (started.elapsed().as_millis() < 2_000 && times.len() < 1_000) {
        let run = Instant::now();
        std::hint::black_box(work());
        times.push(run.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The number in the middle; none of no numbers.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let upper = numbers.get(numbers.len() / 2)?;
    let lower = numbers.get((numbers.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// The most memory this process has had, in MiB.
pub fn peak_rss_mib() -> Result<f64> {
    peak_of("self")
}

/// The most memory that a process has had, in MiB.
pub fn memory_of(process: u32) -> Result<f64> {
    peak_of(&process.to_string())
}

fn peak_of(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let kib = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse::<f64>()
                .ok()
        })
        .with_context(|| format!("no VmHWM in {path}"))?;
    Ok(kib / 1024.0)
}

/// The processor time that this process has used, in ms; the system counts in hundredths of a second.
pub fn cpu_ms() -> Result<f64> {
    Ok(ticks_of("self")? * 10.0)
}

/// The processor time that a process has used, in seconds.
pub fn cpu_seconds_of(process: u32) -> Result<f64> {
    Ok(ticks_of(&process.to_string())? / 100.0)
}

fn ticks_of(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name in parentheses may contain anything; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat
        .rsplit_once(')')
        .with_context(|| format!("no name in {path}"))?;
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum())
}
