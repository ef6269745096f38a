//! Which pods need a place.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use veneer_api::Pod;

use crate::cluster::Index;
use crate::plan::{Snapshot, is_daemon_pod, is_deleting, is_terminal, name};

/// Whether the scheduler has tried to place a pod and failed, so that only a new node helps.
#[must_use]
pub fn is_provisionable(pod: &Pod) -> bool {
    is_refused(pod) && scheduler_nomination(pod).is_none()
}

/// The node on which kube-scheduler makes room for a pod by preemption.
#[must_use]
pub fn preempts_on(pod: &Pod) -> Option<&str> {
    scheduler_nomination(pod).filter(|_| is_refused(pod))
}

fn scheduler_nomination(pod: &Pod) -> Option<&str> {
    let nominated = pod.status.as_ref()?.nominated_node_name.as_deref();
    nominated.filter(|node| !node.is_empty())
}

/// The condition in which kube-scheduler says that it found no place for a pod, and why.
#[must_use]
pub fn refusal(status: Option<&PodStatus>) -> Option<&PodCondition> {
    let conditions = status?.conditions.as_deref()?;
    conditions.iter().find(|one| {
        one.type_ == "PodScheduled" && one.status == "False" && one.reason.as_deref() == Some("Unschedulable")
    })
}

fn is_refused(pod: &Pod) -> bool {
    refusal(pod.status.as_deref()).is_some()
        && node_name(pod).is_none()
        && !is_terminal(pod)
        && !is_deleting(&pod.metadata)
        && !is_daemon_pod(pod)
        && !is_static(pod)
}

/// Whether a pod is on no node yet and may come to one at any time: kube-scheduler has refused it, or has not said anything.
#[must_use]
pub fn is_unbound(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    node_name(pod).is_none()
        && !is_terminal(pod)
        && !is_deleting(&pod.metadata)
        && gates.is_none_or(Vec::is_empty)
}

fn node_name(pod: &Pod) -> Option<&str> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    name.filter(|name| !name.is_empty())
}

fn is_static(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.api_version == "v1" && owner.kind == "Node")
}

/// The pods that a run of the scheduler looks at: those on nodes, and those that need one.
pub(crate) fn relevant(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Pod>> {
    let pods = snapshot.pods.iter();
    pods.filter(|pod| node_name(pod).is_some() || is_provisionable(pod))
}

/// What kube-scheduler says about the pods that it could not place: by uid, a number that changes when it says something else.
#[must_use]
pub fn refusals(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let refused = snapshot.pods.iter().filter(|pod| is_provisionable(pod));
    let said = refused.map(|pod| {
        let mut digest = DefaultHasher::new();
        refusal(pod.status.as_deref())
            .and_then(|one| one.message.as_ref())
            .hash(&mut digest);
        (pod.metadata.uid.clone().unwrap_or_default(), digest.finish())
    });
    said.collect()
}

/// The pods that the scheduler could not place, by `namespace/name`.
pub fn waiting(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let pods = snapshot.pods.iter().filter(|pod| is_provisionable(pod));
    pods.map(|pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        format!("{namespace}/{}", name(&pod.metadata))
    })
}

/// The pods that need a place, by uid: those that the scheduler could not place, and those on nodes that go away.
#[must_use]
pub fn demand(snapshot: &Snapshot, index: &Index<'_>) -> BTreeSet<String> {
    let leaving = leaving(index);
    let wants = |pod: &&Arc<Pod>| {
        is_provisionable(pod)
            || node_name(pod).is_some_and(|node| leaving.contains(node))
                && !is_terminal(pod)
                && !is_deleting(&pod.metadata)
                && !is_daemon_pod(pod)
                && !is_static(pod)
    };
    let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
    snapshot.pods.iter().filter(wants).map(uid).collect()
}

/// The names of nodes whose claim is being deleted.
fn leaving<'a>(index: &Index<'a>) -> BTreeSet<&'a str> {
    let ending = index.claimed().filter(|(claim, _)| is_deleting(&claim.metadata));
    let nodes = ending.flat_map(|(_, machine)| machine.nodes());
    nodes.map(|node| name(&node.metadata)).collect()
}
