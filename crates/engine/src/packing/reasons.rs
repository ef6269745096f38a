//! Why a pod goes nowhere, NodePool by NodePool.
//!
//! Worked out once the run is over, for each kind of pod that is left: nothing is placed after its last attempt, so
//! what stands in the way now is what stood in the way then.

use std::collections::BTreeSet;

use super::amounts::add;
use super::hash::FastMap;
use super::ids::{PoolId, ShapeId, SizeId, StateId};
use super::model::Model;
use super::pods::PodEntry;
use super::pools::min_values_unmet;
use super::results::Reason;
use super::solver::Solver;
use super::states::{Merge, Side};
use super::topology::Unsatisfied;
use super::{MinValuesPolicy, ReservedMode, Unschedulable};
use crate::bitset::BitSet;
use crate::resources::ResourceList;
use crate::taints::{describe, untolerated};

/// Longer reasons are cut.
const MAX_MESSAGE: usize = 2_000;
/// What pods are told that were not decided about.
const HELD: &str = "the pods of this namespace take too long to decide about, so other namespaces went first and this pod was not \
                    decided about; it will be when fewer pods of the namespace wait, or have fewer affinity terms and spreads";

/// What pods are told that go nowhere, where finding out why takes too long.
const UNEXPLAINED: &str = "nothing takes the pod as it is; why is not worked out, since that takes too long for the pods of this namespace: \
                           they have too many affinity terms and spreads";

/// Explains every pod that is left over.
pub(super) fn explain(solver: &mut Solver<'_, '_>) -> Vec<Unschedulable> {
    let left_over = std::mem::take(&mut solver.left_over);
    let undecided: BTreeSet<ShapeId> = left_over.iter().map(|entry| entry.shape).collect();
    let undecided: BTreeSet<ShapeId> = undecided
        .into_iter()
        .filter(|shape| solver.is_held(*shape))
        .collect();
    let mut known: FastMap<(ShapeId, SizeId), Vec<Reason>> = FastMap::default();
    left_over
        .into_iter()
        .map(|entry| {
            let key = (entry.shape, entry.size);
            let reasons = known
                .entry(key)
                .or_insert_with(|| reasons(solver, &entry, undecided.contains(&entry.shape)))
                .clone();
            Unschedulable {
                pod: entry.position,
                reasons,
            }
        })
        .collect()
}

/// The reasons for one kind; what finding them out costs is counted like everything else.
fn reasons(solver: &mut Solver<'_, '_>, entry: &PodEntry, is_undecided: bool) -> Vec<Reason> {
    solver.begin_to_explain(entry.shape);
    let reasons = found_out(solver, entry, is_undecided);
    solver.end_to_explain(entry.shape);
    reasons
}

fn found_out(solver: &mut Solver<'_, '_>, entry: &PodEntry, is_undecided: bool) -> Vec<Reason> {
    let mut shape = entry.shape;
    let left_out = solver.model.shapes[shape].form.base().left_out.describe();
    let left_out = left_out.map(|message| Reason {
        node_pool: None,
        message,
    });
    if solver.is_held(shape) {
        let message = if is_undecided { HELD } else { UNEXPLAINED }.to_owned();
        let held = Reason {
            node_pool: None,
            message,
        };
        return left_out.into_iter().chain([held]).collect();
    }
    while let Some(relaxed) = solver.relaxed(shape) {
        shape = relaxed;
    }
    solver.prepare(shape);
    let mut reasons: Vec<Reason> = left_out.into_iter().collect();
    for pool in solver.model.pools.ids() {
        reasons.push(Reason {
            node_pool: Some(solver.model.pools[pool].name.clone()),
            message: cut(why_not(solver, pool, shape, entry.size)),
        });
    }
    let idle = solver.model.idle_pools.iter();
    reasons.extend(idle.map(|(name, why)| Reason {
        node_pool: Some(name.clone()),
        message: why.clone(),
    }));
    if reasons.iter().all(|reason| reason.node_pool.is_none()) {
        let message = "no existing node takes it and there is no NodePool that can launch one".to_owned();
        reasons.push(Reason {
            node_pool: None,
            message,
        });
    }
    reasons
}

/// Every pod of a kind has its reasons, and demands may be long.
fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = message.floor_char_boundary(MAX_MESSAGE);
        message.truncate(end);
        message.push('…');
    }
    message
}

