//! The configuration of `veneer export`: a file with the keys of Lumina's, which a program that knows one account does not need.
//!
//! As for `veneer run`, everything that is wrong is said at once, with the key and the accepted form.

mod read;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tracing::Level;
use veneer_billing::Platform;
use veneer_inventory::Discounts;
use veneer_inventory::series::Options;

use super::{Fault, File};

/// Which accounts are collected, how often, and what is told of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportConfig {
    pub(crate) accounts: Vec<AccountConfig>,
    /// Who is asked for what belongs to no account: prices and sharing. By default the first account.
    pub(crate) default_account: Option<AccountConfig>,
    pub(crate) default_region: String,
    pub(crate) regions: Vec<String>,
    pub(crate) log_level: Level,
    pub(crate) metrics_bind_address: String,
    pub(crate) health_probe_bind_address: String,
    pub(crate) account_validation_interval: Duration,
    pub(crate) reconciliation: Reconciliation,
    pub(crate) operating_systems: Vec<Platform>,
    pub(crate) spot_price_cache_expiration: Duration,
    pub(crate) discounts: Discounts,
    pub(crate) node_name_tag: String,
    pub(crate) series: Options,
}

/// An account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountConfig {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Without a role, it is collected with the credentials of the process.
    pub(crate) role: Option<String>,
    /// Where what has no region is asked for; by default [`ExportConfig::default_region`].
    pub(crate) region: Option<String>,
    /// By default [`ExportConfig::regions`].
    pub(crate) regions: Vec<String>,
}

/// How often data is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reconciliation {
    /// Reserved Instances and Savings Plans.
    pub(crate) risp: Duration,
    pub(crate) ec2: Duration,
    pub(crate) pricing: Duration,
    /// How often it is looked whether spot prices are too old.
    pub(crate) spot_pricing: Duration,
}

impl Default for ExportConfig {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self {
            accounts: Vec::new(),
            default_account: None,
            default_region: "us-west-2".to_owned(),
            regions: vec!["us-west-2".to_owned(), "us-east-1".to_owned()],
            log_level: Level::INFO,
            metrics_bind_address: "127.0.0.1:8080".to_owned(),
            health_probe_bind_address: "127.0.0.1:8081".to_owned(),
            account_validation_interval: minutes(10),
            reconciliation: Reconciliation {
                risp: minutes(60),
                ec2: minutes(5),
                pricing: minutes(24 * 60),
                spot_pricing: Duration::from_secs(15),
            },
            operating_systems: vec![Platform::Linux, Platform::Windows],
            spot_price_cache_expiration: minutes(60),
            discounts: Discounts::default(),
            node_name_tag: "Name".to_owned(),
            series: Options::default(),
        }
    }
}

impl ExportConfig {
    /// One account with the credentials of the process.
    pub(crate) fn of_account(id: &str, regions: &[String]) -> Self {
        let mut config = Self {
            accounts: vec![AccountConfig {
                id: id.to_owned(),
                name: id.to_owned(),
                ..AccountConfig::default()
            }],
            ..Self::default()
        };
        if let Some(first) = regions.first() {
            config.default_region.clone_from(first);
            config.regions = regions.to_vec();
        }
        config
    }

    /// Reads a file, or says everything that is wrong with it.
    pub(crate) fn read(file: &File<'_>) -> Result<Self, Vec<Fault>> {
        read::read(file)
    }

    /// The regions in which an account is collected.
    pub(crate) fn regions_of<'a>(&'a self, account: &'a AccountConfig) -> &'a [String] {
        if account.regions.is_empty() {
            &self.regions
        } else {
            &account.regions
        }
    }
}
