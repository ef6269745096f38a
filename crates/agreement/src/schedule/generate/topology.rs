//! Topology spread and pod (anti-)affinity.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::facts::{CAPACITY_TYPE, HOSTNAME, ZONE};
use super::Draft;

impl Draft<'_> {
    /// A selector of pods: mostly the group itself.
    fn pod_selector(&mut self, group: usize) -> Value {
        match self.rng.below(20) {
            0..=12 => json!({"matchLabels": {"app": format!("g{group}")}}),
            13..=14 => json!({"matchLabels": {"app": format!("g{}", self.rng.below(self.groups))}}),
            15..=16 => json!({"matchLabels": {"tier": *self.rng.pick(&["front", "back"])}}),
            17 => {
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [format!("g{group}"), "g0"]}]})
            }
            18 => match self.rng.below(3) {
                0 => json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]}),
                1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
                _ => json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            },
            _ => json!({}),
        }
    }

    pub(super) fn spread(&mut self, group: usize, key: &str) -> Value {
        let mut constraint = json!({
            "maxSkew": *self.rng.pick(&[1, 1, 1, 2, 3]),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self.pod_selector(group),
        });
        if self.has(Constraint::SpreadOptions) {
            if self.rng.chance(40) {
                constraint["whenUnsatisfiable"] = "ScheduleAnyway".into();
            } else if self.rng.chance(30) {
                constraint["minDomains"] = json!(self.rng.between(1, 6));
            }
            if self.rng.chance(30) {
                constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
            }
            if self.rng.chance(30) {
                constraint["nodeAffinityPolicy"] = json!(self.rng.pick(&["Honor", "Ignore"]));
            }
            if self.rng.chance(30) {
                constraint["nodeTaintsPolicy"] = json!(self.rng.pick(&["Honor", "Ignore"]));
            }
        }
        constraint
    }

    pub(super) fn spreads(&mut self, group: usize) -> Vec<Value> {
        let mut constraints = Vec::new();
        for (constraint, key) in [
            (Constraint::ZoneSpread, ZONE),
            (Constraint::HostnameSpread, HOSTNAME),
            (Constraint::CapacityTypeSpread, CAPACITY_TYPE),
        ] {
            if self.has(constraint) && self.rng.chance(65) {
                constraints.push(self.spread(group, key));
            }
        }
        constraints
    }

    fn affinity_term(&mut self, group: usize, anti: bool) -> Value {
        let key = if anti {
            *self.rng.pick(&[HOSTNAME, HOSTNAME, HOSTNAME, ZONE])
        } else {
            *self.rng.pick(&[ZONE, ZONE, HOSTNAME, CAPACITY_TYPE])
        };
        let mut term = json!({"topologyKey": key, "labelSelector": self.pod_selector(group)});
        if self.has(Constraint::Namespaces) {
            match self.rng.below(4) {
                0 => term["namespaces"] = json!(["default", "other"]),
                1 => term["namespaceSelector"] = json!({}),
                2 => {
                    term["namespaceSelector"] =
                        json!({"matchLabels": {"team": *self.rng.pick(&["a", "b", "c"])}});
                }
                _ => {}
            }
        }
        term
    }

    fn weighted_terms(&mut self, group: usize, anti: bool) -> Vec<Value> {
        let count = self.rng.between(1, 2);
        (0..count)
            .map(|_| json!({"weight": self.rng.between(1, 100), "podAffinityTerm": self.affinity_term(group, anti)}))
            .collect()
    }

    /// Pod affinity and anti-affinity of a group; the second entry is the anti-affinity.
    pub(super) fn pod_affinities(&mut self, group: usize) -> [Value; 2] {
        let mut both = [json!({}), json!({})];
        let required = [Constraint::PodAffinity, Constraint::PodAntiAffinity];
        for ((affinity, constraint), anti) in both.iter_mut().zip(required).zip([false, true]) {
            let across = self.has(Constraint::Namespaces) && self.rng.chance(50);
            if (self.has(constraint) || across) && self.rng.chance(65) {
                let terms = [self.affinity_term(group, anti)];
                affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
            }
            if self.has(Constraint::PreferredPodAffinity) && self.rng.chance(50) {
                affinity["preferredDuringSchedulingIgnoredDuringExecution"] =
                    json!(self.weighted_terms(group, anti));
            }
        }
        both
    }
}
