//! `veneer simulate --buffer-frontier`: what mixes of running, stopped and cold capacity cost, and how long pods wait.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_api::NodePool;
use veneer_api::overprovisioner::SpareState;
use veneer_engine::plan::{Snapshot, is_daemon_pod, name, parse_duration};
use veneer_engine::provision::Market;
use veneer_engine::quantity::Quantity;
use veneer_steering::warm::frontier::measure::{self, Measured, Sample};
use veneer_steering::warm::frontier::pattern::{Pattern, generate};
use veneer_steering::warm::frontier::{self, Arrival, DISK, DISKS, Latencies, MONTH, Outcome, Setting};
use veneer_steering::warm::shape;

use super::{Format, SimulateArgs};
use crate::commands::diagnose::tell;
use crate::input::snapshot::snapshot;
use crate::input::workloads;
use crate::output::{self, Align, Columns, counted, paragraph};

/// Fewer pods than this are no history.
const LEAST_PODS: usize = 20;
/// Nor is less time than this, in seconds.
const LEAST_SPAN: f64 = 1800.0;
/// How long generated pods are looked at, in seconds.
const DAY: f64 = 86_400.0;
/// How wide the chart is.
const CHART: usize = 40;

/// Options of the frontier.
#[derive(Debug, Args)]
pub(super) struct FrontierArgs {
    /// Shows what mixes of running, stopped and cold nodes cost per month, and how long pods wait with each
    #[arg(long, conflicts_with_all = ["scenario", "propose"])]
    pub(super) buffer_frontier: bool,

    /// With --buffer-frontier: the NodePool [default: the only one]
    #[arg(long, value_name = "NODEPOOL", requires = "buffer_frontier")]
    pool: Option<String>,

    /// With --buffer-frontier: generated pods instead of the pods' history, as hourly=30,burst=20,every=1h,life=20m
    #[arg(long, value_name = "PATTERN", requires = "buffer_frontier", value_parser = pattern)]
    arrivals: Option<Pattern>,

    /// With --buffer-frontier: how long pods wait for a node, as running=1s,stopped=35s,cold=90s [default: what the
    /// cluster's objects say, else these]
    #[arg(long, value_name = "LATENCIES", requires = "buffer_frontier", value_parser = latency)]
    latency: Option<Given>,
}

/// Latencies as given.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    running: Option<f64>,
    stopped: Option<f64>,
    cold: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let duration = parse_duration(text).map(|duration| duration.as_secs_f64());
    duration
        .filter(|seconds| *seconds >= 0.0)
        .ok_or_else(|| format!("{text:?} is no duration; expected one such as 500ms, 35s or 1h"))
}

fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let parts = text.split(',').map(|part| {
        let pair = part.split_once('=');
        pair.ok_or_else(|| format!("{part:?} is no KEY=VALUE"))
    });
    parts.collect()
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let mut pattern = Pattern::default();
    for (key, value) in pairs(text)? {
        match key {
            "hourly" => {
                let number = value.parse::<f64>().ok();
                let number = number.filter(|number| (0.0..=100_000.0).contains(number));
                pattern.hourly =
                    number.ok_or_else(|| format!("hourly: expected 0 to 100000, found {value:?}"))?;
            }
            "burst" => {
                let number = value.parse().ok().filter(|number| *number <= 10_000);
                pattern.burst =
                    number.ok_or_else(|| format!("burst: expected 0 to 10000, found {value:?}"))?;
            }
            "every" => pattern.every = seconds(value)?,
            "life" => pattern.life = seconds(value)?,
            _ => return Err(format!("unknown {key:?}; expected hourly, burst, every or life")),
        }
    }
    Ok(pattern)
}

