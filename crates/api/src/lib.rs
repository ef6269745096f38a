//! Kubernetes types that Veneer reads and writes, and their CRDs.
//!
//! The kinds of `karpenter.sh`, `karpenter.k8s.aws` and `karpenter.kwok.sh` accept exactly the objects that
//! Karpenter's own CRDs accept, apart from the deviations listed in `docs/src/crds.md`. Two invariants hold for every
//! type here: a field that this release does not know survives reading and writing, and a missing field reads as the
//! default that the API server would fill in.
//!
//! The schemas are derived from the Rust types; [`crds`] prints them. This crate has no clock, no network and no client.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column is an attribute of its own with the same keys"
)]

pub mod admission;
mod condition;
mod crds;
mod cron;
pub mod ec2_node_class;
mod kwok_node_class;
pub mod labels;
pub mod node_claim;
pub mod node_overlay;
pub mod node_pool;
mod node_shape;
pub mod overprovisioner;
mod pod;
mod provider;
mod requirement;
mod root;
mod schema;
mod taint;
mod text_enum;
pub mod yaml;

use std::collections::BTreeMap;

pub use condition::{Condition, ConditionStatus, find_condition};
pub use crds::{Mode, crds, to_yaml};
pub use ec2_node_class::{EC2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus};
pub use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::api::resource::Quantity};
pub use kwok_node_class::{KWOKNodeClass, KwokNodeClassSpec, KwokNodeClassStatus};
pub use node_claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassReference};
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use node_pool::{NodePool, NodePoolSpec, NodePoolStatus};
pub use node_shape::{NodeShape, PodTemplateReference, ScalableReference};
pub use overprovisioner::{Overprovisioner, OverprovisionerSpec, OverprovisionerStatus};
pub use pod::{Pod, PodSpec, PodStatus};
pub use provider::Provider;
pub use requirement::{NodeSelectorRequirement, NodeSelectorRequirementWithMinValues, Operator};

/// Amounts by resource name, as text.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Fields that this release does not know, kept so that writing an object back loses nothing.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// The condition that sums up the others, on every kind that has conditions.
pub const CONDITION_READY: &str = "Ready";
