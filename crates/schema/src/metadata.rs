//! The metadata that every object has: its name, labels, annotations, owners and finalizers.
//!
//! All kinds here belong to the cluster as a whole, so a namespace is ignored, as the API server does.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Value};

use crate::refusal::{Constraint, Refusal};
use crate::{formats, join};

const TEXTS: [&str; 6] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
];
const TIMES: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];
const NUMBERS: [&str; 2] = ["generation", "deletionGracePeriodSeconds"];
const MAPS: [&str; 2] = ["labels", "annotations"];
const LISTS: [&str; 3] = ["ownerReferences", "finalizers", "managedFields"];

const SUBDOMAIN: &str =
    "lower case letters, digits, '-' and '.', a letter or digit at both ends, at most 253 characters";
const QUALIFIED: &str = "a name of at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends, \
                         after an optional DNS prefix such as example.com/";
const LABEL_VALUE: &str =
    "at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends, or nothing";

/// What all annotations of an object may have together.
const ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Checks the metadata of an object.
pub(crate) fn check(object: &Value, refusals: &mut Vec<Refusal>) {
    let empty = Map::new();
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(fields)) => fields,
        Some(other) => {
            let expected = "fields (name: value)";
            refusals.push(Refusal::new("metadata", Constraint::Type, other, expected));
            return;
        }
    };
    for (name, value) in metadata {
        check_type(name, value, refusals);
    }
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    check_name(metadata, text("name"), text("generateName"), refusals);
    let mut refuse = |field: &str, value: &Value, expected: &str| {
        refusals.push(Refusal::new(
            &join("metadata", field),
            Constraint::Metadata,
            value,
            expected,
        ));
    };
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        for (key, value) in labels {
            if !is_qualified(key) {
                refuse(&join("labels", key), &Value::from(key.as_str()), QUALIFIED);
            }
            if value.as_str().is_some_and(|value| !is_label_value(value)) {
                refuse(&join("labels", key), value, LABEL_VALUE);
            }
        }
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        for key in annotations
            .keys()
            .filter(|key| !is_qualified(&key.to_lowercase()))
        {
            refuse(&join("annotations", key), &Value::from(key.as_str()), QUALIFIED);
        }
        let length = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
        if annotations.iter().map(length).sum::<usize>() > ANNOTATIONS_BYTES {
            refuse("annotations", &Value::from("…"), "at most 256 KiB together");
        }
    }
    let list = |name: &str| metadata.get(name).and_then(Value::as_array).into_iter().flatten();
    for (at, finalizer) in list("finalizers").enumerate() {
        if finalizer.as_str().is_some_and(|name| !is_qualified(name)) {
            refuse(&format!("finalizers[{at}]"), finalizer, QUALIFIED);
        }
    }
    for (at, owner) in list("ownerReferences").enumerate() {
        for part in ["apiVersion", "kind", "name", "uid"] {
            let found = owner.get(part).and_then(Value::as_str).unwrap_or_default();
            if owner.is_object() && found.is_empty() {
                let expected = format!("the {part} of the owner");
                refuse(
                    &format!("ownerReferences[{at}].{part}"),
                    &Value::from(found),
                    &expected,
                );
            }
        }
    }
    let controls = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    if let Some(second) = list("ownerReferences").filter(controls).nth(1) {
        refuse(
            "ownerReferences",
            second,
            "at most one owner with controller: true",
        );
    }
}

fn check_type(name: &str, value: &Value, refusals: &mut Vec<Refusal>) {
    let path = join("metadata", name);
    let texts =
        |fields: &Map<String, Value>| fields.values().all(|value| value.is_string() || value.is_null());
    let (fits, expected) = match name {
        _ if value.is_null() => return,
        name if TEXTS.contains(&name) => (value.is_string(), "text"),
        name if NUMBERS.contains(&name) => (value.is_i64(), "a whole number"),
        name if MAPS.contains(&name) => (value.as_object().is_some_and(texts), "names with text"),
        name if TIMES.contains(&name) => {
            let time = value.as_str().is_some_and(formats::is_date_time);
            (time, "a time such as 2026-01-31T08:00:00Z")
        }
        "finalizers" => {
            let texts = |items: &Vec<Value>| items.iter().all(|item| item.is_string() || item.is_null());
            (value.as_array().is_some_and(texts), "a list of text")
        }
        name if LISTS.contains(&name) => (value.is_array(), "a list"),
        _ => {
            let mut refusal = Refusal::new(&path, Constraint::UnknownField, value, "no such field");
            let known = [&TEXTS[..], &TIMES, &NUMBERS, &MAPS, &LISTS].concat();
            refusal.candidates = known.into_iter().map(str::to_owned).collect();
            refusals.push(refusal);
            return;
        }
    };
    if fits {
        return;
    }
    // The part that is wrong, where one can be named.
    if let Some(fields) = value.as_object().filter(|_| MAPS.contains(&name)) {
        for (key, value) in fields
            .iter()
            .filter(|(_, value)| !value.is_string() && !value.is_null())
        {
            let mut refusal = Refusal::new(&join(&path, key), Constraint::Type, value, "text");
            if !value.is_object() && !value.is_array() {
                refusal.candidates = vec![format!("\"{value}\"")];
            }
            refusals.push(refusal);
        }
        return;
    }
    let mut refusal = Refusal::new(&path, Constraint::Type, value, expected);
    if expected == "text" && (value.is_number() || value.is_boolean()) {
        refusal.candidates = vec![format!("\"{value}\"")];
    }
    refusals.push(refusal);
}

fn check_name(metadata: &Map<String, Value>, name: &str, prefix: &str, refusals: &mut Vec<Refusal>) {
    // What is no text was refused for its type.
    if metadata
        .get("name")
        .is_some_and(|name| !name.is_string() && !name.is_null())
    {
        return;
    }
    if !prefix.is_empty() {
        let masked = prefix
            .strip_suffix('-')
            .map_or_else(|| prefix.to_owned(), |rest| format!("{rest}a"));
        if !is_subdomain(&masked) {
            let value = Value::from(prefix);
            refusals.push(Refusal::new(
                "metadata.generateName",
                Constraint::Metadata,
                &value,
                SUBDOMAIN,
            ));
        }
    }
    if name.is_empty() {
        if prefix.is_empty() {
            let expected = "name: a value";
            refusals.push(Refusal::new(
                "metadata.name",
                Constraint::Required,
                &Value::Null,
                expected,
            ));
        }
    } else if !is_subdomain(name) {
        let value = Value::from(name);
        refusals.push(Refusal::new(
            "metadata.name",
            Constraint::Metadata,
            &value,
            SUBDOMAIN,
        ));
    }
}

fn matches(pattern: &'static LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn is_subdomain(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").ok()
    });
    text.len() <= 253 && matches(&PATTERN, text)
}

fn is_qualified(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").ok());
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_subdomain) && name.len() <= 63 && matches(&PATTERN, name)
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || (is_qualified(text) && !text.contains('/'))
}
