//! Metrics of provisioning, with Karpenter's names where it has them.

use k8s_openapi::jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use veneer_engine::plan::{Plan, Snapshot, name};
use veneer_engine::provision::Market;
use veneer_engine::quantity::Quantity;

use super::spare_meters::SpareMeters;

pub(super) type Labels = Vec<(String, String)>;

const DURATIONS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// The counters and gauges of one process.
#[derive(Clone, Debug)]
pub struct Meters {
    claims_created: Family<Labels, Counter>,
    claims_terminated: Family<Labels, Counter>,
    claims_disrupted: Family<Labels, Counter>,
    nodes_created: Family<Labels, Counter>,
    nodes_terminated: Family<Labels, Counter>,
    usage: Family<Labels, Gauge<f64, AtomicU64>>,
    limit: Family<Labels, Gauge<f64, AtomicU64>>,
    scheduling: Histogram,
    queue_depth: Gauge,
    unschedulable: Gauge,
    failed: Counter,
    disagreements: Counter,
    refused: Gauge,
    pass: Histogram,
    conflicts: Counter,
    regressions: Counter,
    unreadable: Family<Labels, Gauge>,
    panics: Family<Labels, Counter>,
    is_held_back: Gauge,
    spares: SpareMeters,
}

pub(super) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            claims_created: Family::default(),
            claims_terminated: Family::default(),
            claims_disrupted: Family::default(),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            usage: Family::default(),
            limit: Family::default(),
            scheduling: Histogram::new(DURATIONS),
            queue_depth: Gauge::default(),
            unschedulable: Gauge::default(),
            failed: Counter::default(),
            disagreements: Counter::default(),
            refused: Gauge::default(),
            pass: Histogram::new(DURATIONS),
            conflicts: Counter::default(),
            regressions: Counter::default(),
            unreadable: Family::default(),
            panics: Family::default(),
            is_held_back: Gauge::default(),
            spares: SpareMeters::default(),
        }
    }
}

