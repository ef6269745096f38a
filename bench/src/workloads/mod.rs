//! Random clusters and workloads, on Karpenter and on standalone mode: the same seed, two fresh clusters, one after the
//! other. A seed is a list of timed steps (see [`case::Case`]); both sides see the same steps at the same times.
//!
//! What the generator cannot produce, so that nothing here says anything about it:
//! - volumes that are provisioned when their first pod is scheduled: nothing here provisions any, so all volumes are bound
//!   beforehand, to zones; nor limits of how many volumes a node can attach
//! - failing launches and offerings that cannot be had, interruptions, instances that end by themselves: Karpenter's KWOK
//!   provider has none of them. Slow registration it has
//! - drift and expiry: NodePools do not change during a case, and nodes never expire; `minValues`, static NodePools,
//!   capacity reservations, NodeOverlays, startup taints
//! - dynamic resource allocation, extended resources, huge pages, GPUs, windows, Pod Level Resources and resizing in place
//! - pods that start slowly, fail, or need a grace period: kwok runs a bound pod at once and removes a deleted one at once;
//!   nodes that vanish, or that stay not ready until their pods are evicted (five minutes)
//! - affinity across namespaces, scheduling gates, other schedulers and scheduler configurations, several profiles
//! - more than 150 pods, and clusters with nodes that no provisioner made
//! - restarts of the provisioner or of the control plane during a case

pub mod case;
mod drive;
mod feature;
mod generate;
mod pods;
pub mod report;
mod seen;

pub use drive::{Setup, run};
pub use feature::Feature;
pub use generate::generate;
