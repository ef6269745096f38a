//! Exact numbers: fractions of whole numbers, without rounding and without overflow.
//!
//! Amounts are whole numbers nearly everywhere, so a number is a pair of 128-bit integers until that is too small. Always
//! reduced, with a positive denominator, and small where it can be: equal numbers have equal parts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use num_bigint::{BigInt, Sign};

/// A number without rounding.
#[derive(Clone, PartialEq, Eq)]
pub struct Exact(Parts);

#[derive(Clone, PartialEq, Eq)]
enum Parts {
    Small { top: i128, bottom: i128 },
    Large(Box<(BigInt, BigInt)>),
}

impl Exact {
    /// Nothing.
    pub const ZERO: Self = Self::whole(0);
    /// One.
    pub const ONE: Self = Self::whole(1);

    /// A whole number.
    #[must_use]
    pub const fn whole(number: i128) -> Self {
        Self(Parts::Small {
            top: number,
            bottom: 1,
        })
    }

    /// `top / bottom`; nothing if `bottom` is zero.
    #[must_use]
    pub fn fraction(top: i128, bottom: i128) -> Option<Self> {
        (bottom != 0).then(|| Self::reduced(top, bottom))
    }

    /// Reads a decimal number such as `0.0309`, `-2` or `1.2e-3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(short) = Self::parse_short(text) {
            return Some(short);
        }
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{decimals}");
        // A bound on what anybody may write: 10^400 is no price.
        let power = exponent.checked_sub(i32::try_from(decimals.len()).ok()?)?;
        if digits.is_empty()
            || !digits.bytes().all(|byte| byte.is_ascii_digit())
            || power.unsigned_abs() > 400
        {
            return None;
        }
        let digits = BigInt::parse_bytes(digits.as_bytes(), 10)?;
        let ten = BigInt::from(10).pow(power.unsigned_abs());
        let (top, bottom) = if power < 0 {
            (digits, ten)
        } else {
            (digits * ten, BigInt::from(1))
        };
        Some(Self::large(if is_negative { -top } else { top }, bottom))
    }

    /// Reads a decimal number of at most 30 digits without an exponent, as nearly all are.
    fn parse_short(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (mut top, mut bottom, mut count, mut has_point) = (0_i128, 1_i128, 0, false);
        for byte in digits.bytes() {
            match byte {
                b'0'..=b'9' if count < 30 => {
                    count += 1;
                    top = top * 10 + i128::from(byte - b'0');
                    bottom *= if has_point { 10 } else { 1 };
                }
                b'.' if !has_point => has_point = true,
                _ => return None,
            }
        }
        let top = if digits.len() < text.len() { -top } else { top };
        (count > 0).then(|| Self::reduced(top, bottom))
    }

    /// The shortest decimal number that a double stands for: 0.1 is a tenth.
    #[must_use]
    pub fn from_f64(number: f64) -> Option<Self> {
        Self::parse(&format!("{number}"))
    }

    /// The nearest double, for metrics.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        const EXACT: i128 = 1 << 53;
        match &self.0 {
            Parts::Small { top, bottom } if top.abs() <= EXACT && *bottom <= EXACT => {
                *top as f64 / *bottom as f64
            }
            _ => self.decimal(25).parse().unwrap_or(f64::NAN),
        }
    }

    /// Whether this is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Parts::Small { top: 0, .. })
    }

    /// Whether this is more than zero.
    #[must_use]
    pub fn is_positive(&self) -> bool {
        match &self.0 {
            Parts::Small { top, .. } => *top > 0,
            Parts::Large(parts) => parts.0.sign() == Sign::Plus,
        }
    }

    /// Whether this is less than zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        !self.is_zero() && !self.is_positive()
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.try_small(other, |a, b, c, d| {
            if d == 1 {
                // Reduced stays reduced.
                return Some((a.checked_add(c.checked_mul(b)?)?, b, true));
            }
            if b == 1 {
                return Some((c.checked_add(a.checked_mul(d)?)?, d, true));
            }
            if b == d {
                return Some((a.checked_add(c)?, b, false));
            }
            let top = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
            Some((top, b.checked_mul(d)?, false))
        })
        .unwrap_or_else(|| {
            let ((a, b), (c, d)) = (self.parts(), other.parts());
            if other.denominator() == Some(1) {
                return Self::large_reduced(a + c * &b, b);
            }
            if self.denominator() == Some(1) {
                return Self::large_reduced(c + a * &d, d);
            }
            Self::large(a * &d + c * &b, b * d)
        })
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&other.negated())
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        self.try_small(other, |a, b, c, d| {
            Some((a.checked_mul(c)?, b.checked_mul(d)?, b == 1 && d == 1))
        })
        .unwrap_or_else(|| {
            let ((a, b), (c, d)) = (self.parts(), other.parts());
            Self::large(a * c, b * d)
        })
    }

    /// The product with a whole number.
    #[must_use]
    pub fn times_whole(&self, number: i128) -> Self {
        self.times(&Self::whole(number))
    }

    /// The quotient; nothing if `other` is zero.
    #[must_use]
    pub fn over(&self, other: &Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let quotient = self.try_small(other, |a, b, c, d| {
            Some((a.checked_mul(d)?, b.checked_mul(c)?, false))
        });
        Some(quotient.unwrap_or_else(|| {
            let ((a, b), (c, d)) = (self.parts(), other.parts());
            Self::large(a * d, b * c)
        }))
    }

    /// The quotient by a whole number that is not zero; zero counts as one.
    #[must_use]
    pub fn over_whole(&self, number: i128) -> Self {
        self.over(&Self::whole(number)).unwrap_or_else(|| self.clone())
    }

    /// The number with its sign turned.
    #[must_use]
    pub fn negated(&self) -> Self {
        match &self.0 {
            Parts::Small { top, bottom } => match top.checked_neg() {
                Some(top) => Self(Parts::Small { top, bottom: *bottom }),
                None => Self::large(-BigInt::from(*top), BigInt::from(*bottom)),
            },
            Parts::Large(parts) => Self(Parts::Large(Box::new((-&parts.0, parts.1.clone())))),
        }
    }

    /// The denominator, where it is small.
    #[must_use]
    pub fn denominator(&self) -> Option<i128> {
        match &self.0 {
            Parts::Small { bottom, .. } => Some(*bottom),
            Parts::Large(_) => None,
        }
    }

    /// With this many decimals; a half is rounded away from zero, as on a bill.
    #[must_use]
    pub fn decimal(&self, decimals: u32) -> String {
        let (top, bottom) = self.parts();
        let is_negative = top.sign() == Sign::Minus;
        let top = if is_negative { -top } else { top };
        let scaled: BigInt = (top * BigInt::from(10).pow(decimals) * 2 + &bottom) / (bottom * 2);
        let width = decimals as usize + 1;
        let digits = format!("{:0>width$}", scaled.to_string());
        let sign = if is_negative && scaled.sign() != Sign::NoSign {
            "-"
        } else {
            ""
        };
        match digits.split_at_checked(digits.len() - decimals as usize) {
            Some((whole, "")) => format!("{sign}{whole}"),
            Some((whole, rest)) => format!("{sign}{whole}.{rest}"),
            None => format!("{sign}{digits}"),
        }
    }

    /// Applies an operation on small parts, which says whether its result is reduced already.
    fn try_small(
        &self,
        other: &Self,
        operation: impl Fn(i128, i128, i128, i128) -> Option<(i128, i128, bool)>,
    ) -> Option<Self> {
        let (Parts::Small { top: a, bottom: b }, Parts::Small { top: c, bottom: d }) = (&self.0, &other.0)
        else {
            return None;
        };
        let (top, bottom, is_reduced) = operation(*a, *b, *c, *d)?;
        // The smallest integer has no opposite.
        if top == i128::MIN || bottom == i128::MIN {
            return None;
        }
        Some(if is_reduced {
            Self(Parts::Small { top, bottom })
        } else {
            Self::reduced(top, bottom)
        })
    }

    fn reduced(top: i128, bottom: i128) -> Self {
        if top == i128::MIN || bottom == i128::MIN {
            return Self::large(BigInt::from(top), BigInt::from(bottom));
        }
        let common = i128::try_from(gcd(top.unsigned_abs(), bottom.unsigned_abs())).unwrap_or(1);
        let sign = bottom.signum();
        Self(Parts::Small {
            top: top / common * sign,
            bottom: bottom / common * sign,
        })
    }

    fn large(top: BigInt, bottom: BigInt) -> Self {
        let (mut a, mut b) = (top.clone(), bottom.clone());
        while b.sign() != Sign::NoSign {
            let rest = &a % &b;
            a = b;
            b = rest;
        }
        // The sign of the divisor decides that of the parts: the denominator shall be positive.
        if (a.sign() == Sign::Minus) != (bottom.sign() == Sign::Minus) {
            a = -a;
        }
        Self::large_reduced(top / &a, bottom / a)
    }

    /// Of parts that have nothing in common.
    fn large_reduced(top: BigInt, bottom: BigInt) -> Self {
        match (i128::try_from(&top), i128::try_from(&bottom)) {
            (Ok(top), Ok(bottom)) if top != i128::MIN => Self(Parts::Small { top, bottom }),
            _ => Self(Parts::Large(Box::new((top, bottom)))),
        }
    }

    fn parts(&self) -> (BigInt, BigInt) {
        match &self.0 {
            Parts::Small { top, bottom } => (BigInt::from(*top), BigInt::from(*bottom)),
            Parts::Large(parts) => (parts.0.clone(), parts.1.clone()),
        }
    }
}

