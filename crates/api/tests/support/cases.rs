//! The tables of cases, one per kind; `cases/README.md` explains the format.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The cases of one kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) base: Value,
    pub(crate) accepted: Vec<Case>,
    pub(crate) refused: Vec<Case>,
    #[serde(default)]
    pub(crate) updates: Vec<Update>,
    #[serde(default)]
    pub(crate) status: Vec<Status>,
    #[serde(default)]
    pub(crate) refused_by_provider: Vec<Case>,
}

/// A new object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) case: String,
    pub(crate) spec: Value,
    pub(crate) says: Option<String>,
    pub(crate) karpenter: Option<String>,
    pub(crate) provider: Option<String>,
}

/// A change of an object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Update {
    pub(crate) case: String,
    pub(crate) from: Value,
    pub(crate) to: Value,
    pub(crate) says: Option<String>,
}

/// A status for the base object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) case: String,
    pub(crate) status: Value,
    pub(crate) says: Option<String>,
}

/// All tables, with the names of their files.
pub(crate) fn tables() -> Vec<(String, Table)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 6, "one table for each kind: {paths:?}");
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let table: Table =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), table)
        })
        .collect()
}

impl Table {
    /// The base object with a change merged into its spec.
    pub(crate) fn object(&self, spec: &Value) -> Value {
        with_spec(self.base.clone(), spec)
    }

    /// The base object with a status.
    pub(crate) fn with_status(&self, status: &Value) -> Value {
        let mut object = self.base.clone();
        object["status"] = expand(status);
        object
    }
}

/// An object with a change merged into its spec.
pub(crate) fn with_spec(mut object: Value, spec: &Value) -> Value {
    merge(&mut object, &json!({ "spec": expand(spec) }));
    object
}

/// A JSON merge patch: null removes, objects merge, everything else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Writes the short forms out in full.
fn expand(value: &Value) -> Value {
    let count = |fields: &Map<String, Value>, form: &str| {
        fields
            .get(form)
            .map(|count| usize::try_from(count.as_u64().unwrap()).unwrap())
    };
    match value {
        Value::Array(items) => items.iter().map(expand).collect(),
        Value::Object(fields) => {
            if let Some(count) = count(fields, "$chars") {
                return "a".repeat(count).into();
            }
            if let Some(count) = count(fields, "$repeat") {
                return vec![expand(&fields["item"]); count].into();
            }
            if let Some(count) = count(fields, "$names") {
                return (0..count).map(|number| format!("name-{number}")).collect();
            }
            if let Some(count) = count(fields, "$map") {
                return (0..count)
                    .map(|number| (format!("key-{number}"), json!("value")))
                    .collect();
            }
            fields
                .iter()
                .map(|(key, value)| (key.clone(), expand(value)))
                .collect()
        }
        plain => plain.clone(),
    }
}
