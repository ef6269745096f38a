//! The configuration of `veneer run`: flags, then the environment, then the file, then defaults.
//!
//! Every key is one row of the table in [`keys`]; its flag and its variable follow from its name. All layers are read
//! before anything is said, so that one start shows every error. After [`resolve`] only typed values travel.

mod args;
mod check;
pub(crate) mod export;
mod file;
mod keys;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tracing::Level;
use veneer_steering::overlays::{MixedPools, Naming, Weights};

pub(crate) use args::ConfigArgs;
use keys::KEYS;
#[cfg(test)]
use keys::Key;

/// Everything that can be configured, with the defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) log_level: Level,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) metrics_bind_address: String,
    pub(crate) health_probe_bind_address: String,
    pub(crate) prometheus_url: Option<String>,
    pub(crate) prometheus: Prometheus,
    pub(crate) commitments: Commitments,
    pub(crate) aws_account_id: String,
    pub(crate) aws_region: String,
    pub(crate) aws_shared_plans: bool,
    pub(crate) aws_cluster_name: String,
    pub(crate) aws_cluster_endpoint: Option<String>,
    pub(crate) aws_service_cidr: Option<String>,
    pub(crate) aws_interruption_queue: Option<String>,
    pub(crate) overlays: Overlays,
    pub(crate) freshness_limit: Duration,
    pub(crate) reconcile_interval: Duration,
    pub(crate) preferences_enabled: bool,
    pub(crate) leader_election: LeaderElection,
}

/// How Prometheus is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prometheus {
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) bearer_token_file: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password_file: Option<String>,
    pub(crate) ca_file: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) matcher: Option<String>,
}

/// Where commitments are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commitments {
    pub(crate) source: CommitmentSource,
    pub(crate) config_file: Option<String>,
}

/// Who says what is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitmentSource {
    Prometheus,
    Aws,
}

/// How overlays are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Overlays {
    pub(crate) disabled: bool,
    pub(crate) utilization_threshold: f64,
    pub(crate) hysteresis: f64,
    pub(crate) weights: Weights,
    pub(crate) naming: Naming,
    pub(crate) pricing: PricingMode,
    /// A percentage, as it is written: `95`.
    pub(crate) discount_percent: String,
    pub(crate) instance_family_label: Option<String>,
    pub(crate) mixed_pools: MixedPools,
}

/// The price of what is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PricingMode {
    Ordered,
    Zero,
}

/// How one of several replicas is chosen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaderElection {
    pub(crate) enabled: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) lease_name: String,
    pub(crate) lease_duration: Duration,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log_level: Level::INFO,
            log_format: None,
            metrics_bind_address: ":8080".to_owned(),
            health_probe_bind_address: ":8081".to_owned(),
            prometheus_url: None,
            prometheus: Prometheus {
                timeout: Duration::from_secs(10),
                retries: 2,
                bearer_token_file: None,
                username: None,
                password_file: None,
                ca_file: None,
                headers: BTreeMap::new(),
                matcher: None,
            },
            commitments: Commitments {
                source: CommitmentSource::Prometheus,
                config_file: None,
            },
            aws_account_id: String::new(),
            aws_region: String::new(),
            aws_shared_plans: true,
            aws_cluster_name: String::new(),
            aws_cluster_endpoint: None,
            aws_service_cidr: None,
            aws_interruption_queue: None,
            overlays: Overlays {
                disabled: false,
                utilization_threshold: 95.0,
                hysteresis: 5.0,
                weights: Weights::default(),
                naming: Naming::default(),
                pricing: PricingMode::Ordered,
                discount_percent: "95".to_owned(),
                instance_family_label: None,
                mixed_pools: MixedPools::Include,
            },
            freshness_limit: Duration::from_secs(65 * 60),
            reconcile_interval: Duration::from_secs(5 * 60),
            preferences_enabled: true,
            leader_election: LeaderElection {
                enabled: true,
                namespace: None,
                lease_name: "veneer".to_owned(),
                lease_duration: Duration::from_secs(15),
            },
        }
    }
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    /// `--overlays-pricing`, `VENEER_OVERLAYS_PRICING` or `veneer.yaml`.
    place: String,
    text: String,
}

/// A file of settings: its name and its text.
pub(crate) struct File<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// Puts the layers together, or says everything that is wrong with them.
pub(crate) fn resolve(
    flags: &BTreeMap<&'static str, String>,
    environment: impl Fn(&str) -> Option<String>,
    file: Option<&File<'_>>,
) -> Result<Config, Vec<Fault>> {
    let mut faults = Vec::new();
    let in_file = file.map(|file| file::read(file, &mut faults)).unwrap_or_default();
    let mut config = Config::default();
    for key in KEYS {
        let flag = flags.get(key.path).map(|text| Source {
            place: key.flag(),
            text: text.clone(),
        });
        let variable = || {
            let name = key
                .variables()
                .find(|name| environment(name).is_some_and(|text| !text.is_empty()))?;
            let text = environment(&name)?;
            Some(Source { place: name, text })
        };
        let written = || in_file.get(key.path).cloned();
        let Some(source) = flag.or_else(variable).or_else(written) else {
            continue;
        };
        if (key.set)(&mut config, source.text.trim()).is_none() {
            faults.push(Fault(format!(
                "{} is {:?} ({}); expected {}",
                key.path, source.text, source.place, key.expected
            )));
        }
    }
    check::check(&config, &mut faults);
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(faults)
    }
}

/// All faults as one message.
pub(crate) fn describe(faults: &[Fault]) -> String {
    let count = match faults.len() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    let lines: String = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    format!("the configuration has {count}:{lines}")
}
