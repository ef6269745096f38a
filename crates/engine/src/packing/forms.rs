//! A pod's demands, relaxed step by step when they cannot be had.
//!
//! Karpenter drops one thing at a time, in this order: the first of several OR-ed required node affinity terms, the
//! heaviest preferred pod affinity, anti-affinity and node affinity term, a `ScheduleAnyway` spread; at last
//! `PreferNoSchedule` taints are tolerated.
//!
//! A form is what the pod demands (shared by all its forms) and how many of each list are dropped, so a pod with many
//! preferences has many forms and one set of demands.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    NodeSelectorTerm, PodAffinityTerm, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};

use super::bounds::is_soft;
use super::constraints::{Constraints, with_prefer_no_schedule};
use crate::requirements::Requirements;
use crate::vocabulary::Vocabulary;

/// A pod's demands with some of them dropped.
#[derive(Clone, Debug)]
pub(super) struct Form {
    base: Arc<Constraints>,
    dropped: Dropped,
    tolerations: Arc<[Toleration]>,
}

/// How many of each list are dropped, in the order in which they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dropped {
    required: usize,
    rather_together: usize,
    rather_apart: usize,
    preferred: usize,
    soft_spreads: usize,
}

impl Form {
    /// Nothing is dropped.
    pub(super) fn new(base: Arc<Constraints>) -> Self {
        let tolerations = Arc::clone(&base.tolerations);
        Self {
            base,
            dropped: Dropped::default(),
            tolerations,
        }
    }

    /// What the pod demands with nothing dropped.
    pub(super) fn base(&self) -> &Constraints {
        &self.base
    }

    /// The OR-ed terms of required node affinity; none is not the same as an empty list.
    pub(super) fn required(&self) -> Option<&[NodeSelectorTerm]> {
        self.base
            .required()
            .map(|terms| terms.get(self.dropped.required..).unwrap_or_default())
    }

    /// The preference that counts as a demand.
    fn preference(&self) -> Option<&PreferredSchedulingTerm> {
        self.base.preference(self.dropped.preferred)
    }

    /// Whether it counts a preferred node affinity as a demand.
    pub(super) fn has_preference(&self) -> bool {
        self.preference().is_some()
    }

    pub(super) fn tolerations(&self) -> &Arc<[Toleration]> {
        &self.tolerations
    }

    /// The preferred pod affinity that is left.
    pub(super) fn rather_together(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        left(self.base.rather_together(), self.dropped.rather_together)
    }

    /// The preferred pod anti-affinity that is left.
    pub(super) fn rather_apart(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        left(self.base.rather_apart(), self.dropped.rather_apart)
    }

    /// The spreads that are left. Each one that was dropped was replaced by the last of those left then.
    pub(super) fn spreads(&self) -> Vec<&TopologySpreadConstraint> {
        let mut left: Vec<&TopologySpreadConstraint> = self.base.spreads().collect();
        let mut from = 0;
        for _ in 0..self.dropped.soft_spreads {
            // Nothing before the last one found was soft.
            let soft = left.iter().skip(from).position(|spread| is_soft(spread));
            let Some(at) = soft.map(|at| at + from) else { break };
            left.swap_remove(at);
            from = at;
        }
        left
    }

    /// The demands on a node's labels, the heaviest preference counted as one.
    pub(super) fn requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        self.base.read(self.alternative(), self.preference(), vocabulary)
    }

    /// The demands on a node's labels without preferences.
    pub(super) fn strict_requirements(&self, vocabulary: &mut Vocabulary) -> Requirements {
        self.base.read(self.alternative(), None, vocabulary)
    }

    fn alternative(&self) -> Option<&NodeSelectorTerm> {
        self.required().and_then(<[_]>::first)
    }

    /// The demands with one of them dropped, or none if nothing is left to drop.
    pub(super) fn relaxed(&self, tolerate_prefer_no_schedule: bool) -> Option<Self> {
        let mut relaxed = self.clone();
        let (base, dropped) = (&self.base, &mut relaxed.dropped);
        let soft = || base.spreads().filter(|spread| is_soft(spread)).count();
        if self.required().is_some_and(|terms| terms.len() > 1) {
            dropped.required += 1;
        } else if dropped.rather_together < base.rather_together.len() {
            dropped.rather_together += 1;
        } else if dropped.rather_apart < base.rather_apart.len() {
            dropped.rather_apart += 1;
        } else if dropped.preferred < base.preferred.len() {
            dropped.preferred += 1;
        } else if dropped.soft_spreads < soft() {
            dropped.soft_spreads += 1;
        } else if tolerate_prefer_no_schedule {
            relaxed.tolerations = with_prefer_no_schedule(&self.tolerations)?;
        } else {
            return None;
        }
        Some(relaxed)
    }
}