fn latency(text: &str) -> Result<Given, String> {
    let mut given = Given::default();
    for (key, value) in pairs(text)? {
        let field = match key {
            "running" => &mut given.running,
            "stopped" => &mut given.stopped,
            "cold" => &mut given.cold,
            _ => return Err(format!("unknown {key:?}; expected running, stopped or cold")),
        };
        *field = Some(seconds(value)?);
    }
    Ok(given)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    node_pool: String,
    instance_type: String,
    pods: usize,
    /// Where the pods come from: `history` or `generated`.
    arrivals: &'static str,
    hours: f64,
    pods_per_node: usize,
    latencies: Vec<Latency>,
    mixes: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Latency {
    of: &'static str,
    seconds: f64,
    /// `given`, `measured` or `assumed`.
    source: &'static str,
    /// How many pods it was measured on.
    pods: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    running: usize,
    stopped: usize,
    monthly: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    cold_launches: usize,
    /// Whether no other mix is at least as good in everything and better in something.
    best: bool,
}

pub(super) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    let (_, objects) = args.manifests.load_what_if(None)?;
    let loaded = args.catalogue.load(&objects)?;
    let findings = objects.findings.clone();
    // Pods that do not exist yet say how large pods are.
    let made = objects.cluster.as_deref().map(workloads::pods);
    let mut snapshot = snapshot(objects);
    let made = made.map(|(pods, _)| pods).unwrap_or_default();
    snapshot
        .pods
        .extend(made.into_iter().map(|pod| Arc::new(pod.into())));
    let now = Timestamp::now();
    let pool = chosen(
        &snapshot,
        args.frontier.pool.as_deref(),
        &args.manifests.described(),
    )?;
    let mut market = Market::new(Arc::new(loaded.catalogue));
    market.update(&snapshot);
    let pool_name = name(&pool.metadata);
    let shape = shape::typical(&snapshot, None, pool, &SpareState::Running, &mut market, now);
    let shape = shape.map_err(|error| anyhow!(error))?;
    let (pods_per_node, assumed_size) = pods_per_node(&snapshot, &shape.allocatable);
    let (arrivals, source) = arrivals(args, &snapshot, pool_name, now);
    let measured = measure::latencies(&snapshot, pool_name);
    let given = args.frontier.latency.unwrap_or_default();
    let latencies = latencies(given, &measured);
    let last = arrivals.last().map_or(0.0, |one| one.at);
    let after = pool.spec.disruption.consolidate_after.as_str();
    let seconds_of = |kind: &str| {
        let found = latencies.iter().find(|one| one.of == kind);
        found.map_or(0.0, |one| one.seconds)
    };
    let setting = Setting {
        latencies: Latencies {
            running: seconds_of("running"),
            stopped: seconds_of("stopped"),
            cold: seconds_of("cold"),
        },
        pods_per_node,
        hourly: shape.price,
        stopped_hourly: DISK * DISKS / MONTH,
        idle: parse_duration(after).map_or(f64::INFINITY, |after| after.as_secs_f64()),
        span: if source == "generated" {
            DAY
        } else {
            last.max(LEAST_SPAN)
        },
    };
    let outcomes = frontier::frontier(&arrivals, &setting);
    let report = Report {
        node_pool: pool_name.to_owned(),
        instance_type: shape.instance_type.clone(),
        pods: arrivals.len(),
        arrivals: source,
        hours: setting.span / 3600.0,
        pods_per_node,
        latencies,
        mixes: outcomes.iter().map(row).collect(),
    };
    let mut out = output::stdout();
    match args.output {
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
        _ => write(&mut out, &report, &setting)?,
    }
    out.flush()?;
    let mut err = io::stderr().lock();
    tell(&mut err, findings.iter())?;
    if !matches!(args.output, Format::Json | Format::Yaml) {
        if assumed_size {
            writeln!(
                err,
                "note: there are no pods to take sizes from; taking pods of 1 CPU"
            )?;
        }
        if source == "generated" && args.frontier.arrivals.is_none() {
            writeln!(
                err,
                "note: fewer than {LEAST_PODS} pods within half an hour are no history; taking generated ones (--arrivals)"
            )?;
        }
        for note in &loaded.notes {
            writeln!(err, "note: {note}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(outcome: &Outcome) -> Row {
    Row {
        running: outcome.mix.running,
        stopped: outcome.mix.stopped,
        monthly: outcome.monthly,
        p50: outcome.p50,
        p95: outcome.p95,
        p99: outcome.p99,
        cold_launches: outcome.cold,
        best: outcome.best,
    }
}

fn chosen<'a>(snapshot: &'a Snapshot, wanted: Option<&str>, source: &str) -> Result<&'a Arc<NodePool>> {
    let pools: Vec<&str> = snapshot
        .node_pools
        .iter()
        .map(|pool| name(&pool.metadata))
        .collect();
    let found = match (wanted, snapshot.node_pools.as_slice()) {
        (None, [only]) => return Ok(only),
        (None, []) => bail!("there is no NodePool in {source}; give one with -f"),
        (None, _) => bail!(
            "there are several NodePools in {source} ({}); choose one with --pool",
            pools.join(", ")
        ),
        (Some(wanted), list) => list.iter().find(|pool| name(&pool.metadata) == wanted),
    };
    let wanted = wanted.unwrap_or_default();
    found.ok_or_else(|| {
        anyhow!(
            "there is no NodePool {wanted} in {source}; there are: {}",
            pools.join(", ")
        )
    })
}

/// How many pods of the usual size a node takes, and whether that size is only assumed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of machines are far below that"
)]
fn pods_per_node(snapshot: &Snapshot, allocatable: &veneer_api::ResourceList) -> (usize, bool) {
    let amount = |text: &str| {
        text.parse::<Quantity>()
            .map_or(0.0, |one| one.milli_value() as f64)
    };
    let median = |resource: &str| {
        let pods = snapshot.pods.iter().filter(|pod| !is_daemon_pod(pod));
        let mut sizes: Vec<f64> = pods
            .map(|pod| {
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                let requests = containers.filter_map(|one| {
                    let requests = one.resources.as_ref()?.requests.as_ref()?;
                    requests.get(resource).map(|text| amount(&text.0))
                });
                requests.sum()
            })
            .collect();
        sizes.sort_by(f64::total_cmp);
        sizes.get(sizes.len() / 2).copied().filter(|size| *size > 0.0)
    };
    let has = |resource: &str| allocatable.get(resource).map_or(0.0, |text| amount(&text.0));
    let (cpu, memory) = (median("cpu"), median("memory"));
    let is_assumed = cpu.is_none() && memory.is_none();
    let by_cpu = cpu.or(is_assumed.then_some(1000.0)).map(|size| has("cpu") / size);
    let by_memory = memory.map(|size| has("memory") / size);
    let by_count = Some(has("pods") / 1000.0).filter(|count| *count > 0.0);
    let least = [by_cpu, by_memory, by_count]
        .into_iter()
        .flatten()
        .fold(f64::MAX, f64::min);
    ((least.min(10_000.0).floor() as usize).max(1), is_assumed)
}

