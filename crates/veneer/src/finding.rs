//! One thing to tell about an object, with the place in its file.
//!
//! `lint` prints findings, `diagnose` prints them as notes. A rule's name is stable: people write it into `--ignore`.

use veneer_engine::overlay::advice::{self, Level};

/// What is checked before and beside the evaluation of overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Unreadable,
    Refused,
    MalformedObject,
    UnsupportedVersion,
    MissingApiVersion,
    DuplicateObject,
    UnquotedValue,
    InvalidField,
    InvalidPreference,
    Conflict,
    UnknownField,
    DraftField,
    UnknownTarget,
    UncappedPool,
    NeverLaunches,
    Overlay(advice::Rule),
}

impl Rule {
    const OWN: [Self; 15] = [
        Self::Unreadable,
        Self::Refused,
        Self::MalformedObject,
        Self::UnsupportedVersion,
        Self::MissingApiVersion,
        Self::DuplicateObject,
        Self::UnquotedValue,
        Self::InvalidField,
        Self::InvalidPreference,
        Self::Conflict,
        Self::UnknownField,
        Self::DraftField,
        Self::UnknownTarget,
        Self::UncappedPool,
        Self::NeverLaunches,
    ];

    /// Every rule.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::OWN
            .into_iter()
            .chain(advice::Rule::ALL.into_iter().map(Self::Overlay))
    }

    fn entry(self) -> (&'static str, Level, &'static str) {
        use Level::{Error, Warning};
        match self {
            Self::Unreadable => ("unreadable", Error, "the text is no YAML and no JSON"),
            Self::Refused => ("refused", Error, "the API server refuses the object"),
            Self::MalformedObject => (
                "malformed-object",
                Error,
                "a field is missing or has the wrong type",
            ),
            Self::UnsupportedVersion => ("unsupported-version", Error, "another apiVersion is expected"),
            Self::MissingApiVersion => ("missing-api-version", Error, "the object has no apiVersion"),
            Self::DuplicateObject => (
                "duplicate-object",
                Error,
                "two objects have the same kind and name",
            ),
            Self::UnquotedValue => (
                "unquoted-value",
                Error,
                "a number stands where the API server wants text",
            ),
            Self::InvalidField => (
                "invalid-field",
                Error,
                "a field has a value that Karpenter or Veneer refuses",
            ),
            Self::InvalidPreference => (
                "invalid-preference",
                Error,
                "an annotation that asks for a preference cannot be read",
            ),
            Self::Conflict => (
                "conflict",
                Error,
                "another overlay of the same weight sets the same thing",
            ),
            Self::UnknownField => ("unknown-field", Warning, "the kind has no such field"),
            Self::DraftField => (
                "draft-field",
                Warning,
                "a field of the earlier draft of NodeOverlay",
            ),
            Self::UnknownTarget => (
                "unknown-target",
                Warning,
                "an Overprovisioner names a NodePool that is not there",
            ),
            Self::UncappedPool => (
                "uncapped-pool",
                Warning,
                "nothing bounds the size of the nodes that the pool launches",
            ),
            Self::NeverLaunches => (
                "never-launches",
                Warning,
                "accepted, but nothing can ever be launched with it",
            ),
            Self::Overlay(rule) => (rule.id(), rule.level(), rule.summary()),
        }
    }

    /// The stable name.
    pub(crate) fn id(self) -> &'static str {
        self.entry().0
    }

    /// How bad it is.
    pub(crate) fn level(self) -> Level {
        self.entry().1
    }

    /// What it says, in one line.
    pub(crate) fn summary(self) -> &'static str {
        self.entry().2
    }
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    /// The file as the user named it, or the cluster.
    pub(crate) file: String,
    /// Counted from 1; 0 where there are no lines.
    pub(crate) line: usize,
    /// Kind and name, e.g. `NodeOverlay discount`; empty for a file as a whole.
    pub(crate) object: String,
    /// The field, e.g. `spec.price`; empty for an object as a whole.
    pub(crate) field: String,
    pub(crate) message: String,
    /// The way out; empty where the message says it.
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn level(&self) -> Level {
        self.rule.level()
    }

    /// `file:line`, or the file alone.
    pub(crate) fn place(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}", self.file),
        }
    }

    /// Object, field and message as one sentence.
    pub(crate) fn sentence(&self) -> String {
        let parts = [&self.object, &self.field, &self.message];
        let parts: Vec<&str> = parts
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(": ")
    }
}
