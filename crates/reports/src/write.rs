//! Writes a Cost and Usage Report 2.0: with the columns that are read here, in their order.

use std::collections::BTreeMap;
use std::io::Write;

use crate::cur::NAMES;
use crate::time;

/// A line of a report, by the names of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurLine(BTreeMap<&'static str, String>);

impl CurLine {
    /// A line of a kind (`Usage`, `DiscountedUsage`, …) for some time.
    #[must_use]
    pub fn new(kind: &str, start: i64, end: i64) -> Self {
        Self::default()
            .with("line_item_line_item_type", kind)
            .with("line_item_usage_start_date", &time::format(start))
            .with("line_item_usage_end_date", &time::format(end))
            .with("line_item_currency_code", "USD")
    }

    /// The same with a value; what is no column of ours is left out.
    #[must_use]
    pub fn with(mut self, column: &str, value: &str) -> Self {
        self.set(column, value);
        self
    }

    /// Sets a value.
    pub fn set(&mut self, column: &str, value: &str) {
        if let Some(name) = NAMES.iter().find(|name| **name == column) {
            self.0.insert(name, value.to_owned());
        }
    }

    /// A value; empty if there is none.
    #[must_use]
    pub fn get(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }
}

/// Writes lines as CSV.
pub struct CurWriter<W: Write>(csv::Writer<W>);

impl<W: Write> CurWriter<W> {
    /// Begins a report with its header.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn new(out: W) -> std::io::Result<Self> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(NAMES)?;
        Ok(Self(writer))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&mut self, line: &CurLine) -> std::io::Result<()> {
        self.0.write_record(NAMES.iter().map(|name| line.get(name)))?;
        Ok(())
    }

    /// Ends the report.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
