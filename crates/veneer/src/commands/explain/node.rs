//! `veneer explain node`: why a node stays, or what it goes for.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use veneer_engine::disruption::{self, Blocker, Fate, Memory, Outcome, Policy};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::Snapshot;
use veneer_engine::provision::Market;

use super::Format;
use super::scene::hint;
use crate::commands::diagnose::{is_bad_input, tell};
use crate::input::snapshot::snapshot;
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::money;
use crate::output::{self, Align, Columns, Timing, counted, paragraph};

/// Shows why a node is not removed or replaced, and what would free it
///
/// Decides about the whole cluster as `veneer run --mode standalone` does, on prices after overlays, and names everything
/// that keeps a node: pods, PodDisruptionBudgets, budgets, timers, room on other nodes, the price of the cheapest
/// replacement. All of them have to go before the node does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer explain node ip-10-0-1-23
  veneer explain node --all
  veneer explain node --all -f snapshot.yaml -o json

Exit codes: 0 fine, 2 bad usage or input.")]
pub(super) struct NodeArgs {
    /// The node
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,

    /// Every node, one line each
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// Whether spot nodes may be replaced by spot nodes
    #[arg(long)]
    spot_to_spot: bool,

    /// The percentage of its price that replacing a node has to save at least
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=99))]
    least_saving: u8,

    /// The time that timers and schedules are held against, such as 2026-01-31T12:00:00Z; now if absent
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,

    /// Adds how long it took and how much memory
    #[arg(long)]
    timing: bool,
}

/// A node as JSON and YAML have it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained<'a> {
    node: &'a str,
    node_pool: &'a str,
    instance_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hourly: Option<f64>,
    pods: usize,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Planned<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blockers: Vec<Kept>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    reason: &'static str,
    nodes: &'a [String],
    replacements: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    saves_hourly: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    reason: &'static str,
    message: String,
    frees: String,
}

#[derive(Serialize)]
struct Report<'a> {
    nodes: Vec<Explained<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timing: Option<Timing>,
}

