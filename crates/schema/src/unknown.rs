//! Fields that a schema does not have. Strict field validation refuses them; otherwise they would vanish silently.

use serde_json::Value;

use crate::join;
use crate::refusal::{Constraint, Refusal};
use crate::schema::{Additional, Schema};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Looks at an object as a whole.
pub(crate) fn check(object: &Value, schema: &Schema, refusals: &mut Vec<Refusal>) {
    for (name, value) in object.as_object().into_iter().flatten() {
        if !META.contains(&name.as_str()) {
            field(name, value, schema, "", refusals);
        }
    }
}

fn field(name: &str, value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    let below = join(path, name);
    match (schema.properties.get(name), &schema.additional) {
        (Some(property), _) => walk(value, Some(property), &below, refusals),
        (None, Additional::Values(values)) => walk(value, Some(values), &below, refusals),
        (None, Additional::Any) => walk(value, None, &below, refusals),
        (None, Additional::None) if schema.preserves_unknown_fields => {}
        (None, Additional::None) => {
            let mut refusal = Refusal::new(&below, Constraint::UnknownField, value, "no such field");
            refusal.candidates = schema.properties.keys().cloned().collect();
            refusals.push(refusal);
        }
    }
}

fn walk(value: &Value, schema: Option<&Schema>, path: &str, refusals: &mut Vec<Refusal>) {
    match (value, schema) {
        (Value::Object(fields), Some(schema)) => {
            for (name, value) in fields {
                field(name, value, schema, path, refusals);
            }
        }
        // Nothing is known here, so every field is unknown.
        (Value::Object(fields), None) => {
            for (name, value) in fields {
                let path = join(path, name);
                refusals.push(Refusal::new(
                    &path,
                    Constraint::UnknownField,
                    value,
                    "no such field",
                ));
            }
        }
        (Value::Array(items), schema) => {
            // A list that keeps what it does not know keeps it in its items too.
            let keeps = schema.is_some_and(|schema| schema.preserves_unknown_fields);
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for (at, item) in items.iter().enumerate() {
                if !(keeps && schema.is_none()) {
                    walk(item, schema, &format!("{path}[{at}]"), refusals);
                }
            }
        }
        _ => {}
    }
}