fn arrivals(
    args: &SimulateArgs,
    snapshot: &Snapshot,
    pool: &str,
    now: Timestamp,
) -> (Vec<Arrival>, &'static str) {
    if args.frontier.arrivals.is_none() {
        let seen = measure::arrivals(snapshot, pool, now, 60.0);
        if seen.len() >= LEAST_PODS && seen.last().is_some_and(|one| one.at >= LEAST_SPAN) {
            return (seen, "history");
        }
    }
    let pattern = args.frontier.arrivals.unwrap_or_default();
    (generate(&pattern, DAY, 1), "generated")
}

fn latencies(given: Given, measured: &Measured) -> Vec<Latency> {
    let assumed = Latencies::default();
    let one = |of, given: Option<f64>, sample: Sample, assumed| match given {
        Some(seconds) => Latency {
            of,
            seconds,
            source: "given",
            pods: 0,
        },
        None if sample.pods > 0 => Latency {
            of,
            seconds: sample.median,
            source: "measured",
            pods: sample.pods,
        },
        None => Latency {
            of,
            seconds: assumed,
            source: "assumed",
            pods: 0,
        },
    };
    vec![
        one("running", given.running, measured.running, assumed.running),
        one("stopped", given.stopped, measured.stopped, assumed.stopped),
        one("cold", given.cold, measured.cold, assumed.cold),
    ]
}

