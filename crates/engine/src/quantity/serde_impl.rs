//! Quantities in documents: a string or a number in, the canonical string out.

use std::fmt::{self, Display, Formatter};

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Quantity;

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

fn parse<E: Error>(text: impl Display) -> Result<Quantity, E> {
    // Like the API server, documents may carry space around the text.
    text.to_string().trim().parse().map_err(E::custom)
}

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity, like 500m, 1.5, 2Gi or 1e3")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        parse(text)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Quantity, E> {
        parse(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Quantity, E> {
        parse(value)
    }

    /// As in Kubernetes, null is nothing.
    fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}
