//! Arrivals of pods that nobody has seen: the same for the same seed.

use super::Arrival;

/// What pods do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// How many come per hour, evenly.
    pub hourly: f64,
    /// How many come at once in a burst.
    pub burst: usize,
    /// The time from burst to burst, in seconds.
    pub every: f64,
    /// How long a pod stays on average, in seconds.
    pub life: f64,
}

impl Default for Pattern {
    fn default() -> Self {
        Self {
            hourly: 30.0,
            burst: 20,
            every: 3600.0,
            life: 1200.0,
        }
    }
}

/// How long a burst takes, in seconds.
const BURST: f64 = 10.0;

/// Pods that come within `span` seconds, in the order of time.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "numbers of pods are small")]
pub fn generate(pattern: &Pattern, span: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed | 1);
    let mut arrivals = Vec::new();
    if pattern.hourly > 0.0 {
        let mut at = random.exponential(3600.0 / pattern.hourly);
        while at <= span {
            let life = random.exponential(pattern.life);
            arrivals.push(Arrival { at, life });
            at += random.exponential(3600.0 / pattern.hourly);
        }
    }
    let mut burst = pattern.every / 2.0;
    while pattern.every > 0.0 && burst <= span {
        for number in 0..pattern.burst {
            let at = burst + BURST * number as f64 / pattern.burst as f64;
            let life = random.exponential(pattern.life);
            arrivals.push(Arrival { at, life });
        }
        burst += pattern.every;
    }
    arrivals.sort_by(|a, b| a.at.total_cmp(&b.at));
    arrivals
}

struct Random(u64);

impl Random {
    /// From above 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "the bits beyond do not matter")]
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.share().ln()
    }
}
