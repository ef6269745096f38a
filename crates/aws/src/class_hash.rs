//! The fingerprint of an EC2NodeClass, equal to the one that Karpenter's AWS provider writes (version 5), so that nodes
//! of either are taken over without being replaced.
//!
//! Go's structures are hashed by field name with FNV-1, in the order in which they are declared; the tables here say
//! that order. Selectors are left out: what they find is compared instead. So is the family where it follows an alias.

use serde_json::Value;
use veneer_api::EC2NodeClass;
use veneer_engine::plan::parse_duration;
use veneer_engine::quantity::Quantity;

use crate::node_class::family;

/// How the fingerprint is computed.
pub const VERSION: &str = "v5";

/// What a value is in Go.
enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    /// Hashed as its canonical text.
    Quantity,
    Duration,
    List(&'static Kind),
    Map(&'static Kind),
    Struct(&'static Struct),
}

/// The name of a structure, and its fields: the name in Go, the name in JSON, and what it is.
struct Struct(&'static str, &'static [(&'static str, &'static str, Kind)]);

const SPEC: Struct = Struct(
    "EC2NodeClassSpec",
    &[
        (
            "PlacementGroupSelector",
            "placementGroupSelector",
            Kind::Struct(&Struct(
                "PlacementGroupSelector",
                &[("Name", "name", Kind::Text), ("ID", "id", Kind::Text)],
            )),
        ),
        ("AssociatePublicIPAddress", "associatePublicIPAddress", Kind::Bool),
        ("UserData", "userData", Kind::Text),
        ("Role", "role", Kind::Text),
        ("InstanceProfile", "instanceProfile", Kind::Text),
        ("Tags", "tags", Kind::Map(&Kind::Text)),
        ("Kubelet", "kubelet", Kind::Struct(&KUBELET)),
        (
            "BlockDeviceMappings",
            "blockDeviceMappings",
            Kind::List(&Kind::Struct(&Struct(
                "BlockDeviceMapping",
                &[
                    ("DeviceName", "deviceName", Kind::Text),
                    ("EBS", "ebs", Kind::Struct(&DISK)),
                    ("RootVolume", "rootVolume", Kind::Bool),
                ],
            ))),
        ),
        ("InstanceStorePolicy", "instanceStorePolicy", Kind::Text),
        (
            "NetworkInterfaces",
            "networkInterfaces",
            Kind::List(&Kind::Struct(&Struct(
                "NetworkInterface",
                &[
                    ("NetworkCardIndex", "networkCardIndex", Kind::Int32),
                    ("DeviceIndex", "deviceIndex", Kind::Int32),
                    ("InterfaceType", "interfaceType", Kind::Text),
                ],
            ))),
        ),
        ("DetailedMonitoring", "detailedMonitoring", Kind::Bool),
        (
            "MetadataOptions",
            "metadataOptions",
            Kind::Struct(&Struct(
                "MetadataOptions",
                &[
                    ("HTTPEndpoint", "httpEndpoint", Kind::Text),
                    ("HTTPProtocolIPv6", "httpProtocolIPv6", Kind::Text),
                    ("HTTPPutResponseHopLimit", "httpPutResponseHopLimit", Kind::Int64),
                    ("HTTPTokens", "httpTokens", Kind::Text),
                ],
            )),
        ),
        (
            "ConnectionTracking",
            "connectionTracking",
            Kind::Struct(&Struct(
                "ConnectionTracking",
                &[
                    ("TCPEstablishedTimeout", "tcpEstablishedTimeout", Kind::Int32),
                    ("UDPStreamTimeout", "udpStreamTimeout", Kind::Int32),
                    ("UDPTimeout", "udpTimeout", Kind::Int32),
                ],
            )),
        ),
        ("Context", "context", Kind::Text),
        (
            "CPUOptions",
            "cpuOptions",
            Kind::Struct(&Struct(
                "CPUOptions",
                &[("NestedVirtualization", "nestedVirtualization", Kind::Text)],
            )),
        ),
    ],
);

const KUBELET: Struct = Struct(
    "KubeletConfiguration",
    &[
        ("ClusterDNS", "clusterDNS", Kind::List(&Kind::Text)),
        ("MaxPods", "maxPods", Kind::Int32),
        ("PodsPerCore", "podsPerCore", Kind::Int32),
        ("SystemReserved", "systemReserved", Kind::Map(&Kind::Text)),
        ("KubeReserved", "kubeReserved", Kind::Map(&Kind::Text)),
        ("EvictionHard", "evictionHard", Kind::Map(&Kind::Text)),
        ("EvictionSoft", "evictionSoft", Kind::Map(&Kind::Text)),
        (
            "EvictionSoftGracePeriod",
            "evictionSoftGracePeriod",
            Kind::Map(&Kind::Duration),
        ),
        (
            "EvictionMaxPodGracePeriod",
            "evictionMaxPodGracePeriod",
            Kind::Int32,
        ),
        (
            "ImageGCHighThresholdPercent",
            "imageGCHighThresholdPercent",
            Kind::Int32,
        ),
        (
            "ImageGCLowThresholdPercent",
            "imageGCLowThresholdPercent",
            Kind::Int32,
        ),
        ("CPUCFSQuota", "cpuCFSQuota", Kind::Bool),
    ],
);

const DISK: Struct = Struct(
    "BlockDevice",
    &[
        ("DeleteOnTermination", "deleteOnTermination", Kind::Bool),
        ("Encrypted", "encrypted", Kind::Bool),
        ("IOPS", "iops", Kind::Int64),
        ("KMSKeyID", "kmsKeyID", Kind::Text),
        ("SnapshotID", "snapshotID", Kind::Text),
        ("Throughput", "throughput", Kind::Int64),
        (
            "VolumeInitializationRate",
            "volumeInitializationRate",
            Kind::Int32,
        ),
        ("VolumeSize", "volumeSize", Kind::Quantity),
        ("VolumeType", "volumeType", Kind::Text),
    ],
);

/// The fingerprint of what a class's nodes are made from.
#[must_use]
pub fn class_hash(class: &EC2NodeClass, ca_bundle: Option<&str>) -> String {
    let spec = class.spec.clone().unwrap_or_default();
    // A spec that cannot be written as JSON cannot have come from an API server.
    let value = serde_json::to_value(&spec).unwrap_or_default();
    // The three are hashed as a set.
    let whole = hash(&value, &Kind::Struct(&SPEC))
        ^ bytes(family(&spec).as_str().as_bytes())
        ^ bytes(ca_bundle.unwrap_or_default().as_bytes());
    whole.to_string()
}

fn hash(value: &Value, kind: &Kind) -> u64 {
    let text = value.as_str().unwrap_or_default();
    let number = value.as_i64().unwrap_or_default();
    match kind {
        Kind::Text => bytes(text.as_bytes()),
        Kind::Quantity => {
            let canonical = text.parse::<Quantity>().map(|amount| amount.to_string());
            bytes(canonical.as_deref().unwrap_or(text).as_bytes())
        }
        Kind::Bool => bytes(&[u8::from(value.as_bool().unwrap_or_default())]),
        Kind::Int32 => bytes(&i32::try_from(number).unwrap_or_default().to_le_bytes()),
        Kind::Int64 => bytes(&number.to_le_bytes()),
        Kind::Duration => {
            let nanoseconds = parse_duration(text).map_or(0, |length| length.as_nanos());
            let nanoseconds = i64::try_from(nanoseconds).unwrap_or_default();
            let name = bytes(b"Duration");
            if nanoseconds == 0 {
                return name;
            }
            finished(name ^ pair(bytes(b"Duration"), bytes(&nanoseconds.to_le_bytes())))
        }
        Kind::List(of) => {
            let items = value.as_array().into_iter().flatten();
            items.fold(0, |sum, item| sum ^ hash(item, of))
        }
        Kind::Map(of) => {
            let fields = value.as_object().into_iter().flatten();
            finished(fields.fold(0, |sum, (key, item)| {
                sum ^ pair(bytes(key.as_bytes()), hash(item, of))
            }))
        }
        Kind::Struct(Struct(name, fields)) => {
            let mut sum = bytes(name.as_bytes());
            for (go, json, kind) in *fields {
                if let Some(field) = value.get(json).filter(|field| !is_nothing(go, field)) {
                    sum = finished(sum ^ pair(bytes(go.as_bytes()), hash(field, kind)));
                }
            }
            sum
        }
    }
}

/// Whether Go has the zero value there: what is absent, and for fields that are no pointers also zero and empty.
fn is_nothing(go: &str, value: &Value) -> bool {
    match go {
        "Role" | "InterfaceType" => value.as_str() == Some(""),
        "NetworkCardIndex" | "DeviceIndex" => value.as_i64() == Some(0),
        "RootVolume" => value.as_bool() == Some(false),
        _ => value.is_null(),
    }
}

/// FNV-1.
fn bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    })
}

fn pair(a: u64, b: u64) -> u64 {
    let mut both = a.to_le_bytes().to_vec();
    both.extend(b.to_le_bytes());
    bytes(&both)
}

fn finished(sum: u64) -> u64 {
    bytes(&sum.to_le_bytes())
}
