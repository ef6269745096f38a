//! What EC2 itself says about the market: which zone offers which type, and what spot costs now. The catalogue that is
//! embedded in the program says the rest (shapes, on-demand prices), and everything where EC2 cannot be asked.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels;

use crate::call::Call;
use crate::client::Client;
use crate::ec2::filter;
use crate::error::Error;
use crate::provider::Ec2;
use crate::wire::{field, items};

/// An instance type in a zone.
type Place = (String, String);

/// The market of a region at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Market {
    /// What is offered where. Empty says nothing: every region offers something.
    pub offered: BTreeSet<Place>,
    /// What spot costs in dollars per hour, where EC2 knows.
    pub spot: BTreeMap<Place, f64>,
}

/// How a market differs from the catalogue that it was laid over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Offerings that the region does not have.
    pub withdrawn: usize,
    /// Spot prices that are EC2's own instead of an estimate.
    pub priced: usize,
    /// Types that the region offers and the catalogue does not know.
    pub unknown: usize,
}

impl Client {
    async fn offerings(&self) -> Result<BTreeSet<Place>, Error> {
        let mut found = BTreeSet::new();
        let request = json!({"LocationType": "availability-zone", "MaxResults": 1000});
        self.pages(Call::DescribeInstanceTypeOfferings, request, |root| {
            for item in items(root, "instanceTypeOfferingSet") {
                found.insert((field(item, "instanceType"), field(item, "location")));
            }
        })
        .await?;
        Ok(found)
    }

    async fn spot_prices(&self, now: Timestamp) -> Result<BTreeMap<Place, f64>, Error> {
        let mut newest: BTreeMap<Place, (String, f64)> = BTreeMap::new();
        let products = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];
        // From now on: the price that counts, not its past.
        let request = json!({
            "Filter": [filter("product-description", &products)], "StartTime": now.to_string(), "MaxResults": 1000,
        });
        self.pages(Call::DescribeSpotPriceHistory, request, |root| {
            for item in items(root, "spotPriceHistorySet") {
                let place = (field(item, "instanceType"), field(item, "availabilityZone"));
                let at = field(item, "timestamp");
                let price = field(item, "spotPrice").parse::<f64>();
                let price = price.ok().filter(|price| price.is_finite() && *price > 0.0);
                let known = newest.get(&place).is_some_and(|(known, _)| *known >= at);
                if let Some(price) = price.filter(|_| !known) {
                    newest.insert(place, (at, price));
                }
            }
        })
        .await?;
        Ok(newest
            .into_iter()
            .map(|(place, (_, price))| (place, price))
            .collect())
    }
}

impl Ec2 {
    /// Asks EC2 for the market, a thousand entries with one request.
    pub async fn market(&self, now: Timestamp) -> Result<Market, Error> {
        Ok(Market {
            offered: self.client.offerings().await?,
            spot: self.client.spot_prices(now).await?,
        })
    }

    /// The embedded catalogue with a market laid over it.
    #[must_use]
    pub fn catalogue_with(&self, market: &Market) -> (Catalogue, Changes) {
        with_market(&self.catalogue, market)
    }
}

/// A catalogue with a market laid over it. What the region does not offer stays, as not available.
fn with_market(catalogue: &Catalogue, market: &Market) -> (Catalogue, Changes) {
    let mut changed = catalogue.clone();
    let mut changes = Changes::default();
    let vocabulary = &catalogue.vocabulary;
    let mut place = (String::new(), String::new());
    for it in &mut changed.types {
        place.0.clear();
        place.0.push_str(&it.name);
        for offering in &mut it.offerings {
            let capacity_type = offering.capacity_type(vocabulary).unwrap_or_default();
            // A reservation is its own proof.
            if capacity_type == labels::RESERVED {
                continue;
            }
            place.1.clear();
            place.1.push_str(offering.zone(vocabulary).unwrap_or_default());
            if !market.offered.is_empty() && !market.offered.contains(&place) {
                changes.withdrawn += usize::from(offering.available);
                offering.available = false;
            }
            if let Some(price) = market.spot.get(&place).filter(|_| capacity_type == labels::SPOT) {
                changes.priced += 1;
                offering.price = *price;
            }
        }
    }
    let known: BTreeSet<&str> = catalogue.types.iter().map(|it| &*it.name).collect();
    let offered: BTreeSet<&str> = market.offered.iter().map(|(name, _)| name.as_str()).collect();
    changes.unknown = offered.difference(&known).count();
    (changed, changes)
}
