//! Labels of nodes and what selects them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{list, text};

/// What is known of a label.
#[derive(Clone, Debug)]
pub(super) enum Label {
    /// It has one of these values; all of them must do.
    Values(BTreeSet<String>),
    /// There is none.
    Absent,
    /// There is one, but not any of these.
    Not(BTreeSet<String>),
}

/// Whether every value that the label may have satisfies an expression.
pub(super) fn satisfies(expression: &Value, label: &Label) -> bool {
    let wanted: Vec<&str> = list(expression, "/values")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let operator = text(expression, "/operator");
    let holds = |value: &str| {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |holds: &dyn Fn(i64, i64) -> bool| {
            let bound = wanted.first().and_then(|bound| number(bound));
            matches!((number(value), bound), (Some(value), Some(bound)) if holds(value, bound))
        };
        match operator {
            "In" => wanted.contains(&value),
            "NotIn" => !wanted.contains(&value),
            "Exists" => true,
            "Gt" => compare(&|value, bound| value > bound),
            "Lt" => compare(&|value, bound| value < bound),
            "Gte" => compare(&|value, bound| value >= bound),
            "Lte" => compare(&|value, bound| value <= bound),
            _ => false,
        }
    };
    match label {
        Label::Values(values) => !values.is_empty() && values.iter().all(|value| holds(value)),
        Label::Absent => matches!(operator, "NotIn" | "DoesNotExist"),
        Label::Not(excluded) => match operator {
            "Exists" => true,
            "NotIn" => wanted.iter().all(|value| excluded.contains(*value)),
            _ => false,
        },
    }
}

/// Whether a pod's node selector and required node affinity hold.
pub(super) fn selects(pod: &Value, label: impl Fn(&str) -> Label) -> bool {
    selects_spec(pod.pointer("/spec").unwrap_or(&Value::Null), label)
}

pub(super) fn selects_spec(spec: &Value, label: impl Fn(&str) -> Label) -> bool {
    let selector = spec.pointer("/nodeSelector").and_then(Value::as_object);
    // Demands that exclude each other leave a node without the label in Karpenter, and the pod on it.
    let torn = |key: &str, label: &Label| matches!(label, Label::Absent) && mentions(spec, key) > 1;
    let selected = selector.is_none_or(|selector| {
        selector.iter().all(|(key, value)| match label(modern(key)) {
            Label::Values(values) => values.iter().all(|own| Some(own.as_str()) == value.as_str()),
            label => torn(key, &label),
        })
    });
    let terms = list(
        spec,
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    selected
        && (terms.is_empty()
            || terms.iter().any(|term| {
                list(term, "/matchExpressions").iter().all(|expression| {
                    let key = text(expression, "/key");
                    let label = label(modern(key));
                    satisfies(expression, &label) || torn(key, &label)
                })
            }))
}

/// How often a pod's selector and the term of its required affinity that says most speak of a label.
fn mentions(spec: &Value, key: &str) -> usize {
    let selector = usize::from(
        spec.pointer("/nodeSelector")
            .is_some_and(|selector| selector.get(key).is_some()),
    );
    let terms = list(
        spec,
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let of = |term: &Value| {
        list(term, "/matchExpressions")
            .iter()
            .filter(|one| text(one, "/key") == key)
            .count()
    };
    selector + terms.iter().map(of).max().unwrap_or(0)
}

/// Today's name of a label.
fn modern(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => super::super::facts::ZONE,
        "beta.kubernetes.io/arch" => super::super::facts::ARCH,
        _ => key,
    }
}

/// Whether a pod may be on a node with the taint; a preference against it does not count.
pub(super) fn tolerates(pod: &Value, taint: &Value) -> bool {
    tolerates_spec(pod.pointer("/spec").unwrap_or(&Value::Null), taint)
}

pub(super) fn tolerates_spec(spec: &Value, taint: &Value) -> bool {
    let effect = text(taint, "/effect");
    effect == "PreferNoSchedule"
        || list(spec, "/tolerations").iter().any(|toleration| {
            let same = |field: &str| text(toleration, field) == text(taint, field);
            let any = |field: &str| text(toleration, field).is_empty();
            let exists = text(toleration, "/operator") == "Exists";
            (any("/effect") || same("/effect"))
                && ((any("/key") && exists) || same("/key"))
                && (exists || same("/value"))
        })
}

/// Whether a label selector selects the labels; one that is missing selects nothing.
pub(super) fn selector_matches(selector: Option<&Value>, labels: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return false;
    };
    let own = |key: &str| labels.get(key).and_then(Value::as_str);
    let exact = selector.pointer("/matchLabels").and_then(Value::as_object);
    exact.is_none_or(|exact| exact.iter().all(|(key, value)| own(key) == value.as_str()))
        && list(selector, "/matchExpressions").iter().all(|expression| {
            let label = own(text(expression, "/key")).map_or(Label::Absent, |value| {
                Label::Values(BTreeSet::from([value.to_owned()]))
            });
            satisfies(expression, &label)
        })
}
