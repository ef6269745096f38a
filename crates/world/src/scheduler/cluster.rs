//! The nodes with what is on them, and where one pod may go and should go.
//!
//! A [`ClusterState`] is made once for a pass and kept up to date as pods are bound. Between pods everything is counted by
//! class: a node knows how many pods of each it has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSelector, Taint};
use veneer_api::Pod;
use veneer_engine::plan::{is_deleting, is_terminal, name};

use super::class::{Class, ClassId, Classes, HostPort, Owner, nominated_node, waits};
use super::filters::{Static, has_ports, has_room};
use super::nominated;
use super::resources::Resources;
use super::selector::Labels;
use super::{affinity, score, spread};
use crate::objects::{node_of, pod_key};

/// How many pods of one class are on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// All of them.
    pub(super) all: i64,
    /// Those that are not on their way out.
    pub(super) staying: i64,
}

/// A node as the scheduler reads it.
#[derive(Debug)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) is_unschedulable: bool,
    pub(super) allocatable: Resources,
    pub(super) max_pods: i64,
}

/// Nodes that were read before, by name. The node is kept, so that a changed one is another one in memory.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<String, (Arc<Node>, Arc<NodeFacts>)>);

impl Nodes {
    fn read(&mut self, node: &Arc<Node>) -> NodeState {
        let known = self.0.get(name(&node.metadata));
        let known = known.filter(|(known, _)| Arc::ptr_eq(known, node));
        let facts = known.map(|(_, facts)| Arc::clone(facts));
        let facts = facts.unwrap_or_else(|| {
            let facts = Arc::new(NodeFacts::new(node));
            let entry = (Arc::clone(node), Arc::clone(&facts));
            self.0.insert(facts.name.clone(), entry);
            facts
        });
        NodeState {
            facts,
            requested: Resources::default(),
            compared: (0, 0),
            pods: 0,
            ports: Vec::new(),
            classes: BTreeMap::new(),
        }
    }

    /// Forgets nodes that are no more, if they have become many beside those that are there.
    pub(super) fn forget(&mut self, there: usize, exists: impl Fn(&str) -> bool) {
        if self.0.len() > 2 * there + 100 {
            self.0.retain(|name, _| exists(name));
        }
    }
}

/// A node and what is taken of it.
#[derive(Clone, Debug)]
pub(super) struct NodeState {
    facts: Arc<NodeFacts>,
    pub(super) requested: Resources,
    /// Processors and memory as they are compared, with defaults for containers that ask for none.
    pub(super) compared: (i64, i64),
    pub(super) pods: i64,
    pub(super) ports: Vec<HostPort>,
    pub(super) classes: BTreeMap<ClassId, Count>,
}

impl Deref for NodeState {
    type Target = NodeFacts;

    fn deref(&self) -> &NodeFacts {
        &self.facts
    }
}

impl NodeFacts {
    fn new(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let mut taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let is_unready =
            |one: &k8s_openapi::api::core::v1::NodeCondition| one.type_ == "Ready" && one.status != "True";
        if conditions.unwrap_or_default().iter().any(is_unready) {
            // The node lifecycle controller, which the world has not, would have put it there.
            taints.push(Taint {
                key: "node.kubernetes.io/not-ready".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            });
        }
        let mut allocatable = Resources::of_list(status.and_then(|status| status.allocatable.as_ref()));
        let max_pods = allocatable.other.remove("pods").unwrap_or_default();
        Self {
            name: name(&node.metadata).to_owned(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints,
            is_unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            allocatable,
            max_pods,
        }
    }
}

impl NodeState {
    /// Adds a pod.
    pub(super) fn add(&mut self, id: ClassId, class: &Class, stays: bool) {
        self.requested.add(&class.requests);
        self.compared.0 += class.compared.0;
        self.compared.1 += class.compared.1;
        self.pods += 1;
        self.ports.extend(class.ports.iter().cloned());
        let count = self.classes.entry(id).or_default();
        count.all += 1;
        count.staying += i64::from(stays);
    }
}

/// What becomes of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Nodes that all filters let it on, by name. Of a pod that fits the node that it is nominated for, only that one.
    pub feasible: Vec<String>,
    /// Those of them with the best score; kube-scheduler takes any, the world takes the first.
    pub best: Vec<String>,
    /// Whether it stays nominated even when it fits nowhere.
    pub keeps_nomination: bool,
}

