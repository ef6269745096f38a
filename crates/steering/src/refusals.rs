//! Believes kube-scheduler where it disagrees with the simulation.
//!
//! The simulation knows the rules of kube-scheduler, but not its configuration, its plugins, or what its cache has not
//! seen yet. A pod that is expected on nodes which take pods, and that kube-scheduler still refuses after
//! [`PATIENCE`], is a fact: its class (the pods of its namespace that ask for and demand the same) is *refused*. For such pods every node that
//! has been ready for that long counts as full, and one extra node is launched for them.
//!
//! What that may cost is bounded. A class has at most one extra node that none of its pods has come to, all classes together have at most
//! [`MOST_EXTRA`], and after each one that did not help the pause doubles, up to [`LONGEST_PAUSE`]. An extra node says on its NodeClaim
//! for which class it is ([`veneer::REFUSED_CLASS`]), so the bound holds after a restart, too.
//!
//! Nothing in a pod says when kube-scheduler last looked at it (the time of its condition stays that of the first
//! refusal), so what counts is the time since the node took pods. While pods of the same class are still
//! being bound, kube-scheduler is busy and refuses nothing for good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeClaim;
use veneer_api::Pod;
use veneer_api::labels::veneer;
use veneer_engine::backoff::Backoff;
use veneer_engine::cluster::{Index, Machine};
use veneer_engine::lifecycle::is_ready;
use veneer_engine::packing::{Reason, scheduling_class};
use veneer_engine::plan::{
    Action, Announcement, Plan, Snapshot, Subject, Target, is_daemon_pod, is_deleting, is_terminal, name,
};
use veneer_engine::provision::{Place, Provisioned, is_provisionable, refusal};

/// How long a pod may be refused although nodes are open that it is expected on. kube-scheduler lets a pod that it has refused wait
/// for up to ten seconds before it looks again.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// After a pod of a class was bound, kube-scheduler is given this time for the next.
const BUSY: SignedDuration = SignedDuration::from_secs(5);

/// The longest pause between two extra nodes for one class.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// The pauses after extra nodes that did not help.
const PAUSES: Backoff = Backoff::doubling(Duration::from_secs(20), LONGEST_PAUSE.unsigned_abs());

/// How many extra nodes there may be at a time that no refused pod has come to, for all classes together.
pub const MOST_EXTRA: usize = 10;

/// How long it takes until a class is looked at again for which nothing had to be launched.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// A disagreement that was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// One of the pods, as `namespace/name`.
    pub pod: String,
    /// How many pods of its class wait.
    pub pods: usize,
    /// The node that it is expected on.
    pub node: String,
    /// What kube-scheduler says, as it says it.
    pub message: String,
}

/// A pod that is expected on a node that takes pods.
#[derive(Clone, Debug)]
struct Expected {
    class: u64,
    since: Timestamp,
    node: String,
}

/// Pods that kube-scheduler refuses on every node that they are expected on.
#[derive(Clone, Debug)]
struct Class {
    /// The uids of those that wait.
    pods: BTreeSet<String>,
    /// How many extra nodes have not helped, since one did.
    failed: u32,
    /// Before that, nothing is launched for it.
    next: Timestamp,
    /// When the extra node was ordered whose outcome is not known yet.
    ordered: Option<Timestamp>,
    /// When that node began to take pods.
    opened: Option<Timestamp>,
}

/// What is known of pods that kube-scheduler refuses.
#[derive(Debug, Default)]
pub struct Refusals {
    expected: BTreeMap<String, Expected>,
    /// When a pod of a class was last bound.
    bound: BTreeMap<u64, Timestamp>,
    classes: BTreeMap<u64, Class>,
}

/// A class whose turn it is.
#[derive(Debug)]
pub struct Turn {
    class: u64,
    /// Its pods, by uid.
    pub pods: BTreeSet<String>,
    /// The nodes that count as full for them.
    pub closed_nodes: BTreeSet<String>,
}

