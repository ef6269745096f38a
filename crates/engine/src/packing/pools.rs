//! NodePools that can launch: what their claims start from.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use veneer_api::labels::karpenter;
use veneer_api::{CONDITION_READY, ConditionStatus, NodePool, find_condition};

use super::amounts::{Amount, Dimensions, amount};
use super::cluster::NODES;
use super::daemons::DaemonGroup;
use super::ids::{StateId, TaintsId};
use super::pod_requests::resource_list;
use super::states::States;
use super::types::{Ladder, Sizes, Types, capacity_row};
use super::{MinValuesPolicy, Problem};
use crate::bitset::BitSet;
use crate::quantity::Quantity;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::ResourceList;
use crate::vocabulary::{Symbol, Vocabulary};

/// A NodePool that can launch.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    /// Its position in [`super::Objects::node_pools`].
    pub(super) position: usize,
    /// What a new claim demands.
    pub(super) template: StateId,
    pub(super) taints: TaintsId,
    /// The types that the template leaves.
    pub(super) types: BitSet,
    pub(super) sizes: Arc<Sizes>,
    pub(super) daemons: Vec<DaemonGroup>,
    /// The least that DaemonSets take on any of its types.
    pub(super) least_overhead: Vec<Amount>,
    pub(super) limits: Limits,
}

/// What a NodePool may still launch.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// The rest of each limited resource, with what each type has of it.
    resources: Vec<(String, Amount, Ladder)>,
}

impl Limits {
    /// The limits that `list` states, for types with the capacity they have in the NodePool at `position`.
    pub(super) fn new(list: &ResourceList, position: usize, problem: &Problem<'_>) -> Self {
        let ladder = |resource| Ladder::new(capacity_row(problem, position, resource));
        Self {
            resources: list
                .iter()
                .map(|(name, limit)| (name.to_owned(), amount(limit), ladder(name)))
                .collect(),
        }
    }

    /// Counts a node that exists.
    pub(super) fn take_node(&mut self, capacity: impl FnOnce() -> ResourceList) {
        if self.resources.is_empty() {
            return;
        }
        let capacity = capacity();
        for (name, remaining, _) in &mut self.resources {
            *remaining -= capacity.get(name).map_or(0, amount);
        }
    }

    /// What is left of each resource, to be put back later.
    pub(super) fn left(&self) -> Vec<Amount> {
        self.resources
            .iter()
            .map(|(_, remaining, _)| *remaining)
            .collect()
    }

    /// Puts back what [`Limits::left`] said.
    pub(super) fn put_back(&mut self, left: &[Amount]) {
        for ((_, remaining, _), left) in self.resources.iter_mut().zip(left) {
            *remaining = *left;
        }
    }

    /// Counts a node no longer.
    pub(super) fn give_back(&mut self, capacity: &ResourceList) {
        for (name, remaining, _) in &mut self.resources {
            *remaining += capacity.get(name).map_or(0, amount);
        }
    }

    /// Counts a claim that may become any of `types`, pessimistically.
    pub(super) fn take_claim(&mut self, types: &BitSet) {
        for (_, remaining, ladder) in &mut self.resources {
            *remaining -= ladder.largest(types);
        }
    }

    /// Whether the number of nodes is used up.
    pub(super) fn nodes_exhausted(&self) -> bool {
        self.resources
            .iter()
            .any(|(name, remaining, _)| name == NODES && *remaining == 0)
    }

    /// Whether as many nodes may be launched as one likes.
    pub(super) fn is_unlimited(&self) -> bool {
        self.resources.is_empty()
    }

    /// Each limited resource, what is left of it, and the types that stay within.
    pub(super) fn each(&self, types: usize) -> impl Iterator<Item = (&str, Quantity, BitSet)> {
        self.resources.iter().map(move |(name, remaining, ladder)| {
            let mut within = BitSet::full(types);
            ladder.keep_at_most(&mut within, *remaining);
            (name.as_str(), Quantity::from_nanos(*remaining), within)
        })
    }

    /// Each limited resource, what is left of it, and what every type has of it.
    pub(super) fn rows(&self) -> Vec<(String, Amount, Vec<Amount>)> {
        let rows = self.resources.iter();
        rows.map(|(name, remaining, ladder)| (name.clone(), *remaining, ladder.row().to_vec()))
            .collect()
    }

    /// Removes the types that would exceed a limit.
    pub(super) fn keep_within(&self, set: &mut BitSet) {
        for (_, remaining, ladder) in &self.resources {
            ladder.keep_at_most(set, *remaining);
        }
    }
}

/// The NodePools that take part, by position, in the order in which they are tried.
pub(super) fn in_order(node_pools: &[NodePool]) -> Vec<(usize, &NodePool)> {
    let mut pools: Vec<(usize, &NodePool)> = node_pools
        .iter()
        .enumerate()
        .filter(|(_, pool)| takes_part(pool))
        .collect();
    let key = |pool: &NodePool| (pool.spec.weight.unwrap_or(0), pool.metadata.name.clone());
    pools.sort_by_key(|(_, pool)| std::cmp::Reverse(key(pool)));
    pools
}

