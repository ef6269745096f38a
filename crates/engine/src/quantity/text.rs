//! The canonical text of a quantity: no fraction, the largest unit that loses nothing, no sign unless negative.

use std::fmt::{self, Debug, Display, Formatter};

use num_bigint::{BigInt, Sign};

use super::{Format, Quantity};

/// Unit letters of 10^-9, 10^-6, … 10^18.
const DECIMAL_UNITS: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Unit letters of 1024^0, 1024^1, … 1024^6.
const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Below this, binary notation would only hide that the number is small.
const SMALLEST_BINARY: i128 = 1024 * super::NANOS;

impl Display for Quantity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.format == Format::BinarySi
            && let Some((number, power)) = self.in_binary_units()
        {
            // Beyond the largest unit Kubernetes writes none; so do we, to give the same text.
            return write!(f, "{number}{}", BINARY_UNITS.get(power).unwrap_or(&""));
        }
        self.fmt_decimal(f)
    }
}

impl Debug for Quantity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

impl Quantity {
    /// The number and the power of 1024, if the amount is whole and large enough for binary units.
    fn in_binary_units(&self) -> Option<(BigInt, usize)> {
        let mut number = match self.nanos() {
            Some(nanos) if nanos.abs_diff(0) < SMALLEST_BINARY.unsigned_abs() => return None,
            Some(nanos) if nanos % super::NANOS != 0 => return None,
            Some(nanos) => BigInt::from(nanos / super::NANOS),
            None => self.to_huge().mantissa_at(9)?,
        };
        let mut power = 0;
        let unit = BigInt::from(1024);
        while (&number % &unit).sign() == Sign::NoSign {
            number /= &unit;
            power += 1;
        }
        Some((number, power))
    }

    fn fmt_decimal(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut padding = "";
        let (digits, mut exponent) = match self.nanos() {
            Some(0) => return f.write_str("0"),
            Some(mut nanos) => {
                let mut exponent = -9;
                while nanos % 10 == 0 {
                    nanos /= 10;
                    exponent += 1;
                }
                (nanos.to_string(), exponent)
            }
            // Kubernetes counts exponents in 32 bits, and 10e2147483647 wraps around there.
            None => {
                let huge = self.to_huge();
                (huge.mantissa.to_string(), (huge.exponent as i32).wrapping_sub(9))
            }
        };
        match exponent % 3 {
            1 | -2 => padding = "0",
            2 | -1 => padding = "00",
            _ => {}
        }
        exponent = exponent.wrapping_sub(padding.len() as i32);
        write!(f, "{digits}{padding}")?;
        match self.format {
            Format::DecimalExponent if exponent == 0 => Ok(()),
            Format::DecimalExponent => write!(f, "e{exponent}"),
            // Outside the named units Kubernetes writes none; so do we, to give the same text.
            Format::DecimalSi | Format::BinarySi => {
                let unit = usize::try_from(exponent / 3 + 3)
                    .ok()
                    .and_then(|index| DECIMAL_UNITS.get(index));
                f.write_str(unit.unwrap_or(&""))
            }
        }
    }
}
