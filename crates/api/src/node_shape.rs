//! What a spare node has room for, where an Overprovisioner says so itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Extra, ResourceList,
    schema::{self, rules},
};

/// A DNS label, as namespaces have it.
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain, as most objects are named.
const OBJECT_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What a spare has room for: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[(
    "[has(self.instanceTypes), has(self.resources), has(self.podTemplateRef), has(self.scalableRef)].filter(is, is).size() == 1",
    "nodeShape: set exactly one of instanceTypes, resources, podTemplateRef and scalableRef",
)])))]
pub struct NodeShape {
    /// The instance types that spares may be of. The cheapest that is available is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 100),
        inner(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_.]*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub instance_types: Vec<String>,
    /// What a spare has free for pods, beside its DaemonSets: `cpu: "4"`, `memory: 16Gi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        schema_with = "schema::resource_list",
        extend("minProperties" = 1, "maxProperties" = 20)
    )]
    pub resources: ResourceList,
    /// A PodTemplate; a spare has room for one pod of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<PodTemplateReference>,
    /// A workload; a spare has room for one of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableReference>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A PodTemplate of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateReference {
    /// The namespace of the PodTemplate.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: String,
    /// The name of the PodTemplate.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A workload of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[(
    "self.kind == 'Job' ? self.apiGroup == 'batch' : (self.apiGroup == 'apps' && self.kind in ['Deployment', 'StatefulSet'])",
    "scalableRef: expected a Deployment or StatefulSet of apiGroup apps, or a Job of apiGroup batch",
)])))]
pub struct ScalableReference {
    /// The API group of the workload: `apps` or `batch`.
    #[serde(default = "default_group")]
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// The kind of the workload: `Deployment`, `StatefulSet` or `Job`.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// The namespace of the workload.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub namespace: String,
    /// The name of the workload.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn default_group() -> String {
    "apps".to_owned()
}
