//! From text to objects: documents, lists, kinds, and what people write although the API server refuses it.
//!
//! One bad document never hides the others. Three things that the API server refuses are read all the same, because
//! the examples of the NodeOverlay proposals have them, and each is reported: no apiVersion, a number where text
//! belongs, and a selector with a single expression that is not a list.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use veneer_api::yaml::{self, AliasBudget};
use veneer_engine::overlay::{draft, nearest};

use super::cluster::{self, Cluster};
use super::objects::{Named, Objects, Origin, Raw, Sourced};
use super::tree::Tree;
use crate::finding::{Finding, Rule};

/// The kinds that are read, with the apiVersion of each.
const KINDS: [(&str, &str); 5] = [
    ("NodePool", "karpenter.sh/v1"),
    ("NodeOverlay", "karpenter.sh/v1alpha1"),
    ("Overprovisioner", "karpenter.sh/v1beta1"),
    ("EC2NodeClass", "karpenter.k8s.aws/v1"),
    ("KWOKNodeClass", "karpenter.kwok.sh/v1alpha1"),
];

/// One document of a file: its text and how many lines come before it.
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) lines_before: usize,
}

/// Splits a file at its `---` lines, which cannot occur inside a document.
pub(crate) fn split(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut at, mut lines, mut lines_before) = (0, 0, 0, 0);
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t'])) {
            documents.push(Document {
                text: text.get(start..at).unwrap_or_default(),
                lines_before,
            });
            // What follows the dashes on their line belongs to the next document.
            start = at + 3;
            lines_before = lines;
        }
        at += line.len();
        lines += 1;
    }
    documents.push(Document {
        text: text.get(start..).unwrap_or_default(),
        lines_before,
    });
    documents.retain(|document| {
        let content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        document.text.lines().any(content)
    });
    documents
}

/// Reads every object of a file into `objects`; `budget` is that of all files together.
pub(crate) fn read(file: &str, text: &str, budget: AliasBudget, objects: &mut Objects) {
    for document in split(text) {
        read_document(file, &document, budget, objects);
    }
}

/// Reads every object of a document into `objects`.
pub(crate) fn read_document(file: &str, document: &Document<'_>, budget: AliasBudget, objects: &mut Objects) {
    if let Some(cluster) = &mut objects.cluster
        && cluster::read_list(file, document.text, cluster)
    {
        return;
    }
    match Tree::parse(document.text, document.lines_before, budget) {
        Ok(tree) => read_tree(file, tree, None, objects),
        Err(error) => objects.findings.push(unreadable(file, document, &error)),
    }
}

fn unreadable(file: &str, document: &Document<'_>, error: &serde_saphyr::Error) -> Finding {
    let line = error.location().map_or(1, |location| location.line());
    let line = usize::try_from(line).unwrap_or(1).max(1) + document.lines_before;
    let text = yaml::describe(error);
    let fix = if document.text.contains("{{") {
        "this looks like a template: render it first (helm template …) and pass the result with -f -"
    } else {
        "correct the YAML; the document was left out"
    };
    Finding {
        rule: Rule::Unreadable,
        file: file.to_owned(),
        line,
        object: String::new(),
        field: String::new(),
        message: format!("the document cannot be read: {text}"),
        fix: fix.to_owned(),
    }
}

/// Reads an object, or each one of a list; `parent` is the list around it.
fn read_tree(file: &str, tree: Tree, parent: Option<(&str, &str)>, objects: &mut Objects) {
    let field = |name: &str| tree.get(name).and_then(Tree::text).unwrap_or_default().to_owned();
    let (mut kind, mut version) = (field("kind"), field("apiVersion"));
    if kind.ends_with("List") && tree.get("items").is_some() {
        let of = kind.trim_end_matches("List");
        for item in tree.into_items("items") {
            read_tree(file, item, Some((of, &version)), objects);
        }
        return;
    }
    // A list of one kind does not repeat it in every item.
    if let Some((list_kind, list_version)) =
        parent.filter(|(list_kind, _)| kind.is_empty() && !list_kind.is_empty())
    {
        (kind, version) = (list_kind.to_owned(), list_version.to_owned());
    }
    if tree.is_empty() {
        return;
    }
    let value = tree.to_value();
    let origin = Origin {
        file: file.to_owned(),
        tree: Some(Arc::new(tree)),
        made_of: None,
    };
    read_value(&kind, &version, value, &origin, objects);
}

