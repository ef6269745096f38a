//! What the API server would refuse, object by object, and how that goes together with what other checks found.

use serde_json::{Number, Value};
use veneer_api::admission::Admission;
use veneer_engine::overlay::nearest;
use veneer_schema::{Constraint, Refusal};

use crate::finding::{Finding, Rule};
use crate::input::objects::Raw;

/// Adds a finding for everything that the API server would refuse. Where another check found the same, its words stay
/// and the finding becomes a refusal.
pub(super) fn add(raw: &[Raw], admission: &Admission, findings: &mut Vec<Finding>) {
    for finding in findings.iter_mut() {
        let entails = matches!(
            finding.rule,
            Rule::UnquotedValue | Rule::MissingApiVersion | Rule::UnsupportedVersion
        );
        if entails {
            finding.rule = Rule::Refused;
        }
    }
    for object in raw {
        let Some(definition) = admission.definitions().find(|known| known.kind == object.kind) else {
            continue;
        };
        // A missing version is a finding already; the rest is judged as if it were there.
        if !object.version.is_empty() && object.version != definition.api_version {
            continue;
        }
        let mut value = object.value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".to_owned(), definition.api_version.clone().into());
            fields.insert("kind".to_owned(), object.kind.clone().into());
        }
        as_sent(&mut value);
        let name = value
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let named = format!("{} {name}", object.kind).trim_end().to_owned();
        let refusals = admission.check(&value).unwrap_or_default();
        // What a type of ours could not read is among the refusals, in better words.
        if !refusals.is_empty() {
            let malformed = |found: &Finding| found.rule == Rule::MalformedObject && found.object == named;
            findings.retain(|found| !malformed(found) || found.file != object.origin.file);
        }
        for (at, refusal) in refusals.iter().enumerate() {
            // A rule about a value that is wrong by itself adds nothing.
            let earlier = refusals.iter().take(at);
            let known = |one: &Refusal| one.constraint != Constraint::Rule && one.field == refusal.field;
            if refusal.constraint == Constraint::Rule && earlier.clone().any(known) {
                continue;
            }
            let finding = object.origin.finding(
                Rule::Refused,
                &named,
                &refusal.field,
                refusal.sentence(),
                &fix(refusal),
            );
            merge(finding, refusal.constraint, findings);
        }
    }
}

/// The value as kubectl sends it: a whole number with a decimal point arrives without one.
fn as_sent(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(whole) = whole {
                *number = Number::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_sent),
        Value::Object(fields) => fields.values_mut().for_each(as_sent),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Puts a refusal among the findings, unless one of them says the same in better words.
fn merge(refusal: Finding, constraint: Constraint, findings: &mut Vec<Finding>) {
    let below = |field: &str| {
        let rest = field.strip_prefix(refusal.field.as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || (constraint == Constraint::Rule && rest.starts_with(['.', '[']))
        })
    };
    let same = findings.iter_mut().find(|found| {
        let replaced = matches!(
            found.rule,
            Rule::Refused
                | Rule::InvalidField
                | Rule::MalformedObject
                | Rule::UnknownField
                | Rule::DraftField
        );
        replaced
            && (&found.file, &found.object) == (&refusal.file, &refusal.object)
            && below(&found.field)
            && (found.line == refusal.line || found.field != refusal.field)
    });
    match same {
        // Two rules about one field are two findings.
        Some(found)
            if found.rule == Rule::Refused
                && constraint == Constraint::Rule
                && found.field == refusal.field =>
        {
            findings.push(refusal);
        }
        Some(found) if matches!(found.rule, Rule::MalformedObject | Rule::UnknownField) => *found = refusal,
        Some(found) => {
            found.rule = Rule::Refused;
            if found.fix.is_empty() {
                found.fix = refusal.fix;
            }
        }
        None => findings.push(refusal),
    }
}

/// How to put it right.
fn fix(refusal: &Refusal) -> String {
    let candidates = || refusal.candidates.iter().map(String::as_str);
    let last = refusal.field.rsplit(['.', ']']).next().unwrap_or_default();
    let found = refusal.found.trim_matches('"');
    match refusal.constraint {
        Constraint::UnknownField if matches!(refusal.field.as_str(), "spec.overhead" | "spec.overheadPercent") => {
            "remove it: Karpenter's CRD does not have it; if Veneer provisions nodes itself, pass --mode standalone".to_owned()
        }
        Constraint::UnknownField => match nearest(last, candidates()) {
            Some(near) => format!("did you mean {near}?"),
            None if refusal.candidates.is_empty() => "remove it".to_owned(),
            None => format!(
                "remove it; there are {}",
                candidates().collect::<Vec<_>>().join(", ")
            ),
        },
        Constraint::Enum => match nearest(found, candidates()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("use {}", refusal.expected),
        },
        Constraint::Type => match refusal.candidates.as_slice() {
            [written] => format!("write {written}"),
            _ => format!("write {}", refusal.expected),
        },
        Constraint::Required => format!("add {}", refusal.expected),
        Constraint::Unique => "remove the repetition".to_owned(),
        Constraint::Pattern | Constraint::Format => format!("write {}", refusal.expected),
        Constraint::Range => format!("use {}", refusal.expected),
        Constraint::Size | Constraint::Metadata | Constraint::Choice => "correct the value".to_owned(),
        Constraint::Rule => String::new(),
    }
}
