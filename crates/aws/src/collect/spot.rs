//! What spot costs now.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use veneer_billing::{Exact, Platform};
use veneer_inventory::SpotPrice;

use super::read::{amount, described, list, needed, seconds, unreadable};
use crate::call::Call;
use crate::client::Client;
use crate::ec2::filter;
use crate::error::Error;

impl Client {
    /// The spot prices of the region for some platforms.
    pub(super) async fn current_spot_prices(
        &self,
        platforms: &[Platform],
        now: i64,
    ) -> Result<Vec<SpotPrice>, Error> {
        let call = Call::DescribeSpotPriceHistory;
        let mut newest: BTreeMap<(String, String, Platform), (i64, Exact)> = BTreeMap::new();
        let products: Vec<String> = platforms
            .iter()
            .flat_map(|platform| [platform.to_string(), format!("{platform} (Amazon VPC)")])
            .collect();
        let products: Vec<&str> = products.iter().map(String::as_str).collect();
        let start = Timestamp::from_second(now).map_err(|error| unreadable(call)(error.to_string()))?;
        // From now on: the price that counts, not its past.
        let request = json!({
            "Filter": [filter("product-description", &products)], "StartTime": start.to_string(), "MaxResults": 1000,
        });
        let read = |item: roxmltree::Node<'_, '_>| {
            let platform = described(&needed(item, "productDescription")?);
            let place = (
                needed(item, "instanceType")?,
                needed(item, "availabilityZone")?,
                platform,
            );
            let since = seconds(&needed(item, "timestamp")?)?;
            let price = amount(&needed(item, "spotPrice")?)?;
            let is_newest = newest.get(&place).is_none_or(|(known, _)| *known < since);
            if is_newest && price.is_positive() {
                newest.insert(place, (since, price));
            }
            Ok(())
        };
        list(self, call, request, "spotPriceHistorySet", read).await?;
        let prices = newest.into_iter();
        let prices = prices.map(|((instance_type, zone, platform), (since, price))| SpotPrice {
            instance_type,
            zone,
            platform,
            price,
            since,
        });
        Ok(prices.collect())
    }
}
