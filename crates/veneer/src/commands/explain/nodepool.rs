//! `veneer explain nodepool`: claim sizes for which a choice drops out, where that happens, and what would help.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use veneer_engine::explain::gaps::Gap;
use veneer_engine::explain::nodepool::{self, Explanation};
use veneer_engine::explain::{FunnelStage, Outcome};
use veneer_engine::labels;

use super::Format;
use super::scene::{Report, Scene, SceneArgs, hint};
use crate::money::price;
use crate::output::{self, Align, Columns, counted, paragraph};

/// Shows for which sizes of nodes an architecture, capacity type or family drops out of a NodePool
///
/// Computes from the instance types and the NodePool's requirements where a choice is lost, packs the pending pods (or,
/// if none is pending, those on the pool's nodes) to see how often that happens, follows one node through the six stages
/// from pods to the EC2 fleet request, and simulates each remedy on these pods.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer explain nodepool default
  veneer explain nodepool default -f manifests/ -o json

Exit codes: 0 fine, 2 bad usage or input.")]
pub(super) struct NodepoolArgs {
    /// The NodePool
    name: String,

    #[command(flatten)]
    scene: SceneArgs,
}

pub(super) fn run(args: &NodepoolArgs) -> Result<ExitCode> {
    let scene = Scene::load(&args.scene)?;
    let started = Instant::now();
    let planner = scene.planner(&args.scene.policies);
    let at = nodepool::position(&scene.objects.node_pools, &args.name);
    let Some((at, pool)) = at.and_then(|at| Some((at, scene.objects.node_pools.get(at)?))) else {
        let pools = scene.objects.node_pools.iter();
        let names = pools.filter_map(|pool| pool.metadata.name.as_deref());
        bail!(
            "there is no NodePool {} in {}{}",
            args.name,
            args.scene.manifests.described(),
            hint(&args.name, names)
        );
    };
    let Some(explanation) = nodepool::explain(&planner, &scene.objects, at) else {
        bail!("NodePool {} cannot be explained", args.name);
    };
    let report = Report {
        explanation: &explanation,
        timing: args.scene.timing.then(|| scene.timing(started)),
    };
    let mut out = output::stdout();
    match args.scene.output {
        Format::Table => write(&mut out, &explanation)?,
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
    }
    out.flush()?;
    let mut notes = Vec::new();
    if planner.is_assumed(pool) {
        notes.push(
            "the node class is not given or has found nothing yet; taking a subnet in every zone and an image for every \
             architecture"
                .to_owned(),
        );
    }
    notes.extend(report.timing.map(|timing| timing.to_string()));
    scene.finish(args.scene.output == Format::Table, &notes)
}

fn write(out: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    write_gaps(out, explanation)?;
    if let Some(claim) = &explanation.claim {
        writeln!(out)?;
        let text = format!(
            "The node of {} and {} vCPU, from all instance types to the request that EC2 gets:",
            counted(claim.pods, "pod"),
            claim.cpu
        );
        paragraph(out, &text)?;
        writeln!(out)?;
        write_funnel(out, &explanation.funnel)?;
    }
    if !explanation.remedies.is_empty() {
        writeln!(out)?;
        write_remedies(out, explanation)?;
    }
    Ok(())
}

fn unit(gap: &Gap) -> &'static str {
    if gap.resource == "cpu" { "vCPU" } else { "GiB" }
}

fn affected(gap: &Gap, nodes: usize) -> String {
    match gap.affected_claims {
        0 => "With the pods of today no new node falls into it.".to_owned(),
        claims => format!(
            "{claims} of {} ({}) cannot have it, whatever a price overlay says.",
            counted(nodes, "new node"),
            counted(gap.affected_pods, "pod")
        ),
    }
}

