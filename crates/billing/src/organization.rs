//! What there is to be billed: usage, commitments, prices and rates of all accounts.
//!
//! Times are seconds since 1970 (UTC), intervals end before their `end`. Prices are dollars (or what [`Prices::currency`] says) per hour of
//! an instance, or per unit of other usage. Zones must mean the same in all accounts: use zone ids (`use1-az1`) where there are several.

use std::collections::BTreeMap;

use crate::exact::Exact;
use crate::platform::{Platform, Tenancy};
use crate::sharing::Sharing;

/// The seconds of a clock hour.
pub const HOUR: i64 = 3600;

/// A stretch of time: `start` belongs to it, `end` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// The first second.
    pub start: i64,
    /// The second after the last one.
    pub end: i64,
}

impl Interval {
    /// A stretch of time.
    #[must_use]
    pub const fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    /// The clock hour that begins at `start`.
    #[must_use]
    pub const fn hour(start: i64) -> Self {
        Self::new(start, start.saturating_add(HOUR))
    }

    /// What both have in common; nothing ends before it starts.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let start = self.start.max(other.start);
        Self::new(start, self.end.min(other.end).max(start))
    }

    /// How many seconds both have in common.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> i64 {
        let common = self.common(other);
        common.end.saturating_sub(common.start)
    }

    /// Whether a moment belongs to it.
    #[must_use]
    pub fn contains(&self, at: i64) -> bool {
        self.start <= at && at < self.end
    }
}

/// What kind of machine something is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine {
    /// The region.
    pub region: String,
    /// The instance type.
    pub instance_type: String,
    /// The operating system.
    pub platform: Platform,
    /// The tenancy.
    pub tenancy: Tenancy,
}

/// How an instance is bought.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purchase {
    /// On demand: the only one that commitments cover.
    #[default]
    OnDemand,
    /// Spot, for dollars per hour.
    Spot(Exact),
    /// In a Capacity Block, for dollars per hour.
    CapacityBlock(Exact),
}

/// An instance, or one that might be launched: then it runs at no time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// The instance id.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// The zone.
    pub zone: String,
    /// What it is.
    pub machine: Machine,
    /// How it is bought.
    pub purchase: Purchase,
    /// The capacity reservation that it runs in.
    pub capacity_reservation: Option<String>,
    /// When it ran.
    pub running: Vec<Interval>,
}

/// An On-Demand Capacity Reservation: what of it no instance uses costs as much as an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityReservation {
    /// The id, which instances refer to.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// The zone.
    pub zone: String,
    /// For what.
    pub machine: Machine,
    /// For how many.
    pub count: u32,
    /// When it is provisioned.
    pub active: Interval,
}

/// An amount in one clock hour: Fargate and Lambda, or hours of instances as a report has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageLine {
    /// What names it on the bill.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// The zone of instances.
    pub zone: Option<String>,
    /// What was used.
    pub what: Priced,
    /// How it is bought.
    pub purchase: Purchase,
    /// A second of the clock hour.
    pub at: i64,
    /// How many hours or units.
    pub quantity: Exact,
}

/// What a commitment does now, in the words of both APIs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It counts from its start to its end.
    #[default]
    Active,
    /// Bought, to start later: counts from its start.
    Queued,
    /// Not paid for yet: counts for nothing.
    PaymentPending,
    /// Never paid for.
    PaymentFailed,
    /// Its term is over: it counted until then.
    Retired,
    /// Canceled before it started.
    QueuedDeleted,
    /// Asked to be taken back: counts until it is.
    PendingReturn,
    /// Taken back, and refunded.
    Returned,
}

impl State {
    /// The state with the name that the APIs give it (`expired` is what the console calls a retired one).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "active" => Self::Active,
            "queued" => Self::Queued,
            "payment-pending" => Self::PaymentPending,
            "payment-failed" => Self::PaymentFailed,
            "retired" | "expired" => Self::Retired,
            "queued-deleted" => Self::QueuedDeleted,
            "pending-return" => Self::PendingReturn,
            "returned" => Self::Returned,
            _ => return None,
        })
    }

    /// Whether a commitment in this state counts during its term.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(
            self,
            Self::Active | Self::Queued | Self::Retired | Self::PendingReturn
        )
    }
}

/// Reserved Instances that were bought together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservedInstances {
    /// The ARN or id.
    pub id: String,
    /// Whose they are.
    pub account: String,
    /// For what.
    pub machine: Machine,
    /// The zone of zonal ones; regional ones have none.
    pub zone: Option<String>,
    /// How many.
    pub count: u32,
    /// From when to when.
    pub term: Interval,
    /// Whether they count.
    pub state: State,
    /// What each cost at once.
    pub upfront: Exact,
    /// What each costs every hour, used or not.
    pub hourly: Exact,
}

/// What a Savings Plan covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanKind {
    /// EC2 Instance: one family in one region.
    Ec2Instance {
        /// The family, such as `m5`.
        family: String,
        /// The region.
        region: String,
    },
    /// Compute: every instance, Fargate and Lambda.
    Compute,
}

/// A Savings Plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavingsPlan {
    /// The ARN.
    pub id: String,
    /// Whose it is.
    pub account: String,
    /// What it covers.
    pub kind: PlanKind,
    /// Dollars per hour, at its rates.
    pub commitment: Exact,
    /// The rates, by the name of a card in [`Organization::rates`].
    pub rates: String,
    /// From when to when.
    pub term: Interval,
    /// Whether it counts.
    pub state: State,
}

/// What has a price.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priced {
    /// An hour of a machine.
    Machine(Machine),
    /// A unit of other usage.
    Usage {
        /// The region.
        region: String,
        /// The usage type.
        usage_type: String,
    },
}

/// Dollars per unit.
pub type PriceTable = BTreeMap<Priced, Exact>;

/// Today's on-demand prices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// The currency of all amounts, as the price list names it.
    pub currency: String,
    /// The prices.
    pub on_demand: PriceTable,
}

/// Everything that is billed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Organization {
    /// How commitments are shared.
    pub sharing: Sharing,
    /// Instances.
    pub instances: Vec<Instance>,
    /// Capacity reservations.
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Other usage.
    pub usage_lines: Vec<UsageLine>,
    /// Hours of capacity reservations that no instance used, as a report has them: no `capacity_reservations` are needed for these.
    pub unused_reservation_lines: Vec<UsageLine>,
    /// Reserved Instances.
    pub reserved_instances: Vec<ReservedInstances>,
    /// Savings Plans.
    pub savings_plans: Vec<SavingsPlan>,
    /// On-demand prices.
    pub prices: Prices,
    /// What plans pay for a unit, by the name of the card. Plans of the same kind, term and payment option have the same.
    pub rates: BTreeMap<String, PriceTable>,
}
