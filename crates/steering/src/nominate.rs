//! Tells kube-scheduler which node each pod was launched for, before that node takes pods.
//!
//! Without it, kube-scheduler spreads whatever waits over whatever has come so far, and pods for which a node was made
//! find no room on any. It looks at the nominated node of a pod first, and when it looks at any node it counts the pods
//! that are nominated for that node (of the same or a higher priority) as if they were there: for resources, host ports, anti-affinity
//! and topology spread. A pod has to fit with and without them. What follows from that:
//!
//! - The pods of one node fit there together, so nominations hold room and never exceed it. That is so for everything
//!   but topology spread with `DoNotSchedule`: what is allowed there depends on what has come to the *other* nodes, and
//!   sixteen pods that are nominated for one node forbid each other to go there. A pod that such a constraint
//!   counts is not nominated.
//! - kube-scheduler takes a nomination back when the pod fits nowhere, and then looks at every other pod again, as if a pod had
//!   been deleted; each of those looks costs it a request, of which it has 50 a second. So a pod is nominated for a node at
//!   most once before that node takes pods, and at most once afterwards.
//! - A nomination is room that others cannot have, so one that is not what is expected any more is withdrawn.
//!
//! kube-scheduler nominates pods itself while it makes room for them by preemption, and such pods are left to it. It can
//! forget them, though: when the last victim goes while it still counts the preemption as running, no event brings the pod back into its
//! queue for five minutes. So a nomination of its own that nothing follows from is withdrawn, too: that makes it look again, and the
//! pod counts as waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Pod;
use veneer_api::labels::veneer;
use veneer_engine::cluster::{Index, Machine};
use veneer_engine::packing::Selector;
use veneer_engine::plan::{Action, Plan, Snapshot, Target, is_deleting, is_terminal, name};
use veneer_engine::provision::{Batch, Place, is_provisionable, preempts_on};

/// How long a nomination is given to be seen before it is repeated.
const SEEN: SignedDuration = SignedDuration::from_secs(1);

/// How long kube-scheduler is given to place a pod after the last of its victims has gone: it lets a pod wait for up to ten
/// seconds before it looks again.
const PREEMPTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// What kube-scheduler was told about a pod.
#[derive(Debug)]
struct Told {
    /// None if a nomination was withdrawn.
    node: Option<String>,
    at: Timestamp,
    /// Whether the node took pods already.
    was_open: bool,
}

/// What is kept between two looks, by the uid of the pod.
#[derive(Debug, Default)]
pub struct Memory {
    /// What kube-scheduler was told last.
    told: BTreeMap<String, Told>,
    /// The node on which kube-scheduler makes room for a pod, and since when no pod has been leaving it.
    preempting: BTreeMap<String, (String, Timestamp)>,
}

