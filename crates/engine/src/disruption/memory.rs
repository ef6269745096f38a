//! What is remembered from pass to pass. All of it may be forgotten.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use veneer_api::{Pod, PodStatus};

use super::Fate;
use super::budgets::Reason;
use crate::overlay::Evaluation;
use crate::plan::Snapshot;
use crate::provision::Market;

/// Commands that wait for a second look.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) due: Timestamp,
    /// Each with the reason and the names of the claims.
    pub(super) commands: Vec<(Reason, Vec<String>)>,
}

/// Everything that a pass depends on beside the time; kept alive, so that the same address is the same object.
#[derive(Debug, Default)]
struct Seen {
    snapshot: Snapshot,
    evaluation: Option<Arc<Evaluation>>,
}

/// What a driver keeps between two passes.
#[derive(Debug, Default)]
pub struct Memory {
    seen: Seen,
    pub(super) proposal: Option<Proposal>,
    pub(super) fates: Arc<Vec<Fate>>,
    pub(super) look_again: Option<Timestamp>,
    /// Counts commands; which pool comes first follows it.
    pub(super) turn: usize,
}

/// Objects of which some changes matter to nobody here: heartbeats, readiness, who wrote last.
trait Alike {
    fn is_alike(&self, other: &Self) -> bool;
}

fn same<T>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

fn alike<T: Alike>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    let one = |(a, b): (&Arc<T>, &Arc<T>)| Arc::ptr_eq(a, b) || a.is_alike(b);
    a.len() == b.len() && a.iter().zip(b).all(one)
}

/// Whether metadata differ at most in the marks of the last write.
fn same_metadata(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let unmarked = |metadata: &ObjectMeta| ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..metadata.clone()
    };
    unmarked(a) == unmarked(b)
}

impl Alike for Pod {
    fn is_alike(&self, other: &Self) -> bool {
        // Of the status, what is asked for, where it stands, and whether the scheduler has given up.
        fn scheduled(status: &PodStatus) -> impl Iterator<Item = (&str, Option<&str>)> {
            let conditions = status.conditions.iter().flatten();
            let scheduled = conditions.filter(|condition| condition.type_ == "PodScheduled");
            scheduled.map(|condition| (condition.status.as_str(), condition.reason.as_deref()))
        }
        fn asked(status: &PodStatus) -> impl Iterator<Item = (&str, Option<&ResourceRequirements>)> {
            let containers = status.container_statuses.iter().flatten();
            containers.map(|container| (container.name.as_str(), container.resources.as_ref()))
        }
        let same_status = |a: &PodStatus, b: &PodStatus| {
            Arc::ptr_eq(a.shared(), b.shared()) && a.start_time == b.start_time
                || a.phase == b.phase
                    && a.start_time == b.start_time
                    && a.nominated_node_name == b.nominated_node_name
                    && scheduled(a).eq(scheduled(b))
                    && asked(a).eq(asked(b))
        };
        let none = PodStatus::default();
        same_metadata(&self.metadata, &other.metadata)
            && self.spec == other.spec
            && same_status(
                self.status.as_ref().unwrap_or(&none),
                other.status.as_ref().unwrap_or(&none),
            )
    }
}

impl Alike for Node {
    fn is_alike(&self, other: &Self) -> bool {
        let status = |node: &Self| {
            let status = node.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default().into_iter();
            (
                status.allocatable,
                status.capacity,
                conditions.map(|one| (one.type_, one.status)).collect::<Vec<_>>(),
            )
        };
        same_metadata(&self.metadata, &other.metadata)
            && self.spec == other.spec
            && status(self) == status(other)
    }
}

impl Memory {
    /// Whether a snapshot differs from the one before in anything that a decision here depends on.
    pub(super) fn has_changed(&mut self, snapshot: &Snapshot, market: &Market) -> bool {
        let Seen {
            snapshot: before,
            evaluation,
        } = &self.seen;
        let is_same = evaluation
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, market.evaluation()))
            && alike(&before.pods, &snapshot.pods)
            && alike(&before.nodes, &snapshot.nodes)
            && same(&before.node_claims, &snapshot.node_claims)
            && same(&before.node_pools, &snapshot.node_pools)
            && same(&before.pdbs, &snapshot.pdbs)
            && same(&before.daemon_sets, &snapshot.daemon_sets)
            && same(&before.pvcs, &snapshot.pvcs)
            && same(&before.pvs, &snapshot.pvs)
            && same(&before.storage_classes, &snapshot.storage_classes)
            && same(&before.csi_nodes, &snapshot.csi_nodes)
            && same(&before.namespaces, &snapshot.namespaces)
            && before.node_classes == snapshot.node_classes
            && before.shortages == snapshot.shortages
            && before.nominations == snapshot.nominations
            && before.undone_moves == snapshot.undone_moves
            && before.paid_for == snapshot.paid_for;
        // What is alike is not compared again if it is the same object next time.
        let is_identical =
            is_same && same(&before.pods, &snapshot.pods) && same(&before.nodes, &snapshot.nodes);
        if !is_identical {
            self.seen = Seen {
                snapshot: snapshot.clone(),
                evaluation: Some(Arc::clone(market.evaluation())),
            };
        }
        !is_same
    }
}
