//! The file: YAML, as a tree of the keys' names.

use std::collections::BTreeMap;

use serde_json::Value;
use veneer_api::yaml;
use veneer_engine::overlay::nearest;

use super::{Fault, File, KEYS, Source};

pub(super) const BOOLEAN: &str = "true or false";
pub(super) const DURATION: &str = "a duration such as 90s, 5m or 1h5m";
pub(super) const WEIGHT: &str = "a number from 1 to 10000";
pub(super) const PREFIX: &str = "lower-case letters, digits and dashes, at most 63, such as cost-aware-ri";
pub(super) const PATH: &str = "the path of a file";
pub(super) const ADDRESS: &str = "host:port such as 127.0.0.1:8080, :8080 for all interfaces, or 0 for none";

/// The values in the file, by key. What is no value of a key is a fault.
pub(super) fn read(file: &File<'_>, faults: &mut Vec<Fault>) -> BTreeMap<&'static str, Source> {
    let name = file.name;
    let tree: Value = match yaml::read(file.text) {
        Ok(tree) => tree,
        Err(error) => {
            let line = error.location().map_or(1, |location| location.line());
            let why = yaml::describe(&error);
            faults.push(Fault(format!("{name} is no YAML: {why} (line {line})")));
            return BTreeMap::new();
        }
    };
    let mut found = BTreeMap::new();
    match tree {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                walk(name, &field, value, &mut found, faults);
            }
        }
        other => faults.push(Fault(format!(
            "{name} holds {}; expected keys such as prometheusUrl: http://prometheus:9090",
            kind(&other)
        ))),
    }
    found
}

fn walk(
    file: &str,
    path: &str,
    value: Value,
    found: &mut BTreeMap<&'static str, Source>,
    faults: &mut Vec<Fault>,
) {
    let key = KEYS.iter().find(|key| key.path == path);
    let text = match (key, value) {
        (_, Value::Null) => return,
        (Some(key), Value::Object(fields)) if key.path == "prometheus.headers" => {
            let pair = |(name, value): (String, Value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            };
            fields.into_iter().map(pair).collect::<Vec<_>>().join(",")
        }
        (Some(key), value @ (Value::Object(_) | Value::Array(_))) => {
            let expected = key.expected;
            faults.push(Fault(format!(
                "{path} is {} ({file}); expected {expected}",
                kind(&value)
            )));
            return;
        }
        (Some(_), Value::String(text)) => text,
        (Some(_), scalar) => scalar.to_string(),
        (None, Value::Object(fields)) if is_group(path) => {
            for (field, value) in fields {
                walk(file, &format!("{path}.{field}"), value, found, faults);
            }
            return;
        }
        (None, value) if is_group(path) => {
            let below = KEYS.iter().find(|key| key.path.starts_with(&format!("{path}.")));
            let example = below.map(|key| key.path).unwrap_or_default();
            faults.push(Fault(format!(
                "{path} is {} ({file}); expected keys below it such as {example}",
                kind(&value)
            )));
            return;
        }
        (None, _) => {
            let known = nearest(path, KEYS.iter().map(|key| key.path));
            let hint = known.map_or_else(
                || "the guide's page on configuration lists the keys".to_owned(),
                |known| format!("did you mean {known}?"),
            );
            faults.push(Fault(format!("{path} is no key ({file}); {hint}")));
            return;
        }
    };
    if let Some(key) = key {
        let place = file.to_owned();
        found.insert(key.path, Source { place, text });
    }
}

fn is_group(path: &str) -> bool {
    KEYS.iter().any(|key| {
        key.path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

fn kind(value: &Value) -> String {
    match value {
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}
