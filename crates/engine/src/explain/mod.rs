//! Why: which constraint removed which instance types, and what would have to change.
//!
//! Everything here is computed from the same run of the solver that decides; nothing is guessed afterwards.

mod apply;
mod pod;
mod smallest_change;
mod starvation;
mod vocabulary;
mod waterfall;

pub use crate::packing::probe::{Constraint, Edit, Measure, Rule, Stage};
pub use apply::apply;
pub use pod::{Placement, PodExplanation, placement_of, pod};
pub use smallest_change::{Change, schedules};
pub use starvation::{Seen, Starving, starving};
pub use waterfall::{Counts, Step, Waterfall};
