//! The end of a node and of its claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::karpenter;
use veneer_api::node_claim::{CONDITION_DRAINED, CONDITION_INSTANCE_TERMINATING, CONDITION_VOLUMES_DETACHED};
use veneer_api::{ConditionStatus, NodeClaim, NodeClaimStatus, Pod};

use super::claim::is_registered;
use super::drain::{self, Drain};
use super::{Policy, View, is_ready};
use crate::plan::{
    Action, Announcement, Conditions, NodeChange, Plan, Subject, Target, is_deleting, is_to_be_stopped, name,
    parse_duration, same_taint,
};
use crate::provision::is_unbound;

/// Keeps load balancers from sending traffic to a node that is being drained.
const EXCLUDE_FROM_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// How long kube-scheduler is given to see a taint.
const TAINT_SEEN: SignedDuration = SignedDuration::from_secs(1);

fn has_finalizer(finalizers: Option<&Vec<String>>) -> bool {
    let mut finalizers = finalizers.into_iter().flatten();
    finalizers.any(|one| one == karpenter::TERMINATION_FINALIZER)
}

fn without_finalizer(finalizers: Option<&Vec<String>>) -> Vec<String> {
    let finalizers = finalizers.into_iter().flatten();
    finalizers
        .filter(|one| *one != karpenter::TERMINATION_FINALIZER)
        .cloned()
        .collect()
}

/// A claim that was deleted: its nodes go first, then its instance, then the claim.
pub(super) fn claim(claim: &Arc<NodeClaim>, view: &View<'_>, plan: &mut Plan) {
    if !has_finalizer(claim.metadata.finalizers.as_ref()) {
        return;
    }
    let target = Target::from(&claim.metadata);
    if let Some(by) = new_termination_time(claim) {
        plan.push(Action::Announce(Announcement {
            subject: super::claim::subject(claim),
            is_warning: true,
            reason: "TerminationGracePeriodExpiring",
            message: format!("All pods will be deleted by {by}"),
        }));
        plan.push(Action::PatchClaim {
            target,
            labels: BTreeMap::new(),
            annotations: [(karpenter::NODECLAIM_TERMINATION_TIMESTAMP.to_owned(), by)].into(),
            finalizers: None,
        });
        return;
    }
    let mut waits = false;
    for node in view.nodes_of(claim) {
        let ours = has_finalizer(node.metadata.finalizers.as_ref());
        if !ours && !is_registered(claim) {
            continue;
        }
        waits |= ours;
        if !is_deleting(&node.metadata) {
            waits = true;
            plan.push(Action::DeleteNode {
                target: Target::from(&node.metadata),
            });
        }
    }
    if waits {
        return;
    }
    // An instance whose launch could not be written down is found by the claim's name.
    if let Some(instance) = view.index.instance_for(claim, &view.snapshot.instances) {
        plan.push(Action::Terminate {
            provider_id: instance.provider_id.clone(),
        });
        return;
    }
    plan.push(Action::PatchClaim {
        target,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalizers: Some(without_finalizer(claim.metadata.finalizers.as_ref())),
    });
}

/// When the pods of a deleted claim must be gone, if that has to be written down.
fn new_termination_time(claim: &NodeClaim) -> Option<String> {
    let key = karpenter::NODECLAIM_TERMINATION_TIMESTAMP;
    let mut annotations = claim.metadata.annotations.iter();
    if annotations.any(|list| list.contains_key(key)) {
        return None;
    }
    let grace = parse_duration(claim.spec.termination_grace_period.as_deref()?)?;
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let by = deleted.checked_add(grace).ok()?;
    Timestamp::from_second(by.as_second())
        .ok()
        .map(|by| by.to_string())
}

fn termination_time(claim: Option<&NodeClaim>) -> Option<Timestamp> {
    let annotations = claim?.metadata.annotations.as_ref()?;
    annotations
        .get(karpenter::NODECLAIM_TERMINATION_TIMESTAMP)?
        .parse()
        .ok()
}

/// A node that was deleted: tainted, drained, freed of volumes, its instance ended; then it may go.
pub(super) fn node(node: &Arc<Node>, view: &View<'_>, policy: &Policy, plan: &mut Plan) {
    if !has_finalizer(node.metadata.finalizers.as_ref()) {
        return;
    }
    let claim = view.index.claim_of(name(&node.metadata));
    if claim.is_some_and(|claim| !is_deleting(&claim.metadata) && is_to_be_stopped(claim)) {
        // The node of a spare that is being stopped leaves alone; the instance stays.
        release(node, plan);
        return;
    }
    if let Some(claim) = claim.filter(|claim| !is_deleting(&claim.metadata)) {
        plan.push(Action::DeleteClaim {
            target: Target::from(&claim.metadata),
            reason: "node_deleted",
        });
    }
    let instance = view.index.instance_of(node);
    if instance.is_none() && !is_ready(node) {
        release(node, plan);
        return;
    }
    if let Some(change) = taint(node) {
        plan.push(Action::PatchNode {
            target: Target::from(&node.metadata),
            change,
        });
        return;
    }
    let by = termination_time(claim.map(|claim| &**claim));
    let known = claim.and_then(|claim| claim.status.clone()).unwrap_or_default();
    let generation = claim.and_then(|claim| claim.metadata.generation);
    let mut conditions = Conditions::new(&known.conditions, generation, view.now);
    let is_free = steps(node, by, claim.is_some(), view, policy, &mut conditions, plan);
    if is_free {
        match instance {
            Some(instance) => {
                plan.push(Action::Terminate {
                    provider_id: instance.provider_id.clone(),
                });
                conditions.set_true(CONDITION_INSTANCE_TERMINATING);
            }
            None => release(node, plan),
        }
    }
    if let Some(claim) = claim.filter(|claim| is_deleting(&claim.metadata)) {
        let status = NodeClaimStatus {
            conditions: conditions.into_list(),
            ..known.clone()
        };
        if status != known {
            plan.push(Action::ClaimStatus {
                target: Target::from(&claim.metadata),
                status: Box::new(status),
            });
        }
    }
}

