//! What in an organization cannot be billed as it stands, and what was done about it.

use std::fmt;

/// Something that the answer leaves out or had to choose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// Usage without an on-demand price: Reserved Instances cover it, plans do not, and what is uncovered counts as 0.
    NoPrice {
        /// What has none.
        what: String,
    },
    /// A plan without a rate for usage that it would cover: it does not cover it.
    NoRate {
        /// The plan.
        plan: String,
        /// What has none.
        what: String,
    },
    /// A plan whose rates are not there at all: it covers nothing.
    NoRates {
        /// The plan.
        plan: String,
        /// The name of its rates.
        rates: String,
    },
    /// An amount below zero: left out.
    Negative {
        /// What has it.
        what: String,
    },
    /// Two commitments or capacity reservations with one id that say different things: the first in order counts.
    Contradiction {
        /// The id.
        id: String,
    },
    /// Reserved Instances for a platform or tenancy that has none: paid, and never used.
    NoSuchReservedInstance {
        /// The id.
        id: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPrice { what } => write!(
                f,
                "No on-demand price for {what}: no plan is applied to it, and what is uncovered counts as 0"
            ),
            Self::NoRate { plan, what } => write!(
                f,
                "Savings Plan {plan} has no rate for {what} and does not cover it"
            ),
            Self::NoRates { plan, rates } => {
                write!(
                    f,
                    "Savings Plan {plan} has no rates ({rates:?} is unknown) and covers nothing"
                )
            }
            Self::Negative { what } => write!(f, "{what} has a negative amount and is left out"),
            Self::Contradiction { id } => {
                write!(f, "{id} is given twice with different contents; the first counts")
            }
            Self::NoSuchReservedInstance { id } => {
                write!(
                    f,
                    "{id}: there are no Reserved Instances of this platform or tenancy, so it covers nothing"
                )
            }
        }
    }
}
