//! One requirement: the set of values that a label may take.
//!
//! A requirement is a finite set of values, or the complement of one bounded below and above (`NotIn`, `Exists`,
//! `Gt`, `Lt`, `Gte`, `Lte`). `DoesNotExist` is the empty finite set. Bounds are inclusive: `Gt 5` is stored as
//! `≥ 6`. Under bounds only integers are members. Behaviour follows Karpenter's `scheduling.Requirement`, and the
//! agreement tests hold both against each other.

use std::fmt;
use std::str::FromStr;

use crate::vocabulary::{Symbol, Vocabulary};

/// What a node selector requirement demands of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the label is absent.
    NotIn,
    /// The label has some value.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is an integer above the one listed.
    Gt,
    /// The value is an integer below the one listed.
    Lt,
    /// The value is an integer at or above the one listed.
    Gte,
    /// The value is an integer at or below the one listed.
    Lte,
}

impl Operator {
    /// Every operator, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::DoesNotExist,
        Self::Gt,
        Self::Lt,
        Self::Gte,
        Self::Lte,
    ];

    /// The operator as manifests spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether the operator compares integers.
    #[must_use]
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operator that no manifest may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown operator {found:?}; expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte (capitals matter)"
)]
pub struct UnknownOperator {
    /// What the manifest said.
    pub found: String,
}

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|operator| operator.as_str() == text)
            .ok_or_else(|| UnknownOperator {
                found: text.to_owned(),
            })
    }
}

/// Inclusive integer bounds; absent means unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The smallest allowed integer.
    pub gte: Option<i64>,
    /// The largest allowed integer.
    pub lte: Option<i64>,
}

