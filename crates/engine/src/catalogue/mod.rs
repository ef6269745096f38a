//! Where instance types come from: [`aws`] is embedded in the program, [`kwok`] reads Karpenter's own format.
//!
//! Both give the types exactly as the matching Karpenter provider would construct them, because everything later
//! (overlays, packing, launch order) has to agree with Karpenter; the agreement tests compare every type.

pub mod aws;
pub mod kwok;
pub mod selector;

/// Why there is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A file is not in the format of Karpenter's KWOK provider.
    #[error("{0}")]
    Malformed(Box<Malformed>),
    /// The embedded catalogue does not have the region.
    #[error("unknown region {found:?}; the embedded catalogue has {}", known.join(", "))]
    UnknownRegion {
        /// What was asked for.
        found: String,
        /// What there is, sorted.
        known: Vec<String>,
    },
    /// The embedded catalogue cannot be read; a test makes sure that no release has such a fault.
    #[error("the embedded AWS catalogue is damaged: {0}")]
    Damaged(String),
}

/// What is wrong with a catalogue file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The file, as the user named it.
    pub origin: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// Which entry of the list, counted from 1, if the fault is inside one.
    pub entry: Option<usize>,
    /// The entry's name, if it has a readable one.
    pub name: Option<String>,
    /// The field inside the entry, e.g. `offerings[0].Price`; empty if the entry itself is at fault.
    pub field: String,
    /// What was found and what was expected.
    pub problem: String,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: ", self.origin, self.line, self.column)?;
        if let Some(entry) = self.entry {
            write!(f, "instance type {entry}")?;
            match &self.name {
                Some(name) => write!(f, " ({name})")?,
                None => write!(f, " (no name)")?,
            }
            if !self.field.is_empty() {
                write!(f, ", field {}", self.field)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.problem)
    }
}
