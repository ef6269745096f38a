//! PodTopologySpread: what `DoNotSchedule` forbids, and what `ScheduleAnyway` and the scheduler's own constraints prefer.

use std::collections::{BTreeMap, BTreeSet};

use super::class::{Class, Constraint};
use super::cluster::{ClusterState, NodeState};
use super::filters::Static;
use super::selector::{is_empty, selects};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// How many pods each domain has, for every hard constraint of a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Vec<BTreeMap<String, i64>>);

fn has_all_keys(constraints: &[Constraint], node: &NodeState) -> bool {
    let mut constraints = constraints.iter();
    constraints.all(|one| node.labels.contains_key(&one.key))
}

/// Whether a node counts for a constraint.
const fn is_included(constraint: &Constraint, fixed: &Static) -> bool {
    (!constraint.honors_affinity || fixed.is_selected) && (!constraint.honors_taints || fixed.is_tolerated)
}

/// How many pods on a node a constraint is about: of the same namespace, selected, and not on their way out. A selector without
/// requirements counts none.
fn count(state: &ClusterState<'_>, class: &Class, constraint: &Constraint, node: &NodeState) -> i64 {
    if constraint.selector.as_ref().is_some_and(is_empty) {
        return 0;
    }
    let classes = node.classes.iter().filter(|(id, _)| {
        state.classes.get(**id).is_some_and(|other| {
            other.namespace == class.namespace && selects(constraint.selector.as_ref(), &other.labels)
        })
    });
    classes.map(|(_, count)| count.staying).sum()
}

impl Counts {
    pub(super) fn new(state: &ClusterState<'_>, class: &Class, statics: &[Static]) -> Self {
        let mut counts = vec![BTreeMap::new(); class.hard_spread.len()];
        if counts.is_empty() {
            return Self::default();
        }
        for (node, fixed) in state.nodes.iter().zip(statics) {
            if !has_all_keys(&class.hard_spread, node) {
                continue;
            }
            for (constraint, domains) in class.hard_spread.iter().zip(&mut counts) {
                if is_included(constraint, fixed)
                    && let Some(value) = node.labels.get(&constraint.key)
                {
                    *domains.entry(value.clone()).or_default() += count(state, class, constraint, node);
                }
            }
        }
        Self(counts)
    }

    /// Counts a pod that is nominated for a node.
    pub(super) fn add(&mut self, class: &Class, other: &Class, node: &NodeState, fixed: &Static) {
        if other.namespace != class.namespace || !has_all_keys(&class.hard_spread, node) {
            return;
        }
        for (constraint, domains) in class.hard_spread.iter().zip(&mut self.0) {
            if is_included(constraint, fixed)
                && selects(constraint.selector.as_ref(), &other.labels)
                && let Some(value) = node.labels.get(&constraint.key)
            {
                *domains.entry(value.clone()).or_default() += 1;
            }
        }
    }

    /// Whether no domain gets further ahead of the emptiest one than allowed.
    pub(super) fn passes(&self, class: &Class, node: &NodeState) -> bool {
        let mut constraints = class.hard_spread.iter().zip(&self.0);
        constraints.all(|(constraint, domains)| {
            let Some(value) = node.labels.get(&constraint.key) else {
                return false;
            };
            let too_few = i64::try_from(domains.len()).unwrap_or(i64::MAX) < constraint.min_domains;
            let least = domains.values().min().filter(|_| !too_few);
            let own = i64::from(selects(constraint.selector.as_ref(), &class.labels));
            let found = domains.get(value).copied().unwrap_or_default();
            found + own - least.copied().unwrap_or_default() <= constraint.max_skew
        })
    }
}

/// The score of each feasible node by the soft constraints, 0 to 100; nothing if there are none.
pub(super) fn scores(
    state: &ClusterState<'_>,
    class: &Class,
    statics: &[Static],
    feasible: &[usize],
) -> Option<Vec<i64>> {
    let constraints = &class.soft_spread;
    if constraints.is_empty() {
        return None;
    }
    // A pod's own constraints count only nodes that have all keys; the scheduler's own are less strict.
    let is_strict = !class.spread_by_default;
    let counts_at_all = |node: &NodeState| !is_strict || has_all_keys(constraints, node);
    let value = |node: &NodeState, key: &str| node.labels.get(key).cloned().unwrap_or_default();
    let nodes = || feasible.iter().filter_map(|at| state.nodes.get(*at));
    let scored = nodes().filter(|node| counts_at_all(node)).count();
    let mut domains: Vec<BTreeMap<String, i64>> = Vec::new();
    let mut weights: Vec<f64> = Vec::new();
    for constraint in constraints {
        let values: BTreeSet<String> = nodes()
            .filter(|node| constraint.key != HOSTNAME && counts_at_all(node))
            .map(|node| value(node, &constraint.key))
            .collect();
        let size = if constraint.key == HOSTNAME {
            scored
        } else {
            values.len()
        };
        weights.push(f64::from(u32::try_from(size + 2).unwrap_or(u32::MAX)).ln());
        domains.push(values.into_iter().map(|value| (value, 0)).collect());
    }
    for (node, fixed) in state
        .nodes
        .iter()
        .zip(statics)
        .filter(|(node, _)| counts_at_all(node))
    {
        for (constraint, domains) in constraints.iter().zip(&mut domains) {
            if is_included(constraint, fixed)
                && let Some(sum) = domains.get_mut(&value(node, &constraint.key))
            {
                *sum += count(state, class, constraint, node);
            }
        }
    }
    let raw: Vec<Option<i64>> = nodes()
        .map(|node| {
            if !counts_at_all(node) {
                return None;
            }
            let mut score = 0.0;
            for ((constraint, domains), weight) in constraints.iter().zip(&domains).zip(&weights) {
                let Some(value) = node.labels.get(&constraint.key) else {
                    continue;
                };
                let found = if constraint.key == HOSTNAME {
                    count(state, class, constraint, node)
                } else {
                    domains.get(value).copied().unwrap_or_default()
                };
                #[allow(clippy::cast_precision_loss, reason = "numbers of pods are small")]
                let part = found as f64 * weight + (constraint.max_skew - 1) as f64;
                score += part;
            }
            #[allow(clippy::cast_possible_truncation, reason = "numbers of pods are small")]
            let rounded = score.round() as i64;
            Some(rounded)
        })
        .collect();
    let most = raw.iter().flatten().copied().max().unwrap_or_default().max(0);
    let least = raw.iter().flatten().copied().min().unwrap_or_default();
    let normalized = raw.into_iter().map(|score| match score {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(score) => 100 * (most + least - score) / most,
    });
    Some(normalized.collect())
}
