//! `veneer explain overprovisioner`: how many spares an object wants and why, which it has, and what is done next.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_api::labels::kubernetes;
use veneer_api::overprovisioner::SpareState;
use veneer_api::{Overprovisioner, OverprovisionerStatus};
use veneer_engine::plan::{
    Action, Instance, InstanceState, Snapshot, is_to_be_stopped, label, name, provider_id,
};
use veneer_engine::provision::Market;
use veneer_engine::quantity::Quantity;
use veneer_steering::warm::frontier::{DISK, DISKS, MONTH};
use veneer_steering::warm::{Memory, Mode, Spare, Spares, Stage, keep, shape};

use super::Format;
use super::scene::hint;
use crate::commands::diagnose::{is_bad_input, tell};
use crate::input::snapshot::snapshot;
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Align, Columns, paragraph};

/// Shows how many spare nodes an Overprovisioner wants and why, which it has, and what would be done next
///
/// Decides as `veneer run` does, on the cluster or the files as they are now: which sizing or override is in force, the
/// number for each NodePool, the type of new spares and what they cost, and the conditions that the status would have.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer explain overprovisioner office
  veneer explain overprovisioner office -f snapshot.yaml --at 2026-01-05T09:00:00Z -o json

Exit codes: 0 fine, 2 bad usage or input.")]
pub(super) struct OverprovisionerArgs {
    /// The Overprovisioner
    name: String,

    #[command(flatten)]
    manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// Decides as beside a Karpenter, which launches the instances
    #[arg(long)]
    companion: bool,

