//! `veneer explain nodeclaim`: what EC2 could choose from for a node, and whether an overlay could have changed it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use veneer_api::NodePool;
use veneer_engine::explain::nodeclaim::{self, Explanation};
use veneer_engine::explain::{nodepool, recorded};
use veneer_engine::labels;

use super::Format;
use super::scene::{Report, Scene, SceneArgs, hint};
use crate::output::{self, Align, Columns, counted, paragraph};

/// Shows what EC2 could choose from for a node, and whether an overlay could have changed the outcome
///
/// A NodeClaim is explained with the request that today's prices and overlays give. --create-fleet reads the request
/// that EC2 really got: the event of CloudTrail, or the request itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer explain nodeclaim default-x2x7q
  veneer explain nodeclaim --create-fleet event.json -f manifests/

Exit codes: 0 fine, 2 bad usage or input.")]
pub(super) struct NodeclaimArgs {
    /// The NodeClaim
    #[arg(required_unless_present = "create_fleet")]
    name: Option<String>,

    /// Reads a recorded CreateFleet request (JSON) instead of the NodeClaim's own
    #[arg(long, value_name = "FILE")]
    create_fleet: Option<PathBuf>,

    #[command(flatten)]
    scene: SceneArgs,
}

pub(super) fn run(args: &NodeclaimArgs) -> Result<ExitCode> {
    let scene = Scene::load(&args.scene)?;
    let started = Instant::now();
    let explanation = explain(args, &scene)?;
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
    let notes: Vec<String> = report.timing.iter().map(ToString::to_string).collect();
    scene.finish(args.scene.output == Format::Table, &notes)
}

fn explain(args: &NodeclaimArgs, scene: &Scene) -> Result<Explanation> {
    let pools = &scene.objects.node_pools;
    let pool = |name: Option<&str>| -> Option<&NodePool> { pools.get(nodepool::position(pools, name?)?) };
    let claims = &scene.objects.node_claims;
    let claim = match &args.name {
        None => None,
        Some(name) => {
            let mut found = claims.iter();
            let found = found.find(|claim| claim.metadata.name.as_deref() == Some(name));
            if found.is_none() && args.create_fleet.is_none() {
                let names = claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
                let source = args.scene.manifests.described();
                bail!("there is no NodeClaim {name} in {source}{}", hint(name, names));
            }
            found
        }
    };
    let of_claim = claim.and_then(|claim| claim.metadata.labels.as_ref()?.get(labels::NODE_POOL));
    let Some(file) = &args.create_fleet else {
        let claim = claim.context("no NodeClaim is given")?;
        let pool = pool(of_claim.map(String::as_str));
        return Ok(nodeclaim::claim(
            &scene.planner(&args.scene.policies),
            claim,
            pool,
        ));
    };
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let request = recorded::read(&text).map_err(|error| anyhow!("{shown} {error}"))?;
    let named = of_claim.or(request.node_pool.as_ref());
    let pool = match pool(named.map(String::as_str)) {
        // Where nothing names the pool, the only one there is must be it.
        None if named.is_none() && pools.len() == 1 => pools.first(),
        found => found,
    };
    let mut explanation = nodeclaim::recorded(&scene.planner(&args.scene.policies), &request, pool);
    explanation.node_claim.clone_from(&args.name);
    Ok(explanation)
}

fn write(out: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    paragraph(out, &explanation.verdict)?;
    for missing in &explanation.missing {
        let text = format!(
            "{} is missing since the stage {}: {}.",
            missing.architecture, missing.stage, missing.reason
        );
        paragraph(out, &text)?;
    }
    if !explanation.architectures.is_empty() {
        writeln!(out)?;
        let mut columns = Columns::new()
            .fixed("ARCHITECTURE")
            .column("TEMPLATES", Align::Right)
            .column("TYPES", Align::Right)
            .column("OVERRIDES", Align::Right)
            .fixed("LOWEST PRIORITY")
            .column("PRIORITY", Align::Right);
        for one in &explanation.architectures {
            columns.row(vec![
                one.architecture.clone(),
                one.launch_templates.to_string(),
                one.instance_types.to_string(),
                one.overrides.to_string(),
                one.first.clone(),
                one.lowest_priority
                    .map_or("-".to_owned(), |price| format!("{price:.4}")),
            ]);
        }
        columns.write(out)?;
        writeln!(out)?;
        paragraph(out, &meaning(explanation))?;
    }
    paragraph(out, &ending(explanation))
}

/// What the number of architectures means.
fn meaning(explanation: &Explanation) -> String {
    let templates = counted(explanation.launch_templates, "launch template");
    match explanation.architectures.as_slice() {
        [one] => format!(
            "The request has {templates}, for {} alone: an overlay can reorder these types, and nothing else.",
            one.architecture
        ),
        _ => format!(
            "The request has {templates}, for more than one architecture: an overlay can decide between them."
        ),
    }
}

fn ending(explanation: &Explanation) -> String {
    let mut text = String::new();
    let strategy = explanation.strategy.unwrap_or("unknown");
    let capacity_type = explanation.capacity_type.as_deref().unwrap_or("unknown");
    text.push_str(&format!("Capacity type {capacity_type}, strategy {strategy}."));
    if let Some(expected) = &explanation.expected {
        let label = if expected.assumption { "Assumption: " } else { "" };
        let zone = expected
            .zone
            .as_ref()
            .map_or(String::new(), |zone| format!(" in {zone}"));
        let price = expected
            .price
            .map_or(String::new(), |price| format!(" at ${price:.4}/h"));
        text.push_str(&format!(
            " {label}{}{zone}{price} ({}).",
            expected.instance_type, expected.because
        ));
    }
    if let Some(launched) = &explanation.launched {
        text.push_str(&format!(" Launched: {launched}."));
    }
    text
}
