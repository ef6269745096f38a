//! Broken objects made from a schema: for every field and every bound of it, values on both sides.

use serde_json::{Map, Value, json};
use veneer_schema::{Additional, Schema, Type};

use super::random::{NUMBERS, TEXTS};

/// An object with one change.
pub(crate) struct Change {
    /// The schema that the change is about; items are `[]`, values of a map are `*`.
    pub(crate) place: String,
    /// What was changed.
    pub(crate) what: &'static str,
    pub(crate) object: Value,
}

/// Every change of one field of `object` that the schema gives a reason for, in the places that are wanted.
pub(crate) fn changes(object: &Value, schema: &Schema, wanted: &mut dyn FnMut(&str) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut pointers = Vec::new();
    collect(object, schema, String::new(), String::new(), &mut pointers);
    for (pointer, place, schema) in pointers {
        if !wanted(&place) {
            continue;
        }
        let at = object.pointer(&pointer).unwrap();
        for (what, value) in values(at, schema) {
            let mut object = object.clone();
            *object.pointer_mut(&pointer).unwrap() = value;
            changes.push(Change {
                place: place.clone(),
                what,
                object,
            });
        }
    }
    changes
}

/// The pointer, the place and the schema of everything in a value.
fn collect<'a>(
    value: &Value,
    schema: &'a Schema,
    pointer: String,
    place: String,
    into: &mut Vec<(String, String, &'a Schema)>,
) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let named = schema.properties.contains_key(name);
                let Some(below) = schema.field(name) else { continue };
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let step = if named { name.as_str() } else { "*" };
                let place = if place.is_empty() {
                    step.to_owned()
                } else {
                    format!("{place}.{step}")
                };
                collect(value, below, format!("{pointer}/{escaped}"), place, into);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate().take(2) {
                let Some(below) = &schema.items else { continue };
                collect(item, below, format!("{pointer}/{at}"), format!("{place}[]"), into);
            }
        }
        _ => {}
    }
    into.push((pointer, place, schema));
}

/// Other values for a field.
fn values(found: &Value, schema: &Schema) -> Vec<(&'static str, Value)> {
    let mut values: Vec<(&'static str, Value)> = [
        json!(null),
        json!(true),
        json!(1),
        json!(1.5),
        json!(2.0),
        json!(9_223_372_036_854_775_808_u64),
        json!("x"),
        json!([]),
        json!({}),
        json!([null]),
        json!({ "x": null }),
    ]
    .into_iter()
    .map(|value| ("another type", value))
    .collect();
    for value in &schema.values {
        values.push(("another of the list", value.clone()));
        let text = value.as_str().unwrap_or_default();
        values.push(("nearly one of the list", json!(text.to_lowercase())));
        values.push(("nearly one of the list", json!(format!("{text}x"))));
    }
    let has = |wanted: Type| schema.types.contains(&wanted);
    if has(Type::Integer) || has(Type::Number) {
        for bound in [schema.minimum, schema.maximum].into_iter().flatten() {
            let bound = bound as i64;
            values.extend([-1, 0, 1].map(|by| ("a number near its bound", json!(bound.saturating_add(by)))));
        }
        values.extend(NUMBERS.iter().map(|number| ("another number", json!(number))));
        values.push(("a whole number with a point", json!(7.0)));
    }
    if has(Type::String) {
        for bound in [schema.min_length, schema.max_length].into_iter().flatten() {
            let bound = usize::try_from(bound).unwrap();
            for length in [bound.saturating_sub(1), bound, bound + 1] {
                values.push(("a text near its longest", json!("a".repeat(length))));
            }
        }
        // All of them where text is judged; a few elsewhere.
        let judged = schema.pattern.is_some() || !schema.rules.is_empty();
        let step = if judged { 1 } else { 23 };
        values.extend(
            TEXTS
                .iter()
                .step_by(step)
                .map(|text| ("another text", json!(text))),
        );
        values.extend(
            [
                "2026-01-02T03:04:05Z",
                "2026-02-30T03:04:05Z",
                "Mars/Base",
                "Europe/Berlin",
                "a\nb",
                "ä",
                "1.5h",
                "8784h",
                "8785h",
                "60 9 * * *",
            ]
            .iter()
            .map(|text| ("another text", json!(text))),
        );
    }
    if let Value::Array(items) = found {
        values.extend(lists(items, schema));
    }
    if let Value::Object(fields) = found {
        values.extend(maps(fields, schema));
    }
    values
}

