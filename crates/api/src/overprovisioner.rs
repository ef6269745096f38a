//! Overprovisioner: spare nodes that are ready before they are needed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Condition, Extra, NodeShape, condition, cron,
    schema::{self, DURATION, UNSIGNED_DECIMAL, rules},
    text_enum::text_enum,
};

/// The wanted number of spares is reachable with the object as it is.
pub const CONDITION_SIZING_VALID: &str = "SizingValid";
/// All of the target pools exist.
pub const CONDITION_TARGETS_FOUND: &str = "TargetsFound";

/// How many spare nodes are kept, of which pools, and in which state.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1beta1",
    kind = "Overprovisioner",
    plural = "overprovisioners",
    shortname = "overprov",
    category = "karpenter",
    status = "OverprovisionerStatus",
    derive = "PartialEq",
    doc = "Spare nodes that are ready before they are needed.",
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "In Use", type_ = "integer", json_path = ".status.inUse"),
    printcolumn(
        name = "Next Override",
        type_ = "string",
        json_path = ".status.nextOverride.start"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.strategy",
        priority = 1
    ),
    printcolumn(
        name = "NodePools",
        type_ = "string",
        json_path = ".spec.targetNodePools",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OverprovisionerSpec {
    /// The NodePools that get spares. The sizing applies to each of them by itself.
    #[schemars(
        length(min = 1, max = 100),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub target_node_pools: Vec<String>,
    /// What a spare does while it waits: run, or cost only its disks.
    #[serde(default)]
    pub state: SpareState,
    /// What happens when a spare is used: another one is made, or not.
    #[serde(default)]
    pub strategy: SpareStrategy,
    /// How many spares each pool has.
    pub sizing: Sizing,
    /// Other sizings at certain times. The first one in force counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), transform = schema::atomic_list)]
    pub scheduled_overrides: Vec<ScheduledOverride>,
    /// What each spare has room for. Without it, spares are made for the pods that the pool has or had lately; with none known, for
    /// the largest pod template of the workloads that could land in the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_shape: Option<NodeShape>,
    /// What all spares of this object may cost per hour at most, in dollars: `12.50`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = UNSIGNED_DECIMAL))]
    pub max_hourly_spend: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

text_enum! {
    /// What a spare node does while it waits.
    #[derive(Default)]
    SpareState {
        /// It runs and has joined the cluster, with a taint that keeps pods away.
        #[default]
        Running = "Running",
        /// It is stopped and costs its disks.
        Stopped = "Stopped",
        /// It is stopped with its memory on disk.
        Hibernated = "Hibernated",
    }
}

text_enum! {
    /// What happens when a spare is used.
    #[derive(Default)]
    SpareStrategy {
        /// Another one takes its place at once.
        #[default]
        KeepEmpty = "KeepEmpty",
        /// It counts until it goes away.
        KeepMinimum = "KeepMinimum",
    }
}

/// A number of spares: exactly one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[(
    "has(self.count) != has(self.percentage)",
    "sizing: set exactly one of count (a number of nodes) and percentage (0 to 100)",
)])))]
pub struct Sizing {
    /// A number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub count: Option<i32>,
    /// A percentage of the pool's nodes that are not spares, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percentage: Option<i32>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// Another sizing from each moment of a schedule, for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledOverride {
    /// When it starts: five cron fields, names of days and months allowed: `0 9 * * mon-fri`.
    #[schemars(
        length(max = 200),
        extend("x-kubernetes-validations" = rules(&[(
            &cron::rule(),
            "schedule: expected five cron fields (minute hour day-of-month month day-of-week), such as \"0 9 * * mon-fri\"",
        )]))
    )]
    pub schedule: String,
    /// How long it stays in force: `8h`, `1h30m`.
    #[schemars(
        length(max = 32),
        regex(pattern = DURATION),
        extend("x-kubernetes-validations" = rules(&[(
            "duration(self) > duration('0s') && duration(self) <= duration('8784h')",
            "duration: expected more than 0 and at most 8784h (366 days), such as \"8h\" or \"1h30m\"",
        )]))
    )]
    pub duration: String,
    /// The time zone of the schedule, by its IANA name: `Europe/Berlin`.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: String,
    /// How many spares each pool has meanwhile.
    pub sizing: Sizing,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

/// The spares as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverprovisionerStatus {
    /// Whether the spares are as wanted, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::conditions")]
    pub conditions: Vec<Condition>,
    /// How many spares are wanted, over all pools.
    #[serde(default)]
    pub desired: i32,
    /// How many of them can take pods: running, or stopped and ready to start.
    #[serde(default)]
    pub ready: i32,
    /// How many former spares hold pods.
    #[serde(default)]
    pub in_use: i32,
    /// The same for each pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub node_pools: Vec<PoolSpares>,
    /// The override in force, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_override: Option<OverrideWindow>,
    /// The override that comes next, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_override: Option<OverrideWindow>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// The spares of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpares {
    /// The name of the NodePool.
    pub name: String,
    /// How many are wanted.
    #[serde(default)]
    pub desired: i32,
    /// How many can take pods at once.
    #[serde(default)]
    pub ready: i32,
    /// How many are launching or starting.
    #[serde(default)]
    pub warming: i32,
    /// How many are stopped or hibernated.
    #[serde(default)]
    pub stopped: i32,
    /// How many former spares hold pods.
    #[serde(default)]
    pub in_use: i32,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// One time during which an override is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideWindow {
    /// Its place in the list of overrides, from 0.
    pub index: i32,
    /// Its schedule.
    pub schedule: String,
    /// From when.
    #[schemars(schema_with = "schema::time")]
    pub start: Time,
    /// Until when.
    #[schemars(schema_with = "schema::time")]
    pub end: Time,
    /// Fields that this release does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
