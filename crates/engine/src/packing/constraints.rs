//! What a pod demands of its node. How that is relaxed when it cannot be had is in [`super::forms`].
//!
//! A pod may list thousands of preferences, and each one that is dropped is one more form to be tried and kept. So
//! there is a bound, far above what anybody needs: what is beyond it is left out, and the pod is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorTerm, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec,
    PreferredSchedulingTerm, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};

use super::PodRecord;
use super::PreferencePolicy;
use super::bounds::{LeftOut, MAX_ALTERNATIVES, MAX_PREFERENCES, by_weight, heaviest, is_soft};
use super::terms::add_term;
use crate::requirements::{Operator, Requirements};
use crate::vocabulary::Vocabulary;

/// The most that all forms of a pod demand of labels together; each form has the node selector in it.
const MAX_STORED_DEMANDS: usize = 50_000;
/// The most rules that alternatives and spreads make together: each alternative has spreads of its own.
const MAX_SPREAD_FORMS: usize = 5_000;
/// So many preferences and alternatives always count.
const MIN_COUNTED: usize = 10;

/// The demands of a pod.
///
/// Nothing is copied: a pod may list thousands of terms, and all of them are in its spec already. What counts is known by position.
#[derive(Clone, Debug, Default)]
pub(super) struct Constraints {
    spec: Option<Arc<PodSpec>>,
    /// The first of the OR-ed terms that count, and how many of all do; none is not the same as no term.
    required: Option<(usize, usize)>,
    /// By weight.
    pub(super) preferred: Vec<usize>,
    pub(super) rather_together: Vec<usize>,
    pub(super) rather_apart: Vec<usize>,
    pub(super) spreads: Vec<usize>,
    pub(super) tolerations: Arc<[Toleration]>,
    pub(super) left_out: LeftOut,
}

