//! Nominated pods: those that are expected on a node and are not there yet.
//!
//! For a node, the pods that are nominated for it and are at least as important are counted as if they ran there; a pod has to
//! fit with them and without them. When a pod that is nominated is refused everywhere, its nomination is taken back,
//! unless it may not preempt others or waits for a claim: kube-scheduler decides about nominations when it looks for pods to
//! preempt, and of such a pod it does not come to that.

use super::class::{Class, ClassId};
use super::cluster::Attempt;

/// The classes of the pods that have to be counted beside the one that looks for a node.
pub(super) fn others(attempt: &Attempt<'_, '_>, at: usize) -> Vec<ClassId> {
    let pods = attempt.state.nominated.get(&at).into_iter().flatten();
    let others = pods.filter(|(key, id)| {
        let other = attempt.state.classes.get(**id);
        key.as_str() != attempt.key && other.is_some_and(|other| other.priority >= attempt.class.priority)
    });
    others.map(|(_, id)| *id).collect()
}

/// Whether a nomination ends when the pod is refused everywhere.
pub(super) const fn ends_when_refused(class: &Class) -> bool {
    !class.never_preempts && !class.waits_for_claim
}
