//! The conditions of a NodeOverlay.
//!
//! `ValidationSucceeded` and the root `Ready` have the status and the reason that Karpenter gives them; `Applied`
//! is ours and does not count for `Ready`. A transition time changes with the status alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use veneer_api::node_overlay::{CONDITION_APPLIED, CONDITION_VALIDATION_SUCCEEDED};
use veneer_api::{CONDITION_READY, Condition, ConditionStatus};

use super::{OverlayEffect, Subject};
use crate::overlay::advice::matching::counted;
use crate::overlay::{Conflict, ConflictField, Problem, Verdict};

/// Longer messages are cut: nobody reads them, and the API server refuses 32 KiB.
const MAX_MESSAGE: usize = 2_000;
/// How many other overlays a message names.
const MAX_NAMES: usize = 5;

struct Wanted {
    type_: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

/// All conditions that the object shall have, or nothing if it has them already.
#[must_use]
pub fn conditions(
    verdict: &Verdict,
    effect: &OverlayEffect,
    subject: Subject<'_>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    // Kubernetes keeps whole seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut conditions = subject.conditions.to_vec();
    for wanted in [validation(verdict), applied(verdict, effect), ready(verdict)] {
        let known = conditions
            .iter_mut()
            .find(|condition| condition.type_ == wanted.type_);
        let since = known.as_ref().filter(|known| known.status == wanted.status);
        let condition = Condition {
            type_: wanted.type_.to_owned(),
            last_transition_time: since
                .map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
            status: wanted.status,
            reason: wanted.reason.to_owned(),
            message: shortened(wanted.message),
            observed_generation: Some(subject.generation),
            extra: known
                .as_ref()
                .map(|known| known.extra.clone())
                .unwrap_or_default(),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    (conditions != subject.conditions).then_some(conditions)
}

/// The status and reason of `ValidationSucceeded`, as Karpenter gives them.
pub(super) fn outcome(verdict: &Verdict) -> (ConditionStatus, &'static str) {
    match verdict {
        Verdict::Ready => (ConditionStatus::True, CONDITION_VALIDATION_SUCCEEDED),
        Verdict::Conflict(_) => (ConditionStatus::False, "Conflict"),
        Verdict::Invalid(_) => (ConditionStatus::False, "RuntimeValidation"),
    }
}

fn validation(verdict: &Verdict) -> Wanted {
    let (status, reason) = outcome(verdict);
    Wanted {
        type_: CONDITION_VALIDATION_SUCCEEDED,
        status,
        reason,
        message: explain(verdict),
    }
}

/// Why an overlay is left out, in words; empty if it is not.
pub(super) fn explain(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Ready => String::new(),
        Verdict::Conflict(conflict) => explain_conflict(conflict),
        Verdict::Invalid(problems) => {
            let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
            problems.join("; ")
        }
    }
}

fn explain_conflict(conflict: &Conflict) -> String {
    let mut others: Vec<String> = conflict
        .with
        .iter()
        .take(MAX_NAMES)
        .map(|name| format!("{name:?}"))
        .collect();
    match conflict.with.len() {
        0 => others.push("another overlay".to_owned()),
        all if all > MAX_NAMES => others.push(format!("{} more", all - MAX_NAMES)),
        _ => {}
    }
    let (field, place) = match conflict.field {
        ConflictField::Price => ("the price", format!(" ({})", conflict.offering)),
        ConflictField::Capacity => ("a resource", String::new()),
    };
    format!(
        "conflicts with {} of the same weight: both set {field} of {}{place} in NodePool {:?}; give one of them another weight or requirements",
        others.join(", "),
        conflict.instance_type,
        conflict.node_pool,
    )
}

fn ready(verdict: &Verdict) -> Wanted {
    let (status, reason, message) = match verdict {
        Verdict::Ready => (ConditionStatus::True, CONDITION_READY, String::new()),
        _ => {
            let message = format!("{CONDITION_VALIDATION_SUCCEEDED}={}", ConditionStatus::False);
            (ConditionStatus::False, "UnhealthyDependents", message)
        }
    };
    Wanted {
        type_: CONDITION_READY,
        status,
        reason,
        message,
    }
}

fn applied(verdict: &Verdict, effect: &OverlayEffect) -> Wanted {
    let changed: usize = effect.changed.iter().sum();
    let pools = effect.changed.iter().filter(|changed| **changed > 0).count();
    let (reason, message) = match verdict {
        Verdict::Conflict(_) => ("Conflict", "it is left out because of a conflict".to_owned()),
        Verdict::Invalid(_) => (
            "RuntimeValidation",
            "it is left out because it is not valid".to_owned(),
        ),
        Verdict::Ready if changed > 0 => {
            let message = format!(
                "changes {} in {}",
                counted(changed, "offering"),
                counted(pools, "NodePool")
            );
            (CONDITION_APPLIED, message)
        }
        Verdict::Ready if effect.changed.is_empty() => {
            ("NoNodePool", "there is no NodePool to apply it to".to_owned())
        }
        Verdict::Ready if !effect.sets_something => {
            let message = "it sets neither a price nor a resource; set price, priceAdjustment or capacity";
            ("SetsNothing", message.to_owned())
        }
        Verdict::Ready if effect.matched.iter().all(|matched| *matched == 0) => {
            let message =
                "no offering of any NodePool matches its requirements; check the labels and their values";
            ("MatchesNothing", message.to_owned())
        }
        Verdict::Ready if effect.wins => (
            "NoDifference",
            "it sets the values that are there already".to_owned(),
        ),
        Verdict::Ready => {
            let message = "heavier overlays set everything that it would set; raise its weight or remove it";
            ("Shadowed", message.to_owned())
        }
    };
    let status = if reason == CONDITION_APPLIED {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    Wanted {
        type_: CONDITION_APPLIED,
        status,
        reason,
        message,
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}
