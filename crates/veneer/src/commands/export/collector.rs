//! What the configuration says, as the collector wants it.

use anyhow::{Context, Result};
use veneer_aws::Client;
use veneer_aws::collect::{Collector, Intervals, Settings, Target};

use crate::config::export::{AccountConfig, ExportConfig};

/// Collects what the configuration names, with the credentials of this process.
pub(crate) async fn collector(config: &ExportConfig) -> Result<Collector> {
    let first = config.default_account.as_ref().or(config.accounts.first());
    let region = first.and_then(|account| account.region.as_deref());
    let region = region.unwrap_or(&config.default_region);
    let client = Client::load(Some(region)).await;
    let client = client.context("cannot find out how to call AWS")?;
    Ok(Collector::new(settings(config), &client))
}

fn settings(config: &ExportConfig) -> Settings {
    let mut accounts: Vec<Target> = config
        .accounts
        .iter()
        .map(|account| target(account, config.regions_of(account)))
        .collect();
    let default = config.default_account.as_ref();
    // An account of its own for prices: without regions, nothing else of it is collected but its plans.
    if let Some(account) = default.filter(|account| accounts.iter().all(|known| known.id != account.id)) {
        accounts.push(target(account, &account.regions));
    }
    let every = &config.reconciliation;
    Settings {
        accounts,
        default_account: default.map(|account| account.id.clone()),
        intervals: Intervals {
            commitments: every.risp,
            instances: every.ec2,
            prices: every.pricing,
            // Looked at every so often, and collected again when they are that old.
            spot_prices: every.spot_pricing.max(config.spot_price_cache_expiration),
            validation: config.account_validation_interval,
            ..Intervals::default()
        },
        platforms: config.operating_systems.clone(),
        node_name_tag: config.node_name_tag.clone(),
        ..Settings::default()
    }
}

fn target(account: &AccountConfig, regions: &[String]) -> Target {
    Target {
        id: account.id.clone(),
        name: account.name.clone(),
        role_arn: account.role.clone(),
        external_id: None,
        regions: regions.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn account(id: &str) -> AccountConfig {
        AccountConfig {
            id: id.to_owned(),
            name: "a".to_owned(),
            ..AccountConfig::default()
        }
    }

    #[test]
    fn the_collector_gets_what_the_file_says() {
        let config = ExportConfig {
            accounts: vec![AccountConfig {
                role: Some("arn:aws:iam::111111111111:role/x".to_owned()),
                regions: vec!["eu-west-1".to_owned()],
                ..account("111111111111")
            }],
            default_account: Some(account("222222222222")),
            ..ExportConfig::default()
        };
        let settings = settings(&config);
        let accounts: Vec<(&str, Option<&str>, usize)> = settings
            .accounts
            .iter()
            .map(|one| (one.id.as_str(), one.role_arn.as_deref(), one.regions.len()))
            .collect();
        assert_eq!(
            accounts,
            [
                ("111111111111", Some("arn:aws:iam::111111111111:role/x"), 1),
                ("222222222222", None, 0)
            ]
        );
        assert_eq!(settings.default_account.as_deref(), Some("222222222222"));
        assert_eq!(settings.intervals.spot_prices, Duration::from_secs(3600));
        assert_eq!(settings.intervals.instances, Duration::from_secs(300));
    }

    #[test]
    fn a_default_account_among_the_others_is_there_once() {
        let config = ExportConfig {
            accounts: vec![account("111111111111"), account("222222222222")],
            default_account: Some(account("222222222222")),
            ..ExportConfig::default()
        };
        assert_eq!(settings(&config).accounts.len(), 2);
    }
}
