//! Overlays that match nothing, or nothing that counts, with the requirement at fault and what was probably meant.

use std::collections::{BTreeMap, BTreeSet};

use super::{Advice, Effect, Place, Rule, View};
use crate::labels;
use crate::overlay::{Evaluation, Overlay, Selector, nearest};
use crate::requirements::Operator;
use crate::resources::ResourceList;

/// Why the overlay has no effect at all, if it has none.
pub(super) fn advice(view: &View<'_>, at: usize, overlay: &Overlay, effect: &Effect) -> Option<Advice> {
    let (_, matched) = view.evaluation.match_counts(at);
    if matched == 0 {
        return Some(matches_nothing(view.evaluation, overlay));
    }
    // An overlay may act where it does not match: Karpenter stores prices by the name of the type.
    let acts = |place: &Place<'_>| {
        view.winner(place) == Some(at)
            || view
                .evaluation
                .matches(at, place.pool, place.entry, place.offering)
    };
    if !view.launchable.iter().any(acts) {
        return Some(Advice {
            rule: Rule::NotLaunchable,
            field: "spec.requirements".to_owned(),
            message: format!(
                "matches {}, but no NodePool can launch any of them",
                counted(matched, "offering")
            ),
            fix: "compare the overlay's requirements with those of the NodePools".to_owned(),
        });
    }
    if effect.changed > 0 || effect.lost == 0 {
        return None;
    }
    let rivals = rivals(view, at, overlay);
    // A rival of the same weight is no heavier overlay; that is told as what it is.
    let same_weight = |rival: &usize| {
        view.evaluation
            .overlay(*rival)
            .is_some_and(|o| o.weight == overlay.weight)
    };
    if rivals.iter().any(same_weight) {
        return None;
    }
    let names: BTreeSet<&str> = rivals
        .iter()
        .map(|rival| view.evaluation.overlay_name(*rival))
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    Some(Advice {
        rule: Rule::Shadowed,
        field: "spec.weight".to_owned(),
        message: format!(
            "heavier overlays set everything that it sets, at all {}: {}",
            counted(effect.lost, "offering"),
            names.join(", ")
        ),
        fix: format!(
            "raise spec.weight above theirs (it is {}), or remove the overlay",
            overlay.weight
        ),
    })
}

/// The overlays that set what this one would set.
fn rivals(view: &View<'_>, at: usize, overlay: &Overlay) -> BTreeSet<usize> {
    let evaluation = view.evaluation;
    let sets_the_same = |other: &usize| {
        let other = evaluation.overlay(*other);
        let capacity = |resource: &str| {
            other.is_some_and(|other| {
                other
                    .capacity
                    .as_ref()
                    .is_some_and(|list| list.contains(resource))
            })
        };
        let overhead = |resource: &String| other.is_some_and(|other| other.overhead.contains_key(resource));
        overlay
            .capacity
            .iter()
            .flat_map(ResourceList::iter)
            .any(|(resource, _)| capacity(resource))
            || overlay.overhead.keys().any(overhead)
    };
    let mut rivals: BTreeSet<usize> = BTreeSet::new();
    for place in view.given(at) {
        let giving = evaluation.capacity_overlays(place.pool, place.entry);
        rivals.extend(
            giving
                .into_iter()
                .take_while(|other| *other != at)
                .filter(sets_the_same),
        );
    }
    if overlay.price.is_some() {
        let matches = |place: &&Place<'_>| evaluation.matches(at, place.pool, place.entry, place.offering);
        rivals.extend(
            view.launchable
                .iter()
                .filter(matches)
                .filter_map(|place| view.winner(place)),
        );
    }
    rivals
}

