//! What a pod demands of its node, and how that is relaxed when it cannot be had.
//!
//! Karpenter drops one thing at a time, in this order: the first of several OR-ed required node affinity terms, the
//! heaviest preferred pod affinity, anti-affinity and node affinity term, a `ScheduleAnyway` spread; at last
//! `PreferNoSchedule` taints are tolerated.

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

/// The demands of a pod, in the form in which they are relaxed.
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
        constraints
    }

    /// The demands on a node's labels, the heaviest preference counted as one.
    pub(super) fn requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        self.read(self.preferred.first(), vocabulary)
    }

    /// The demands on a node's labels without preferences.
    pub(super) fn strict_requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        self.read(None, vocabulary)
    }

    fn read(
        &self,
        preference: Option<&PreferredSchedulingTerm>,
        vocabulary: &mut Vocabulary,
    ) -> Requirements {
        let mut requirements = self.selector_requirements(vocabulary);
        if let Some(preference) = preference {
            add_term(&mut requirements, &preference.preference, vocabulary);
        }
        if let Some(first) = self.required.as_ref().and_then(|terms| terms.first()) {
            add_term(&mut requirements, first, vocabulary);
        }
        requirements
    }

    /// The node selector alone.
    pub(super) fn selector_requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        let mut requirements = Requirements::new();
        for (key, value) in &self.node_selector {
            requirements.add_selector(key, Operator::In, &[value], None, vocabulary);
        }
        requirements
    }

    /// The demands with one of them dropped, or none if nothing is left to drop.
    pub(super) fn relaxed(&self, tolerate_prefer_no_schedule: bool) -> Option<Self> {
        let mut relaxed = self.clone();
        let dropped = relaxed.drop_required_term()
            || drop_heaviest(&mut relaxed.rather_together, |term| term.weight)
            || drop_heaviest(&mut relaxed.rather_apart, |term| term.weight)
            || drop_heaviest(&mut relaxed.preferred, |term| term.weight)
            || relaxed.drop_soft_spread()
            || (tolerate_prefer_no_schedule && relaxed.tolerate_prefer_no_schedule());
        dropped.then_some(relaxed)
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

    fn drop_soft_spread(&mut self) -> bool {
        let soft = self
            .spreads
            .iter()
            .position(|spread| spread.when_unsatisfiable == "ScheduleAnyway");
        soft.map(|at| self.spreads.swap_remove(at)).is_some()
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

fn drop_heaviest<T>(terms: &mut Vec<T>, weight: impl Fn(&T) -> i32) -> bool {
    if terms.is_empty() {
        return false;
    }
    terms.sort_by_key(|term| std::cmp::Reverse(weight(term)));
    terms.remove(0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn preferences_are_dropped_in_karpenters_order() {
        let term = |key: &str| json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] });
        let near = |key: &str| json!({ "topologyKey": key, "labelSelector": {} });
        let pod: PodRecord = serde_json::from_value(json!({ "metadata": {}, "spec": {
            "containers": [],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term("a"), term("b")] },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 1, "preference": term("light") }, { "weight": 9, "preference": term("heavy") }],
                },
                "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 1, "podAffinityTerm": near("zone") }] },
                "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 1, "podAffinityTerm": near("zone") }] },
            },
            "topologySpreadConstraints": [
                { "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" },
                { "maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule" }],
        } }))
        .unwrap();
        let mut vocabulary = Vocabulary::new();
        let mut seen = Vec::new();
        let mut current = Some(Constraints::of(&pod, PreferencePolicy::Respect));
        while let Some(constraints) = current {
            let keys = constraints.requirements(&mut vocabulary);
            let mut keys: Vec<&str> = keys.iter().map(|(key, _)| vocabulary.text(key)).collect();
            keys.sort_unstable();
            seen.push(format!(
                "{} +{} -{} ~{} t{}",
                keys.join(","),
                constraints.rather_together.len(),
                constraints.rather_apart.len(),
                constraints.spreads.len(),
                constraints.tolerations.len()
            ));
            current = constraints.relaxed(true);
        }
        assert_eq!(
            seen,
            [
                "a,heavy +1 -1 ~2 t0",
                "b,heavy +1 -1 ~2 t0",
                "b,heavy +0 -1 ~2 t0",
                "b,heavy +0 -0 ~2 t0",
                "b,light +0 -0 ~2 t0",
                "b +0 -0 ~2 t0",
                "b +0 -0 ~1 t0",
                "b +0 -0 ~1 t1",
            ]
        );
    }
}
