//! Objects against the schema and the rules of their CustomResourceDefinition, as the API server checks them.
//!
//! [`Definition::read`] takes a CRD; [`Definition::check`] gives everything for which the API server would refuse a new
//! object under strict field validation: unknown fields, the structural schema after defaults were filled in, lists
//! that are sets or maps, CEL rules, and the metadata that every object has.
//!
//! Rules that compare with the stored object (`oldSelf`) need an update; they are listed by
//! [`Definition::transition_rules`] and not checked. Nothing here reads a clock, a file or the network.

mod cel;
mod check;
mod defaults;
mod formats;
mod lists;
mod metadata;
mod refusal;
mod rules;
mod schema;
mod unknown;

use serde_json::Value;

pub use cel::{Program, Unsupported};
pub use refusal::{Constraint, Refusal};
pub use schema::{Additional, Rule, Schema, Type};

/// Why a CustomResourceDefinition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// One version of a CustomResourceDefinition, ready to check objects.
#[derive(Debug)]
pub struct Definition {
    /// The kind of its objects.
    pub kind: String,
    /// The group and version of its objects: `karpenter.sh/v1`.
    pub api_version: String,
    /// The schema of an object as a whole.
    pub schema: Schema,
    /// Whether a new object's status is thrown away before anything is checked.
    has_status: bool,
    /// The field that the scale subresource sets: `spec.replicas`.
    replicas: Option<String>,
}

impl Definition {
    /// Reads every version of a CustomResourceDefinition.
    ///
    /// # Errors
    ///
    /// When something is missing, or a pattern or rule is beyond what this crate knows.
    pub fn read(crd: &Value) -> Result<Vec<Self>, Unreadable> {
        let text = |pointer: &str| {
            let found = crd.pointer(pointer).and_then(Value::as_str);
            found.ok_or_else(|| Unreadable(format!("the CRD has no {pointer}")))
        };
        let (group, kind) = (text("/spec/group")?, text("/spec/names/kind")?);
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        let versions = versions.ok_or_else(|| Unreadable(format!("the CRD of {kind} has no versions")))?;
        let read = |version: &Value| {
            let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
            let schema = version.pointer("/schema/openAPIV3Schema");
            let schema = schema.ok_or_else(|| Unreadable(format!("{kind} {name} has no schema")))?;
            Ok(Self {
                kind: kind.to_owned(),
                api_version: format!("{group}/{name}"),
                schema: Schema::read(schema, "")?,
                has_status: version.pointer("/subresources/status").is_some(),
                replicas: version
                    .pointer("/subresources/scale/specReplicasPath")
                    .and_then(Value::as_str)
                    .map(|path| path.trim_start_matches('.').to_owned()),
            })
        };
        versions.iter().map(read).collect()
    }

    /// Everything for which the API server would refuse `object` as a new one, in the order of its fields.
    #[must_use]
    pub fn check(&self, object: &Value) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        metadata::check(object, &mut refusals);
        unknown::check(object, &self.schema, &mut refusals);
        let mut object = object.clone();
        if self.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        self.fill(&mut object);
        check::check(&object, &self.schema, "", &mut refusals);
        self.check_scale(&object, &mut refusals);
        lists::check(&object, &self.schema, "", &mut refusals);
        rules::check(&object, &self.schema, &mut refusals);
        refusals
    }

    /// The scale subresource counts in 32 bits, whatever the schema says.
    fn check_scale(&self, object: &Value, refusals: &mut Vec<Refusal>) {
        let Some(path) = &self.replicas else { return };
        let found = object.pointer(&format!("/{}", path.replace('.', "/")));
        let fits = |found: &Value| matches!(found.as_i64(), Some(0..=0x7fff_ffff));
        if let Some(found) = found.filter(|found| !found.is_null() && !fits(found))
            && !refusals.iter().any(|refusal| refusal.field == *path)
        {
            let expected = "a whole number from 0 to 2147483647";
            refusals.push(Refusal::new(path, Constraint::Range, found, expected));
        }
    }

    /// Does to an object what the API server does before it looks closer: nulls that mean nothing go, defaults come.
    pub fn fill(&self, object: &mut Value) {
        defaults::prune_nulls(object, Some(&self.schema));
        defaults::fill(object, &self.schema);
    }

    /// The field and the text of every rule that compares with the stored object.
    #[must_use]
    pub fn transition_rules(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        self.schema.visit("", &mut |path, schema| {
            let rules = schema.rules.iter().filter(|rule| rule.program.is_transition());
            found.extend(rules.map(|rule| (path.to_owned(), rule.program.text().to_owned())));
        });
        found
    }
}

/// The path of a field below another one.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