    /// The time that schedules are held against, such as 2026-01-31T12:00:00Z; now if absent
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    overprovisioner: String,
    state: String,
    strategy: String,
    sizing: String,
    node_pools: Vec<Pool>,
    spares: Vec<Kept>,
    /// What would be done now.
    next: Vec<String>,
    status: OverprovisionerStatus,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pool {
    name: String,
    /// Nodes that are not spares, which percentages are of.
    base: usize,
    in_use: usize,
    desired: i32,
    ready: i32,
    /// The type of new spares, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What the wanted spares cost per month while nobody uses them, in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    monthly: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    node_claim: String,
    node_pool: String,
    instance_type: String,
    stage: &'static str,
}

pub(super) fn run(args: &OverprovisionerArgs) -> Result<ExitCode> {
    let (_, objects) = args.manifests.load_cluster()?;
    let loaded = args.catalogue.load(&objects)?;
    let findings = objects.findings.clone();
    let mut snapshot = snapshot(objects);
    let found = snapshot
        .overprovisioners
        .iter_mut()
        .find(|one| name(&one.metadata) == args.name);
    let Some(found) = found else {
        let names = snapshot.overprovisioners.iter().map(|one| name(&one.metadata));
        bail!(
            "there is no Overprovisioner {} in {}{}",
            args.name,
            args.manifests.described(),
            hint(&args.name, names)
        );
    };
    // A status that is as it should be would not be written.
    Arc::make_mut(found).status = None;
    let one = Arc::clone(found);
    snapshot.instances = instances(&snapshot);
    let mut market = Market::new(Arc::new(loaded.catalogue));
    market.update(&snapshot);
    let mode = if args.companion {
        Mode::Companion
    } else {
        Mode::Standalone
    };
    let now = args.at.unwrap_or_else(Timestamp::now);
    let explained = explain(&one, &snapshot, &mut market, mode, now);
    let mut out = output::stdout();
    match args.output {
        Format::Table => write(&mut out, &explained)?,
        Format::Json => output::json(&mut out, &explained)?,
        Format::Yaml => output::yaml(&mut out, &explained)?,
    }
    out.flush()?;
    let mut err = io::stderr().lock();
    tell(&mut err, findings.iter())?;
    if args.output == Format::Table {
        for note in &loaded.notes {
            writeln!(err, "note: {note}")?;
        }
    }
    Ok(if findings.iter().any(is_bad_input) {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

/// The provider is not asked: what claims say about their instances is taken for true.
fn instances(snapshot: &Snapshot) -> Vec<Instance> {
    let claims = snapshot.node_claims.iter();
    claims
        .filter_map(|claim| {
            Some(Instance {
                provider_id: provider_id(claim)?.to_owned(),
                claim: name(&claim.metadata).to_owned(),
                launched: claim.metadata.creation_timestamp.as_ref()?.0,
                state: if is_to_be_stopped(claim) {
                    InstanceState::Stopped
                } else {
                    InstanceState::Running
                },
            })
        })
        .collect()
}

fn explain(
    one: &Overprovisioner,
    snapshot: &Snapshot,
    market: &mut Market,
    mode: Mode,
    now: Timestamp,
) -> Explained {
    let owner = name(&one.metadata);
    let before = Spares::of(snapshot);
    let mut spares = before.clone();
    let plan = keep(snapshot, &mut spares, market, &mut Memory::default(), mode, now);
    let mut status = OverprovisionerStatus::default();
    let mut next = Vec::new();
    for action in plan.actions {
        match action {
            Action::OverprovisionerStatus { target, status: new } if target.name == owner => status = *new,
            Action::Announce(said) if said.subject.target.name == owner && !said.is_warning => {
                next.push(said.message);
            }
            _ => {}
        }
    }
    let pools = status.node_pools.clone();
    let node_pools = pools.into_iter().map(|counted| {
        let pool = snapshot
            .node_pools
            .iter()
            .find(|pool| name(&pool.metadata) == counted.name);
        let shape = pool.map(|pool| shape::typical(snapshot, Some(one), pool, &one.spec.state, market, now));
        let (instance_type, problem, monthly) = match shape {
            None => (None, None, None),
            Some(Err(problem)) => (None, Some(problem), None),
            Some(Ok(shape)) => {
                let memory = shape.capacity.get("memory").and_then(|text| gibibytes(&text.0));
                let each = match one.spec.state {
                    SpareState::Stopped => DISK * DISKS,
                    SpareState::Hibernated => DISK * (DISKS + memory.unwrap_or_default()),
                    _ => shape.price * MONTH,
                };
                let monthly = each * f64::from(counted.desired);
                (Some(shape.instance_type), None, Some(monthly))
            }
        };
        Pool {
            base: before.base_of(&counted.name),
            in_use: before.used_of(owner, &counted.name).len(),
            desired: counted.desired,
            ready: counted.ready.max(counted.stopped),
            name: counted.name,
            instance_type,
            problem,
            monthly,
        }
    });
    let node_pools = node_pools.collect();
    let mine = before.empty.iter().filter(|((of, _), _)| *of == owner);
    let mine = mine.flat_map(|((_, pool), list)| list.iter().map(|spare| kept(spare, pool, "")));
    let used = before.used.iter().filter(|((of, _), _)| *of == owner);
    let used = used.flat_map(|((_, pool), list)| list.iter().map(|spare| kept(spare, pool, "in use")));
    Explained {
        overprovisioner: owner.to_owned(),
        state: one.spec.state.to_string(),
        strategy: one.spec.strategy.to_string(),
        sizing: sizing(one, &status),
        node_pools,
        spares: mine.chain(used).collect(),
        next,
        status,
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory of machines is far below that")]
fn gibibytes(text: &str) -> Option<f64> {
    let bytes = text.parse::<Quantity>().ok()?.value();
    Some(bytes as f64 / f64::from(1_u32 << 30))
}

fn kept(spare: &Spare<'_>, pool: &str, stage: &'static str) -> Kept {
    let stage = match (stage, spare.stage) {
        ("", Stage::Ready) => "ready",
        ("", Stage::Warming) => "on its way",
        ("", Stage::Hibernated) => "hibernated",
        ("", Stage::Stopped) => "stopped",
        ("", Stage::Stopping) => "being stopped",
        (stage, _) => stage,
    };
    Kept {
        node_claim: spare.name().to_owned(),
        node_pool: pool.to_owned(),
        instance_type: label(&spare.claim.metadata, kubernetes::INSTANCE_TYPE)
            .unwrap_or("-")
            .to_owned(),
        stage,
    }
}

/// Which sizing is in force, in words.
fn sizing(one: &Overprovisioner, status: &OverprovisionerStatus) -> String {
    let words = |sizing: &veneer_api::overprovisioner::Sizing| match (sizing.count, sizing.percentage) {
        (Some(count), None) => format!("{count} for each NodePool"),
        (None, Some(percentage)) => {
            format!("{percentage} % of each NodePool's nodes that are not spares, rounded up")
        }
        _ => "no valid sizing".to_owned(),
    };
    let active = status.active_override.as_ref();
    let overriding = active.and_then(|window| {
        let at = usize::try_from(window.index).ok()?;
        Some((window, one.spec.scheduled_overrides.get(at)?))
    });
    let mut text = match overriding {
        Some((window, by)) => format!(
            "{}, by the override \"{}\" until {}",
            words(&by.sizing),
            by.schedule,
            window.end.0
        ),
        None => words(&one.spec.sizing),
    };
    if let Some(next) = &status.next_override {
        text = format!(
            "{text}; the next override, \"{}\", starts at {}",
            next.schedule, next.start.0
        );
    }
    text
}

fn write(out: &mut impl Write, explained: &Explained) -> io::Result<()> {
    let text = format!(
        "Overprovisioner {} keeps {} spares with the strategy {}: {}.",
        explained.overprovisioner, explained.state, explained.strategy, explained.sizing
    );
    paragraph(out, &text)?;
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("NODEPOOL", Align::Left)
        .column("NODES", Align::Right)
        .column("IN USE", Align::Right)
        .column("WANTED", Align::Right)
        .column("READY", Align::Right)
        .column("TYPE OF NEW SPARES", Align::Left)
        .column("$/MONTH", Align::Right);
    for pool in &explained.node_pools {
        columns.row(vec![
            pool.name.clone(),
            pool.base.to_string(),
            pool.in_use.to_string(),
            pool.desired.to_string(),
            pool.ready.to_string(),
            pool.instance_type.clone().unwrap_or_else(|| "-".to_owned()),
            pool.monthly
                .map_or("-".to_owned(), |monthly| format!("{monthly:.2}")),
        ]);
    }
    columns.write(out)?;
    if !explained.spares.is_empty() {
        writeln!(out)?;
        let mut columns = Columns::new()
            .column("SPARE", Align::Left)
            .column("NODEPOOL", Align::Left)
            .column("TYPE", Align::Left)
            .column("STAGE", Align::Left);
        for spare in &explained.spares {
            columns.row(vec![
                spare.node_claim.clone(),
                spare.node_pool.clone(),
                spare.instance_type.clone(),
                spare.stage.to_owned(),
            ]);
        }
        columns.write(out)?;
    }
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("CONDITION", Align::Left)
        .column("STATUS", Align::Left)
        .column("REASON", Align::Left)
        .column("MESSAGE", Align::Left);
    for condition in &explained.status.conditions {
        columns.row(vec![
            condition.type_.clone(),
            condition.status.to_string(),
            condition.reason.clone(),
            condition.message.clone(),
        ]);
    }
    columns.write(out)?;
    let problems = explained
        .node_pools
        .iter()
        .filter_map(|pool| pool.problem.as_ref());
    for problem in problems {
        paragraph(out, &format!("No new spares: {problem}."))?;
    }
    if !explained.next.is_empty() {
        writeln!(out)?;
        paragraph(out, "What would be done now:")?;
        for one in &explained.next {
            paragraph(out, &format!("- {one}"))?;
        }
    }
    Ok(())
}
