//! Objects through our Rust types and back.

use serde_json::{Value, json};

/// Reads an object as the type of its kind and writes it again.
pub(crate) fn through_our_type(object: &Value) -> Value {
    fn pass<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        let typed: T =
            serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{object}: {error}"));
        serde_json::to_value(typed).unwrap()
    }
    match object["kind"].as_str().unwrap() {
        "NodeOverlay" => pass::<veneer_api::NodeOverlay>(object),
        "NodePool" => pass::<veneer_api::NodePool>(object),
        "NodeClaim" => pass::<veneer_api::NodeClaim>(object),
        "Overprovisioner" => pass::<veneer_api::Overprovisioner>(object),
        "KWOKNodeClass" => pass::<veneer_api::KWOKNodeClass>(object),
        "EC2NodeClass" => pass::<veneer_api::EC2NodeClass>(object),
        kind => panic!("unknown kind {kind}"),
    }
}

/// An object without what makes no difference: empty collections, and whether a quantity is a number or text.
pub(crate) fn comparable(object: &Value) -> Value {
    match object {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), comparable(value)))
            .filter(|(_, value)| *value != json!({}) && *value != json!([]))
            .collect(),
        Value::Array(items) => items.iter().map(comparable).collect(),
        Value::Number(number) => number.to_string().into(),
        plain => plain.clone(),
    }
}
