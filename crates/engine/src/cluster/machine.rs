//! A machine: a claim with its nodes, instance and pool, or a node that no claim stands behind.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use veneer_api::node_claim::{CONDITION_INITIALIZED, CONDITION_INSTANCE_TERMINATING, CONDITION_REGISTERED};
use veneer_api::{Condition, ConditionStatus, NodeClaim, NodePool, ResourceList, find_condition};

use super::purchase;
use crate::lifecycle::{STOPPED, is_ready};
use crate::plan::{
    Instance, Power, condition_true, is_deleting, is_spare, is_spare_taint, is_to_be_stopped, name,
    node_pool_of, provider_id,
};
use crate::taints::is_of_start;

/// Whether a claim is on its way out: somebody has deleted it, or its instance is ending.
#[must_use]
pub fn is_leaving(claim: &NodeClaim) -> bool {
    leaves(&claim.metadata, conditions_of(claim))
}

fn conditions_of(claim: &NodeClaim) -> &[Condition] {
    claim.status.as_ref().map_or(&[][..], |status| &status.conditions)
}

fn leaves(metadata: &ObjectMeta, conditions: &[Condition]) -> bool {
    is_deleting(metadata)
        || find_condition(conditions, CONDITION_INSTANCE_TERMINATING)
            .is_some_and(|one| one.status == ConditionStatus::True)
}

fn waits_stopped(metadata: &ObjectMeta, conditions: &[Condition]) -> bool {
    Power::of_metadata(metadata) != Power::Run
        && find_condition(conditions, CONDITION_REGISTERED)
            .is_some_and(|one| one.status == ConditionStatus::False && one.reason == STOPPED)
}

/// Whether nothing runs for a claim with this metadata and these conditions, or what runs is on its way out.
#[must_use]
pub fn is_off(metadata: &ObjectMeta, conditions: &[Condition]) -> bool {
    leaves(metadata, conditions) || waits_stopped(metadata, conditions)
}

/// Whether a claim waits with a stopped instance: it says so, its node has left, and nobody has asked it to start.
#[must_use]
pub fn is_stopped(claim: &NodeClaim) -> bool {
    waits_stopped(&claim.metadata, conditions_of(claim))
}

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// A claim without an instance.
    Claimed,
    /// It has an instance that has not joined the cluster.
    Launched,
    /// Its node has joined.
    Registered,
    /// Its node has everything that it was launched for.
    Initialized,
    /// Its instance is on its way to being stopped.
    Stopping,
    /// Its instance is stopped.
    Stopped,
    /// It is on its way out.
    Leaving,
}

/// What a machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity<'a> {
    /// As its node or its instance says.
    Known(&'a ResourceList),
    /// Nobody knows before it is launched.
    Projected,
}

/// A claim with its nodes, or a node without a claim.
#[derive(Clone, Debug, Default)]
pub struct Machine<'a> {
    pub(super) claim: Option<&'a Arc<NodeClaim>>,
    /// In the order of their names, the claim's own first.
    pub(super) nodes: Vec<&'a Arc<Node>>,
    pub(super) instance: Option<&'a Instance>,
    pub(super) pool: Option<&'a Arc<NodePool>>,
}

impl<'a> Machine<'a> {
    /// The claim; none of a node that somebody else looks after.
    #[must_use]
    pub fn claim(&self) -> Option<&'a Arc<NodeClaim>> {
        self.claim
    }

    /// Its node: of several, the one that the claim names, else the last that stays.
    #[must_use]
    pub fn node(&self) -> Option<&'a Arc<Node>> {
        self.nodes.first().copied()
    }

    /// All nodes that say that they are this machine; more than one is a fault.
    #[must_use]
    pub fn nodes(&self) -> &[&'a Arc<Node>] {
        &self.nodes
    }

    /// The instance, as its provider lists it.
    #[must_use]
    pub fn instance(&self) -> Option<&'a Instance> {
        self.instance
    }

    /// The NodePool that it belongs to, if that exists.
    #[must_use]
    pub fn pool(&self) -> Option<&'a Arc<NodePool>> {
        self.pool
    }

    fn metadata(&self) -> Option<&'a ObjectMeta> {
        let of_claim = self.claim.map(|claim| &claim.metadata);
        of_claim.or_else(|| self.node().map(|node| &node.metadata))
    }

    /// The name of its claim, or of the node if it has none.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.metadata().map_or("", name)
    }

    /// The name of the pool that it says it belongs to.
    #[must_use]
    pub fn pool_name(&self) -> &'a str {
        self.metadata().map_or("", node_pool_of)
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let Some(claim) = self.claim else {
            let leaves = self.node().is_none_or(|node| is_deleting(&node.metadata));
            return if leaves {
                Phase::Leaving
            } else {
                Phase::Initialized
            };
        };
        if is_leaving(claim) {
            Phase::Leaving
        } else if is_stopped(claim) {
            Phase::Stopped
        } else if provider_id(claim).is_none() {
            Phase::Claimed
        } else if is_to_be_stopped(claim) {
            Phase::Stopping
        } else if condition_true(claim, CONDITION_INITIALIZED) {
            Phase::Initialized
        } else if condition_true(claim, CONDITION_REGISTERED) {
            Phase::Registered
        } else {
            Phase::Launched
        }
    }

    /// Whether it is a spare that nobody uses.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        self.claim.is_some_and(|claim| is_spare(&claim.metadata))
            || self.node().is_some_and(|node| is_spare(&node.metadata))
    }

    /// How it was bought, as far as that is known.
    #[must_use]
    pub fn purchase_option(&self) -> Option<&'a str> {
        self.metadata().and_then(purchase::purchase_option_of)
    }

    /// What it has.
    #[must_use]
    pub fn capacity(&self) -> Capacity<'a> {
        let node = self
            .node()
            .and_then(|node| node.status.as_ref()?.capacity.as_ref());
        let claim = self.claim.filter(|claim| provider_id(claim).is_some());
        let claim = claim.and_then(|claim| Some(&claim.status.as_ref()?.capacity));
        node.filter(|_| self.phase() == Phase::Initialized)
            .or(claim)
            .or(node)
            .map_or(Capacity::Projected, Capacity::Known)
    }

    /// Whether a node of it takes pods now.
    #[must_use]
    pub fn accepts_pods(&self) -> bool {
        self.nodes.iter().any(|node| self.node_accepts_pods(node))
    }

    /// Whether one of its nodes takes pods now: it is ready, stays, and nothing of its start or of a spare keeps them away.
    #[must_use]
    pub fn node_accepts_pods(&self, node: &Node) -> bool {
        let startup = self.claim.map_or(&[][..], |claim| &claim.spec.startup_taints);
        let keeps_pods_away = |taint: &Taint| {
            let is_startup = |known: &Taint| known.key == taint.key && known.effect == taint.effect;
            is_spare_taint(taint) || is_of_start(taint) || startup.iter().any(is_startup)
        };
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        !is_deleting(&node.metadata) && is_ready(node) && !taints.any(keeps_pods_away)
    }
}