impl Constraints {
    /// The demands of `pod`; with [`PreferencePolicy::Ignore`] its preferences are left out from the start.
    pub(super) fn of(pod: &PodRecord, policy: PreferencePolicy) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let mut constraints = Self {
            spec: Some(Arc::clone(spec)),
            tolerations: spec.tolerations.as_deref().unwrap_or_default().into(),
            ..Self::default()
        };
        let required = constraints.all_required().map(|terms| (0, terms.len()));
        constraints.required = required;
        constraints.left_out.alternatives = pod.metadata.left_out.alternatives;
        constraints.spreads = (0..constraints.all_spreads().len()).collect();
        match policy {
            PreferencePolicy::Respect => {
                constraints.left_out.preferences = pod.metadata.left_out.preferences;
                constraints.preferred = by_weight(constraints.all_preferred());
                constraints.rather_together = (0..constraints.all_rather_together().len()).collect();
                constraints.rather_apart = (0..constraints.all_rather_apart().len()).collect();
            }
            PreferencePolicy::Ignore => {
                let is_hard =
                    |spread: &TopologySpreadConstraint| spread.when_unsatisfiable == "DoNotSchedule";
                constraints.retain_spreads(is_hard);
            }
        }
        constraints.bound();
        constraints
    }

    /// The same without preferences.
    pub(super) fn without_preferences(&self) -> Self {
        let mut hard = Self {
            preferred: Vec::new(),
            rather_together: Vec::new(),
            rather_apart: Vec::new(),
            ..self.clone()
        };
        hard.retain_spreads(|spread| !is_soft(spread));
        hard
    }

    fn retain_spreads(&mut self, keeps: impl Fn(&TopologySpreadConstraint) -> bool) {
        let mut spreads = std::mem::take(&mut self.spreads);
        let all = self.all_spreads();
        spreads.retain(|at| all.get(*at).is_some_and(&keeps));
        self.spreads = spreads;
    }

    fn affinity(&self) -> Option<&Affinity> {
        self.spec.as_ref().and_then(|spec| spec.affinity.as_ref())
    }

    fn node_affinity(&self) -> Option<&NodeAffinity> {
        self.affinity()
            .and_then(|affinity| affinity.node_affinity.as_ref())
    }

    fn pod_affinity(&self) -> Option<&PodAffinity> {
        self.affinity()
            .and_then(|affinity| affinity.pod_affinity.as_ref())
    }

    fn pod_anti_affinity(&self) -> Option<&PodAntiAffinity> {
        self.affinity()
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
    }

    fn all_required(&self) -> Option<&[NodeSelectorTerm]> {
        let node = self.node_affinity()?;
        let required = node
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        Some(&required.node_selector_terms)
    }

    fn all_preferred(&self) -> &[PreferredSchedulingTerm] {
        let node = self.node_affinity();
        list(node.map(|node| &node.preferred_during_scheduling_ignored_during_execution))
    }

    fn all_rather_together(&self) -> &[WeightedPodAffinityTerm] {
        let together = self.pod_affinity();
        list(together.map(|one| &one.preferred_during_scheduling_ignored_during_execution))
    }

    fn all_rather_apart(&self) -> &[WeightedPodAffinityTerm] {
        let apart = self.pod_anti_affinity();
        list(apart.map(|one| &one.preferred_during_scheduling_ignored_during_execution))
    }

    fn all_spreads(&self) -> &[TopologySpreadConstraint] {
        list(self.spec.as_ref().map(|spec| &spec.topology_spread_constraints))
    }

    /// The node selector, if there is one.
    pub(super) fn node_selector(&self) -> Option<&BTreeMap<String, String>> {
        self.spec.as_ref().and_then(|spec| spec.node_selector.as_ref())
    }

    /// The OR-ed terms of required node affinity; none is not the same as an empty list.
    pub(super) fn required(&self) -> Option<&[NodeSelectorTerm]> {
        let (from, to) = self.required?;
        Some(self.all_required()?.get(from..to).unwrap_or_default())
    }

    /// The preferred terms of node affinity, by weight.
    pub(super) fn preferred(&self) -> impl Iterator<Item = &PreferredSchedulingTerm> {
        picked(self.all_preferred(), &self.preferred)
    }

    /// One of the preferred terms of node affinity, by weight.
    pub(super) fn preference(&self, number: usize) -> Option<&PreferredSchedulingTerm> {
        let at = self.preferred.get(number)?;
        self.all_preferred().get(*at)
    }

    /// The required pod affinity.
    pub(super) fn together(&self) -> &[PodAffinityTerm] {
        let together = self.pod_affinity();
        list(together.map(|one| &one.required_during_scheduling_ignored_during_execution))
    }

    /// The preferred pod affinity.
    pub(super) fn rather_together(&self) -> impl Iterator<Item = &WeightedPodAffinityTerm> {
        picked(self.all_rather_together(), &self.rather_together)
    }

    /// The required pod anti-affinity.
    pub(super) fn apart(&self) -> &[PodAffinityTerm] {
        let apart = self.pod_anti_affinity();
        list(apart.map(|one| &one.required_during_scheduling_ignored_during_execution))
    }

    /// The preferred pod anti-affinity.
    pub(super) fn rather_apart(&self) -> impl Iterator<Item = &WeightedPodAffinityTerm> {
        picked(self.all_rather_apart(), &self.rather_apart)
    }

    /// The topology spreads.
    pub(super) fn spreads(&self) -> impl Iterator<Item = &TopologySpreadConstraint> {
        picked(self.all_spreads(), &self.spreads)
    }

    /// Leaves out what is beyond the bounds.
    fn bound(&mut self) {
        let size = |term: &NodeSelectorTerm| -> usize {
            let expressions = term.match_expressions.iter().flatten();
            expressions
                .map(|one| 1 + one.values.as_ref().map_or(0, Vec::len) / 8)
                .sum()
        };
        let required = self.required().unwrap_or_default().iter().map(size).max();
        let preferred = self.preference(0).map_or(0, |first| size(&first.preference));
        let selector = self.node_selector().map_or(0, BTreeMap::len);
        let in_each = selector + required.unwrap_or(0).max(preferred);
        let most = (MAX_STORED_DEMANDS / in_each.max(1)).max(MIN_COUNTED);
        let preferences = most.min(MAX_PREFERENCES);
        // Already sorted by weight.
        let mut left_out = cut(&mut self.preferred, preferences);
        let together = heaviest(
            self.all_rather_together(),
            self.rather_together.len(),
            preferences,
        );
        let apart = heaviest(self.all_rather_apart(), self.rather_apart.len(), preferences);
        left_out += self.rather_together.len() - together.len();
        left_out += self.rather_apart.len() - apart.len();
        (self.rather_together, self.rather_apart) = (together, apart);
        let before = self.spreads.len();
        let soft = std::cell::Cell::new(0);
        self.retain_spreads(|spread| {
            soft.set(soft.get() + usize::from(is_soft(spread)));
            !is_soft(spread) || soft.get() <= preferences
        });
        left_out += before - self.spreads.len();
        self.left_out.preferences += left_out;
        let with_spreads = (MAX_SPREAD_FORMS / self.spreads.len().max(1)).max(MIN_COUNTED);
        if let Some((_, end)) = &mut self.required {
            let counted = (*end).min(most.min(with_spreads).min(MAX_ALTERNATIVES));
            self.left_out.alternatives += *end - counted;
            *end = counted;
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
        self.required().and_then(<[_]>::first)
    }

    /// The node selector alone.
    pub(super) fn selector_requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        let mut requirements = Requirements::new();
        for (key, value) in self.node_selector().into_iter().flatten() {
            requirements.add_selector(key, Operator::In, &[value], None, vocabulary);
        }
        requirements
    }

    /// Drops the first of several OR-ed terms; the last one stays.
    pub(super) fn drop_required_term(&mut self) -> bool {
        match &mut self.required {
            Some((from, to)) if *from + 1 < *to => {
                *from += 1;
                true
            }
            _ => false,
        }
    }
}

/// The same, and every `PreferNoSchedule` taint tolerated; none if that is nothing new.
pub(super) fn with_prefer_no_schedule(tolerations: &[Toleration]) -> Option<Arc<[Toleration]>> {
    let toleration = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("PreferNoSchedule".to_owned()),
        ..Toleration::default()
    };
    fn is_empty(field: Option<&String>) -> bool {
        field.is_none_or(String::is_empty)
    }
    let same = |known: &Toleration| {
        is_empty(known.key.as_ref())
            && is_empty(known.value.as_ref())
            && known.operator == toleration.operator
            && known.effect == toleration.effect
    };
    if tolerations.iter().any(same) {
        return None;
    }
    Some(tolerations.iter().cloned().chain([toleration]).collect())
}

fn list<T>(list: Option<&Option<Vec<T>>>) -> &[T] {
    list.and_then(Option::as_deref).unwrap_or_default()
}

fn picked<'s, T>(all: &'s [T], positions: &'s [usize]) -> impl Iterator<Item = &'s T> {
    positions.iter().filter_map(|at| all.get(*at))
}

/// Cuts a list; says how many items went.
fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
    let gone = list.len().saturating_sub(most);
    list.truncate(most);
    gone
}
