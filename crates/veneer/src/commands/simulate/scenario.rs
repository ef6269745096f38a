//! `veneer simulate --scenario`: a scenario played to its end, with the curves of cost and waiting, and beside it the same
//! with other manifests.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use veneer_engine::instance_type::Catalogue;
use veneer_reports::CurWriter;
use veneer_world::picture::Summary;
use veneer_world::{Scenario, Span, World, catalogue};

use super::Format;
use crate::commands::run::embedded;
use crate::output::{self, Align, Columns};

/// Options of a replay.
#[derive(Debug, Args)]
pub(super) struct ScenarioArgs {
    /// Plays a scenario (YAML) in the embedded world instead of scheduling once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "propose"])]
    pub(super) scenario: Option<PathBuf>,

    /// With --scenario: how long, such as 12h or 7d [default: what the scenario says]
    #[arg(long, value_name = "SPAN", requires = "scenario")]
    duration: Option<Span>,

    /// With --scenario: also plays it with the manifests of FILE applied at the start; may name several
    #[arg(long, value_name = "FILE", requires = "scenario", num_args = 1..)]
    compare: Vec<PathBuf>,

    /// With --scenario: another seed
    #[arg(long, value_name = "N", requires = "scenario")]
    seed: Option<u64>,

    /// With --scenario: the distance of the points of the curves
    #[arg(long, value_name = "SPAN", default_value = "1h", requires = "scenario")]
    step: Span,

    /// With --scenario: also writes its bill as a Cost and Usage Report (CSV), for veneer reconcile
    #[arg(long, value_name = "FILE", requires = "scenario")]
    cur: Option<PathBuf>,
}

/// One point of the curves.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Point {
    at: Timestamp,
    nodes: usize,
    pods: usize,
    pending: usize,
    /// Dollars per hour.
    list: f64,
    paid: f64,
    paid_without_steering: f64,
    /// Of pods placed so far, in seconds.
    waited_p99: i64,
}

/// One way to play it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Played {
    /// `as it is`, or the file that was applied.
    variant: String,
    summary: Summary,
    points: Vec<Point>,
}