fn takes_part(pool: &NodePool) -> bool {
    absence(pool).is_none()
}

/// Why a NodePool takes no part, if so. Files rarely state conditions, so one counts as ready unless it says otherwise.
pub(super) fn absence(pool: &NodePool) -> Option<String> {
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready =
        find_condition(conditions, CONDITION_READY).is_none_or(|ready| ready.status == ConditionStatus::True);
    if pool.metadata.deletion_timestamp.is_some() {
        Some("it is being deleted".to_owned())
    } else if pool.spec.replicas.is_some() {
        Some("it has spec.replicas, so it launches nothing for pods".to_owned())
    } else if !ready {
        Some("its condition Ready is not True".to_owned())
    } else {
        None
    }
}

/// The requirements and template labels of a NodePool, without what the provisioner adds.
pub(super) fn own_requirements(pool: &NodePool, vocabulary: &mut Vocabulary) -> Requirements {
    let template = &pool.spec.template;
    let mut requirements = Requirements::new();
    for requirement in &template.spec.requirements {
        let operator = requirement.operator.as_str().parse().unwrap_or(Operator::In);
        requirements.add_selector(
            &requirement.key,
            operator,
            &requirement.values,
            requirement.min_values,
            vocabulary,
        );
    }
    for (key, value) in &template.metadata.labels {
        requirements.add_selector(key, Operator::In, &[value], None, vocabulary);
    }
    requirements
}

/// What a new claim of the NodePool demands.
pub(super) fn template(pool: &NodePool, states: &mut States) -> StateId {
    let mut requirements = own_requirements(pool, &mut states.vocabulary);
    let class = &pool.spec.template.spec.node_class_ref;
    let class_key = format!("{}/{}", class.group, class.kind.to_lowercase());
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    for (key, value) in [
        (karpenter::NODEPOOL, name),
        (class_key.as_str(), class.name.as_str()),
        // DaemonSets may ask for these, and every node has them in the end.
        (karpenter::REGISTERED, "true"),
        (karpenter::INITIALIZED, "true"),
    ] {
        requirements.add_selector(key, Operator::In, &[value], None, &mut states.vocabulary);
    }
    requirements.add(
        states.hostname,
        Requirement::one_of([states.placeholder]),
        &states.vocabulary,
    );
    states.intern(requirements)
}

/// The limits as quantities; one that cannot be read allows nothing.
pub(super) fn limits(pool: &NodePool) -> ResourceList {
    resource_list(&pool.spec.limits).unwrap_or_default()
}

/// The taints of the NodePool's nodes.
pub(super) fn taints(pool: &NodePool) -> &[Taint] {
    &pool.spec.template.spec.taints
}

/// The types that a template leaves before any pod, or none if `minValues` cannot be met.
pub(super) fn template_types(
    template: StateId,
    sizes: &Sizes,
    policy: MinValuesPolicy,
    types: &mut Types,
    states: &States,
) -> BitSet {
    let mut set = types.left(template, states).types.clone();
    sizes.keep_fitting(&mut set, &[]);
    let unmet = min_values_unmet(&set, states.get(template), types);
    if !unmet.is_empty() && policy == MinValuesPolicy::Strict {
        return BitSet::empty(types.count());
    }
    set
}

/// The labels whose `minValues` the types of `set` do not meet, each with the number of values there are.
pub(super) fn min_values_unmet(
    set: &BitSet,
    requirements: &Requirements,
    types: &mut Types,
) -> Vec<(Symbol, i64)> {
    let mut unmet = Vec::new();
    if set.is_empty() {
        // Karpenter looks at types one by one, so with none left nothing is found missing.
        return unmet;
    }
    for (key, requirement) in requirements.iter() {
        let Some(minimum) = requirement.min_values() else {
            continue;
        };
        let mut values: Vec<Symbol> = Vec::new();
        for (shape, with_shape) in types.shapes(key) {
            if with_shape.intersects(set) {
                values.extend(shape.values());
            }
        }
        values.sort_unstable();
        values.dedup();
        let found = i64::try_from(values.len()).unwrap_or(i64::MAX);
        if found < minimum {
            unmet.push((key, found));
        }
    }
    unmet
}

/// The least of each resource over the groups.
pub(super) fn least_overhead(groups: &[DaemonGroup], dimensions: &Dimensions) -> Vec<Amount> {
    let mut least = groups.first().map_or_else(
        || vec![0; dimensions.names().len()],
        |group| group.overhead.clone(),
    );
    for group in groups {
        for (cell, other) in least.iter_mut().zip(&group.overhead) {
            *cell = (*cell).min(*other);
        }
    }
    least
}
