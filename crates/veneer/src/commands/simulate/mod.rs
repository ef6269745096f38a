//! `veneer simulate`: where pending pods would go, on which new nodes, at what price, and why some go nowhere.

mod change;
mod frontier;
mod markdown;
pub(crate) mod progress;
pub(crate) mod report;
mod scenario;
pub(crate) mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use veneer_engine::explain::Seen;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing::{self, Problem};

use super::diagnose::{is_bad_input, tell};
use crate::finding::Finding;
use crate::input::objects::Objects;
use crate::input::what_if::WhatIfArgs;
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Timing};
use crate::scheduling::{PolicyArgs, Prepared, StarvationArgs, StarvingReport};
use change::Picture;
use frontier::FrontierArgs;
use progress::Progress;
use report::{Report, Saving, View};
use scenario::ScenarioArgs;

/// Shows where pending pods would go: on which nodes, at what price, and why some go nowhere
///
/// Reads pods, nodes, NodePools, NodeOverlays, DaemonSets and volumes from the live cluster, or from files with -f,
/// and schedules the pods without spec.nodeName as Karpenter would, with the prices and the capacity that overlays
/// give. Deployments, ReplicaSets, StatefulSets and Jobs in files count as the pods they would make. With --propose,
/// --scale, --remove or --repack it also says what that would change. Nothing is written to the cluster. With --scenario time
/// passes: a scenario is played in the embedded world. With --buffer-frontier it says what spare nodes cost and what they
/// are good for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer simulate -f manifests/
  veneer simulate -f manifests/ --propose bigger-pool.yaml -o json
  veneer simulate -f manifests/ --scale shop/web=40 --remove nodepool/old -o markdown
  veneer simulate --repack
  veneer simulate --fail-on-unschedulable
  veneer simulate --scenario examples/scenarios/day.yaml --duration 12h
  veneer simulate -f examples/buffer --buffer-frontier --arrivals hourly=60,burst=40,every=2h,life=10m

