//! Where instances come from.

pub mod ec2;
pub mod kwok;

use std::collections::BTreeMap;
use std::sync::Arc;

use veneer_api::NodeClaim;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::{Instance, NodeClassHash, Shortage};
use veneer_engine::provision::LaunchOption;

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Nothing of what would do is available; another claim may be luckier.
    #[error("insufficient capacity: {}", listed(.0))]
    InsufficientCapacity(Vec<Shortage>),
    /// The claim's node class cannot be used; the claim is of no use as it is.
    #[error("{0}")]
    NodeClassNotReady(String),
    /// Something that may pass.
    #[error("{0}")]
    Other(String),
}

/// Why an instance has not ended.
#[derive(Debug, thiserror::Error)]
pub enum TerminateError {
    /// A person has to do something first, so asking often is of no use.
    #[error("{0}")]
    NeedsAction(String),
    /// Something that may pass.
    #[error("{0}")]
    Other(String),
}

fn listed(shortages: &[Shortage]) -> String {
    let first = shortages.iter().take(5);
    let first: Vec<String> = first
        .map(|one| format!("{} {} {}", one.instance_type, one.capacity_type, one.zone))
        .collect();
    match shortages.len() {
        0..=5 => first.join(", "),
        more => format!("{} and {} more", first.join(", "), more - 5),
    }
}

/// A source of instances. Every call may be repeated: for one claim there is one instance.
pub trait Provider: Send + Sync + 'static {
    /// Launches the first option that can be had.
    fn launch(
        &self,
        claim: &NodeClaim,
        options: &[LaunchOption],
    ) -> impl Future<Output = Result<Launched, LaunchError>> + Send;

    /// Ends an instance; one that is gone already is fine.
    fn terminate(&self, provider_id: &str) -> impl Future<Output = Result<(), TerminateError>> + Send;

    /// Stops an instance, with its memory kept on disk if `hibernate`; one that is stopped already is fine.
    fn stop(&self, provider_id: &str, hibernate: bool) -> impl Future<Output = Result<(), String>> + Send;

    /// Starts a stopped instance; one that runs already is fine.
    fn start(&self, provider_id: &str) -> impl Future<Output = Result<(), LaunchError>> + Send;

    /// Makes a stopped instance one of another type; one that is of that type already is fine.
    fn change_type(
        &self,
        provider_id: &str,
        instance_type: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// What runs or is stopped, as far as it is known now.
    fn instances(&self) -> Vec<Instance>;

    /// What could not be had beside what launches failed for, since the last time this was asked.
    fn take_shortages(&self) -> Vec<Shortage> {
        Vec::new()
    }

    /// A newer catalogue than before, if there is one since the last time this was asked.
    fn take_catalogue(&self) -> Option<Arc<Catalogue>> {
        None
    }

    /// The fingerprints of node classes, where there are any.
    fn node_class_hashes(&self) -> Vec<NodeClassHash> {
        Vec::new()
    }

    /// Claims whose instance is not what would be launched for them now, by name, and why.
    fn drifted(&self) -> BTreeMap<String, &'static str> {
        BTreeMap::new()
    }

    /// Called once after a start with the claims that have an instance but no node.
    fn resume(&self, claims: &[Arc<NodeClaim>]);
}
