//! Tells the scheduler which node each pod was launched for, as soon as there is one.
//!
//! Else it spreads whatever waits over whatever has come so far, and pods for which a node was made find no room on any.
//! It looks at a nominated node first and keeps the room there for the pod. Where the pod does not fit it takes the
//! nomination back, so that the pod is nominated again for as long as it is expected there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::labels::veneer;
use veneer_engine::plan::{Action, Plan, Snapshot, Target, is_deleting, name, provider_id};
use veneer_engine::provision::{Batch, is_provisionable};

/// How long a nomination is given to be seen before it is repeated.
const SEEN: SignedDuration = SignedDuration::from_secs(1);

/// The nominations that were made last, by uid, with their time.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<String, (String, Timestamp)>);

/// The nominations that are missing.
#[must_use]
pub fn decide(snapshot: &Snapshot, batch: &Batch, memory: &mut Memory, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let places = batch.places();
    memory.0.retain(|pod, _| places.contains_key(pod.as_str()));
    if places.is_empty() {
        return plan;
    }
    let nodes = snapshot.nodes.iter().filter(|node| !is_deleting(&node.metadata));
    let by_provider: BTreeMap<&str, &str> = nodes
        .clone()
        .filter_map(|node| Some((node.spec.as_ref()?.provider_id.as_deref()?, name(&node.metadata))))
        .collect();
    let mut node_of: BTreeMap<&str, &str> = snapshot
        .node_claims
        .iter()
        .filter_map(|claim| Some((name(&claim.metadata), *by_provider.get(provider_id(claim)?)?)))
        .collect();
    node_of.extend(nodes.map(|node| (name(&node.metadata), name(&node.metadata))));
    for pod in snapshot.pods.iter().filter(|pod| may_be_nominated(pod)) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let place = places.get(uid);
        let Some(node) = place.and_then(|place| node_of.get(place)) else {
            continue;
        };
        if nominated(pod) == Some(node) {
            continue;
        }
        if let Some((known, at)) = memory.0.get(uid)
            && let Some(again) = at
                .checked_add(SEEN)
                .ok()
                .filter(|again| known == node && *again > now)
        {
            plan.look_again(again);
            continue;
        }
        memory.0.insert(uid.to_owned(), ((*node).to_owned(), now));
        plan.push(Action::Nominate {
            pod: Target::from(&pod.metadata),
            node: (*node).to_owned(),
        });
    }
    plan
}

/// The node that the scheduler was told to expect a pod on.
fn nominated(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(veneer::NOMINATED).map(String::as_str)
}

/// Whether the scheduler takes a nomination back when the pod does not fit. Of one that may not preempt others it keeps
/// it, and with it the room.
fn may_be_nominated(pod: &Pod) -> bool {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.preemption_policy.as_deref());
    policy != Some("Never") && is_provisionable(pod)
}