pub(super) fn run(args: &NodeArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let (_, objects) = args.manifests.load_cluster()?;
    let loaded = args.catalogue.load(&objects)?;
    let catalogue = Arc::new(loaded.catalogue);
    let load_ms = output::milliseconds(started);
    let findings = objects.findings.clone();
    let snapshot = snapshot(objects);
    let overlays = Instant::now();
    let (fates, overlay_ms, solved) = decide(args, &snapshot, catalogue, overlays);
    let chosen: Vec<&Fate> = match &args.name {
        None => fates.iter().collect(),
        Some(wanted) => fates.iter().filter(|fate| fate.node == *wanted).collect(),
    };
    if let (Some(wanted), []) = (&args.name, chosen.as_slice()) {
        let names = fates.iter().map(|fate| fate.node.as_str());
        bail!(
            "there is no Node {wanted} in {}{}",
            args.manifests.described(),
            hint(wanted, names)
        );
    }
    let timing = args
        .timing
        .then(|| Timing::new(load_ms, overlay_ms).with_solve(solved));
    let report = Report {
        nodes: chosen.iter().map(|fate| explained(fate)).collect(),
        timing,
    };
    let mut out = output::stdout();
    match args.output {
        Format::Table if args.all => write_all(&mut out, &chosen)?,
        Format::Table => chosen.iter().try_for_each(|fate| write_one(&mut out, fate))?,
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
    }
    out.flush()?;
    let mut err = io::stderr().lock();
    tell(&mut err, findings.iter())?;
    if args.output == Format::Table {
        let timing = report.timing.map(|timing| timing.to_string());
        for note in loaded.notes.iter().chain(&timing) {
            writeln!(err, "note: {note}")?;
        }
    }
    Ok(if findings.iter().any(is_bad_input) {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

fn decide(
    args: &NodeArgs,
    snapshot: &Snapshot,
    catalogue: Arc<Catalogue>,
    overlays: Instant,
) -> (Arc<Vec<Fate>>, f64, f64) {
    let mut market = Market::new(catalogue);
    market.update(snapshot);
    let overlay_ms = output::milliseconds(overlays);
    let policy = Policy {
        validation: SignedDuration::ZERO,
        least_saving: f64::from(args.least_saving) / 100.0,
        spot_to_spot: args.spot_to_spot,
        explains: true,
        ..Policy::default()
    };
    let solving = Instant::now();
    let now = args.at.unwrap_or_else(Timestamp::now);
    let decision = disruption::decide(snapshot, &mut market, &policy, &mut Memory::default(), now);
    (decision.fates, overlay_ms, output::milliseconds(solving))
}

fn explained(fate: &Fate) -> Explained<'_> {
    let (outcome, command, blockers) = match &fate.outcome {
        Outcome::Leaving => ("leaving", None, Vec::new()),
        Outcome::Goes(command) => (
            "goes",
            Some(Planned {
                reason: command.reason,
                nodes: &command.nodes,
                replacements: command.replacements,
                instance_type: command.replacement.as_ref().map(|(it, _)| it.as_str()),
                saves_hourly: command.saving,
            }),
            Vec::new(),
        ),
        Outcome::Stays(blockers) => ("stays", None, blockers.iter().map(kept).collect()),
    };
    Explained {
        node: &fate.node,
        node_pool: &fate.pool,
        instance_type: &fate.instance_type,
        hourly: fate.price,
        pods: fate.pods,
        outcome,
        command,
        blockers,
    }
}

fn kept(blocker: &Blocker) -> Kept {
    Kept {
        reason: blocker.word(),
        message: blocker.to_string(),
        frees: blocker.remedy(),
    }
}

fn price(fate: &Fate) -> String {
    fate.price.map_or("-".to_owned(), money::price)
}

fn goes(command: &disruption::Command) -> String {
    let how = match (&command.replacement, command.replacements) {
        (Some((it, price)), _) => format!("replaced by {it} at ${}/h", money::price(*price)),
        (None, 0) if command.reason == "empty" => "it is empty".to_owned(),
        (None, 0) => "its pods fit on other nodes".to_owned(),
        (None, new) => format!("replaced by {}", counted(new, "new node")),
    };
    let saves = format!(
        "saves ${}/h ({})",
        money::price(command.saving),
        money::monthly(command.saving)
    );
    match command.nodes.len() {
        1 => format!("{how}, {saves}"),
        nodes => format!("{how}, with {nodes} nodes, {saves}"),
    }
}

fn write_all(out: &mut impl Write, fates: &[&Fate]) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("NODE", Align::Left)
        .column("NODEPOOL", Align::Left)
        .column("TYPE", Align::Left)
        .column("$/H", Align::Right)
        .column("PODS", Align::Right)
        .column("OUTCOME", Align::Left)
        .column("WHY", Align::Left);
    for fate in fates {
        let (outcome, why) = match &fate.outcome {
            Outcome::Leaving => ("leaving", "it is being drained or about to be".to_owned()),
            Outcome::Goes(command) => ("goes", format!("{}: {}", command.reason, goes(command))),
            Outcome::Stays(blockers) => {
                let first = blockers.first().map(ToString::to_string).unwrap_or_default();
                let more = match blockers.len() {
                    0 | 1 => String::new(),
                    several => format!(" (and {} more)", several - 1),
                };
                ("stays", format!("{first}{more}"))
            }
        };
        columns.row(vec![
            fate.node.clone(),
            fate.pool.clone(),
            fate.instance_type.clone(),
            price(fate),
            fate.pods.to_string(),
            outcome.to_owned(),
            why,
        ]);
    }
    columns.write(out)
}

fn write_one(out: &mut impl Write, fate: &Fate) -> io::Result<()> {
    let text = format!(
        "Node {} ({}, NodePool {}, ${}/h, {})",
        fate.node,
        fate.instance_type,
        fate.pool,
        price(fate),
        counted(fate.pods, "pod")
    );
    match &fate.outcome {
        Outcome::Leaving => paragraph(out, &format!("{text} is leaving already.")),
        Outcome::Goes(command) => paragraph(
            out,
            &format!("{text} goes ({}): {}.", command.reason, goes(command)),
        ),
        Outcome::Stays(blockers) => {
            paragraph(
                out,
                &format!("{text} stays. All of this has to change before it goes:"),
            )?;
            writeln!(out)?;
            let mut columns = Columns::new()
                .column("REASON", Align::Left)
                .column("WHAT KEEPS IT", Align::Left)
                .column("WHAT FREES IT", Align::Left);
            for blocker in blockers {
                columns.row(vec![
                    blocker.word().to_owned(),
                    blocker.to_string(),
                    blocker.remedy(),
                ]);
            }
            columns.write(out)
        }
    }
}
