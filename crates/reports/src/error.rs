//! Why a report cannot be read.

use std::io;

/// Why a report cannot be read: where, what is there, what should be, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A column that must be there is not.
    #[error(
        "{file}, line 1: column {column} is missing (found {found} columns, the first is {first:?}); {fix}"
    )]
    MissingColumn {
        /// The file.
        file: String,
        /// Which column.
        column: &'static str,
        /// How many columns there are.
        found: usize,
        /// The first of them.
        first: String,
        /// What to do.
        fix: &'static str,
    },
    /// A value that cannot be read.
    #[error("{file}, line {line}, column {column}: found {found:?}, expected {expected}; {fix}")]
    Value {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// The file is no CSV.
    #[error(
        "{file}, line {line}: {problem}; check that the file is complete and is CSV (Parquet is not read)"
    )]
    Csv {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What the reader says.
        problem: String,
    },
    /// Amounts in several currencies cannot be added.
    #[error(
        "{file}, line {line}, column {column}: found {found:?}, expected {expected:?} as in the lines before; reconcile one currency at a time"
    )]
    Currency {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What is there.
        found: String,
        /// What was there before.
        expected: String,
    },
    /// Lines could not be kept until their hour is replayed.
    #[error(
        "cannot keep lines until their hour is replayed: {0}; check the space in the folder for temporary files"
    )]
    Store(#[from] io::Error),
}