impl Bounds {
    fn intersection(self, other: Self) -> Self {
        Self {
            gte: larger(self.gte, other.gte),
            lte: match (self.lte, other.lte) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    fn is_unbounded(self) -> bool {
        self.gte.is_none() && self.lte.is_none()
    }

    fn is_empty(self) -> bool {
        matches!((self.gte, self.lte), (Some(gte), Some(lte)) if gte > lte)
    }

    fn contain(self, value: Symbol, vocabulary: &Vocabulary) -> bool {
        self.is_unbounded()
            || vocabulary.integer(value).is_some_and(|integer| {
                self.gte.is_none_or(|gte| integer >= gte) && self.lte.is_none_or(|lte| integer <= lte)
            })
    }
}

fn larger(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// The values that one label may take. The label itself is the key under which [`super::Requirements`] holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Whether `values` are the excluded ones.
    complement: bool,
    /// Sorted by symbol, without duplicates.
    values: Vec<Symbol>,
    bounds: Bounds,
    /// How many distinct values the candidates must keep.
    min_values: Option<i64>,
}

impl Requirement {
    /// `key In values`.
    #[must_use]
    pub fn one_of(values: impl IntoIterator<Item = Symbol>) -> Self {
        let mut values: Vec<Symbol> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self {
            complement: false,
            values,
            bounds: Bounds::default(),
            min_values: None,
        }
    }

    /// `key NotIn values`.
    #[must_use]
    pub fn none_of(values: impl IntoIterator<Item = Symbol>) -> Self {
        Self {
            complement: true,
            ..Self::one_of(values)
        }
    }

    /// `key Exists`: any value.
    #[must_use]
    pub fn exists() -> Self {
        Self::none_of([])
    }

    /// `key DoesNotExist`: no value.
    #[must_use]
    pub fn does_not_exist() -> Self {
        Self::one_of([])
    }

    /// The requirement that a manifest states with `operator` and `values`.
    ///
    /// A bound reads its first value as Go does: text that is not an integer counts as 0 and one that does not fit
    /// as the nearest that does. Admission refuses such values for our own resources, but not in a pod's affinity.
    #[must_use]
    pub fn new(operator: Operator, values: &[Symbol], vocabulary: &Vocabulary) -> Self {
        let bound = || {
            values
                .first()
                .map_or(0, |&value| lossy_integer(vocabulary.text(value)))
        };
        let bounded = |gte, lte| Self {
            bounds: Bounds { gte, lte },
            ..Self::exists()
        };
        match operator {
            Operator::In => Self::one_of(values.iter().copied()),
            Operator::NotIn => Self::none_of(values.iter().copied()),
            Operator::Exists => Self::exists(),
            Operator::DoesNotExist => Self::does_not_exist(),
            // Nothing is above the largest integer.
            Operator::Gt => match bound().checked_add(1) {
                Some(gte) => bounded(Some(gte), None),
                None => Self::does_not_exist(),
            },
            // Go's decrement wraps around at the smallest integer; no manifest that passed admission gets there.
            Operator::Lt => bounded(None, Some(bound().wrapping_sub(1))),
            Operator::Gte => bounded(Some(bound()), None),
            Operator::Lte => bounded(None, Some(bound())),
        }
    }

    /// The same requirement with `min_values` demanded of the candidates.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<i64>) -> Self {
        self.min_values = min_values;
        self
    }

    /// How many distinct values the candidates must keep, if that is demanded.
    #[must_use]
    pub fn min_values(&self) -> Option<i64> {
        self.min_values
    }

    /// The listed values: the allowed ones, or the excluded ones of a complement.
    #[must_use]
    pub fn values(&self) -> &[Symbol] {
        &self.values
    }

    /// Whether the listed values are the excluded ones.
    #[must_use]
    pub fn is_complement(&self) -> bool {
        self.complement
    }

    /// The inclusive integer bounds.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The single allowed value, if there is exactly one.
    #[must_use]
    pub fn single_value(&self) -> Option<Symbol> {
        match (self.complement, self.values.as_slice()) {
            (false, [value]) => Some(*value),
            _ => None,
        }
    }

    /// What this requirement amounts to. Bounds without exclusions count as `Exists`, as in Karpenter.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether an absent label satisfies this requirement.
    #[must_use]
    pub fn accepts_absence(&self) -> bool {
        matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }

    /// Whether `value` is allowed.
    #[must_use]
    pub fn has(&self, value: Symbol, vocabulary: &Vocabulary) -> bool {
        self.lists(value) != self.complement && self.bounds.contain(value, vocabulary)
    }

    fn lists(&self, value: Symbol) -> bool {
        self.values.binary_search(&value).is_ok()
    }

    /// The values that both allow. The larger `minValues` counts.
    #[must_use]
    pub fn intersection(&self, other: &Self, vocabulary: &Vocabulary) -> Self {
        let bounds = self.bounds.intersection(other.bounds);
        let min_values = larger(self.min_values, other.min_values);
        if bounds.is_empty() {
            return Self::does_not_exist().with_min_values(min_values);
        }
        let within = |value: &Symbol| bounds.contain(*value, vocabulary);
        let pick = |from: &[Symbol], keep: &dyn Fn(Symbol) -> bool| -> Vec<Symbol> {
            from.iter()
                .copied()
                .filter(|value| keep(*value))
                .filter(within)
                .collect()
        };
        let complement = self.complement && other.complement;
        let values = match (self.complement, other.complement) {
            (true, true) => {
                let mut union: Vec<Symbol> = self
                    .values
                    .iter()
                    .chain(&other.values)
                    .copied()
                    .filter(within)
                    .collect();
                union.sort_unstable();
                union.dedup();
                union
            }
            (true, false) => pick(&other.values, &|value| !self.lists(value)),
            (false, true) => pick(&self.values, &|value| !other.lists(value)),
            (false, false) => pick(&self.values, &|value| other.lists(value)),
        };
        // The members of a finite set were checked one by one, so its bounds say nothing any more.
        let bounds = if complement { bounds } else { Bounds::default() };
        Self {
            complement,
            values,
            bounds,
            min_values,
        }
    }

    /// Whether some value is allowed by both; two complements always share one unless their bounds exclude it.
    #[must_use]
    pub fn has_intersection(&self, other: &Self, vocabulary: &Vocabulary) -> bool {
        let bounds = self.bounds.intersection(other.bounds);
        if bounds.is_empty() {
            return false;
        }
        let (finite, rest) = match (self.complement, other.complement) {
            (true, true) => return true,
            (true, false) => (other, self),
            (false, true) => (self, other),
            // Walk the shorter list.
            (false, false) if other.values.len() < self.values.len() => (other, self),
            (false, false) => (self, other),
        };
        finite
            .values
            .iter()
            .any(|&value| rest.lists(value) != rest.complement && bounds.contain(value, vocabulary))
    }

    /// The requirement in words, e.g. `In [a b] minValues 2`, values sorted alphabetically and at most five named.
    #[must_use]
    pub fn describe(&self, vocabulary: &Vocabulary) -> String {
        const NAMED: usize = 5;
        let mut text = self.operator().to_string();
        if !self.values.is_empty() {
            let texts = vocabulary.sorted_texts(&self.values);
            let named = texts.iter().take(NAMED).copied().collect::<Vec<_>>().join(" ");
            let more = texts.len().saturating_sub(NAMED);
            text += &if more > 0 {
                format!(" [{named} and {more} others]")
            } else {
                format!(" [{named}]")
            };
        }
        if let Some(gte) = self.bounds.gte {
            text += &format!(" >={gte}");
        }
        if let Some(lte) = self.bounds.lte {
            text += &format!(" <={lte}");
        }
        if let Some(min_values) = self.min_values {
            text += &format!(" minValues {min_values}");
        }
        text
    }
}

/// Reads an integer as Go's `strconv.Atoi` does when its error is ignored: what is no integer is 0, and what is out
/// of range is the nearest integer. Go scans unsigned 64 bits first, so of a text like `99999999999999999999x` the
/// overflow is seen before the letter, but of `9223372036854775808x` the letter is.
fn lossy_integer(text: &str) -> i64 {
    use std::num::IntErrorKind;
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    let magnitude = match digits.parse::<u64>() {
        Ok(magnitude) => magnitude,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => u64::MAX,
        Err(_) => 0,
    };
    if negative {
        0i64.saturating_sub_unsigned(magnitude)
    } else {
        0i64.saturating_add_unsigned(magnitude)
    }
}
