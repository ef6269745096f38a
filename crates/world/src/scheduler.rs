//! The kube-scheduler of the world: puts pods on nodes that are there, with the engine's own rules about what fits where.
//!
//! It is the packing solver without NodePools, so requests, taints, selectors, affinity, spread, host ports and volumes mean
//! the same as everywhere else. Like Karpenter's simulation, and unlike kube-scheduler's default scoring, it fills the first
//! node that fits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use veneer_api::NodePool;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::packing::{self, Problem, Readings};
use veneer_engine::plan::{is_deleting, is_terminal, name};
use veneer_engine::quantity::Quantity;
use veneer_engine::taints::is_of_start;

use crate::objects::{Objects, node_of};

/// Where pods go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// Pods and their nodes.
    pub bound: Vec<(String, String)>,
    /// Pods that fit nowhere.
    pub refused: Vec<String>,
}

/// Whether pods may be bound to a node at all.
#[must_use]
pub fn takes_pods(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let is_ready = conditions
        .unwrap_or_default()
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready && !is_deleting(&node.metadata) && !taints.unwrap_or_default().iter().any(is_of_start)
}

/// A pool that launches nothing, since there are no types: without any pool, the solver would not look at nodes at all.
fn barren(objects: &Objects) -> Option<NodePool> {
    let mut pool = objects.pools.values().next().map(|pool| NodePool::clone(pool))?;
    pool.status = None;
    pool.spec.replicas = None;
    Some(pool)
}

/// Nodes whose processors are too few for each of the pods that wait. Where rules between pods may count what runs there, none
/// is named.
fn full_nodes<'a>(
    objects: &'a Objects,
    nodes: &[&'a Arc<Node>],
    waiting: impl Iterator<Item = &'a Arc<Pod>>,
) -> HashSet<&'a str> {
    let mut least = i128::MAX;
    for pod in waiting {
        if has_rules(pod) {
            return HashSet::new();
        }
        least = least.min(cpu_of(pod));
    }
    let mut left: HashMap<&str, i128> = HashMap::with_capacity(nodes.len());
    for node in nodes {
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        let cpu = allocatable.and_then(|list| list.get("cpu")).and_then(nanos);
        left.insert(name(&node.metadata), cpu.unwrap_or(i128::MAX));
    }
    for pod in objects.pods.values().filter(|pod| !is_terminal(pod)) {
        let Some(node) = node_of(pod) else { continue };
        if keeps_others_away(pod) {
            return HashSet::new();
        }
        if let Some(left) = left.get_mut(node) {
            *left -= cpu_of(pod);
        }
    }
    left.into_iter()
        .filter(|(_, left)| *left < least)
        .map(|(node, _)| node)
        .collect()
}

fn nanos(quantity: &ApiQuantity) -> Option<i128> {
    quantity.0.parse::<Quantity>().ok()?.nanos()
}

/// The processors that the containers of a pod ask for; others may make it more.
fn cpu_of(pod: &Pod) -> i128 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|one| one.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    requests.filter_map(nanos).map(|cpu| cpu.max(0)).sum()
}

fn has_rules(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        let affinity = spec.affinity.as_ref();
        let spread = spec.topology_spread_constraints.as_ref();
        affinity.is_some_and(|one| one.pod_affinity.is_some() || one.pod_anti_affinity.is_some())
            || spread.is_some_and(|spread| !spread.is_empty())
    })
}

fn keeps_others_away(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    affinity.is_some_and(|one| one.pod_anti_affinity.is_some())
}

/// The scheduler, with what it has read of the pods.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// It buys nothing.
    empty: Arc<Catalogue>,
    readings: Readings,
}

impl Scheduler {
    /// One that knows the words of a catalogue.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let empty = Catalogue {
            vocabulary: catalogue.vocabulary.clone(),
            rules: catalogue.rules.clone(),
            types: Vec::new(),
        };
        Self {
            empty: Arc::new(empty),
            readings: Readings::default(),
        }
    }

    /// Tries every pod that is on no node.
    pub(crate) fn schedule(&mut self, objects: &Objects) -> Bindings {
        let pods = objects.pods.iter();
        let waits = |(_, pod): &(&String, &Arc<Pod>)| {
            node_of(pod).is_none() && !is_deleting(&pod.metadata) && !is_terminal(pod)
        };
        let waiting: Vec<&String> = pods.clone().filter(waits).map(|(key, _)| key).collect();
        if waiting.is_empty() {
            return Bindings::default();
        }
        let open: Vec<&Arc<Node>> = objects.nodes.values().filter(|node| takes_pods(node)).collect();
        let full = full_nodes(objects, &open, pods.clone().filter(waits).map(|(_, pod)| pod));
        let is_full = |node: &str| full.contains(node);
        let nodes: Vec<Arc<Node>> = open
            .into_iter()
            .filter(|node| !is_full(name(&node.metadata)))
            .map(Arc::clone)
            .collect();
        if nodes.is_empty() {
            return Bindings {
                bound: Vec::new(),
                refused: waiting.into_iter().cloned().collect(),
            };
        }
        let (keys, pods): (Vec<&String>, Vec<&Arc<Pod>>) = pods
            .filter(|one| node_of(one.1).is_some_and(|node| !is_full(node)) || waits(one))
            .unzip();
        let problem = packing::Objects {
            nodes,
            pods: self.readings.take(pods.into_iter()),
            node_pools: barren(objects).into_iter().collect(),
            daemon_sets: objects.daemon_sets.values().map(|set| (**set).clone()).collect(),
            ..packing::Objects::default()
        };
        let solved = packing::solve(
            &Problem::from_objects(&problem, &self.empty),
            &packing::Options::default(),
        );
        let mut bindings = Bindings::default();
        for node in &solved.existing_nodes {
            let pods = node.pods.iter().filter_map(|at| keys.get(*at));
            let pods = pods.map(|key| ((*key).clone(), node.name.clone()));
            bindings.bound.extend(pods);
        }
        let refused = solved.unschedulable.iter().filter_map(|one| keys.get(one.pod));
        bindings.refused.extend(refused.map(|key| (*key).clone()));
        self.readings.keep(problem.pods);
        bindings
    }
}
