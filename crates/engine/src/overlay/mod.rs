//! NodeOverlay: adjusted prices and capacity per NodePool, with who won, who lost and why.
//!
//! Overlays × pools × instance types × offerings → an [`Evaluation`]. The rules, in short (the guide's page on
//! overlays has them in full):
//!
//! - An overlay matches an offering when the type's labels, narrowed by the pool's name and template labels, and
//!   the offering's labels are compatible with its requirements. Capacity is per type: one matching offering is
//!   enough.
//! - Overlays are taken by weight, heaviest first, and among equals by name ([`TieBreak`]). Per offering the first
//!   one that sets a price wins; per type and resource the first one that sets it wins.
//! - An overlay that meets another of the same weight that sets the same field of the same offering is left out as
//!   a whole, in every pool. Everything else goes on working.
//!
//! Karpenter's own quirks are kept, because both must agree in one cluster: what overlays do is stored by type
//! *name*, and capacity is only compared with the last overlay of the same weight.

pub mod advice;
mod conflict;
pub mod draft;
mod evaluate;
mod evaluation;
mod index;
mod launchable;
mod manifest;
mod merge;
mod nearest;
mod prepared;
mod price;
pub mod status;
mod validate;

pub use conflict::{Conflict, ConflictField};
pub use evaluate::{Evaluator, Pool};
pub use evaluation::{Evaluation, Fate, Standing, Verdict};
pub use launchable::launchable;
pub use manifest::{OverheadAmount, Overlay, Selector};
pub use nearest::nearest;
pub use price::{PriceChange, PriceError};
pub use validate::Problem;

use std::cmp::Ordering;

/// Which of two overlays of the same weight comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The name that is later in the alphabet, as Karpenter does it.
    #[default]
    ReverseAlphabetical,
    /// The name that is earlier in the alphabet, as the NodeOverlay proposal describes it.
    Alphabetical,
}

impl TieBreak {
    /// The order in which overlays are taken.
    fn compare(self, a: &Overlay, b: &Overlay) -> Ordering {
        let names = match self {
            Self::ReverseAlphabetical => b.name.cmp(&a.name),
            Self::Alphabetical => a.name.cmp(&b.name),
        };
        b.weight.cmp(&a.weight).then(names)
    }
}
