//! Pieces of CRD schemas that several kinds share: patterns, CEL rules, maps of quantities.
//!
//! The patterns and bounds accept exactly what Karpenter's CRDs accept. Each CEL rule carries a message that names
//! the field and says what is expected, because the message is all that a user of `kubectl apply` gets to see.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A number with an optional suffix, as the API server reads quantities.
pub(crate) const QUANTITY: &str =
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$";
/// A label key: an optional DNS prefix with a slash, then a name.
pub(crate) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// A label value, which may be empty.
pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A duration in seconds, minutes and hours: `90s`, `1h30m`.
pub(crate) const DURATION: &str = "^([0-9]+[smh])+$";
/// A duration, or `Never`.
pub(crate) const DURATION_OR_NEVER: &str = "^(([0-9]+[smh])+|Never)$";
/// A decimal number without a sign: `5`, `0.25`.
pub(crate) const UNSIGNED_DECIMAL: &str = r"^\d+(\.\d+)?$";

/// The value of `x-kubernetes-validations` for pairs of a CEL rule and its message.
pub(crate) fn rules(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(rule, message)| json!({ "rule": rule, "message": message }))
        .collect()
}

/// A quantity: an integer or a string such as `100m` or `2Gi`.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// A map from resource names to quantities.
pub(crate) fn resource_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity(generator) })
}

/// A moment in RFC 3339 form.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Makes a list replace as a whole under server-side apply.
pub(crate) fn atomic_list(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
}
