//! The time that decisions are made for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The clock of the machine, which may be set forward to see what a schedule leads to.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    ahead_seconds: Arc<AtomicI64>,
}

impl Clock {
    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead_seconds.load(Ordering::Relaxed));
        let now = Timestamp::now();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Sets it this far ahead of the machine's, for all who share it.
    pub fn set_ahead(&self, by: SignedDuration) {
        self.ahead_seconds.store(by.as_secs(), Ordering::Relaxed);
    }
}
