//! The nodes that exist or are on their way, and the pods on them.
//!
//! A node and its NodeClaim are one thing, joined by provider id. Until the node has registered, the claim is
//! believed; until it is initialised, startup taints and taints that every young node has are overlooked.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Node, Taint};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, kubernetes};

use super::Objects;
use super::PodRecord;
use super::hash::FastMap;
use super::pod_requests::resource_list;
use crate::cluster::is_leaving;
use crate::quantity::Quantity;
use crate::resources::ResourceList;
use crate::taints::is_of_start;

pub(super) type Labels = BTreeMap<String, String>;

static NO_LABELS: LazyLock<Labels> = LazyLock::new(Labels::new);

pub(super) use crate::cluster::limits::NODES;

/// A node, its claim, or both.
#[derive(Clone, Debug)]
pub(super) struct ClusterNode<'a> {
    pub(super) node: Option<&'a Node>,
    pub(super) claim: Option<&'a NodeClaim>,
    /// The pods on it that have not ended, by position.
    pub(super) pods: Vec<usize>,
}

/// Whether the pod has ended.
pub(super) fn is_terminal(pod: &PodRecord) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether a pod is one of a controller of `kind` in `api_version`.
pub(super) fn is_owned_by(pod: &PodRecord, api_version: &str, kind: &str) -> bool {
    let owners = pod.metadata.owner_references.as_deref().into_iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.api_version == api_version && owner.kind == kind)
}

/// Whether a pod is one of a DaemonSet.
pub(super) fn is_daemon(pod: &PodRecord) -> bool {
    is_owned_by(pod, "apps/v1", "DaemonSet")
}

/// The node that the pod is on, if it is on one.
pub(super) fn node_name(pod: &PodRecord) -> Option<&str> {
    pod.node_name.as_deref()
}

fn metadata_labels(labels: Option<&Labels>) -> &Labels {
    labels.unwrap_or(&NO_LABELS)
}

/// The labels of a node object.
pub(super) fn node_labels(node: &Node) -> &Labels {
    metadata_labels(node.metadata.labels.as_ref())
}

/// The taints of a node object.
pub(super) fn node_taints(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

/// Everything that is a node or will be one, in no particular order.
pub(super) fn cluster_nodes(objects: &Objects) -> Vec<ClusterNode<'_>> {
    let mut nodes: Vec<ClusterNode<'_>> = Vec::new();
    let mut by_provider: FastMap<&str, usize> = FastMap::default();
    for claim in &objects.node_claims {
        let provider = claim
            .status
            .as_ref()
            .and_then(|status| status.provider_id.as_deref());
        if let Some(provider) = provider.filter(|id| !id.is_empty()) {
            by_provider.insert(provider, nodes.len());
            nodes.push(ClusterNode {
                node: None,
                claim: Some(claim),
                pods: Vec::new(),
            });
        }
    }
    let mut by_name: FastMap<&str, usize> = FastMap::default();
    for node in &objects.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let labels = node_labels(node);
        let has = |key| labels.get(key).is_some_and(|value| !value.is_empty());
        let provider = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.as_deref())
            .unwrap_or_default();
        let is_managed = has(karpenter::NODEPOOL);
        let is_unreadable = is_managed
            && (provider.is_empty() || (!has(kubernetes::INSTANCE_TYPE) && !has(karpenter::INITIALIZED)));
        if is_unreadable {
            continue;
        }
        let at = match by_provider.get(provider) {
            Some(at) if !provider.is_empty() => *at,
            _ => {
                nodes.push(ClusterNode {
                    node: None,
                    claim: None,
                    pods: Vec::new(),
                });
                nodes.len() - 1
            }
        };
        if let Some(slot) = nodes.get_mut(at) {
            slot.node = Some(node);
        }
        by_name.insert(name, at);
    }
    for (position, pod) in objects.pods.iter().enumerate() {
        let node = node_name(pod)
            .and_then(|name| by_name.get(name))
            .and_then(|at| nodes.get_mut(*at));
        if let Some(node) = node
            && !is_terminal(pod)
        {
            node.pods.push(position);
        }
    }
    nodes
}

impl<'a> ClusterNode<'a> {
    fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    fn has_label(&self, key: &str) -> bool {
        self.node
            .is_some_and(|node| node_labels(node).get(key).is_some_and(|value| value == "true"))
    }

