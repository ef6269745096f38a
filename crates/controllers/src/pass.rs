//! One pass: from a snapshot to a plan. The evaluator is kept, so that one changed overlay costs little.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::status::{self, Effects, Memory, Plan, Policy, Subject};
use veneer_engine::overlay::{Evaluation, Evaluator, Overlay, Pool, Problem, TieBreak};

use crate::observe::Snapshot;

type ReadOverlay = Result<Overlay, (String, Vec<Problem>)>;

/// What passes share.
#[derive(Debug)]
pub(crate) struct Passes {
    evaluator: Evaluator,
    policy: Policy,
    memory: Memory,
    overlays: Vec<ReadOverlay>,
    pools: Vec<Pool>,
    last: Option<Evaluated>,
}

/// The newest evaluation and what follows from it.
#[derive(Debug)]
pub(crate) struct Evaluated {
    pub(crate) evaluation: Evaluation,
    pub(crate) effects: Effects,
}

/// What a pass found out.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) plan: Plan,
    pub(crate) evaluated: &'a Evaluated,
    /// How long the evaluation took; nothing if no overlay and no pool had changed.
    pub(crate) evaluation_took: Option<Duration>,
}

impl Passes {
    pub(crate) fn new(catalogue: Arc<Catalogue>, policy: Policy) -> Self {
        Self {
            evaluator: Evaluator::new(catalogue, TieBreak::default()),
            policy,
            memory: Memory::default(),
            overlays: Vec::new(),
            pools: Vec::new(),
            last: None,
        }
    }

    pub(crate) fn decide(&mut self, snapshot: &Snapshot, now: Timestamp) -> Decision<'_> {
        let changed = self.take(snapshot);
        let mut evaluation_took = None;
        let evaluated = match self.last.take() {
            Some(last) if !changed => last,
            _ => {
                let began = Instant::now();
                let evaluation = self.evaluator.evaluate(&self.pools, &self.overlays);
                let effects = Effects::of(&evaluation);
                evaluation_took = Some(began.elapsed());
                Evaluated { evaluation, effects }
            }
        };
        let evaluated = self.last.insert(evaluated);
        let subjects: Vec<Subject<'_>> = snapshot
            .overlays
            .iter()
            .map(|seen| Subject {
                generation: seen.generation,
                conditions: &seen.conditions,
            })
            .collect();
        let plan = status::decide(
            &subjects,
            &evaluated.evaluation,
            &evaluated.effects,
            self.policy,
            &mut self.memory,
            now,
        );
        Decision {
            plan,
            evaluated,
            evaluation_took,
        }
    }

    /// Takes over what the evaluation depends on, and says whether any of it is new.
    fn take(&mut self, snapshot: &Snapshot) -> bool {
        let overlays = snapshot.overlays.iter().map(|seen| &seen.overlay);
        let pools = snapshot.pools.iter().map(|seen| &seen.pool);
        if self.overlays.iter().eq(overlays.clone()) && self.pools.iter().eq(pools.clone()) {
            return false;
        }
        self.overlays = overlays.cloned().collect();
        self.pools = pools.cloned().collect();
        true
    }
}
