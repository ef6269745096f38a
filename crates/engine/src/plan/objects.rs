//! Small questions about objects that several decisions ask.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use veneer_api::labels::karpenter;
use veneer_api::{ConditionStatus, NodeClaim, NodePoolStatus, Pod, find_condition};

use crate::resources::ResourceList;

/// The name, or nothing.
#[must_use]
pub fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// The value of a label.
#[must_use]
pub fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(key))
        .map(String::as_str)
}

/// Whether somebody has deleted it.
#[must_use]
pub fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// The NodePool that a claim or a node belongs to.
#[must_use]
pub fn node_pool_of(metadata: &ObjectMeta) -> &str {
    label(metadata, karpenter::NODEPOOL).unwrap_or_default()
}

/// The provider's name of a claim's instance, once it has one.
#[must_use]
pub fn provider_id(claim: &NodeClaim) -> Option<&str> {
    claim
        .status
        .as_ref()
        .and_then(|status| status.provider_id.as_deref())
        .filter(|id| !id.is_empty())
}

/// Whether a condition of a claim is true.
#[must_use]
pub fn condition_true(claim: &NodeClaim, type_: &str) -> bool {
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find_condition(conditions, type_).is_some_and(|one| one.status == ConditionStatus::True)
}

/// Whether two taints are the same but for their value.
#[must_use]
pub fn same_taint(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// Whether a pod has ended.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether a pod belongs to a DaemonSet.
#[must_use]
pub fn is_daemon_pod(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|owner| owner.api_version == "apps/v1" && owner.kind == "DaemonSet")
}

/// The uid of the controller that an object belongs to.
#[must_use]
pub fn controller_of(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    Some(&controller.uid)
}

/// Amounts as objects state them.
#[must_use]
pub fn api_list(list: &ResourceList) -> veneer_api::ResourceList {
    list.iter()
        .map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_string())))
        .collect()
}

/// A pool's status after a write, as an API server merges it: resources that are not named stay as they were.
#[must_use]
pub fn merged_pool_status(known: Option<NodePoolStatus>, written: &NodePoolStatus) -> NodePoolStatus {
    let mut merged = written.clone();
    for (resource, quantity) in known.map(|known| known.resources).unwrap_or_default() {
        merged.resources.entry(resource).or_insert(quantity);
    }
    merged
}
