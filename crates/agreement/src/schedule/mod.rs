//! Scheduling, held against Karpenter's provisioner.
//!
//! [`generate`] draws clusters, both sides schedule them, and what they say is compared: exactly where Karpenter
//! repeats itself, and otherwise in the number of claims, the failures and the cost, with every constraint of every
//! placed pod proven by a checker of its own.

mod answer;
mod check;
mod compare;
mod constraint;
mod facts;
mod generate;
mod judge;
mod oracle;
mod ours;
mod run;
mod scenario;

pub use answer::{Answer, Claim, Existing, Expression, Unschedulable};
pub use check::violations;
pub use constraint::Constraint;
pub use facts::{Entry, Facts, Offer};
pub use generate::generate;
pub use judge::{Judge, Judgement, Verdict};
pub use oracle::{Oracle, Programs};
pub use ours::{Ours, objects};
pub use run::{Difference, Report, Selection, Tally, check_theirs, run};
pub use scenario::{Options, Scenario};
