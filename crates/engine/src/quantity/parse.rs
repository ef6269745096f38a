//! Reading quantities. What is accepted and refused, rounded and capped follows Kubernetes to the letter: `+` and
//! `.` are zero, `1.` is one, `Pi` alone is refused although `Ti` alone is zero.

use std::borrow::Cow;
use std::str::FromStr;

use num_bigint::BigInt;

use super::huge::Huge;
use super::{Format, NANOS, Quantity};

/// Binary notation is capped here, decimal notation is not.
const MAX_BINARY: i128 = i64::MAX as i128 * NANOS;
/// Kubernetes keeps up to this many decimal digits in 64 bits; beyond, it takes a slower path with other rules.
const FAST_DIGITS: usize = 18;
/// Longer inputs are cut in error messages.
const SHOWN_LENGTH: usize = 64;

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is not a quantity: {fault}; expected a number with an optional unit, like 500m, 1.5, 2Gi, 100M or 1e3"
)]
pub struct ParseQuantityError {
    /// The text, cut if it is very long.
    pub found: String,
    /// What is wrong with it.
    pub fault: QuantityFault,
}

/// What is wrong with a text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityFault {
    /// The text is empty or has a character where none of its kind may be.
    #[error("it does not have the form of a number and a unit")]
    Form,
    /// There is a unit but no digit.
    #[error("it has no digits")]
    Number,
    /// The unit does not exist.
    #[error("its unit is unknown (known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, e or E with an exponent)")]
    Suffix,
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(|(quantity, _)| quantity)
    }
}

/// The text that the Kubernetes API server gives back for `text`: mostly the canonical form, but some texts that
/// are not canonical are kept as they are (`+1`, `1.500`, `007`).
pub fn rewritten(text: &str) -> Result<Cow<'_, str>, ParseQuantityError> {
    let (quantity, kept) = parse(text)?;
    Ok(if kept {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(quantity.to_string())
    })
}

/// The quantity, and whether Kubernetes would keep the text as it is.
fn parse(text: &str) -> Result<(Quantity, bool), ParseQuantityError> {
    Parts::of(text)
        .and_then(Parts::quantity)
        .map_err(|fault| ParseQuantityError {
            found: text.chars().take(SHOWN_LENGTH).collect(),
            fault,
        })
}

