//! NodeOverlay: other prices and more resources for the instance types that match.
//!
//! The type reads two generations of manifests. `price`, `priceAdjustment`, `capacity` and `requirements` are what
//! Karpenter ships. `selector` and `pricePercent` belong to an earlier draft: files may hold them, no CRD does.
//! `overhead` and `overheadPercent` belong to that draft too and are part of our CRD.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Condition, Extra, NodeSelectorRequirement, ResourceList, condition, requirement,
    schema::{self, UNSIGNED_DECIMAL, rules},
};

/// The overlay passed the checks that the CRD cannot make, and conflicts with no other.
pub const CONDITION_VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// The overlay changes at least one offering. It does not count for `Ready`.
pub const CONDITION_APPLIED: &str = "Applied";

/// A sign and a number, or a sign and a percentage that takes away at most everything.
pub(crate) const PRICE_ADJUSTMENT: &str = r"^([+-]\d*\.?\d+|\+\d*\.?\d+%|-\d{1,2}(\.\d+)?%|-100%)$";

/// What changes, and for which instance types.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1alpha1",
    kind = "NodeOverlay",
    plural = "nodeoverlays",
    shortname = "overlays",
    category = "karpenter",
    status = "NodeOverlayStatus",
    derive = "PartialEq",
    doc = "Other prices and more resources for the instance types that match.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    (
        "!has(self.price) || !has(self.priceAdjustment)",
        "price and priceAdjustment exclude each other; set one of them",
    ),
    (
        "!has(self.overhead) || !has(self.overheadPercent) || self.overhead.all(resource, !(resource in self.overheadPercent))",
        "overhead and overheadPercent must not name the same resource",
    ),
])))]
pub struct NodeOverlaySpec {
    /// Which offerings of which instance types match; an empty list matches all of them.
    #[serde(default)]
    #[schemars(schema_with = "requirement::node_overlay_requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// The price per hour, in place of the one that is known: `5.00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = UNSIGNED_DECIMAL))]
    pub price: Option<String>,
    /// A change of the price, with its sign: `+5.00`, `-7.50`, `+15%`, `-10%`, down to `-100%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = PRICE_ADJUSTMENT))]
    pub price_adjustment: Option<String>,
    /// Resources that nodes of these types have beside what is known, such as `smarter-devices/fuse` or `hugepages-2Mi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        schema_with = "schema::resource_list",
        extend("x-kubernetes-validations" = rules(&[(
            "self.all(resource, !(resource in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
            "capacity: cpu, memory, ephemeral-storage and pods come from the instance type and cannot be set; expected extended resources or hugepages",
        )]))
    )]
    pub capacity: ResourceList,
    /// Of two overlays that change the same thing, the one with the higher weight wins; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub weight: Option<i32>,
    /// CPU or memory that pods cannot use, beside what is known. Karpenter's CRD does not have this field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        schema_with = "schema::resource_list",
        extend("x-kubernetes-validations" = rules(&[(
            "self.all(resource, resource in ['cpu', 'memory'])",
            "overhead: only cpu and memory can be set",
        )]))
    )]
    pub overhead: ResourceList,
    /// The same as a percentage of the capacity, 0 to 100: `5` or `"7.5"`. Karpenter's CRD does not have this field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "overhead_percent")]
    pub overhead_percent: BTreeMap<String, IntOrString>,
    /// The earlier draft's way to write requirements; only files hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub selector: Option<LabelSelector>,
    /// The earlier draft's way to write a price adjustment: 90 means `-10%`; only files hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub price_percent: Option<i64>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn overhead_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 2,
        "additionalProperties": {
            "minimum": 0,
            "maximum": 100,
            "maxLength": 32,
            "pattern": r"^(\d{1,2}(\.\d+)?|100(\.0+)?)$",
            "x-kubernetes-int-or-string": true,
        },
        "x-kubernetes-validations": rules(&[(
            "self.all(resource, resource in ['cpu', 'memory'])",
            "overheadPercent: only cpu and memory can be set",
        )]),
    })
}

/// What the overlay does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlayStatus {
    /// Whether the overlay is in force, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
