//! The kube-scheduler of the world: its filters, its nominated pods and its default scoring, written slowly and obviously.
//!
//! It shares no code about what fits where with the packing solver, so that the two can disagree, as Veneer and a real
//! kube-scheduler can; a test of the controllers holds it against a real one on generated clusters.
//!
//! - **Filters** ([`filters`], [`spread`], [`affinity`]): NodeUnschedulable, TaintToleration, NodeAffinity with the affinity that
//!   the scheduler adds, NodePorts, NodeResourcesFit, PodTopologySpread and InterPodAffinity. The world has no volumes: a pod
//!   that names a PersistentVolumeClaim waits for ever, as it does where the claim does not exist.
//! - **Nominated pods** ([`nominated`]) count for the node that they are expected on.
//! - **Scores** ([`score`]): the default plugins with their default weights. Of the nodes with the best score the first by name
//!   is taken. All nodes are compared; kube-scheduler stops in clusters of more than 100 nodes when it has found some.
//!   Pods of Deployments are spread by kube-scheduler's own constraints: the world tells which labels their ReplicaSets select.
//! - **Queue**: by priority, then creation, then name. A refused pod is tried again when something happened that may help it:
//!   anything with nodes, pods that go or are new, a nomination that is taken back, and for pods with affinity or spread constraints every binding;
//!   or after five minutes. With [`Settings::back_off`] it also waits 1 s, then 2 s, up to 10 s.
//! - When a nomination is taken back, the pass ends: others see that before the next pod is tried.
//!
//! Left out: preemption, and everything about volumes and devices.

mod affinity;
mod class;
mod cluster;
mod filters;
mod nominated;
mod resources;
mod score;
mod selector;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub use class::Owner;
pub use cluster::{Cluster, Decision, Settings};

use veneer_api::Pod;

use crate::objects::Objects;
use class::{ClassId, Classes, nominated_node, waits};
use cluster::{ClusterState, Nodes};

/// A refused pod waits at most this long between two attempts once something has happened.
const MAX_BACK_OFF: SignedDuration = SignedDuration::from_secs(10);
/// After this long a refused pod is tried again although nothing has happened.
const FLUSH: SignedDuration = SignedDuration::from_mins(5);

/// What a pass of the scheduler comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bindings {
    /// Pods and their nodes.
    pub(crate) bound: Vec<(String, String)>,
    /// Pods that fit nowhere.
    pub(crate) refused: Vec<String>,
    /// Pods that are no longer nominated.
    pub(crate) taken_back: Vec<String>,
}

/// A pod that was refused.
#[derive(Clone, Copy, Debug)]
struct Refused {
    attempts: u32,
    /// When it was.
    at: Timestamp,
    /// How much had happened by then.
    events: u64,
    bindings: u64,
    /// Whether pods that get a node may help it.
    needs_others: bool,
}

/// The scheduler, with what it has read of the pods.
#[derive(Debug)]
pub(crate) struct Scheduler {
    settings: Settings,
    classes: Classes,
    nodes: Nodes,
    refused: BTreeMap<String, Refused>,
    /// How often something has happened that may let a refused pod in.
    events: u64,
    /// How many pods have got a node.
    bindings: u64,
    /// When it wants to look again.
    look_again: Option<Timestamp>,
}

impl Scheduler {
    pub(crate) fn new(settings: Settings, owners: Vec<Owner>) -> Self {
        Self {
            settings,
            classes: Classes::new(owners),
            nodes: Nodes::default(),
            refused: BTreeMap::new(),
            events: 0,
            bindings: 0,
            look_again: None,
        }
    }

    /// From now on every pod must satisfy this too.
    pub(crate) fn set_added_affinity(&mut self, added: Option<NodeSelector>) {
        self.settings.added_affinity = added;
    }

    pub(crate) const fn look_again(&self) -> Option<Timestamp> {
        self.look_again
    }

