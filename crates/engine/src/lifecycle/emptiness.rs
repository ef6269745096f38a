//! Nodes without pods: when they count as quiet, and which of them go.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::karpenter;
use veneer_api::node_claim::{
    CONDITION_CONSOLIDATABLE, CONDITION_INITIALIZED, CONDITION_INSTANCE_TERMINATING,
};
use veneer_api::node_pool::{Budget, DisruptionReason};
use veneer_api::{NodeClaim, NodePool};

use super::claim::pool_of;
use super::{View, is_ready};
use crate::plan::{
    Action, Conditions, Lifetime, Plan, Target, condition_true, is_daemon_pod, is_deleting, is_spare,
    is_terminal, name, node_pool_of,
};

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
    if is_spare(&claim.metadata) {
        return (written, false);
    }
    let after = pool_of(claim, view).map(|pool| Lifetime::read(&pool.spec.disruption.consolidate_after));
    let (Some(Lifetime::After(after)), true) = (after, conditions.is_true(CONDITION_INITIALIZED)) else {
        return (written, false);
    };
    let initialised = conditions.get(CONDITION_INITIALIZED);
    let initialised = initialised.map_or(view.now, |one| one.last_transition_time.0);
    let since = last.map_or(initialised, |last| last.max(initialised));
    let due = since.checked_add(after).unwrap_or(Timestamp::MAX);
    if due > view.now {
        plan.look_again(due);
        return (written, false);
    }
    (written, true)
}

/// Deletes empty, quiet nodes as far as the budgets of their pools allow.
pub(super) fn decide(view: &View<'_>, plan: &mut Plan) {
    let mut allowed: HashMap<&str, usize> = HashMap::new();
    for claim in &view.snapshot.node_claims {
        if is_deleting(&claim.metadata)
            || is_spare(&claim.metadata)
            || !condition_true(claim, CONDITION_CONSOLIDATABLE)
        {
            continue;
        }
        let Some(pool) = pool_of(claim, view) else {
            continue;
        };
        if pool.spec.replicas.is_some() {
            continue;
        }
        let consolidates = matches!(
            Lifetime::read(&pool.spec.disruption.consolidate_after),
            Lifetime::After(_)
        );
        if !consolidates || !is_empty(claim, view, plan) {
            continue;
        }
        let left = allowed
            .entry(name(&pool.metadata))
            .or_insert_with(|| budget(pool, view));
        if *left == 0 {
            continue;
        }
        *left -= 1;
        plan.push(Action::DeleteClaim {
            target: Target::from(&claim.metadata),
            reason: "empty",
        });
    }
}

/// Whether no pod is on the claim's node that would need another place, and none is expected there.
fn is_empty(claim: &NodeClaim, view: &View<'_>, plan: &mut Plan) -> bool {
    let [node] = view.nodes_of(claim) else {
        return false;
    };
    let protected = |annotations: Option<&std::collections::BTreeMap<String, String>>| {
        let value = annotations.and_then(|list| list.get(karpenter::DO_NOT_DISRUPT));
        value.is_some_and(|value| value == "true")
    };
    if protected(node.metadata.annotations.as_ref()) || protected(claim.metadata.annotations.as_ref()) {
        return false;
    }
    let names = [name(&node.metadata), name(&claim.metadata)];
    let expected = names
        .iter()
        .filter_map(|name| view.snapshot.nominations.get(*name));
    if let Some(until) = expected.max().filter(|until| **until > view.now) {
        plan.look_again(*until);
        return false;
    }
    let stays =
        |pod: &&&std::sync::Arc<k8s_openapi::api::core::v1::Pod>| !is_terminal(pod) && !is_daemon_pod(pod);
    is_ready(node) && view.pods_on(node).iter().filter(stays).count() == 0
}

/// How many nodes of a pool may still go for being empty.
fn budget(pool: &NodePool, view: &View<'_>) -> usize {
    let mut nodes = 0_usize;
    let mut disrupted = 0_usize;
    for claim in &view.snapshot.node_claims {
        if node_pool_of(&claim.metadata) != name(&pool.metadata)
            || !condition_true(claim, CONDITION_INITIALIZED)
            || condition_true(claim, CONDITION_INSTANCE_TERMINATING)
        {
            continue;
        }
        nodes += 1;
        let ready = view.nodes_of(claim).iter().any(|node| is_ready(node));
        if is_deleting(&claim.metadata) || !ready {
            disrupted += 1;
        }
    }
    let budgets = pool.spec.disruption.budgets.iter();
    let applies = |budget: &&Budget| {
        let reasons = budget.reasons.as_ref();
        reasons.is_none_or(|reasons| reasons.contains(&DisruptionReason::Empty))
    };
    let least = budgets
        .filter(applies)
        .map(|budget| share(&budget.nodes, nodes))
        .min();
    least.unwrap_or(usize::MAX).saturating_sub(disrupted)
}

/// A number, or a percentage of `nodes` rounded up. One that cannot be read allows nothing.
fn share(text: &str, nodes: usize) -> usize {
    match text.strip_suffix('%') {
        Some(percent) => percent
            .parse::<usize>()
            .map_or(0, |percent| (percent.saturating_mul(nodes)).div_ceil(100)),
        None => text.parse().unwrap_or(0),
    }
}
