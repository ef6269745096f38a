//! Amounts beyond `i128` billionths: a mantissa and a power of ten. Nobody owns 1e30 of anything, so this is the
//! cold path; it exists because Kubernetes accepts such text and keeps every digit of it.
//!
//! Invariant: the mantissa is not a multiple of ten (zero has exponent zero), so equal amounts have equal fields.
//! The power is never multiplied out unless the result stays under [`MAX_DIGITS`].

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

/// The widest number that is ever written out in full.
const MAX_DIGITS: u64 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Huge {
    /// Significant digits, with the sign.
    pub(super) mantissa: BigInt,
    /// Power of ten, in billionths.
    pub(super) exponent: u64,
}

impl Huge {
    pub(super) fn new(mut mantissa: BigInt, mut exponent: u64) -> Self {
        if mantissa.sign() == Sign::NoSign {
            exponent = 0;
        } else {
            let ten = BigInt::from(10);
            while (&mantissa % &ten).sign() == Sign::NoSign {
                mantissa /= &ten;
                exponent += 1;
            }
        }
        Self { mantissa, exponent }
    }

    pub(super) fn is_negative(&self) -> bool {
        self.mantissa.sign() == Sign::Minus
    }

    pub(super) fn to_i128(&self) -> Option<i128> {
        let power = 10i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        i128::try_from(&self.mantissa).ok()?.checked_mul(power)
    }

    pub(super) fn negated(&self) -> Self {
        Self {
            mantissa: -&self.mantissa,
            exponent: self.exponent,
        }
    }

    /// The exact sum, or the larger operand when the sum would be wider than [`MAX_DIGITS`].
    pub(super) fn plus(&self, other: &Self) -> Self {
        let low = self.exponent.min(other.exponent);
        match (self.mantissa_at(low), other.mantissa_at(low)) {
            (Some(a), Some(b)) => Self::new(a + b, low),
            (None, _) => self.clone(),
            (_, None) => other.clone(),
        }
    }

    /// The mantissa for a lower exponent.
    pub(super) fn mantissa_at(&self, exponent: u64) -> Option<BigInt> {
        let shift = self.exponent.checked_sub(exponent)?;
        if self.mantissa.sign() == Sign::NoSign {
            return Some(BigInt::ZERO);
        }
        if shift > MAX_DIGITS {
            return None;
        }
        Some(&self.mantissa * BigInt::from(10).pow(u32::try_from(shift).ok()?))
    }

    /// How many digits the amount has when written out, which decides most comparisons.
    fn width(&self) -> u64 {
        self.mantissa.magnitude().to_string().len() as u64 + self.exponent
    }

    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        self.width().cmp(&other.width()).then_with(|| {
            // Same width: the exponents differ by no more than the longer mantissa has digits.
            let low = self.exponent.min(other.exponent);
            let at_low = |huge: &Self| {
                let shift = u32::try_from(huge.exponent - low).unwrap_or(u32::MAX);
                huge.mantissa.magnitude() * BigInt::from(10).pow(shift).magnitude()
            };
            at_low(self).cmp(&at_low(other))
        })
    }
}

impl Ord for Huge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.mantissa
            .sign()
            .cmp(&other.mantissa.sign())
            .then_with(|| match self.mantissa.sign() {
                Sign::NoSign => Ordering::Equal,
                Sign::Plus => self.cmp_magnitude(other),
                Sign::Minus => other.cmp_magnitude(self),
            })
    }
}

impl PartialOrd for Huge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
