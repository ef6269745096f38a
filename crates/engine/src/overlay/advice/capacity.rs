//! Capacity that is not what its author expects.

use std::collections::{BTreeMap, BTreeSet};

use super::matching::counted;
use super::{Advice, Place, Rule, View};
use crate::labels;
use crate::overlay::{Evaluation, Overlay};
use crate::resources::{HUGEPAGES_PREFIX, MEMORY, ResourceList};

/// Those of `overlays` (heaviest first, all of one type) that set at least one resource which no heavier one sets.
pub(in crate::overlay) fn effective(evaluation: &Evaluation, overlays: &[usize]) -> Vec<usize> {
    let mut set: BTreeSet<(bool, &str)> = BTreeSet::new();
    let mut effective = Vec::new();
    for &at in overlays {
        let Some(overlay) = evaluation.overlay(at) else {
            continue;
        };
        let capacity = overlay.capacity.iter().flat_map(ResourceList::iter);
        let capacity = capacity.map(|(resource, _)| (true, resource));
        let overhead = overlay.overhead.keys().map(|resource| (false, resource.as_str()));
        let new: Vec<_> = capacity
            .chain(overhead)
            .filter(|resource| !set.contains(resource))
            .collect();
        if !new.is_empty() {
            effective.push(at);
        }
        set.extend(new);
    }
    effective
}

pub(super) fn advice(view: &View<'_>, at: usize, overlay: &Overlay) -> Vec<Advice> {
    let Some(capacity) = overlay.capacity.as_ref().filter(|list| !list.is_empty()) else {
        return Vec::new();
    };
    let places = view.given(at);
    let huge_pages = capacity
        .iter()
        .any(|(resource, _)| resource.starts_with(HUGEPAGES_PREFIX));
    let mut all = unchecked(view, at, overlay, places);
    all.extend(for_all_offerings(view, at, overlay, places));
    all.extend(huge_pages.then(|| no_memory_left(view, places)).flatten());
    all
}

/// Karpenter compares capacity with the last overlay of the same weight only, so two that are not neighbours pass.
fn unchecked(view: &View<'_>, at: usize, overlay: &Overlay, places: &[Place<'_>]) -> Vec<Advice> {
    let mut met: BTreeMap<(usize, &str), Place<'_>> = BTreeMap::new();
    for place in places {
        let overlays = view.evaluation.capacity_overlays(place.pool, place.entry);
        for earlier in overlays.into_iter().take_while(|other| *other != at) {
            let Some(other) = view
                .evaluation
                .overlay(earlier)
                .filter(|other| other.weight == overlay.weight)
            else {
                continue;
            };
            let (Some(ours), Some(theirs)) = (&overlay.capacity, &other.capacity) else {
                continue;
            };
            for (resource, _) in ours.iter().filter(|(resource, _)| theirs.contains(resource)) {
                met.entry((earlier, resource)).or_insert(*place);
            }
        }
    }
    let described = met.into_iter().map(|((earlier, resource), place)| Advice {
        rule: Rule::UncheckedCapacity,
        field: format!("spec.capacity.{resource}"),
        message: format!(
            "sets {resource:?} on {} with the same weight ({}) as overlay {}; Karpenter compares neighbours only, so \
             both become Ready and {} has its way",
            place.it.name,
            overlay.weight,
            view.evaluation.overlay_name(earlier),
            view.evaluation.overlay_name(earlier),
        ),
        fix: "give the one that should win a higher spec.weight".to_owned(),
    });
    described.collect()
}

/// A resource belongs to the type: one matching offering gives it to all of them.
fn for_all_offerings(view: &View<'_>, at: usize, overlay: &Overlay, places: &[Place<'_>]) -> Option<Advice> {
    let by_offering = [labels::CAPACITY_TYPE, labels::ZONE];
    let position = overlay
        .requirements
        .iter()
        .position(|selector| by_offering.contains(&labels::normalise(&selector.key)))?;
    let partly: BTreeSet<&str> = places
        .iter()
        .filter(|place| {
            let offerings = 0..place.it.offerings.len();
            let matched = offerings
                .filter(|offering| view.evaluation.matches(at, place.pool, place.entry, *offering))
                .count();
            matched < place.it.offerings.len()
        })
        .map(|place| &*place.it.name)
        .collect();
    let example = partly.first()?;
    let key = overlay
        .requirements
        .get(position)
        .map_or("", |selector| &selector.key);
    Some(Advice {
        rule: Rule::CapacityForAllOfferings,
        field: format!("spec.requirements[{position}]"),
        message: format!(
            "capacity belongs to the instance type: although {key:?} is required, every offering of {} gets it, \
             e.g. {example}",
            counted(partly.len(), "type"),
        ),
        fix: "select the nodes by NodePool or template label instead, if only some of them have the resource"
            .to_owned(),
    })
}

fn no_memory_left(view: &View<'_>, places: &[Place<'_>]) -> Option<Advice> {
    let starved: Vec<&Place<'_>> = places
        .iter()
        .filter(|place| {
            let left = view.evaluation.allocatable(place.pool, place.entry, place.it);
            let total = place
                .it
                .capacity
                .get(MEMORY)
                .map_or(0, crate::quantity::Quantity::value);
            left.get(MEMORY).map_or(0, crate::quantity::Quantity::value) <= total / 10
        })
        .collect();
    let names: BTreeSet<&str> = starved.iter().map(|place| &*place.it.name).collect();
    let first = starved.first()?;
    let memory = first
        .it
        .capacity
        .get(MEMORY)
        .map(ToString::to_string)
        .unwrap_or_default();
    Some(Advice {
        rule: Rule::NoMemoryLeft,
        field: "spec.capacity".to_owned(),
        message: format!(
            "huge pages are taken from the memory and leave a tenth of it or less on {}, e.g. {} with {memory}",
            counted(names.len(), "type"),
            first.it.name,
        ),
        fix: "select larger types, for instance with a requirement Gt on the instance memory".to_owned(),
    })
}
