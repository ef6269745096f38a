//! What every command that runs the scheduler needs: its policies, and objects in its shape.

use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_engine::explain::{Seen, Starving, starving};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing;

use crate::finding::{Finding, Rule};
use crate::input::cluster::{Cluster, Found};
use crate::input::objects::Objects;
use crate::input::workloads;
use crate::output;
use crate::preview::{Preview, TieBreak};

/// The policies of the scheduler.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
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

impl PolicyArgs {
    /// The options of the solver.
    pub(crate) fn options<'a>(&self, should_stop: &'a dyn Fn() -> bool) -> packing::Options<'a> {
        packing::Options {
            min_values: match self.min_values_policy {
                MinValuesPolicy::Strict => packing::MinValuesPolicy::Strict,
                MinValuesPolicy::BestEffort => packing::MinValuesPolicy::BestEffort,
            },
            preferences: match self.preference_policy {
                PreferencePolicy::Respect => packing::PreferencePolicy::Respect,
                PreferencePolicy::Ignore => packing::PreferencePolicy::Ignore,
            },
            should_stop,
            ..packing::Options::default()
        }
    }

    /// Evaluates overlays and puts the objects into the scheduler's shape.
    pub(crate) fn prepare(&self, catalogue: &Arc<Catalogue>, mut objects: Objects) -> Prepared {
        let started = Instant::now();
        let mut notes: Vec<String> = output::ignored(&objects).into_iter().collect();
        let cluster = objects.cluster.take().unwrap_or_default();
        let preview = Preview::new(&objects, Arc::clone(catalogue), self.tie_break);
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
        let seen = cluster.pods.iter().map(|pod| Seen::of(&pod.object)).collect();
        Prepared {
            seen,
            objects: schedulable(objects, *cluster, made),
            evaluation,
            findings,
            notes,
            overlay_ms,
        }
    }
}

/// Objects that can be scheduled, and what was noticed on the way.
pub(crate) struct Prepared {
    pub(crate) objects: packing::Objects,
    pub(crate) evaluation: Arc<Evaluation>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    pub(crate) overlay_ms: f64,
    /// The times of the pods, in their order; pods that are not there yet have none.
    pub(crate) seen: Vec<Seen>,
}

/// The objects in the scheduler's shape; the NodePools in the order in which overlays were evaluated for them.
fn schedulable(objects: Objects, cluster: Cluster, made: Vec<Pod>) -> packing::Objects {
    fn plain<T>(found: Vec<Found<T>>) -> Vec<T> {
        found.into_iter().map(|found| found.object).collect()
    }
    fn shared<T>(found: Vec<Found<T>>) -> Vec<Arc<T>> {
        found.into_iter().map(|found| Arc::new(found.object)).collect()
    }
    packing::Objects {
        pods: plain(cluster.pods).into_iter().chain(made).collect(),
        nodes: shared(cluster.nodes),
        node_pools: objects.node_pools.into_iter().map(|pool| pool.object).collect(),
        node_claims: shared(cluster.node_claims),
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
        ..packing::Objects::default()
    }
}

/// When pods count as starving.
#[derive(Debug, Args)]
pub(crate) struct StarvationArgs {
    /// The time that ages of waiting pods are counted to, such as 2026-01-31T12:00:00Z; now for a live cluster, and
    /// without it files say nothing about ages
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    /// Reports pods that have waited this many minutes and were never evaluated, or would be placed
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    starved_after: u32,
}

impl StarvationArgs {
    /// The pods that starve; none where the time is not known.
    pub(crate) fn find(
        &self,
        is_live: bool,
        prepared: (&packing::Objects, &[Seen]),
        results: &packing::Results,
    ) -> Option<Vec<Starving>> {
        let now = self.now.or_else(|| is_live.then(Timestamp::now))?;
        let (objects, seen) = prepared;
        let patience = i64::from(self.starved_after) * 60;
        Some(starving(objects, results, seen, now, patience))
    }
}

/// A pod that starves, for reports.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StarvingReport {
    pub(crate) pod: String,
    pub(crate) age_seconds: i64,
    pub(crate) evaluated: bool,
    pub(crate) would_be_placed: bool,
    /// The pods before it in the queue that go nowhere.
    pub(crate) behind: Vec<String>,
}

impl StarvingReport {
    pub(crate) fn new(starving: &Starving, names: impl Fn(&[usize]) -> Vec<String>) -> Self {
        Self {
            pod: names(&[starving.pod]).concat(),
            age_seconds: starving.age_seconds,
            evaluated: starving.evaluated,
            would_be_placed: starving.would_be_placed,
            behind: names(&starving.behind),
        }
    }

    /// Why it is thought to starve, in words.
    pub(crate) fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if !self.evaluated {
            parts.push("no scheduler has evaluated it".to_owned());
        }
        if self.would_be_placed {
            parts.push("a run of now would place it".to_owned());
        }
        match self.behind.as_slice() {
            [] => {}
            [one] => parts.push(format!("{one} comes before it in the queue and goes nowhere")),
            [one, rest @ ..] => parts.push(format!(
                "{one} and {} more come before it in the queue and go nowhere",
                rest.len()
            )),
        }
        parts.join("; ")
    }
}

/// An age as people say it.
pub(crate) fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}
