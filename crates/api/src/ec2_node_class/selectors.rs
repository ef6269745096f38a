//! Terms that select AWS resources by id, name or tags.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{Extra, schema::rules, text_enum::text_enum};

/// Tags to match; `*` as a value matches every value.
fn tags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 20,
        "additionalProperties": { "type": "string" },
        "x-kubernetes-validations": rules(&[(
            "self.all(key, key != '' && self[key] != '')",
            "tags: keys and values must not be empty; write '*' to match every value",
        )]),
    })
}

/// Selects machine images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// A family and a version of the images that EKS publishes: `al2023@latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 30),
        extend("x-kubernetes-validations" = rules(&[
            (
                "self.matches('^[a-zA-Z0-9]+@.+$')",
                "alias: expected family@version, such as al2023@latest",
            ),
            (
                "self.split('@')[0] in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",
                "alias: expected one of the families al2, al2023, bottlerocket, windows2019, windows2022, windows2025 before the @",
            ),
            (
                "!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || self.split('@')[1] == 'latest'",
                "alias: windows families know the version latest only",
            ),
        ]))
    )]
    pub alias: Option<String>,
    /// The id of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "ami-[0-9a-z]+"))]
    pub id: Option<String>,
    /// The name of an image, with wildcards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The account that owns the image, or `self`, or `amazon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The parameter of the Systems Manager that holds the id of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
    /// Tags of the image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "tags")]
    pub tags: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// Which instances a capacity reservation serves.
    InstanceMatchCriteria {
        /// Every instance that matches.
        Open = "open",
        /// Instances that name it.
        Targeted = "targeted",
    }
}

/// Selects capacity reservations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// The id of a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^cr-[0-9a-z]+$"))]
    pub id: Option<String>,
    /// Which instances the reservation serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
    /// The account that owns the reservation, twelve digits.
    #[serde(default, rename = "ownerID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]{12}$"))]
    pub owner_id: Option<String>,
    /// Tags of the reservation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "tags")]
    pub tags: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Selects security groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// The id of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "sg-[0-9a-z]+"))]
    pub id: Option<String>,
    /// The name of a group, which is not its Name tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags of the group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "tags")]
    pub tags: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Selects subnets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// The id of a subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "subnet-[0-9a-z]+"))]
    pub id: Option<String>,
    /// Tags of the subnet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "tags")]
    pub tags: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Selects one placement group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[(
    "has(self.name) != has(self.id)",
    "placementGroupSelector: set exactly one of name and id",
)])))]
pub struct PlacementGroupSelector {
    /// The id of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^pg-[0-9a-z]+$"))]
    pub id: Option<String>,
    /// The name of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