fn write(out: &mut impl Write, report: &Report, setting: &Setting) -> io::Result<()> {
    let waits: Vec<String> = report.latencies.iter().map(described).collect();
    let text = format!(
        "NodePool {}: {} {} pods within {:.0} h on nodes of type {} ({} each, ${:.4}/h). A pod waits {}.",
        report.node_pool,
        report.pods,
        if report.arrivals == "history" {
            "seen"
        } else {
            "generated"
        },
        report.hours,
        report.instance_type,
        counted(report.pods_per_node, "pod"),
        setting.hourly,
        waits.join(", ")
    );
    paragraph(out, &text)?;
    writeln!(out)?;
    let best: Vec<&Row> = report.mixes.iter().filter(|row| row.best).collect();
    let mut columns = Columns::new()
        .column("RUNNING", Align::Right)
        .column("STOPPED", Align::Right)
        .column("$/MONTH", Align::Right)
        .column("P50", Align::Right)
        .column("P95", Align::Right)
        .column("P99", Align::Right)
        .column("COLD LAUNCHES", Align::Right);
    for row in &best {
        columns.row(vec![
            row.running.to_string(),
            row.stopped.to_string(),
            format!("{:.2}", row.monthly),
            waited(row.p50),
            waited(row.p95),
            waited(row.p99),
            row.cold_launches.to_string(),
        ]);
    }
    columns.write(out)?;
    writeln!(out)?;
    chart(out, &best)?;
    writeln!(out)?;
    let left_out = report.mixes.len() - best.len();
    let cheapest = |limit: f64| best.iter().find(|row| row.p99 <= limit);
    for (limit, what) in [
        (
            setting.latencies.stopped + setting.latencies.running,
            "a stopped spare takes to start and open",
        ),
        (setting.latencies.running, "a running spare takes to open"),
    ] {
        if let Some(row) = cheapest(limit) {
            let text = format!(
                "99 of 100 pods wait no longer than {what} ({}) from ${:.2} per month: {} running, {} stopped.",
                waited(limit),
                row.monthly,
                row.running,
                row.stopped
            );
            paragraph(out, &text)?;
        }
    }
    let text = format!(
        "{left_out} of {} mixes are left out, since another one is no dearer and no slower; -o json has them. $/MONTH is for \
         all nodes of the pool; a stopped one costs its disks (20 GiB).",
        report.mixes.len()
    );
    paragraph(out, &text)
}

fn described(one: &Latency) -> String {
    let source = match one.source {
        "measured" => format!("measured on {} pods", one.pods),
        other => other.to_owned(),
    };
    let of = match one.of {
        "running" => "for a running spare",
        "stopped" => "for a stopped one",
        _ => "for a launch",
    };
    format!("{} {of} ({source})", waited(one.seconds))
}

fn waited(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

/// How long 99 of 100 pods wait at most, against what the mix costs.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the width of a chart"
)]
fn chart(out: &mut impl Write, rows: &[&Row]) -> io::Result<()> {
    let longest = rows.iter().map(|row| row.p99).fold(0.0, f64::max);
    for row in rows {
        let share = if longest > 0.0 { row.p99 / longest } else { 0.0 };
        let bar = "#".repeat((share * CHART as f64).round() as usize);
        writeln!(
            out,
            "{:>10}  {:<width$}  p99 {}",
            format!("${:.0}", row.monthly),
            bar,
            waited(row.p99),
            width = CHART
        )?;
    }
    Ok(())
}
