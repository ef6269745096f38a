//! Scheduling, held against Karpenter's provisioner.
//!
//! [`generate`] draws clusters, both sides schedule them, and what they say is compared: exactly where Karpenter
//! repeats itself, and otherwise in the number of claims, the failures and the cost, with every constraint of every
//! placed pod proven by a checker of its own.

mod constraint;
mod facts;
mod generate;
mod scenario;

pub use constraint::Constraint;
pub use facts::{Entry, Facts, Offer};
pub use generate::generate;
pub use scenario::{Options, Scenario};
