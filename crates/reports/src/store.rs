//! Where lines wait until their hour is replayed: reports are not sorted, and are larger than memory.

use std::collections::BTreeMap;
use std::io;

use veneer_billing::Interval;

/// Keeps the records of each stretch of time, which is a clock hour or, in reports by the day or the month, longer.
pub trait HourStore {
    /// Adds a record, which ends with a line break.
    ///
    /// # Errors
    /// Fails if it cannot be kept.
    fn append(&mut self, slot: Interval, record: &str) -> io::Result<()>;

    /// Everything that has records, in order.
    fn slots(&self) -> Vec<Interval>;

    /// The records of one stretch of time; they are not asked for again.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    fn take(&mut self, slot: Interval) -> io::Result<String>;
}

/// Keeps records in memory, for small reports.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(BTreeMap<Interval, String>);

impl HourStore for MemoryStore {
    fn append(&mut self, slot: Interval, record: &str) -> io::Result<()> {
        self.0.entry(slot).or_default().push_str(record);
        Ok(())
    }

    fn slots(&self) -> Vec<Interval> {
        self.0.keys().copied().collect()
    }

    fn take(&mut self, slot: Interval) -> io::Result<String> {
        Ok(self.0.remove(&slot).unwrap_or_default())
    }
}
