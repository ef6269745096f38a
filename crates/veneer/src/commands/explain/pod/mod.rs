//! `veneer explain pod`: where a pod goes or why it does not, NodePool by NodePool, and the smallest change.

mod report;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use veneer_engine::explain;
use veneer_engine::overlay::nearest;
use veneer_engine::packing::{PodRecord, Problem};

use crate::commands::diagnose::{is_bad_input, tell};
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Timing};
use crate::scheduling::{PolicyArgs, StarvationArgs, StarvingReport};
use report::Subject;

/// Says where a pod goes or why it does not, which constraint removed which instance types, and what would have to
/// change
///
/// Reads what simulate reads and runs the scheduler once. For each NodePool it shows step by step how many instance
/// types are left for the pod, and what removed the others. For a pod that goes nowhere it looks for the smallest
/// change that schedules it, and proves it by running the scheduler with the change. Nothing is written to the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer explain pod shop/web-0 -f manifests/
  veneer explain pod shop/web-0 --why-not m7g.4xlarge
  veneer explain pod web-0 -f manifests/ --propose bigger-pool.yaml -o json

Exit codes: 0 it has a place, 1 it goes nowhere, 2 bad usage or input.")]
pub(crate) struct PodArgs {
    /// The pod as NAMESPACE/NAME; without a namespace, in default
    #[arg(value_name = "NAMESPACE/NAME")]
    name: String,

    #[command(flatten)]
    manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// Says why the pod does not get this instance type
    #[arg(long, value_name = "TYPE")]
    why_not: Option<String>,

    #[command(flatten)]
    policies: PolicyArgs,

    #[command(flatten)]
    starvation: StarvationArgs,

    /// Output format; wide also counts families
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,

    /// Adds how long it took and how much memory
    #[arg(long)]
    timing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

pub(crate) fn run(args: &PodArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let (_, objects) = args.manifests.load_cluster()?;
    let source = args.manifests.described();
    if objects.node_pools.is_empty() {
        tell(&mut io::stderr().lock(), objects.findings.iter())?;
        bail!(
            "there is no NodePool in {source}; new nodes come from NodePools, so give one with -f or --propose"
        );
    }
    let loaded = args.catalogue.load(&objects)?;
    let catalogue = Arc::new(loaded.catalogue);
    let entries = match &args.why_not {
        Some(name) => {
            let types = catalogue.types.iter();
            let entries: Vec<usize> = types
                .enumerate()
                .filter(|(_, it)| *it.name == **name)
                .map(|(entry, _)| entry)
                .collect();
            if entries.is_empty() {
                let near = nearest(name, catalogue.types.iter().map(|it| &*it.name));
                let hint = near
                    .map(|near| format!("; did you mean {near}?"))
                    .unwrap_or_default();
                bail!("--why-not: the catalogue has no instance type {name}{hint}");
            }
            entries
        }
        None => Vec::new(),
    };
    let load_ms = output::milliseconds(started);

    let prepared = args.policies.prepare(&catalogue, objects);
    let position = find(&args.name, &prepared.objects.pods, &source)?;
    let started = Instant::now();
    let problem = Problem::with_evaluation(&prepared.objects, &catalogue, Arc::clone(&prepared.evaluation));
    let explanation = explain::pod(&problem, &args.policies.options(&|| false), position);
    let subject = Subject {
        objects: &prepared.objects,
        catalogue: &catalogue,
        evaluation: &prepared.evaluation,
        explanation: &explanation,
    };
    let mut report = subject.report(position);
    report.why_not = args
        .why_not
        .as_deref()
        .map(|name| subject.why_not(name, &entries));
    if matches!(explanation.placement, Some(explain::Placement::Existing { .. })) {
        let seen = prepared.seen.get(position);
        report.scheduler_refusal = seen.and_then(|seen| seen.refusal.clone());
    }
    let starving = args.starvation.find(
        args.manifests.is_live(),
        (&prepared.objects, &prepared.seen),
        &explanation.results,
    );
    let own = starving
        .iter()
        .flatten()
        .find(|starving| starving.pod == position);
    report.starving = own.map(|own| StarvingReport::new(own, |pods| subject.names(pods)));
    report.timing = args
        .timing
        .then(|| Timing::new(load_ms, prepared.overlay_ms).with_solve(output::milliseconds(started)));

    let mut out = output::stdout();
    match args.output {
        Format::Table | Format::Wide => table::write(&mut out, &report, args.output == Format::Wide)?,
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
    }
    out.flush()?;
    let mut err = io::stderr().lock();
    tell(&mut err, prepared.findings.iter())?;
    if matches!(args.output, Format::Table | Format::Wide) {
        for note in prepared.notes.iter().chain(&loaded.notes) {
            writeln!(err, "note: {note}")?;
        }
        if let Some(timing) = &report.timing {
            writeln!(err, "note: {timing}")?;
        }
    }
    Ok(if prepared.findings.iter().any(is_bad_input) {
        ExitCode::from(2)
    } else if explanation.placement.is_none() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// The position of a pod.
fn find(wanted: &str, pods: &[PodRecord], source: &str) -> Result<usize> {
    let name_of = |pod: &PodRecord| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default())
    };
    let full = if wanted.contains('/') {
        wanted.to_owned()
    } else {
        format!("default/{wanted}")
    };
    if let Some(at) = pods.iter().position(|pod| name_of(pod) == full) {
        return Ok(at);
    }
    // The namespace was left out or is wrong, but the name is there.
    let name = full.rsplit('/').next().unwrap_or_default();
    let same_name = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
    let names: Vec<String> = pods.iter().map(name_of).collect();
    let near = same_name
        .map(name_of)
        .or_else(|| nearest(&full, names.iter().map(String::as_str)).map(str::to_owned));
    let hint = near
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    bail!("there is no pod {full} in {source}{hint}");
}
