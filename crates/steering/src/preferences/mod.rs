//! The preferences of a NodePool: `veneer.io/preference.N: "<matcher> [<matcher>…] adjust=[+-]N%"`.
//!
//! A matcher is `key=a,b` (In), `key!=a,b` (NotIn), `key>4` (Gt) or `key<4` (Lt). Each annotation is judged by itself:
//! a bad one becomes [`Fault`]s and leaves the others working. The number is also the weight of the overlay, so the
//! higher number wins where two preferences meet.

mod parse;

use std::collections::BTreeMap;
use std::fmt;

use veneer_api::NodeSelectorRequirement;
use veneer_api::labels::veneer::PREFERENCE_PREFIX;
use veneer_engine::overlay::nearest;

pub use parse::parse;

/// The form that messages show.
pub const FORM: &str = "<key>=<value>[,<value>…] adjust=-20%";
/// From this number on a preference outweighs cost-aware overlays with their default weights.
pub const OUTRANKS_COMMITMENTS: i32 = 10;
/// The largest weight that a NodeOverlay can have.
pub const MAX_NUMBER: i32 = 10_000;

/// One preference, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Preference {
    /// The number in the annotation's key, which is the weight.
    pub number: i32,
    /// What must match, in the order of the annotation.
    pub matchers: Vec<NodeSelectorRequirement>,
    /// The price adjustment with its sign, e.g. `-20%`.
    pub adjustment: String,
}

/// Something in an annotation that is not right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The annotation's key.
    pub annotation: String,
    /// The offending part, as it was written.
    pub part: String,
    /// What is wrong with it.
    pub problem: String,
    /// How it would be right.
    pub expected: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            annotation,
            part,
            problem,
            expected,
        } = self;
        write!(f, "{annotation}: {part:?} {problem}; expected {expected}")
    }
}

/// What is wrong with an annotation that looks like a preference and is none, such as `veneer.io/preferences.2`.
fn misspelled(annotation: &str) -> Option<Fault> {
    let (group, name) = annotation.split_once('/')?;
    let (word, number) = name.split_once(['.', '-', '_']).unwrap_or((name, ""));
    let (prefix_group, prefix_name) = PREFERENCE_PREFIX.split_once('/')?;
    let near = |found: &str, right: &str| nearest(found, [right]).is_some();
    if !near(group, prefix_group) || !near(word, prefix_name.trim_end_matches('.')) {
        return None;
    }
    let number = if number.is_empty() { "1" } else { number };
    Some(Fault {
        annotation: annotation.to_owned(),
        part: annotation.to_owned(),
        problem: "looks like a preference and is none".to_owned(),
        expected: format!("{PREFERENCE_PREFIX}{number}"),
    })
}

/// All preferences of one NodePool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences {
    /// Those that can be used, by number.
    pub good: Vec<Preference>,
    /// What is wrong with the others.
    pub faults: Vec<Fault>,
}

impl Preferences {
    /// Reads the annotations of a NodePool; those that are no preference do not matter.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut read = Self::default();
        for (key, value) in annotations {
            if !key.starts_with(PREFERENCE_PREFIX) {
                read.faults.extend(misspelled(key));
                continue;
            }
            match parse(key, value) {
                Ok(preference) => read.good.push(preference),
                Err(faults) => read.faults.extend(faults),
            }
        }
        read.good.sort_by_key(|preference| preference.number);
        read
    }

    /// Preferences that work, and that outweigh what is paid for already.
    pub fn outranking(&self) -> impl Iterator<Item = &Preference> {
        self.good
            .iter()
            .filter(|preference| preference.number >= OUTRANKS_COMMITMENTS)
    }
}
