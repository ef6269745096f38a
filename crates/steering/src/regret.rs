//! Keeps consolidation from trying again and again what kube-scheduler undoes.
//!
//! Consolidation removes a node when the simulation has room for its pods elsewhere. kube-scheduler places them by its own scores, and
//! may leave a pod without room, for which a node is launched again: round and round, with evictions each time. So a launch for
//! pending pods soon after pods were moved is taken as regret, and pods are not moved for a while; the pause doubles with
//! each regret, and is forgotten after moves that nothing had to be launched for.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A launch within this time after pods were moved is taken to be their fault.
const SOON: SignedDuration = SignedDuration::from_mins(2);
/// The pause after the first regret.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(2);
/// The longest pause.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// What became of moving pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regret {
    /// When pods were moved last.
    moved: Option<Timestamp>,
    /// The last pause.
    pause: SignedDuration,
    /// Until then no pods are moved.
    until: Option<Timestamp>,
}

impl Regret {
    /// Until when no pods shall be moved, if they shall not.
    #[must_use]
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| now < *until)
    }

    /// Nodes were chosen to go whose pods go elsewhere.
    pub fn moved(&mut self, now: Timestamp) {
        let was_good = self.moved.is_some_and(|at| now.duration_since(at) >= SOON);
        if was_good {
            // Nothing had to be launched after the last time.
            self.pause = SignedDuration::ZERO;
        }
        self.moved = Some(now);
    }

    /// Nodes are launched for pods that wait.
    pub fn launched(&mut self, now: Timestamp) {
        let is_soon = self.moved.is_some_and(|at| now.duration_since(at) < SOON);
        if !is_soon {
            return;
        }
        let doubled = self.pause.checked_mul(2).unwrap_or(LONGEST_PAUSE);
        self.pause = doubled.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.until = now.checked_add(self.pause).ok();
        self.moved = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn the_pause_doubles_with_each_regret_and_is_forgotten_after_a_good_move() {
        let mut regret = Regret::default();
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..7 {
            regret.moved(at(now));
            regret.launched(at(now + 1));
            let until = regret.until(at(now + 1)).unwrap();
            let pause = (until.as_second() - at(now + 1).as_second()) / 60;
            pauses.push(pause);
            now += 1 + pause;
            assert_eq!(regret.until(at(now)), None);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        regret.moved(at(now));
        regret.moved(at(now + 5));
        regret.launched(at(now + 6));
        assert_eq!(regret.until(at(now + 6)), Some(at(now + 8)));
    }

    #[test]
    fn a_launch_long_after_the_last_move_is_nobodys_fault() {
        let mut regret = Regret::default();
        regret.launched(at(0));
        regret.moved(at(1));
        regret.launched(at(3));
        assert_eq!(regret.until(at(3)), None);
    }
}
