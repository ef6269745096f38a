//! What to tell about overlays: conditions, events, gauges and differences from Karpenter's verdicts.
//!
//! [`decide`] is the decision of the overlay controller: from an [`Evaluation`] and the objects as they are, it
//! says what to write, and nothing when all of it is written already. What it must remember between calls (what
//! was said when) is in [`Memory`], so that the same calls give the same plans.

mod announce;
mod compare;
mod conditions;
mod effects;

pub use announce::Announcement;
pub use compare::{Difference, Finding};
pub use conditions::conditions;
pub use effects::{Effects, OverlayEffect, PoolEffect};

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Condition;

use super::{Evaluation, Verdict};

/// A NodeOverlay object, as far as its status is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.conditions`.
    pub conditions: &'a [Condition],
}

/// Who writes the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// We do.
    Veneer,
    /// Karpenter does; its conditions are compared with our verdicts.
    Karpenter {
        /// How long a difference must last before it is told: Karpenter evaluates later than we do.
        settle: SignedDuration,
    },
}

/// How the decision is made.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Who writes the conditions.
    pub owner: Owner,
    /// The least time between two events on one NodePool.
    pub event_interval: SignedDuration,
}

/// What was said before.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    verdicts: BTreeMap<String, Verdict>,
    announced: announce::Announced,
    differences: BTreeMap<String, compare::Open>,
}

/// New conditions for an overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusChange {
    /// The overlay, by its position in what was evaluated.
    pub overlay: usize,
    /// All its conditions, those of others included.
    pub conditions: Vec<Condition>,
}

/// What to do and to tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Conditions to write.
    pub statuses: Vec<StatusChange>,
    /// Events to write.
    pub announcements: Vec<Announcement>,
    /// The overlays whose verdict is new, by their position in what was evaluated.
    pub new_verdicts: Vec<usize>,
    /// Differences from Karpenter that are new, and those that ended.
    pub findings: Vec<Finding>,
    /// The names of the overlays on which Karpenter differs for good, sorted.
    pub differing: Vec<String>,
    /// When to decide again even if nothing changes.
    pub look_again: Option<Timestamp>,
}

/// What to do and to tell about `subjects`, which are the objects of `evaluation`, in its order.
pub fn decide(
    subjects: &[Subject<'_>],
    evaluation: &Evaluation,
    effects: &Effects,
    policy: Policy,
    memory: &mut Memory,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan {
        new_verdicts: new_verdicts(evaluation, &mut memory.verdicts),
        ..Plan::default()
    };
    let told = memory
        .announced
        .update(evaluation, effects, policy.event_interval, now);
    plan.announcements = told.announcements;
    plan.look_again = told.look_again;
    match policy.owner {
        Owner::Veneer => {
            let verdicts = evaluation.verdicts().iter().zip(&effects.overlays);
            plan.statuses = subjects
                .iter()
                .zip(verdicts)
                .enumerate()
                .filter_map(|(overlay, (subject, (verdict, effect)))| {
                    let conditions = conditions(verdict, effect, *subject, now)?;
                    Some(StatusChange { overlay, conditions })
                })
                .collect();
        }
        Owner::Karpenter { settle } => {
            let compared = compare::compare(subjects, evaluation, settle, &mut memory.differences, now);
            plan.findings = compared.findings;
            plan.differing = compared.differing;
            plan.look_again = earlier(plan.look_again, compared.look_again);
        }
    }
    plan
}

fn new_verdicts(evaluation: &Evaluation, known: &mut BTreeMap<String, Verdict>) -> Vec<usize> {
    let verdicts = evaluation.verdicts().iter().enumerate();
    let verdicts = verdicts.map(|(at, verdict)| (at, evaluation.overlay_name(at), verdict));
    let new = verdicts
        .clone()
        .filter(|(_, name, verdict)| known.get(*name) != Some(verdict));
    let new = new.map(|(at, ..)| at).collect::<Vec<_>>();
    if !new.is_empty() || known.len() != evaluation.verdicts().len() {
        *known = verdicts
            .map(|(_, name, verdict)| (name.to_owned(), verdict.clone()))
            .collect();
    }
    new
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests;
