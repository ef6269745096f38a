//! The CEL rules of a schema, for a value and everything in it.

use serde_json::Value;

use crate::cel;
use crate::join;
use crate::refusal::{Constraint, Refusal};
use crate::schema::Schema;

/// Checks the rules of an object. A rule about a part in which something else is wrong already is passed over: it
/// may rely on what is missing there.
pub(crate) fn check(object: &Value, schema: &Schema, refusals: &mut Vec<Refusal>) {
    let wrong: Vec<String> = refusals
        .iter()
        .filter(|refusal| refusal.constraint.blocks_rules())
        .map(|refusal| refusal.field.clone())
        .collect();
    walk(object, schema, "", &wrong, refusals);
}

fn walk(value: &Value, schema: &Schema, path: &str, wrong: &[String], refusals: &mut Vec<Refusal>) {
    if value.is_null() {
        return;
    }
    let sound = !wrong.iter().any(|field| field.starts_with(path));
    if sound {
        for rule in schema.rules.iter().filter(|rule| !rule.program.is_transition()) {
            let holds = cel::holds(&rule.program, value, schema);
            if holds != Ok(true) {
                let mut refusal = Refusal::new(path, Constraint::Rule, value, rule.message.clone());
                if let Err(error) = holds {
                    refusal.found = error;
                }
                refusals.push(refusal);
            }
        }
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    walk(value, schema, &join(path, name), wrong, refusals);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, item) in list.iter().enumerate() {
                    walk(item, items, &format!("{path}[{at}]"), wrong, refusals);
                }
            }
        }
        _ => {}
    }
}
