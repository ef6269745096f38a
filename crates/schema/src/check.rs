//! A value against its schema: types, bounds, patterns, formats, fields that must be there.

use serde_json::{Map, Value};

use crate::refusal::{Constraint, Refusal};
use crate::schema::{Additional, Schema, Type};
use crate::{formats, join};

/// Whole numbers beyond this cannot be told from their neighbors when they are floating point numbers.
const LARGEST_EXACT: f64 = 9_007_199_254_740_991.0;

/// Checks a value and everything in it.
pub(crate) fn check(value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    if !type_fits(value, schema) {
        refusals.push(wrong_type(value, schema, path));
    }
    if !schema.values.is_empty() && !schema.values.contains(value) {
        let candidates: Vec<String> = schema.values.iter().map(plain).collect();
        let expected = format!("one of {}", candidates.join(", "));
        let mut refusal = Refusal::new(path, Constraint::Enum, value, expected);
        refusal.candidates = candidates;
        refusals.push(refusal);
    }
    match value {
        Value::String(text) => check_text(text, value, schema, path, refusals),
        Value::Number(_) => check_number(value, schema, path, refusals),
        Value::Array(items) => check_list(items, value, schema, path, refusals),
        Value::Object(fields) => check_fields(fields, value, schema, path, refusals),
        Value::Null | Value::Bool(_) => {}
    }
    check_choices(value, schema, path, refusals);
}

/// The integer that a JSON number is to the API server; larger ones are floating point numbers to it.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    value.as_i64()
}

fn is_whole(value: &Value) -> bool {
    value
        .as_f64()
        .is_some_and(|number| number.fract() == 0.0 && number.abs() <= LARGEST_EXACT)
}

fn type_fits(value: &Value, schema: &Schema) -> bool {
    if schema.types.is_empty() {
        return true;
    }
    let has = |wanted: Type| schema.types.contains(&wanted);
    match value {
        Value::Null => schema.nullable,
        Value::Bool(_) => has(Type::Boolean),
        Value::String(_) => has(Type::String),
        Value::Number(_) if integer(value).is_some() => has(Type::Integer) || has(Type::Number),
        Value::Number(_) => has(Type::Number) || (has(Type::Integer) && is_whole(value)),
        // The API server does not look at the type of a list where text of a certain format belongs.
        Value::Array(_) => {
            has(Type::Array) || (schema.format.is_some() && !has(Type::Integer) && !has(Type::Number))
        }
        Value::Object(_) => has(Type::Object),
    }
}

fn wrong_type(value: &Value, schema: &Schema, path: &str) -> Refusal {
    let name = |wanted: &Type| match wanted {
        Type::Object => "fields (name: value)",
        Type::Array => "a list",
        Type::String => "text",
        Type::Integer => "a whole number",
        Type::Number => "a number",
        Type::Boolean => "true or false",
    };
    let expected: Vec<&str> = schema.types.iter().map(name).collect();
    let mut expected = expected.join(" or ");
    let has = |wanted: Type| schema.types.contains(&wanted);
    let mut candidates = Vec::new();
    match value {
        Value::Number(_) | Value::Bool(_) if has(Type::String) => candidates.push(format!("\"{value}\"")),
        Value::String(text) if has(Type::Integer) && text.parse::<i64>().is_ok() => {
            candidates.push(text.clone());
        }
        Value::String(text) if has(Type::Boolean) && matches!(text.as_str(), "true" | "false") => {
            candidates.push(text.clone());
        }
        _ => {}
    }
    if let [written] = candidates.as_slice() {
        expected = format!("{expected}: {written}");
    }
    let mut refusal = Refusal::new(path, Constraint::Type, value, expected);
    refusal.candidates = candidates;
    refusal
}

fn check_text(text: &str, value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(bound) = out_of(length, schema.min_length, schema.max_length, "character") {
        refusals.push(Refusal::new(path, Constraint::Size, value, bound));
    } else if let Some(pattern) = &schema.pattern
        && !pattern.is_match(text)
    {
        let expected = format!("text that matches {}", pattern.as_str());
        let mut refusal = Refusal::new(path, Constraint::Pattern, value, expected);
        refusal.pattern = Some(pattern.as_str().to_owned());
        refusals.push(refusal);
    }
    if schema.format.as_deref() == Some("date-time") && !formats::is_date_time(text) {
        let expected = "a time such as 2026-01-31T08:00:00Z";
        refusals.push(Refusal::new(path, Constraint::Format, value, expected));
    }
}

