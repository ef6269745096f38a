//! Scenarios: what a world contains and what happens in it, as documented YAML (the guide's page on the embedded world).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelector, PodTemplateSpec};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use veneer_api::yaml;
use veneer_engine::plan::parse_duration;

/// The scenario that runs when none is named.
pub const DEFAULT: &str = include_str!("../../../examples/scenarios/day.yaml");

/// Why a scenario or a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

/// A time span: `90s`, `1h30m`, `7d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub SignedDuration);

impl Span {
    /// Seconds.
    #[must_use]
    pub const fn seconds(seconds: i64) -> Self {
        Self(SignedDuration::from_secs(seconds))
    }

    /// Hours.
    #[must_use]
    pub fn hours(self) -> f64 {
        self.0.as_secs_f64() / 3600.0
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("{text:?} is no time span; expected for instance 90s, 1h30m or 7d");
        let (days, rest) = match text.split_once('d') {
            Some((days, rest)) => (days.parse::<i64>().map_err(|_| fault())?, rest),
            None => (0, text),
        };
        let rest = if rest.is_empty() && text.contains('d') {
            SignedDuration::ZERO
        } else {
            parse_duration(rest).ok_or_else(fault)?
        };
        let days = SignedDuration::from_hours(days.checked_mul(24).ok_or_else(fault)?);
        days.checked_add(rest).map(Self).ok_or_else(fault)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 86_400, 'd'),
            (seconds / 3600 % 24, 'h'),
            (seconds / 60 % 60, 'm'),
            (seconds % 60, 's'),
        ];
        let mut parts = parts.iter().filter(|(count, _)| *count != 0).peekable();
        if parts.peek().is_none() {
            return f.write_str("0s");
        }
        parts.try_for_each(|(count, unit)| write!(f, "{count}{unit}"))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Everything that a world starts from and that happens in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows, for people.
    #[serde(default)]
    pub description: String,
    /// What random things follow from.
    #[serde(default = "one")]
    pub seed: u64,
    /// When it begins.
    #[serde(default = "monday")]
    pub start: Timestamp,
    /// How long it lasts.
    #[serde(default = "day")]
    pub duration: Span,
    /// The region whose instance types exist.
    #[serde(default = "us_west_2")]
    pub region: String,
    /// Only these instance families exist; all of them if there are none.
    #[serde(default)]
    pub families: Vec<String>,
    /// How often the load changes.
    #[serde(default = "five_minutes")]
    pub load_interval: Span,
    /// NodePools, NodeOverlays, DaemonSets, PodDisruptionBudgets and Overprovisioners that exist from the start.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// What runs.
    #[serde(default)]
    pub workloads: Vec<Workload>,
    /// How the cloud behaves.
    #[serde(default)]
    pub cloud: Cloud,
    /// How the scheduler behaves.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// What is paid for already.
    #[serde(default)]
    pub commitments: Commitments,
    /// What steering does.
    #[serde(default)]
    pub steering: Steering,
    /// What happens when.
    #[serde(default)]
    pub events: Vec<Scripted>,
}

/// Pods that come and go.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// What a pod asks for, where the template says nothing more.
    #[serde(default)]
    pub requests: BTreeMap<String, String>,
    /// The pod, for everything that `requests` cannot say.
    #[serde(default)]
    pub template: Option<PodTemplateSpec>,
    /// A Deployment: how many pods, by the hour.
    #[serde(default)]
    pub replicas: Option<Replicas>,
    /// A source of Jobs of one pod each.
    #[serde(default)]
    pub jobs: Option<Jobs>,
}

/// A number of pods that follows the day.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Replicas {
    /// At the quietest hour.
    #[serde(default)]
    pub min: u32,
    /// At the busiest hour; the same as `min` if absent.
    #[serde(default)]
    pub max: Option<u32>,
    /// The busiest hour of the day, in UTC.
    #[serde(default = "afternoon")]
    pub peak_hour: f64,
    /// How far the number strays from the curve, as a share.
    #[serde(default)]
    pub noise: f64,
    /// What is left of the curve above `min` on Saturday and Sunday, as a share.
    #[serde(default = "whole")]
    pub weekend: f64,
    /// What was measured, instead of all this: how many pods from which time after the start on.
    #[serde(default)]
    pub trace: Vec<(Span, u32)>,
}

/// Jobs that arrive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Jobs {
    /// How many per hour on average.
    pub per_hour: f64,
    /// How long one runs: the shortest and the longest.
    pub runs: (Span, Span),
    /// The hours of the day in which they arrive, in UTC; all day if absent. May cross midnight.
    #[serde(default)]
    pub between: Option<(f64, f64)>,
}

