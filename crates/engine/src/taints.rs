//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use veneer_api::labels::karpenter;

/// The key of the taints of a node that is not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Whether it says that a node is not ready, whatever its effect.
#[must_use]
pub fn is_not_ready(taint: &Taint) -> bool {
    taint.key == NOT_READY
}

/// Whether it is one of the taints that every node has while it starts.
#[must_use]
pub fn is_of_start(taint: &Taint) -> bool {
    matches!(
        (taint.key.as_str(), taint.effect.as_str()),
        (NOT_READY, "NoSchedule" | "NoExecute")
            | ("node.kubernetes.io/unreachable", "NoSchedule")
            | ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")
            | (karpenter::UNREGISTERED_TAINT, "NoExecute")
    )
}

/// Whether `toleration` lets a pod onto a node with `taint`.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = text(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    let (value, taint_value) = (text(&toleration.value), text(&taint.value));
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == taint_value,
        "Exists" => true,
        "Lt" => compare(&value, &taint_value).is_some_and(|(toleration, taint)| taint < toleration),
        "Gt" => compare(&value, &taint_value).is_some_and(|(toleration, taint)| taint > toleration),
        _ => false,
    }
}

/// Both values as integers, if both are written the one way that Kubernetes accepts: no leading zero, no plus.
fn compare(toleration: &str, taint: &str) -> Option<(i64, i64)> {
    let read = |text: &str| {
        text.parse::<i64>()
            .ok()
            .filter(|integer| integer.to_string() == text)
    };
    Some((read(toleration)?, read(taint)?))
}

/// The taints that none of `tolerations` lets a pod past, in their order.
#[must_use]
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Vec<&'a Taint> {
    taints
        .iter()
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
        .collect()
}

/// A taint as people write it: `key=value:effect`.
#[must_use]
pub fn describe(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: effect.into(),
            time_added: None,
        }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: given(key),
            operator: given(operator),
            value: given(value),
            effect: given(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn a_toleration_matches_by_key_operator_value_and_effect() {
        let dedicated = taint("dedicated", "gpu", "NoSchedule");
        for (given, expected) in [
            (toleration("dedicated", "Equal", "gpu", "NoSchedule"), true),
            (toleration("dedicated", "", "gpu", ""), true),
            (toleration("dedicated", "Equal", "cpu", "NoSchedule"), false),
            (toleration("dedicated", "Exists", "", ""), true),
            (toleration("dedicated", "Exists", "", "NoExecute"), false),
            (toleration("", "Exists", "", ""), true),
            (toleration("other", "Exists", "", ""), false),
            (toleration("dedicated", "Unknown", "gpu", ""), false),
        ] {
            assert_eq!(tolerates(&given, &dedicated), expected, "{given:?}");
        }
    }

    #[test]
    fn comparisons_need_plain_integers_on_both_sides() {
        let priority = taint("priority", "10", "NoSchedule");
        for (operator, value, expected) in [
            ("Lt", "11", true),
            ("Lt", "10", false),
            ("Gt", "9", true),
            ("Gt", "10", false),
            ("Lt", "011", false),
            ("Lt", "+11", false),
            ("Lt", "many", false),
        ] {
            let given = toleration("priority", operator, value, "");
            assert_eq!(tolerates(&given, &priority), expected, "{operator} {value}");
        }
    }

    #[test]
    fn what_is_not_tolerated_is_named() {
        let taints = [taint("a", "", "NoSchedule"), taint("b", "x", "NoExecute")];
        let left = untolerated(&taints, &[toleration("a", "Exists", "", "")]);
        assert_eq!(
            left.into_iter().map(describe).collect::<Vec<_>>(),
            ["b=x:NoExecute"]
        );
    }
}
