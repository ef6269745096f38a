//! Label selectors of spread constraints and affinity terms.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

/// One demand on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demand {
    /// The label has one of these values.
    In(String, Vec<String>),
    /// It has none of them.
    NotIn(String, Vec<String>),
    /// There is such a label.
    Exists(String),
    /// There is none.
    DoesNotExist(String),
}

impl Demand {
    fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

/// Which pods a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// None was given: nothing is selected among the pods to be placed, but every pod on a node counts. That is how
    /// Karpenter reads it, and the API server refuses it for spread constraints.
    Absent,
    /// It cannot be read, so it selects nothing.
    Unreadable,
    /// All of the demands, sorted and without repetitions.
    All(Vec<Demand>),
}

impl Selector {
    /// Reads a selector; `more` are demands that the constraint adds for the pod's own labels.
    #[must_use]
    pub fn new(selector: Option<&LabelSelector>, more: &[(&str, &str)]) -> Self {
        let Some(selector) = selector else {
            return Self::Absent;
        };
        let equals = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let mut demands: Vec<Demand> = equals
            .chain(more.iter().copied())
            .map(|(key, value)| Demand::In(key.to_owned(), vec![value.to_owned()]))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.clone();
            let mut values: Vec<String> = expression.values.iter().flatten().cloned().collect();
            values.sort_unstable();
            values.dedup();
            let demand = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Demand::In(key, values),
                ("NotIn", false) => Demand::NotIn(key, values),
                ("Exists", true) => Demand::Exists(key),
                ("DoesNotExist", true) => Demand::DoesNotExist(key),
                _ => return Self::Unreadable,
            };
            demands.push(demand);
        }
        demands.sort_unstable();
        demands.dedup();
        Self::All(demands)
    }

    /// Whether a pod to be placed is selected.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        match self {
            Self::Absent | Self::Unreadable => false,
            Self::All(demands) => demands.iter().all(|demand| demand.matches(labels)),
        }
    }

    /// Whether a pod on a node counts.
    pub(super) fn counts(&self, labels: &Labels) -> bool {
        *self == Self::Absent || self.selects(labels)
    }

    /// A label of which the selector demands one of some values, if there is such a demand.
    pub(super) fn demanded_values(&self) -> Option<(&str, &[String])> {
        let Self::All(demands) = self else {
            return None;
        };
        demands.iter().find_map(|demand| match demand {
            Demand::In(key, values) => Some((key.as_str(), values.as_slice())),
            _ => None,
        })
    }

    /// The labels that it looks at.
    pub(super) fn keys(selector: Option<&LabelSelector>) -> impl Iterator<Item = &str> {
        let labels = selector
            .into_iter()
            .flat_map(|selector| selector.match_labels.iter().flatten());
        let expressions = selector
            .into_iter()
            .flat_map(|selector| selector.match_expressions.iter().flatten());
        labels
            .map(|(key, _)| key.as_str())
            .chain(expressions.map(|expression| expression.key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_select_as_kubernetes_does() {
        let labels: Labels = [("app".to_owned(), "web".to_owned())].into();
        for (selector, selects) in [
            (json!({}), true),
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "db" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db", "web"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web"] }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["web"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "In" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "Near", "values": ["web"] }] }),
                false,
            ),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(
                Selector::new(Some(&read), &[]).selects(&labels),
                selects,
                "{selector}"
            );
        }
        let none = Selector::new(None, &[]);
        assert!(!none.selects(&labels) && none.counts(&labels));
    }
}
