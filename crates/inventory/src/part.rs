//! The parts of an inventory, and what each of them holds.

use std::collections::BTreeMap;

use veneer_billing::{
    CapacityReservation, Exact, Platform, PriceTable, Prices, ReservedInstances, SavingsPlan, Sharing,
};

use crate::instances::Instances;

/// A kind of data, collected by a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataKind {
    /// The zones of a region as an account names them.
    Zones,
    /// Running instances.
    Instances,
    /// Reserved Instances.
    ReservedInstances,
    /// On-Demand Capacity Reservations.
    CapacityReservations,
    /// Savings Plans.
    SavingsPlans,
    /// What Savings Plans pay for a unit.
    PlanRates,
    /// On-demand prices.
    Prices,
    /// Spot prices.
    SpotPrices,
    /// How commitments are shared between accounts.
    Sharing,
}

impl DataKind {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::Zones,
        Self::Instances,
        Self::ReservedInstances,
        Self::CapacityReservations,
        Self::SavingsPlans,
        Self::PlanRates,
        Self::Prices,
        Self::SpotPrices,
        Self::Sharing,
    ];

    /// Its name in metrics and on debug pages. Those that Lumina has are spelled as it spells them.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zones => "zones",
            Self::Instances => "ec2_instances",
            Self::ReservedInstances => "reserved_instances",
            Self::CapacityReservations => "capacity_reservations",
            Self::SavingsPlans => "savings_plans",
            Self::PlanRates => "sp_rates",
            Self::Prices => "pricing",
            Self::SpotPrices => "spot-pricing",
            Self::Sharing => "sharing",
        }
    }
}

/// Which part of the inventory: what one account has of one kind in one region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// The account id; empty for what is the same for all of them (prices).
    pub account: String,
    /// The region; empty for what has none (plans, rates, sharing).
    pub region: String,
    /// Of which kind.
    pub kind: DataKind,
}

impl Part {
    /// A part.
    #[must_use]
    pub fn new(account: impl Into<String>, region: impl Into<String>, kind: DataKind) -> Self {
        Self {
            account: account.into(),
            region: region.into(),
            kind,
        }
    }
}

/// The zone ids (`use1-az1`) of the zone names (`us-east-1a`) of one account.
pub type Zones = BTreeMap<String, String>;

/// What an instance costs as spot in one zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotPrice {
    /// The instance type.
    pub instance_type: String,
    /// The name of the zone, as the account that was asked has it.
    pub zone: String,
    /// For which operating system.
    pub platform: Platform,
    /// Dollars per hour.
    pub price: Exact,
    /// When this price began.
    pub since: i64,
}

/// The rows of a part. Zones in them are names, as the account has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Of [`DataKind::Zones`].
    Zones(Zones),
    /// Of [`DataKind::Instances`]: those that run.
    Instances(Instances),
    /// Of [`DataKind::ReservedInstances`].
    ReservedInstances(Vec<ReservedInstances>),
    /// Of [`DataKind::CapacityReservations`].
    CapacityReservations(Vec<CapacityReservation>),
    /// Of [`DataKind::SavingsPlans`].
    SavingsPlans(Vec<SavingsPlan>),
    /// Of [`DataKind::PlanRates`]: by the name of the card, which [`SavingsPlan::rates`] refers to.
    PlanRates(BTreeMap<String, PriceTable>),
    /// Of [`DataKind::Prices`].
    Prices(Prices),
    /// Of [`DataKind::SpotPrices`].
    SpotPrices(Vec<SpotPrice>),
    /// Of [`DataKind::Sharing`].
    Sharing(Sharing),
}

impl Rows {
    /// Of which kind they are.
    #[must_use]
    pub fn kind(&self) -> DataKind {
        match self {
            Self::Zones(_) => DataKind::Zones,
            Self::Instances(_) => DataKind::Instances,
            Self::ReservedInstances(_) => DataKind::ReservedInstances,
            Self::CapacityReservations(_) => DataKind::CapacityReservations,
            Self::SavingsPlans(_) => DataKind::SavingsPlans,
            Self::PlanRates(_) => DataKind::PlanRates,
            Self::Prices(_) => DataKind::Prices,
            Self::SpotPrices(_) => DataKind::SpotPrices,
            Self::Sharing(_) => DataKind::Sharing,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Zones(zones) => zones.len(),
            Self::Instances(instances) => instances.len(),
            Self::ReservedInstances(rows) => rows.len(),
            Self::CapacityReservations(rows) => rows.len(),
            Self::SavingsPlans(rows) => rows.len(),
            Self::PlanRates(cards) => cards.values().map(PriceTable::len).sum(),
            Self::Prices(prices) => prices.on_demand.len(),
            Self::SpotPrices(rows) => rows.len(),
            Self::Sharing(_) => 1,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