impl Refusals {
    /// Takes in what has become of pods since the last look: `demand` are those that need a place, `places` says where each is
    /// expected, `state` what that place is now. Gives the disagreements that are new.
    pub fn observe(
        &mut self,
        snapshot: &Snapshot,
        demand: &BTreeSet<String>,
        places: &BTreeMap<&str, &str>,
        state: impl Fn(&str) -> Place,
        plan: &mut Plan,
        now: Timestamp,
    ) -> Vec<Disagreement> {
        if places.is_empty() && self.expected.is_empty() && self.classes.is_empty() {
            return Vec::new();
        }
        let waiting: BTreeMap<&str, &Pod> = snapshot
            .pods
            .iter()
            .filter(|pod| is_provisionable(pod))
            .map(|pod| (uid(pod), &**pod))
            .collect();
        self.note_bound(snapshot, places, demand, now);
        self.bound.retain(|_, at| now.duration_since(*at) < BUSY);
        // Of pods that are spread, some may have to wait for nodes that are made for others of them.
        let mut on_their_way: BTreeSet<u64> = BTreeSet::new();
        for (pod, place) in places {
            let Some(found) = waiting.get(pod) else { continue };
            let known = self
                .expected
                .entry((*pod).to_owned())
                .or_insert_with(|| Expected {
                    class: scheduling_class(found),
                    since: now,
                    node: String::new(),
                });
            if state(place) == Place::Open {
                known.node = (*place).to_owned();
            } else {
                on_their_way.insert(known.class);
            }
        }
        let classes = &self.classes;
        self.expected.retain(|pod, known| {
            let is_refused = classes.contains_key(&known.class);
            if on_their_way.contains(&known.class) && !is_refused {
                known.since = now;
            }
            waiting.contains_key(pod.as_str()) && (places.contains_key(pod.as_str()) || is_refused)
        });
        let new = self.begin(&waiting, plan, now);
        self.gather(&waiting, now);
        let told = new
            .into_iter()
            .filter_map(|class| self.tell(class, &waiting, plan));
        told.collect()
    }

    /// Notes of which classes pods were bound since the last look.
    fn note_bound(
        &mut self,
        snapshot: &Snapshot,
        places: &BTreeMap<&str, &str>,
        demand: &BTreeSet<String>,
        now: Timestamp,
    ) {
        let known = places.keys().copied();
        let known = known.chain(self.expected.keys().map(String::as_str));
        let left: BTreeSet<&str> = known.filter(|pod| !demand.contains(*pod)).collect();
        if left.is_empty() {
            return;
        }
        let bound = snapshot.pods.iter().filter(|pod| node_of(pod).is_some());
        let bound = bound.filter(|pod| left.contains(uid(pod)));
        let bound: Vec<u64> = bound.map(|pod| scheduling_class(pod)).collect();
        self.bound.extend(bound.into_iter().map(|class| (class, now)));
    }

    /// The classes that are refused from now on.
    fn begin(&mut self, waiting: &BTreeMap<&str, &Pod>, plan: &mut Plan, now: Timestamp) -> Vec<u64> {
        let mut new: BTreeSet<u64> = BTreeSet::new();
        for (pod, known) in &self.expected {
            if self.classes.contains_key(&known.class) || !waiting.contains_key(pod.as_str()) {
                continue;
            }
            let patience = known.since.checked_add(PATIENCE).unwrap_or(now);
            let busy = self
                .bound
                .get(&known.class)
                .and_then(|at| at.checked_add(BUSY).ok());
            let due = busy.map_or(patience, |busy| busy.max(patience));
            if due <= now {
                new.insert(known.class);
            } else {
                plan.look_again(due);
            }
        }
        for class in &new {
            let begun = Class {
                pods: BTreeSet::new(),
                failed: 0,
                next: now,
                ordered: None,
                opened: None,
            };
            self.classes.insert(*class, begun);
        }
        new.into_iter().collect()
    }

    /// Finds the pods of the refused classes; classes without any are forgotten after a while.
    fn gather(&mut self, waiting: &BTreeMap<&str, &Pod>, now: Timestamp) {
        if self.classes.is_empty() {
            return;
        }
        for class in self.classes.values_mut() {
            class.pods.clear();
        }
        for (uid, pod) in waiting {
            let class = scheduling_class(pod);
            let Some(refused) = self.classes.get_mut(&class) else {
                continue;
            };
            refused.pods.insert((*uid).to_owned());
            // Also those that have just come: what holds for one of them holds for all.
            self.expected
                .entry((*uid).to_owned())
                .or_insert_with(|| Expected {
                    class,
                    since: now,
                    node: String::new(),
                });
        }
        self.classes.retain(|_, class| {
            let forget = class.next.checked_add(LONGEST_PAUSE).unwrap_or(now);
            !class.pods.is_empty() || (class.failed > 0 && now < forget)
        });
    }

