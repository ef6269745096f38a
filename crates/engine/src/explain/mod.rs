//! Why: what a NodePool and its claims can become, at which stage a choice was lost, and what would bring it back.
//!
//! Everything is computed: sizes come from the catalogue, claims from the solver, requests from [`crate::launch`].

pub mod gaps;
pub mod nodeclaim;
pub mod nodepool;
pub mod recorded;

mod funnel;
mod plan;
mod pool_types;
mod remedies;

pub use funnel::{FunnelStage, Removal};
pub use plan::{Fallback, LargestNode, Outcome, Planner};
pub use remedies::Remedy;
