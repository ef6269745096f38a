//! Spare nodes of Overprovisioners: how many, of which shape, in which state, and which pods get them.
//!
//! [`promote`] gives spares to pods that have no place; [`keep`] keeps the number of spares as wanted, stops and starts
//! them, renews the old ones and writes statuses. Both are pure: a snapshot in, actions out.
//!
//! Invariants: a used spare never becomes a spare again; a node with pods is never removed for being too many; an
//! object that cannot be understood changes nothing; the spares of one Overprovisioner are never counted for another,
//! though a running tier may take over a stopped spare of the same pool, which the colder tier then replaces.

pub mod beside;
pub mod fits;
pub mod frontier;
pub mod keep;
pub mod needs;
pub mod promote;
mod reading;
pub mod room;
pub mod schedule;
pub mod shape;
pub mod sizing;
pub mod spares;
pub mod status;

pub use beside::Beside;
pub use keep::{Mode, keep};
pub use needs::{Memory, Needs, Source};
pub use promote::Promotion;
pub use spares::{Spare, Spares, Stage};
