//! Where pods could go at all, one shape at a time.

use super::super::amounts::Amount;
use super::super::ids::{Id, NodeId, ShapeId, StateId};
use super::super::model::Model;
use super::super::pools::Pool;
use super::super::solver::Solver;
use super::super::states::{Merge, Side, States};
use super::super::topology::ForcedSpread;
use crate::bitset::BitSet;
use crate::vocabulary::Symbol;

/// The offerings of one NodePool that could take a pod: some types, bought in some ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    pub(super) pool: usize,
    pub(super) types: BitSet,
    pub(super) classes: BitSet,
}

/// A label and one value of it.
pub(super) type Domain = (Symbol, Symbol);

/// Where a pod could go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reach {
    pub(super) choices: Vec<Choice>,
    pub(super) nodes: BitSet,
}

/// Where pods of `shape` could go, with every demand that could be relaxed taken as relaxed;
/// only `within` a domain, if one is given.
pub(super) fn reach(
    solver: &mut Solver<'_, '_>,
    shape: ShapeId,
    check_nodes: bool,
    within: Option<Domain>,
) -> Reach {
    let nodes = solver.model.nodes.len();
    let mut reach = Reach {
        choices: Vec::new(),
        nodes: if check_nodes {
            BitSet::empty(nodes)
        } else {
            BitSet::full(nodes)
        },
    };
    let mut next = Some(shape);
    while let Some(shape) = next {
        let Model {
            states,
            types,
            taints,
            shapes,
            pools,
            nodes,
            labels_may_appear,
            ..
        } = &mut solver.model;
        let shape_of = &mut shapes[shape];
        for (at, pool) in pools.iter().enumerate() {
            if !shape_of
                .tolerated
                .ask(taints, pool.taints, shape_of.form.tolerations())
            {
                continue;
            }
            let (of_types, classes) = match states.merge(pool.template, shape_of.requirements, Side::Claim) {
                Merge::Into(state) => {
                    let Some(state) = narrowed(states, state, within) else {
                        continue;
                    };
                    let left = types.left(state, states);
                    let mut of_types = left.types.clone();
                    of_types.intersect_with(&pool.types);
                    (of_types, left.classes.clone())
                }
                Merge::Undefined(_) if *labels_may_appear => {
                    (pool.types.clone(), BitSet::full(types.classes.len()))
                }
                _ => continue,
            };
            let choice = Choice {
                pool: at,
                types: of_types,
                classes,
            };
            if !reach.choices.contains(&choice) {
                reach.choices.push(choice);
            }
        }
        for at in (0..nodes.len()).filter(|_| check_nodes) {
            let node = &nodes[NodeId::new(at)];
            if reach.nodes.contains(at)
                || !shape_of
                    .tolerated
                    .ask(taints, node.taints, shape_of.form.tolerations())
            {
                continue;
            }
            match states.merge(node.state, shape_of.requirements, Side::Node) {
                Merge::Into(_) if allows(states, node.state, within) => reach.nodes.insert(at),
                Merge::Undefined(_) if *labels_may_appear => reach.nodes.insert(at),
                _ => {}
            }
        }
        next = solver.relaxed(shape);
    }
    reach
}

/// Whether something in `state` could be in a domain.
fn allows(states: &States, state: StateId, within: Option<Domain>) -> bool {
    within.is_none_or(|(key, value)| {
        let requirement = states.get(state).get(key);
        requirement.is_none_or(|allowed| allowed.has(value, &states.vocabulary))
    })
}

/// `state` within a domain; none if it cannot be there.
fn narrowed(states: &mut States, state: StateId, within: Option<Domain>) -> Option<StateId> {
    if !allows(states, state, within) {
        return None;
    }
    Some(within.map_or(state, |(key, value)| states.narrow(state, key, &[value])))
}

/// What the rules of pods of a shape force on every placement, however far it is relaxed.
#[derive(Clone, Debug, Default)]
pub(super) struct Forced {
    /// The most of them that one host can have.
    pub(super) most_on_host: Option<usize>,
    /// Domains that each get a share of them.
    pub(super) spread: Option<ForcedSpread>,
}

pub(super) fn forced(solver: &mut Solver<'_, '_>, shape: ShapeId) -> Forced {
    let strict = solver.model.shapes[shape].strict;
    let mut last = shape;
    let mut is_stable = true;
    while let Some(next) = solver.relaxed(last) {
        is_stable &= solver.model.shapes[next].strict == strict;
        last = next;
    }
    let Model {
        shapes,
        topology,
        states,
        ..
    } = &mut solver.model;
    let shape_of = &shapes[last];
    Forced {
        most_on_host: topology.most_on_host(&shape_of.owned),
        spread: topology
            .forced_spread(&shape_of.owned, strict, states)
            .filter(|_| is_stable && shape_of.volumes.is_empty()),
    }
}

/// The kinds that have a choice for which `takes` holds.
pub(super) fn takers(reaches: &[Reach], takes: impl Fn(&Choice) -> bool) -> Vec<usize> {
    reaches
        .iter()
        .enumerate()
        .filter(|(_, reach)| reach.choices.iter().any(&takes))
        .map(|(kind, _)| kind)
        .collect()
}

/// The types of `set` on which `needed` fits beside the DaemonSets.
pub(super) fn fitting(pool: &Pool, set: &BitSet, needed: &[Amount]) -> BitSet {
    let mut all = BitSet::empty(set.words().len() * 64);
    for group in &pool.daemons {
        let mut of_group = set.clone();
        of_group.intersect_with(&group.types);
        let with_overhead: Vec<Amount> = needed
            .iter()
            .zip(&group.overhead)
            .map(|(needed, overhead)| needed.saturating_add(*overhead))
            .collect();
        pool.sizes.keep_fitting(&mut of_group, &with_overhead);
        all.union_with(&of_group);
    }
    all
}
