//! What overlays do to the offerings of pools: the evaluation of the engine with the objects it came from.
//!
//! `diagnose` shows it and `lint` judges it.

use std::sync::Arc;

use clap::ValueEnum;
use veneer_api::{NodeOverlay, NodePool};
use veneer_engine::bitset::BitSet;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::advice::{self, Effect};
use veneer_engine::overlay::{
    Conflict, ConflictField, Evaluation, Evaluator, Overlay, Pool, Problem, Verdict, launchable,
};

use crate::finding::{Finding, Rule};
use crate::input::objects::{MadeOf, Objects, Sourced};

/// Which of two overlays of the same weight comes first.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TieBreak {
    /// The name later in the alphabet, as Karpenter does it
    ReverseAlphabetical,
    /// The name earlier in the alphabet, as the NodeOverlay proposal describes it
    Alphabetical,
}

impl From<TieBreak> for veneer_engine::overlay::TieBreak {
    fn from(choice: TieBreak) -> Self {
        match choice {
            TieBreak::ReverseAlphabetical => Self::ReverseAlphabetical,
            TieBreak::Alphabetical => Self::Alphabetical,
        }
    }
}

/// The evaluation, with the objects in the same order.
pub(crate) struct Preview<'a> {
    pub(crate) evaluation: Evaluation,
    pub(crate) pools: &'a [Sourced<NodePool>],
    pub(crate) overlays: &'a [Sourced<NodeOverlay>],
    /// For each pool, the offerings that it can launch.
    pub(crate) launchable: Vec<BitSet>,
    pub(crate) effects: Vec<Effect>,
    /// What was found while the objects were read.
    pub(crate) read: &'a [Finding],
}

impl<'a> Preview<'a> {
    pub(crate) fn new(objects: &'a Objects, catalogue: Arc<Catalogue>, tie_break: TieBreak) -> Self {
        let pools: Vec<Pool> = objects
            .node_pools
            .iter()
            .map(|pool| seen_by_overlays(&pool.object))
            .collect();
        let overlays: Vec<Result<Overlay, (String, Vec<Problem>)>> = objects
            .node_overlays
            .iter()
            .map(|overlay| Overlay::read(&overlay.object, &catalogue.rules))
            .collect();
        let launchable: Vec<BitSet> = objects
            .node_pools
            .iter()
            .map(|pool| launchable(&catalogue, &pool.object))
            .collect();
        let evaluation = Evaluator::new(catalogue, tie_break.into()).evaluate(&pools, &overlays);
        let effects = advice::survey(&evaluation, &launchable);
        Self {
            evaluation,
            pools: &objects.node_pools,
            overlays: &objects.node_overlays,
            launchable,
            effects,
            read: &objects.findings,
        }
    }

    /// What to tell about an overlay: what is wrong with it, whom it conflicts with, what its author should know.
    pub(crate) fn findings(&self, at: usize) -> Vec<Finding> {
        let Some(overlay) = self.overlays.get(at) else {
            return Vec::new();
        };
        let mut findings = match self.evaluation.verdicts().get(at) {
            Some(Verdict::Invalid(problems)) => problems
                .iter()
                .map(|problem| {
                    overlay.finding(Rule::InvalidField, &problem.field, problem.message.clone(), "")
                })
                .collect(),
            Some(Verdict::Conflict(conflict)) => {
                let field = match conflict.field {
                    ConflictField::Price => "spec.weight",
                    ConflictField::Capacity => "spec.capacity",
                };
                let fix = match overlay.origin.made_of {
                    None => {
                        "give one of them a higher spec.weight, or let their requirements exclude each other"
                    }
                    Some(_) => {
                        "use another number for the preference, or let their requirements exclude each other"
                    }
                };
                vec![overlay.finding(Rule::Conflict, field, self.conflict(at, conflict), fix)]
            }
            Some(Verdict::Ready) | None => Vec::new(),
        };
        let advice = self.effects.get(at).map_or(&[][..], |effect| &effect.advice);
        findings.extend(
            advice.iter().map(|one| {
                overlay.finding(Rule::Overlay(one.rule), &one.field, one.message.clone(), &one.fix)
            }),
        );
        findings
    }

    /// The verdict on an overlay as the reason and message of its condition.
    pub(crate) fn condition(&self, at: usize) -> (&'static str, String) {
        match self.evaluation.verdicts().get(at) {
            Some(Verdict::Invalid(problems)) => {
                let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
                ("RuntimeValidation", all.join("; "))
            }
            Some(Verdict::Conflict(conflict)) => ("Conflict", self.conflict(at, conflict)),
            Some(Verdict::Ready) | None => ("Ready", String::new()),
        }
    }

    /// Where an overlay that nobody wrote comes from, in words.
    pub(crate) fn made_of(&self, at: usize) -> Option<String> {
        let made_of = self.overlays.get(at)?.origin.made_of.as_ref()?;
        let MadeOf { object, annotation } = made_of;
        Some(format!("from annotation {annotation} of {object}"))
    }

    fn conflict(&self, at: usize, conflict: &Conflict) -> String {
        let (what, place) = match conflict.field {
            ConflictField::Price => ("the price", self.meeting_place(at, conflict)),
            ConflictField::Capacity => ("the same resource", None),
        };
        let place =
            place.unwrap_or_else(|| format!("{} in NodePool {}", conflict.instance_type, conflict.node_pool));
        let (noun, verb) = if conflict.with.len() == 1 {
            ("overlay", "sets")
        } else {
            ("overlays", "set")
        };
        let others = conflict.with.join(", ");
        format!(
            "{noun} {others} of the same weight {verb} {what} of {place} too; this one is left out everywhere"
        )
    }

    /// An offering that its pool can launch and where the overlay meets one that it conflicts with. There may be
    /// none: Karpenter compares overlays on every type, whether a pool can launch it or not.
    fn meeting_place(&self, at: usize, conflict: &Conflict) -> Option<String> {
        let evaluation = &self.evaluation;
        let vocabulary = &evaluation.catalogue().vocabulary;
        let with = |overlay: &Sourced<NodeOverlay>| conflict.with.iter().any(|with| with == overlay.name());
        let others: Vec<usize> = (0..self.overlays.len())
            .filter(|other| self.overlays.get(*other).is_some_and(with))
            .collect();
        for (pool, (manifest, launchable)) in self.pools.iter().zip(&self.launchable).enumerate() {
            let mut number = 0;
            for (entry, it) in evaluation.catalogue().types.iter().enumerate() {
                for (offering, of) in it.offerings.iter().enumerate() {
                    let matches = |overlay: usize| evaluation.matches(overlay, pool, entry, offering);
                    if launchable.contains(number)
                        && matches(at)
                        && others.iter().any(|other| matches(*other))
                    {
                        let labels = [of.capacity_type(vocabulary), of.zone(vocabulary)];
                        let labels: Vec<&str> = labels.into_iter().flatten().collect();
                        return Some(format!(
                            "{} ({}) in NodePool {}",
                            it.name,
                            labels.join(", "),
                            manifest.name()
                        ));
                    }
                    number += 1;
                }
            }
        }
        None
    }
}

fn seen_by_overlays(pool: &NodePool) -> Pool {
    let labels = &pool.spec.template.metadata.labels;
    Pool {
        name: pool.metadata.name.clone().unwrap_or_default(),
        labels: labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}
