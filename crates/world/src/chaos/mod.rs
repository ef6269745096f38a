//! Faults: what goes wrong between a decision and the world, and what must hold all the same.
//!
//! A history is a small world with a seed: its load, its faults and their times follow from it. After every moment the
//! invariants are checked; when the faults stop, the world must come to rest with every pod placed.

mod bugs;
mod history;
mod invariants;

pub use bugs::Bug;
pub use history::{History, KINDS, Outcome, Report, Violation, run, shrink};

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use veneer_engine::plan::{Action, Instance, Snapshot};

use crate::rng::Rng;

/// How often each fault happens, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// The controllers are killed before or after an action.
    pub crash: f64,
    /// The API server refuses a write.
    pub refuse: f64,
    /// A launch is throttled or fails.
    pub launch: f64,
    /// The controllers are killed between a launch and writing it down.
    pub answer: f64,
    /// Watches are late: pods and instances are seen as they were.
    pub stale: f64,
}

/// What becomes of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    Refused,
    CrashBefore,
    CrashAfter,
}

impl Fate {
    /// What becomes of the answer to a launch.
    pub(crate) fn of_answer(faults: &mut Box<Faults>) -> Self {
        let is_lost = faults.rng.chance(faults.rates.answer);
        if is_lost { Self::CrashAfter } else { Self::Done }
    }
}

/// The faults of one world.
#[derive(Debug)]
pub struct Faults {
    /// How often they happen; all zero when they have stopped.
    pub rates: Rates,
    /// Whether the faults have stopped.
    pub calm: bool,
    /// How wrong the clock of the controllers is.
    pub skew: SignedDuration,
    /// Faults of our own that tests put in.
    pub bugs: bugs::Bugs,
    rng: Rng,
    seen: Option<(Vec<Arc<Pod>>, Vec<Instance>)>,
    /// Whether the last snapshot was an old one, so that somebody has to look again.
    pub(crate) was_stale: bool,
}

impl Faults {
    /// Faults that follow from a seed.
    #[must_use]
    pub fn new(seed: u64, rates: Rates, bug: Option<Bug>) -> Self {
        Self {
            rates,
            calm: false,
            skew: SignedDuration::ZERO,
            bugs: bugs::Bugs::of(bug),
            rng: Rng::of(seed, &["faults"]),
            seen: None,
            was_stale: false,
        }
    }

    pub(crate) fn fate(&mut self, action: &Action) -> Fate {
        if matches!(action, Action::Announce(_)) {
            return Fate::Done;
        }
        let draw = self.rng.unit();
        let Rates { crash, refuse, .. } = self.rates;
        if draw < crash / 2.0 {
            Fate::CrashBefore
        } else if draw < crash {
            Fate::CrashAfter
        } else if draw < crash + refuse {
            Fate::Refused
        } else {
            Fate::Done
        }
    }

    pub(crate) fn launch_fails(&mut self) -> Option<String> {
        let fails = self.rng.chance(self.rates.launch);
        fails.then(|| "RequestLimitExceeded: the account makes too many requests".to_owned())
    }

    /// Shows pods and instances as they were when the watches last came through.
    pub(crate) fn blur(&mut self, snapshot: &mut Snapshot) {
        self.was_stale = false;
        if self.rng.chance(self.rates.stale)
            && let Some((pods, instances)) = &self.seen
        {
            snapshot.pods.clone_from(pods);
            snapshot.instances.clone_from(instances);
            self.was_stale = true;
        } else {
            self.seen = Some((snapshot.pods.clone(), snapshot.instances.clone()));
        }
        self.bugs.spoil_snapshot(snapshot);
    }
}