/// How the cloud behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Cloud {
    /// How long the answer to a launch takes.
    pub launch: Span,
    /// How long an instance takes until its node is ready: the shortest and the longest.
    pub boot: (Span, Span),
    /// How long a new node takes from joining to ready.
    pub ready: Span,
    /// How long an instance takes to end.
    pub terminate: Span,
    /// How long a running instance takes to stop, and one that hibernates.
    pub stop: (Span, Span),
    /// How long a stopped or hibernated instance takes until its node is ready.
    pub start: (Span, Span),
    /// How often a spot instance is interrupted, per hour.
    pub spot_interruptions_per_hour: f64,
    /// How many instances of one kind can be had at most.
    pub capacity: Vec<Capacity>,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            launch: Span::seconds(4),
            boot: (Span::seconds(40), Span::seconds(70)),
            ready: Span::default(),
            terminate: Span::seconds(30),
            stop: (Span::seconds(40), Span::seconds(90)),
            start: (Span::seconds(25), Span::seconds(15)),
            spot_interruptions_per_hour: 0.0,
            capacity: Vec::new(),
        }
    }
}

/// How the scheduler behaves.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Scheduler {
    /// What every pod must satisfy beside its own affinity (`addedAffinity` of kube-scheduler's NodeAffinityArgs).
    pub added_affinity: Option<NodeSelector>,
    /// Whether refused pods wait 1 s, then 2 s, up to 10 s before they are tried again.
    pub back_off: bool,
}

/// A kind of instance and how many of it there are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Which.
    #[serde(flatten)]
    pub of: Offer,
    /// How many can run at once.
    pub instances: usize,
}

/// Which offerings are meant; what is absent is any.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Offer {
    /// The type, or the family.
    pub instance_type: Option<String>,
    /// `spot` or `on-demand`.
    pub capacity_type: Option<String>,
    /// The zone.
    pub zone: Option<String>,
}

impl Offer {
    /// Whether an offering is one of those.
    #[must_use]
    pub fn matches(&self, instance_type: &str, capacity_type: &str, zone: &str) -> bool {
        let is_type = self.instance_type.as_deref().is_none_or(|wanted| {
            let family = instance_type.split('.').next();
            wanted == instance_type || family == Some(wanted)
        });
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        is_type && is(&self.capacity_type, capacity_type) && is(&self.zone, zone)
    }
}

/// What is paid for already, and how that becomes known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Commitments {
    /// Reserved Instances.
    pub reserved_instances: Vec<ReservedInstances>,
    /// Savings Plans.
    pub savings_plans: Vec<SavingsPlan>,
    /// How often the exporter looks.
    pub refresh: Span,
    /// How old its data is when it can be read.
    pub delay: Span,
}

impl Default for Commitments {
    fn default() -> Self {
        Self {
            reserved_instances: Vec::new(),
            savings_plans: Vec::new(),
            refresh: Span::seconds(300),
            delay: Span::seconds(120),
        }
    }
}

/// Reserved Instances of one type.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReservedInstances {
    /// The type.
    pub instance_type: String,
    /// How many.
    pub count: u32,
    /// The zone of zonal ones.
    #[serde(default)]
    pub zone: Option<String>,
    /// What they cost less than on demand, as a share.
    #[serde(default = "usual_discount")]
    pub discount: f64,
}

/// A Savings Plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SavingsPlan {
    /// The family of an EC2 Instance plan; a Compute plan has none.
    #[serde(default)]
    pub family: Option<String>,
    /// Dollars per hour, at plan rates.
    pub commitment: f64,
    /// What covered hours cost less than on demand, as a share.
    #[serde(default = "usual_discount")]
    pub discount: f64,
}

/// What steering does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Steering {
    /// Whether there is any.
    pub enabled: bool,
    /// Plans used more than this, in percent, get no overlay.
    pub threshold: f64,
    /// How far below that an overlay comes back.
    pub hysteresis: f64,
    /// `ordered` or `zero`.
    pub pricing: Pricing,
    /// How often Prometheus is asked.
    pub interval: Span,
    /// Whether launches are charged to commitments at once; without it overlays go on and off by old data alone.
    pub capped: bool,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 95.0,
            hysteresis: 5.0,
            pricing: Pricing::Ordered,
            interval: Span::seconds(300),
            capped: true,
        }
    }
}

