//! `veneer simulate`: where pending pods would go, on which new nodes, at what price, and why some go nowhere.

mod progress;
mod report;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing::{self, Problem};

use super::diagnose::{is_bad_input, tell};
use crate::finding::{Finding, Rule};
use crate::input::cluster::{Cluster, Found};
use crate::input::objects::Objects;
use crate::input::{CatalogueArgs, ManifestArgs, workloads};
use crate::output::{self, Timing};
use crate::preview::{Preview, TieBreak};
use progress::Progress;
use report::{Report, Saving, View};

/// Shows where pending pods would go: on which nodes, at what price, and why some go nowhere
///
/// Reads pods, nodes, NodePools, NodeOverlays, DaemonSets and volumes from the live cluster, or from files with -f,
/// and schedules the pods without spec.nodeName as Karpenter would, with the prices and the capacity that overlays
/// give. Deployments, ReplicaSets, StatefulSets and Jobs in files count as the pods they would make. With --propose
/// it also says what the proposal changes. Nothing is written to the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer simulate -f manifests/
  veneer simulate -f manifests/ --propose bigger-pool.yaml -o json
  veneer simulate --fail-on-unschedulable

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

    /// What happens where a NodePool's minValues cannot be met: no node, or one with minValues lowered
    #[arg(long, value_enum, default_value = "strict", value_name = "POLICY")]
    min_values_policy: MinValuesPolicy,

    /// Whether preferred affinities and ScheduleAnyway spreads hold as long as they can, or not at all
    #[arg(long, value_enum, default_value = "respect", value_name = "POLICY")]
    preference_policy: PreferencePolicy,

    /// Which of two overlays of the same weight comes first
    #[arg(
        long,
        value_enum,
        default_value = "reverse-alphabetical",
        value_name = "ORDER"
    )]
    tie_break: TieBreak,

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
enum MinValuesPolicy {
    Strict,
    BestEffort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PreferencePolicy {
    Respect,
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    let progress = Progress::start("reading objects");
    let started = Instant::now();
    let (before, objects) = args.manifests.load_cluster()?;
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
    report.timing = args
        .timing
        .then(|| Timing::new(load_ms, run.overlay_ms).with_solve(run.solve_ms));
    if let Some(before) = before {
        let before = Run::new(args, &catalogue, before, &progress);
        report.change = Some(report.change_from(&before.report()));
    }
    drop(progress);

    let mut out = output::stdout();
    match args.output {
        Format::Table | Format::Wide => table::write(&mut out, &report, args.output == Format::Wide)?,
        Format::Json => output::json(&mut out, &report)?,
        Format::Yaml => output::yaml(&mut out, &report)?,
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
}

impl<'a> Run<'a> {
    fn new(
        args: &SimulateArgs,
        catalogue: &'a Arc<Catalogue>,
        mut objects: Objects,
        progress: &Progress,
    ) -> Self {
        progress.stage("evaluating overlays");
        let started = Instant::now();
        let mut notes: Vec<String> = output::ignored(&objects).into_iter().collect();
        let cluster = objects.cluster.take().unwrap_or_default();
        let preview = Preview::new(&objects, Arc::clone(catalogue), args.tie_break);
        // Advice is the business of `diagnose`; what leaves an overlay out changes the result here.
        let left_out = |finding: &Finding| matches!(finding.rule, Rule::InvalidField | Rule::Conflict);
        let of_overlays = (0..preview.overlays.len())
            .flat_map(|at| preview.findings(at))
            .filter(left_out);
        let findings = objects.findings.iter().cloned().chain(of_overlays).collect();
        let evaluation = Arc::new(preview.evaluation);
        let overlay_ms = output::milliseconds(started);

        let (made, note) = workloads::pods(&cluster);
        notes.extend(note);
        let objects = schedulable(objects, *cluster, made);
        progress.stage("scheduling pods");
        let should_stop = || {
            progress.step();
            false
        };
        let options = packing::Options {
            min_values: match args.min_values_policy {
                MinValuesPolicy::Strict => packing::MinValuesPolicy::Strict,
                MinValuesPolicy::BestEffort => packing::MinValuesPolicy::BestEffort,
            },
            preferences: match args.preference_policy {
                PreferencePolicy::Respect => packing::PreferencePolicy::Respect,
                PreferencePolicy::Ignore => packing::PreferencePolicy::Ignore,
            },
            should_stop: &should_stop,
            ..packing::Options::default()
        };
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
        }
    }

    fn report(&self) -> Report<'a> {
        let view = View {
            pods: &self.objects.pods,
            catalogue: self.catalogue,
            evaluation: &self.evaluation,
        };
        let mut report = view.report(&self.results);
        report.packing = self.saving;
        report
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

/// The objects in the scheduler's shape; the NodePools in the order in which overlays were evaluated for them.
fn schedulable(
    objects: Objects,
    cluster: Cluster,
    made: Vec<k8s_openapi::api::core::v1::Pod>,
) -> packing::Objects {
    fn plain<T>(found: Vec<Found<T>>) -> Vec<T> {
        found.into_iter().map(|found| found.object).collect()
    }
    packing::Objects {
        pods: plain(cluster.pods).into_iter().chain(made).collect(),
        nodes: plain(cluster.nodes),
        node_pools: objects.node_pools.into_iter().map(|pool| pool.object).collect(),
        node_claims: plain(cluster.node_claims),
        daemon_sets: plain(cluster.daemon_sets),
        pvcs: plain(cluster.pvcs),
        pvs: plain(cluster.pvs),
        storage_classes: plain(cluster.storage_classes),
        csi_nodes: plain(cluster.csi_nodes),
        namespaces: plain(cluster.namespaces),
        overlays: objects
            .node_overlays
            .into_iter()
            .map(|overlay| overlay.object)
            .collect(),
    }
}
