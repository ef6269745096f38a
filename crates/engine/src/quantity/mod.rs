//! Amounts of resources, exactly as Kubernetes counts them.
//!
//! A [`Quantity`] is a whole number of billionths plus the notation it was written in. Parsing, rounding, caps,
//! canonical text, order and arithmetic follow `resource.Quantity` of k8s.io/apimachinery, including where its
//! text is surprising (`1000E` prints as `1`), because the API server rewrites objects that way.
//!
//! Invariants:
//! - Every amount whose billionths fit an `i128` (up to about 1.7e29) is kept in `nanos`; `huge` is only set for
//!   what does not fit. So equality and hashing compare the fields, and the usual comparison is one of integers.
//! - The notation takes no part in equality, order or hash.
//! - No input makes an operation panic or allocate more than a few kilobytes beyond the size of the input.
//!
//! Two deliberate differences, both where Go's answer is an accident: [`Quantity::value`] saturates where Go wraps
//! around or answers 0, and it rounds every negative amount away from zero, as documented there, where Go rounds
//! some of them up depending on how they were parsed.

mod huge;
mod parse;
mod serde_impl;
#[cfg(test)]
mod tests;
mod text;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use huge::Huge;
pub use parse::{ParseQuantityError, QuantityFault, rewritten};

/// Billionths in one unit.
const NANOS: i128 = 1_000_000_000;
/// Billionths in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// The notation of a quantity, kept from what was parsed and used again for output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Powers of ten as unit letters: `500m`, `2`, `3k`, `4M`.
    #[default]
    DecimalSi,
    /// Powers of 1024 as unit letters: `1Ki`, `512Mi`.
    BinarySi,
    /// Powers of ten as exponents: `1e3`.
    DecimalExponent,
}

/// An exact amount of a resource.
#[derive(Clone, Default)]
pub struct Quantity {
    /// The amount in billionths; 0 when `huge` is set.
    nanos: i128,
    /// The amount when its billionths do not fit an `i128`.
    huge: Option<Box<Huge>>,
    format: Format,
}

impl Quantity {
    /// Nothing of anything.
    pub const ZERO: Self = Self::from_nanos(0);

    /// An amount of billionths.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self {
            nanos,
            huge: None,
            format: Format::DecimalSi,
        }
    }

    /// An amount of thousandths, the unit of cpu arithmetic.
    pub const fn from_milli(milli: i64) -> Self {
        Self::from_nanos(milli as i128 * NANOS_PER_MILLI)
    }

    /// A whole number written with binary units, the usual notation of memory.
    pub const fn binary(value: i64) -> Self {
        Self {
            nanos: value as i128 * NANOS,
            huge: None,
            format: Format::BinarySi,
        }
    }

    /// The same amount in another notation.
    #[must_use]
    pub const fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The notation used for output.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The amount in billionths, unless it is beyond an `i128`.
    pub const fn nanos(&self) -> Option<i128> {
        match self.huge {
            None => Some(self.nanos),
            Some(_) => None,
        }
    }

    /// The amount in whole units, rounded away from zero, or the nearest `i64`.
    pub fn value(&self) -> i64 {
        self.rounded(NANOS)
    }

    /// The amount in thousandths, rounded away from zero, or the nearest `i64`.
    pub fn milli_value(&self) -> i64 {
        self.rounded(NANOS_PER_MILLI)
    }

    /// Whether this is nothing.
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0 && self.huge.is_none()
    }

    /// Whether this is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.huge
            .as_ref()
            .map_or(self.nanos < 0, |huge| huge.is_negative())
    }

    fn rounded(&self, unit: i128) -> i64 {
        let bound = if self.is_negative() { i64::MIN } else { i64::MAX };
        let Some(nanos) = self.nanos() else { return bound };
        let away = if nanos % unit == 0 { 0 } else { nanos.signum() };
        i64::try_from(nanos / unit + away).unwrap_or(bound)
    }

    /// The general form, for the cold paths.
    fn to_huge(&self) -> Huge {
        self.huge
            .as_deref()
            .cloned()
            .unwrap_or_else(|| Huge::new(self.nanos.into(), 0))
    }

    fn from_huge(huge: Huge, format: Format) -> Self {
        match huge.to_i128() {
            Some(nanos) => Self {
                nanos,
                huge: None,
                format,
            },
            None => Self {
                nanos: 0,
                huge: Some(Box::new(huge)),
                format,
            },
        }
    }

    /// As in Kubernetes, a sum keeps the notation of its first part unless that part is zero.
    fn sum_format(&self, other: &Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::from_nanos(i128::from(value) * NANOS)
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.huge, &other.huge) {
            (None, None) => self.nanos.cmp(&other.nanos),
            _ => self.to_huge().cmp(&other.to_huge()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos && self.huge == other.huge
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
        self.huge.hash(state);
    }
}

impl AddAssign<&Quantity> for Quantity {
    /// Exact, except that an operand more than 10,000 digits smaller than the other one is dropped.
    fn add_assign(&mut self, other: &Quantity) {
        self.format = self.sum_format(other);
        let exact = match (&self.huge, &other.huge) {
            (None, None) => self.nanos.checked_add(other.nanos),
            _ => None,
        };
        match exact {
            Some(nanos) => self.nanos = nanos,
            None => *self = Self::from_huge(self.to_huge().plus(&other.to_huge()), self.format),
        }
    }
}

impl SubAssign<&Quantity> for Quantity {
    /// Exact, with the bound of addition.
    fn sub_assign(&mut self, other: &Quantity) {
        *self += &-other.clone();
    }
}

impl Add for &Quantity {
    type Output = Quantity;

    fn add(self, other: &Quantity) -> Quantity {
        let mut sum = self.clone();
        sum += other;
        sum
    }
}

impl Sub for &Quantity {
    type Output = Quantity;

    fn sub(self, other: &Quantity) -> Quantity {
        let mut difference = self.clone();
        difference -= other;
        difference
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        match (self.nanos.checked_neg(), &self.huge) {
            (Some(nanos), None) => Self { nanos, ..self },
            _ => Self::from_huge(self.to_huge().negated(), self.format),
        }
    }
}

impl<'a> Sum<&'a Quantity> for Quantity {
    fn sum<I: Iterator<Item = &'a Quantity>>(parts: I) -> Quantity {
        parts.fold(Quantity::ZERO, |sum, part| &sum + part)
    }
}
