//! Whether an overlay is as it should be, and the difference in words for a dry run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use veneer_api::NodeOverlay;

use super::{Action, Existing};

/// The spec as it would be stored.
fn spec(overlay: &NodeOverlay) -> Map<String, Value> {
    match serde_json::to_value(&overlay.spec) {
        Ok(Value::Object(spec)) => spec,
        _ => Map::new(),
    }
}

/// A field without content is an absent one.
fn content(spec: &Value) -> BTreeMap<&str, &Value> {
    let fields = spec.as_object().into_iter().flatten();
    let filled = fields.filter(|(name, value)| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        // Without requirements an overlay matches everything, which is a content.
        Value::Array(list) => !list.is_empty() || name.as_str() == "requirements",
        _ => true,
    });
    filled.map(|(name, value)| (name.as_str(), value)).collect()
}

/// Whether anything that we write is not as we would write it. What others add to the metadata does not matter.
pub(super) fn differs(overlay: &NodeOverlay, found: &Existing) -> bool {
    let wanted = Value::Object(spec(overlay));
    let labels = overlay.metadata.labels.iter().flatten();
    let owners = overlay.metadata.owner_references.iter().flatten();
    content(&wanted) != content(&found.spec)
        || labels
            .clone()
            .any(|(key, value)| found.labels.get(key) != Some(value))
        || owners
            .clone()
            .any(|owner| !found.owners.iter().any(|one| one.uid == owner.uid))
}

/// Fields of the stored spec that the wanted one does not have.
pub(super) fn foreign_fields(overlay: &NodeOverlay, found: &Existing) -> Vec<String> {
    let wanted = spec(overlay);
    let fields = content(&found.spec).into_keys();
    fields
        .filter(|field| !wanted.contains_key(*field))
        .map(str::to_owned)
        .collect()
}

/// What an action changes, line by line, as `diff` writes it.
#[must_use]
pub fn diff(action: &Action) -> String {
    let (before, after) = match action {
        Action::Create(overlay) => (String::new(), yaml(&wanted(overlay))),
        Action::Update { overlay, before, .. } => {
            (yaml(&stored(before, Some(overlay))), yaml(&wanted(overlay)))
        }
        Action::Delete(existing) => (yaml(&stored(existing, None)), String::new()),
    };
    let mut text = format!("{} NodeOverlay {}\n", action.operation(), action.name());
    for line in lines(&before, &after) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn wanted(overlay: &NodeOverlay) -> Value {
    json!({
        "labels": overlay.metadata.labels,
        "owners": overlay.metadata.owner_references.as_ref().map(|owners| {
            owners.iter().map(|one| format!("{} {} {}", one.kind, one.name, one.uid)).collect::<Vec<_>>()
        }),
        "spec": spec(overlay),
    })
}

/// As much of the stored object as we would write.
fn stored(existing: &Existing, overlay: Option<&NodeOverlay>) -> Value {
    let ours = overlay.and_then(|overlay| overlay.metadata.labels.as_ref());
    let labels: BTreeMap<&String, &String> = existing
        .labels
        .iter()
        .filter(|(key, _)| ours.is_none_or(|ours| ours.contains_key(*key)))
        .collect();
    let owners: Vec<String> = existing
        .owners
        .iter()
        .map(|one| format!("{} {} {}", one.kind, one.name, one.uid))
        .collect();
    json!({
        "labels": labels,
        "owners": (!owners.is_empty()).then_some(owners),
        "spec": existing.spec,
    })
}

fn yaml(value: &Value) -> String {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    serde_saphyr::to_string(&value).unwrap_or_default()
}

/// The lines of both texts in order, marked as removed, added or kept: a longest common subsequence.
fn lines(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut lengths = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    let length = |lengths: &[Vec<usize>], at: usize, to: usize| {
        lengths
            .get(at)
            .and_then(|row| row.get(to))
            .copied()
            .unwrap_or_default()
    };
    for at in (0..old.len()).rev() {
        for to in (0..new.len()).rev() {
            let best = if old.get(at) == new.get(to) {
                length(&lengths, at + 1, to + 1) + 1
            } else {
                length(&lengths, at + 1, to).max(length(&lengths, at, to + 1))
            };
            if let Some(cell) = lengths.get_mut(at).and_then(|row| row.get_mut(to)) {
                *cell = best;
            }
        }
    }
    let (mut at, mut to, mut marked) = (0, 0, Vec::new());
    loop {
        match (old.get(at), new.get(to)) {
            (None, None) => return marked,
            (Some(a), Some(b)) if a == b => {
                marked.push(format!("  {a}"));
                (at, to) = (at + 1, to + 1);
            }
            (Some(a), b) if b.is_none() || length(&lengths, at + 1, to) >= length(&lengths, at, to + 1) => {
                marked.push(format!("- {a}"));
                at += 1;
            }
            (_, Some(b)) => {
                marked.push(format!("+ {b}"));
                to += 1;
            }
            (Some(_), None) => return marked,
        }
    }
}
