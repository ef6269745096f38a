//! Actions that failed or came too late, and how long each is left alone: longer after every failure, and never as long as
//! its neighbor.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;
use veneer_engine::backoff::{Backoff, jittered};

/// The longest pause after something that may pass by itself.
const LONGEST_PASSING: Duration = Duration::from_secs(30);
/// After a failure that may pass by itself.
const PASSING: Backoff = Backoff::doubling(Duration::from_secs(1), LONGEST_PASSING);
/// After one where a person has to do something first.
const NEEDS_ACTION: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(300));
/// After a second conflict in a row. A new node is written by many at once, and pods wait for it to open.
const CONFLICTS: Backoff = Backoff::doubling(Duration::from_millis(100), LONGEST_PASSING);

#[derive(Clone, Copy, Debug)]
struct Setback {
    until: Instant,
    /// Zero after a first conflict.
    delay: Duration,
}

/// What is known about actions that did not work, by their key.
#[derive(Debug)]
pub(super) struct Setbacks<K>(HashMap<K, Setback>);

impl<K> Default for Setbacks<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash + Display> Setbacks<K> {
    /// Forgets those that nobody has tried again for long.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.0
            .retain(|_, setback| setback.until + setback.delay + LONGEST_PASSING > now);
    }

    /// Whether an action may be tried now.
    pub(super) fn is_due(&self, key: &K, now: Instant) -> bool {
        self.0.get(key).is_none_or(|setback| setback.until <= now)
    }

    pub(super) fn succeeded(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Says for how long the action is left alone; longer where a person has to do something first.
    pub(super) fn failed(&mut self, key: &K, needs_action: bool, now: Instant) -> Duration {
        // Several of one kind that fail together have failed once.
        if let Some(setback) = self.0.get(key).filter(|setback| setback.until > now) {
            return setback.until - now;
        }
        let last = self.0.get(key).map(|setback| setback.delay);
        let backoff = if needs_action { NEEDS_ACTION } else { PASSING };
        self.pause(key, backoff.after(last.unwrap_or_default()), now)
    }

    fn pause(&mut self, key: &K, delay: Duration, now: Instant) -> Duration {
        let delay = if seeded!(NoBackOff) { Duration::ZERO } else { delay };
        let pause = jittered(delay, &key.to_string());
        let until = now + pause;
        self.0.insert(key.clone(), Setback { until, delay });
        pause
    }

    /// Leaves an action alone for a while that does not grow.
    pub(super) fn rest(&mut self, key: &K, until: Instant) {
        let delay = Duration::ZERO;
        self.0.insert(key.clone(), Setback { until, delay });
    }

    /// The same for an action that another writer was faster than. The first time it is decided again at once: with the newest
    /// version it works. When it does not, something is wrong.
    pub(super) fn conflicted(&mut self, key: &K, now: Instant) -> Option<Duration> {
        if let Some(setback) = self.0.get(key) {
            if setback.until > now {
                return Some(setback.until - now);
            }
            let delay = CONFLICTS.after(setback.delay);
            return Some(self.pause(key, delay, now));
        }
        let first = Setback {
            until: now,
            delay: Duration::ZERO,
        };
        self.0.insert(key.clone(), first);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_that_depends_on_who_has_to_act() {
        let seconds = |backoff: Backoff| {
            let mut last = Duration::ZERO;
            let pauses = (0..10).map(|_| {
                last = backoff.after(last);
                last.as_secs()
            });
            pauses.collect::<Vec<_>>()
        };
        assert_eq!(seconds(PASSING), [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
        assert_eq!(seconds(NEEDS_ACTION), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    }

    #[test]
    fn the_first_conflict_is_free_and_the_next_ones_wait_longer_each_time() {
        let mut setbacks: Setbacks<&str> = Setbacks::default();
        let mut now = Instant::now();
        let mut tries = Vec::new();
        let began = now;
        while now < began + Duration::from_secs(40) {
            if setbacks.is_due(&"a", now) {
                tries.push(now - began);
                setbacks.conflicted(&"a", now);
            }
            now += Duration::from_millis(100);
        }
        assert!((10..=13).contains(&tries.len()), "{tries:?}");
        let pauses: Vec<Duration> = tries.iter().zip(&tries[1..]).map(|(a, b)| *b - *a).collect();
        assert!(pauses[0] <= Duration::from_millis(100), "{pauses:?}");
        assert!(pauses.last() > Some(&Duration::from_secs(7)), "{pauses:?}");
        setbacks.succeeded(&"a");
        assert!(setbacks.is_due(&"a", now));
        assert_eq!(setbacks.conflicted(&"a", now), None);
        setbacks.forget_old(now + Duration::from_secs(60));
        let first = setbacks.failed(&"a", false, now);
        assert!(first <= PASSING.first());
        assert_eq!(
            setbacks.failed(&"a", false, now),
            first,
            "what fails together has failed once"
        );
        assert!(setbacks.failed(&"a", false, now + first) > PASSING.first() / 2);
        assert!(!setbacks.is_due(&"a", now + Duration::from_millis(500)));
    }
}
