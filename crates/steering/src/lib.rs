//! Which overlays should exist.
//!
//! Two sources: the `veneer.io/preference.N` annotations of NodePools ([`preferences`]), and what is left of
//! Reserved Instances and Savings Plans ([`commitments`], [`decisions`]). Both end as NodeOverlays that
//! [`overlays`] compares with those that exist.
//!
//! [`warm`] keeps the spare nodes of Overprovisioners and gives them to pods.
//!
//! [`steer`] makes one look of all that; [`cap`] prices the launches of a run beyond what is paid for, and [`cycle`] puts
//! all decisions of standalone mode together, one pass at a time.
//!
//! This room is pure, like the engine: no clock, file, environment variable or network, `now` is a parameter, and
//! the same input gives the same output to the byte. Missing or doubtful data never removes an overlay.

pub mod cap;
pub mod commitments;
pub mod cycle;
pub mod decisions;
pub mod machines;
pub mod nominate;
pub mod overlays;
pub mod preferences;
pub mod refusals;
pub mod regret;
pub mod steer;
pub mod warm;