fn lists(items: &[Value], schema: &Schema) -> Vec<(&'static str, Value)> {
    let mut values = Vec::new();
    let filler = schema.items.as_deref().map(sample);
    if let Some(first) = items.first().or(filler.as_ref()) {
        let mut longer = items.to_vec();
        longer.push(first.clone());
        values.push(("an item twice", json!(longer)));
        for bound in [schema.min_items, schema.max_items].into_iter().flatten() {
            let bound = usize::try_from(bound).unwrap();
            for length in [bound.saturating_sub(1), bound, bound + 1] {
                values.push(("a list near its longest", json!(vec![first.clone(); length])));
                let distinct: Vec<Value> = (0..length).map(|at| distinct(first, at)).collect();
                values.push(("a list near its longest, of different items", json!(distinct)));
            }
        }
    }
    if let Some(filler) = filler {
        let mut longer = items.to_vec();
        longer.push(filler);
        values.push(("one more item", json!(longer)));
    }
    values
}

fn distinct(item: &Value, at: usize) -> Value {
    match item {
        Value::String(_) => json!(format!("name-{at}")),
        Value::Object(fields) => {
            let mut fields = fields.clone();
            for key in ["name", "deviceName", "key"] {
                if let Some(value) = fields.get_mut(key) {
                    *value = json!(format!("name-{at}"));
                }
            }
            if let Some(index) = fields.get_mut("deviceIndex") {
                *index = json!(at);
            }
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

fn maps(fields: &Map<String, Value>, schema: &Schema) -> Vec<(&'static str, Value)> {
    let mut values = Vec::new();
    let mut with = |what, name: &str, value: Value| {
        let mut fields = fields.clone();
        fields.insert(name.to_owned(), value);
        values.push((what, Value::Object(fields)));
    };
    with("a field that is not known", "stratagy", json!("x"));
    for (name, property) in &schema.properties {
        if !fields.contains_key(name) {
            with("one more field", name, sample(property));
            if let (Some(items), Some(Type::Array)) = (&property.items, property.types.first()) {
                with("one more field", name, json!([sample(items), sample(items)]));
            }
        }
    }
    if let Additional::Values(value) = &schema.additional {
        let step = if schema.rules.is_empty() { 23 } else { 1 };
        for name in TEXTS.iter().step_by(step) {
            with("one more entry", name, sample(value));
        }
        if let Some(bound) = schema.max_properties {
            for length in [bound, bound + 1] {
                let entry = |at: u64| (format!("name-{at}"), sample(value));
                values.push((
                    "a map near its largest",
                    (0..length).map(entry).collect::<Map<_, _>>().into(),
                ));
            }
        }
    }
    for name in fields.keys() {
        let mut fields = fields.clone();
        fields.remove(name);
        values.push(("one field less", Value::Object(fields)));
    }
    values
}

/// A value that the schema itself accepts; rules may refuse it.
pub(crate) fn sample(schema: &Schema) -> Value {
    if let Some(value) = schema.values.first() {
        return value.clone();
    }
    match schema.types.first() {
        Some(Type::Object) => {
            let fields = schema
                .required
                .iter()
                .filter_map(|name| Some((name, schema.properties.get(name)?)));
            let mut fields: Map<String, Value> = fields
                .map(|(name, schema)| (name.clone(), sample(schema)))
                .collect();
            if let Additional::Values(values) = &schema.additional {
                fields.insert("cpu".to_owned(), sample(values));
            }
            if fields.is_empty()
                && let Some((name, property)) = schema.properties.iter().next()
            {
                fields.insert(name.clone(), sample(property));
            }
            Value::Object(fields)
        }
        Some(Type::Array) => {
            let length = usize::try_from(schema.min_items.unwrap_or(1).max(1)).unwrap();
            vec![schema.items.as_deref().map_or(Value::Null, sample); length].into()
        }
        Some(Type::String) => text(schema).into(),
        Some(Type::Integer) if schema.int_or_string => text(schema).into(),
        Some(Type::Integer) => json!(schema.minimum.map_or(1, |bound| bound as i64)),
        Some(Type::Number) => json!(schema.minimum.unwrap_or(1.0)),
        Some(Type::Boolean) => json!(true),
        None => json!("x"),
    }
}

fn text(schema: &Schema) -> String {
    if schema.format.as_deref() == Some("date-time") {
        return "2026-01-02T03:04:05Z".to_owned();
    }
    let fits = |text: &&&str| {
        let length = u64::try_from(text.chars().count()).unwrap();
        schema
            .pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(text))
            && schema.min_length.is_none_or(|bound| length >= bound)
            && schema.max_length.is_none_or(|bound| length <= bound)
    };
    // The longer ones mean something more often.
    let mut texts: Vec<&&str> = TEXTS.iter().filter(fits).collect();
    texts.sort_by_key(|text| text.is_empty());
    (*texts.first().copied().unwrap_or(&"x")).to_owned()
}
