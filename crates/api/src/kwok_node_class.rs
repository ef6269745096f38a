//! KWOKNodeClass: settings of the KWOK provider, whose nodes exist in the API server only.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Condition, Extra, condition, root::optional_spec_root, schema::DURATION};

/// What the nodes are like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.kwok.sh",
    version = "v1alpha1",
    kind = "KWOKNodeClass",
    root = "KwokNodeClassDefinition",
    plural = "kwoknodeclasses",
    shortname = "kwoknc",
    shortname = "kwokncs",
    category = "karpenter",
    status = "KwokNodeClassStatus",
    doc = "Settings of the KWOK provider, whose nodes exist in the API server only."
)]
#[serde(rename_all = "camelCase")]
pub struct KwokNodeClassSpec {
    /// How long a node takes to join the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub node_registration_delay: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Whether the class can be used. A new class is ready at once, since nothing has to be looked up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = json!({ "conditions": [{
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2024-01-01T01:01:01Z",
}] })))]
pub struct KwokNodeClassStatus {
    /// Whether the class can be used, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions_as_plain_list")]
    pub conditions: Vec<Condition>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

optional_spec_root! {
    /// Settings of the KWOK provider, whose nodes exist in the API server only.
    KWOKNodeClass(KwokNodeClassDefinition) { spec: KwokNodeClassSpec, status: KwokNodeClassStatus }
}
