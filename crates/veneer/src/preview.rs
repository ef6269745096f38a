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
use crate::input::objects::{Objects, Sourced};

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
                let fix =
                    "give one of them a higher spec.weight, or let their requirements exclude each other";
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

    fn conflict(&self, at: usize, conflict: &Conflict) -> String {
        let what = match conflict.field {
            ConflictField::Price => "the price",
            ConflictField::Capacity => "the same resource",
        };
        let place = self.meeting_place(at, conflict).unwrap_or_default();
        format!(
            "overlay{} {} of the same weight set{} {what} of {}{place} in NodePool {} too; this one is left out everywhere",
            if conflict.with.len() == 1 { "" } else { "s" },
            conflict.with.join(", "),
            if conflict.with.len() == 1 { "s" } else { "" },
            conflict.instance_type,
            conflict.node_pool,
        )
    }

    /// An offering where the overlay meets the one it conflicts with: ` (spot, us-east-1a)`.
    fn meeting_place(&self, at: usize, conflict: &Conflict) -> Option<String> {
        if conflict.field == ConflictField::Capacity {
            return None;
        }
        let catalogue = self.evaluation.catalogue();
        let pool = self
            .pools
            .iter()
            .position(|pool| pool.name() == conflict.node_pool)?;
        let other = self
            .overlays
            .iter()
            .position(|overlay| conflict.with.first().is_some_and(|with| with == overlay.name()))?;
        let types = catalogue.types.iter().enumerate();
        let (_, offering) = types
            .filter(|(_, it)| *it.name == *conflict.instance_type)
            .flat_map(|(entry, it)| {
                it.offerings
                    .iter()
                    .enumerate()
                    .map(move |(number, offering)| ((entry, number), offering))
            })
            .find(|((entry, number), _)| {
                [at, other]
                    .iter()
                    .all(|overlay| self.evaluation.matches(*overlay, pool, *entry, *number))
            })?;
        let vocabulary = &catalogue.vocabulary;
        let parts: Vec<&str> = [offering.capacity_type(vocabulary), offering.zone(vocabulary)]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| format!(" ({})", parts.join(", ")))
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