    fn is_registered(&self) -> bool {
        !self.is_managed() || self.has_label(karpenter::REGISTERED)
    }

    pub(super) fn is_initialized(&self) -> bool {
        !self.is_managed() || self.has_label(karpenter::INITIALIZED)
    }

    /// Whether it is going away, so that its pods need another place.
    pub(super) fn is_deleting(&self) -> bool {
        match (self.claim, self.node) {
            (Some(claim), _) => is_leaving(claim),
            (None, Some(node)) => node.metadata.deletion_timestamp.is_some(),
            (None, None) => true,
        }
    }

    pub(super) fn name(&self) -> &'a str {
        let of_node = self.node.and_then(|node| node.metadata.name.as_deref());
        let of_claim = self.claim.and_then(|claim| claim.metadata.name.as_deref());
        let name = if self.is_registered() {
            of_node.or(of_claim)
        } else {
            of_claim
        };
        name.unwrap_or_default()
    }

    pub(super) fn labels(&self) -> &'a Labels {
        match (self.node, self.claim) {
            (Some(node), None) => node_labels(node),
            (Some(node), Some(_)) if self.is_registered() => node_labels(node),
            (_, Some(claim)) => metadata_labels(claim.metadata.labels.as_ref()),
            (None, None) => &NO_LABELS,
        }
    }

    /// The name that the hostname label gives it, or its own.
    pub(super) fn host_name(&self) -> &'a str {
        match self.labels().get(kubernetes::HOSTNAME) {
            Some(name) if !name.is_empty() => name,
            _ => self.name(),
        }
    }

    /// The taints that pods have to tolerate.
    pub(super) fn taints(&self) -> Vec<Taint> {
        let believes_claim = self.node.is_none() || !self.is_registered();
        let taints = match (self.claim, self.node) {
            (Some(claim), _) if believes_claim => claim.spec.taints.as_slice(),
            (_, Some(node)) => node_taints(node),
            _ => &[],
        };
        let startup = self.claim.map_or(&[][..], |claim| &claim.spec.startup_taints);
        let passes = |taint: &Taint| {
            is_ephemeral(taint)
                || startup
                    .iter()
                    .any(|known| known.key == taint.key && known.effect == taint.effect)
        };
        let overlook = !self.is_initialized();
        taints
            .iter()
            .filter(|taint| !(overlook && passes(taint)))
            .cloned()
            .collect()
    }

    /// What the node has, itself included (one of `nodes`).
    pub(super) fn capacity(&self) -> ResourceList {
        let mut capacity = self.resources(
            |node| node.status.as_ref()?.capacity.as_ref(),
            |claim| Some(&claim.status.as_ref()?.capacity),
        );
        capacity.insert(NODES, Quantity::from(1));
        capacity
    }

    /// What pods can use of the node.
    pub(super) fn allocatable(&self) -> ResourceList {
        self.resources(
            |node| node.status.as_ref()?.allocatable.as_ref(),
            |claim| Some(&claim.status.as_ref()?.allocatable),
        )
    }

    /// Until the node is initialised, what it does not report yet is taken from the claim.
    fn resources(
        &self,
        of_node: impl Fn(&'a Node) -> Option<&'a veneer_api::ResourceList>,
        of_claim: impl Fn(&'a NodeClaim) -> Option<&'a veneer_api::ResourceList>,
    ) -> ResourceList {
        // A list that cannot be read counts as nothing: no pod goes to such a node.
        let read = |list: Option<&veneer_api::ResourceList>| {
            list.and_then(|list| resource_list(list).ok()).unwrap_or_default()
        };
        let mut resources = read(self.node.and_then(of_node));
        if !self.is_initialized() {
            for (name, quantity) in read(self.claim.and_then(of_claim)).iter() {
                if resources.get(name).is_none_or(Quantity::is_zero) {
                    resources.insert(name, quantity.clone());
                }
            }
        }
        resources
    }
}

/// Taints that a node may lose by itself: those of its start, and those of readiness gates.
fn is_ephemeral(taint: &Taint) -> bool {
    is_of_start(taint) || taint.key.starts_with("readiness.k8s.io/")
}
