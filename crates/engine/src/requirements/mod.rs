//! Requirements: for each label, the values it may take.
//!
//! Keys are normalised (`beta.kubernetes.io/arch` means `kubernetes.io/arch`) when a requirement is read, so no
//! later step has to think of aliases. Keys are kept sorted by symbol; absent keys are unconstrained.

mod requirement;

pub use requirement::{Bounds, Operator, Requirement, UnknownOperator};

use crate::labels;
use crate::vocabulary::{Symbol, Vocabulary};

/// The requirements on several labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// Sorted by key.
    entries: Vec<(Symbol, Requirement)>,
}

/// Why two sets of requirements exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incompatible {
    /// The label is demanded, but nothing defines it.
    Undefined {
        /// The label that nothing defines.
        key: Symbol,
    },
    /// Both constrain the label and no value satisfies both.
    NoOverlap {
        /// The label on which they differ.
        key: Symbol,
        /// What is demanded.
        incoming: Box<Requirement>,
        /// What there is.
        existing: Box<Requirement>,
    },
}

impl Incompatible {
    /// The label at fault.
    #[must_use]
    pub fn key(&self) -> Symbol {
        match self {
            Self::Undefined { key } | Self::NoOverlap { key, .. } => *key,
        }
    }

    /// The reason as a sentence for people.
    #[must_use]
    pub fn describe(&self, vocabulary: &Vocabulary) -> String {
        match self {
            Self::Undefined { key } => format!("label {:?} has no known values", vocabulary.text(*key)),
            Self::NoOverlap {
                key,
                incoming,
                existing,
            } => format!(
                "label {:?}: {} excludes {}",
                vocabulary.text(*key),
                existing.describe(vocabulary),
                incoming.describe(vocabulary)
            ),
        }
    }
}

impl Requirements {
    /// No requirement at all: everything is allowed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The requirements that a node's or template's labels amount to.
    pub fn from_labels<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        vocabulary: &mut Vocabulary,
    ) -> Self {
        let mut requirements = Self::new();
        for (key, value) in labels {
            requirements.add_selector(key, Operator::In, &[value], None, vocabulary);
        }
        requirements
    }

    /// Reads one requirement as a manifest states it and narrows the key to it.
    pub fn add_selector<S: AsRef<str>>(
        &mut self,
        key: &str,
        operator: Operator,
        values: &[S],
        min_values: Option<i64>,
        vocabulary: &mut Vocabulary,
    ) {
        let key = vocabulary.intern(labels::normalise(key));
        let values: Vec<Symbol> = values
            .iter()
            .map(|value| vocabulary.intern(value.as_ref()))
            .collect();
        let requirement = Requirement::new(operator, &values, vocabulary);
        // `Gt` the largest integer matches nothing and, in Karpenter, forgets its minValues on the way.
        let forgets = operator == Operator::Gt && requirement.operator() == Operator::DoesNotExist;
        let requirement = requirement.with_min_values(if forgets { None } else { min_values });
        self.add(key, requirement, vocabulary);
    }

    /// Narrows `key` to `requirement`.
    pub fn add(&mut self, key: Symbol, requirement: Requirement, vocabulary: &Vocabulary) {
        match self.position(key) {
            Ok(at) => {
                if let Some((_, existing)) = self.entries.get_mut(at) {
                    *existing = requirement.intersection(existing, vocabulary);
                }
            }
            Err(at) => self.entries.insert(at, (key, requirement)),
        }
    }

    /// Narrows every key of `other`.
    pub fn extend(&mut self, other: &Self, vocabulary: &Vocabulary) {
        for (key, requirement) in &other.entries {
            self.add(*key, requirement.clone(), vocabulary);
        }
    }

    fn position(&self, key: Symbol) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(k, _)| *k)
    }

    /// The requirement on `key`, if it is constrained.
    #[must_use]
    pub fn get(&self, key: Symbol) -> Option<&Requirement> {
        self.position(key)
            .ok()
            .and_then(|at| self.entries.get(at))
            .map(|(_, requirement)| requirement)
    }

    /// Whether `key` is constrained.
    #[must_use]
    pub fn contains(&self, key: Symbol) -> bool {
        self.position(key).is_ok()
    }

    /// Every constrained key with its requirement, by symbol.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Symbol, &Requirement)> {
        self.entries.iter().map(|(key, requirement)| (*key, requirement))
    }

    /// How many keys are constrained.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is constrained.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether any requirement demands a number of distinct values.
    #[must_use]
    pub fn has_min_values(&self) -> bool {
        self.entries
            .iter()
            .any(|(_, requirement)| requirement.min_values().is_some())
    }

    /// Whether `incoming` can be demanded of something that satisfies these requirements.
    ///
    /// Labels that both name must share a value. A label that only `incoming` names must be in `allow_undefined`
    /// (well-known labels, where the answer may come later) or accept its absence.
    pub fn compatible(
        &self,
        incoming: &Self,
        allow_undefined: &labels::LabelSet,
        vocabulary: &Vocabulary,
    ) -> Result<(), Incompatible> {
        let undefined = incoming.entries.iter().find(|(key, requirement)| {
            !allow_undefined.contains(*key) && !self.contains(*key) && !requirement.accepts_absence()
        });
        if let Some((key, _)) = undefined {
            return Err(Incompatible::Undefined { key: *key });
        }
        self.intersects(incoming, vocabulary)
    }

    /// Whether every label that both name has a value that satisfies both. Two sides that both accept the label's
    /// absence agree on that.
    pub fn intersects(&self, incoming: &Self, vocabulary: &Vocabulary) -> Result<(), Incompatible> {
        let (mut a, mut b) = (self.entries.iter().peekable(), incoming.entries.iter().peekable());
        while let (Some((key, existing)), Some((incoming_key, incoming))) = (a.peek(), b.peek()) {
            match key.cmp(incoming_key) {
                std::cmp::Ordering::Less => _ = a.next(),
                std::cmp::Ordering::Greater => _ = b.next(),
                std::cmp::Ordering::Equal => {
                    let agree = existing.has_intersection(incoming, vocabulary)
                        || (incoming.accepts_absence() && existing.accepts_absence());
                    if !agree {
                        return Err(Incompatible::NoOverlap {
                            key: *key,
                            incoming: Box::new(incoming.clone()),
                            existing: Box::new(existing.clone()),
                        });
                    }
                    a.next();
                    b.next();
                }
            }
        }
        Ok(())
    }

    /// The requirements in words, by key.
    #[must_use]
    pub fn describe(&self, vocabulary: &Vocabulary) -> String {
        let mut parts: Vec<String> = self
            .entries
            .iter()
            .map(|(key, requirement)| {
                format!("{} {}", vocabulary.text(*key), requirement.describe(vocabulary))
            })
            .collect();
        parts.sort_unstable();
        parts.join(", ")
    }
}
