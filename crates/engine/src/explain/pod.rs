//! Where a pod goes, or why it does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::smallest_change::{self, Change};
use super::waterfall::{Names, Waterfall};
use crate::packing::probe::{self, Edit, Stage};
use crate::packing::{NewNodeClaim, Objects, Options, PodRecord, Problem, Reason, Results};

/// Where a pod goes.
#[derive(Clone, Debug)]
pub enum Placement {
    /// It runs already.
    Running {
        /// The node it runs on.
        node: String,
    },
    /// A node that exists takes it.
    Existing {
        /// The node's name, or that of the claim.
        node: String,
    },
    /// A new node is launched.
    New(Box<NewNodeClaim>),
}

/// Where a pod goes, or why it does not.
#[derive(Clone, Debug)]
pub struct PodExplanation {
    /// None if it goes nowhere.
    pub placement: Option<Placement>,
    /// Why it goes nowhere, one for each NodePool.
    pub reasons: Vec<Reason>,
    /// What each NodePool leaves of the catalogue for it, in the order in which they are tried. For the NodePool of
    /// its new node: what is left for all pods of that node together.
    pub waterfalls: Vec<Waterfall>,
    /// How many existing nodes there are.
    pub nodes: usize,
    /// How many of them refuse it, by the first thing that stands in the way.
    pub refusing_nodes: BTreeMap<Stage, usize>,
    /// The smallest change that schedules it, if it goes nowhere and one was found.
    pub smallest_change: Option<Change>,
    /// What stands in the way of each place that could take it, nearest first.
    pub targets: Vec<Vec<Edit>>,
    /// The run of the solver; positions in it are those of the objects that were given.
    pub results: Results,
}

/// Explains the pod at `position`. One that runs is explained as if it were pending and its place free.
#[must_use]
pub fn pod(problem: &Problem<'_>, options: &Options<'_>, position: usize) -> PodExplanation {
    let mut explanation = placement_of(problem, options, position);
    if explanation.placement.is_none() {
        let (results, targets) = (&explanation.results, &explanation.targets);
        explanation.smallest_change = smallest_change::find(problem, options, position, targets, results);
    }
    explanation
}

/// The same without the search for a change, which takes several runs of the solver.
#[must_use]
pub fn placement_of(problem: &Problem<'_>, options: &Options<'_>, position: usize) -> PodExplanation {
    let explanation = explain(problem, options, position);
    let given = problem.objects().pods.get(position);
    let Some(node) = given.and_then(|pod| pod.node_name.clone()) else {
        return explanation;
    };
    // A pod whose node goes away is in play, node or not.
    let is_in_play = explanation.placement.is_some() || !explanation.waterfalls.is_empty() || {
        let mut refused = explanation.results.unschedulable.iter();
        refused.any(|pod| pod.pod == position)
    };
    if is_in_play {
        return explanation;
    }
    let mut objects: Objects = problem.objects().clone();
    if let Some(pod) = objects.pods.get_mut(position) {
        release(pod);
    }
    let mut explanation = explain(&problem.with_objects(&objects), options, position);
    explanation.placement = Some(Placement::Running {
        node: node.to_string(),
    });
    explanation
}

/// Makes a running pod pending.
fn release(pod: &mut PodRecord) {
    pod.node_name = None;
    if let Some(status) = &mut pod.status {
        Arc::make_mut(status).phase = None;
    }
}

fn explain(problem: &Problem<'_>, options: &Options<'_>, position: usize) -> PodExplanation {
    let (results, probe) = probe::probe(problem, options, position);
    let names = Names::new(problem.catalogue());
    let waterfalls = probe
        .pools
        .iter()
        .map(|pool| Waterfall::new(pool, &probe, &names))
        .collect();
    let placement = placement(&results, position);
    let refused = results.unschedulable.iter().find(|pod| pod.pod == position);
    let reasons = match (&placement, refused) {
        (None, Some(refused)) => refused.reasons.clone(),
        (None, None) => vec![Reason {
            node_pool: None,
            message: out_of_play(problem.objects().pods.get(position)),
        }],
        _ => Vec::new(),
    };
    let mut refusing_nodes: BTreeMap<Stage, usize> = BTreeMap::new();
    for stage in &probe.nodes {
        *refusing_nodes.entry(*stage).or_default() += 1;
    }
    PodExplanation {
        placement,
        reasons,
        waterfalls,
        nodes: probe.nodes_asked,
        refusing_nodes,
        smallest_change: None,
        targets: probe.targets,
        results,
    }
}

fn placement(results: &Results, position: usize) -> Option<Placement> {
    let existing = results
        .existing_nodes
        .iter()
        .find(|node| node.pods.contains(&position));
    if let Some(node) = existing {
        return Some(Placement::Existing {
            node: node.name.clone(),
        });
    }
    let mut claims = results.new_node_claims.iter();
    let claim = claims.find(|claim| claim.pods.contains(&position))?;
    Some(Placement::New(Box::new(claim.clone())))
}

/// Why the scheduler does not look at a pod at all.
fn out_of_play(pod: Option<&PodRecord>) -> String {
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
    if let Some(gate) = gates.and_then(|gates| gates.first()) {
        return format!("spec.schedulingGates holds it back ({})", gate.name);
    }
    let status = pod.and_then(|pod| pod.status.as_ref());
    if let Some(node) = status.and_then(|status| status.nominated_node_name.as_deref()) {
        return format!("status.nominatedNodeName says that it waits for room on node {node}");
    }
    let phase = status.and_then(|status| status.phase.as_deref());
    if let Some(phase @ ("Failed" | "Succeeded")) = phase {
        return format!("it has ended (status.phase {phase})");
    }
    let owner = pod.and_then(|pod| pod.metadata.owner_references.as_ref()?.first());
    match owner {
        Some(owner) => format!(
            "it belongs to {} {}, for which no node is launched",
            owner.kind, owner.name
        ),
        None => "no run of the scheduler looks at it".to_owned(),
    }
}
