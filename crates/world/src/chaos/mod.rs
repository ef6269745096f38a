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

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Pod;
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
    /// Of a fleet only a few instances come.
    pub fleet: f64,
    /// A message about an interruption is late, or comes again.
    pub message: f64,
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
    /// How many more instances of this moment's fleet come, if not all.
    fleet: (Timestamp, Option<u64>),
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
            fleet: (Timestamp::MIN, None),
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

    /// Whether the fleet of this moment has no instance left for one more claim.
    pub(crate) fn fleet_is_short(&mut self, now: Timestamp) -> bool {
        if self.fleet.0 != now {
            let comes = self.rng.below(3);
            let is_partial = self.rng.chance(self.rates.fleet);
            self.fleet = (now, is_partial.then_some(comes));
        }
        match &mut self.fleet.1 {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// After how long the message about an interruption comes, each time.
    pub(crate) fn deliveries(&mut self) -> Vec<SignedDuration> {
        let mut after = |least: i64, spread: u64| {
            let more = i64::try_from(self.rng.below(spread)).unwrap_or_default();
            SignedDuration::from_secs(least + more)
        };
        let (first, late, again) = (after(1, 2), after(1, 180), after(1, 240));
        if self.rng.chance(self.rates.message) {
            vec![late, again]
        } else {
            vec![first]
        }
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
