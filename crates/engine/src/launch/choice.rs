//! A model of what EC2 does with a fleet request: which override it would launch.
//!
//! EC2 documents what each allocation strategy looks at. For on-demand that decides, as long as there is capacity.
//! For spot it does not: both strategies look at capacity first, which nobody outside sees, so there the choice is an
//! assumption: that every pool has the same capacity.

use super::{AllocationStrategy, FleetRequest, Override};

/// What the choice rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The lowest list price: `Priority` is not looked at, so overlays have no say.
    ListPrice,
    /// The lowest `Priority`, which is the price after overlays.
    Priority,
    /// The lowest spot price, assuming that capacity is the same everywhere.
    SpotPriceAssumed,
    /// The lowest `Priority`, assuming that capacity is the same everywhere.
    SpotPriorityAssumed,
    /// The reservation alone decides.
    Reservation,
}

impl Basis {
    /// Whether the choice depends on something that nobody outside AWS sees.
    #[must_use]
    pub fn is_assumption(self) -> bool {
        matches!(self, Self::SpotPriceAssumed | Self::SpotPriorityAssumed)
    }

    /// The reason as a phrase.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::ListPrice => "EC2 takes the lowest list price",
            Self::Priority => "EC2 takes the lowest Priority",
            Self::SpotPriceAssumed => {
                "EC2 weighs spot price and capacity; assuming the same capacity everywhere"
            }
            Self::SpotPriorityAssumed => {
                "EC2 looks at spot capacity first and then at Priority; assuming the same capacity everywhere"
            }
            Self::Reservation => "the reservation decides",
        }
    }
}

/// The override that EC2 would launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<'a> {
    /// The config it belongs to.
    pub config: usize,
    /// The override.
    pub chosen: &'a Override,
    /// Why this one.
    pub basis: Basis,
}

/// What EC2 would launch; of equals the first by type and zone. None for a request without overrides.
#[must_use]
pub fn choice(request: &FleetRequest) -> Option<Choice<'_>> {
    let (basis, key): (Basis, fn(&Override) -> f64) = match request.strategy {
        Some(AllocationStrategy::LowestPrice) => (Basis::ListPrice, |o| o.list_price),
        Some(AllocationStrategy::Prioritized) => (Basis::Priority, |o| o.priority),
        Some(AllocationStrategy::PriceCapacityOptimized) => (Basis::SpotPriceAssumed, |o| o.list_price),
        Some(AllocationStrategy::CapacityOptimizedPrioritized) => {
            (Basis::SpotPriorityAssumed, |o| o.priority)
        }
        None => (Basis::Reservation, |o| o.priority),
    };
    let best = request.overrides().min_by(|(_, a), (_, b)| {
        let names = || (&a.instance_type, &a.zone).cmp(&(&b.instance_type, &b.zone));
        key(a).total_cmp(&key(b)).then_with(names)
    });
    best.map(|(config, chosen)| Choice {
        config,
        chosen,
        basis,
    })
}
