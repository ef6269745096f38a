//! Rows of a CSV file, and values of columns with the place where they stand.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;

use csv::{Reader, ReaderBuilder, StringRecord};
use veneer_billing::{Machine, Platform, Priced, Tenancy};

use crate::error::ReadError;
use crate::facts::Things;
use crate::time;

/// A file, row by row.
pub(crate) struct Rows<R> {
    file: u32,
    name: String,
    reader: Reader<R>,
    header: Vec<String>,
    record: StringRecord,
}

/// Stands between a usage type and its tier.
pub(crate) const TIER: &str = " at $";

/// What tells machines and other usage apart in a report.
pub(crate) struct Thing<'a> {
    pub(crate) region: &'a str,
    pub(crate) usage_type: &'a str,
    /// Empty for what is no machine.
    pub(crate) instance_type: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) tenancy: Tenancy,
    /// The list price of what has tiers, which are priced apart; empty for machines.
    pub(crate) tier: &'a str,
}

impl<R: Read> Rows<R> {
    pub(crate) fn new(file: u32, name: &str, input: R) -> Result<Self, ReadError> {
        let mut reader = ReaderBuilder::new()
            .has_headers(true)
            .flexible(false)
            .from_reader(input);
        let header = match reader.headers() {
            Ok(header) => header.iter(),
            Err(error) => return Err(wrong(name, 1, &error)),
        };
        let header = header.map(|name| name.trim().trim_start_matches('\u{feff}').to_owned());
        Ok(Self {
            file,
            name: name.to_owned(),
            header: header.collect(),
            reader,
            record: StringRecord::new(),
        })
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    pub(crate) fn file(&self) -> u32 {
        self.file
    }

    /// Goes to the next row, if there is one.
    pub(crate) fn next(&mut self) -> Result<bool, ReadError> {
        match self.reader.read_record(&mut self.record) {
            Ok(is_there) => Ok(is_there),
            Err(error) => {
                let line = error.position().map_or(self.line() + 1, csv::Position::line);
                Err(wrong(&self.name, line, &error))
            }
        }
    }

    /// The line on which the row begins, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.record.position().map_or(1, csv::Position::line)
    }

    /// Equal for equal rows.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for field in &self.record {
            field.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The numbers of what the rows of a file are about: the same few, again and again.
#[derive(Default)]
pub(crate) struct ThingNumbers {
    known: HashMap<String, u32>,
    key: String,
}

impl ThingNumbers {
    /// The number of what a row is about.
    pub(crate) fn number(&mut self, things: &mut Things, thing: &Thing<'_>) -> u32 {
        self.key.clear();
        for part in [
            thing.region,
            thing.instance_type,
            thing.operation,
            thing.usage_type,
            thing.tier,
        ] {
            self.key.push_str(part);
            self.key.push('\0');
        }
        if let Some(number) = self.known.get(&self.key) {
            return *number;
        }
        let number = things.number(thing.priced());
        self.known.insert(self.key.clone(), number);
        number
    }
}

impl Thing<'_> {
    fn priced(&self) -> Priced {
        if self.instance_type.is_empty() {
            return Priced::Usage {
                region: self.region.to_owned(),
                usage_type: match self.tier {
                    "" => self.usage_type.to_owned(),
                    tier => format!("{}{TIER}{tier}", self.usage_type),
                },
            };
        }
        Priced::Machine(Machine {
            region: self.region.to_owned(),
            instance_type: self.instance_type.to_owned(),
            platform: match self.instance_type.starts_with("mac") {
                true => Platform::MacOs,
                false => Platform::from_usage_operation(self.operation),
            },
            tenancy: self.tenancy,
        })
    }
}

fn wrong(file: &str, line: u64, error: &csv::Error) -> ReadError {
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("found {len} values, expected {expected_len} as in the header")
        }
        csv::ErrorKind::Utf8 { .. } => "found bytes that are not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    ReadError::Csv {
        file: file.to_owned(),
        line,
        problem,
    }
}

/// Where the columns of a kind of report stand in a file.
pub(crate) struct Columns {
    names: &'static [&'static str],
    places: Vec<Option<usize>>,
}

impl Columns {
    /// Finds columns by name; the first `required` ones must be there.
    pub(crate) fn new<R: Read>(
        rows: &Rows<R>,
        header: &[String],
        names: &'static [&'static str],
        required: usize,
    ) -> Result<Self, ReadError> {
        let place = |name: &str| header.iter().position(|other| other == name);
        let places: Vec<Option<usize>> = names.iter().map(|name| place(name)).collect();
        for (name, place) in names.iter().zip(&places).take(required) {
            if place.is_none() {
                return Err(ReadError::MissingColumn {
                    file: rows.name.clone(),
                    column: name,
                    found: header.len(),
                    first: header.first().cloned().unwrap_or_default(),
                    fix: "export a Cost and Usage Report 2.0 with resource ids by the hour, or FOCUS with the columns of AWS",
                });
            }
        }
        Ok(Self { names, places })
    }

    /// The value of a column of the current row; empty if there is none.
    pub(crate) fn get<'r, R: Read>(&self, rows: &'r Rows<R>, column: usize) -> &'r str {
        let place = self.places.get(column).copied().flatten();
        place
            .and_then(|place| rows.record.get(place))
            .unwrap_or_default()
            .trim()
    }

    fn wrong<R: Read>(
        &self,
        rows: &Rows<R>,
        column: usize,
        expected: &'static str,
        fix: &'static str,
    ) -> ReadError {
        ReadError::Value {
            file: rows.name.clone(),
            line: rows.line(),
            column: self.names.get(column).copied().unwrap_or_default(),
            found: self.get(rows, column).to_owned(),
            expected,
            fix,
        }
    }

    pub(crate) fn moment<R: Read>(&self, rows: &Rows<R>, column: usize) -> Result<i64, ReadError> {
        time::parse(self.get(rows, column)).ok_or_else(|| {
            self.wrong(
                rows,
                column,
                "a time like 2026-11-01T05:00:00Z",
                "export the report again with times in UTC",
            )
        })
    }

    pub(crate) fn check_number<R: Read>(&self, rows: &Rows<R>, column: usize) -> Result<(), ReadError> {
        let text = self.get(rows, column);
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            && digits.bytes().filter(|byte| *byte == b'.').count() <= 1;
        if text.is_empty() || (is_plain && digits.len() < 60 && digits != "." && !digits.is_empty()) {
            return Ok(());
        }
        match veneer_billing::Exact::parse(text) {
            Some(_) => Ok(()),
            None => Err(self.wrong(
                rows,
                column,
                "a number like 0.0960000000",
                "check that the file was not changed by a spreadsheet",
            )),
        }
    }

    pub(crate) fn check_currency<R: Read>(
        &self,
        rows: &Rows<R>,
        column: usize,
        known: &mut Option<String>,
    ) -> Result<(), ReadError> {
        let found = self.get(rows, column);
        if found.is_empty() {
            return Ok(());
        }
        match known {
            None => *known = Some(found.to_owned()),
            Some(known) if known != found => {
                return Err(ReadError::Currency {
                    file: rows.name.clone(),
                    line: rows.line(),
                    column: self.names.get(column).copied().unwrap_or_default(),
                    found: found.to_owned(),
                    expected: known.clone(),
                });
            }
            Some(_) => {}
        }
        Ok(())
    }
}
