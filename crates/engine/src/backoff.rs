//! How long to wait after something has failed: longer each time, within bounds.

use std::time::Duration;

/// Pauses that grow with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    factor: u32,
}

impl Backoff {
    /// Each pause is twice as long as the one before it.
    #[must_use]
    pub const fn doubling(first: Duration, longest: Duration) -> Self {
        Self::growing(first, longest, 2)
    }

    /// Each pause is `factor` times as long as the one before it.
    #[must_use]
    pub const fn growing(first: Duration, longest: Duration, factor: u32) -> Self {
        Self {
            first,
            longest,
            factor,
        }
    }

    /// The pause after the first failure.
    #[must_use]
    pub const fn first(&self) -> Duration {
        self.first
    }

    /// The pause after another failure, where the last one was `last`; zero if there was none.
    #[must_use]
    pub fn after(&self, last: Duration) -> Duration {
        let grown = last.saturating_mul(self.factor);
        grown.max(self.first).min(self.longest)
    }

    /// The pause after a failure that so many came before.
    #[must_use]
    pub fn nth(&self, failures: u32) -> Duration {
        let factor = self.factor.checked_pow(failures);
        let pause = factor.map_or(Duration::MAX, |factor| self.first.saturating_mul(factor));
        pause.min(self.longest)
    }
}

/// A pause between half of `pause` and all of it, so that what failed together is not tried again together. It follows from what is
/// tried, so that a simulation repeats itself.
#[must_use]
pub fn jittered(pause: Duration, what: &str) -> Duration {
    // FNV-1a.
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    let hash = what.bytes().fold(start, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let permille = u32::try_from(500 + (hash >> 16) % 501).unwrap_or(1000);
    pause.saturating_mul(permille) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut last = Duration::ZERO;
        let pauses = (0..8).map(|_| {
            last = BACKOFF.after(last);
            last.as_secs()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30, 30]);
        let pauses = [0, 1, 4, 5, 31, 32, u32::MAX].map(|failures| BACKOFF.nth(failures).as_secs());
        assert_eq!(pauses, [1, 2, 16, 30, 30, 30, 30]);
        assert_eq!(BACKOFF.after(Duration::MAX).as_secs(), 30);
        assert_eq!(BACKOFF.after(Duration::from_millis(1)), BACKOFF.first());
    }

    #[test]
    fn jitter_spreads_pauses_over_their_second_half() {
        let pause = Duration::from_secs(10);
        let pauses: Vec<u128> = (0..1000)
            .map(|number| jittered(pause, &format!("terminate i-{number}")).as_millis())
            .collect();
        assert!(pauses.iter().all(|pause| (5_000..=10_000).contains(pause)));
        for part in 0..5 {
            let part = 5_000 + part * 1_000..6_000 + part * 1_000;
            let share = pauses.iter().filter(|pause| part.contains(*pause)).count();
            assert!((120..280).contains(&share), "{share} of 1000 in {part:?}");
        }
    }
}