    /// Says that a class is refused, on the pod that has waited longest.
    fn tell(&self, class: u64, waiting: &BTreeMap<&str, &Pod>, plan: &mut Plan) -> Option<Disagreement> {
        let refused = self.classes.get(&class)?;
        let first = self
            .expected
            .iter()
            .filter(|(_, known)| known.class == class)
            .min_by_key(|(_, known)| known.since);
        let (found, known) = first.and_then(|(pod, known)| Some((*waiting.get(pod.as_str())?, known)))?;
        let message = scheduler_message(found).unwrap_or_default().to_owned();
        let disagreement = Disagreement {
            pod: key(found),
            pods: refused.pods.len(),
            node: known.node.clone(),
            message,
        };
        plan.push(Action::Announce(Announcement {
            subject: Subject {
                api_version: "v1",
                kind: "Pod",
                target: Target::from(&found.metadata),
            },
            is_warning: true,
            reason: "SchedulerDisagrees",
            message: format!(
                "Expected on node {} for {} s, but kube-scheduler refuses it: {}. Launching an extra node ({} pods of this kind wait)",
                disagreement.node,
                PATIENCE.as_secs(),
                disagreement.message,
                disagreement.pods
            ),
        }));
        Some(disagreement)
    }

    /// The pods of refused classes, by uid.
    #[must_use]
    pub fn pods(&self) -> BTreeSet<String> {
        let classes = self.classes.values();
        classes.flat_map(|class| class.pods.iter().cloned()).collect()
    }

    /// The class for which an extra node may be launched now; says in `plan` when to look again if there is none yet.
    pub fn turn(
        &mut self,
        (snapshot, index): (&Snapshot, &Index<'_>),
        state: impl Fn(&str) -> Place,
        plan: &mut Plan,
        now: Timestamp,
    ) -> Option<Turn> {
        if self.classes.is_empty() {
            return None;
        }
        let extras = unused_extras(snapshot, index);
        let mut turn = None;
        for (id, class) in &mut self.classes {
            let has_helped = class
                .ordered
                .is_some_and(|ordered| self.bound.get(id).is_some_and(|at| *at >= ordered));
            let extra = extras.iter().find(|claim| class_of(claim) == Some(*id));
            if has_helped {
                class.failed = 0;
                class.next = now;
                class.ordered = None;
                class.opened = None;
            } else if let Some(extra) = extra {
                if state(name(&extra.metadata)) == Place::Open {
                    let opened = *class.opened.get_or_insert(now);
                    let patience = opened.checked_add(PATIENCE).unwrap_or(now);
                    if patience > now {
                        plan.look_again(patience);
                    } else if class.ordered.take().is_some() {
                        class.pause(now);
                    }
                }
            } else if class.ordered.take().is_some() {
                // It is gone, or others use it.
                class.opened = None;
                class.pause(now);
            }
            if class.pods.is_empty() || extra.is_some() {
                continue;
            }
            if class.next > now {
                plan.look_again(class.next);
            } else if turn.is_none() && extras.len() < MOST_EXTRA {
                class.next = now.checked_add(LOOK_AGAIN).unwrap_or(now);
                turn = Some((*id, class.pods.clone()));
            }
        }
        let (class, pods) = turn?;
        let nodes = snapshot.nodes.iter();
        let closed_nodes = nodes
            .filter(|node| is_ready_since(node, now))
            .map(|node| name(&node.metadata).to_owned());
        Some(Turn {
            class,
            pods,
            closed_nodes: closed_nodes.collect(),
        })
    }

    /// Keeps at most one new claim of what was decided for a class, and marks it: that of the pod which is placed first. Where
    /// pods are spread, only what comes first is sure to be allowed before the others have come.
    pub fn decided(&mut self, snapshot: &Snapshot, turn: &Turn, decided: &mut Provisioned, now: Timestamp) {
        let created: BTreeSet<String> = decided
            .plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::CreateClaim(claim) => Some(name(&claim.metadata).to_owned()),
                _ => None,
            })
            .collect();
        let pods = snapshot.pods.iter().filter(|pod| turn.pods.contains(uid(pod)));
        let pods = pods.filter_map(|pod| Some((pod, decided.expected.get(uid(pod))?)));
        let first = pods
            .filter(|(_, place)| created.contains(*place))
            .min_by_key(|(pod, _)| (pod.metadata.creation_timestamp.clone(), uid(pod)));
        let first = first.map(|(_, place)| place.clone());
        decided.plan.actions.retain_mut(|action| match action {
            Action::CreateClaim(claim) if Some(name(&claim.metadata)) == first.as_deref() => {
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(veneer::REFUSED_CLASS.to_owned(), format!("{:016x}", turn.class));
                true
            }
            // Which pods will come is not known, so nothing is told about them either.
            Action::CreateClaim(_) | Action::Announce(_) => false,
            _ => true,
        });
        let is_dropped = |place: &String| created.contains(place) && Some(place) != first.as_ref();
        decided.expected.retain(|_, place| !is_dropped(place));
        decided.nominations.retain(|place, _| !is_dropped(place));
        if let Some(class) = self.classes.get_mut(&turn.class).filter(|_| first.is_some()) {
            class.ordered = Some(now);
            class.opened = None;
        }
    }

    /// Why the pods of refused classes wait, by `namespace/name`.
    #[must_use]
    pub fn reasons(&self, snapshot: &Snapshot) -> BTreeMap<String, Vec<Reason>> {
        let pods = self.pods();
        let refused = snapshot.pods.iter().filter(|pod| pods.contains(uid(pod)));
        let reason = |pod: &Arc<Pod>| {
            let said = scheduler_message(pod).unwrap_or("no reason is given");
            let expected = self.expected.get(uid(pod)).map(|known| known.node.as_str());
            let expected = expected.filter(|node| !node.is_empty());
            let on = expected
                .map(|node| format!(" on node {node}"))
                .unwrap_or_default();
            let message = format!("expected{on}, but kube-scheduler refuses it: {said}");
            let reason = Reason {
                node_pool: None,
                message,
            };
            (key(pod), vec![reason])
        };
        refused.map(reason).collect()
    }
}