/// Reads an object of a known kind; others are counted.
pub(crate) fn read_value(kind: &str, version: &str, value: Value, origin: &Origin, objects: &mut Objects) {
    if let Some(raw) = &mut objects.raw {
        raw.push(Raw {
            kind: kind.to_owned(),
            version: version.to_owned(),
            value: value.clone(),
            origin: origin.clone(),
        });
    }
    let own = KINDS.iter().find(|(known, _)| *known == kind);
    let of_cluster = || objects.cluster.as_ref().and_then(|_| Cluster::version_of(kind));
    let expected = own
        .map(|(_, version)| Cow::Borrowed(*version))
        .or_else(of_cluster);
    let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
    let Some(expected) = expected.filter(|of| version.is_empty() || group(of) == group(version)) else {
        let kind = if kind.is_empty() { "no kind" } else { kind };
        *objects.ignored.entry(kind.to_owned()).or_default() += 1;
        return;
    };
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let object = format!("{kind} {name}").trim_end().to_owned();
    if name.is_empty() {
        let (message, fix) = match value.pointer("/metadata/name") {
            Some(other) if !other.is_null() && !other.is_string() => (
                format!("{other} is not text; the object was left out"),
                "put the name in quotes",
            ),
            _ => (
                "is missing or empty; the object was left out".to_owned(),
                "give the object a name",
            ),
        };
        let finding = origin.finding(Rule::MalformedObject, &object, "metadata.name", message, fix);
        objects.findings.push(finding);
        return;
    }
    if version.is_empty() {
        let fix = format!("add apiVersion: {expected}");
        let message = "is missing, so the API server refuses the object".to_owned();
        objects
            .findings
            .push(origin.finding(Rule::MissingApiVersion, &object, "apiVersion", message, &fix));
    } else if version != expected {
        let message = format!("{version:?} is not supported; expected {expected:?}. The object was left out");
        let fix = "rewrite the object for that version";
        objects
            .findings
            .push(origin.finding(Rule::UnsupportedVersion, &object, "apiVersion", message, fix));
        return;
    }
    match kind {
        "NodePool" => take(value, origin, &mut objects.node_pools, &mut objects.findings),
        "NodeOverlay" => read_overlay(value, &object, origin, objects),
        "Overprovisioner" => take(
            value,
            origin,
            &mut objects.overprovisioners,
            &mut objects.findings,
        ),
        "EC2NodeClass" => take(
            value,
            origin,
            &mut objects.ec2_node_classes,
            &mut objects.findings,
        ),
        "KWOKNodeClass" => take(
            value,
            origin,
            &mut objects.kwok_node_classes,
            &mut objects.findings,
        ),
        _ => {
            if let Some(cluster) = &mut objects.cluster {
                cluster.take(kind, value, origin, &mut objects.findings);
            }
        }
    }
}

fn take<T: DeserializeOwned + Named>(
    value: Value,
    origin: &Origin,
    into: &mut Vec<Sourced<T>>,
    findings: &mut Vec<Finding>,
) {
    let read = parse(value, T::KIND, origin, findings);
    into.extend(read.map(|object| Sourced {
        object,
        origin: origin.clone(),
    }));
}

/// Reads one object; what is wrong with it becomes a finding.
pub(super) fn parse<T: DeserializeOwned>(
    mut value: Value,
    kind: &str,
    origin: &Origin,
    findings: &mut Vec<Finding>,
) -> Option<T> {
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let object = format!("{kind} {name}");
    drop_nulls(&mut value);
    match serde_path_to_error::deserialize(value) {
        Ok(read) => Some(read),
        Err(error) => {
            let field = error.path().to_string();
            let field = if field == "." { "" } else { &field };
            let message = format!("{}; the object was left out", in_words(error.inner()));
            findings.push(origin.finding(Rule::MalformedObject, &object, field, message, ""));
            None
        }
    }
}

