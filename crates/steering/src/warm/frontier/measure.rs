//! Latencies and arrivals as a cluster has seen them, read from the times in its objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use veneer_api::NodeClaim;
use veneer_api::labels::veneer;
use veneer_api::node_claim::CONDITION_INITIALIZED;
use veneer_api::{ConditionStatus, Pod, find_condition};
use veneer_engine::plan::{Snapshot, is_daemon_pod, is_used_spare, name, node_pool_of};

use super::model::percentile;
use super::{Arrival, Latencies};

/// What was seen of one kind of nodes: how many pods waited for one, and how long half of them waited at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How many pods.
    pub pods: usize,
    /// Seconds.
    pub median: f64,
}

/// How long pods of a pool have waited for nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// For running spares.
    pub running: Sample,
    /// For stopped and hibernated ones.
    pub stopped: Sample,
    /// For launches.
    pub cold: Sample,
}

impl Measured {
    /// What was measured, and what is assumed where nothing was.
    #[must_use]
    pub fn or(&self, assumed: Latencies) -> Latencies {
        let of = |sample: Sample, assumed| if sample.pods > 0 { sample.median } else { assumed };
        Latencies {
            running: of(self.running, assumed.running),
            stopped: of(self.stopped, assumed.stopped),
            cold: of(self.cold, assumed.cold),
        }
    }
}

/// Reads how long pods waited for their nodes: those that came before their node was ready, and the first one on every
/// running spare.
#[must_use]
pub fn latencies(snapshot: &Snapshot, pool: &str) -> Measured {
    let mut claims: HashMap<&str, &Arc<NodeClaim>> = HashMap::new();
    for claim in &snapshot.node_claims {
        let node = claim
            .status
            .as_ref()
            .and_then(|status| status.node_name.as_deref());
        if let Some(node) = node.filter(|_| node_pool_of(&claim.metadata) == pool) {
            claims.insert(node, claim);
        }
    }
    let (mut running, mut stopped, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let mut pods: Vec<(Timestamp, f64, &str)> = snapshot.pods.iter().filter_map(|pod| waited(pod)).collect();
    pods.sort_by(|a, b| a.0.cmp(&b.0).then(a.2.cmp(b.2)));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (came, seconds, node) in pods {
        let Some(claim) = claims.get(node) else { continue };
        let is_first = seen.insert(node);
        let came_before = initialised(claim).is_some_and(|ready| came < ready);
        let was_stopped = claim
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|list| list.contains_key(veneer::POWER));
        match (is_used_spare(&claim.metadata), came_before) {
            (false, true) => cold.push(seconds),
            (true, true) if was_stopped => stopped.push(seconds),
            (true, false) if is_first && !was_stopped => running.push(seconds),
            _ => {}
        }
    }
    let sample = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        Sample {
            pods: list.len(),
            median: percentile(&list, 50),
        }
    };
    Measured {
        running: sample(running),
        stopped: sample(stopped),
        cold: sample(cold),
    }
}

fn initialised(claim: &NodeClaim) -> Option<Timestamp> {
    let conditions = &claim.status.as_ref()?.conditions;
    let found = find_condition(conditions, CONDITION_INITIALIZED)?;
    (found.status == ConditionStatus::True).then_some(found.last_transition_time.0)
}

/// When a pod came, how many seconds passed until it was scheduled, and where to.
fn waited(pod: &Pod) -> Option<(Timestamp, f64, &str)> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let came = pod.metadata.creation_timestamp.as_ref()?.0;
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|one| one.type_ == "PodScheduled" && one.status == "True")?;
    let at = scheduled.last_transition_time.as_ref()?.0;
    let seconds = at.duration_since(came).as_secs_f64();
    (!is_daemon_pod(pod) && seconds >= 0.0).then_some((came, seconds, node))
}

/// When pods came to a pool's nodes or wait for one, in seconds since the first of them, and for how long they stayed;
/// those that are still there stay as long as they have been there, and at least `least` seconds.
#[must_use]
pub fn arrivals(snapshot: &Snapshot, pool: &str, now: Timestamp, least: f64) -> Vec<Arrival> {
    let nodes: BTreeSet<&str> = snapshot
        .nodes
        .iter()
        .filter(|node| node_pool_of(&node.metadata) == pool)
        .map(|node| name(&node.metadata))
        .collect();
    let mut found: Vec<(Timestamp, f64)> = Vec::new();
    for pod in snapshot.pods.iter().filter(|pod| !is_daemon_pod(pod)) {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let Some(came) = pod.metadata.creation_timestamp.as_ref().map(|time| time.0) else {
            continue;
        };
        if on.is_none_or(|on| nodes.contains(on)) {
            let until = ended(pod).unwrap_or(now);
            found.push((came, until.duration_since(came).as_secs_f64().max(least)));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let Some(first) = found.first().map(|(came, _)| *came) else {
        return Vec::new();
    };
    let since = |came: Timestamp| came.duration_since(first).as_secs_f64();
    found
        .into_iter()
        .map(|(came, life)| Arrival {
            at: since(came),
            life,
        })
        .collect()
}

/// When the last container of a pod ended, if all did.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ends = containers.iter().map(|one| {
        let ended = one.state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(|time| time.0)
    });
    ends.collect::<Option<Vec<Timestamp>>>()?.into_iter().max()
}
