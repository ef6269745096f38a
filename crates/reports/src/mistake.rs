//! The kinds of mistakes that are told apart, with the rules that they break.

use std::fmt;

/// What is wrong with a line, an hour or a fee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mistake {
    /// A plan pays for spot.
    PlanOnSpot,
    /// Reserved Instances pay for spot.
    ReservedOnSpot,
    /// A zonal Reserved Instance pays in another zone.
    OtherZone,
    /// A commitment pays in another region.
    OtherRegion,
    /// A commitment pays for another family.
    OtherFamily,
    /// Reserved Instances that are not size-flexible pay for another size.
    OtherSize,
    /// Reserved Instances pay for another platform.
    OtherPlatform,
    /// Reserved Instances pay for another tenancy.
    OtherTenancy,
    /// Reserved Instances pay for a platform that has none.
    NoSuchReserved,
    /// A zonal Reserved Instance pays for unused capacity.
    ZonalOnUnused,
    /// A commitment pays before its start or after its end.
    OutsideTerm,
    /// A commitment pays for an account that it is not shared with.
    OutOfReach,
    /// The normalization factor is not that of the size.
    WrongFactor,
    /// The rate is that of another region.
    RateOfOtherRegion,
    /// The rate is not the one of this plan.
    WrongRate,
    /// The price is that of another region.
    PriceOfOtherRegion,
    /// The price is not the one of this usage.
    WrongPrice,
    /// The effective cost is not the share of the commitment.
    WrongEffectiveCost,
    /// A line is there twice.
    DuplicateLine,
    /// An instance ran for more than an hour in an hour.
    MoreThanAnHour,
    /// A commitment was used more than its lines say.
    MissingLine,
    /// Covered usage is not taken off the bill.
    MissingNegation,
    /// Covered usage is taken off with another amount.
    WrongNegation,
    /// A commitment has no fee.
    MissingFee,
    /// A commitment pays more than it has.
    CommitmentExceeded,
    /// A fee is not that of other hours.
    WrongFee,
    /// What a fee says was unused is not what its lines leave.
    WrongUnused,
    /// Usage is on demand while a commitment that covers it has something left.
    CoverageMissed,
    /// A later kind of commitment paid before an earlier one.
    WrongOrder,
    /// Another account came before the owner.
    OwnerNotFirst,
    /// Unused capacity came before running instances.
    UnusedFirst,
    /// A larger size came before a smaller one.
    LargerSizeFirst,
    /// Usage with a lower saving came before one with a higher.
    LowerSavingFirst,
}

impl Mistake {
    /// Its name, for machines.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The rules that say so.
    #[must_use]
    pub fn rules(self) -> &'static [u8] {
        self.row().1
    }

    /// What is wrong, in a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static [u8], &'static str) {
        match self {
            Self::PlanOnSpot => (
                "plan-on-spot",
                &[2],
                "A Savings Plan is applied to spot usage, which plans never cover",
            ),
            Self::ReservedOnSpot => (
                "reserved-instance-on-spot",
                &[2],
                "A Reserved Instance is applied to spot usage, which they never cover",
            ),
            Self::OtherZone => (
                "other-zone",
                &[3],
                "A zonal Reserved Instance is applied in another zone",
            ),
            Self::OtherRegion => (
                "other-region",
                &[3, 10],
                "A commitment for one region is applied in another",
            ),
            Self::OtherFamily => (
                "other-family",
                &[3, 10],
                "A commitment for one instance family is applied to something else",
            ),
            Self::OtherSize => (
                "other-size",
                &[3],
                "A Reserved Instance without size flexibility is applied to another size",
            ),
            Self::OtherPlatform => (
                "other-platform",
                &[3, 13],
                "A Reserved Instance is applied to another platform",
            ),
            Self::OtherTenancy => (
                "other-tenancy",
                &[3],
                "A Reserved Instance is applied to another tenancy",
            ),
            Self::NoSuchReserved => (
                "platform-without-reserved-instances",
                &[13],
                "A Reserved Instance is applied to a platform that has none",
            ),
            Self::ZonalOnUnused => (
                "zonal-on-unused-reservation",
                &[12],
                "A zonal Reserved Instance is applied to unused hours of a capacity reservation",
            ),
            Self::OutsideTerm => (
                "outside-term",
                &[1],
                "A commitment is applied before its start or after its end",
            ),
            Self::OutOfReach => (
                "not-shared",
                &[7, 11],
                "A commitment is applied to an account that it is not shared with",
            ),
            Self::WrongFactor => (
                "wrong-normalization-factor",
                &[5, 6],
                "The normalization factor is not that of the instance size",
            ),
            Self::RateOfOtherRegion => (
                "rate-of-other-region",
                &[9],
                "The Savings Plan rate is that of another region",
            ),
            Self::WrongRate => (
                "wrong-rate",
                &[9],
                "The Savings Plan rate is not the one that the plan's other lines have",
            ),
            Self::PriceOfOtherRegion => (
                "price-of-other-region",
                &[2],
                "The on-demand price is that of another region",
            ),
            Self::WrongPrice => (
                "wrong-price",
                &[2],
                "The cost is not the amount times the on-demand price that other lines have",
            ),
            Self::WrongEffectiveCost => (
                "wrong-effective-cost",
                &[14],
                "The effective cost is not the share of the commitment that was used",
            ),
            Self::DuplicateLine => ("duplicate-line", &[1], "A line is there twice"),
            Self::MoreThanAnHour => (
                "more-than-an-hour",
                &[1, 8],
                "An instance is billed for more than an hour in one hour",
            ),
            Self::MissingLine => (
                "missing-line",
                &[14],
                "A fee says that more was used than the lines of the commitment show: a line is missing",
            ),
            Self::MissingNegation => (
                "missing-negation",
                &[14],
                "Usage that a Savings Plan covers is not taken off the bill: it is paid twice",
            ),
            Self::WrongNegation => (
                "wrong-negation",
                &[14],
                "Usage that a Savings Plan covers is taken off the bill with another amount",
            ),
            Self::MissingFee => (
                "missing-fee",
                &[14],
                "A commitment pays for usage and has no fee in the report",
            ),
            Self::CommitmentExceeded => (
                "commitment-exceeded",
                &[8, 9],
                "A commitment pays for more than it has in the hour",
            ),
            Self::WrongFee => (
                "wrong-fee",
                &[14],
                "The fee of a Savings Plan does not agree with its other hours or with its lines",
            ),
            Self::WrongUnused => (
                "wrong-unused",
                &[14],
                "What the fee of a Reserved Instance says was unused is not what its lines leave",
            ),
            Self::CoverageMissed => (
                "coverage-missed",
                &[2],
                "Usage is billed on demand while a commitment that covers it has something left",
            ),
            Self::WrongOrder => (
                "wrong-order",
                &[2],
                "A commitment paid before one that comes earlier: Reserved Instances, EC2 Instance plans, Compute plans",
            ),
            Self::OwnerNotFirst => (
                "owner-not-first",
                &[7, 11],
                "A commitment is applied to another account before the account that owns it",
            ),
            Self::UnusedFirst => (
                "unused-reservation-first",
                &[12],
                "A commitment is applied to unused capacity before running instances",
            ),
            Self::LargerSizeFirst => (
                "larger-size-first",
                &[4],
                "A size-flexible Reserved Instance is applied to a larger size before a smaller one",
            ),
            Self::LowerSavingFirst => (
                "lower-saving-first",
                &[9],
                "A Savings Plan is applied to usage with a lower saving before usage with a higher one",
            ),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}
