//! Settings of the kubelet.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Extra,
    schema::{QUANTITY, rules},
};

/// Settings of the kubelet; what is absent is left to the kubelet and to the machine image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    (
        "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
        "imageGCHighThresholdPercent: must be above imageGCLowThresholdPercent",
    ),
    (
        "!has(self.evictionSoft) || self.evictionSoft.all(signal, has(self.evictionSoftGracePeriod) && signal in self.evictionSoftGracePeriod)",
        "evictionSoft: each signal needs an entry in evictionSoftGracePeriod",
    ),
    (
        "!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(signal, has(self.evictionSoft) && signal in self.evictionSoft)",
        "evictionSoftGracePeriod: each signal needs an entry in evictionSoft",
    ),
])))]
pub struct KubeletConfiguration {
    /// Addresses of the cluster's name servers.
    #[serde(default, rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    pub cluster_dns: Vec<String>,
    /// Whether processor limits are enforced.
    #[serde(default, rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
    /// Pods are evicted at once below these amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "eviction_hard")]
    pub eviction_hard: BTreeMap<String, String>,
    /// The longest grace, in seconds, when pods are evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<i32>,
    /// Pods are evicted after a while below these amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "eviction_soft")]
    pub eviction_soft: BTreeMap<String, String>,
    /// How long that while is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "eviction_soft_grace_period")]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Disk usage at which images are removed.
    #[serde(
        default,
        rename = "imageGCHighThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Disk usage at which that stops.
    #[serde(
        default,
        rename = "imageGCLowThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// What is kept for Kubernetes itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "kube_reserved")]
    pub kube_reserved: BTreeMap<String, String>,
    /// The most pods on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_pods: Option<i32>,
    /// The most pods for each processor core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pods_per_core: Option<i32>,
    /// What is kept for the operating system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "system_reserved")]
    pub system_reserved: BTreeMap<String, String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn eviction_hard(_: &mut SchemaGenerator) -> Schema {
    signals("evictionHard", Some(eviction_threshold()))
}

fn eviction_soft(_: &mut SchemaGenerator) -> Schema {
    signals("evictionSoft", Some(eviction_threshold()))
}

fn eviction_soft_grace_period(_: &mut SchemaGenerator) -> Schema {
    signals("evictionSoftGracePeriod", None)
}

fn kube_reserved(_: &mut SchemaGenerator) -> Schema {
    reserved("kubeReserved")
}

fn system_reserved(_: &mut SchemaGenerator) -> Schema {
    reserved("systemReserved")
}

/// A percentage with at most two decimals, a quantity, or nothing.
fn eviction_threshold() -> String {
    format!(r"^((\d{{1,2}}(\.\d{{1,2}})?|100(\.0{{1,2}})?)%)?$|{QUANTITY}")
}

fn signals(field: &str, pattern: Option<String>) -> Schema {
    let mut value = json_schema!({ "type": "string" });
    if let Some(pattern) = pattern {
        value.insert("pattern".to_owned(), pattern.into());
    }
    let message = format!(
        "{field}: expected the signals memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available only"
    );
    json_schema!({
        "type": "object",
        "additionalProperties": value,
        "x-kubernetes-validations": rules(&[(
            "self.all(signal, signal in ['memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree', 'pid.available'])",
            &message,
        )]),
    })
}

fn reserved(field: &str) -> Schema {
    let keys = format!("{field}: expected the resources cpu, memory, ephemeral-storage and pid only");
    let sign = format!("{field}: an amount must not be negative");
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "pattern": QUANTITY },
        "x-kubernetes-validations": rules(&[
            ("self.all(resource, resource in ['cpu', 'memory', 'ephemeral-storage', 'pid'])", &keys),
            ("self.all(resource, !self[resource].startsWith('-'))", &sign),
        ]),
    })
}
