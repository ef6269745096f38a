//! Our CRDs beside Karpenter's, field by field: names, types, bounds, defaults, columns and subresources are equal.
//!
//! Patterns and CEL rules are worded differently; the cases on the API server compare what they accept.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::karpenter;
use veneer_api::{Mode, crds};

/// What differs on purpose, with the reason.
const DEVIATIONS: [(&str, &str); 6] = [
    ("NodeOverlay .spec.required", "requirements may be absent"),
    (
        "NodeOverlay .spec.properties.requirements.default",
        "requirements default to the empty list",
    ),
    (
        "NodeOverlay .spec.properties.overhead",
        "overhead and overheadPercent are fields of ours",
    ),
    (
        "NodePool .spec.properties.disruption.default",
        "nested defaults are written out; the result is the same",
    ),
    (
        "NodePool .spec.properties.disruption.properties.budgets.items.required",
        "nodes has a default, so it is never missing",
    ),
    (
        "requirements.items.properties.values.maxLength",
        "a bound for texts on a list, which the API server ignores",
    ),
];

#[test]
fn fields_types_bounds_and_columns_are_karpenters() {
    let ours: BTreeMap<String, Value> = crds(Mode::Standalone, None)
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .map(|crd| (crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(), crd))
        .collect();
    let mut compared = 0;
    let mut used = [false; DEVIATIONS.len()];
    let mut differences = Vec::new();
    for text in karpenter::neutral() {
        let theirs: Value = serde_saphyr::from_str(&text).unwrap();
        let kind = theirs["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        // CapacityBuffer belongs to another group and is not ours to define.
        let Some(ours) = ours.get(&kind) else {
            assert_eq!(kind, "CapacityBuffer");
            continue;
        };
        let (ours, theirs) = (facts(ours, &kind), facts(&theirs, &kind));
        compared += theirs.len();
        for path in ours
            .keys()
            .chain(theirs.keys())
            .collect::<std::collections::BTreeSet<_>>()
        {
            if ours.get(path) == theirs.get(path) {
                continue;
            }
            match DEVIATIONS
                .iter()
                .position(|(deviation, _)| path.contains(deviation))
            {
                Some(index) => used[index] = true,
                None => differences.push(format!(
                    "{path}: ours {:?}, Karpenter's {:?}",
                    ours.get(path),
                    theirs.get(path)
                )),
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 500, "compared only {compared} facts");
    for ((deviation, _), used) in DEVIATIONS.iter().zip(used) {
        assert!(used, "the deviation '{deviation}' is listed but not there");
    }
}

/// The facts of a CRD by path, without descriptions, patterns and rules.
fn facts(crd: &Value, kind: &str) -> BTreeMap<String, Value> {
    let mut facts = BTreeMap::new();
    let spec = &crd["spec"];
    let version = &spec["versions"][0];
    for part in ["categories", "kind", "plural", "shortNames", "singular"] {
        facts.insert(format!("{kind} names.{part}"), spec["names"][part].clone());
    }
    for part in [
        "name",
        "served",
        "storage",
        "subresources",
        "additionalPrinterColumns",
    ] {
        facts.insert(format!("{kind} version.{part}"), version[part].clone());
    }
    facts.insert(format!("{kind} group"), spec["group"].clone());
    facts.insert(format!("{kind} scope"), spec["scope"].clone());
    let schema = &version["schema"]["openAPIV3Schema"];
    facts.insert(format!("{kind} required"), schema["required"].clone());
    for part in ["spec", "status"] {
        collect(
            &schema["properties"][part],
            &format!("{kind} .{part}"),
            false,
            &mut facts,
        );
    }
    facts
}

fn collect(value: &Value, path: &str, names_are_fields: bool, facts: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let worded = ["description", "pattern", "x-kubernetes-validations", "anyOf"];
                if names_are_fields || !worded.contains(&key.as_str()) {
                    collect(
                        value,
                        &format!("{path}.{key}"),
                        key == "properties" && !names_are_fields,
                        facts,
                    );
                }
            }
        }
        Value::Array(items) => {
            let mut items = items.clone();
            items.sort_by_key(Value::to_string);
            facts.insert(path.to_owned(), items.into());
        }
        Value::Number(number) => {
            facts.insert(path.to_owned(), number.as_f64().into());
        }
        plain => {
            facts.insert(path.to_owned(), plain.clone());
        }
    }
}
