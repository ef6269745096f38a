//! Cost and Usage Reports (2.0, the older ones, and FOCUS 1.x) against the rules of billing.
//!
//! A [`Reconciliation`] reads reports line by line. What they say of commitments, prices and rates is kept in memory; lines wait in an
//! [`HourStore`] until everything is read, because reports are not sorted. Then each clock hour goes through the allocator of
//! `veneer-billing`, and both answers are laid side by side: a difference follows from an order that AWS does not document, is a
//! [`Mistake`] with a name, or is unexplained.
//!
//! Memory is bounded by the largest hour and by how many commitments, prices and rates there are. Nothing here opens a file.

mod checks;
mod cur;
mod error;
mod explain;
mod facts;
mod focus;
mod hour;
mod intake;
mod line;
mod meter;
mod mistake;
mod report;
mod rows;
mod store;
mod time;
mod totals;
mod write;

use std::io::{self, Read};

use veneer_billing::Sharing;

pub use error::ReadError;
pub use mistake::Mistake;
pub use store::{HourStore, MemoryStore};
pub use time::{format as format_time, parse as seconds_of_time};
pub use totals::{CommitmentTotals, Example, LineHours, MistakeTotals, Pair, Report, UsageTotals};
pub use write::{CurLine, CurWriter};

/// Reads reports and replays them.
pub struct Reconciliation<S> {
    store: S,
    sharing: Sharing,
    intake: intake::Intake,
    files: Vec<String>,
}

impl<S: HourStore> Reconciliation<S> {
    /// A reconciliation of accounts that share commitments in this way, which reports do not say.
    pub fn new(store: S, sharing: Sharing) -> Self {
        Self {
            store,
            sharing,
            intake: intake::Intake::default(),
            files: Vec::new(),
        }
    }

    /// Reads one file, whose header says what it is.
    ///
    /// # Errors
    /// Fails at the first line that cannot be read.
    pub fn read(&mut self, name: &str, input: impl Read) -> Result<(), ReadError> {
        let file = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.files.push(name.to_owned());
        let rows = rows::Rows::new(file, name, input)?;
        match focus::is_focus(rows.header()) {
            true => focus::read(rows, &mut self.intake, &mut self.store),
            false => cur::read(rows, &mut self.intake, &mut self.store),
        }
    }

    /// Lines that were read so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.intake.lines
    }

    /// Replays every hour. `progress` is told how many of how many are done.
    ///
    /// # Errors
    /// Fails if lines that wait for their hour cannot be read again.
    pub fn finish(mut self, mut progress: impl FnMut(usize, usize)) -> io::Result<Report> {
        let facts = &mut self.intake.facts;
        facts.close();
        let slots = self.store.slots();
        let mut summary = report::Summary::default();
        for (done, slot) in slots.iter().enumerate() {
            progress(done, slots.len());
            let records = self.store.take(*slot)?;
            let mut hour = hour::hour(*slot, &records, facts, &self.sharing);
            let verdicts = match hour.is_replayed() {
                true => explain::explain(&mut hour, facts, &self.sharing),
                false => std::collections::BTreeMap::new(),
            };
            summary.add(&hour, &verdicts, facts, &self.files);
        }
        Ok(summary.finish(self.intake.lines, facts, &self.files))
    }
}