/// A text cut into its parts.
struct Parts<'a> {
    negative: bool,
    /// Whether there is any digit at all, leading zeros included.
    has_digits: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    /// Power of the base that the unit stands for; ten unless the format is binary.
    exponent: i32,
    format: Format,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityFault> {
        if text.is_empty() {
            return Err(QuantityFault::Form);
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let significant = unsigned.trim_start_matches('0');
        let (whole, rest) = leading(significant, |c| c.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => leading(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        let has_digits = significant.len() < unsigned.len() || !whole.is_empty() || !fraction.is_empty();
        let (exponent, format) = unit(suffix)?;
        Ok(Self {
            negative,
            has_digits,
            whole,
            fraction,
            exponent,
            format,
        })
    }

    fn quantity(self) -> Result<(Quantity, bool), QuantityFault> {
        if let Some(fast) = self.fast() {
            return Ok(fast);
        }
        if !self.has_digits {
            return Err(QuantityFault::Number);
        }
        let (nanos, format) = match self.format {
            Format::BinarySi => self.slow_binary(),
            _ => (self.slow_decimal(), self.format),
        };
        let nanos = if self.negative { nanos.negated() } else { nanos };
        Ok((Quantity::from_huge(nanos, format), false))
    }

    /// The path for short numbers, which is also the only one that keeps texts as they are.
    fn fast(&self) -> Option<(Quantity, bool)> {
        let digits = self.whole.len().max(1) + self.fraction.len();
        let (scale, unit) = match self.format {
            Format::BinarySi => {
                // Kubernetes' estimate of the digits that the unit adds.
                let room = 14usize.checked_sub(usize::try_from(self.exponent * 3 / 10).ok()?)?;
                if !self.fraction.is_empty() || digits > room {
                    return None;
                }
                (0, 1i64 << self.exponent)
            }
            _ if digits > FAST_DIGITS => return None,
            // Kubernetes counts in 32 bits here, and 1.5e-2147483648 wraps around.
            _ => (self.exponent.wrapping_sub(self.fraction.len() as i32), 1),
        };
        if scale < -9 {
            return None;
        }
        let number = (self.whole.bytes().chain(self.fraction.bytes()))
            .fold(0i64, |number, digit| number * 10 + i64::from(digit - b'0'));
        let kept = match self.format {
            Format::BinarySi => number % 8 != 0,
            _ => scale % 3 == 0 && !self.ends_in_thousands() && !self.whole.is_empty(),
        };
        let signed = if self.negative { -number } else { number };
        let amount = i128::from(signed) * i128::from(unit);
        let shift = (i64::from(scale) + 9).unsigned_abs();
        let power = u32::try_from(shift)
            .ok()
            .and_then(|shift| 10i128.checked_pow(shift));
        let quantity = match power.and_then(|power| amount.checked_mul(power)) {
            Some(nanos) => Quantity::from_nanos(nanos).with_format(self.format),
            None => Quantity::from_huge(Huge::new(amount.into(), shift), self.format),
        };
        Some((quantity, kept))
    }

    fn ends_in_thousands(&self) -> bool {
        let mut digits = self.fraction.bytes().rev().chain(self.whole.bytes().rev());
        (0..3).all(|_| digits.next() == Some(b'0'))
    }

    /// Billionths, rounded up.
    fn slow_decimal(&self) -> Huge {
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        let exponent = i64::from(self.exponent) - self.fraction.len() as i64 + 9;
        if digits.is_empty() {
            return Huge::new(BigInt::ZERO, 0);
        }
        match u64::try_from(exponent) {
            Ok(exponent) => {
                let trimmed = digits.trim_end_matches('0');
                Huge::new(integer(trimmed), exponent + (digits.len() - trimmed.len()) as u64)
            }
            Err(_) => {
                // Rounding up happens on the text, so that 1e-2147483647 never becomes a number of that length.
                let dropped = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
                let (kept, lost) = digits.split_at(digits.len().saturating_sub(dropped));
                Huge::new(
                    integer(kept) + i32::from(lost.bytes().any(|digit| digit != b'0')),
                    0,
                )
            }
        }
    }

    /// Billionths, rounded up and capped; a part of one is written in decimal units.
    fn slow_binary(&self) -> (Huge, Format) {
        let number: BigInt = (integer(self.whole) * NANOS) << self.exponent;
        let number = number + self.fraction_of_binary_unit();
        let nanos = Huge::new(number.min(MAX_BINARY.into()), 0);
        let below_one = nanos.to_i128().is_some_and(|nanos| nanos > 0 && nanos < NANOS);
        (
            nanos,
            if below_one {
                Format::DecimalSi
            } else {
                Format::BinarySi
            },
        )
    }

    /// Billionths in the fraction, rounded up.
    fn fraction_of_binary_unit(&self) -> BigInt {
        let places = u32::try_from(self.fraction.len()).unwrap_or(u32::MAX);
        let scaled: BigInt = (integer(self.fraction) * NANOS) << self.exponent;
        let divisor = BigInt::from(10).pow(places);
        (scaled + &divisor - 1) / divisor
    }
}

/// Splits off the longest prefix of which every character passes.
fn leading(text: &str, passes: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !passes(c)).unwrap_or(text.len()))
}

/// The number that a run of digits stands for; no digits are zero.
fn integer(digits: &str) -> BigInt {
    /// Longer runs are halved, since reading digit by digit takes time quadratic in their number.
    const RUN: usize = 1000;
    if digits.len() <= RUN {
        return BigInt::parse_bytes(digits.as_bytes(), 10).unwrap_or_default();
    }
    let (high, low) = digits.split_at(digits.len() / 2);
    integer(high) * BigInt::from(10).pow(u32::try_from(low.len()).unwrap_or(u32::MAX)) + integer(low)
}

/// The exponent and notation of a unit.
fn unit(suffix: &str) -> Result<(i32, Format), QuantityFault> {
    let (letters, exponent) = leading(suffix, |c| "eEinumkKMGTP".contains(c));
    let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityFault::Form);
    }
    let named = match suffix {
        "n" => (-9, Format::DecimalSi),
        "u" => (-6, Format::DecimalSi),
        "m" => (-3, Format::DecimalSi),
        "" => (0, Format::DecimalSi),
        "k" => (3, Format::DecimalSi),
        "M" => (6, Format::DecimalSi),
        "G" => (9, Format::DecimalSi),
        "T" => (12, Format::DecimalSi),
        "P" => (15, Format::DecimalSi),
        "E" => (18, Format::DecimalSi),
        "Ki" => (10, Format::BinarySi),
        "Mi" => (20, Format::BinarySi),
        "Gi" => (30, Format::BinarySi),
        "Ti" => (40, Format::BinarySi),
        "Pi" => (50, Format::BinarySi),
        "Ei" => (60, Format::BinarySi),
        _ if letters == "e" || letters == "E" => {
            let exponent: i64 = exponent.parse().map_err(|_| QuantityFault::Suffix)?;
            // Kubernetes keeps the low 32 bits of an exponent that fits 64.
            (exponent as i32, Format::DecimalExponent)
        }
        _ => return Err(QuantityFault::Suffix),
    };
    Ok(named)
}
