//! Bugs that are put in on purpose, to see that the invariants notice them.
//!
//! Each stands for a mistake in the decisions or in the executor, made at the seam between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use veneer_api::labels::veneer;
use veneer_engine::plan::{Action, Plan, Snapshot, Target, name, provider_id};

use crate::objects::node_of;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A repeated launch is another instance.
    ForgetsToken,
    /// A claim goes before its instance has ended.
    ForgetsInstance,
    /// Instances without a claim are left alone.
    LeavesOrphans,
    /// Claims that have no instance yet are not counted.
    IgnoresInFlight,
    /// The limits of pools are not looked at.
    IgnoresLimits,
    /// Pods are deleted where they should be evicted.
    IgnoresBudgets,
    /// Nodes of others are deleted too.
    DeletesForeignNodes,
    /// Overlays of others are removed.
    DeletesForeignOverlays,
    /// Overlays stay when nothing is left of the commitment.
    KeepsOverlays,
    /// What failed once is never tried again.
    GivesUp,
    /// Nodes are never registered.
    SkipsRegistration,
    /// Launches since the data was taken are not charged to the commitments.
    IgnoresTheCap,
    /// Every pod that waits is nominated for one node, again and again.
    Renominates,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::ForgetsToken,
        Self::ForgetsInstance,
        Self::LeavesOrphans,
        Self::IgnoresInFlight,
        Self::IgnoresLimits,
        Self::IgnoresBudgets,
        Self::DeletesForeignNodes,
        Self::DeletesForeignOverlays,
        Self::KeepsOverlays,
        Self::GivesUp,
        Self::SkipsRegistration,
        Self::IgnoresTheCap,
        Self::Renominates,
    ];
}

/// The bug that is in, if one is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    bug: Option<Bug>,
}

impl Bugs {
    pub(super) const fn of(bug: Option<Bug>) -> Self {
        Self { bug }
    }

    /// Whether this one is in.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn spoil_snapshot(&self, snapshot: &mut Snapshot) {
        match self.bug {
            // The lifecycle needs them; only looks with pods that wait miss them.
            Some(Bug::IgnoresInFlight) if snapshot.pods.iter().any(|pod| node_of(pod).is_none()) => {
                snapshot.node_claims.retain(|claim| {
                    provider_id(claim).is_some() || claim.metadata.deletion_timestamp.is_some()
                });
            }
            Some(Bug::IgnoresLimits) => {
                for pool in &mut snapshot.node_pools {
                    Arc::make_mut(pool).spec.limits.clear();
                }
            }
            _ => {}
        }
    }

    pub(crate) fn spoil_plan(&self, plan: &mut Plan, snapshot: &Snapshot) {
        match self.bug {
            Some(Bug::ForgetsInstance) => {
                for action in &mut plan.actions {
                    if let Action::DeleteClaim { target, .. } = action {
                        *action = Action::PatchClaim {
                            target: target.clone(),
                            labels: Default::default(),
                            annotations: Default::default(),
                            finalizers: Some(Vec::new()),
                        };
                    }
                }
                for claim in snapshot
                    .node_claims
                    .iter()
                    .filter(|one| one.metadata.deletion_timestamp.is_some())
                {
                    plan.push(Action::PatchClaim {
                        target: Target::from(&claim.metadata),
                        labels: Default::default(),
                        annotations: Default::default(),
                        finalizers: Some(Vec::new()),
                    });
                }
            }
            Some(Bug::LeavesOrphans) => plan.actions.retain(|action| match action {
                Action::Terminate { provider_id } => snapshot
                    .node_claims
                    .iter()
                    .any(|claim| veneer_engine::plan::provider_id(claim) == Some(provider_id)),
                _ => true,
            }),
            Some(Bug::IgnoresBudgets) => {
                for action in &mut plan.actions {
                    if let Action::Evict { pod } = action {
                        *action = Action::DeletePod {
                            pod: pod.clone(),
                            grace_seconds: 30,
                        };
                    }
                }
            }
            Some(Bug::DeletesForeignNodes) => {
                let nodes = snapshot.nodes.iter();
                let foreign =
                    nodes.filter(|node| veneer_engine::plan::node_pool_of(&node.metadata).is_empty());
                for node in foreign {
                    plan.push(Action::DeleteNode {
                        target: Target::from(&node.metadata),
                    });
                }
            }
            Some(Bug::Renominates) => {
                plan.actions
                    .retain(|action| !matches!(action, Action::Nominate { .. }));
                for pod in snapshot.pods.iter().filter(|pod| node_of(pod).is_none()) {
                    let wanted = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
                    let node = snapshot.nodes.iter().find(|node| {
                        let pool = |labels: Option<&BTreeMap<String, String>>| labels?.get("pool").cloned();
                        pool(node.metadata.labels.as_ref()).is_some()
                            && pool(node.metadata.labels.as_ref()) == pool(wanted)
                    });
                    let annotations = pod.metadata.annotations.as_ref();
                    let known = annotations.and_then(|list| list.get(veneer::NOMINATED));
                    let node = node.map(|node| name(&node.metadata).to_owned());
                    if let Some(node) = node.filter(|node| Some(node) != known) {
                        plan.push(Action::Nominate {
                            pod: Target::from(&pod.metadata),
                            node: Some(node),
                        });
                    }
                }
            }
            Some(Bug::SkipsRegistration) => plan.actions.retain(|action| match action {
                Action::PatchNode { change, .. } => !change.labels.contains_key("karpenter.sh/registered"),
                _ => true,
            }),
            _ => {}
        }
    }
}
