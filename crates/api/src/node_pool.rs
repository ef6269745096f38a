//! NodePool: what nodes may be launched, how many, and when they are replaced.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Condition, Extra, NodeClassReference, NodeSelectorRequirementWithMinValues, ResourceList, condition,
    node_claim::default_expire_after,
    requirement,
    schema::{self, DURATION, DURATION_OR_NEVER, LABEL_VALUE, atomic_list, rules},
    taint,
    text_enum::text_enum,
};

/// The spec passed the checks that the CRD cannot make.
pub const CONDITION_VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// The node class exists and is ready.
pub const CONDITION_NODE_CLASS_READY: &str = "NodeClassReady";
/// Recent launches joined the cluster.
pub const CONDITION_NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

/// What nodes the pool launches.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "What nodes may be launched, how many, and when they are replaced.",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.template.spec.nodeClassRef.name"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu",
        priority = 1
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    (
        "has(self.replicas) == has(oldSelf.replicas)",
        "replicas: cannot be added to or removed from an existing NodePool; make a new NodePool instead",
    ),
    (
        "!has(self.replicas) || !has(self.limits) || self.limits.all(resource, resource == 'nodes')",
        "limits: with replicas only the limit 'nodes' is allowed",
    ),
    ("!has(self.replicas) || !has(self.weight)", "weight: not allowed together with replicas"),
])))]
pub struct NodePoolSpec {
    /// When nodes may be removed or replaced.
    #[serde(default)]
    pub disruption: Disruption,
    /// What the nodes of the pool may have in total; with `replicas`, only `nodes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub limits: ResourceList,
    /// A fixed number of nodes, kept whatever the pods need. Once set it stays, once absent too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
    /// What each node is like.
    pub template: NodeClaimTemplate,
    /// Pools with a higher weight are tried first; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// Which nodes may be consolidated.
    ConsolidationPolicy {
        /// Nodes without pods.
        WhenEmpty = "WhenEmpty",
        /// Nodes without pods, and nodes whose pods fit elsewhere for less.
        WhenEmptyOrUnderutilized = "WhenEmptyOrUnderutilized",
        /// As before, where the saving is worth the disturbance.
        Balanced = "Balanced",
    }
}

text_enum! {
    /// Why a node is disrupted.
    DisruptionReason {
        /// Its pods fit elsewhere for less.
        Underutilized = "Underutilized",
        /// It has no pods.
        Empty = "Empty",
        /// It differs from what its pool would launch today.
        Drifted = "Drifted",
    }
}

/// When nodes may be removed or replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How many nodes may go at once; the strictest budget in force counts. An empty list sets no bound.
    #[serde(default = "default_budgets")]
    #[schemars(
        length(max = 50),
        transform = atomic_list,
        extend("x-kubernetes-validations" = rules(&[(
            "self.all(budget, has(budget.schedule) == has(budget.duration))",
            "budgets: schedule and duration go together; set both or neither",
        )]))
    )]
    pub budgets: Vec<Budget>,
    /// How long a node must have been quiet before it is consolidated, or `Never`.
    #[schemars(regex(pattern = DURATION_OR_NEVER))]
    pub consolidate_after: String,
    /// Which nodes may be consolidated.
    #[serde(default = "default_consolidation_policy")]
    pub consolidation_policy: ConsolidationPolicy,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            budgets: default_budgets(),
            consolidate_after: "0s".to_owned(),
            consolidation_policy: default_consolidation_policy(),
            extra: Extra::new(),
        }
    }
}

fn default_consolidation_policy() -> ConsolidationPolicy {
    ConsolidationPolicy::WhenEmptyOrUnderutilized
}

/// How many nodes may be disrupted at once, and when that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// A number of nodes, or a percentage of the pool's nodes.
    #[serde(default = "default_budget_nodes")]
    #[schemars(regex(pattern = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub nodes: String,
    /// When the budget comes into force: five cron fields in UTC, or a word such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = r"^@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\s(.+)\s(.+)\s(.+)\s(.+)$"
    ))]
    pub schedule: Option<String>,
    /// How long it stays in force, in hours and minutes: `8h`, `1h30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+[hm]|[0-9]+h[0-9]+m)(0s)?$"))]
    pub duration: Option<String>,
    /// The reasons that the budget bounds; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn default_budget_nodes() -> String {
    "10%".to_owned()
}

fn default_budgets() -> Vec<Budget> {
    vec![Budget {
        nodes: default_budget_nodes(),
        schedule: None,
        duration: None,
        reasons: None,
        extra: Extra::new(),
    }]
}

/// What each node of the pool is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the node.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// The rest of the node.
    pub spec: NodeClaimTemplateSpec,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Labels and annotations of the pool's nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Annotations of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the node; requirements of pods and overlays can use them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "template_labels")]
    pub labels: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

impl TemplateMetadata {
    fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.extra.is_empty()
    }
}

fn template_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": rules(&[
            (
                "self.all(key, key == 'karpenter.sh/capacity-type' || !key.split('/')[0].endsWith('karpenter.sh'))",
                "labels: of the domain karpenter.sh only karpenter.sh/capacity-type may be set here",
            ),
            (
                "!('kubernetes.io/hostname' in self)",
                "labels: kubernetes.io/hostname is set by the node itself",
            ),
        ]),
    })
}

/// What each node must be like, apart from its labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// How long a node may live, or `Never`.
    #[serde(default = "default_expire_after")]
    #[schemars(regex(pattern = DURATION_OR_NEVER))]
    pub expire_after: String,
    /// The object that holds the cloud provider's settings. Its group and kind cannot change.
    #[schemars(extend("x-kubernetes-validations" = rules(&[
        ("self.group == oldSelf.group", "nodeClassRef.group: cannot be changed; make a new NodePool instead"),
        ("self.kind == oldSelf.kind", "nodeClassRef.kind: cannot be changed; make a new NodePool instead"),
    ])))]
    pub node_class_ref: NodeClassReference,
    /// What the labels of the nodes must be.
    #[schemars(schema_with = "requirement::node_pool_requirements")]
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// Taints that something removes soon after the start; pods need not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "taint::taints")]
    pub startup_taints: Vec<Taint>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "taint::taints")]
    pub taints: Vec<Taint>,
    /// How long pods may take to leave before a node is removed by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub termination_grace_period: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// What the pool has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Whether the pool can launch nodes, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the node class that the conditions speak about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// The number of nodes.
    #[serde(default)]
    pub nodes: i64,
    /// What the nodes have in total.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: ResourceList,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
