//! How long a failed action is left alone: longer after every failure, and never as long as its neighbor.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause after something that may pass by itself.
const PASSING: Duration = Duration::from_secs(30);
/// The longest pause of all, where a person has to do something first.
pub(super) const LONGEST: Duration = Duration::from_secs(300);

/// The pause after another failure.
pub(super) fn next(last: Option<Duration>, needs_action: bool) -> Duration {
    let longest = if needs_action { LONGEST } else { PASSING };
    last.map_or(FIRST, |last| longest.min(last.saturating_mul(2)))
}

/// A pause between half of `delay` and all of it, so that what failed together is not tried again together.
pub(super) fn jittered(delay: Duration, random: u64) -> Duration {
    let permille = u32::try_from(500 + random % 501).unwrap_or(1000);
    delay.saturating_mul(permille) / 1000
}

/// A number that nobody can foresee; good enough to spread retries.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
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
    fn a_pause_is_spread_over_its_second_half() {
        let of = |random| jittered(Duration::from_secs(10), random);
        assert_eq!(
            (of(0), of(500)),
            (Duration::from_secs(5), Duration::from_secs(10))
        );
        assert!((0..10_000).all(|random| (5..=10).contains(&of(random * 7919).as_secs())));
        assert_ne!(random(), random());
    }
}