/// What the scheduler is told beside nodes and pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// What every pod must satisfy beside its own affinity (`addedAffinity` of kube-scheduler's NodeAffinityArgs).
    pub added_affinity: Option<NodeSelector>,
    /// Whether a refused pod waits one second before it is tried again, then two, and so on up to ten. kube-scheduler does
    /// so while other pods wait; since 1.33 it tries them earlier when it has nothing else to do.
    pub back_off: bool,
    /// Labels of namespaces. Each also has its name as `kubernetes.io/metadata.name`.
    pub namespaces: BTreeMap<String, Labels>,
}

/// The cluster as one pass of the scheduler sees it.
#[derive(Debug)]
pub(super) struct ClusterState<'a> {
    pub(super) nodes: Vec<NodeState>,
    by_name: BTreeMap<String, usize>,
    pub(super) classes: &'a mut Classes,
    settings: &'a Settings,
    /// Pods that are nominated for a node, with their names.
    pub(super) nominated: BTreeMap<usize, BTreeMap<String, ClassId>>,
    statics: BTreeMap<ClassId, Arc<Vec<Static>>>,
    /// Classes of which pods without a nomination were refused since the last change.
    refused: BTreeSet<ClassId>,
}

impl<'a> ClusterState<'a> {
    /// Reads nodes and pods.
    pub(super) fn new<'b>(
        nodes: impl Iterator<Item = &'b Arc<Node>>,
        pods: impl Iterator<Item = (&'b String, &'b Arc<Pod>)>,
        known: &mut Nodes,
        classes: &'a mut Classes,
        settings: &'a Settings,
    ) -> Self {
        let nodes: Vec<NodeState> = nodes.map(|node| known.read(node)).collect();
        let names = nodes.iter().enumerate();
        let by_name = names.map(|(at, node)| (node.name.clone(), at)).collect();
        let mut state = Self {
            nodes,
            by_name,
            classes,
            settings,
            nominated: BTreeMap::new(),
            statics: BTreeMap::new(),
            refused: BTreeSet::new(),
        };
        for (key, pod) in pods.filter(|(_, pod)| !is_terminal(pod)) {
            if let Some(node) = node_of(pod) {
                if let Some(at) = state.by_name.get(node).copied() {
                    let id = state.classes.of(key, pod);
                    if let (Some(node), Some(class)) = (state.nodes.get_mut(at), state.classes.get(id)) {
                        node.add(id, class, !is_deleting(&pod.metadata));
                    }
                }
            } else if waits(pod)
                && let Some(at) = nominated_node(pod)
                    .and_then(|node| state.by_name.get(node))
                    .copied()
            {
                let id = state.classes.of(key, pod);
                state.nominated.entry(at).or_default().insert(key.clone(), id);
            }
        }
        state
    }

    /// What holds for a class on each node, worked out once in a pass.
    pub(super) fn statics(&mut self, id: ClassId) -> Arc<Vec<Static>> {
        if let Some(known) = self.statics.get(&id) {
            return Arc::clone(known);
        }
        let Some(class) = self.classes.get(id) else {
            return Arc::default();
        };
        let added = self.settings.added_affinity.as_ref();
        let nodes = self.nodes.iter();
        let statics: Arc<Vec<Static>> = Arc::new(nodes.map(|node| Static::new(class, node, added)).collect());
        self.statics.insert(id, Arc::clone(&statics));
        statics
    }

    /// The labels of a namespace.
    pub(super) fn namespace_labels(&self, namespace: &str) -> Labels {
        let known = self.settings.namespaces.get(namespace);
        let mut labels = known.cloned().unwrap_or_default();
        labels.insert("kubernetes.io/metadata.name".to_owned(), namespace.to_owned());
        labels
    }

    /// Where a pod may go, and where it should.
    pub(super) fn decide(&mut self, pod: &Arc<Pod>) -> Decision {
        let key = pod_key(pod);
        let id = self.classes.of(&key, pod);
        let nodes = self.find(&key, id, nominated_node(pod));
        let names = |chosen: &[usize]| -> Vec<String> {
            let nodes = chosen.iter().filter_map(|at| self.nodes.get(*at));
            nodes.map(|node| node.name.clone()).collect()
        };
        Decision {
            feasible: names(&nodes.0),
            best: names(&nodes.1),
            keeps_nomination: self
                .classes
                .get(id)
                .is_some_and(|class| !nominated::ends_when_refused(class)),
        }
    }

    /// The nodes that a pod of a class fits on, and the best of them.
    pub(super) fn find(
        &mut self,
        key: &str,
        id: ClassId,
        nominated_for: Option<&str>,
    ) -> (Vec<usize>, Vec<usize>) {
        let none = || (Vec::new(), Vec::new());
        let Some(class) = self.classes.get(id).cloned() else {
            return none();
        };
        if class.waits_for_claim || (nominated_for.is_none() && self.refused.contains(&id)) {
            return none();
        }
        let statics = self.statics(id);
        let attempt = Attempt {
            spread: spread::Counts::new(self, &class, &statics),
            affinity: affinity::Counts::new(self, &class),
            state: self,
            class: &class,
            statics: &statics,
            key,
        };
        let first = nominated_for.and_then(|node| attempt.state.by_name.get(node));
        if let Some(at) = first.copied().filter(|at| attempt.passes(*at)) {
            return (vec![at], vec![at]);
        }
        let feasible: Vec<usize> = (0..attempt.state.nodes.len())
            .filter(|at| attempt.passes(*at))
            .collect();
        if feasible.is_empty() && nominated_for.is_none() {
            self.refused.insert(id);
        }
        if feasible.len() < 2 {
            return (feasible.clone(), feasible);
        }
        let best = score::best(self, &class, &statics, &feasible);
        (feasible, best)
    }

    /// Puts a pod on a node.
    pub(super) fn bind(&mut self, key: &str, id: ClassId, at: usize) {
        self.take_back(key);
        if let (Some(node), Some(class)) = (self.nodes.get_mut(at), self.classes.get(id)) {
            node.add(id, class, true);
        }
    }

    /// Forgets what a pod is nominated for.
    pub(super) fn take_back(&mut self, key: &str) {
        self.refused.clear();
        for pods in self.nominated.values_mut() {
            pods.remove(key);
        }
    }
}

