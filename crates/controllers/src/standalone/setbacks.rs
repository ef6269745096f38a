//! Actions that failed or came too late, and how long each is left alone.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a failed action is left alone: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

#[derive(Clone, Copy, Debug)]
struct Setback {
    until: Instant,
    delay: Duration,
}

/// What is known about actions that did not work, by their key.
#[derive(Debug, Default)]
pub(super) struct Setbacks(HashMap<String, Setback>);

impl Setbacks {
    /// Forgets those that nobody has tried again for long.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.0
            .retain(|_, setback| setback.until + setback.delay + BACKOFF.1 > now);
    }

    /// Whether an action may be tried now.
    pub(super) fn is_due(&self, key: &str, now: Instant) -> bool {
        self.0.get(key).is_none_or(|setback| setback.until <= now)
    }

    pub(super) fn succeeded(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Says for how long the action is left alone.
    pub(super) fn failed(&mut self, key: &str, now: Instant) -> Duration {
        // Several of one kind that fail together have failed once.
        if let Some(setback) = self.0.get(key).filter(|setback| setback.until > now) {
            return setback.until - now;
        }
        let known = self.0.get(key).map(|setback| setback.delay);
        let known = known.filter(|delay| !delay.is_zero());
        let delay = known.map_or(BACKOFF.0, |delay| BACKOFF.1.min(delay * 2));
        let delay = if seeded!(NoBackOff) { Duration::ZERO } else { delay };
        let until = now + delay;
        self.0.insert(key.to_owned(), Setback { until, delay });
        delay
    }

    /// Leaves an action alone for a while that does not grow.
    pub(super) fn rest(&mut self, key: &str, until: Instant) {
        let delay = Duration::ZERO;
        self.0.insert(key.to_owned(), Setback { until, delay });
    }

    /// The same for an action that another writer was faster than. The first time it is decided again at once: with the newest
    /// version it works. When it does not, something is wrong.
    pub(super) fn conflicted(&mut self, key: &str, now: Instant) -> Option<Duration> {
        if self.0.contains_key(key) {
            return Some(self.failed(key, now));
        }
        let first = Setback {
            until: now,
            delay: Duration::ZERO,
        };
        self.0.insert(key.to_owned(), first);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_conflict_is_free_and_the_next_ones_wait_longer_each_time() {
        let mut setbacks = Setbacks::default();
        let mut now = Instant::now();
        let mut tries = 0;
        let end = now + Duration::from_secs(20);
        while now < end {
            if setbacks.is_due("a", now) {
                tries += 1;
                setbacks.conflicted("a", now);
            }
            now += Duration::from_millis(100);
        }
        assert_eq!(tries, 6);
        setbacks.succeeded("a");
        assert!(setbacks.is_due("a", now));
        assert_eq!(setbacks.conflicted("a", now), None);
        setbacks.forget_old(now + Duration::from_secs(60));
        assert_eq!(setbacks.failed("a", now), BACKOFF.0);
        assert_eq!(setbacks.failed("a", now), BACKOFF.0 * 2);
        assert!(!setbacks.is_due("a", now + Duration::from_secs(1)));
    }
}
