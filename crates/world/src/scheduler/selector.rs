//! Label selectors and node selectors, as the Kubernetes API defines them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
pub(super) type Labels = BTreeMap<String, String>;

/// Whether a label selector selects an object with these labels. No selector selects nothing, an empty one everything.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            let values = one.values.as_deref().unwrap_or_default();
            holds(&one.operator, values, labels.get(&one.key))
        })
}

/// Whether a selector has no requirement at all.
pub(super) fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// A selector with one more requirement for each of `keys` that the pod has a label for.
pub(super) fn with_keys(
    selector: Option<&LabelSelector>,
    keys: Option<&[String]>,
    operator: &str,
    labels: &Labels,
) -> Option<LabelSelector> {
    let mut selector = selector?.clone();
    for key in keys.unwrap_or_default() {
        if let Some(value) = labels.get(key) {
            let expressions = selector.match_expressions.get_or_insert_default();
            expressions.push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
    Some(selector)
}

/// Whether one requirement holds for the value that an object has for its key.
fn holds(operator: &str, values: &[String], found: Option<&String>) -> bool {
    let is_listed = found.is_some_and(|found| values.contains(found));
    match operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" | "Lt" => {
            let number = |text: &String| text.parse::<i64>().ok();
            match (found.and_then(number), values.first().and_then(number)) {
                (Some(found), Some(bound)) if operator == "Gt" => found > bound,
                (Some(found), Some(bound)) => found < bound,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Whether one of the terms of a node selector matches a node.
pub(super) fn matches_node(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| matches_term(term, name, labels))
}

/// Whether all requirements of a term hold for a node; a term without any matches no node.
pub(super) fn matches_term(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = name.to_owned();
    let requirement = |one: &NodeSelectorRequirement, found: Option<&String>| {
        holds(&one.operator, one.values.as_deref().unwrap_or_default(), found)
    };
    let has_any = !expressions.is_empty() || !fields.is_empty();
    has_any
        && expressions
            .iter()
            .all(|one| requirement(one, labels.get(&one.key)))
        && fields
            .iter()
            .all(|one| one.key == "metadata.name" && requirement(one, Some(&name)))
}
