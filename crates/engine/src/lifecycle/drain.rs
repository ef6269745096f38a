//! Which pods leave a node next.
//!
//! Pods that are neither critical nor of a DaemonSet leave first, then DaemonSets, then critical pods, then critical
//! DaemonSets; a group is asked to leave when the one before it is gone. Evictions respect disruption budgets; once
//! the node's termination time comes closer than a pod's grace period, the pod is deleted whatever they say.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Pod;
use veneer_api::labels::karpenter;

use crate::plan::{Action, Target, is_daemon_pod, is_deleting, is_terminal, parse_duration};
use crate::taints::tolerates;

/// A pod that is still there so long after its time is not waited for.
const STUCK: SignedDuration = SignedDuration::from_mins(1);

/// What draining needs.
pub(super) enum Drain {
    /// Nothing: no pod is left that has to leave.
    Done,
    /// Pods are left.
    Waits {
        /// How many.
        left: usize,
        /// What to do about them now.
        actions: Vec<Action>,
    },
}

pub(super) fn decide(pods: &[&Arc<Pod>], by: Option<Timestamp>, now: Timestamp) -> Drain {
    let mut waiting: Vec<&Arc<Pod>> = pods
        .iter()
        .copied()
        .filter(|pod| !is_terminal(pod) && is_drainable(pod, now))
        .collect();
    if waiting.is_empty() {
        return Drain::Done;
    }
    let left = waiting.len();
    let mut actions: Vec<Action> = waiting.iter().filter_map(|pod| forced(pod, by, now)).collect();
    waiting.sort_by_key(|pod| group(pod));
    let first = waiting.first().map(|pod| group(pod));
    let asked = waiting
        .iter()
        .filter(|pod| Some(group(pod)) == first && is_evictable(pod, now) && forced(pod, by, now).is_none());
    actions.extend(asked.map(|pod| Action::Evict {
        pod: Target::from(&pod.metadata),
    }));
    Drain::Waits { left, actions }
}

fn group(pod: &Pod) -> (bool, bool) {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref());
    let is_critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    (is_critical, is_daemon_pod(pod))
}

/// Whether a pod has to leave before the node may go.
pub(crate) fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    let stuck = pod
        .metadata
        .deletion_timestamp
        .as_ref()
        .is_some_and(|at| now.duration_since(at.0) > STUCK);
    let is_static = pod.metadata.owner_references.iter().flatten();
    let is_static = is_static
        .into_iter()
        .any(|owner| owner.api_version == "v1" && owner.kind == "Node");
    !tolerates_disruption(pod) && !stuck && !is_static
}

fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    !is_deleting(&pod.metadata) && !is_protected(pod, now)
}

pub(crate) fn tolerates_disruption(pod: &Pod) -> bool {
    let taint = Taint {
        key: karpenter::DISRUPTED_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations
        .into_iter()
        .any(|toleration| tolerates(toleration, &taint))
}

/// Whether `karpenter.sh/do-not-disrupt` holds: always with `true`, with a duration as long as the pod is younger.
pub(crate) fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let value = annotations.and_then(|list| list.get(karpenter::DO_NOT_DISRUPT));
    match value.map(String::as_str) {
        None => false,
        Some("true") => true,
        Some(text) => parse_duration(text)
            .filter(SignedDuration::is_positive)
            .is_some_and(|age| {
                let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
                started.is_none_or(|started| now.duration_since(started.0) < age)
            }),
    }
}

/// The deletion of a pod that would otherwise outlive its node, with what is left of the node's time.
fn forced(pod: &Arc<Pod>, by: Option<Timestamp>, now: Timestamp) -> Option<Action> {
    let by = by?;
    let grace = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(30);
    let ends_late = pod.metadata.deletion_timestamp.as_ref().map(|at| at.0 > by);
    if ends_late == Some(false) {
        return None;
    }
    let at = by.checked_sub(SignedDuration::from_secs(grace)).ok()?;
    (now > at).then(|| Action::DeletePod {
        pod: Target::from(&pod.metadata),
        // Zero would remove the pod while its containers may still run.
        grace_seconds: by.duration_since(now).as_secs().max(1),
    })
}