impl Meters {
    /// Makes them part of what `/metrics` shows.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counters = [
            (
                "karpenter_nodeclaims_created",
                "NodeClaims created, by NodePool",
                &self.claims_created,
            ),
            (
                "karpenter_nodeclaims_terminated",
                "NodeClaims that are gone, by NodePool",
                &self.claims_terminated,
            ),
            (
                "karpenter_nodeclaims_disrupted",
                "NodeClaims deleted, by NodePool and reason",
                &self.claims_disrupted,
            ),
            (
                "karpenter_nodes_created",
                "Nodes that joined, by NodePool",
                &self.nodes_created,
            ),
            (
                "karpenter_nodes_terminated",
                "Nodes that are gone, by NodePool",
                &self.nodes_terminated,
            ),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "karpenter_nodepools_usage",
            "What the nodes of a NodePool have in total, by resource",
            self.usage.clone(),
        );
        registry.register(
            "karpenter_nodepools_limit",
            "What the nodes of a NodePool may have in total, by resource",
            self.limit.clone(),
        );
        registry.register(
            "karpenter_scheduler_scheduling_duration_seconds",
            "How long it took to decide about all pending pods",
            self.scheduling.clone(),
        );
        registry.register(
            "karpenter_scheduler_queue_depth",
            "Pods that wait for a decision",
            self.queue_depth.clone(),
        );
        registry.register(
            "karpenter_scheduler_unschedulable_pods_count",
            "Pods that the last decision left pending",
            self.unschedulable.clone(),
        );
        registry.register(
            "veneer_provisioning_failed_actions",
            "Writes and provider calls that failed and are tried again",
            self.failed.clone(),
        );
        registry.register(
            "veneer_scheduler_disagreements",
            "Kinds of pods that kube-scheduler refused on nodes that have room for them by our rules",
            self.disagreements.clone(),
        );
        registry.register(
            "veneer_scheduler_refused_pods",
            "Pods that wait because kube-scheduler refuses them on nodes that have room for them by our rules",
            self.refused.clone(),
        );
        self.register_drivers(registry);
        self.spares.register(registry);
    }

    /// What goes on between decisions and the cluster.
    fn register_drivers(&self, registry: &mut Registry) {
        registry.register(
            "veneer_provisioning_pass_duration_seconds",
            "How long one pass of all decisions took",
            self.pass.clone(),
        );
        registry.register(
            "veneer_provisioning_conflicts",
            "Writes for a version of an object that is not the newest",
            self.conflicts.clone(),
        );
        registry.register(
            "veneer_provisioning_held_back",
            "1 while no node is disrupted or terminated, since a watch does not work",
            self.is_held_back.clone(),
        );
        registry.register(
            "veneer_watch_version_regressions",
            "How often resource versions went back, as after a restore of etcd",
            self.regressions.clone(),
        );
        registry.register(
            "veneer_unreadable_objects",
            "Objects that are not used, since they do not fit their type",
            self.unreadable.clone(),
        );
        registry.register(
            "veneer_task_panics",
            "Tasks that panicked and were begun again",
            self.panics.clone(),
        );
    }

    /// What becomes of spares.
    pub(crate) fn spares(&self, snapshot: &Snapshot, plan: &Plan, market: &Market, now: Timestamp) {
        self.spares.passed(snapshot, plan, market, now);
    }

    pub(crate) fn passed(&self, took: Duration) {
        self.pass.observe(took.as_secs_f64());
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.inc();
    }

    pub(crate) fn regressed(&self) {
        self.regressions.inc();
    }

    pub(crate) fn unreadable(&self, kind: &str, count: usize) {
        let labels = labels([("kind", kind)]);
        if count > 0 || self.unreadable.get(&labels).is_some() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.unreadable.get_or_create(&labels).set(count);
        }
    }

    pub(crate) fn panicked(&self, task: &str) {
        self.panics.get_or_create(&labels([("task", task)])).inc();
    }

    pub(crate) fn held_back(&self, is_held_back: bool) {
        self.is_held_back.set(i64::from(is_held_back));
    }

    /// What kube-scheduler refuses against our rules: new kinds of pods, and the pods that wait.
    pub(crate) fn disagreements(&self, new: usize, waiting: usize) {
        self.disagreements.inc_by(u64::try_from(new).unwrap_or_default());
        self.refused.set(i64::try_from(waiting).unwrap_or_default());
    }

    pub(crate) fn claim_created(&self, pool: &str) {
        self.claims_created
            .get_or_create(&labels([("nodepool", pool)]))
            .inc();
    }

    pub(crate) fn claim_terminated(&self, pool: &str) {
        self.claims_terminated
            .get_or_create(&labels([("nodepool", pool)]))
            .inc();
    }

    pub(crate) fn claim_disrupted(&self, pool: &str, reason: &str) {
        self.claims_disrupted
            .get_or_create(&labels([("nodepool", pool), ("reason", reason)]))
            .inc();
    }

    pub(crate) fn node_created(&self, pool: &str) {
        self.nodes_created
            .get_or_create(&labels([("nodepool", pool)]))
            .inc();
    }

    pub(crate) fn node_terminated(&self, pool: &str) {
        self.nodes_terminated
            .get_or_create(&labels([("nodepool", pool)]))
            .inc();
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn decided(&self, took: Duration, unschedulable: usize) {
        self.scheduling.observe(took.as_secs_f64());
        self.unschedulable
            .set(i64::try_from(unschedulable).unwrap_or(i64::MAX));
    }

    pub(crate) fn waiting(&self, pods: usize) {
        self.queue_depth.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    pub(crate) fn pools(&self, snapshot: &Snapshot) {
        self.usage.clear();
        self.limit.clear();
        for pool in &snapshot.node_pools {
            let used = pool.status.iter().flat_map(|status| &status.resources);
            let amounts = used.map(|amount| (&self.usage, amount));
            let amounts = amounts.chain(pool.spec.limits.iter().map(|amount| (&self.limit, amount)));
            for (family, (resource, text)) in amounts {
                if let Ok(quantity) = text.0.parse::<Quantity>() {
                    let pool = name(&pool.metadata);
                    #[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
                    let amount = quantity.milli_value() as f64 / 1000.0;
                    family
                        .get_or_create(&labels([("nodepool", pool), ("resource_type", resource)]))
                        .set(amount);
                }
            }
        }
    }
}
