//! What the API server would not accept, and why.

use serde_json::Value;

/// Which kind of bound was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constraint {
    /// The metadata that every object has.
    Metadata,
    /// A field that the schema does not have.
    UnknownField,
    /// A value of another type.
    Type,
    /// A field that must be there.
    Required,
    /// One of a few values.
    Enum,
    /// A pattern for text.
    Pattern,
    /// A format, such as that of a time.
    Format,
    /// A bound for numbers.
    Range,
    /// A bound for the length of text, of lists and of maps.
    Size,
    /// Items that must differ.
    Unique,
    /// A choice between schemas.
    Choice,
    /// A CEL rule.
    Rule,
}

impl Constraint {
    /// Whether the API server leaves rules unchecked because of it.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(
            self,
            Self::Type | Self::Required | Self::Enum | Self::Format | Self::Size | Self::UnknownField
        )
    }
}

/// One reason why the API server would refuse an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field: `spec.requirements[0].key`.
    pub field: String,
    /// What was broken.
    pub constraint: Constraint,
    /// What stands there, as JSON; empty where nothing does.
    pub found: String,
    /// What is expected there; for a rule, its message.
    pub expected: String,
    /// The pattern that text must match.
    pub pattern: Option<String>,
    /// The names or values that are possible, where they can be listed.
    pub candidates: Vec<String>,
}

/// How much of a value is shown.
const SHOWN: usize = 80;

impl Refusal {
    pub(crate) fn new(
        field: &str,
        constraint: Constraint,
        found: &Value,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            field: field.to_owned(),
            constraint,
            found: shown(found),
            expected: expected.into(),
            pattern: None,
            candidates: Vec::new(),
        }
    }

    /// One sentence: what stands there and what is expected.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { found, expected, .. } = self;
        match self.constraint {
            Constraint::Rule => expected.clone(),
            Constraint::Required => "is missing".to_owned(),
            Constraint::UnknownField => "there is no such field".to_owned(),
            _ => format!("{found} is not valid; expected {expected}"),
        }
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
