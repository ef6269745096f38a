//! How many demands of a pod count.
//!
//! A pod may list thousands of preferences, and each one that is dropped is one more form to be tried and kept. So there is a bound, far above
//! what anybody needs: what is beyond it is left out, and the pod is told. A driver need not keep it either ([`cut_demands`]).

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{
    PodSpec, PreferredSchedulingTerm, TopologySpreadConstraint, WeightedPodAffinityTerm,
};

use super::go_sort::sort_slice;

/// The most preferences of each kind (node affinity, pod affinity, pod anti-affinity, `ScheduleAnyway` spreads) that
/// count, the heaviest ones.
pub(super) const MAX_PREFERENCES: usize = 250;
/// The most OR-ed terms of required node affinity that count, the first ones.
pub(super) const MAX_ALTERNATIVES: usize = 500;
/// What of a pod's demands was left out because there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Preferred terms and `ScheduleAnyway` spreads.
    pub preferences: usize,
    /// OR-ed terms of required node affinity.
    pub alternatives: usize,
}

impl LeftOut {
    /// As an annotation of a pod in a snapshot.
    #[must_use]
    pub fn write(self) -> String {
        format!("{}/{}", self.preferences, self.alternatives)
    }

    /// Reads such an annotation.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (preferences, alternatives) = text.split_once('/')?;
        Some(Self {
            preferences: preferences.parse().ok()?,
            alternatives: alternatives.parse().ok()?,
        })
    }

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

/// The positions of preferred terms of node affinity in the order in which they count.
pub(super) fn by_weight(terms: &[PreferredSchedulingTerm]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..terms.len()).collect();
    let weight = |at: &usize| terms.get(*at).map(|term| term.weight);
    // Karpenter sorts the terms in place the first time it reads them, with the sort that is not stable.
    sort_slice(&mut order, |a, b| weight(a) > weight(b));
    order
}

/// The positions of the heaviest of the first `count` terms, in their order.
pub(super) fn heaviest(terms: &[WeightedPodAffinityTerm], count: usize, most: usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..count).collect();
    if count > most {
        positions.sort_by_key(|at| Reverse(terms.get(*at).map(|term| term.weight)));
        positions.truncate(most);
        positions.sort_unstable();
    }
    positions
}

/// Whether a spread may be dropped.
pub(super) fn is_soft(spread: &TopologySpreadConstraint) -> bool {
    spread.when_unsatisfiable == "ScheduleAnyway"
}

/// Takes out of a pod what would be left out of every decision about it; says how much that was. Nothing else is decided
/// because of that.
pub fn cut_demands(spec: &mut PodSpec) -> LeftOut {
    let mut left_out = LeftOut::default();
    if let Some(spreads) = &mut spec.topology_spread_constraints {
        let before = spreads.len();
        let mut soft = 0;
        spreads.retain(|spread| {
            soft += usize::from(is_soft(spread));
            !is_soft(spread) || soft <= MAX_PREFERENCES
        });
        left_out.preferences += before - spreads.len();
    }
    let Some(affinity) = &mut spec.affinity else {
        return left_out;
    };
    if let Some(node) = &mut affinity.node_affinity {
        let required = node.required_during_scheduling_ignored_during_execution.as_mut();
        if let Some(required) = required {
            let terms = &mut required.node_selector_terms;
            left_out.alternatives += terms.len().saturating_sub(MAX_ALTERNATIVES);
            terms.truncate(MAX_ALTERNATIVES);
            terms.shrink_to_fit();
        }
        let preferred = node.preferred_during_scheduling_ignored_during_execution.as_mut();
        if let Some(terms) = preferred.filter(|terms| terms.len() > MAX_PREFERENCES) {
            let order = by_weight(terms);
            left_out.preferences += order.len() - MAX_PREFERENCES;
            // Sorted already, they stay in this order.
            let kept = order.into_iter().take(MAX_PREFERENCES);
            *terms = kept.filter_map(|at| terms.get(at).cloned()).collect();
        }
    }
    let together = affinity.pod_affinity.as_mut();
    let together = together.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_mut());
    let apart = affinity.pod_anti_affinity.as_mut();
    let apart = apart.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_mut());
    for terms in together.into_iter().chain(apart) {
        let kept = heaviest(terms, terms.len(), MAX_PREFERENCES);
        left_out.preferences += terms.len() - kept.len();
        if kept.len() < terms.len() {
            *terms = kept.into_iter().filter_map(|at| terms.get(at).cloned()).collect();
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::constraints::Constraints;
    use super::super::{PodRecord, PreferencePolicy};
    use super::*;

    fn spec() -> PodSpec {
        let term =
            |at: usize| json!({"matchExpressions": [{"key": format!("key-{at}"), "operator": "Exists"}]});
        let weight = |at: usize| 1 + at * 7 % 13;
        let near = |at: usize| json!({"weight": weight(at), "podAffinityTerm": {"topologyKey": format!("key-{at}"), "labelSelector": {}}});
        let preferred = |terms: Vec<Value>| json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
        let spread = |at: usize| {
            let when = if at.is_multiple_of(100) {
                "DoNotSchedule"
            } else {
                "ScheduleAnyway"
            };
            json!({"maxSkew": 1 + at, "topologyKey": "zone", "labelSelector": {}, "whenUnsatisfiable": when})
        };
        let mut node = preferred(
            (0..700)
                .map(|at| json!({"weight": weight(at), "preference": term(at)}))
                .collect(),
        );
        node["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": (0..900).map(term).collect::<Vec<_>>()});
        let spec = json!({"containers": [], "affinity": {"nodeAffinity": node,
            "podAffinity": preferred((0..300).map(near).collect()),
            "podAntiAffinity": preferred((0..100).map(near).collect())},
            "topologySpreadConstraints": (0..600).map(spread).collect::<Vec<_>>()});
        serde_json::from_value(spec).unwrap()
    }

    /// Everything that a decision reads.
    fn read(pod: &PodRecord) -> Vec<Value> {
        let constraints = Constraints::of(pod, PreferencePolicy::Respect);
        vec![
            json!(constraints.required()),
            json!(constraints.preferred().collect::<Vec<_>>()),
            json!(constraints.rather_together().collect::<Vec<_>>()),
            json!(constraints.rather_apart().collect::<Vec<_>>()),
            json!(constraints.spreads().collect::<Vec<_>>()),
            json!(constraints.left_out.describe()),
        ]
    }

    #[test]
    fn what_is_cut_changes_no_decision_and_nothing_that_the_pod_is_told() {
        let mut cut = spec();
        let left_out = cut_demands(&mut cut);
        assert_eq!(
            (left_out.preferences, left_out.alternatives),
            (450 + 50 + 344, 400)
        );
        let whole = PodRecord {
            spec: Some(spec().into()),
            ..PodRecord::default()
        };
        let mut less = PodRecord {
            spec: Some(cut.clone().into()),
            ..PodRecord::default()
        };
        less.metadata.left_out = left_out;
        assert_eq!(read(&less), read(&whole));
        let again = cut_demands(&mut cut);
        assert_eq!(again, LeftOut::default(), "nothing is left to be cut");
    }

    #[test]
    fn what_was_left_out_is_read_as_it_was_written() {
        let left_out = LeftOut {
            preferences: 1_750,
            alternatives: 3,
        };
        assert_eq!(LeftOut::read(&left_out.write()), Some(left_out));
        assert_eq!(LeftOut::read("many"), None);
    }
}
