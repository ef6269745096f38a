//! NodeClaim: one node that was asked for, from the request to its end.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, Extra, NodeSelectorRequirementWithMinValues, ResourceList, condition, requirement,
    schema::{self, DURATION, DURATION_OR_NEVER, rules},
    taint,
};

/// The claim has an instance.
pub const CONDITION_LAUNCHED: &str = "Launched";
/// The instance has joined the cluster.
pub const CONDITION_REGISTERED: &str = "Registered";
/// The node has everything that the claim promised.
pub const CONDITION_INITIALIZED: &str = "Initialized";
/// The node has been quiet for long enough to be consolidated.
pub const CONDITION_CONSOLIDATABLE: &str = "Consolidatable";
/// The node differs from what its pool would launch today.
pub const CONDITION_DRIFTED: &str = "Drifted";
/// The pods have left the node.
pub const CONDITION_DRAINED: &str = "Drained";
/// The volumes have left the node.
pub const CONDITION_VOLUMES_DETACHED: &str = "VolumesDetached";
/// The instance is being terminated.
pub const CONDITION_INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// What the node reports agrees with its claim.
pub const CONDITION_CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// Why the node is being disrupted.
pub const CONDITION_DISRUPTION_REASON: &str = "DisruptionReason";

/// What the node must be like. It cannot change after creation.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "karpenter",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    doc = "One node that was asked for, from the request to its end.",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = r".metadata.labels.node\.kubernetes\.io/instance-type"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/capacity-type"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = r".metadata.labels.topology\.kubernetes\.io/zone"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "ImageID",
        type_ = "string",
        json_path = ".status.imageID",
        priority = 1
    ),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.providerID", priority = 1),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/nodepool",
        priority = 1
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.nodeClassRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drifted")].status"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    ("self == oldSelf", "spec: a NodeClaim cannot be changed; delete it and let its NodePool make a new one"),
])))]
pub struct NodeClaimSpec {
    /// How long the node may live, or `Never`.
    #[serde(default = "default_expire_after")]
    #[schemars(regex(pattern = DURATION_OR_NEVER))]
    pub expire_after: String,
    /// The object that holds the cloud provider's settings.
    pub node_class_ref: NodeClassReference,
    /// What the labels of the node must be.
    #[schemars(schema_with = "requirement::node_claim_requirements")]
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// What the node must have room for.
    #[serde(default, skip_serializing_if = "ResourceRequirements::is_empty")]
    pub resources: ResourceRequirements,
    /// Taints that something removes soon after the start; pods need not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "taint::taints")]
    pub startup_taints: Vec<Taint>,
    /// Taints of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "taint::taints")]
    pub taints: Vec<Taint>,
    /// How long pods may take to leave before the node is removed by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub termination_grace_period: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

pub(crate) fn default_expire_after() -> String {
    "720h".to_owned()
}

/// A reference to a node class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassReference {
    /// The API group of the node class, without a version: `karpenter.k8s.aws`.
    #[schemars(
        regex(pattern = "^[^/]*$"),
        extend("x-kubernetes-validations" = rules(&[("self != ''", "group: must not be empty; expected the API group of the node class, such as karpenter.k8s.aws")]))
    )]
    pub group: String,
    /// The kind of the node class: `EC2NodeClass`.
    #[schemars(extend("x-kubernetes-validations" = rules(&[("self != ''", "kind: must not be empty; expected the kind of the node class, such as EC2NodeClass")])))]
    pub kind: String,
    /// The name of the node class.
    #[schemars(extend("x-kubernetes-validations" = rules(&[("self != ''", "name: must not be empty; expected the name of a node class")])))]
    pub name: String,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// What a node must have room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The least amount of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub requests: BTreeMap<String, Quantity>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

impl ResourceRequirements {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.extra.is_empty()
    }
}

/// What became of the claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// What pods can use of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocatable: ResourceList,
    /// What the node has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub capacity: ResourceList,
    /// How far the claim has come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions_without_reason")]
    pub conditions: Vec<Condition>,
    /// The machine image of the node.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// When a pod last came or went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_pod_event_time: Option<Time>,
    /// The name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The name of the instance at the cloud provider.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
