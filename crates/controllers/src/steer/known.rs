//! The newest ledger of commitments, for those who price launches.

use std::sync::{Arc, Mutex, PoisonError};

use veneer_steering::commitments::Ledger;

/// What was last read about commitments; nothing without Prometheus.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<Mutex<Option<Arc<Ledger>>>>);

impl Known {
    pub(super) fn set(&self, ledger: &Ledger) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(ledger.clone()));
    }

    pub(crate) fn get(&self) -> Option<Arc<Ledger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
