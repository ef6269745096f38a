//! Topology spread, pod affinity and anti-affinity.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::facts::HOSTNAME;
use super::labels::{self, Label};
use super::place::Place;
use super::{Checker, full_name, list, namespace, text};

impl Checker<'_> {
    pub(super) fn topology(&mut self) {
        let places = &self.placement.places;
        for (at, place) in places.iter().enumerate() {
            for pod in &place.new_pods {
                for constraint in list(pod, "/spec/topologySpreadConstraints") {
                    if text(constraint, "/whenUnsatisfiable") == "DoNotSchedule" {
                        self.spread(place, pod, constraint);
                    }
                }
                for term in required(pod, "podAffinity") {
                    self.affinity(at, pod, term);
                }
            }
            for pod in place.company() {
                for term in required(pod, "podAntiAffinity") {
                    self.anti_affinity(at, pod, term);
                }
            }
        }
    }

    /// No domain that got a pod of the constraint holds more of them than the emptiest one and the allowed skew.
    fn spread(&mut self, place: &Place<'_>, pod: &Value, constraint: &Value) {
        let key = text(constraint, "/topologyKey");
        let skew = constraint
            .pointer("/maxSkew")
            .and_then(Value::as_u64)
            .unwrap_or(1);
        let own = place.domains(key);
        let Some(domain) = own.first().filter(|_| own.len() == 1) else {
            self.violated(
                "topology spread",
                format!("{} may be in {own:?} by {key}", full_name(pod)),
            );
            return;
        };
        // Pods that match without having the constraint may be put anywhere, and tainted nodes may not count.
        let selector = with_keys(constraint, pod);
        let matches = |other: &Value| {
            namespace(other) == namespace(pod)
                && labels::selector_matches(
                    Some(&selector),
                    other.pointer("/metadata/labels").unwrap_or(&Value::Null),
                )
        };
        let honour = text(constraint, "/nodeTaintsPolicy") == "Honor";
        let app = |pod: &Value| text(pod, "/metadata/labels/app").to_owned();
        let has = |pod: &Value| list(pod, "/spec/topologySpreadConstraints").contains(constraint);
        let places = &self.placement.places;
        let stray = places
            .iter()
            .flat_map(|place| &place.new_pods)
            .any(|other| matches(other) && (app(other) != app(pod) || !has(other)));
        if stray || honour || !matches(pod) || self.starts_anew(pod) {
            return;
        }
        let ignores_affinity = text(constraint, "/nodeAffinityPolicy") == "Ignore";
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for other in places {
            let counted = other.new
                || ignores_affinity
                || other
                    .options
                    .iter()
                    .all(|option| labels::selects(pod, |key| option.label(key)));
            if counted && let [domain] = Vec::from_iter(other.domains(key)).as_slice() {
                *counts.entry(domain.clone()).or_default() +=
                    other.company().filter(|pod| matches(pod)).count() as u64;
            }
        }
        let least = if key == HOSTNAME {
            0
        } else {
            self.least(pod, constraint, key, &counts)
        };
        let count = counts.get(domain).copied().unwrap_or(0);
        if count > least + skew {
            let detail = format!(
                "{} by {key}: {count} in {domain}, {least} in the emptiest",
                full_name(pod)
            );
            self.violated("topology spread", detail);
        }
    }

    /// Whether Karpenter forgets what it has counted for the pod's constraints: it counts apart for pods with other
    /// tolerations or node affinity, and dropping a term or tolerating a preference makes them other.
    fn starts_anew(&self, pod: &Value) -> bool {
        let terms = list(
            pod,
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
        );
        let avoided = |pool: &Value| {
            list(pool, "/spec/template/spec/taints")
                .iter()
                .any(|taint| text(taint, "/effect") == "PreferNoSchedule")
        };
        terms.len() > 1 || self.scenario.kind("NodePool").any(avoided)
    }

    /// The smallest count among the domains that the pod could use.
    fn least(&self, pod: &Value, constraint: &Value, key: &str, counts: &BTreeMap<String, u64>) -> u64 {
        let mut domains = self.placement.offered.get(key).cloned().unwrap_or_default();
        for place in self.placement.places.iter().filter(|place| {
            !place.new && !place.leaving && !place.options.iter().all(|option| option.name.is_empty())
        }) {
            domains.extend(place.domains(key));
        }
        domains.retain(|domain| {
            let value = Label::Values(BTreeSet::from([domain.clone()]));
            // Only what the pod says of this label restricts the domains.
            let selector = pod.pointer("/spec/nodeSelector").and_then(|selector| selector.get(key));
            let terms = list(
                pod,
                "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
            );
            let in_term = |term: &Value| {
                list(term, "/matchExpressions").iter().filter(|one| text(one, "/key") == key).all(|one| labels::satisfies(one, &value))
            };
            selector.is_none_or(|wanted| wanted == domain.as_str()) && (terms.is_empty() || terms.iter().any(in_term))
        });
        let wanted = constraint
            .pointer("/minDomains")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        if (domains.len() as u64) < wanted {
            return 0;
        }
        domains
            .iter()
            .map(|domain| counts.get(domain).copied().unwrap_or(0))
            .min()
            .unwrap_or(0)
    }

    /// A pod that wants company has it wherever its node may be, or is itself the company that it wants.
    fn affinity(&mut self, at: usize, pod: &Value, term: &Value) {
        let key = text(term, "/topologyKey");
        if self.term_matches(pod, term, pod) {
            return;
        }
        let places = &self.placement.places;
        let Some(place) = places.get(at) else { return };
        let own = place.domains(key);
        let accompanied = |domain: &String| {
            places.iter().enumerate().any(|(other_at, other)| {
                let there = other_at == at || other.domains(key) == BTreeSet::from([domain.clone()]);
                there
                    && other
                        .company()
                        .any(|one| full_name(one) != full_name(pod) && self.term_matches(pod, term, one))
            })
        };
        if own.is_empty() || !own.iter().all(accompanied) {
            self.violated(
                "pod affinity",
                format!("{} on {} by {key}", full_name(pod), place.name),
            );
        }
    }

    /// No domain that the pod may be in can hold a pod that it avoids, unless both were there before.
    fn anti_affinity(&mut self, at: usize, pod: &Value, term: &Value) {
        let key = text(term, "/topologyKey");
        let places = &self.placement.places;
        let Some(place) = places.get(at) else { return };
        let own = place.domains(key);
        let labelled = |place: &Place<'_>| {
            place
                .options
                .iter()
                .all(|option| matches!(option.label(key), Label::Values(_)))
        };
        if place.had(pod) && !labelled(place) {
            // What a pod avoids counts by its node's label, even where another label has the same meaning.
            return;
        }
        for (other_at, other) in places.iter().enumerate() {
            if (key == HOSTNAME && other_at != at)
                || (key != HOSTNAME && own.is_disjoint(&other.domains(key)))
            {
                continue;
            }
            let met = other.company().find(|one| {
                full_name(one) != full_name(pod)
                    && !(place.had(pod) && other.had(one))
                    && self.term_matches(pod, term, one)
            });
            if let Some(met) = met {
                let detail = format!("{} and {} by {key}", full_name(pod), full_name(met));
                self.violated("pod anti-affinity", detail);
                return;
            }
        }
    }

    /// Whether a term of `owner` selects `pod`.
    fn term_matches(&self, owner: &Value, term: &Value, pod: &Value) -> bool {
        let named: Vec<&str> = list(term, "/namespaces")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let selector = term.pointer("/namespaceSelector");
        let within = namespace(pod);
        let selected = selector.is_some_and(|selector| {
            self.scenario
                .kind("Namespace")
                .filter(|one| text(one, "/metadata/name") == within)
                .any(|one| {
                    labels::selector_matches(
                        Some(selector),
                        one.pointer("/metadata/labels").unwrap_or(&Value::Null),
                    )
                })
        });
        let in_reach = if named.is_empty() && selector.is_none() {
            within == namespace(owner)
        } else {
            named.contains(&within) || selected
        };
        in_reach
            && labels::selector_matches(
                term.pointer("/labelSelector"),
                pod.pointer("/metadata/labels").unwrap_or(&Value::Null),
            )
    }
}

fn required<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    list(
        pod,
        &format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution"),
    )
}

/// The selector of a spread constraint with the labels that its keys add.
fn with_keys(constraint: &Value, pod: &Value) -> Value {
    let mut selector = constraint
        .pointer("/labelSelector")
        .cloned()
        .unwrap_or(Value::Null);
    for key in list(constraint, "/matchLabelKeys")
        .iter()
        .filter_map(Value::as_str)
    {
        if let Some(value) = pod.pointer("/metadata/labels").and_then(|labels| labels.get(key)) {
            let mut all = list(&selector, "/matchExpressions").to_vec();
            all.push(json!({"key": key, "operator": "In", "values": [value]}));
            selector["matchExpressions"] = json!(all);
        }
    }
    selector
}
