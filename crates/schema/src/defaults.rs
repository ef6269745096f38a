//! What happens to an object before it is checked: nulls that mean nothing go, defaults come.

use serde_json::Value;

use crate::schema::{Additional, Schema};

/// Removes fields that are null although their schema has neither null nor a default.
pub(crate) fn prune_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let schema = schema.and_then(|schema| schema.field(name));
                !(value.is_null()
                    && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none()))
            });
            for (name, value) in fields.iter_mut() {
                prune_nulls(value, schema.and_then(|schema| schema.field(name)));
            }
        }
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| prune_nulls(item, schema));
        }
        _ => {}
    }
}

/// Puts defaults where nothing stands, outside first, so that a default of a part fills a default of the whole.
pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let absent = match fields.get(name) {
                    None => true,
                    Some(found) => found.is_null() && !property.nullable,
                };
                if absent {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => fill(value, property),
                    (None, Additional::Values(values)) => fill_item(value, values),
                    (None, Additional::None | Additional::Any) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| fill_item(item, items));
            }
        }
        _ => {}
    }
}

fn fill_item(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    fill(value, schema);
}