    /// From when on a pod may be tried.
    fn due_at(&self, key: &str) -> Timestamp {
        let Some(refused) = self.refused.get(key) else {
            return Timestamp::MIN;
        };
        let after = |span: SignedDuration| refused.at.checked_add(span).unwrap_or(Timestamp::MAX);
        let is_new =
            refused.events < self.events || (refused.needs_others && refused.bindings < self.bindings);
        if !is_new {
            return after(FLUSH);
        }
        if !self.settings.back_off {
            return Timestamp::MIN;
        }
        let doubled = SignedDuration::from_secs(1_i64 << refused.attempts.saturating_sub(1).min(10));
        after(doubled.min(MAX_BACK_OFF))
    }

    /// Tries the pods that are on no node; `changed` if something happened since the last time that may let them in.
    pub(crate) fn schedule(&mut self, objects: &Objects, now: Timestamp, changed: bool) -> Bindings {
        self.events += u64::from(changed);
        self.look_again = None;
        let mut bindings = Bindings::default();
        let waiting = objects.pods.iter().filter(|(_, pod)| waits(pod));
        let due: Vec<(&String, &Arc<Pod>)> = waiting
            .clone()
            .filter(|(key, _)| self.due_at(key) <= now)
            .collect();
        if !due.is_empty() {
            self.pass(objects, due, now, &mut bindings);
        }
        self.refused
            .retain(|key, _| objects.pods.get(key).is_some_and(|pod| waits(pod)));
        self.look_again = self.refused.keys().map(|key| self.due_at(key)).min();
        if !bindings.taken_back.is_empty() {
            self.look_again = Some(now);
        }
        bindings
    }

    fn pass(
        &mut self,
        objects: &Objects,
        due: Vec<(&String, &Arc<Pod>)>,
        now: Timestamp,
        bindings: &mut Bindings,
    ) {
        let queue = self.queue(due);
        self.classes
            .forget(objects.pods.len(), |key| objects.pods.contains_key(key));
        self.nodes
            .forget(objects.nodes.len(), |name| objects.nodes.contains_key(name));
        let mut classes = std::mem::take(&mut self.classes);
        let settings = self.settings.clone();
        let pods = objects.pods.iter();
        let mut state = ClusterState::new(
            objects.nodes.values(),
            pods,
            &mut self.nodes,
            &mut classes,
            &settings,
        );
        for (key, pod, id) in queue {
            let (_, best) = state.find(key, id, nominated_node(pod));
            let chosen = best.first().copied();
            if let Some((at, node)) = chosen.and_then(|at| Some((at, state.nodes.get(at)?.name.clone()))) {
                state.bind(key, id, at);
                self.refused.remove(key);
                self.bindings += 1;
                bindings.bound.push((key.clone(), node));
                continue;
            }
            bindings.refused.push(key.clone());
            let Some(class) = state.classes.get(id) else {
                continue;
            };
            let needs_others = !class.affinity.is_empty() || !class.hard_spread.is_empty();
            let ends = nominated_node(pod).is_some() && nominated::ends_when_refused(class);
            self.events += u64::from(ends);
            let attempts = self.refused.get(key).map_or(0, |known| known.attempts) + 1;
            let refused = Refused {
                attempts,
                at: now,
                events: self.events,
                bindings: self.bindings,
                needs_others,
            };
            self.refused.insert(key.clone(), refused);
            if ends {
                bindings.taken_back.push(key.clone());
                break;
            }
        }
        drop(state);
        self.classes = classes;
    }

    /// The pods in the order in which they are tried.
    fn queue<'a>(
        &mut self,
        due: Vec<(&'a String, &'a Arc<Pod>)>,
    ) -> Vec<(&'a String, &'a Arc<Pod>, ClassId)> {
        let classes = &mut self.classes;
        let mut queue: Vec<_> = due
            .into_iter()
            .map(|(key, pod)| (key, pod, classes.of(key, pod)))
            .collect();
        queue.sort_by_cached_key(|(key, pod, id)| {
            let priority = classes.get(*id).map_or(0, |class| class.priority);
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (std::cmp::Reverse(priority), created, (*key).clone())
        });
        queue
    }
}
