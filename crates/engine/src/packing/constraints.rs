//! What a pod demands of its node. How that is relaxed when it cannot be had is in [`super::forms`].
//!
//! A pod may list thousands of preferences, and each one that is dropped is one more form to be tried and kept. So
//! there is a bound, far above what anybody needs: what is beyond it is left out, and the pod is told.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelectorTerm, PodAffinityTerm, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};

use super::PodRecord;
use super::PreferencePolicy;
use super::go_sort::sort_slice;
use super::terms::add_term;
use crate::requirements::{Operator, Requirements};
use crate::vocabulary::Vocabulary;

/// The most preferences of each kind (node affinity, pod affinity, pod anti-affinity, `ScheduleAnyway` spreads) that
/// count, the heaviest ones.
pub(super) const MAX_PREFERENCES: usize = 250;
/// The most OR-ed terms of required node affinity that count, the first ones.
pub(super) const MAX_ALTERNATIVES: usize = 500;
/// The most that all forms of a pod demand of labels together; each form has the node selector in it.
const MAX_STORED_DEMANDS: usize = 50_000;
/// The most rules that alternatives and spreads make together: each alternative has spreads of its own.
const MAX_SPREAD_FORMS: usize = 5_000;
/// So many preferences and alternatives always count.
const MIN_COUNTED: usize = 10;

/// What of a pod's demands was left out because there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Preferred terms and `ScheduleAnyway` spreads.
    pub(super) preferences: usize,
    /// OR-ed terms of required node affinity.
    pub(super) alternatives: usize,
}

impl LeftOut {
    /// What the pod is told, if anything was left out.
    pub(super) fn describe(self) -> Option<String> {
        let preferences = (self.preferences > 0).then(|| {
            format!(
                "{} of the pod's preferences are ignored: at most {MAX_PREFERENCES} preferred terms or ScheduleAnyway spreads of a kind \
                 count (fewer for a pod with a very long node selector), the heaviest ones",
                self.preferences
            )
        });
        let alternatives = (self.alternatives > 0).then(|| {
            format!(
                "the last {} terms of the pod's required node affinity are not considered: at most {MAX_ALTERNATIVES} alternatives count \
                 (fewer with a very long node selector or many topology spreads); use one term with several values instead",
                self.alternatives
            )
        });
        let all: Vec<String> = [alternatives, preferences].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The demands of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Constraints {
    pub(super) node_selector: BTreeMap<String, String>,
    /// OR-ed terms; none is not the same as an empty list.
    pub(super) required: Option<Vec<NodeSelectorTerm>>,
    pub(super) preferred: Vec<PreferredSchedulingTerm>,
    pub(super) together: Vec<PodAffinityTerm>,
    pub(super) rather_together: Vec<WeightedPodAffinityTerm>,
    pub(super) apart: Vec<PodAffinityTerm>,
    pub(super) rather_apart: Vec<WeightedPodAffinityTerm>,
    pub(super) spreads: Vec<TopologySpreadConstraint>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) left_out: LeftOut,
}

impl Constraints {
    /// The demands of `pod`; with [`PreferencePolicy::Ignore`] its preferences are left out from the start.
    pub(super) fn of(pod: &PodRecord, policy: PreferencePolicy) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let affinity = spec.affinity.as_ref();
        let node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let together = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required =
            node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let mut constraints = Self {
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required: required.map(|required| required.node_selector_terms.clone()),
            together: list(together.map(|a| &a.required_during_scheduling_ignored_during_execution)),
            apart: list(apart.map(|a| &a.required_during_scheduling_ignored_during_execution)),
            spreads: list(Some(&spec.topology_spread_constraints)),
            tolerations: list(Some(&spec.tolerations)),
            ..Self::default()
        };
        match policy {
            PreferencePolicy::Respect => {
                constraints.preferred =
                    list(node.map(|a| &a.preferred_during_scheduling_ignored_during_execution));
                constraints.rather_together =
                    list(together.map(|a| &a.preferred_during_scheduling_ignored_during_execution));
                constraints.rather_apart =
                    list(apart.map(|a| &a.preferred_during_scheduling_ignored_during_execution));
                // Karpenter sorts the terms in place the first time it reads them, with the sort that is not stable.
                sort_slice(&mut constraints.preferred, |a, b| a.weight > b.weight);
            }
            PreferencePolicy::Ignore => {
                constraints
                    .spreads
                    .retain(|spread| spread.when_unsatisfiable == "DoNotSchedule");
            }
        }
        constraints.bound();
        constraints
    }