/// How covered capacity is priced.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Pricing {
    /// 95 % off.
    Ordered,
    /// 0.00.
    Zero,
}

/// Something that happens at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scripted {
    /// When, counted from the start.
    pub at: Span,
    /// Manifests to apply.
    #[serde(default)]
    pub apply: Vec<Value>,
    /// Objects to delete, as `kind/name`.
    #[serde(default)]
    pub delete: Vec<String>,
    /// A workload that gets another number of pods.
    #[serde(default)]
    pub scale: Option<Scale>,
    /// Offerings that cannot be had for a while.
    #[serde(default)]
    pub shortage: Option<Outage>,
    /// Spot instances to interrupt.
    #[serde(default)]
    pub interrupt: Option<Interrupt>,
    /// A change of prices.
    #[serde(default)]
    pub price: Option<PriceChange>,
    /// For how long Prometheus does not answer.
    #[serde(default)]
    pub prometheus_gap: Option<Span>,
}

/// Another number of pods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scale {
    /// The workload.
    pub workload: String,
    /// How many.
    pub replicas: u32,
    /// For how long; then the curve holds again.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Offerings that cannot be had.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// Which.
    #[serde(flatten)]
    pub of: Offer,
    /// For how long.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Spot instances that are taken back.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// Which.
    #[serde(flatten)]
    pub of: Offer,
    /// How many of them, as a share.
    #[serde(default = "whole")]
    pub share: f64,
}

/// Prices that change.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceChange {
    /// Which.
    #[serde(flatten)]
    pub of: Offer,
    /// By what factor.
    pub factor: f64,
}

impl Scenario {
    /// Reads a scenario; `origin` stands in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = yaml::read(text).map_err(|error| {
            let place = error
                .location()
                .map(|at| format!(":{}", at.line()))
                .unwrap_or_default();
            ScenarioError(format!("{origin}{place}: {}", yaml::describe(&error)))
        })?;
        scenario
            .check()
            .map_err(|fault| ScenarioError(format!("{origin}: {fault}")))?;
        Ok(scenario)
    }

    /// The default scenario.
    pub fn embedded() -> Result<Self, ScenarioError> {
        Self::parse(DEFAULT, "the embedded scenario")
    }

    fn check(&self) -> Result<(), String> {
        for one in &self.workloads {
            let field = format!("workloads, {:?}", one.name);
            if one.replicas.is_some() == one.jobs.is_some() {
                return Err(format!("{field}: give exactly one of `replicas` and `jobs`"));
            }
            if one.requests.is_empty() && one.template.is_none() {
                return Err(format!(
                    "{field}: give `requests`, for instance {{cpu: \"1\", memory: 2Gi}}, or a `template`"
                ));
            }
            if self
                .workloads
                .iter()
                .filter(|other| other.name == one.name)
                .count()
                > 1
            {
                return Err(format!(
                    "{field}: the name occurs twice; names tell workloads apart"
                ));
            }
        }
        for event in &self.events {
            if let Some(scale) = &event.scale
                && !self
                    .workloads
                    .iter()
                    .any(|one| one.name == scale.workload && one.replicas.is_some())
            {
                return Err(format!(
                    "events, at {}: scale.workload {:?} is no workload with `replicas`",
                    event.at, scale.workload
                ));
            }
        }
        let positive = [
            ("duration", self.duration),
            ("loadInterval", self.load_interval),
            ("commitments.refresh", self.commitments.refresh),
            ("steering.interval", self.steering.interval),
        ];
        for (field, span) in positive {
            if !span.0.is_positive() {
                return Err(format!("{field} is {span}; expected more than 0s"));
            }
        }
        if self.cloud.boot.0 > self.cloud.boot.1 {
            return Err(format!(
                "cloud.boot is [{}, {}]; expected the shorter one first",
                self.cloud.boot.0, self.cloud.boot.1
            ));
        }
        Ok(())
    }
}

const fn one() -> u64 {
    1
}
fn monday() -> Timestamp {
    // Monday, 2 March 2026, midnight UTC.
    Timestamp::from_second(1_772_409_600).unwrap_or(Timestamp::UNIX_EPOCH)
}
const fn day() -> Span {
    Span::seconds(86_400)
}
fn us_west_2() -> String {
    "us-west-2".to_owned()
}
const fn five_minutes() -> Span {
    Span::seconds(300)
}
fn default_namespace() -> String {
    "default".to_owned()
}
const fn afternoon() -> f64 {
    14.0
}
const fn whole() -> f64 {
    1.0
}
const fn usual_discount() -> f64 {
    0.35
}
