//! Lists of taints, each stored once and known by number.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::hash::FastMap;
use super::ids::{Id, Table, TaintsId};
use crate::taints::untolerated;

/// Key, value and effect of each taint of a list.
type Fingerprint = Vec<(String, String, String)>;

/// Every list of taints in play.
#[derive(Debug, Default)]
pub(super) struct TaintLists {
    lists: Table<TaintsId, Vec<Taint>>,
    index: FastMap<Fingerprint, TaintsId>,
}

impl TaintLists {
    pub(super) fn intern(&mut self, taints: &[Taint]) -> TaintsId {
        let fingerprint: Fingerprint = taints
            .iter()
            .map(|taint| {
                (
                    taint.key.clone(),
                    taint.value.clone().unwrap_or_default(),
                    taint.effect.clone(),
                )
            })
            .collect();
        *self
            .index
            .entry(fingerprint)
            .or_insert_with(|| self.lists.push(taints.to_vec()))
    }

    pub(super) fn get(&self, taints: TaintsId) -> &[Taint] {
        &self.lists[taints]
    }

    pub(super) fn tolerated(&self, taints: TaintsId, tolerations: &[Toleration]) -> bool {
        untolerated(&self.lists[taints], tolerations).is_empty()
    }
}

/// What is known about one list of tolerations against each list of taints.
#[derive(Clone, Debug, Default)]
pub(super) struct Tolerated {
    answers: Vec<Option<bool>>,
}

impl Tolerated {
    pub(super) fn ask(&mut self, lists: &TaintLists, taints: TaintsId, tolerations: &[Toleration]) -> bool {
        let at = taints.index();
        if self.answers.len() <= at {
            self.answers.resize(at + 1, None);
        }
        match self.answers.get_mut(at) {
            Some(answer) => *answer.get_or_insert_with(|| lists.tolerated(taints, tolerations)),
            None => lists.tolerated(taints, tolerations),
        }
    }
}
