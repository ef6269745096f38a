//! The model between Kubernetes objects and decisions: what a cluster has, and what is left of what bounds it.
//!
//! An [`Index`] joins the objects of one snapshot once ([`Machine`]: claim, nodes, instance, pool), so that every decision means the
//! same by "the node of a claim". [`limits`] says what counts against the limits of a NodePool, [`purchase`] how a machine is
//! bought and whether commitments pay for it, and [`commitments`] what is left of them while a decision is looked for.
//!
//! Invariants: nothing here decides anything; what is drawn from headroom is given back when what it was drawn for does not happen.

pub mod commitments;
pub mod index;
pub mod limits;
pub mod machine;
pub mod purchase;

pub use commitments::{CommitmentHeadroom, Commitments, Need};
pub use index::Index;
pub use limits::LimitHeadroom;
pub use machine::{Capacity, Machine, Phase, is_leaving, is_off, is_stopped};
pub use purchase::{purchase_option, uses_commitments};
