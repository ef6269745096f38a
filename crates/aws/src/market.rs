//! What AWS itself says about the market: which zone offers which type, what spot costs now, and today's on-demand prices where those are
//! collected. The catalogue that is embedded in the program says the rest, and everything where AWS cannot be asked.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use veneer_billing::{Platform, Priced, Tenancy};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels;
use veneer_inventory::{DataKind, Inventory, Part, Rows, Zones};

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
    /// What types cost on demand in dollars per hour, where the price list was asked ([`Market::add_prices`]).
    pub on_demand: BTreeMap<String, f64>,
}

impl Market {
    /// Adds the prices of Linux on shared hardware that were collected of a region. Zones get the names that `account` has for them.
    pub fn add_prices(&mut self, inventory: &Inventory, region: &str, account: &str) {
        let here = |kind| {
            let rows = inventory.rows(kind);
            rows.filter(move |(part, _)| part.region == region)
        };
        for (_, rows) in here(DataKind::Prices) {
            let Rows::Prices(prices) = rows else {
                continue;
            };
            for (what, price) in &prices.on_demand {
                if let Priced::Machine(machine) = what
                    && machine.platform == Platform::Linux
                    && machine.tenancy == Tenancy::Default
                {
                    let price = price.to_f64();
                    self.on_demand.insert(machine.instance_type.clone(), price);
                }
            }
        }
        let none = Zones::new();
        let zones_of = |id: &str| {
            let part = inventory.part(&Part::new(id, region, DataKind::Zones));
            match part.and_then(|part| part.rows.as_ref()) {
                Some(Rows::Zones(zones)) => zones,
                _ => &none,
            }
        };
        let names = inventory.zone_names(account);
        for (part, rows) in here(DataKind::SpotPrices) {
            let Rows::SpotPrices(rows) = rows else {
                continue;
            };
            let asked = zones_of(&part.account);
            for row in rows.iter().filter(|row| row.platform == Platform::Linux) {
                let id = asked.get(&row.zone).map(String::as_str);
                let own = id.and_then(|id| names.get(id)).copied();
                // Without ids, names mean the same only where the account is the same.
                let own = own.or_else(|| (part.account == account).then_some(row.zone.as_str()));
                if let Some(zone) = own {
                    let place = (row.instance_type.clone(), zone.to_owned());
                    self.spot.insert(place, row.price.to_f64());
                }
            }
        }
    }

    /// A catalogue with this market laid over it. What the region does not offer stays, as not available.
    #[must_use]
    pub fn over(&self, catalogue: &Catalogue) -> (Catalogue, Changes) {
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
                if !self.offered.is_empty() && !self.offered.contains(&place) {
                    changes.withdrawn += usize::from(offering.available);
                    offering.available = false;
                }
                if let Some(price) = self.spot.get(&place).filter(|_| capacity_type == labels::SPOT) {
                    changes.priced += 1;
                    offering.price = *price;
                }
                let listed = self.on_demand.get(&place.0);
                if let Some(price) = listed.filter(|_| capacity_type == labels::ON_DEMAND) {
                    changes.listed += 1;
                    offering.price = *price;
                }
            }
        }
        let known: BTreeSet<&str> = catalogue.types.iter().map(|it| &*it.name).collect();
        let offered: BTreeSet<&str> = self.offered.iter().map(|(name, _)| name.as_str()).collect();
        changes.unknown = offered.difference(&known).count();
        (changed, changes)
    }
}

/// How a market differs from the catalogue that it was laid over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Offerings that the region does not have.
    pub withdrawn: usize,
    /// Spot prices that are EC2's own instead of an estimate.
    pub priced: usize,
    /// On-demand prices that are those of today's price list.
    pub listed: usize,
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
            on_demand: BTreeMap::new(),
        })
    }
}
