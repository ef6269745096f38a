//! Keeps consolidation from trying again and again what kube-scheduler undoes.
//!
//! Consolidation removes a node when the simulation has room for its pods elsewhere. kube-scheduler places them by its own scores, and
//! may leave one of them without room, for which a node is launched again: round and round, with evictions each time. So a
//! launch for pods of a workload soon after pods of that workload were moved is regretted, and they are not moved for a while. The pause
//! grows with each regret, and is forgotten after a move that nothing had to be launched for. A workload that has more pods than when it was moved
//! has been scaled up, which is nobody's fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_engine::backoff::Backoff;
use veneer_engine::disruption::Command;
use veneer_engine::plan::{Action, Plan, Snapshot, controller_of, is_deleting, is_terminal, name};

/// A launch within this time after pods were moved is taken to be for them.
const SOON: SignedDuration = SignedDuration::from_mins(2);
/// The longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(6);
/// The pauses after regrets: five minutes, two hours, six hours.
const PAUSES: Backoff = Backoff::growing(Duration::from_secs(5 * 60), LONGEST_PAUSE.unsigned_abs(), 24);

/// What became of moving the pods of a workload.
#[derive(Clone, Copy, Debug)]
struct Moved {
    /// When they were moved, until that was regretted.
    at: Option<Timestamp>,
    /// How many pods there were then.
    pods: usize,
    /// The last pause.
    pause: Duration,
    /// Until then they are not moved.
    until: Timestamp,
}

/// What became of moving pods, by the uid of their controller.
#[derive(Clone, Debug, Default)]
pub struct Regret(BTreeMap<String, Moved>);

impl Regret {
    /// Workloads whose pods are not to be moved, with the time until which that holds.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let held = self.0.iter().filter(|(_, moved)| now < moved.until);
        held.map(|(controller, moved)| (controller.clone(), moved.until))
            .collect()
    }

    /// Commands were started.
    pub fn started(&mut self, commands: &[Command], snapshot: &Snapshot, now: Timestamp) {
        let pods: BTreeSet<&str> = commands
            .iter()
            .flat_map(|command| command.moves.iter().map(|(pod, _)| pod.as_str()))
            .collect();
        if pods.is_empty() {
            return;
        }
        self.0
            .retain(|_, moved| now.duration_since(moved.until) < LONGEST_PAUSE);
        let counts = counts(snapshot);
        let moved = snapshot.pods.iter().filter(|pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
            pods.contains(format!("{namespace}/{}", name(&pod.metadata)).as_str())
        });
        for controller in moved.filter_map(|pod| controller_of(&pod.metadata)) {
            let known = self.0.entry(controller.to_owned()).or_insert(Moved {
                at: None,
                pods: 0,
                pause: Duration::ZERO,
                until: now,
            });
            if known.at.is_some_and(|at| now.duration_since(at) >= SOON) {
                // Nothing had to be launched after the last time.
                known.pause = Duration::ZERO;
            }
            known.at = Some(now);
            known.pods = counts.get(controller).copied().unwrap_or_default();
        }
    }

    /// Nodes are launched: `expected` says for which pods, by uid.
    pub fn launched(
        &mut self,
        plan: &Plan,
        expected: &BTreeMap<String, String>,
        snapshot: &Snapshot,
        now: Timestamp,
    ) {
        let is_soon = |moved: &Moved| moved.at.is_some_and(|at| now.duration_since(at) < SOON);
        if !self.0.values().any(is_soon) {
            return;
        }
        let claims: BTreeSet<&str> = plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::CreateClaim(claim) => Some(name(&claim.metadata)),
                _ => None,
            })
            .collect();
        let counts = counts(snapshot);
        for pod in &snapshot.pods {
            let place = expected.get(pod.metadata.uid.as_deref().unwrap_or_default());
            let controller = controller_of(&pod.metadata);
            let Some(controller) =
                controller.filter(|_| place.is_some_and(|to| claims.contains(to.as_str())))
            else {
                continue;
            };
            let count = counts.get(controller).copied().unwrap_or_default();
            if let Some(moved) = self.0.get_mut(controller)
                && is_soon(moved)
                && count <= moved.pods
            {
                moved.pause = PAUSES.after(moved.pause);
                moved.until = now.checked_add(moved.pause).unwrap_or(now);
                moved.at = None;
            }
        }
    }
}

/// How many pods controllers have.
fn counts(snapshot: &Snapshot) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let pods = snapshot.pods.iter();
    for pod in pods.filter(|pod| !is_terminal(pod) && !is_deleting(&pod.metadata)) {
        if let Some(controller) = controller_of(&pod.metadata) {
            *counts.entry(controller).or_default() += 1;
        }
    }
    counts
}
