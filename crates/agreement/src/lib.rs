//! Holds the engine against Karpenter's own packages.
//!
//! A [`Subject`] generates cases and compares the oracle's answers with ours; [`check`] runs a stream of them
//! through one oracle process. Case `i` of seed `s` is always the same, so a difference is reproduced by its seed
//! and number alone, whatever the number of cases.

#![allow(
    clippy::indexing_slicing,
    reason = "a test tool may fail loudly on cases that it made itself"
)]

pub mod class_hash;
pub mod disruption;
pub mod fleet;
mod harness;
pub mod launch;
pub mod overlays;
pub mod quantity;
pub mod requirements;
mod rng;
pub mod schedule;
pub mod suites;

pub use harness::{Difference, Progress, Report, Subject, aws_oracle, check, karpenter_module, oracle};
pub use rng::Rng;
