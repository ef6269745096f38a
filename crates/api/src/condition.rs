//! Status conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Extra, text_enum::text_enum};

text_enum! {
    /// Whether a condition holds.
    ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Nobody can tell yet.
        Unknown = "Unknown",
    }
}

/// One observation about an object, the newest of its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, in CamelCase: `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// Why, as one CamelCase word for programs; may be empty on a NodeClaim.
    #[serde(default)]
    pub reason: String,
    /// Why, as a sentence for people.
    #[serde(default)]
    pub message: String,
    /// The generation of the object that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Finds the condition of a type.
#[must_use]
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The conditions of our kinds and of NodePool and NodeOverlay: one per type, with a reason.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    one_per_type(list(json!({ "minLength": 1, "pattern": REASON }), true))
}

/// The conditions of NodeClaim, whose reason and message may be left out.
pub(crate) fn conditions_without_reason(_: &mut SchemaGenerator) -> Schema {
    one_per_type(list(json!({ "pattern": format!("^$|{REASON}") }), false))
}

/// The conditions of node classes, which Karpenter does not declare to be unique by type.
pub(crate) fn conditions_as_plain_list(_: &mut SchemaGenerator) -> Schema {
    list(json!({ "minLength": 1, "pattern": REASON }), true)
}

const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

fn list(reason_bounds: serde_json::Value, reason_required: bool) -> Schema {
    let mut reason = json_schema!({
        "description": "One CamelCase word that says why the status is what it is.",
        "type": "string",
        "maxLength": 1024,
    });
    if let serde_json::Value::Object(bounds) = reason_bounds {
        for (key, value) in bounds {
            reason.insert(key, value);
        }
    }
    let required: &[&str] = if reason_required {
        &["type", "status", "lastTransitionTime", "reason", "message"]
    } else {
        &["type", "status", "lastTransitionTime"]
    };
    json_schema!({
        "type": "array",
        "items": {
            "description": "One observation about the object.",
            "type": "object",
            "required": required,
            "properties": {
                "type": {
                    "description": "What is observed, in CamelCase.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": TYPE,
                },
                "status": {
                    "description": "Whether it holds: True, False or Unknown.",
                    "type": "string",
                    "enum": ConditionStatus::KNOWN,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": reason,
                "message": {
                    "description": "A sentence that says why the status is what it is.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The generation of the object that was observed.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

fn one_per_type(mut schema: Schema) -> Schema {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    schema
}