/// The greatest common divisor; of zero and a number, the number.
pub(crate) fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        if let (Ok(mut a), Ok(mut b)) = (u64::try_from(a), u64::try_from(b)) {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            return u128::from(a);
        }
        (a, b) = (b, a % b);
    }
    a
}

impl Default for Exact {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Exact {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Parts::Small { top: a, bottom: b }, Parts::Small { top: c, bottom: d }) = (&self.0, &other.0)
        {
            if b == d {
                return a.cmp(c);
            }
            if let (Some(left), Some(right)) = (a.checked_mul(*d), c.checked_mul(*b)) {
                return left.cmp(&right);
            }
        }
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        (a * d).cmp(&(c * b))
    }
}

impl Hash for Exact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Parts::Small { top, bottom } => (top, bottom).hash(state),
            Parts::Large(parts) => parts.hash(state),
        }
    }
}

impl From<i64> for Exact {
    fn from(number: i64) -> Self {
        Self::whole(i128::from(number))
    }
}

impl<'a> std::iter::Sum<&'a Exact> for Exact {
    fn sum<I: Iterator<Item = &'a Exact>>(numbers: I) -> Self {
        numbers.fold(Self::ZERO, |sum, number| sum.plus(number))
    }
}

impl std::iter::Sum for Exact {
    fn sum<I: Iterator<Item = Exact>>(numbers: I) -> Self {
        numbers.fold(Self::ZERO, |sum, number| sum.plus(&number))
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(decimals) => f.write_str(&self.decimal(u32::try_from(decimals).unwrap_or(u32::MAX))),
            None => {
                let (top, bottom) = self.parts();
                if bottom == BigInt::from(1) {
                    write!(f, "{top}")
                } else {
                    write!(f, "{top}/{bottom}")
                }
            }
        }
    }
}