impl Class {
    /// Waits twice as long as the last time.
    fn pause(&mut self, now: Timestamp) {
        let pause = PAUSES.nth(self.failed);
        self.failed = self.failed.saturating_add(1);
        self.next = now.checked_add(pause).unwrap_or(now);
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn key(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    format!("{namespace}/{}", name(&pod.metadata))
}

fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// Why kube-scheduler says that a pod fits nowhere.
fn scheduler_message(pod: &Pod) -> Option<&str> {
    refusal(pod.status.as_deref())?.message.as_deref()
}

/// The class that a claim was made for, if it is an extra node.
fn class_of(claim: &NodeClaim) -> Option<u64> {
    let annotations = claim.metadata.annotations.as_ref()?;
    u64::from_str_radix(annotations.get(veneer::REFUSED_CLASS)?, 16).ok()
}

/// The extra nodes that no pod but those of DaemonSets has come to.
fn unused_extras<'a>(snapshot: &Snapshot, index: &Index<'a>) -> Vec<&'a Arc<NodeClaim>> {
    let mut extras: Vec<(&Arc<NodeClaim>, &Machine<'a>)> = index
        .claimed()
        .filter(|(claim, _)| class_of(claim).is_some() && !is_deleting(&claim.metadata))
        .collect();
    if extras.is_empty() {
        return Vec::new();
    }
    let pods = snapshot.pods.iter();
    let used: BTreeSet<&str> = pods
        .filter(|pod| !is_daemon_pod(pod) && !is_terminal(pod))
        .filter_map(|pod| node_of(pod))
        .collect();
    extras.retain(|(_, machine)| {
        let mut nodes = machine.nodes().iter();
        !nodes.any(|node| used.contains(name(&node.metadata)))
    });
    extras.into_iter().map(|(claim, _)| claim).collect()
}

/// Whether a node has been ready for so long that kube-scheduler has looked at it.
fn is_ready_since(node: &Node, now: Timestamp) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let ready = conditions
        .unwrap_or_default()
        .iter()
        .find(|one| one.type_ == "Ready");
    let since = ready.and_then(|one| Some(one.last_transition_time.as_ref()?.0));
    is_ready(node) && since.is_none_or(|since| now.duration_since(since) >= PATIENCE)
}