/// One pod that looks for a node.
pub(super) struct Attempt<'a, 'b> {
    pub(super) state: &'a ClusterState<'b>,
    pub(super) class: &'a Class,
    pub(super) key: &'a str,
    statics: &'a [Static],
    spread: spread::Counts,
    /// Absent when no rule between pods is about this one.
    affinity: Option<affinity::Counts>,
}

impl Attempt<'_, '_> {
    /// Whether all filters let the pod on a node, with and without the pods that are nominated for it.
    fn passes(&self, at: usize) -> bool {
        let Some((node, fixed)) = self.state.nodes.get(at).zip(self.statics.get(at)) else {
            return false;
        };
        if !fixed.passes() || !self.passes_with(node, &self.spread, self.affinity.as_ref()) {
            return false;
        }
        let others = nominated::others(self, at);
        if others.is_empty() {
            return true;
        }
        let mut node = node.clone();
        let mut spread = self.spread.clone();
        let mut affinity = self.affinity.clone();
        for id in others {
            let Some(other) = self.state.classes.get(id) else {
                continue;
            };
            node.add(id, other, true);
            spread.add(self.class, other, &node, fixed);
            if let Some(affinity) = &mut affinity {
                affinity.add(self.state, self.class, other, &node);
            }
        }
        self.passes_with(&node, &spread, affinity.as_ref())
    }

    fn passes_with(
        &self,
        node: &NodeState,
        spread: &spread::Counts,
        affinity: Option<&affinity::Counts>,
    ) -> bool {
        has_room(self.class, node)
            && has_ports(self.class, node)
            && spread.passes(self.class, node)
            && affinity.is_none_or(|counts| counts.passes(self.state, self.class, node))
    }
}

/// A cluster of its own, for whoever wants to ask about a single pod: nodes, pods, and what spreads pods by default.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Arc<Node>>,
    pods: BTreeMap<String, Arc<Pod>>,
    classes: Classes,
    settings: Settings,
}

impl Cluster {
    /// One without nodes and pods.
    #[must_use]
    pub fn new(settings: Settings, owners: Vec<Owner>) -> Self {
        Self {
            nodes: Vec::new(),
            pods: BTreeMap::new(),
            classes: Classes::new(owners),
            settings,
        }
    }

    /// Adds a node, or takes over a changed one.
    pub fn put_node(&mut self, node: Node) {
        self.nodes
            .retain(|known| known.metadata.name != node.metadata.name);
        self.nodes.push(Arc::new(node));
    }

    /// Adds a pod, or takes over a changed one.
    pub fn put_pod(&mut self, pod: Pod) {
        self.pods.insert(pod_key(&pod), Arc::new(pod));
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, key: &str) {
        self.pods.remove(key);
    }

    /// Where a pod may go, and where it should.
    pub fn decide(&mut self, pod: &Arc<Pod>) -> Decision {
        let pods = self.pods.iter();
        let (nodes, known) = (self.nodes.iter(), &mut Nodes::default());
        ClusterState::new(nodes, pods, known, &mut self.classes, &self.settings).decide(pod)
    }
}
