//! Claims that needed nothing when they were last looked at, and still need nothing.
//!
//! Most claims of a cluster have a ready node and stay as they are for hours. One of them is passed over as long as
//! everything that its next step could follow from is the same object as before, and its next deadline has not come.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::veneer;
use veneer_api::node_claim::CONDITION_INITIALIZED;
use veneer_api::{NodeClaim, NodePool};

use super::View;
use super::claim::pool_of;
use crate::packing::hash::FastMap;
use crate::plan::{InstanceState, NodeClassHash, Plan, condition_true, name};

/// Everything that a claim with a ready node depends on beside the time and what all claims depend on. Kept alive, so
/// that the same address is the same object.
#[derive(Debug)]
struct Settled {
    claim: Arc<NodeClaim>,
    node: Arc<Node>,
    pool: Option<Arc<NodePool>>,
    pod_event: Option<Timestamp>,
    instance: Option<InstanceState>,
    drifted: Option<&'static str>,
    /// When it was looked at; clocks may go back.
    since: Timestamp,
    /// When time alone changes something.
    until: Option<Timestamp>,
}

/// What is remembered from pass to pass. All of it may be forgotten.
#[derive(Debug, Default)]
pub struct Memory {
    settled: FastMap<String, Settled>,
    class_hashes: Vec<NodeClassHash>,
}

impl Memory {
    /// Forgets claims that are gone, and everything if what all of them depend on has changed.
    pub(super) fn begin(&mut self, view: &View<'_>) {
        let hashes = &view.snapshot.node_class_hashes;
        if self.class_hashes != *hashes {
            self.settled.clear();
            self.class_hashes.clone_from(hashes);
        }
        if self.settled.len() > view.snapshot.node_claims.len() {
            let claims = view.snapshot.node_claims.iter();
            let names: HashSet<&str> = claims.map(|claim| name(&claim.metadata)).collect();
            self.settled.retain(|claim, _| names.contains(claim.as_str()));
        }
    }

    /// Whether a claim needs nothing now, since nothing about it has changed; then the plan knows when it will.
    pub(super) fn is_settled(&self, claim: &Arc<NodeClaim>, view: &View<'_>, plan: &mut Plan) -> bool {
        let Some(known) = self.settled.get(name(&claim.metadata)) else {
            return false;
        };
        let [node] = view.nodes_of(claim) else {
            return false;
        };
        let pool = match (&known.pool, pool_of(claim, view)) {
            (Some(known), Some(pool)) => Arc::ptr_eq(known, pool),
            (None, None) => true,
            _ => false,
        };
        let is_same = Arc::ptr_eq(&known.claim, claim)
            && Arc::ptr_eq(&known.node, node)
            && pool
            && known.pod_event == pod_event(claim, view)
            && known.instance == instance(claim, view)
            && known.drifted == drifted(claim, view)
            && known.since <= view.now
            && known.until.is_none_or(|until| until > view.now);
        if let Some(until) = known.until.filter(|_| is_same) {
            plan.look_again(until);
        }
        is_same
    }

    /// Remembers a claim that needed nothing, with the time at which it may.
    pub(super) fn settle(&mut self, claim: &Arc<NodeClaim>, view: &View<'_>, until: Option<Timestamp>) {
        let [node] = view.nodes_of(claim) else { return };
        // One that may be stopped and started depends on the market, too.
        let annotations = claim.metadata.annotations.as_ref();
        let has_power = annotations.is_some_and(|list| list.contains_key(veneer::POWER));
        if has_power || !condition_true(claim, CONDITION_INITIALIZED) {
            return;
        }
        let settled = Settled {
            claim: Arc::clone(claim),
            node: Arc::clone(node),
            pool: pool_of(claim, view).map(Arc::clone),
            pod_event: pod_event(claim, view),
            instance: instance(claim, view),
            drifted: drifted(claim, view),
            since: view.now,
            until,
        };
        self.settled.insert(name(&claim.metadata).to_owned(), settled);
    }
}

fn pod_event(claim: &NodeClaim, view: &View<'_>) -> Option<Timestamp> {
    let node = claim.status.as_ref()?.node_name.as_deref()?;
    view.snapshot.pod_events.get(node).copied()
}

fn instance(claim: &NodeClaim, view: &View<'_>) -> Option<InstanceState> {
    view.instance_state(claim)
}

fn drifted(claim: &NodeClaim, view: &View<'_>) -> Option<&'static str> {
    view.snapshot.drifted.get(name(&claim.metadata)).copied()
}
