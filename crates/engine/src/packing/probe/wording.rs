//! Constraints in words: which object, which field, what it demands.

use std::collections::BTreeMap;

use super::Who;
use super::chain::{Constraint, Stage};
use crate::labels;
use crate::packing::ids::StateId;
use crate::packing::shapes::Shape;
use crate::packing::states::States;
use crate::packing::topology::{Kind, Unsatisfied};
use crate::packing::types::Types;
use crate::requirements::Requirement;
use crate::vocabulary::Symbol;

/// The labels of a state by name.
pub(super) fn by_name(state: StateId, states: &States) -> Vec<Symbol> {
    let mut keys: Vec<Symbol> = states.get(state).iter().map(|(key, _)| key).collect();
    keys.sort_by_key(|key| states.vocabulary.text(*key));
    keys
}

/// The field by which a pod demands a label.
pub(super) fn pod_field(shape: &Shape, key: &str) -> String {
    let form = &shape.form;
    if form
        .base()
        .node_selector()
        .into_iter()
        .flat_map(BTreeMap::keys)
        .any(|label| labels::normalise(label) == key)
    {
        return format!("spec.nodeSelector[{key}]");
    }
    let required = form.required().into_iter().flatten().take(1);
    let mut expressions = required.flat_map(|term| term.match_expressions.iter().flatten());
    let is_required = expressions.any(|expression| labels::normalise(&expression.key) == key);
    let kind = if is_required { "required" } else { "preferred" };
    format!("spec.affinity.nodeAffinity.{kind}DuringSchedulingIgnoredDuringExecution[{key}]")
}

/// The demands on labels that offerings have, in words.
pub(super) fn offering_demands(state: StateId, types: &Types, states: &States) -> String {
    let mut keys: Vec<Symbol> = types
        .classes
        .iter()
        .flat_map(|class| class.requirements.iter().map(|(key, _)| key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let requirements = states.get(state);
    let mut parts: Vec<String> = keys
        .into_iter()
        .filter_map(|key| Some((key, requirements.get(key)?)))
        .map(|(key, requirement): (Symbol, &Requirement)| {
            let vocabulary = &states.vocabulary;
            format!("{} {}", vocabulary.text(key), requirement.describe(vocabulary))
        })
        .collect();
    parts.sort();
    if parts.is_empty() {
        "no offering is available".to_owned()
    } else {
        format!("no available offering has {}", parts.join(" and "))
    }
}

pub(super) fn volumes(who: &Who<'_>, state: Option<StateId>, states: &States) -> Constraint {
    let detail = match state {
        Some(state) => states.get(state).describe(&states.vocabulary),
        None => "no place that they can be in is possible here".to_owned(),
    };
    Constraint::new(who.pod(), "spec.volumes", detail)
}

/// The stage of a rule.
pub(super) fn stage_of(rule: Option<&Unsatisfied>) -> Stage {
    match rule.map(|rule| rule.kind) {
        Some(Kind::Affinity | Kind::AntiAffinity) => Stage::Affinity,
        Some(Kind::Spread) | None => Stage::Topology,
    }
}

/// A rule as a constraint.
pub(super) fn rule(who: &Who<'_>, rule: Option<&Unsatisfied>, states: &States) -> Constraint {
    let Some(rule) = rule else {
        return Constraint::new(who.pod(), "spec.affinity", "leaves no host");
    };
    let key = states.vocabulary.text(rule.key);
    let object = if rule.of_other_pod {
        "another Pod".to_owned()
    } else {
        who.pod()
    };
    let field = match rule.kind {
        Kind::Spread => format!("spec.topologySpreadConstraints[{key}]"),
        Kind::Affinity => format!("spec.affinity.podAffinity[{key}]"),
        Kind::AntiAffinity => format!("spec.affinity.podAntiAffinity[{key}]"),
    };
    Constraint::new(object, field, format!("{} by {key}", rule.kind.describe()))
}