impl fmt::Debug for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Exact {
        Exact::parse(text).unwrap()
    }

    #[test]
    fn decimals_are_read_exactly() {
        for (text, top, bottom) in [
            ("0.72", 18, 25),
            ("-1.5", -3, 2),
            ("2", 2, 1),
            (".5", 1, 2),
            ("1.2e-3", 3, 2500),
            ("3E2", 300, 1),
            ("0.000", 0, 1),
        ] {
            assert_eq!(Exact::parse(text), Exact::fraction(top, bottom), "{text}");
        }
        for text in ["", ".", "-", "1.2.3", "0x1", "1e500", "NaN", "inf", "1 "] {
            assert_eq!(Exact::parse(text), None, "{text:?}");
        }
        assert_eq!(Exact::from_f64(0.1), Exact::fraction(1, 10));
        assert_eq!(Exact::from_f64(f64::NAN), None);
        assert_eq!(Exact::from_f64(f64::INFINITY), None);
        assert_eq!(exact("0.1").to_f64(), 0.1);
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (text, decimals, shown) in [
            ("47.125", 2, "47.13"),
            ("-47.125", 2, "-47.13"),
            ("0.004", 2, "0.00"),
            ("-0.004", 2, "0.00"),
            ("7", 0, "7"),
            ("0.5", 0, "1"),
            ("0.05", 3, "0.050"),
        ] {
            assert_eq!(exact(text).decimal(decimals), shown, "{text}");
        }
        assert_eq!(format!("{:.4}", Exact::fraction(2, 3).unwrap()), "0.6667");
        assert_eq!(Exact::fraction(6, -4).unwrap().to_string(), "-3/2");
    }

    #[test]
    fn numbers_beyond_128_bits_stay_exact_and_become_small_again() {
        let huge = exact("1e60");
        let third = Exact::fraction(1, 3).unwrap();
        let sum = huge.plus(&third);
        assert_eq!(sum.minus(&huge), third);
        assert_eq!(sum.minus(&huge).denominator(), Some(3));
        assert_eq!(sum.denominator(), None);
        assert!(sum > huge && huge.negated() < third && huge.negated().is_negative());
        let most = Exact::whole(i128::MAX);
        assert_eq!(most.plus(&Exact::ONE).minus(&Exact::ONE), most);
        assert_eq!(most.times(&most).over(&most), Some(most.clone()));
        assert_eq!(
            Exact::whole(i128::MIN + 1)
                .minus(&Exact::ONE)
                .negated()
                .minus(&Exact::ONE),
            most
        );
        assert_eq!(huge.over(&Exact::ZERO), None);
        assert_eq!(huge.negated().over(&huge.negated()), Some(Exact::ONE));
        assert_eq!(
            Exact::fraction(1, i128::MIN)
                .unwrap()
                .times(&Exact::whole(2))
                .times_whole(-1),
            Exact::fraction(1, 1 << 126).unwrap()
        );
    }
}
