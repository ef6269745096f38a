//! Actions that failed or came too late, and how long each is left alone: longer after every failure, and never as long as
//! its neighbor.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The first pause after a second conflict in a row. A new node is written by many at once, and pods wait for it to open.
const FIRST_CONFLICT: Duration = Duration::from_millis(100);
/// The longest pause after something that may pass by itself.
const PASSING: Duration = Duration::from_secs(30);
/// The longest pause of all, where a person has to do something first.
const LONGEST: Duration = Duration::from_secs(300);

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
            .retain(|_, setback| setback.until + setback.delay + PASSING > now);
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
        let delay = next(last.filter(|delay| !delay.is_zero()), needs_action);
        self.pause(key, delay.max(FIRST), now)
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
            let delay = setback.delay.saturating_mul(2).clamp(FIRST_CONFLICT, PASSING);
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

/// The pause after another failure.
fn next(last: Option<Duration>, needs_action: bool) -> Duration {
    let longest = if needs_action { LONGEST } else { PASSING };
    last.map_or(FIRST, |last| longest.min(last.saturating_mul(2)))
}

/// A pause between half of `delay` and all of it, so that what failed together is not tried again together. It follows from what is
/// tried, so that a simulation repeats itself.
fn jittered(delay: Duration, key: &str) -> Duration {
    // FNV-1a.
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let hash = key.bytes().fold(start, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let permille = u32::try_from(500 + (hash >> 16) % 501).unwrap_or(1000);
    delay.saturating_mul(permille) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_that_depends_on_who_has_to_act() {
        let seconds = |needs_action| {
            let mut last = None;
            let pauses = (0..10).map(|_| {
                last = Some(next(last, needs_action));
                last.unwrap_or_default().as_secs()
            });
            pauses.collect::<Vec<_>>()
        };
        assert_eq!(seconds(false), [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
        assert_eq!(seconds(true), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    }

    #[test]
    fn pauses_are_spread_over_their_second_half() {
        let delay = Duration::from_secs(10);
        let pauses: Vec<u128> = (0..1000)
            .map(|number| jittered(delay, &format!("terminate i-{number}")).as_millis())
            .collect();
        assert!(pauses.iter().all(|pause| (5_000..=10_000).contains(pause)));
        for part in 0..5 {
            let part = 5_000 + part * 1_000..6_000 + part * 1_000;
            let share = pauses.iter().filter(|pause| part.contains(*pause)).count();
            assert!((120..280).contains(&share), "{share} of 1000 in {part:?}");
        }
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
        assert!(first <= FIRST);
        assert_eq!(
            setbacks.failed(&"a", false, now),
            first,
            "what fails together has failed once"
        );
        assert!(setbacks.failed(&"a", false, now + first) > FIRST / 2);
        assert!(!setbacks.is_due(&"a", now + Duration::from_millis(500)));
    }
}
