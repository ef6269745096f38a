//! The life of a NodeClaim: launched, registered, initialised, ready; and its end.
//!
//! [`decide`] looks at every claim and every node and says what is missing right now. A step is taken when the one
//! before it can be seen in the snapshot, never because it was ordered: whoever carries out the actions may be killed
//! between any two of them.
//!
//! - **Launch**: a claim without the condition `Launched` is launched; the provider gives the same instance when asked
//!   twice for one claim.
//! - **Registration**: the node gets the claim's labels, annotations, taints, finalizer and owner, and loses the taint
//!   `karpenter.sh/unregistered`; then the claim is `Registered`.
//! - **Initialisation**: the node is ready, startup taints are gone, everything asked for is there.
//! - **Limits**: a launch falls back to nothing larger than what the limits of its pool were found to allow.
//! - **Liveness**: a claim that is not launched within five minutes, or not registered within fifteen, is deleted.
//! - **Stopping**: the instance of a claim that says so is stopped, its node leaves the cluster, and the claim waits;
//!   when it says that the instance shall run again, it is started and registers as at first.
//! - **End**: the node is tainted and drained, its volumes are detached, the instance ends, then the node's and the
//!   claim's finalizers go.

mod claim;
mod collect;
pub(crate) mod drain;
mod node;
mod power;
mod quiet;
mod settled;
mod termination;

pub(crate) use quiet::{closed_to_moves_until, quiet_at};

pub use claim::{Launched, after_launch, launch_failed};
pub use power::{STOPPED, after_change_type};
pub use settled::Memory;

use std::cell::OnceCell;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeClaim;
use veneer_api::Pod;

use crate::cluster::limits::share;
use crate::cluster::{Index, LimitHeadroom, Machine};
use crate::packing::hash::FastMap;
use crate::plan::{InstanceState, Plan, Snapshot, is_deleting, name, node_pool_of, provider_id};
use crate::provision::{Market, pool_hash};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Until a claim must have an instance.
    pub launch_timeout: SignedDuration,
    /// Until an instance must have joined the cluster.
    pub registration_timeout: SignedDuration,
    /// How long a tainted node is watched for pods that the scheduler still sends there.
    pub min_drain: SignedDuration,
    /// How old an instance without a claim must be before it is ended.
    pub orphan_age: SignedDuration,
    /// How many ways to launch a claim the provider is given.
    pub launch_options: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            launch_timeout: SignedDuration::from_mins(5),
            registration_timeout: SignedDuration::from_mins(15),
            min_drain: SignedDuration::from_secs(5),
            orphan_age: SignedDuration::from_secs(30),
            launch_options: 60,
        }
    }
}

/// A snapshot, indexed.
struct View<'a> {
    snapshot: &'a Snapshot,
    index: &'a Index<'a>,
    /// Only what ends asks for them.
    pods_by_node: OnceCell<FastMap<&'a str, Vec<&'a Arc<Pod>>>>,
    /// The fingerprint of every pool, which all of its claims are compared with.
    pool_hashes: FastMap<&'a str, String>,
    now: Timestamp,
}

impl<'a> View<'a> {
    fn new(snapshot: &'a Snapshot, index: &'a Index<'a>, now: Timestamp) -> Self {
        Self {
            snapshot,
            index,
            pods_by_node: OnceCell::new(),
            pool_hashes: snapshot
                .node_pools
                .iter()
                .map(|pool| (name(&pool.metadata), pool_hash(pool)))
                .collect(),
            now,
        }
    }

    fn nodes_of(&self, claim: &NodeClaim) -> &[&'a Arc<Node>] {
        let machine = self.index.of_claim(name(&claim.metadata));
        machine.map_or(&[], Machine::nodes)
    }

    fn instance_state(&self, claim: &NodeClaim) -> Option<InstanceState> {
        let machine = self.index.of_claim(name(&claim.metadata))?;
        machine.instance().map(|instance| instance.state)
    }

    fn pods_on(&self, node: &Node) -> &[&'a Arc<Pod>] {
        self.pods_by_node
            .get_or_init(|| pods_by_node(self.snapshot))
            .get(name(&node.metadata))
            .map_or(&[], Vec::as_slice)
    }

    fn since(&self, then: Timestamp) -> SignedDuration {
        self.now.duration_since(then)
    }
}

fn pods_by_node(snapshot: &Snapshot) -> FastMap<&str, Vec<&Arc<Pod>>> {
    let mut pods_by_node: FastMap<&str, Vec<&Arc<Pod>>> = FastMap::default();
    for pod in &snapshot.pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            pods_by_node.entry(node).or_default().push(pod);
        }
    }
    pods_by_node
}

/// Whether a node says that it is ready.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Launches that are under way have their room, before any claim that waits for one: they are not taken back, whichever is older.
fn take_under_way(snapshot: &Snapshot, market: &mut Market, limits: &mut LimitHeadroom<'_>) {
    let claims = snapshot.node_claims.iter().filter(|claim| {
        snapshot.launching.contains(name(&claim.metadata))
            && !is_deleting(&claim.metadata)
            && provider_id(claim).is_none()
            && limits.is_limited(node_pool_of(&claim.metadata))
            && share(claim).is_none()
    });
    let claims: Vec<&Arc<NodeClaim>> = claims.collect();
    for claim in claims {
        let options = market.options(claim, 1);
        limits.take_under_way(claim, options.first());
    }
}

/// Everything that claims and nodes need right now.
#[must_use]
pub fn decide(
    snapshot: &Snapshot,
    index: &Index<'_>,
    market: &mut Market,
    policy: &Policy,
    memory: &mut Memory,
    now: Timestamp,
) -> Plan {
    let view = View::new(snapshot, index, now);
    memory.begin(&view);
    let mut plan = Plan::default();
    let mut limits = LimitHeadroom::new(snapshot);
    take_under_way(snapshot, market, &mut limits);
    // The oldest first: what was promised to a claim is not taken away by one that came later.
    let mut claims: Vec<&Arc<NodeClaim>> = snapshot.node_claims.iter().collect();
    claims.sort_by_key(|claim| claim.metadata.creation_timestamp.as_ref());
    for claim in claims {
        if is_deleting(&claim.metadata) {
            termination::claim(claim, &view, &mut plan);
        } else if !memory.is_settled(claim, &view, &mut plan) {
            let mut step = Plan::default();
            claim::advance(claim, &view, market, policy, &mut limits, &mut step);
            if step.actions.is_empty() {
                memory.settle(claim, &view, step.look_again);
            }
            plan.extend(step);
        }
    }
    for node in snapshot.nodes.iter().filter(|node| is_deleting(&node.metadata)) {
        termination::node(node, &view, policy, &mut plan);
    }
    collect::decide(&view, policy, &mut plan);
    plan
}

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;
