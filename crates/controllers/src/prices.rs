//! Today's prices: what was collected of the price list and of spot stands in place of what the embedded catalog says.
//!
//! Before the first collection, and for whatever is not in it, the prices of the catalog stay.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tracing::info;
use veneer_aws::Market;
use veneer_engine::instance_type::Catalogue;
use veneer_inventory::Inventory;

use crate::export::Exported;

/// Where today's prices are read.
#[derive(Clone, Debug)]
pub struct LivePrices {
    /// What is collected of the accounts.
    pub inventory: Exported,
    /// The account of the cluster, whose names zones have.
    pub account: String,
    /// The region of the catalog.
    pub region: String,
}

impl LivePrices {
    /// What is known of prices now.
    pub(crate) fn market(&self) -> Market {
        let mut market = Market::default();
        if let Some(inventory) = self.inventory.inventory() {
            market.add_prices(&inventory, &self.region, &self.account);
        }
        market
    }
}

/// Whoever waits for other prices.
#[derive(Debug)]
pub(crate) struct Changes(Option<watch::Receiver<Option<Arc<Inventory>>>>);

impl Changes {
    /// Of these prices, from now on.
    pub(crate) fn of(prices: Option<&LivePrices>) -> Self {
        Self(prices.map(|prices| prices.inventory.subscribe()))
    }

    /// Returns once something was collected since the last time; never where nothing is.
    pub(crate) async fn next(&mut self) {
        if let Some(published) = &mut self.0
            && published.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// A catalog whose prices follow those of today.
#[derive(Debug)]
pub(crate) struct LiveCatalog {
    base: Arc<Catalogue>,
    prices: Option<LivePrices>,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    market: Market,
    /// What its prices were read from.
    inventory: Weak<Inventory>,
}

impl LiveCatalog {
    /// A catalog, as it is until prices are known.
    pub(crate) fn new(base: Arc<Catalogue>, prices: Option<LivePrices>) -> Self {
        Self {
            base,
            prices,
            shown: Mutex::default(),
        }
    }

    /// The catalog without today's prices.
    pub(crate) fn base(&self) -> Arc<Catalogue> {
        Arc::clone(&self.base)
    }

    /// The catalog with today's prices, if they changed since the last time this was asked.
    pub(crate) fn take(&self) -> Option<Arc<Catalogue>> {
        let inventory = self.prices.as_ref()?.inventory.inventory()?;
        {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            let inventory = Arc::downgrade(&inventory);
            if shown.inventory.ptr_eq(&inventory) {
                return None;
            }
            shown.inventory = inventory;
        }
        self.take_with(&Market::default())
    }

    /// The same with what EC2 itself told of offerings and spot prices, which is newer than what was collected.
    pub(crate) fn take_with(&self, told: &Market) -> Option<Arc<Catalogue>> {
        let mut market = self.prices.as_ref().map(LivePrices::market).unwrap_or_default();
        market.offered.clone_from(&told.offered);
        let spot = told.spot.iter().map(|(place, price)| (place.clone(), *price));
        market.spot.extend(spot);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.market == market {
            return None;
        }
        let (catalogue, changes) = market.over(&self.base);
        shown.market = market;
        info!(
            on_demand_prices = changes.listed,
            spot_prices = changes.priced,
            not_offered = changes.withdrawn,
            unknown_types = changes.unknown,
            "prices and offerings of today replace those of the embedded catalog"
        );
        Some(Arc::new(catalogue))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use veneer_billing::{Exact, Machine, Platform, Priced, Prices};
    use veneer_engine::catalogue::aws;
    use veneer_inventory::{DataKind, Part, Rows, SpotPrice};

    use super::*;

    const ACCOUNT: &str = "123456789012";
    const REGION: &str = "us-west-2";

    /// An inventory in which an m5.large costs this on demand, and that as spot in zone a.
    fn collected(on_demand: &str, spot: &str) -> Inventory {
        let machine = Machine {
            region: REGION.to_owned(),
            instance_type: "m5.large".to_owned(),
            ..Machine::default()
        };
        let mut inventory = Inventory::default();
        let prices = Prices {
            currency: "USD".to_owned(),
            on_demand: BTreeMap::from([(Priced::Machine(machine), Exact::parse(on_demand).unwrap())]),
        };
        let part = |account: &str, kind| Part::new(account, REGION, kind);
        inventory.replace(&part("", DataKind::Prices), Rows::Prices(prices), 1);
        let spot = SpotPrice {
            zone: "us-west-2a".to_owned(),
            instance_type: "m5.large".to_owned(),
            platform: Platform::Linux,
            price: Exact::parse(spot).unwrap(),
            since: 1,
        };
        let part = part(ACCOUNT, DataKind::SpotPrices);
        inventory.replace(&part, Rows::SpotPrices(vec![spot]), 1);
        inventory
    }

    /// Prices of m5.large in zone a: on demand and spot.
    fn prices(catalogue: &Catalogue) -> (f64, f64) {
        let vocabulary = &catalogue.vocabulary;
        let price = |capacity_type: &str| {
            let mut types = catalogue.types.iter();
            let it = types.find(|it| *it.name == *"m5.large").unwrap();
            let mut offerings = it.offerings.iter();
            let offering = offerings.find(|one| {
                one.capacity_type(vocabulary) == Some(capacity_type)
                    && one.zone(vocabulary) == Some("us-west-2a")
            });
            offering.unwrap().price
        };
        (price("on-demand"), price("spot"))
    }

    #[test]
    fn prices_of_today_replace_those_of_the_catalog_once_for_each_change() {
        let exported = Exported::default();
        let live = LivePrices {
            inventory: exported.clone(),
            account: ACCOUNT.to_owned(),
            region: REGION.to_owned(),
        };
        let base = Arc::new(aws::region(REGION).unwrap().catalogue);
        let catalog = LiveCatalog::new(Arc::clone(&base), Some(live));
        assert!(catalog.take().is_none(), "nothing is collected yet");
        exported.publish(collected("0.111", "0.022"));
        assert_eq!(prices(&catalog.take().unwrap()), (0.111, 0.022));
        assert!(catalog.take().is_none());
        exported.publish(collected("0.111", "0.022"));
        assert!(catalog.take().is_none(), "collected again, and the same");
        // What EC2 itself has just told of spot is newer than what was collected.
        let place = ("m5.large".to_owned(), "us-west-2a".to_owned());
        let told = Market {
            spot: BTreeMap::from([(place, 0.033)]),
            ..Market::default()
        };
        assert_eq!(prices(&catalog.take_with(&told).unwrap()), (0.111, 0.033));
        assert!(catalog.take_with(&told).is_none());
        // A price that nobody tells any more is that of the catalog.
        exported.publish(Inventory::default());
        assert_eq!(prices(&catalog.take().unwrap()), prices(&base));
    }

    #[test]
    fn without_a_collection_only_ec2_changes_prices() {
        let base = Arc::new(aws::region(REGION).unwrap().catalogue);
        let catalog = LiveCatalog::new(Arc::clone(&base), None);
        assert!(catalog.take().is_none());
        assert!(catalog.take_with(&Market::default()).is_none());
    }
}
