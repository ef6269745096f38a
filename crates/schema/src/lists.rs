//! Lists that are sets or maps: no item, or no key of an item, may occur twice.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::join;
use crate::refusal::{Constraint, Refusal};
use crate::schema::Schema;

/// Checks every list in a value.
pub(crate) fn check(value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    check(value, schema, &join(path, name), refusals);
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type.as_deref() {
                Some("set") => repeated(list.iter().map(Value::to_string), list, path, "set", refusals),
                Some("map") => check_map(list, schema, path, refusals),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (at, item) in list.iter().enumerate() {
                    check(item, items, &format!("{path}[{at}]"), refusals);
                }
            }
        }
        _ => {}
    }
}

fn check_map(list: &[Value], schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    if let Some(at) = list.iter().position(|item| !item.is_null() && !item.is_object()) {
        let item = list.get(at).unwrap_or(&Value::Null);
        let path = format!("{path}[{at}]");
        refusals.push(Refusal::new(
            &path,
            Constraint::Type,
            item,
            "fields (name: value)",
        ));
        return;
    }
    let key_of = |item: &Value| {
        let keys = schema.list_map_keys.iter();
        let key: Map<String, Value> = keys
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
            .collect();
        Value::Object(key).to_string()
    };
    let what = schema.list_map_keys.join(" and ");
    repeated(list.iter().map(key_of), list, path, &what, refusals);
}

fn repeated(
    keys: impl Iterator<Item = String>,
    list: &[Value],
    path: &str,
    what: &str,
    refusals: &mut Vec<Refusal>,
) {
    let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
    for (at, key) in keys.enumerate() {
        if seen.insert(key.clone()) || !told.insert(key) {
            continue;
        }
        let expected = match what {
            "set" => "each value once".to_owned(),
            keys => format!("each {keys} once"),
        };
        let item = list.get(at).unwrap_or(&Value::Null);
        refusals.push(Refusal::new(
            &format!("{path}[{at}]"),
            Constraint::Unique,
            item,
            expected,
        ));
    }
}