impl Form {
    /// The demands without preferences.
    pub(super) fn without_preferences(&self) -> Self {
        Self::new(Arc::new(self.base.without_preferences()))
    }

    /// Whether it has preferences.
    pub(super) fn has_preferences(&self) -> bool {
        let base = &self.base;
        !base.preferred.is_empty()
            || !base.rather_together.is_empty()
            || !base.rather_apart.is_empty()
            || base.spreads().any(is_soft)
    }

    /// What all forms demand together: labels and rules. That is what compiling them costs.
    pub(super) fn all_demands(&self) -> u64 {
        let base = &self.base;
        let rules = base.spreads.len()
            + base.together().len()
            + base.rather_together.len()
            + base.apart().len()
            + base.rather_apart.len();
        let in_each = 4 + rules + base.node_selector().map_or(0, BTreeMap::len);
        u64::try_from(in_each.saturating_mul(base.forms())).unwrap_or(u64::MAX)
    }
}

impl Form {
    /// What compiling the demands that cannot be dropped costs.
    pub(super) fn hard_demands(&self) -> u64 {
        const OF_A_RULE: usize = 16;
        let base = &self.base;
        let hard = base.spreads().filter(|spread| !is_soft(spread)).count();
        let alternatives = base.required().map_or(1, <[_]>::len);
        let expressions = base.required().unwrap_or_default().iter();
        let expressions: usize = expressions
            .map(|term| term.match_expressions.as_ref().map_or(0, Vec::len))
            .sum();
        let rules = base.together().len() + base.apart().len() + hard.saturating_mul(alternatives);
        let labels = base.node_selector().map_or(0, BTreeMap::len) + expressions + base.tolerations.len();
        u64::try_from(rules.saturating_mul(OF_A_RULE).saturating_add(labels)).unwrap_or(u64::MAX)
    }
}

impl Constraints {
    /// How many forms the demands have at most.
    pub(super) fn forms(&self) -> usize {
        let soft = self.spreads().filter(|spread| is_soft(spread)).count();
        let alternatives = self.required().map_or(1, |terms| terms.len().max(1));
        let terms = self.rather_together.len() + self.rather_apart.len() + self.preferred.len();
        alternatives + terms + soft + 1
    }
}