pub(super) fn run(args: &ScenarioArgs, format: Format) -> Result<ExitCode> {
    let mut scenario = embedded::scenario(args.scenario.as_ref())?;
    if let Some(duration) = args.duration {
        scenario.duration = duration;
    }
    if !args.step.0.is_positive() || !scenario.duration.0.is_positive() {
        bail!("--duration and --step must be more than 0s");
    }
    let catalogue = catalogue(&scenario)?;
    let scenario = Arc::new(scenario);
    let seed = args.seed.unwrap_or(scenario.seed);
    // Everything is read and tried before the first scenario is played, which may take a minute.
    if matches!(format, Format::Markdown) {
        bail!("-o markdown does not show scenarios; use table, json or yaml");
    }
    if args.cur.is_some() && scenario.start.as_second() % 3600 != 0 {
        bail!(
            "--cur: bills are by the clock hour, but the scenario starts at {}; let it start with an hour",
            scenario.start
        );
    }
    let mut variants = vec![("as it is".to_owned(), Vec::new())];
    for path in &args.compare {
        let name = path.display().to_string();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {name} (--compare)"))?;
        let manifests = embedded::manifests(&text).map_err(|error| anyhow!("{name}: {error}"))?;
        let mut world = World::new(Arc::clone(&scenario), Arc::clone(&catalogue), seed)?;
        for manifest in &manifests {
            world.apply(manifest).with_context(|| name.clone())?;
        }
        variants.push((name, manifests));
    }
    let mut played = Vec::new();
    for (number, (name, manifests)) in variants.iter().enumerate() {
        // The report is that of the scenario as it is.
        let cur = args.cur.as_deref().filter(|_| number == 0);
        played.push(play(
            name,
            &scenario,
            &catalogue,
            seed,
            args.step.0,
            manifests,
            cur,
        )?);
    }
    let mut out = output::stdout();
    match format {
        Format::Json => output::json(&mut out, &played)?,
        Format::Yaml => output::yaml(&mut out, &played)?,
        Format::Table | Format::Wide => table(&mut out, &played)?,
        Format::Markdown => bail!("-o markdown does not show scenarios; use table, json or yaml"),
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn play(
    variant: &str,
    scenario: &Arc<Scenario>,
    catalogue: &Arc<Catalogue>,
    seed: u64,
    step: SignedDuration,
    manifests: &[serde_json::Value],
    cur: Option<&Path>,
) -> Result<Played> {
    let mut world = World::new(Arc::clone(scenario), Arc::clone(catalogue), seed)?;
    world.ledger = cur.map(|_| Vec::new());
    let mut twin = world.unsteered()?;
    for manifest in manifests {
        world.apply(manifest).with_context(|| variant.to_owned())?;
        twin.apply(manifest).with_context(|| variant.to_owned())?;
    }
    let end = scenario
        .start
        .checked_add(scenario.duration.0)
        .context("--duration")?;
    let mut times = Vec::new();
    let mut at = scenario.start;
    while at < end {
        at = at.checked_add(step).unwrap_or(end).min(end);
        times.push(at);
    }
    // Neither knows of the other, so they can be played at the same time.
    let (mut points, unsteered) = std::thread::scope(|scope| {
        let unsteered = scope.spawn(|| {
            let paid = |at: &Timestamp| {
                twin.advance(*at);
                twin.rates().bill.paid
            };
            times.iter().map(paid).collect::<Vec<f64>>()
        });
        let points: Vec<Point> = times.iter().map(|at| point(&mut world, *at)).collect();
        let unsteered = unsteered.join().unwrap_or_else(|panic| resume_unwind(panic));
        (points, unsteered)
    });
    for (point, paid) in points.iter_mut().zip(unsteered) {
        point.paid_without_steering = paid;
    }
    if let Some(path) = cur {
        write_report(path, &world)?;
    }
    Ok(Played {
        variant: variant.to_owned(),
        summary: world.summary(Some(&twin)),
        points,
    })
}

/// Writes the bill of a world.
fn write_report(path: &Path, world: &World) -> Result<()> {
    output::replace_file(path, |out| {
        let mut writer = CurWriter::new(out)?;
        for line in world.report() {
            writer.write(&line)?;
        }
        Ok(writer.finish()?)
    })
}

/// Plays a world up to a moment, and what it looks like then.
fn point(world: &mut World, at: Timestamp) -> Point {
    world.advance(at);
    let picture = world.picture();
    Point {
        at,
        nodes: picture.pools.iter().map(|pool| pool.nodes).sum(),
        pods: picture.pods,
        pending: picture.pending,
        list: picture.rate.list,
        paid: picture.rate.paid,
        paid_without_steering: 0.0,
        waited_p99: world.statistics.latency().p99,
    }
}

fn table(out: &mut impl Write, played: &[Played]) -> Result<()> {
    for one in played {
        if played.len() > 1 {
            writeln!(out, "{}:", one.variant)?;
        }
        let mut columns = Columns::new()
            .fixed("TIME")
            .column("NODES", Align::Right)
            .column("PODS", Align::Right)
            .column("PENDING", Align::Right)
            .column("LIST $/H", Align::Right)
            .column("PAID $/H", Align::Right)
            .column("UNSTEERED $/H", Align::Right)
            .column("WAITED P99 S", Align::Right);
        for point in &one.points {
            columns.row(vec![
                point.at.to_string(),
                point.nodes.to_string(),
                point.pods.to_string(),
                point.pending.to_string(),
                format!("{:.2}", point.list),
                format!("{:.2}", point.paid),
                format!("{:.2}", point.paid_without_steering),
                point.waited_p99.to_string(),
            ]);
        }
        columns.write(out)?;
        writeln!(out, "\n{}", embedded::summary(&one.summary))?;
    }
    let Some((first, others)) = played.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Ok(());
    };
    let mut columns = Columns::new()
        .fixed("VARIANT")
        .column("PEAK NODES", Align::Right)
        .column("WAITED P95 S", Align::Right)
        .column("$ LIST", Align::Right)
        .column("$ PAID", Align::Right)
        .column("DIFFERENCE", Align::Right);
    for one in std::iter::once(first).chain(others) {
        let sum = &one.summary;
        columns.row(vec![
            one.variant.clone(),
            sum.peak_nodes.to_string(),
            sum.latency.p95.to_string(),
            format!("{:.2}", sum.cost.list),
            format!("{:.2}", sum.cost.paid),
            format!("{:+.2}", sum.cost.paid - first.summary.cost.paid),
        ]);
    }
    columns.write(out)?;
    Ok(())
}
