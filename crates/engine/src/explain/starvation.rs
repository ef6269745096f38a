//! Pods that wait although nothing keeps them from a place.
//!
//! A run goes through the queue from the largest pod to the smallest. Where runs are cut short, or one pod makes them
//! begin again and again, those behind it are never looked at, and nobody says so. Two signs tell them: no scheduler has
//! put a condition on the pod, or the pod would be placed by a run of now and has waited for long.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::packing::{Objects, PodRecord, Results, requests};
use crate::quantity::Quantity;
use crate::resources::{CPU, MEMORY};

/// What a pod says about its own waiting.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Since when a scheduler has said that it has no place.
    pub judged: Option<Timestamp>,
    /// Why a scheduler says that it has no place, as it says it.
    pub refusal: Option<String>,
}

impl Seen {
    /// Reads the times of a pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let judged = conditions.find(|condition| condition.type_ == "PodScheduled");
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            created,
            refusal: judged
                .filter(|condition| condition.status == "False")
                .and_then(|condition| condition.message.clone()),
            // A condition without a time was set at some time.
            judged: judged.and_then(|condition| {
                condition
                    .last_transition_time
                    .as_ref()
                    .map(|time| time.0)
                    .or(created)
            }),
        }
    }
}

/// A pod that starves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starving {
    /// The pod, by position.
    pub pod: usize,
    /// How long it has waited.
    pub age_seconds: i64,
    /// Whether any scheduler has looked at it.
    pub evaluated: bool,
    /// Whether a run of now would place it.
    pub would_be_placed: bool,
    /// The pods that come before it in the queue and go nowhere: the ones that may hold it up, by position.
    pub behind: Vec<usize>,
}

/// The pods that have waited for at least `patience_seconds` and were never looked at, or would be placed now.
#[must_use]
pub fn starving(
    objects: &Objects,
    results: &Results,
    seen: &[Seen],
    now: Timestamp,
    patience_seconds: i64,
) -> Vec<Starving> {
    let placed = results.new_node_claims.iter().flat_map(|claim| &claim.pods);
    let placed = placed.chain(results.existing_nodes.iter().flat_map(|node| &node.pods));
    let nowhere = results.unschedulable.iter().map(|pod| &pod.pod);
    let mut pods: Vec<(usize, bool)> = placed.map(|pod| (*pod, true)).collect();
    pods.extend(nowhere.map(|pod| (*pod, false)));
    pods.sort_unstable();
    let mut stuck: Vec<(Size, usize)> = results
        .unschedulable
        .iter()
        .filter_map(|pod| Some((size(objects.pods.get(pod.pod)?), pod.pod)))
        .collect();
    stuck.sort_by(|a, b| b.cmp(a));
    let mut starving = Vec::new();
    for (pod, would_be_placed) in pods {
        let Some(record) = objects.pods.get(pod).filter(|pod| pod.node_name.is_none()) else {
            continue;
        };
        let times = seen.get(pod).cloned().unwrap_or_default();
        let Some(created) = times.created else { continue };
        let age_seconds = now.as_second() - created.as_second();
        let evaluated = times.judged.is_some();
        if age_seconds < patience_seconds || (evaluated && !would_be_placed) {
            continue;
        }
        let own = size(record);
        let before = stuck.iter().take_while(|(size, _)| *size >= own);
        starving.push(Starving {
            pod,
            age_seconds,
            evaluated,
            would_be_placed,
            behind: before
                .map(|(_, other)| *other)
                .filter(|other| *other != pod)
                .collect(),
        });
    }
    starving
}

type Size = (Quantity, Quantity);

/// What the queue is sorted by.
fn size(pod: &PodRecord) -> Size {
    let list = requests(pod).unwrap_or_default();
    let amount = |resource| list.get(resource).cloned().unwrap_or_default();
    (amount(CPU), amount(MEMORY))
}
