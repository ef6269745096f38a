//! What stood between one pod and its node, recorded while the solver ran.
//!
//! At every attempt to place the pod, what each NodePool would make of a new node for it is worked out step by step,
//! in the state that the solver is in at that moment; the last attempt counts. The steps are computed apart from the
//! solver's own decision, which is kept beside them, so that a test can hold one against the other.

mod chain;
mod edit;
mod joined;
mod new_node;
mod obstacles;
mod on_nodes;
mod places;
mod wording;

pub(crate) use chain::Row;
pub use chain::{Constraint, Stage};
pub(crate) use edit::step;
pub use edit::{Edit, Measure, Rule};

use super::hash::FastMap;
use super::ids::{ShapeId, SizeId};
use super::model::Model;
use super::pods::PodEntry;
use super::solver::Solver;
use super::{Objects, Options, PodRecord, Problem, Results, pools, results};
use crate::bitset::BitSet;

/// One pod that is watched.
pub(super) struct Recording<'a> {
    position: usize,
    objects: &'a Objects,
    last: Option<Attempt>,
}

/// What was seen at the last attempt.
struct Attempt {
    shape: ShapeId,
    size: SizeId,
    pools: Vec<PoolProbe>,
    nodes: Vec<Stage>,
}

/// What a NodePool makes of a new node for the pod.
#[derive(Clone, Debug)]
pub(crate) struct PoolProbe {
    pub(crate) name: String,
    /// Each step begins with what the one before it has left.
    pub(crate) rows: Vec<Row>,
    /// The types that the solver itself would keep for a new node; none if it would refuse the pod.
    pub(crate) accepted: Option<BitSet>,
    /// Why the NodePool takes no part at all, if so.
    pub(crate) skipped: Option<String>,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) pools: Vec<PoolProbe>,
    /// For each node that refuses the pod, in the order in which they are tried, the first thing in the way.
    pub(crate) nodes: Vec<Stage>,
    /// How many nodes there are.
    pub(crate) nodes_asked: usize,
    /// The NodePool of the node that would be launched for it; what it leaves is what the whole node leaves.
    pub(crate) joined: Option<String>,
    /// What would have to change, per place that could take the pod; only where it goes nowhere.
    pub(crate) targets: Vec<Vec<Edit>>,
    /// The capacity type of each class of offerings.
    pub(crate) capacity_types: Vec<String>,
    /// For each class of offerings, the types that have one.
    pub(crate) offered: Vec<BitSet>,
}

/// Names of things, for constraints.
struct Who<'a> {
    pod: &'a PodRecord,
    objects: &'a Objects,
}

impl Who<'_> {
    fn pod(&self) -> String {
        let metadata = &self.pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        format!("Pod {namespace}/{}", metadata.name.as_deref().unwrap_or_default())
    }
}

/// Solves, and watches the pod at `position`.
pub(crate) fn probe(problem: &Problem<'_>, options: &Options<'_>, position: usize) -> (Results, Probe) {
    let mut solver = Solver::new(Model::new(problem, options), *options);
    solver.recording = Some(Recording {
        position,
        objects: problem.objects,
        last: None,
    });
    solver.run();
    let mut probe = finish(&mut solver, problem, position);
    let results = results::collect(solver, problem);
    // A node that keeps too few types to launch is given up after the run.
    let is_given_up = results.unschedulable.iter().any(|pod| pod.pod == position);
    if let Some(name) = probe.joined.take_if(|_| is_given_up)
        && let Some(pool) = probe.pools.iter_mut().find(|pool| pool.name == name)
    {
        new_node::give_up(pool, options.max_instance_types);
    }
    (results, probe)
}

/// Notes what stands in the way of an attempt, if its pod is the one that is watched.
pub(super) fn record(solver: &mut Solver<'_, '_>, entry: &PodEntry, shape: ShapeId) {
    let Some(recording) = solver.recording.take() else {
        return;
    };
    let mut recording = recording;
    if let Some(pod) = recording.objects.pods.get(entry.position)
        && recording.position == entry.position
    {
        let who = Who {
            pod,
            objects: recording.objects,
        };
        solver.prepare(shape);
        let ids: Vec<_> = solver.model.pools.ids().collect();
        let mut waits_for: Option<String> = None;
        let pools = ids
            .into_iter()
            .map(|pool| {
                let (mut probe, waits) = new_node::steps(solver, &who, pool, shape, entry.size);
                match &waits_for {
                    Some(other) => new_node::wait(&mut probe, other),
                    None => waits_for = waits.then(|| probe.name.clone()),
                }
                probe
            })
            .collect();
        recording.last = Some(Attempt {
            shape,
            size: entry.size,
            pools,
            nodes: on_nodes::refusals(solver, entry, shape),
        });
    }
    solver.recording = Some(recording);
}

/// Whether the pod is the one that is watched.
pub(super) fn is_watched(recording: Option<&Recording<'_>>, entry: &PodEntry) -> bool {
    recording.is_some_and(|recording| recording.position == entry.position)
}

fn finish(solver: &mut Solver<'_, '_>, problem: &Problem<'_>, position: usize) -> Probe {
    let mut probe = Probe {
        nodes_asked: solver.model.nodes.len(),
        ..Probe::default()
    };
    let last = solver.recording.take().and_then(|recording| recording.last);
    let Some((pod, attempt)) = problem.objects.pods.get(position).zip(last) else {
        return probe;
    };
    let who = Who {
        pod,
        objects: problem.objects,
    };
    probe.pools = attempt.pools;
    probe.nodes = attempt.nodes;
    let claim = solver
        .claims
        .ids()
        .find(|id| solver.claims[*id].pods.contains(&position));
    if let Some(claim) = claim {
        solver.prepare(attempt.shape);
        let name = solver.model.pools[solver.claims[claim].pool].name.clone();
        let rows = joined::steps(solver, &who, claim, attempt.shape, attempt.size);
        if let Some(pool) = probe.pools.iter_mut().find(|pool| pool.name == name) {
            pool.rows = rows;
            pool.accepted = Some(solver.claims[claim].types.clone());
        }
        probe.joined = Some(name);
    }
    for (at, node_pool) in problem.objects.node_pools.iter().enumerate() {
        let name = node_pool.metadata.name.clone().unwrap_or_default();
        if probe.pools.iter().all(|pool| pool.name != name) {
            probe.pools.push(match pools::absence(node_pool) {
                Some(why) => PoolProbe {
                    name,
                    rows: Vec::new(),
                    accepted: None,
                    skipped: Some(why),
                },
                None => new_node::without_types(solver, problem, at, name),
            });
        }
    }
    if solver.left_over.iter().any(|entry| entry.position == position) {
        probe.targets = obstacles::targets(solver, problem, &who, attempt.shape, attempt.size);
    }
    let types = &solver.model.types;
    let capacity_type = solver.model.states.vocabulary.get(crate::labels::CAPACITY_TYPE);
    for class in &types.classes {
        let value = capacity_type
            .and_then(|key| class.requirements.get(key))
            .and_then(crate::requirements::Requirement::single_value);
        let text = value.map_or("", |value| solver.model.states.vocabulary.text(value));
        probe.capacity_types.push(text.to_owned());
        probe.offered.push(class.types.clone());
    }
    probe
}

/// Positions by name, for sets that are looked up often.
type Known<K, V> = FastMap<K, V>;