/// The nominations that are missing, and those that are to be withdrawn.
#[must_use]
pub fn decide(
    (snapshot, index): (&Snapshot, &Index<'_>),
    batch: &Batch,
    place_of: impl Fn(&str) -> Place,
    memory: &mut Memory,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    withdraw_stalled_preemptions(snapshot, memory, &mut plan, now);
    let places = batch.places();
    let waiting = || snapshot.pods.iter().filter(|pod| is_provisionable(pod));
    if places.is_empty() && !waiting().any(|pod| nominated(pod).is_some()) {
        memory.told.clear();
        return plan;
    }
    let node_of = nodes_by_place(index);
    let hard_spreads = hard_spreads(snapshot);
    let mut known = BTreeMap::new();
    for pod in waiting() {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let before = memory.told.remove_entry(uid);
        let told = before.as_ref().map(|(_, told)| told);
        let place = places.get(uid);
        let expected = place.and_then(|place| node_of.get(place)).copied();
        let is_open = expected.is_some_and(|node| place_of(node) == Place::Open);
        let seen = nominated(pod);
        // What was taken back is an answer: where the node does not take pods yet, until it does, and afterwards for good.
        let is_answered = |told: &Told| {
            let is_taken_back = if is_open { told.was_open } else { seen.is_none() };
            is_taken_back && told.node.as_deref() == expected
        };
        let is_answered = told.is_some_and(is_answered);
        let is_harmless = may_be_nominated(pod) && !hard_spreads.iter().any(|spread| spread.counts(pod));
        let wanted = expected.filter(|node| is_harmless && (!is_answered || seen == Some(*node)));
        // Another process that also believes that it leads would change it back at once, for ever.
        let is_changed = |told: &Told| told.node.as_deref() == wanted || told.node.as_deref() != seen;
        let again = told
            .filter(|told| is_changed(told))
            .and_then(|told| told.at.checked_add(SEEN).ok());
        match again.filter(|again| *again > now) {
            _ if seen == wanted => {}
            Some(again) => plan.look_again(again),
            None => {
                let told = Told {
                    node: wanted.map(ToOwned::to_owned),
                    at: now,
                    was_open: is_open,
                };
                known.insert(uid.to_owned(), told);
                plan.push(Action::Nominate {
                    pod: Target::from(&pod.metadata),
                    node: wanted.map(ToOwned::to_owned),
                });
                continue;
            }
        }
        known.extend(before);
    }
    memory.told = known;
    plan
}

/// Withdraws nominations of kube-scheduler's own for nodes that no pod has been leaving for a while.
fn withdraw_stalled_preemptions(snapshot: &Snapshot, memory: &mut Memory, plan: &mut Plan, now: Timestamp) {
    let preempting = snapshot
        .pods
        .iter()
        .filter_map(|pod| Some((pod, preempts_on(pod)?)));
    let preempting: Vec<_> = preempting.collect();
    if preempting.is_empty() {
        memory.preempting.clear();
        return;
    }
    let leaving = snapshot.pods.iter().filter(|pod| is_deleting(&pod.metadata));
    let being_left: BTreeSet<&str> = leaving
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    let mut known = BTreeMap::new();
    for (pod, node) in preempting {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let before = memory.preempting.remove(uid);
        let stalled = before.filter(|(other, _)| other == node && !being_left.contains(node));
        let since = stalled.map_or(now, |(_, since)| since);
        let due = since.checked_add(PREEMPTION_TIMEOUT).unwrap_or(Timestamp::MAX);
        let is_due = due <= now;
        if is_due {
            plan.push(Action::Nominate {
                pod: Target::from(&pod.metadata),
                node: None,
            });
        } else {
            plan.look_again(due);
        }
        // What was written is given the same time to be seen.
        known.insert(
            uid.to_owned(),
            (node.to_owned(), if is_due { now } else { since }),
        );
    }
    memory.preempting = known;
}

/// Pods that kube-scheduler was told the node that they are still believed to come to, by uid, with that node.
#[must_use]
pub fn standing(
    snapshot: &Snapshot,
    index: &Index<'_>,
    batch: &Batch,
    now: Timestamp,
) -> BTreeMap<String, String> {
    let told = snapshot.pods.iter().filter(|pod| is_provisionable(pod));
    let told: BTreeMap<&str, &str> = told
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, nominated(pod)?)))
        .collect();
    if told.is_empty() {
        return BTreeMap::new();
    }
    let node_of = nodes_by_place(index);
    let believed = batch.believed(now);
    believed
        .filter(|(pod, place)| {
            let node = node_of.get(place);
            node.is_some() && told.get(pod) == node
        })
        .filter_map(|(pod, place)| Some((pod.to_owned(), (*node_of.get(place)?).to_owned())))
        .collect()
}

/// The names of nodes that stay, by their own names and by those of their claims.
fn nodes_by_place<'a>(index: &Index<'a>) -> BTreeMap<&'a str, &'a str> {
    let stays = |node: &&&'a Arc<Node>| !is_deleting(&node.metadata);
    let mut node_of: BTreeMap<&str, &str> = index
        .claimed()
        .filter_map(|(claim, machine)| {
            let node = machine.nodes().iter().find(stays)?;
            Some((name(&claim.metadata), name(&node.metadata)))
        })
        .collect();
    let nodes = index.machines().iter().flat_map(Machine::nodes);
    node_of.extend(
        nodes
            .filter(stays)
            .map(|node| (name(&node.metadata), name(&node.metadata))),
    );
    node_of
}

/// Which pods a constraint with `DoNotSchedule` counts.
struct HardSpread<'a> {
    namespace: Option<&'a str>,
    label_selector: Option<&'a LabelSelector>,
    selector: Selector,
}

impl HardSpread<'_> {
    fn counts(&self, pod: &Pod) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        pod.metadata.namespace.as_deref() == self.namespace
            && self
                .selector
                .selects(pod.metadata.labels.as_ref().unwrap_or(&NONE))
    }
}

/// The constraints with `DoNotSchedule` of the pods that wait. `matchLabelKeys` would make them count fewer pods, and is
/// overlooked.
fn hard_spreads(snapshot: &Snapshot) -> Vec<HardSpread<'_>> {
    let mut spreads: Vec<HardSpread<'_>> = Vec::new();
    for pod in &snapshot.pods {
        let Some(spec) = &pod.spec else { continue };
        let is_bound = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
        let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
        if is_bound || constraints.is_empty() || is_terminal(pod) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref();
        for constraint in constraints
            .iter()
            .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
        {
            let label_selector = constraint.label_selector.as_ref();
            let is_known = |known: &HardSpread<'_>| {
                known.namespace == namespace && known.label_selector == label_selector
            };
            if !spreads.iter().any(is_known) {
                spreads.push(HardSpread {
                    namespace,
                    label_selector,
                    selector: Selector::new(label_selector, &[]),
                });
            }
        }
    }
    spreads
}

/// The node that the scheduler was told to expect a pod on.
fn nominated(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(veneer::NOMINATED).map(String::as_str)
}

/// Whether the scheduler takes a nomination back when the pod does not fit. Of one that may not preempt others it keeps
/// it, and with it the room.
fn may_be_nominated(pod: &Pod) -> bool {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.preemption_policy.as_deref());
    policy != Some("Never")
}