Exit codes: 0 fine, 1 unschedulable pods with --fail-on-unschedulable, 2 bad usage or input.")]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// How pods are packed: first-fit decreasing, as Karpenter does it, or for the lowest price
    #[arg(long, value_enum, default_value = "ffd", value_name = "POLICY")]
    packing: Packing,

    /// Ends with exit code 1 if a pod goes nowhere
    #[arg(long)]
    fail_on_unschedulable: bool,

    #[command(flatten)]
    what_if: WhatIfArgs,

    #[command(flatten)]
    replay: ScenarioArgs,

    #[command(flatten)]
    frontier: FrontierArgs,

    #[command(flatten)]
    policies: PolicyArgs,

    #[command(flatten)]
    starvation: StarvationArgs,

    /// Output format; table puts nodes that are alike into one row, wide has every node with its pods
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,

    /// Adds how long it took and how much memory
    #[arg(long)]
    timing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Packing {
    /// First-fit decreasing: the same answer as Karpenter's
    Ffd,
    /// The lowest price that can be found, never above that of ffd, with a proven lower bound
    Cost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    /// For a comment on a pull request
    Markdown,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    if args.replay.scenario.is_some() {
        return scenario::run(&args.replay, args.output);
    }
    if args.frontier.buffer_frontier {
        return frontier::run(args);
    }
    let progress = Progress::start("reading objects");
    let started = Instant::now();
    let (before, objects) = args.manifests.load_what_if(Some(&args.what_if))?;
    if objects.node_pools.is_empty() {
        drop(progress);
        tell(&mut io::stderr().lock(), objects.findings.iter())?;
        let source = args.manifests.described();
        bail!(
            "there is no NodePool in {source}; new nodes come from NodePools, so give one with -f or --propose"
        );
    }
    let loaded = args.catalogue.load(&objects)?;
    let catalogue = Arc::new(loaded.catalogue);
    let load_ms = output::milliseconds(started);

    let run = Run::new(args, &catalogue, objects, &progress);
    let mut report = run.report();
    report.starving = run.starving(&args.starvation, args.manifests.is_live());
    report.timing = args
        .timing
        .then(|| Timing::new(load_ms, run.overlay_ms).with_solve(run.solve_ms));
    if let Some(before) = before {
        let before = Run::new(args, &catalogue, before, &progress);
        let report_before = before.report();
        let change = run.picture(&report).change_from(&before.picture(&report_before));
        report.change = Some(change);
    }
    drop(progress);

    let mut out = output::stdout();
    match args.output {
        Format::Table | Format::Wide => table::write(&mut out, &report, args.output == Format::Wide)?,
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
        Format::Markdown => markdown::write(&mut out, &report)?,
    }
    out.flush()?;

    let mut err = io::stderr().lock();
    tell(&mut err, run.findings.iter())?;
    let is_for_people = matches!(args.output, Format::Table | Format::Wide);
    if report.pods() == 0 {
        writeln!(err, "note: {}", run.nothing(&args.manifests.described()))?;
    }
    if is_for_people {
        for note in run.notes.iter().chain(&loaded.notes) {
            writeln!(err, "note: {note}")?;
        }
        if let Some(timing) = &report.timing {
            writeln!(err, "note: {timing}")?;
        }
    }
    Ok(if run.findings.iter().any(is_bad_input) {
        ExitCode::from(2)
    } else if args.fail_on_unschedulable && !report.unschedulable.is_empty() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// One run of the scheduler, with what it was given.
struct Run<'a> {
    catalogue: &'a Catalogue,
    objects: packing::Objects,
    evaluation: Arc<Evaluation>,
    results: packing::Results,
    saving: Option<Saving>,
    findings: Vec<Finding>,
    notes: Vec<String>,
    overlay_ms: f64,
    solve_ms: f64,
    seen: Vec<Seen>,
}

impl<'a> Run<'a> {
    fn new(
        args: &SimulateArgs,
        catalogue: &'a Arc<Catalogue>,
        objects: Objects,
        progress: &Progress,
    ) -> Self {
        progress.stage("evaluating overlays");
        let Prepared {
            objects,
            evaluation,
            findings,
            notes,
            overlay_ms,
            seen,
        } = args.policies.prepare(catalogue, objects);
        progress.stage("scheduling pods");
        let should_stop = || {
            progress.step();
            false
        };
        let options = args.policies.options(&should_stop);
        let started = Instant::now();
        let problem = Problem::with_evaluation(&objects, catalogue, Arc::clone(&evaluation));
        let (results, saving) = match args.packing {
            Packing::Ffd => (packing::solve(&problem, &options), None),
            Packing::Cost => {
                let found = packing::cost::solve(&problem, &options);
                (
                    found.results,
                    Some(Saving::new(found.ffd_hourly, found.lower_bound, found.gap)),
                )
            }
        };
        Self {
            solve_ms: output::milliseconds(started),
            catalogue,
            objects,
            evaluation,
            results,
            saving,
            findings,
            notes,
            overlay_ms,
            seen,
        }
    }

    fn view(&self) -> View<'a, '_> {
        View {
            pods: &self.objects.pods,
            catalogue: self.catalogue,
            evaluation: &self.evaluation,
        }
    }

    fn report(&self) -> Report<'a> {
        let mut report = self.view().report(&self.results);
        report.packing = self.saving;
        report
    }

    fn starving(&self, args: &StarvationArgs, is_live: bool) -> Option<Vec<StarvingReport>> {
        let found = args.find(is_live, (&self.objects, &self.seen), &self.results)?;
        let view = self.view();
        let report = |starving| StarvingReport::new(starving, |pods| view.names(pods));
        (!found.is_empty()).then(|| found.iter().map(report).collect())
    }

    fn picture<'p>(&'p self, report: &'p Report<'a>) -> Picture<'p> {
        Picture {
            objects: &self.objects,
            evaluation: &self.evaluation,
            catalogue: self.catalogue,
            report,
        }
    }

    /// Why there is nothing to schedule.
    fn nothing(&self, source: &str) -> String {
        match self.objects.pods.len() {
            0 => format!("nothing to schedule: there is no pod in {source}"),
            1 => format!(
                "nothing to schedule: the one pod in {source} has its node or needs none from a NodePool"
            ),
            pods => format!(
                "nothing to schedule: the {pods} pods in {source} have their nodes or need none from a NodePool"
            ),
        }
    }
}
