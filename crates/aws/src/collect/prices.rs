//! On-demand prices from the price list.
//!
//! A product comes with everything it can be bought for, reserved terms included; only what is needed of it is read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::json;
use veneer_billing::{Exact, Machine, Platform, Priced, Prices, Tenancy};

use super::read::{amount, follow, unreadable};
use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    /// Each is JSON again.
    price_list: Vec<String>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Product {
    product: Described,
    #[serde(default)]
    terms: Terms,
}

#[derive(Debug, Deserialize)]
struct Described {
    attributes: Attributes,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    #[serde(default)]
    instance_type: String,
    #[serde(default)]
    operation: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Terms {
    #[serde(default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    unit: String,
    price_per_unit: BTreeMap<String, String>,
}

/// What the price list calls an operating system, its license and the software on it.
fn words(platform: &Platform) -> Option<[&'static str; 3]> {
    const INCLUDED: &str = "No License required";
    Some(match platform {
        Platform::Linux => ["Linux", INCLUDED, "NA"],
        Platform::RedHat => ["RHEL", INCLUDED, "NA"],
        Platform::Suse => ["SUSE", INCLUDED, "NA"],
        Platform::UbuntuPro => ["Ubuntu Pro", INCLUDED, "NA"],
        Platform::Windows => ["Windows", INCLUDED, "NA"],
        Platform::WindowsByol => ["Windows", "Bring your own license", "NA"],
        Platform::Other(code) => match code.as_str() {
            "0006" => ["Windows", INCLUDED, "SQL Std"],
            "0102" => ["Windows", INCLUDED, "SQL Ent"],
            "0202" => ["Windows", INCLUDED, "SQL Web"],
            "0004" => ["Linux", INCLUDED, "SQL Std"],
            "0100" => ["Linux", INCLUDED, "SQL Ent"],
            "0200" => ["Linux", INCLUDED, "SQL Web"],
            "1010" => ["Red Hat Enterprise Linux with HA", INCLUDED, "NA"],
            _ => return None,
        },
        // Sold by the host.
        Platform::MacOs => return None,
    })
}

/// The platform that the price list (and Lumina's configuration) calls by this name.
#[must_use]
pub fn platform_of(operating_system: &str) -> Option<Platform> {
    let all = [
        Platform::Linux,
        Platform::RedHat,
        Platform::Suse,
        Platform::UbuntuPro,
        Platform::Windows,
    ];
    let is_named = |platform: &Platform| {
        let [name, ..] = words(platform).unwrap_or_default();
        name.eq_ignore_ascii_case(operating_system)
    };
    all.into_iter().find(is_named)
}

impl Client {
    /// What instances of these platforms and tenancies cost in a region.
    pub(super) async fn on_demand_prices(
        &self,
        wanted: &BTreeSet<(Platform, Tenancy)>,
    ) -> Result<Prices, Error> {
        let mut prices = Prices::default();
        for (platform, tenancy) in wanted {
            let Some([system, license, software]) = words(platform) else {
                continue;
            };
            let words = [
                ("regionCode", self.region()),
                ("operatingSystem", system),
                ("licenseModel", license),
                ("preInstalledSw", software),
                (
                    "tenancy",
                    match tenancy {
                        Tenancy::Default => "Shared",
                        Tenancy::Dedicated => "Dedicated",
                        // Hosts are paid for, not what runs on them.
                        Tenancy::Host => continue,
                    },
                ),
                ("capacitystatus", "Used"),
            ];
            self.products(&words, *tenancy, &mut prices).await?;
        }
        Ok(prices)
    }

    async fn products(
        &self,
        words: &[(&str, &str)],
        tenancy: Tenancy,
        prices: &mut Prices,
    ) -> Result<(), Error> {
        let call = Call::GetProducts;
        let unreadable = unreadable(call);
        let filters: Vec<_> = words
            .iter()
            .map(|(field, value)| json!({"Type": "TERM_MATCH", "Field": field, "Value": value}))
            .collect();
        let mut request = json!({
            "ServiceCode": "AmazonEC2", "Filters": filters, "FormatVersion": "aws_v1", "MaxResults": 100,
        });
        let mut before = String::new();
        loop {
            let page: Page = self.json(call, &request).await?;
            for text in page.price_list {
                let product: Product =
                    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
                let Some((currency, price)) = hourly(&product).map_err(&unreadable)? else {
                    continue;
                };
                let attributes = product.product.attributes;
                if attributes.instance_type.is_empty() {
                    continue;
                }
                if prices.currency.is_empty() {
                    prices.currency.clone_from(&currency);
                }
                let machine = Machine {
                    region: self.region().to_owned(),
                    platform: Platform::from_usage_operation(&attributes.operation),
                    instance_type: attributes.instance_type,
                    tenancy,
                };
                if currency == prices.currency {
                    prices.on_demand.insert(Priced::Machine(machine), price);
                }
            }
            match page.next_token.filter(|token| !token.is_empty()) {
                Some(next) => follow(&mut request, "NextToken", &next, &mut before).map_err(&unreadable)?,
                None => return Ok(()),
            }
        }
    }
}

/// The currency and the price of an hour; nothing for what is not sold on demand by the hour, or for nothing.
fn hourly(product: &Product) -> Result<Option<(String, Exact)>, String> {
    let terms = product.terms.on_demand.values();
    let mut dimensions = terms
        .flat_map(|term| term.price_dimensions.values())
        .filter(|one| one.unit == "Hrs");
    let Some(dimension) = dimensions.next() else {
        return Ok(None);
    };
    let per_unit = &dimension.price_per_unit;
    let dollars = per_unit.get_key_value("USD");
    let Some((currency, price)) = dollars.or_else(|| per_unit.first_key_value()) else {
        return Ok(None);
    };
    let price = amount(price)?;
    Ok(price.is_positive().then(|| (currency.clone(), price)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(unit: &str, price: &str) -> Product {
        let text = json!({
            "product": {"productFamily": "Compute Instance", "sku": "A", "attributes": {"instanceType": "m5.large", "operation": "RunInstances"}},
            "terms": {
                "OnDemand": {"A.JRTCKXETXF": {"priceDimensions": {"A.JRTCKXETXF.6YS6EN2CT7": {"unit": unit, "pricePerUnit": {"USD": price}}}}},
                "Reserved": {"A.38NPMPTW36": {"anything": ["else"]}},
            },
        });
        serde_json::from_str(&text.to_string()).unwrap()
    }

    #[test]
    fn the_price_of_an_hour_is_exact() {
        let (currency, price) = hourly(&product("Hrs", "0.0960000000")).unwrap().unwrap();
        assert_eq!(
            (currency.as_str(), price),
            ("USD", Exact::fraction(96, 1000).unwrap())
        );
        assert_eq!(hourly(&product("Quantity", "0.1")), Ok(None));
        assert_eq!(
            hourly(&product("Hrs", "0.0000000000")),
            Ok(None),
            "sold otherwise"
        );
        assert!(hourly(&product("Hrs", "dear")).is_err());
    }

    #[test]
    fn operating_systems_have_the_names_of_the_price_list() {
        assert_eq!(platform_of("Linux"), Some(Platform::Linux));
        assert_eq!(platform_of("windows"), Some(Platform::Windows));
        assert_eq!(platform_of("RHEL"), Some(Platform::RedHat));
        assert_eq!(platform_of("BeOS"), None);
    }
}
