//! What Reserved Instances and Savings Plans pay for, clock hour by clock hour, as AWS bills it.
//!
//! [`Allocator::new`] takes an [`Organization`] (usage, commitments, prices and rates of all its accounts). [`Allocator::hour`] says who
//! pays which part of what in a clock hour, [`Allocator::now`] the same as if what runs at a moment ran for an hour, and
//! [`Allocator::period`] adds hours up. [`Bill::quote`] says what is left for one more instance.
//!
//! All arithmetic is exact ([`Exact`]); the same input in any order gives the same answer. The rules are numbered as in the guide
//! ("Commitments: who pays for what"), and each part of a bill names those that it follows from. Nothing here reads a clock, a file, the
//! environment or the network.

mod allocator;
mod bill;
mod exact;
mod organization;
mod pass;
mod period;
mod platform;
mod prepare;
mod problem;
mod quote;
mod sharing;
mod sizes;
mod usage_bill;

pub use allocator::{Allocator, Moment};
pub use bill::{Bill, Commitment, CommitmentBill, Covered, Totals};
pub use exact::Exact;
pub use organization::{
    CapacityReservation, HOUR, Instance, Interval, Machine, Organization, PlanKind, PriceTable, Priced,
    Prices, Purchase, ReservedInstances, SavingsPlan, State, UsageLine,
};
pub use pass::Basis;
pub use period::{PeriodBill, UsageTotal};
pub use platform::{Platform, Tenancy};
pub use problem::Problem;
pub use quote::{Available, Quote};
pub use sharing::{Reach, Sharing, SharingMode};
pub use sizes::{exchange, family_of, is_size_flexible, size_factor, size_quarters};
pub use usage_bill::{ShareBill, UsageBill};
