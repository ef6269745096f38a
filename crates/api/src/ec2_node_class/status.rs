//! What the selectors of an EC2NodeClass found.

use k8s_openapi::{api::core::v1::NodeSelectorRequirement, apimachinery::pkg::apis::meta::v1::Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::selectors::InstanceMatchCriteria;
use crate::{Condition, Extra, condition, schema, text_enum::text_enum};

/// What the selectors found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ec2NodeClassStatus {
    /// The machine images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// The capacity reservations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Whether the class can be used, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions_as_plain_list")]
    pub conditions: Vec<Condition>,
    /// The instance profile in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// The security groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// The subnets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A machine image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// Whether its owner has retired it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which instance types can run it.
    #[schemars(schema_with = "ami_requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn ami_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "A requirement on one label.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "description": "The label.", "type": "string" },
                "operator": { "description": "How it compares with the values.", "type": "string" },
                "values": {
                    "description": "What it is compared with.",
                    "type": "array",
                    "items": { "type": "string" },
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}

text_enum! {
    /// The type of a capacity reservation.
    #[derive(Default)]
    ReservationType {
        /// Open-ended, or until a date.
        #[default]
        Standard = "default",
        /// A block for machine learning with a fixed end.
        CapacityBlock = "capacity-block",
    }
}

text_enum! {
    /// The state of a capacity reservation.
    #[derive(Default)]
    ReservationState {
        /// It can be used.
        #[default]
        Active = "active",
        /// It ends soon.
        Expiring = "expiring",
    }
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Its zone.
    pub availability_zone: String,
    /// When it ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub end_time: Option<Time>,
    /// Its id.
    #[schemars(regex(pattern = "^cr-[0-9a-z]+$"))]
    pub id: String,
    /// Which instances it serves.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// The instance type it holds.
    pub instance_type: String,
    /// Whether EC2 may take it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// The account that owns it, twelve digits.
    #[serde(rename = "ownerID")]
    #[schemars(regex(pattern = "^[0-9]{12}$"))]
    pub owner_id: String,
    /// Its type.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Its state.
    #[serde(default)]
    pub state: ReservationState,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// The id of its zone, which is the same in every account.
    #[serde(default, rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
