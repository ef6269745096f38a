//! InterPodAffinity: what required affinity and anti-affinity forbid, in both directions, and what preferred terms prefer.

use std::collections::BTreeMap;

use super::class::{Class, Term};
use super::cluster::{ClusterState, NodeState};

/// How much a required affinity term of a pod that runs attracts a pod that it means.
const REQUIRED_WEIGHT: i64 = 1;

/// Numbers by topology key and value.
type Domains = BTreeMap<(String, String), i64>;

fn note(domains: &mut Domains, key: &str, node: &NodeState, amount: i64) {
    if let Some(value) = node.labels.get(key) {
        *domains.entry((key.to_owned(), value.clone())).or_default() += amount;
    }
}

fn found(domains: &Domains, key: &str, value: &str) -> i64 {
    let pair = (key.to_owned(), value.to_owned());
    domains.get(&pair).copied().unwrap_or_default()
}

/// Whether pods of a class match each of the terms.
fn means_all(state: &ClusterState<'_>, terms: &[Term], class: &Class) -> bool {
    let labels = state.namespace_labels(&class.namespace);
    !terms.is_empty() && terms.iter().all(|term| term.of_new_pod_means(class, &labels))
}

/// Where the pods are that matter for a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Pods that keep this one away.
    keep_away: Domains,
    /// Pods that match all of its required affinity terms.
    near: Domains,
    /// Pods that match its required anti-affinity terms.
    far: Domains,
}

impl Counts {
    /// Nothing if no rule is about this pod. kube-scheduler then does not look at nominated pods for this either.
    pub(super) fn new(state: &ClusterState<'_>, class: &Class) -> Option<Self> {
        let has_terms = !class.affinity.is_empty() || !class.anti_affinity.is_empty();
        let is_watched = state
            .classes
            .all()
            .iter()
            .any(|other| !other.anti_affinity.is_empty());
        if !has_terms && !is_watched {
            return None;
        }
        let mut counts = Self::default();
        for node in &state.nodes {
            for (id, count) in &node.classes {
                if let Some(other) = state.classes.get(*id) {
                    counts.add_many(state, class, other, node, count.all);
                }
            }
        }
        (has_terms || !counts.keep_away.is_empty()).then_some(counts)
    }

    /// Counts a pod that is nominated for a node.
    pub(super) fn add(&mut self, state: &ClusterState<'_>, class: &Class, other: &Class, node: &NodeState) {
        self.add_many(state, class, other, node, 1);
    }

    fn add_many(
        &mut self,
        state: &ClusterState<'_>,
        class: &Class,
        other: &Class,
        node: &NodeState,
        amount: i64,
    ) {
        if !other.anti_affinity.is_empty() {
            let labels = state.namespace_labels(&class.namespace);
            for term in other
                .anti_affinity
                .iter()
                .filter(|term| term.means(class, &labels))
            {
                note(&mut self.keep_away, &term.key, node, amount);
            }
        }
        if means_all(state, &class.affinity, other) {
            for term in &class.affinity {
                note(&mut self.near, &term.key, node, amount);
            }
        }
        if !class.anti_affinity.is_empty() {
            let labels = state.namespace_labels(&other.namespace);
            let terms = class.anti_affinity.iter();
            for term in terms.filter(|term| term.of_new_pod_means(other, &labels)) {
                note(&mut self.far, &term.key, node, amount);
            }
        }
    }

    /// Whether the pod may go to a node.
    pub(super) fn passes(&self, state: &ClusterState<'_>, class: &Class, node: &NodeState) -> bool {
        let mut is_near = true;
        for term in &class.affinity {
            let Some(value) = node.labels.get(&term.key) else {
                return false;
            };
            is_near &= found(&self.near, &term.key, value) > 0;
        }
        // The first of pods that want to be together may go anywhere.
        let is_first = self.near.is_empty() && means_all(state, &class.affinity, class);
        if !is_near && !is_first {
            return false;
        }
        let is_far = class.anti_affinity.iter().all(|term| {
            let value = node.labels.get(&term.key);
            value.is_none_or(|value| found(&self.far, &term.key, value) <= 0)
        });
        let mut keep_away = self.keep_away.iter();
        is_far && keep_away.all(|((key, value), count)| *count <= 0 || node.labels.get(key) != Some(value))
    }
}

/// The score of each feasible node by preferred terms, 0 to 100; nothing if there are none that matter.
pub(super) fn scores(state: &ClusterState<'_>, class: &Class, feasible: &[usize]) -> Option<Vec<i64>> {
    let matters = |other: &Class| !other.affinity.is_empty() || !other.preferred_terms.is_empty();
    if class.preferred_terms.is_empty() && !state.classes.all().iter().any(|other| matters(other)) {
        return None;
    }
    let own_labels = state.namespace_labels(&class.namespace);
    let mut domains = Domains::new();
    for node in &state.nodes {
        for (id, count) in &node.classes {
            let Some(other) = state.classes.get(*id) else {
                continue;
            };
            let labels = state.namespace_labels(&other.namespace);
            for (weight, term) in &class.preferred_terms {
                if term.of_new_pod_means(other, &labels) {
                    note(&mut domains, &term.key, node, weight * count.all);
                }
            }
            for term in &other.affinity {
                if term.means(class, &own_labels) {
                    note(&mut domains, &term.key, node, REQUIRED_WEIGHT * count.all);
                }
            }
            for (weight, term) in &other.preferred_terms {
                if term.means(class, &own_labels) {
                    note(&mut domains, &term.key, node, weight * count.all);
                }
            }
        }
    }
    if domains.is_empty() {
        return None;
    }
    let nodes = feasible.iter().filter_map(|at| state.nodes.get(*at));
    let raw: Vec<i64> = nodes
        .map(|node| {
            let pairs = domains.iter();
            let here = pairs.filter(|((key, value), _)| node.labels.get(key) == Some(value));
            here.map(|(_, sum)| *sum).sum()
        })
        .collect();
    let most = raw.iter().copied().max().unwrap_or_default();
    let least = raw.iter().copied().min().unwrap_or_default();
    let share = |score: i64| {
        if most <= least {
            return 0;
        }
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "as kube-scheduler does it, and the sums are small"
        )]
        let share = (100.0 * ((score - least) as f64 / (most - least) as f64)) as i64;
        share
    };
    Some(raw.into_iter().map(share).collect())
}
