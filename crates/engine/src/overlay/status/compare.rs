//! Our verdicts beside the conditions that Karpenter wrote.
//!
//! A condition counts once Karpenter has observed the object's present generation. Another overlay or a pool may
//! have changed since, so a difference is told only when it lasts.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::node_overlay::CONDITION_VALIDATION_SUCCEEDED;
use veneer_api::{CONDITION_READY, Condition, ConditionStatus, find_condition};

use super::{Subject, conditions, earlier};
use crate::overlay::{Evaluation, Verdict};

/// What we say of an overlay and what Karpenter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The overlay's name.
    pub overlay: String,
    /// Our status and reason of `ValidationSucceeded`, e.g. `False (Conflict)`.
    pub ours: String,
    /// Why we say so; empty if the overlay is fine.
    pub because: String,
    /// Karpenter's.
    pub karpenters: String,
}

/// A difference begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Karpenter says something else, and did so long enough.
    Differs(Difference),
    /// The overlay's difference is over.
    AgreesAgain(String),
}

/// A difference that was seen.
#[derive(Clone, Debug)]
pub(super) struct Open {
    difference: Difference,
    since: Timestamp,
    told: bool,
}

#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) findings: Vec<Finding>,
    pub(super) differing: Vec<String>,
    pub(super) look_again: Option<Timestamp>,
}

pub(super) fn compare(
    subjects: &[Subject<'_>],
    evaluation: &Evaluation,
    settle: SignedDuration,
    open: &mut BTreeMap<String, Open>,
    now: Timestamp,
) -> Compared {
    let mut compared = Compared::default();
    let mut still = BTreeMap::new();
    for (at, (subject, verdict)) in subjects.iter().zip(evaluation.verdicts()).enumerate() {
        let name = evaluation.overlay_name(at);
        let known = open.remove(name);
        let Some(difference) = difference(name, *subject, verdict) else {
            let told = known.is_some_and(|known| known.told);
            compared
                .findings
                .extend(told.then(|| Finding::AgreesAgain(name.to_owned())));
            continue;
        };
        let mut one = match known {
            Some(known) if known.difference == difference => known,
            _ => Open {
                difference,
                since: now,
                told: false,
            },
        };
        match one.since.checked_add(settle).ok().filter(|due| *due > now) {
            Some(due) => compared.look_again = earlier(compared.look_again, Some(due)),
            None if one.told => {}
            None => {
                one.told = true;
                compared.findings.push(Finding::Differs(one.difference.clone()));
            }
        }
        if one.told {
            compared.differing.push(name.to_owned());
        }
        still.insert(name.to_owned(), one);
    }
    compared.differing.sort_unstable();
    *open = still;
    compared
}

fn difference(name: &str, subject: Subject<'_>, verdict: &Verdict) -> Option<Difference> {
    let current = |type_| {
        find_condition(subject.conditions, type_)
            .filter(|condition| condition.observed_generation == Some(subject.generation))
    };
    let validation = current(CONDITION_VALIDATION_SUCCEEDED)?;
    let ready = current(CONDITION_READY)?;
    let (status, reason) = conditions::outcome(verdict);
    if validation.status == status && validation.reason == reason && ready.status == status {
        return None;
    }
    Some(Difference {
        overlay: name.to_owned(),
        ours: words(&status, reason),
        because: conditions::explain(verdict),
        karpenters: said(validation, ready),
    })
}

fn said(validation: &Condition, ready: &Condition) -> String {
    let words = words(&validation.status, &validation.reason);
    if validation.status == ready.status {
        return words;
    }
    format!("{words}, and {CONDITION_READY} {}", ready.status)
}

fn words(status: &ConditionStatus, reason: &str) -> String {
    format!("{status} ({reason})")
}
