//! What a node gets from its claim, and when it counts as complete.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use veneer_api::NodeClaim;
use veneer_api::labels::karpenter;

use super::is_ready;
use crate::plan::{NodeChange, is_spare_taint, is_used_spare, label, name, same_taint};
use crate::quantity::Quantity;
use crate::taints::{describe, is_not_ready, is_of_start};

/// How far a registered node is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Initialisation {
    /// Something is missing.
    Waits {
        /// One CamelCase word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// It is ready, and nobody has taken off the taint that it had until then.
    Untaint(NodeChange),
    /// Everything is there; the label is not.
    Label(NodeChange),
    /// The label is there too.
    Done,
}

pub(super) fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_unregistered(taint: &Taint) -> bool {
    taint.key == karpenter::UNREGISTERED_TAINT && taint.effect == "NoExecute"
}

/// What is still missing on a node for its claim to be registered.
pub(super) fn registration(claim: &NodeClaim, node: &Node) -> Option<NodeChange> {
    // Once the label is there, others may change the node.
    if label(&node.metadata, karpenter::REGISTERED) == Some("true") {
        return None;
    }
    let mut change = NodeChange {
        labels: claim.metadata.labels.clone().unwrap_or_default(),
        annotations: claim.metadata.annotations.clone().unwrap_or_default(),
        ..NodeChange::default()
    };
    change
        .labels
        .insert(karpenter::REGISTERED.to_owned(), "true".to_owned());
    let mut wanted: Vec<Taint> = taints(node)
        .iter()
        .filter(|taint| !is_unregistered(taint))
        .cloned()
        .collect();
    if label(&node.metadata, karpenter::DO_NOT_SYNC_TAINTS) != Some("true") {
        // A spare that was given to pods before it joined is open from the start.
        let is_used = is_used_spare(&claim.metadata);
        for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            if is_used && is_spare_taint(taint) {
                continue;
            }
            if !wanted.iter().any(|known| same_taint(known, taint)) {
                wanted.push(taint.clone());
            }
        }
    }
    change.taints = Some(wanted);
    let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers
        .iter()
        .any(|one| one == karpenter::TERMINATION_FINALIZER)
    {
        finalizers.push(karpenter::TERMINATION_FINALIZER.to_owned());
    }
    change.finalizers = Some(finalizers);
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let mut owners = node.metadata.owner_references.clone().unwrap_or_default();
    if !owners.iter().any(|owner| owner.uid == uid) {
        owners.push(OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            name: name(&claim.metadata).to_owned(),
            uid,
            block_owner_deletion: Some(true),
            controller: None,
        });
    }
    change.owner_references = Some(owners);
    Some(change)
}

/// Whether a registered node has everything that its claim promised.
pub(super) fn initialisation(claim: &NodeClaim, node: &Node) -> Initialisation {
    let waits = |reason, message| Initialisation::Waits { reason, message };
    if !is_ready(node) {
        return waits("NodeNotReady", "Node status is NotReady".to_owned());
    }
    // kube-controller-manager takes it off, too, but at its default request rate it opens about five nodes a second, while pods
    // wait for all of them.
    if taints(node).iter().any(is_not_ready) {
        let others = taints(node).iter().filter(|taint| !is_not_ready(taint));
        return Initialisation::Untaint(NodeChange {
            taints: Some(others.cloned().collect()),
            ..NodeChange::default()
        });
    }
    let startup = taints(node).iter().find(|taint| {
        let mut startup = claim.spec.startup_taints.iter();
        startup.any(|one| same_taint(one, taint))
    });
    if let Some(taint) = startup {
        let message = format!(
            "StartupTaint {:?} still exists; what it waits for has to remove it",
            describe(taint)
        );
        return waits("StartupTaintsExist", message);
    }
    if let Some(taint) = taints(node).iter().find(|taint| is_of_start(taint)) {
        let message = format!("KnownEphemeralTaint {:?} still exists", describe(taint));
        return waits("KnownEphemeralTaintsExist", message);
    }
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    let is_there = |resource: &str| {
        let amount = allocatable.and_then(|list| list.get(resource));
        amount
            .and_then(|text| text.0.parse::<Quantity>().ok())
            .is_some_and(|amount| !amount.is_zero())
    };
    let missing = claim.spec.resources.requests.iter().find(|(resource, text)| {
        let is_wanted = text.0.parse::<Quantity>().is_ok_and(|amount| !amount.is_zero());
        is_wanted && !is_there(resource)
    });
    if let Some((resource, _)) = missing {
        let message = format!("Resource {resource:?} was requested but not registered");
        return waits("ResourceNotRegistered", message);
    }
    if label(&node.metadata, karpenter::INITIALIZED) == Some("true") {
        return Initialisation::Done;
    }
    let mut change = NodeChange::default();
    change
        .labels
        .insert(karpenter::INITIALIZED.to_owned(), "true".to_owned());
    Initialisation::Label(change)
}
