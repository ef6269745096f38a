//! What is remembered from pass to pass. All of it may be forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::Fate;
use super::budgets::Reason;
use crate::overlay::Evaluation;
use crate::packing::{PodRecord, Pods};
use crate::plan::Snapshot;
use crate::provision::{Market, relevant};

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
    pods: HashMap<usize, (Arc<Pod>, PodRecord)>,
    shared: Pods,
    seen: Seen,
    pub(super) proposal: Option<Proposal>,
    pub(super) fates: Vec<Fate>,
    pub(super) look_again: Option<Timestamp>,
    /// Counts commands; which pool comes first follows it.
    pub(super) turn: usize,
}

fn same<T>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

impl Memory {
    /// What was decided last is not carried out: it is looked at again when something has changed, or at a time.
    pub fn wait(&mut self, until: Timestamp) {
        self.look_again = Some(until);
    }

    /// Whether a snapshot differs from the one before in anything that a decision here depends on.
    pub(super) fn has_changed(&mut self, snapshot: &Snapshot, market: &Market) -> bool {
        let Seen {
            snapshot: before,
            evaluation,
        } = &self.seen;
        let is_same = evaluation
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, market.evaluation()))
            && same(&before.pods, &snapshot.pods)
            && same(&before.nodes, &snapshot.nodes)
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
            && before.paid_for == snapshot.paid_for;
        if !is_same {
            self.seen = Seen {
                snapshot: snapshot.clone(),
                evaluation: Some(Arc::clone(market.evaluation())),
            };
        }
        !is_same
    }

    /// The pods that a run looks at; those that have not changed are not read again.
    pub(super) fn pods(&mut self, snapshot: &Snapshot) -> Pods {
        let mut known = std::mem::take(&mut self.pods);
        let mut pods = Pods::default();
        let mut read = 0_usize;
        for pod in relevant(snapshot) {
            let address = Arc::as_ptr(pod).addr();
            let (_, record) = known.remove(&address).unwrap_or_else(|| {
                read += 1;
                (Arc::clone(pod), self.shared.read(pod))
            });
            pods.push_record(record.clone());
            self.pods.insert(address, (Arc::clone(pod), record));
        }
        // What gone pods shared is forgotten when there may be much of it.
        if known.len() > self.pods.len() {
            self.shared = Pods::default();
            self.pods.clear();
        }
        pods
    }
}
