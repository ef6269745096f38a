//! Disks, network interfaces, processors and the metadata service of instances.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{Extra, schema::rules, text_enum::text_enum};

/// A whole number of `Gi` (to 59000), `G` (to 64000), `Ti` (to 58) or `T` (to 64).
const VOLUME_SIZE: &str = "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-5][0-7]|58)?Ti|([1-9]|[1-5][0-9]|6[0-4])?T)$";

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// The name of the device: `/dev/xvda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The volume behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether this disk holds the kubelet's root directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// The type of an EBS volume.
    VolumeType {
        /// Magnetic.
        Standard = "standard",
        /// Provisioned IOPS, first generation.
        Io1 = "io1",
        /// Provisioned IOPS, second generation.
        Io2 = "io2",
        /// General purpose, second generation.
        Gp2 = "gp2",
        /// Cold hard disk.
        Sc1 = "sc1",
        /// Hard disk for throughput.
        St1 = "st1",
        /// General purpose, third generation.
        Gp3 = "gp3",
    }
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    ("has(self.snapshotID) || has(self.volumeSize)", "ebs: set snapshotID or volumeSize or both"),
    (
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "ebs: volumeInitializationRate needs a snapshotID to read from",
    ),
])))]
pub struct BlockDevice {
    /// Whether the volume goes away with its instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// The key that encrypts the volume.
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// The snapshot that the volume starts from.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Mebibytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// Mebibytes per second at which the snapshot is read ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 300))]
    pub volume_initialization_rate: Option<i32>,
    /// The size: `100Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "volume_size")]
    pub volume_size: Option<Quantity>,
    /// The type of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<VolumeType>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn volume_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": VOLUME_SIZE })
}

/// How long EC2 remembers idle connections, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[(
    "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    "connectionTracking: set at least one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout",
)])))]
pub struct ConnectionTracking {
    /// Idle TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 432000))]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 180))]
    pub udp_stream_timeout: Option<i32>,
    /// UDP flows with one exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 60))]
    pub udp_timeout: Option<i32>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// Whether something is on.
    Toggle {
        /// On.
        Enabled = "enabled",
        /// Off.
        Disabled = "disabled",
    }
}

/// Options of the processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether instances can run virtual machines themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<Toggle>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// Whether the metadata service asks for a session token.
    HttpTokens {
        /// It does.
        Required = "required",
        /// It does not insist.
        Optional = "optional",
    }
}

/// How instances reach the metadata service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether the service can be reached.
    #[serde(default = "enabled")]
    pub http_endpoint: Toggle,
    /// Whether it can be reached over IPv6.
    #[serde(default = "disabled", rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Toggle,
    /// How many hops a token may travel; pods need 2.
    #[serde(default = "one_hop")]
    #[schemars(range(min = 1, max = 64))]
    pub http_put_response_hop_limit: i64,
    /// Whether a session token is needed.
    #[serde(default = "tokens_required")]
    pub http_tokens: HttpTokens,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: enabled(),
            http_protocol_ipv6: disabled(),
            http_put_response_hop_limit: one_hop(),
            http_tokens: tokens_required(),
            extra: Extra::new(),
        }
    }
}

fn enabled() -> Toggle {
    Toggle::Enabled
}

fn disabled() -> Toggle {
    Toggle::Disabled
}

fn one_hop() -> i64 {
    1
}

fn tokens_required() -> HttpTokens {
    HttpTokens::Required
}

text_enum! {
    /// The type of a network interface.
    InterfaceType {
        /// An ordinary one.
        Interface = "interface",
        /// One for the Elastic Fabric Adapter alone.
        EfaOnly = "efa-only",
    }
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The place of the interface on its card.
    #[schemars(range(min = 0))]
    pub device_index: i32,
    /// The type of the interface.
    pub interface_type: InterfaceType,
    /// The card that the interface is on.
    #[schemars(range(min = 0))]
    pub network_card_index: i32,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