/// What keeps a pod from a new claim of `pool`; the first obstacle in the order in which they are looked at.
fn why_not(solver: &mut Solver<'_, '_>, pool: PoolId, shape: ShapeId, size: SizeId) -> String {
    if solver.model.pools[pool].limits.nodes_exhausted() {
        return "its limit on the number of nodes is used up".to_owned();
    }
    let mut within = solver.model.pools[pool].types.clone();
    solver.model.pools[pool].limits.keep_within(&mut within);
    if within.is_empty() {
        return "every instance type would exceed what its limits leave".to_owned();
    }
    let host = solver.model.first_claim_host + solver.claims.len();
    let Model {
        pools,
        shapes,
        taints,
        states,
        topology,
        ..
    } = &mut solver.model;
    let shape_now = &shapes[shape];
    let taints = untolerated(taints.get(pools[pool].taints), shape_now.form.tolerations());
    if !taints.is_empty() {
        let names: Vec<String> = taints.into_iter().map(describe).collect();
        return format!("the pod does not tolerate {}", names.join(", "));
    }
    if let Some(unsatisfied) = topology.unsatisfied_host(&solver.checks, host) {
        return rule(&unsatisfied, states.vocabulary.text(unsatisfied.key));
    }
    let template = pools[pool].template;
    let base = match states.merge(template, shape_now.requirements, Side::Claim) {
        Merge::Into(base) => base,
        _ => {
            return match states.conflict(template, shape_now.requirements, Side::Claim) {
                Some(incompatible) => incompatible.describe(&states.vocabulary),
                None => "its requirements and the pod's exclude each other".to_owned(),
            };
        }
    };
    let mut last = "no place that the pod's volumes can be in is possible here".to_owned();
    let alternatives: Vec<Option<StateId>> = match shape_now.volumes.as_ref() {
        [] => vec![None],
        volumes => volumes.iter().copied().map(Some).collect(),
    };
    for volumes in alternatives {
        let Model { states, topology, .. } = &mut solver.model;
        let with_volumes = match volumes.map(|volumes| states.merge(base, volumes, Side::Claim)) {
            None => base,
            Some(Merge::Into(with_volumes)) => with_volumes,
            Some(_) => continue,
        };
        last = match topology.narrow(&solver.checks, with_volumes, Side::Claim, 0, states) {
            Ok(narrowed) => no_types(solver, pool, narrowed.state, shape, size, &within),
            Err(unsatisfied) => rule(&unsatisfied, states.vocabulary.text(unsatisfied.key)),
        };
    }
    last
}

fn rule(unsatisfied: &Unsatisfied, key: &str) -> String {
    let whose = if unsatisfied.of_other_pod {
        "of another pod "
    } else {
        ""
    };
    format!(
        "{} {whose}by {key} leaves no domain for it",
        unsatisfied.kind.describe()
    )
}

/// Why none of `within` is left for a pod of `size` in `state`.
fn no_types(
    solver: &mut Solver<'_, '_>,
    pool: PoolId,
    state: StateId,
    shape: ShapeId,
    size: SizeId,
    within: &BitSet,
) -> String {
    let Model {
        pools,
        sizes,
        shapes,
        states,
        types,
        dimensions,
        ..
    } = &mut solver.model;
    let pool = &pools[pool];
    let mut compatible = types.compatible(states.get(state), &states.vocabulary);
    compatible.intersect_with(within);
    let left = types.left(state, states);
    let mut offered = types.offered(&left.classes);
    offered.intersect_with(within);
    let mut fits = BitSet::empty(types.count());
    let mut free_ports = BitSet::empty(types.count());
    let mut largest_overhead = ResourceList::new();
    for group in &pool.daemons {
        if super::host_ports::conflict(&shapes[shape].ports, &group.ports).is_some() {
            continue;
        }
        free_ports.union_with(&group.types);
        let mut of_group = within.clone();
        of_group.intersect_with(&group.types);
        let mut needed = sizes[size].amounts.clone();
        add(&mut needed, &group.overhead);
        pool.sizes.keep_fitting(&mut of_group, &needed);
        fits.union_with(&of_group);
        if group.requests.len() > largest_overhead.len() {
            largest_overhead = group.requests.clone();
        }
    }
    if free_ports.is_empty() {
        return "a DaemonSet takes the host port that the pod needs on every instance type".to_owned();
    }
    let mut requests = dimensions.list(&sizes[size].amounts, &sizes[size].named);
    requests.add(&largest_overhead);
    let mut all = compatible.clone();
    all.intersect_with(&offered);
    all.intersect_with(&fits);
    if !all.is_empty() {
        return beyond_types(solver, state, &all);
    }
    let requirements = states.get(state).describe(&states.vocabulary);
    let asks = format!("asks for {}, DaemonSets included", in_words(&requests));
    let mut missing: Vec<String> = Vec::new();
    if compatible.is_empty() {
        missing.push(format!("agrees with the requirements ({requirements})"));
    }
    if fits.is_empty() {
        missing.push(format!("is large enough (the pod {asks})"));
    }
    if offered.is_empty() {
        missing.push("has an available offering that agrees with them".to_owned());
    }
    if missing.is_empty() {
        missing.push(format!(
            "agrees with the requirements ({requirements}), has an available offering and is large enough (the pod {asks}) at once"
        ));
    }
    format!("no instance type {}", missing.join(", and none "))
}

fn in_words(list: &ResourceList) -> String {
    let parts: Vec<String> = list
        .iter()
        .map(|(name, quantity)| format!("{name} {quantity}"))
        .collect();
    parts.join(", ")
}

/// What stands in the way although types are left: `minValues` or reservations.
fn beyond_types(solver: &mut Solver<'_, '_>, state: StateId, left: &BitSet) -> String {
    let Model { states, types, .. } = &mut solver.model;
    let unmet = min_values_unmet(left, states.get(state), types);
    if solver.options.min_values == MinValuesPolicy::Strict && !unmet.is_empty() {
        let names: Vec<String> = unmet
            .iter()
            .map(|(key, found)| format!("{} has {found} values", states.vocabulary.text(*key)))
            .collect();
        return format!("minValues is not met: {}", names.join(", "));
    }
    if solver.options.reserved == ReservedMode::Strict && !types.reserved.is_empty() {
        return "reserved capacity would do, but all of it is taken for now".to_owned();
    }
    "nothing that a later attempt could not change".to_owned()
}
