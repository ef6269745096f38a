//! What is counted while a world runs.

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use serde::Serialize;

use crate::billing::{Bill, Used};
use crate::execute::kind_of;

/// Counters of one world.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Actions that changed something, and events that did; timers are none.
    pub steps: u64,
    /// How often the controllers looked.
    pub passes: u64,
    /// The most steps that a pass took to decide where pods go.
    pub most_steps: u64,
    /// How often they did not settle at one moment.
    pub unsettled: u64,
    /// Pods of workloads that were made.
    pub pods_created: u64,
    /// NodeClaims that were made.
    pub claims: u64,
    /// Instances that were launched, by architecture and capacity type.
    pub launches: BTreeMap<(String, String), u64>,
    /// Instances that were ended.
    pub terminated: u64,
    /// The largest number of nodes.
    pub peak_nodes: usize,
    /// NodeClaims that were deleted, by reason.
    pub deleted: BTreeMap<String, u64>,
    /// Launches for which there was no capacity.
    pub insufficient: u64,
    /// Spot instances that were taken back.
    pub interruptions: u64,
    /// Spares that were given to pods.
    pub spares_used: u64,
    /// Pods that were asked to leave.
    pub evictions: u64,
    /// Evictions that a disruption budget refused.
    pub refused_evictions: u64,
    /// Pods that were deleted whatever their budgets say.
    pub forced: u64,
    /// What happened to NodeClaims and nodes, for counters: what, NodePool, reason.
    pub counters: BTreeMap<(Counter, String, String), u64>,
    /// Overlays that were written, by operation.
    pub overlay_writes: BTreeMap<String, u64>,
    /// Instance-hours by type.
    pub hours: BTreeMap<String, f64>,
    /// What the settled hours cost.
    pub bill: Bill,
    /// How many pods waited how many seconds for a node.
    waits: BTreeMap<i64, u64>,
}

/// What is counted by NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// A NodeClaim was made.
    ClaimCreated,
    /// A NodeClaim was deleted, for a reason.
    ClaimDisrupted,
    /// A NodeClaim is gone.
    ClaimTerminated,
    /// A node has registered.
    NodeCreated,
}

/// How long pods waited for a node, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half of them at most this long.
    pub p50: i64,
    /// 95 of 100.
    pub p95: i64,
    /// 99 of 100.
    pub p99: i64,
    /// How many were placed.
    pub pods: u64,
}

impl Statistics {
    pub(crate) fn count(&mut self, what: Counter, pool: &str, reason: &str) {
        let key = (what, pool.to_owned(), reason.to_owned());
        *self.counters.entry(key).or_default() += 1;
    }

    pub(crate) fn bound(&mut self, waited: SignedDuration) {
        *self.waits.entry(waited.as_secs()).or_default() += 1;
    }

    pub(crate) fn launched(&mut self, labels: &BTreeMap<String, String>) {
        *self.launches.entry(kind_of(labels)).or_default() += 1;
    }

    pub(crate) fn pass_peak(&mut self, nodes: usize) {
        self.peak_nodes = self.peak_nodes.max(nodes);
    }

    pub(crate) fn instance_hours(&mut self, used: &Used) {
        for (usage, (hours, _)) in used {
            *self.hours.entry(usage.instance_type.clone()).or_default() += hours;
        }
    }

    /// How long pods waited so far.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let pods: u64 = self.waits.values().sum();
        let percentile = |percent: u64| {
            let rank = (pods * percent).div_ceil(100);
            let mut seen = 0;
            let found = self.waits.iter().find(|(_, count)| {
                seen += **count;
                seen >= rank
            });
            found.map_or(0, |(seconds, _)| *seconds)
        };
        Latency {
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            pods,
        }
    }
}