    /// Leaves out what is beyond the bounds.
    fn bound(&mut self) {
        let size = |term: &NodeSelectorTerm| -> usize {
            let expressions = term.match_expressions.iter().flatten();
            expressions
                .map(|one| 1 + one.values.as_ref().map_or(0, Vec::len) / 8)
                .sum()
        };
        let required = self.required.iter().flatten().map(size).max().unwrap_or(0);
        let preferred = self.preferred.first().map_or(0, |first| size(&first.preference));
        let in_each = self.node_selector.len() + required.max(preferred);
        let most = (MAX_STORED_DEMANDS / in_each.max(1)).max(MIN_COUNTED);
        let preferences = most.min(MAX_PREFERENCES);
        // Already sorted by weight.
        self.left_out.preferences += cut(&mut self.preferred, preferences);
        self.left_out.preferences += keep_heaviest(&mut self.rather_together, preferences);
        self.left_out.preferences += keep_heaviest(&mut self.rather_apart, preferences);
        let mut soft = 0;
        let before = self.spreads.len();
        self.spreads.retain(|spread| {
            soft += usize::from(is_soft(spread));
            !is_soft(spread) || soft <= preferences
        });
        self.left_out.preferences += before - self.spreads.len();
        let with_spreads = (MAX_SPREAD_FORMS / self.spreads.len().max(1)).max(MIN_COUNTED);
        if let Some(terms) = &mut self.required {
            self.left_out.alternatives += cut(terms, most.min(with_spreads).min(MAX_ALTERNATIVES));
        }
    }

    /// The demands on a node's labels: the node selector, one preference, and one of the OR-ed terms.
    pub(super) fn read(
        &self,
        required: Option<&NodeSelectorTerm>,
        preference: Option<&PreferredSchedulingTerm>,
        vocabulary: &mut Vocabulary,
    ) -> Requirements {
        let mut requirements = self.selector_requirements(vocabulary);
        if let Some(preference) = preference {
            add_term(&mut requirements, &preference.preference, vocabulary);
        }
        if let Some(term) = required {
            add_term(&mut requirements, term, vocabulary);
        }
        requirements
    }

    /// The first of the OR-ed terms.
    pub(super) fn first_alternative(&self) -> Option<&NodeSelectorTerm> {
        self.required.as_ref().and_then(|terms| terms.first())
    }

    /// The node selector alone.
    pub(super) fn selector_requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        let mut requirements = Requirements::new();
        for (key, value) in &self.node_selector {
            requirements.add_selector(key, Operator::In, &[value], None, vocabulary);
        }
        requirements
    }

    /// Drops the first of several OR-ed terms; the last one stays.
    pub(super) fn drop_required_term(&mut self) -> bool {
        match &mut self.required {
            Some(terms) if terms.len() > 1 => {
                terms.remove(0);
                true
            }
            _ => false,
        }
    }

    /// Tolerates every `PreferNoSchedule` taint; says whether that is new.
    pub(super) fn tolerate_prefer_no_schedule(&mut self) -> bool {
        let toleration = Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("PreferNoSchedule".to_owned()),
            ..Toleration::default()
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let same = |known: &Toleration| {
            text(&known.key).is_empty()
                && text(&known.value).is_empty()
                && known.operator == toleration.operator
                && known.effect == toleration.effect
        };
        if self.tolerations.iter().any(same) {
            return false;
        }
        self.tolerations.push(toleration);
        true
    }
}

fn list<T: Clone>(list: Option<&Option<Vec<T>>>) -> Vec<T> {
    list.and_then(Option::as_ref).cloned().unwrap_or_default()
}

/// Whether a spread may be dropped.
pub(super) fn is_soft(spread: &TopologySpreadConstraint) -> bool {
    spread.when_unsatisfiable == "ScheduleAnyway"
}

/// Cuts a list; says how many items went.
fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
    let gone = list.len().saturating_sub(most);
    list.truncate(most);
    gone
}

/// Keeps the heaviest terms, in their order; says how many went.
fn keep_heaviest(terms: &mut Vec<WeightedPodAffinityTerm>, most: usize) -> usize {
    if terms.len() <= most {
        return 0;
    }
    let mut order: Vec<usize> = (0..terms.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(terms.get(*at).map(|term| term.weight)));
    let mut is_kept = vec![false; terms.len()];
    for at in order.into_iter().take(most) {
        if let Some(kept) = is_kept.get_mut(at) {
            *kept = true;
        }
    }
    let before = terms.len();
    let mut kept = is_kept.into_iter();
    terms.retain(|_| kept.next().unwrap_or(false));
    before - terms.len()
}
