//! Static pools: a fixed number of nodes, whatever the pods need.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use veneer_api::{CONDITION_READY, NodeClaim};

use super::claims;
use super::market::Market;
use super::pools::readiness;
use crate::cluster::limits;
use crate::plan::{
    Action, Plan, Snapshot, Target, is_daemon_pod, is_deleting, is_spare, is_terminal, name, node_pool_of,
    provider_id,
};

/// Launches what is missing and removes what is too much.
#[must_use]
pub fn decide(snapshot: &Snapshot, market: &Market, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pool in &snapshot.node_pools {
        let Some(replicas) = pool.spec.replicas else {
            continue;
        };
        if is_deleting(&pool.metadata) {
            continue;
        }
        let pool_name = name(&pool.metadata);
        let of_pool = |claim: &&Arc<NodeClaim>| node_pool_of(&claim.metadata) == pool_name;
        let mut running: Vec<&Arc<NodeClaim>> = snapshot
            .node_claims
            .iter()
            .filter(of_pool)
            .filter(|claim| !is_spare(&claim.metadata) && !is_deleting(&claim.metadata))
            .collect();
        let wanted = usize::try_from(replicas).unwrap_or_default();
        if running.len() > wanted {
            running.sort_by_cached_key(|claim| {
                (removal_order(claim, snapshot), name(&claim.metadata).to_owned())
            });
            for claim in running.iter().take(running.len() - wanted) {
                plan.push(Action::DeleteClaim {
                    target: Target::from(&claim.metadata),
                    reason: "overprovisioned",
                });
            }
            continue;
        }
        if !readiness(pool, snapshot, &market.catalogue().rules, now).is_true(CONDITION_READY) {
            continue;
        }
        let room = limits::nodes_left(pool, snapshot);
        for number in 0..(wanted - running.len()).min(room) {
            plan.push(Action::CreateClaim(Box::new(claims::replica(pool, now, number))));
        }
    }
    plan
}

/// Which claims go first: those without an instance, those without a node, then those with the fewest pods.
fn removal_order(claim: &NodeClaim, snapshot: &Snapshot) -> (bool, bool, usize) {
    let node = claim
        .status
        .as_ref()
        .and_then(|status| status.node_name.as_deref())
        .unwrap_or_default();
    let pods = snapshot.pods.iter().filter(|pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        !node.is_empty() && on == Some(node) && !is_terminal(pod) && !is_daemon_pod(pod)
    });
    (provider_id(claim).is_some(), !node.is_empty(), pods.count())
}
