//! The time that decisions are made for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The clock of the machine, which may be set forward to see what a schedule leads to.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    ahead_seconds: Arc<AtomicI64>,
    /// A time and when it was, where not the machine's clock counts.
    simulated: Option<(Timestamp, tokio::time::Instant)>,
}

impl Clock {
    /// A clock that shows `at` now and goes on with the runtime's time, which a test can pause.
    #[cfg(test)]
    pub(crate) fn simulated(at: Timestamp) -> Self {
        Self {
            simulated: Some((at, tokio::time::Instant::now())),
            ..Self::default()
        }
    }

    /// What time decisions are made for.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead_seconds.load(Ordering::Relaxed));
        let now = self.machine();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// What time the machine has, for what is written down about things that happened.
    pub(crate) fn machine(&self) -> Timestamp {
        match &self.simulated {
            None => Timestamp::now(),
            Some((at, since)) => at.checked_add(since.elapsed()).unwrap_or(*at),
        }
    }

    /// Sets it this far ahead of the machine's, for all who share it.
    pub fn set_ahead(&self, by: SignedDuration) {
        self.ahead_seconds.store(by.as_secs(), Ordering::Relaxed);
    }
}
