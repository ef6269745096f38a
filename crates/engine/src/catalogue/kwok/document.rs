//! The file as it is written. Go matches field names in any case; both spellings that occur are accepted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::Operator;
use crate::quantity::Quantity;

#[derive(Deserialize)]
#[serde(expecting = "an instance type, as an object")]
pub(super) struct Entry<'a> {
    #[serde(borrow, alias = "Name", deserialize_with = "name")]
    pub(super) name: Cow<'a, str>,
    #[serde(alias = "Offerings")]
    pub(super) offerings: Vec<Offering<'a>>,
    #[serde(alias = "Architecture")]
    pub(super) architecture: Cow<'a, str>,
    #[serde(rename = "operatingSystems", alias = "OperatingSystems")]
    pub(super) operating_systems: Vec<Cow<'a, str>>,
    #[serde(alias = "Resources")]
    pub(super) resources: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
#[serde(expecting = "an offering, as an object with Price and Requirements")]
pub(super) struct Offering<'a> {
    #[serde(rename = "Price", alias = "price", deserialize_with = "price")]
    pub(super) price: f64,
    #[serde(borrow, rename = "Requirements", alias = "requirements")]
    pub(super) requirements: Vec<Selector<'a>>,
    #[serde(rename = "ReservationCapacity", alias = "reservationCapacity", default)]
    pub(super) reservation_capacity: i64,
}

#[derive(Deserialize)]
#[serde(expecting = "a requirement, as an object with key, operator and values")]
pub(super) struct Selector<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(deserialize_with = "operator")]
    pub(super) operator: Operator,
    #[serde(default)]
    pub(super) values: Vec<Cow<'a, str>>,
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    let name = Cow::<'de, str>::deserialize(deserializer)?;
    if name.is_empty() {
        return Err(D::Error::invalid_value(
            Unexpected::Str(""),
            &"a name, like \"m5.large\"",
        ));
    }
    Ok(name)
}

fn operator<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Operator, D::Error> {
    Cow::<'de, str>::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Price;
    impl Visitor<'_> for Price {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a price in dollars per hour, like 0.096")
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
            if value < 0.0 {
                Err(E::invalid_value(Unexpected::Float(value), &self))
            } else {
                Ok(value)
            }
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
            Err(E::invalid_value(Unexpected::Signed(value), &self))
        }
    }
    deserializer.deserialize_any(Price)
}
