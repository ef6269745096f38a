//! Why: which constraint removed which instance types, at which stage a choice was lost, and what would bring it back.
//!
//! Everything is computed: sizes come from the catalogue, places from the same run of the solver that decides, requests
//! from [`crate::launch`]. Nothing is guessed afterwards.

pub mod gaps;
pub mod nodeclaim;
pub mod nodepool;
pub mod recorded;

mod apply;
mod funnel;
mod plan;
mod pod;
mod pool_types;
mod remedies;
mod smallest_change;
mod starvation;
mod vocabulary;
mod waterfall;

pub use crate::packing::probe::{Constraint, Edit, Measure, Rule, Stage};
pub use apply::apply;
pub use funnel::{FunnelStage, Removal};
pub use plan::{Fallback, LargestNode, Outcome, Planner};
pub use pod::{Placement, PodExplanation, placement_of, pod};
pub use remedies::Remedy;
pub use smallest_change::{Change, schedules};
pub use starvation::{Seen, Starving, starving};
pub use waterfall::{Counts, Step, Waterfall};