/// How long a node is kept for pods that are being bound to it while it gets its taint. A pod that is being bound is on no
/// node yet, so where there is none it is only waited until kube-scheduler has seen the taint.
fn min_drain(view: &View<'_>, policy: &Policy) -> SignedDuration {
    if view.snapshot.pods.iter().any(|pod| is_unbound(pod)) {
        policy.min_drain
    } else {
        policy.min_drain.min(TAINT_SEEN)
    }
}

/// Drains the node and waits for its volumes; says whether nothing is left to wait for.
fn steps(
    node: &Node,
    by: Option<Timestamp>,
    has_claim: bool,
    view: &View<'_>,
    policy: &Policy,
    conditions: &mut Conditions,
    plan: &mut Plan,
) -> bool {
    let again = view.now.checked_add(AGAIN).unwrap_or(view.now);
    if conditions.get(CONDITION_DRAINED).is_none() {
        conditions.set(
            CONDITION_DRAINED,
            ConditionStatus::Unknown,
            "Draining",
            "Draining",
        );
    }
    let pods = view.pods_on(node);
    if let Drain::Waits { left, actions } = drain::decide(pods, by, view.now) {
        plan.actions.extend(actions);
        plan.push(Action::Announce(Announcement {
            subject: node_subject(node),
            is_warning: true,
            reason: "FailedDraining",
            message: format!("Failed to drain node, {left} pods are waiting to be evicted"),
        }));
        plan.look_again(again);
        return false;
    }
    if has_claim && !conditions.is_true(CONDITION_DRAINED) {
        let began = conditions.get(CONDITION_DRAINED);
        let began = began.map_or(view.now, |one| one.last_transition_time.0);
        let min_drain = min_drain(view, policy);
        if view.since(began) < min_drain {
            plan.look_again(began.checked_add(min_drain).unwrap_or(again));
            return false;
        }
        conditions.set_true(CONDITION_DRAINED);
    }
    let volumes = attached(node, pods, view);
    if volumes.is_empty() {
        conditions.set_true(CONDITION_VOLUMES_DETACHED);
        return true;
    }
    if by.is_some_and(|by| by < view.now) {
        let reason = "TerminationGracePeriodElapsed";
        conditions.set(CONDITION_VOLUMES_DETACHED, ConditionStatus::False, reason, reason);
        return true;
    }
    let reason = "AwaitingVolumeDetachment";
    let message = format!("waits for volumes to be detached: {}", volumes.join(", "));
    conditions.set(
        CONDITION_VOLUMES_DETACHED,
        ConditionStatus::Unknown,
        reason,
        &message,
    );
    plan.push(Action::Announce(Announcement {
        subject: node_subject(node),
        is_warning: false,
        reason,
        message,
    }));
    plan.look_again(again);
    false
}

fn node_subject(node: &Node) -> Subject {
    Subject {
        api_version: "v1",
        kind: "Node",
        target: Target::from(&node.metadata),
    }
}

/// The volumes that are still attached, without those of pods that are not drained.
fn attached(node: &Node, pods: &[&Arc<Pod>], view: &View<'_>) -> Vec<String> {
    let attachments = view.snapshot.volume_attachments.iter();
    let here: Vec<&str> = attachments
        .filter(|one| one.spec.node_name == name(&node.metadata))
        .filter_map(|one| one.spec.source.persistent_volume_name.as_deref())
        .collect();
    if here.is_empty() {
        return Vec::new();
    }
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    for pod in pods.iter().filter(|pod| !drain::is_drainable(pod, view.now)) {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for source in volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
            let mut pvcs = view.snapshot.pvcs.iter();
            let pvc = pvcs.find(|pvc| {
                pvc.metadata.namespace == pod.metadata.namespace && name(&pvc.metadata) == source.claim_name
            });
            kept.extend(pvc.and_then(|pvc| pvc.spec.as_ref()?.volume_name.as_deref()));
        }
    }
    here.into_iter()
        .filter(|volume| !kept.contains(volume))
        .map(str::to_owned)
        .collect()
}

/// What a node that is about to be drained still lacks.
fn taint(node: &Node) -> Option<NodeChange> {
    let disrupted = Taint {
        key: karpenter::DISRUPTED_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let known = super::node::taints(node);
    if known.iter().any(|taint| same_taint(taint, &disrupted)) {
        return None;
    }
    let others = known.iter().filter(|taint| taint.key != disrupted.key).cloned();
    Some(NodeChange {
        labels: [(EXCLUDE_FROM_BALANCERS.to_owned(), "karpenter".to_owned())].into(),
        taints: Some(others.chain([disrupted.clone()]).collect()),
        ..NodeChange::default()
    })
}

fn release(node: &Node, plan: &mut Plan) {
    plan.push(Action::PatchNode {
        target: Target::from(&node.metadata),
        change: NodeChange {
            finalizers: Some(without_finalizer(node.metadata.finalizers.as_ref())),
            ..NodeChange::default()
        },
    });
}
