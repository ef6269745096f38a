//! Requirements on node labels, as NodePools, NodeClaims and NodeOverlays write them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Extra,
    schema::{LABEL_KEY, rules},
    text_enum::text_enum,
};

text_enum! {
    /// How a requirement compares a label with its values.
    Operator {
        /// The label has one of the values.
        In = "In",
        /// The label is absent or has none of the values.
        NotIn = "NotIn",
        /// The label is there.
        Exists = "Exists",
        /// The label is not there.
        DoesNotExist = "DoesNotExist",
        /// The label is an integer above the value.
        Gt = "Gt",
        /// The label is an integer below the value.
        Lt = "Lt",
        /// The label is an integer at or above the value.
        Gte = "Gte",
        /// The label is an integer at or below the value.
        Lte = "Lte",
    }
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The label.
    pub key: String,
    /// How it compares with the values.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A requirement on one label that can also ask for a choice of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirementWithMinValues {
    /// The label.
    pub key: String,
    /// How it compares with the values.
    pub operator: Operator,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// The launch request must keep at least this many different values of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

const IN_NEEDS_VALUES: (&str, &str) = (
    "self.all(r, r.operator != 'In' || (has(r.values) && size(r.values) > 0))",
    "requirements: operator In needs at least one entry in values",
);
const NOT_IN_NEEDS_VALUES: (&str, &str) = (
    "self.all(r, r.operator != 'NotIn' || (has(r.values) && size(r.values) > 0))",
    "requirements: operator NotIn needs at least one entry in values",
);
const COMPARISONS_NEED_ONE_INTEGER: (&str, &str) = (
    "self.all(r, !(r.operator in ['Gt', 'Gte', 'Lt', 'Lte']) || (has(r.values) && size(r.values) == 1 && int(r.values[0]) >= 0))",
    "requirements: operators Gt, Gte, Lt and Lte need exactly one entry in values, an integer of 0 or more such as \"4\"",
);
const MIN_VALUES_WITHIN_VALUES: (&str, &str) = (
    "self.all(r, r.operator != 'In' || !has(r.minValues) || (has(r.values) && size(r.values) >= r.minValues))",
    "requirements: minValues of an In requirement must not exceed the number of entries in values",
);

/// The label domain of Karpenter is closed, except for the capacity type.
pub(crate) const KEY_OUTSIDE_KARPENTER_OR_CAPACITY_TYPE: (&str, &str) = (
    "self == 'karpenter.sh/capacity-type' || !self.split('/')[0].endsWith('karpenter.sh')",
    "key: of the domain karpenter.sh only karpenter.sh/capacity-type may be used here",
);
/// The same where a NodePool can be named too.
const KEY_OUTSIDE_KARPENTER_OR_KNOWN: (&str, &str) = (
    "self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || !self.split('/')[0].endsWith('karpenter.sh')",
    "key: of the domain karpenter.sh only karpenter.sh/capacity-type and karpenter.sh/nodepool may be used here",
);
const KEY_IS_NOT_HOSTNAME: (&str, &str) = (
    "self != 'kubernetes.io/hostname'",
    "key: kubernetes.io/hostname is not known before a node exists and cannot be required",
);

/// Requirements of a NodePool's template: the pool itself cannot be required.
pub(crate) fn node_pool_requirements(_: &mut SchemaGenerator) -> Schema {
    list(
        KEY_OUTSIDE_KARPENTER_OR_CAPACITY_TYPE,
        true,
        &[
            IN_NEEDS_VALUES,
            COMPARISONS_NEED_ONE_INTEGER,
            MIN_VALUES_WITHIN_VALUES,
        ],
    )
}

/// Requirements of a NodeClaim.
pub(crate) fn node_claim_requirements(_: &mut SchemaGenerator) -> Schema {
    list(
        KEY_OUTSIDE_KARPENTER_OR_KNOWN,
        true,
        &[
            IN_NEEDS_VALUES,
            COMPARISONS_NEED_ONE_INTEGER,
            MIN_VALUES_WITHIN_VALUES,
        ],
    )
}

/// Requirements of a NodeOverlay: no minimum of values, and NotIn needs values too.
pub(crate) fn node_overlay_requirements(_: &mut SchemaGenerator) -> Schema {
    list(
        KEY_OUTSIDE_KARPENTER_OR_KNOWN,
        false,
        &[IN_NEEDS_VALUES, NOT_IN_NEEDS_VALUES, COMPARISONS_NEED_ONE_INTEGER],
    )
}

fn list(key_rule: (&str, &str), with_min_values: bool, list_rules: &[(&str, &str)]) -> Schema {
    let mut properties = json!({
        "key": {
            "description": "The label that is required.",
            "type": "string",
            "maxLength": 316,
            "pattern": LABEL_KEY,
            "x-kubernetes-validations": rules(&[key_rule, KEY_IS_NOT_HOSTNAME]),
        },
        "operator": {
            "description": "How the label compares with the values.",
            "type": "string",
            "enum": Operator::KNOWN,
        },
        "values": {
            "description": "What the label is compared with: one or more for In and NotIn, exactly one integer for Gt, Gte, Lt and Lte, none for Exists and DoesNotExist.",
            "type": "array",
            "items": { "type": "string" },
            "x-kubernetes-list-type": "atomic",
        },
    });
    if with_min_values && let Some(properties) = properties.as_object_mut() {
        properties.insert(
            "minValues".to_owned(),
            json!({
                "description": "The launch request must keep at least this many different values of the label.",
                "type": "integer",
                "minimum": 1,
                "maximum": 50,
            }),
        );
    }
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": {
            "description": "A requirement on one label.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": properties,
        },
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": rules(list_rules),
    })
}