/// The labels that types, offerings and pools have, with the values of each.
struct Known<'a> {
    values: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Labels that some type lacks.
    optional: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn new(evaluation: &'a Evaluation) -> Self {
        let catalogue = evaluation.catalogue();
        let vocabulary = &catalogue.vocabulary;
        let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut types_with: BTreeMap<&str, usize> = BTreeMap::new();
        for it in &catalogue.types {
            for (key, _) in it.requirements.iter() {
                *types_with.entry(vocabulary.text(key)).or_default() += 1;
            }
            let offered = it
                .offerings
                .iter()
                .flat_map(|offering| offering.requirements.iter());
            for (key, requirement) in it.requirements.iter().chain(offered) {
                let known = values.entry(vocabulary.text(key)).or_default();
                if !requirement.is_complement() {
                    known.extend(requirement.values().iter().map(|value| vocabulary.text(*value)));
                }
            }
        }
        for pool in evaluation.pools() {
            values.entry(labels::NODE_POOL).or_default().insert(&pool.name);
            for (key, value) in &pool.labels {
                values.entry(labels::normalise(key)).or_default().insert(value);
            }
        }
        let everywhere = |key: &str| types_with.get(key) == Some(&catalogue.types.len());
        let optional = values.keys().copied().filter(|key| !everywhere(key)).collect();
        Self { values, optional }
    }

    /// What is wrong with one requirement taken by itself.
    fn fault(&self, selector: &Selector) -> Option<String> {
        let key = labels::normalise(&selector.key);
        let values = self.values.get(key).filter(|values| !values.is_empty());
        let Some(values) = values else {
            let absent_is_fine = matches!(selector.operator, Operator::NotIn | Operator::DoesNotExist);
            return (!absent_is_fine).then(|| {
                let near = nearest(
                    key,
                    self.values
                        .iter()
                        .filter(|(_, v)| !v.is_empty())
                        .map(|(key, _)| *key),
                );
                let hint = near
                    .map(|near| format!("; did you mean {near:?}?"))
                    .unwrap_or_default();
                format!("no instance type and no NodePool template has the label {key:?}{hint}")
            });
        };
        let listed = |value: &&str| selector.values.iter().any(|listed| listed == value);
        match selector.operator {
            Operator::In if !values.iter().any(listed) => Some(self.no_such_value(selector, key, values)),
            Operator::NotIn if values.iter().all(listed) && !self.optional.contains(key) => Some(format!(
                "every instance type has {key:?} among the excluded values"
            )),
            Operator::DoesNotExist if !self.optional.contains(key) => {
                Some(format!("every instance type has the label {key:?}"))
            }
            bound if bound.is_bound() => out_of_bounds(selector, key, values),
            _ => None,
        }
    }

    fn no_such_value(&self, selector: &Selector, key: &str, values: &BTreeSet<&str>) -> String {
        let near: BTreeSet<&str> = selector
            .values
            .iter()
            .filter_map(|value| nearest(value, values.iter().copied()))
            .collect();
        let hint = if near.is_empty() {
            let some: Vec<&str> = values.iter().copied().take(6).collect();
            let more = if values.len() > some.len() { ", …" } else { "" };
            format!("there are {}{more}", some.join(", "))
        } else {
            format!(
                "did you mean {}?",
                near.into_iter().collect::<Vec<_>>().join(", ")
            )
        };
        format!("nothing has {key:?} In [{}]; {hint}", selector.values.join(", "))
    }
}

fn out_of_bounds(selector: &Selector, key: &str, values: &BTreeSet<&str>) -> Option<String> {
    let bound: i64 = selector.values.first()?.parse().ok()?;
    let integers: Vec<i64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    let inside = |value: &i64| match selector.operator {
        Operator::Gt => *value > bound,
        Operator::Gte => *value >= bound,
        Operator::Lt => *value < bound,
        _ => *value <= bound,
    };
    if integers.iter().any(inside) {
        return None;
    }
    let Some((least, most)) = integers.iter().min().zip(integers.iter().max()) else {
        let some: Vec<&str> = values.iter().copied().take(3).collect();
        return Some(format!(
            "{} compares integers, but the values of {key:?} are none: {}, …",
            selector.operator,
            some.join(", ")
        ));
    };
    Some(format!(
        "nothing has {key:?} {} {bound}; the values go from {least} to {most}",
        selector.operator
    ))
}

/// Why an overlay that matches nothing does so.
pub(super) fn matches_nothing(evaluation: &Evaluation, overlay: &Overlay) -> Advice {
    let known = Known::new(evaluation);
    let faults: Vec<(usize, String)> = overlay
        .requirements
        .iter()
        .enumerate()
        .filter_map(|(at, selector)| Some((at, known.fault(selector)?)))
        .collect();
    let field = match faults.first() {
        Some((at, _)) => format!("spec.requirements[{at}]"),
        None => "spec.requirements".to_owned(),
    };
    let message = if faults.is_empty() {
        "matches nothing: each requirement matches something, but no offering satisfies all of them"
            .to_owned()
    } else {
        let reasons: Vec<String> = faults.into_iter().map(|(_, fault)| fault).collect();
        format!("matches nothing: {}", reasons.join("; "))
    };
    Advice {
        rule: Rule::MatchesNothing,
        field,
        message,
        fix: "correct the requirement; overlays see the labels of instance types and offerings, the NodePool's name \
              and its spec.template.metadata.labels, but not its requirements and not its node class"
            .to_owned(),
    }
}

/// `1 offering`, `2 offerings`.
pub(in crate::overlay) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