/// What is left of terms of which the heaviest were dropped. They are in their own order until the first one goes,
/// and then by weight.
fn left<'t>(
    terms: impl Iterator<Item = &'t WeightedPodAffinityTerm>,
    dropped: usize,
) -> impl Iterator<Item = &'t PodAffinityTerm> {
    let mut terms: Vec<&WeightedPodAffinityTerm> = terms.collect();
    if dropped > 0 {
        terms.sort_by_key(|term| Reverse(term.weight));
    }
    terms
        .into_iter()
        .skip(dropped)
        .map(|term| &term.pod_affinity_term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::bounds::{MAX_ALTERNATIVES, MAX_PREFERENCES};
    use crate::packing::{PodRecord, PreferencePolicy};
    use serde_json::{Value, json};

    fn form(spec: Value) -> Form {
        let pod: PodRecord = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        Form::new(Arc::new(Constraints::of(&pod, PreferencePolicy::Respect)))
    }

    fn term(key: &str) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": "Exists" }] })
    }

    #[test]
    fn preferences_are_dropped_in_karpenters_order() {
        let near = |key: &str| json!({ "topologyKey": key, "labelSelector": {} });
        let mut current = Some(form(json!({
            "containers": [],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term("a"), term("b")] },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 1, "preference": term("light") }, { "weight": 9, "preference": term("heavy") }],
                },
                "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 1, "podAffinityTerm": near("zone") }, { "weight": 5, "podAffinityTerm": near("host") }] },
                "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 1, "podAffinityTerm": near("zone") }] },
            },
            "topologySpreadConstraints": [
                { "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" },
                { "maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule" },
                { "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway" },
                { "maxSkew": 1, "topologyKey": "room", "whenUnsatisfiable": "DoNotSchedule" }],
        })));
        let mut vocabulary = Vocabulary::new();
        let mut seen = Vec::new();
        while let Some(form) = current {
            let keys = form.requirements(&mut vocabulary);
            let mut keys: Vec<&str> = keys.iter().map(|(key, _)| vocabulary.text(key)).collect();
            keys.sort_unstable();
            let keys_of = |terms: Vec<&PodAffinityTerm>| {
                let keys: Vec<&str> = terms.iter().map(|term| term.topology_key.as_str()).collect();
                keys.join(",")
            };
            let spreads = form.spreads();
            let spreads: Vec<&str> = spreads
                .iter()
                .map(|spread| spread.topology_key.as_str())
                .collect();
            seen.push(format!(
                "{} +{} -{} ~{} t{}",
                keys.join(","),
                keys_of(form.rather_together().collect()),
                keys_of(form.rather_apart().collect()),
                spreads.join(","),
                form.tolerations().len()
            ));
            current = form.relaxed(true);
        }
        assert_eq!(
            seen,
            [
                "a,heavy +zone,host -zone ~zone,host,rack,room t0",
                "b,heavy +zone,host -zone ~zone,host,rack,room t0",
                "b,heavy +zone -zone ~zone,host,rack,room t0",
                "b,heavy + -zone ~zone,host,rack,room t0",
                "b,heavy + - ~zone,host,rack,room t0",
                "b,light + - ~zone,host,rack,room t0",
                "b + - ~zone,host,rack,room t0",
                "b + - ~room,host,rack t0",
                "b + - ~room,host t0",
                "b + - ~room,host t1",
            ]
        );
    }

    #[test]
    fn forms_of_a_pod_share_what_it_demands() {
        let many: Vec<Value> = (0..2_000)
            .map(|at| json!({ "weight": 1 + at % 100, "preference": term(&format!("key-{at}")) }))
            .collect();
        let first = form(json!({ "containers": [], "affinity": { "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": many } } }));
        let mut forms = vec![first];
        while let Some(next) = forms.last().and_then(|form| form.relaxed(true)) {
            forms.push(next);
        }
        assert_eq!(forms.len(), MAX_PREFERENCES + 2, "the last one tolerates");
        assert!(forms.len() <= forms[0].base().forms());
        assert!(forms.iter().all(|form| Arc::ptr_eq(&form.base, &forms[0].base)));
        assert!(size_of::<Form>() <= 80, "{}", size_of::<Form>());
        // The heaviest ones count.
        assert!(forms[0].base().preferred().all(|term| term.weight > 80));
        let left_out = forms[0].base().left_out;
        assert_eq!((left_out.preferences, left_out.alternatives), (1_750, 0));
        let said = left_out.describe().unwrap();
        assert!(
            said.starts_with("1750 of the pod's preferences are ignored"),
            "{said}"
        );
    }

    #[test]
    fn each_kind_of_preference_and_the_alternatives_are_bounded() {
        let near = |at: usize| {
            let selector = json!({ "matchLabels": { "app": format!("app-{at}") } });
            json!({ "weight": 1 + at % 100, "podAffinityTerm": { "topologyKey": "zone", "labelSelector": selector } })
        };
        let preferred =
            |terms: Vec<Value>| json!({ "preferredDuringSchedulingIgnoredDuringExecution": terms });
        let spread = |at: usize| {
            json!({ "maxSkew": 1 + at, "topologyKey": "zone", "labelSelector": {},
                "whenUnsatisfiable": if at == 2_999 { "DoNotSchedule" } else { "ScheduleAnyway" } })
        };
        let form = form(json!({
            "containers": [],
            "affinity": {
                "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": (0..6_000).map(|at| term(&format!("key-{at}"))).collect::<Vec<_>>() } },
                "podAffinity": preferred((0..2_000).map(near).collect()),
                "podAntiAffinity": preferred((0..300).map(near).collect()),
            },
            "topologySpreadConstraints": (0..3_000).map(spread).collect::<Vec<_>>(),
        }));
        let base = form.base();
        assert_eq!(base.required().map(<[_]>::len), Some(19), "each has all spreads");
        assert_eq!(base.rather_together.len(), MAX_PREFERENCES);
        assert_eq!(base.rather_apart.len(), MAX_PREFERENCES);
        assert_eq!(
            base.spreads.len(),
            MAX_PREFERENCES + 1,
            "a hard spread is never left out"
        );
        assert_eq!(base.left_out.alternatives, 5_981);
        assert_eq!(base.left_out.preferences, 1_750 + 50 + 2_749);
        assert_eq!(base.forms(), 19 + 3 * MAX_PREFERENCES + 1);
        let terms: Vec<Value> = (0..6_000).map(|at| term(&format!("key-{at}"))).collect();
        let form = self::form(json!({ "containers": [], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } }));
        assert_eq!(form.base().required().map(<[_]>::len), Some(MAX_ALTERNATIVES));
    }

    #[test]
    fn a_long_node_selector_leaves_room_for_fewer_forms() {
        let selector: std::collections::BTreeMap<String, String> = (0..2_000)
            .map(|at| (format!("key-{at}"), "x".to_owned()))
            .collect();
        let terms: Vec<Value> = (0..200)
            .map(|at| json!({ "weight": 1, "preference": term(&format!("key-{at}")) }))
            .collect();
        let form = form(
            json!({ "containers": [], "nodeSelector": selector, "affinity": { "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": terms } } }),
        );
        assert_eq!(form.base().preferred.len(), 24);
    }
}
