//! An overlay as the evaluation needs it, read from a manifest.

use std::collections::BTreeMap;

use super::price::PriceChange;
use crate::quantity::Quantity;
use crate::requirements::Operator;
use crate::resources::ResourceList;

/// One requirement, as a manifest states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The label.
    pub key: String,
    /// What is demanded of it.
    pub operator: Operator,
    /// The values that the operator takes.
    pub values: Vec<String>,
}

/// How much of a resource the system keeps, in addition to what the type states by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum OverheadAmount {
    /// A fixed amount.
    Fixed(Quantity),
    /// A share of the capacity, in thousandths of a percent.
    MilliPercent(u32),
}

impl OverheadAmount {
    /// The amount that is kept of `capacity`; a share is rounded up to a whole unit, as the kubelet would rather
    /// keep too much than too little.
    #[must_use]
    pub fn of(&self, capacity: &Quantity) -> Quantity {
        match self {
            Self::Fixed(quantity) => quantity.clone(),
            Self::MilliPercent(share) => {
                let milli = i128::from(capacity.milli_value()) * i128::from(*share);
                Quantity::from_milli(i64::try_from((milli + 99_999) / 100_000).unwrap_or(i64::MAX))
            }
        }
    }
}

/// A valid overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The object's name.
    pub name: String,
    /// Heavier wins; 0 when the manifest has none.
    pub weight: i32,
    /// When it applies.
    pub requirements: Vec<Selector>,
    /// What it does to prices.
    pub price: Option<PriceChange>,
    /// Which resources it adds or replaces. An empty list is not the same as none: it still takes part in
    /// Karpenter's comparison with the last overlay of the same weight.
    pub capacity: Option<ResourceList>,
    /// What the system keeps (the earlier draft's `overhead` and `overheadPercent`).
    pub overhead: BTreeMap<String, OverheadAmount>,
}
