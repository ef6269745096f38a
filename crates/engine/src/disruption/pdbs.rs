//! What PodDisruptionBudgets allow right now.

use std::collections::HashMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use veneer_api::Pod;

use super::blockers::Blocker;
use crate::packing::Selector;
use crate::plan::{Snapshot, name};

struct Limit<'a> {
    pdb: &'a PodDisruptionBudget,
    selector: Selector,
    lets_unhealthy_go: bool,
}

/// The budgets of a cluster, by namespace.
pub(super) struct Limits<'a> {
    by_namespace: HashMap<&'a str, Vec<Limit<'a>>>,
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

fn is_unready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "False")
}

impl<'a> Limits<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_namespace: HashMap<&str, Vec<Limit<'_>>> = HashMap::new();
        for pdb in &snapshot.pdbs {
            let Some(spec) = &pdb.spec else { continue };
            let policy = spec.unhealthy_pod_eviction_policy.as_deref();
            by_namespace
                .entry(pdb.metadata.namespace.as_deref().unwrap_or("default"))
                .or_default()
                .push(Limit {
                    pdb,
                    selector: Selector::new(spec.selector.as_ref(), &[]),
                    lets_unhealthy_go: policy == Some("AlwaysAllow"),
                });
        }
        Self { by_namespace }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_namespace.is_empty()
    }

    /// What keeps a pod that would be evicted, if anything.
    pub(super) fn blocker(&self, pod: &Pod) -> Option<Blocker> {
        let limits = self.by_namespace.get(namespace(pod))?;
        let none = std::collections::BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let matching: Vec<&Limit<'_>> = limits
            .iter()
            .filter(|limit| limit.selector.selects(labels))
            .collect();
        let called = |limit: &Limit<'_>| format!("{}/{}", namespace(pod), name(&limit.pdb.metadata));
        let pod_name = format!("{}/{}", namespace(pod), name(&pod.metadata));
        match matching.as_slice() {
            [] => None,
            [limit] => {
                let status = limit.pdb.status.as_ref();
                let allowed = status.and_then(|status| status.disruptions_allowed).unwrap_or(0);
                let passes = allowed > 0 || limit.lets_unhealthy_go && is_unready(pod);
                (!passes).then(|| Blocker::Pdb {
                    pod: pod_name,
                    pdb: called(limit),
                    healthy: status.and_then(|status| status.current_healthy).unwrap_or(0),
                    desired: status.and_then(|status| status.desired_healthy).unwrap_or(0),
                })
            }
            several => Some(Blocker::SeveralPdbs {
                pod: pod_name,
                pdbs: several.iter().map(|limit| called(limit)).collect(),
            }),
        }
    }
}
