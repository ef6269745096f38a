//! When a node counts as quiet: no pod has come or gone for a while.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::node_claim::CONDITION_INITIALIZED;
use veneer_api::{NodeClaim, NodePool};

use super::View;
use super::claim::pool_of;
use crate::plan::{Conditions, Lifetime, Plan, Snapshot, condition_true, is_deleting, is_spare};

/// A newer pod event is not written down before this much time has passed: nodes fill up pod by pod.
const DEDUPLICATION: SignedDuration = SignedDuration::from_secs(10);

/// The time of the last pod event to write down, and whether the node has been quiet for long enough.
pub(super) fn quiet(
    claim: &NodeClaim,
    conditions: &Conditions,
    view: &View<'_>,
    plan: &mut Plan,
) -> (Option<Time>, bool) {
    let status = claim.status.as_ref();
    let written = status.and_then(|status| status.last_pod_event_time.clone());
    let node = status.and_then(|status| status.node_name.as_deref());
    let seen = node.and_then(|node| view.snapshot.pod_events.get(node)).copied();
    let known = written.as_ref().map(|time| time.0);
    let last = known.max(seen);
    let write = match (known, seen) {
        (None, Some(seen)) => Some(seen),
        (Some(known), Some(seen)) if seen.duration_since(known) >= DEDUPLICATION => Some(seen),
        _ => None,
    };
    let whole = |at: Timestamp| Time(Timestamp::from_second(at.as_second()).unwrap_or(at));
    let written = write.map(whole).or(written);
    let may_go = conditions.is_true(CONDITION_INITIALIZED) && !is_spare(&claim.metadata);
    let Some(pool) = pool_of(claim, view).filter(|_| may_go) else {
        return (written, false);
    };
    match due(conditions, last, pool, view.now) {
        Some(due) if due > view.now => {
            plan.look_again(due);
            (written, false)
        }
        due => (written, due.is_some()),
    }
}

/// When a node has been without pods coming or going for as long as its pool demands.
fn due(
    conditions: &Conditions,
    last: Option<Timestamp>,
    pool: &NodePool,
    now: Timestamp,
) -> Option<Timestamp> {
    let Lifetime::After(after) = Lifetime::read(&pool.spec.disruption.consolidate_after) else {
        return None;
    };
    let initialised = conditions.get(CONDITION_INITIALIZED);
    let initialised = initialised.map_or(now, |one| one.last_transition_time.0);
    let since = last.unwrap_or(initialised);
    Some(since.checked_add(after).unwrap_or(Timestamp::MAX))
}

/// Until when a node takes no pods that consolidation would move; none if it may take them now. Pods that wait for a
/// place may go there all the same. As in Karpenter, a pool that launches nothing for pods is not asked.
pub(crate) fn closed_to_moves_until(
    claim: &NodeClaim,
    pool: &NodePool,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_asked = pool.spec.replicas.is_none() && !is_deleting(&pool.metadata);
    if !is_asked || !condition_true(claim, CONDITION_INITIALIZED) {
        return None;
    }
    quiet_at(claim, pool, snapshot, now).filter(|until| *until > now)
}

/// The same for whoever explains it; none if the pool never consolidates.
pub(crate) fn quiet_at(
    claim: &NodeClaim,
    pool: &NodePool,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Option<Timestamp> {
    let status = claim.status.as_ref()?;
    let conditions = Conditions::new(&status.conditions, None, now);
    let written = status.last_pod_event_time.as_ref().map(|time| time.0);
    let node = status.node_name.as_deref();
    let seen = node.and_then(|node| snapshot.pod_events.get(node)).copied();
    due(&conditions, written.max(seen), pool, now)
}