/// Leaves out fields without a value (`labels:`), as the API server does.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// What the reader says, without the names of its types.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((found, "i32" | "i64" | "u32" | "u64")) => format!("{found}, expected an integer"),
        _ => text,
    }
}

fn read_overlay(mut value: Value, object: &str, origin: &Origin, objects: &mut Objects) {
    for (field, written) in quote(&mut value) {
        let message = format!("{written} is a number; the API server wants text here");
        let fix = format!("write \"{written}\"");
        objects
            .findings
            .push(origin.finding(Rule::UnquotedValue, object, &field, message, &fix));
    }
    let mut read: Vec<Sourced<veneer_api::NodeOverlay>> = Vec::new();
    take(value, origin, &mut read, &mut objects.findings);
    for Sourced {
        object: manifest,
        origin,
    } in read
    {
        unknown_fields(&manifest, object, &origin, &mut objects.findings);
        let converted = draft::convert(&manifest);
        for note in converted.notes {
            let fix = "run `veneer convert` to rewrite the file";
            let finding = origin.finding(Rule::DraftField, object, &note.field, note.message, fix);
            objects.findings.push(finding);
        }
        for problem in converted.problems {
            let finding = origin.finding(Rule::InvalidField, object, &problem.field, problem.message, "");
            objects.findings.push(finding);
        }
        objects.node_overlays.push(Sourced {
            object: converted.overlay,
            origin,
        });
    }
}

/// Makes text of the numbers that stand where text belongs, and a list of a selector's lone expression. Gives the
/// fields that were numbers.
fn quote(overlay: &mut Value) -> Vec<(String, String)> {
    let mut quoted = Vec::new();
    let mut text = |field: String, value: &mut Value| {
        if value.is_number() || value.is_boolean() {
            let written = value.to_string();
            *value = Value::String(written.clone());
            quoted.push((field, written));
        }
    };
    let Some(spec) = overlay.get_mut("spec") else {
        return quoted;
    };
    for field in ["price", "priceAdjustment"] {
        if let Some(value) = spec.get_mut(field) {
            text(format!("spec.{field}"), value);
        }
    }
    let expressions = spec
        .get_mut("selector")
        .and_then(|selector| selector.get_mut("matchExpressions"));
    if let Some(lone) = expressions.filter(|expressions| expressions.is_object()) {
        *lone = Value::Array(vec![lone.take()]);
    }
    for (path, list) in [
        ("/requirements", "spec.requirements"),
        ("/selector/matchExpressions", "spec.selector.matchExpressions"),
    ] {
        let items = spec.pointer_mut(path).and_then(Value::as_array_mut);
        for (at, item) in items.into_iter().flatten().enumerate() {
            let values = item.get_mut("values").and_then(Value::as_array_mut);
            for (index, value) in values.into_iter().flatten().enumerate() {
                text(format!("{list}[{at}].values[{index}]"), value);
            }
        }
    }
    quoted
}

fn unknown_fields(
    manifest: &veneer_api::NodeOverlay,
    object: &str,
    origin: &Origin,
    findings: &mut Vec<Finding>,
) {
    const FIELDS: [&str; 9] = [
        "requirements",
        "price",
        "priceAdjustment",
        "capacity",
        "weight",
        "overhead",
        "overheadPercent",
        "selector",
        "pricePercent",
    ];
    let mut tell = |field: String, name: &str, known: &[&str]| {
        let fix = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("remove it; there are {}", known.join(", ")),
        };
        let message = "there is no such field, so it has no effect".to_owned();
        findings.push(origin.finding(Rule::UnknownField, object, &field, message, &fix));
    };
    for name in manifest.spec.extra.keys() {
        tell(format!("spec.{name}"), name, &FIELDS);
    }
    for (at, requirement) in manifest.spec.requirements.iter().enumerate() {
        for name in requirement.extra.keys() {
            tell(
                format!("spec.requirements[{at}].{name}"),
                name,
                &["key", "operator", "values"],
            );
        }
    }
}