fn write_gaps(out: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    let pool = &explanation.node_pool;
    let pods = if explanation.repacked {
        "No pod is pending, so the pods on its nodes are planned anew. "
    } else {
        ""
    };
    let is_family = |gap: &Gap| gap.label != labels::ARCH && gap.label != labels::CAPACITY_TYPE;
    let shown: Vec<&Gap> = explanation.gaps.iter().filter(|gap| !is_family(gap)).collect();
    let families = explanation.gaps.len() - shown.len();
    match explanation.chosen_gap.and_then(|at| explanation.gaps.get(at)) {
        Some(gap) => {
            let text = format!(
                "{pods}NodePool {pool} has a gap: nodes of {}–{} {} cannot be {}. Its largest {} type is {} ({} {}), its \
                 largest type is {} ({} {}). {}",
                gap.from,
                gap.to,
                unit(gap),
                gap.value,
                gap.value,
                gap.largest_with_value,
                gap.from - 1,
                unit(gap),
                gap.largest,
                gap.to,
                unit(gap),
                affected(gap, explanation.current.nodes),
            );
            paragraph(out, &text)?;
        }
        None => {
            let text = format!(
                "{pods}NodePool {pool} has no gap: every architecture and capacity type that it allows has a type of its \
                 largest size."
            );
            paragraph(out, &text)?;
        }
    }
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("LOST", Align::Left)
        .column("FROM", Align::Right)
        .column("TO", Align::Right)
        .fixed("UNIT")
        .column("LARGEST WITH IT", Align::Left)
        .column("LARGEST", Align::Left)
        .column("NODES", Align::Right)
        .column("PODS", Align::Right);
    for gap in shown {
        columns.row(vec![
            gap.value.clone(),
            gap.from.to_string(),
            gap.to.to_string(),
            unit(gap).to_owned(),
            gap.largest_with_value.clone(),
            gap.largest.clone(),
            gap.affected_claims.to_string(),
            gap.affected_pods.to_string(),
        ]);
    }
    columns.write(out)?;
    if families > 0 {
        let noun = if families == 1 { "family" } else { "families" };
        paragraph(
            out,
            &format!("and {families} {noun} with smaller types than the largest; -o json has them"),
        )?;
    }
    Ok(())
}

fn write_funnel(out: &mut impl Write, stages: &[FunnelStage]) -> io::Result<()> {
    let mut columns = Columns::new()
        .column("STAGE", Align::Left)
        .column("WHAT HAPPENS", Align::Left)
        .column("TYPES LEFT", Align::Left)
        .fixed("OVERLAY");
    for stage in stages {
        let mut what = stage.what.clone();
        let removed: Vec<String> = stage
            .removed_by
            .iter()
            .map(|removal| format!("{} ({})", removal.by, removal.instance_types))
            .collect();
        if !removed.is_empty() {
            what = format!("{what}; removed: {}", removed.join(", "));
        }
        let left: Vec<String> = stage
            .by_architecture
            .iter()
            .map(|(arch, count)| format!("{arch} {count}"))
            .collect();
        columns.row(vec![
            stage_name(stage.stage).to_owned(),
            what,
            format!("{} ({})", stage.after, left.join(", ")),
            if stage.overlay_can_influence { "yes" } else { "no" }.to_owned(),
        ]);
    }
    columns.write(out)
}

fn stage_name(stage: &str) -> &str {
    match stage {
        "podSorting" => "1 pod sorting",
        "poolRequirements" => "2 pool requirements",
        "binPacking" => "3 bin packing",
        "amiMapping" => "4 AMI mapping",
        "priceAdjustment" => "5 price adjustment",
        "fleet" => "6 CreateFleet",
        other => other,
    }
}

fn write_remedies(out: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    let value = explanation
        .chosen_gap
        .and_then(|at| explanation.gaps.get(at))
        .map_or("", |gap| gap.value.as_str());
    paragraph(
        out,
        "What would help, each simulated with the same pods (-o json has the patches):",
    )?;
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("CHANGE", Align::Left)
        .column("NODES", Align::Right)
        .column("$/H", Align::Right)
        .column("LIST $/H", Align::Right)
        .column("SHARE", Align::Right)
        .column("LARGEST NODE", Align::Left)
        .column("FALLBACK", Align::Left);
    columns.row(cells("none", &explanation.current, value));
    for remedy in &explanation.remedies {
        columns.row(cells(&remedy.summary, &remedy.outcome, value));
    }
    columns.write(out)?;
    writeln!(out)?;
    let text = format!(
        "SHARE is {value}'s part of the vCPU bought. FALLBACK is what EC2 may launch instead, types × architectures, on \
         the node with the least choice."
    );
    paragraph(out, &text)?;
    writeln!(out)?;
    let mut columns = Columns::new()
        .column("CHANGE", Align::Left)
        .column("TRADE-OFF", Align::Left);
    for remedy in &explanation.remedies {
        columns.row(vec![remedy.summary.clone(), remedy.trade_off.clone()]);
    }
    columns.write(out)
}

fn cells(summary: &str, outcome: &Outcome, value: &str) -> Vec<String> {
    let share = outcome.share.get(value).copied().unwrap_or(0.0);
    let largest = outcome.largest_node.as_ref().map_or("-".to_owned(), |node| {
        format!("{} {}", node.instance_type, counted(node.pods, "pod"))
    });
    let fallback = outcome.spot_fallback.as_ref().map_or("-".to_owned(), |fallback| {
        format!("{} × {}", fallback.instance_types, fallback.architectures)
    });
    vec![
        summary.to_owned(),
        outcome.nodes.to_string(),
        price(outcome.hourly),
        price(outcome.list_hourly),
        format!("{:.0} %", share * 100.0),
        largest,
        fallback,
    ]
}
