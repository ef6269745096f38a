//! Fields that a newer release adds survive reading and writing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod support;

use serde_json::{Map, Value, json};
use support::{
    cases::tables,
    types::{comparable, through_our_type},
};
use veneer_api::{Mode, NodeOverlay, Operator, crds};

/// Lists of core Kubernetes types, which have no room for fields of their own.
const CORE_TYPES: [&str; 5] = [
    ".spec.taints[]",
    ".spec.startupTaints[]",
    ".spec.template.spec.taints[]",
    ".spec.template.spec.startupTaints[]",
    ".status.amis[].requirements[]",
];

#[test]
fn a_field_that_nobody_knows_survives_in_every_place_where_an_object_can_have_fields() {
    let crds = crds(Mode::Standalone, None);
    let mut added = 0;
    for (name, table) in tables() {
        let kind = table.base["kind"].as_str().unwrap();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let accepted = table.accepted.iter().map(|case| table.object(&case.spec));
        let with_status = table
            .status
            .iter()
            .filter(|status| status.says.is_none())
            .map(|status| table.with_status(&status.status));
        for mut object in accepted.chain(with_status) {
            for part in ["spec", "status"] {
                if let Some(value) = object.get_mut(part) {
                    add_unknown_fields(
                        value,
                        &schema["properties"][part],
                        &format!(".{part}"),
                        &mut added,
                    );
                }
            }
            let written = through_our_type(&object);
            assert_eq!(
                missing(&comparable(&object), &comparable(&written), ""),
                [""; 0],
                "{name}"
            );
        }
    }
    assert!(added > 500, "only {added} places");
}

/// Adds a field to each object that has fields of its own; a map from names to values has none.
fn add_unknown_fields(value: &mut Value, schema: &Value, path: &str, added: &mut usize) {
    match value {
        Value::Array(items) => {
            for item in items {
                add_unknown_fields(item, &schema["items"], &format!("{path}[]"), added);
            }
        }
        Value::Object(fields) if schema["properties"].is_object() => {
            for (key, field) in fields.iter_mut() {
                add_unknown_fields(field, &schema["properties"][key], &format!("{path}.{key}"), added);
            }
            if !CORE_TYPES.contains(&path) {
                fields.insert("fieldOfTomorrow".to_owned(), json!({ "list": [1, "two", null] }));
                *added += 1;
            }
        }
        _ => {}
    }
}

/// The paths that one object has with another value than the other; defaults that were added do not count.
fn missing(expected: &Value, found: &Value, path: &str) -> Vec<String> {
    let empty = Map::new();
    match (expected, found) {
        (Value::Object(expected), found) => {
            let found = found.as_object().unwrap_or(&empty);
            expected
                .iter()
                .flat_map(|(key, value)| {
                    missing(
                        value,
                        found.get(key).unwrap_or(&Value::Null),
                        &format!("{path}.{key}"),
                    )
                })
                .collect()
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => expected
            .iter()
            .zip(found)
            .flat_map(|(expected, found)| missing(expected, found, &format!("{path}[]")))
            .collect(),
        (expected, found) if expected == found => Vec::new(),
        (expected, found) => vec![format!("{path}: {expected} became {found}")],
    }
}

#[test]
fn the_earlier_draft_of_an_overlay_is_readable() {
    let overlay: NodeOverlay = serde_saphyr::from_str(
        r#"
        apiVersion: karpenter.sh/v1alpha1
        kind: NodeOverlay
        metadata: { name: draft }
        spec:
          selector:
            matchLabels: { karpenter.sh/capacity-type: on-demand }
            matchExpressions: [{ key: node.kubernetes.io/instance-type, operator: In, values: [m5.large] }]
          pricePercent: 90
          overhead: { memory: 50Mi }
          overheadPercent: { cpu: 5 }
        "#,
    )
    .unwrap();

    let selector = overlay.spec.selector.unwrap();
    assert_eq!(
        selector.match_labels.unwrap()["karpenter.sh/capacity-type"],
        "on-demand"
    );
    assert_eq!(selector.match_expressions.unwrap()[0].operator, "In");
    assert_eq!(overlay.spec.price_percent, Some(90));
    assert_eq!(overlay.spec.overhead["memory"].0, "50Mi");
    assert!(overlay.spec.requirements.is_empty());
}

#[test]
fn a_value_that_a_newer_karpenter_adds_does_not_hide_the_object() {
    let overlay: NodeOverlay = serde_json::from_value(json!({
        "metadata": { "name": "new" },
        "spec": { "requirements": [{ "key": "a", "operator": "Matches", "values": ["b"] }] },
    }))
    .unwrap();

    assert_eq!(
        overlay.spec.requirements[0].operator,
        Operator::Other("Matches".to_owned())
    );
}
