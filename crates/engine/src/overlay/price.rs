//! What an overlay does to a price.
//!
//! The arithmetic is that of Karpenter, operation by operation, because the order of launch candidates must be
//! the same to the last bit.

use std::fmt;

/// A change of an offering's price, kept with the text that the manifest used.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceChange {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Replace(f64),
    Add(f64),
    Percent(f64),
}

/// A price or adjustment that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// `price` is not an unsigned decimal.
    #[error(
        "{found:?} is no price; expected an unsigned decimal such as \"5.00\" (for a change of the price use priceAdjustment)"
    )]
    Price {
        /// What the manifest said.
        found: String,
    },
    /// `priceAdjustment` is not a signed decimal or percentage.
    #[error(
        "{found:?} is no adjustment; expected a signed amount such as \"+5.00\" or \"-7.50\", or a signed percentage from \"-100%\" such as \"+15%\" or \"-10%\""
    )]
    Adjustment {
        /// What the manifest said.
        found: String,
    },
}

impl PriceChange {
    /// Reads `price`: digits, optionally a point and more digits.
    pub fn price(text: &str) -> Result<Self, PriceError> {
        let bad = || PriceError::Price {
            found: text.to_owned(),
        };
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
        if !is_digits(whole) || !fraction.is_none_or(is_digits) {
            return Err(bad());
        }
        let value = text.parse().map_err(|_| bad())?;
        Ok(Self {
            text: text.to_owned(),
            kind: Kind::Replace(value),
        })
    }

    /// Reads `priceAdjustment`: a sign, then an amount or a percentage. A reduction of more than 100 % is refused,
    /// and so is a percentage below zero that begins with its point, as in Karpenter's CRD.
    pub fn adjustment(text: &str) -> Result<Self, PriceError> {
        let bad = || PriceError::Adjustment {
            found: text.to_owned(),
        };
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).ok_or_else(bad)?;
        let (number, percent) = unsigned
            .strip_suffix('%')
            .map_or((unsigned, false), |number| (number, true));
        let (whole, fraction) = number.split_once('.').map_or(("", number), |(w, f)| (w, f));
        let decimal = (whole.is_empty() || is_digits(whole)) && is_digits(fraction);
        let in_range = !(percent && negative) || is_reduction(number);
        if !decimal || !in_range {
            return Err(bad());
        }
        // The sign stays with the number: Karpenter parses both together.
        let signed: f64 = text.trim_end_matches('%').parse().map_err(|_| bad())?;
        let kind = if percent {
            Kind::Percent(signed)
        } else {
            Kind::Add(signed)
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    /// The price after the change, never below zero.
    #[must_use]
    pub fn apply(&self, list_price: f64) -> f64 {
        let changed = match self.kind {
            Kind::Replace(price) => return price,
            Kind::Add(amount) => list_price + amount,
            Kind::Percent(percent) => list_price * (1.0 + percent / 100.0),
        };
        if changed >= 0.0 { changed } else { 0.0 }
    }

    /// Whether the change sets one price for everything it matches.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replace(_))
    }
}

impl fmt::Display for PriceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `number` is from 0 to below 100 with one or two digits before the point, or exactly `100`.
fn is_reduction(number: &str) -> bool {
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    number == "100" || matches!(whole.len(), 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(text: &str, list: f64) -> f64 {
        PriceChange::adjustment(text).unwrap().apply(list)
    }

    #[test]
    fn a_price_replaces_and_an_adjustment_changes_never_below_zero() {
        assert_eq!(PriceChange::price("5.00").unwrap().apply(1.0), 5.0);
        assert_eq!(adjusted("+5.00", 1.0), 6.0);
        assert_eq!(adjusted("-7.50", 10.0), 2.5);
        assert_eq!(adjusted("-7.50", 1.0), 0.0);
        assert_eq!(adjusted("-10%", 2.0), 2.0 * (1.0 + -10.0 / 100.0));
        assert_eq!(adjusted("+15%", 2.0), 2.0 * (1.0 + 15.0 / 100.0));
        assert_eq!(adjusted("-100%", 2.0), 0.0);
    }

    #[test]
    fn every_form_that_the_crd_accepts_is_read_and_no_other() {
        for good in ["0", "5", "5.00", "007.10"] {
            assert!(PriceChange::price(good).is_ok(), "{good}");
        }
        for bad in [
            "", "-5", "+5", "5.", ".5", "5%", "1e3", " 5", "5 ", "five", "NaN", "inf",
        ] {
            assert!(PriceChange::price(bad).is_err(), "{bad}");
        }
        for good in [
            "+5", "-5", "+.5", "-.5", "+5.25", "+15%", "+1500%", "+.5%", "-0%", "-99.9%", "-10.125%", "-100%",
        ] {
            assert!(PriceChange::adjustment(good).is_ok(), "{good}");
        }
        for bad in [
            "", "5", "10%", "+", "-", "+%", "+5.", "-101%", "-100.5%", "-100.0%", "-.5%", "-5.%", "--5",
            "+1e3", "+inf", "- 5",
        ] {
            assert!(PriceChange::adjustment(bad).is_err(), "{bad}");
        }
    }
}