fn check_number(value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    let Some(number) = value.as_f64() else { return };
    let range = |low: f64, high: f64| {
        let inside = number >= low && number <= high;
        (!inside).then(|| format!("a number from {low} to {high}"))
    };
    if schema.types == [Type::Integer] {
        let fault = match schema.format.as_deref() {
            Some("int32") => range(f64::from(i32::MIN), f64::from(i32::MAX)),
            _ => None,
        };
        refusals.extend(fault.map(|expected| Refusal::new(path, Constraint::Range, value, expected)));
    }
    // Integers compare exactly, also beyond what floating point numbers tell apart.
    let compared = |bound: f64| match integer(value) {
        Some(integer) => integer.cmp(&(bound as i64)),
        None => number.partial_cmp(&bound).unwrap_or(std::cmp::Ordering::Equal),
    };
    let below = schema.minimum.is_some_and(|bound| {
        compared(bound).is_lt() || (schema.exclusive_minimum && compared(bound).is_eq())
    });
    let above = schema.maximum.is_some_and(|bound| {
        compared(bound).is_gt() || (schema.exclusive_maximum && compared(bound).is_eq())
    });
    if below || above {
        let low = schema.minimum.map(|bound| match schema.exclusive_minimum {
            true => format!("above {bound}"),
            false => format!("from {bound}"),
        });
        let high = schema.maximum.map(|bound| match schema.exclusive_maximum {
            true => format!("below {bound}"),
            false => format!("up to {bound}"),
        });
        let bounds: Vec<String> = [low, high].into_iter().flatten().collect();
        let expected = format!("a number {}", bounds.join(" "));
        refusals.push(Refusal::new(path, Constraint::Range, value, expected));
    }
}

fn check_list(items: &[Value], value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    if let Some(schema) = &schema.items {
        for (at, item) in items.iter().enumerate() {
            check(item, schema, &format!("{path}[{at}]"), refusals);
        }
    }
    if let Some(bound) = out_of(size(items.len()), schema.min_items, schema.max_items, "item") {
        refusals.push(Refusal::new(path, Constraint::Size, value, bound));
    }
    if schema.unique_items {
        let repeated =
            (0..items.len()).find(|at| items.iter().take(*at).any(|item| Some(item) == items.get(*at)));
        if let Some(at) = repeated {
            let path = format!("{path}[{at}]");
            let item = items.get(at).unwrap_or(value);
            refusals.push(Refusal::new(
                &path,
                Constraint::Unique,
                item,
                "a value that no item before it has",
            ));
        }
    }
}

fn check_fields(
    fields: &Map<String, Value>,
    value: &Value,
    schema: &Schema,
    path: &str,
    refusals: &mut Vec<Refusal>,
) {
    let bounds = (schema.min_properties, schema.max_properties);
    if let Some(bound) = out_of(size(fields.len()), bounds.0, bounds.1, "field") {
        refusals.push(Refusal::new(path, Constraint::Size, value, bound));
    }
    for (name, value) in fields {
        let below = match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Values(values)) => values,
            (None, Additional::None | Additional::Any) => continue,
        };
        check(value, below, &join(path, name), refusals);
    }
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        let expected = match schema
            .properties
            .get(name)
            .and_then(|schema| schema.types.first())
        {
            Some(Type::Array) => format!("{name}: a list"),
            Some(Type::Object) => format!("{name}: with its fields"),
            _ => format!("{name}: a value"),
        };
        refusals.push(Refusal::new(
            &join(path, name),
            Constraint::Required,
            &Value::Null,
            expected,
        ));
    }
}

fn check_choices(value: &Value, schema: &Schema, path: &str, refusals: &mut Vec<Refusal>) {
    let fits = |schema: &Schema| {
        let mut faults = Vec::new();
        check(value, schema, path, &mut faults);
        faults.is_empty()
    };
    for all in &schema.all_of {
        check(value, all, path, refusals);
    }
    let mut refuse = |expected: &str| refusals.push(Refusal::new(path, Constraint::Choice, value, expected));
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(fits) {
        refuse("one of the alternatives of the schema (anyOf)");
    }
    if !schema.one_of.is_empty() && schema.one_of.iter().filter(|one| fits(one)).count() != 1 {
        refuse("exactly one of the alternatives of the schema (oneOf)");
    }
    if schema.not.as_deref().is_some_and(fits) {
        refuse("something that the schema does not exclude (not)");
    }
}

fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// What is expected, when a length is out of its bounds.
fn out_of(length: u64, low: Option<u64>, high: Option<u64>, what: &str) -> Option<String> {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    match (low, high) {
        (Some(low), _) if length < low => Some(format!("at least {low} {what}{}", plural(low))),
        (_, Some(high)) if length > high => Some(format!(
            "at most {high} {what}{}; there are {length}",
            plural(high)
        )),
        _ => None,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
