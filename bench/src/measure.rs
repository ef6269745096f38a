//! Measuring: the median of repeated runs, and the peak memory of a process.

use std::time::Instant;

use anyhow::{Context, Result};

/// The median time in milliseconds of running `work`, repeated until it has taken a while, after one run to warm up.
pub(crate) fn median_ms<T>(mut work: impl FnMut() -> T) -> f64 {
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

/// The most memory this process has had, in MiB.
pub(crate) fn peak_rss_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
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
        .context("no VmHWM in /proc/self/status")?;
    Ok(kib / 1024.0)
}

/// The processor time that this process has used, in ms; the system counts in hundredths of a second.
pub(crate) fn cpu_ms() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name in parentheses may contain anything; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/self/stat")?;
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ok(ticks.iter().sum::<f64>() * 10.0)
}
