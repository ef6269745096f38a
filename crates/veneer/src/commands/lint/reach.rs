//! Values that the API server accepts and that lead nowhere: labels that no instance type has, amounts that no machine
//! can have, schedules that cannot be kept.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::overprovisioner::{ScheduledOverride, SpareState};
use veneer_api::{NodeOverlay, NodePool, Overprovisioner, ResourceList};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels;
use veneer_engine::overlay::nearest;
use veneer_engine::quantity::Quantity;
use veneer_steering::warm::schedule::Schedule;

use crate::finding::{Finding, Rule};
use crate::input::objects::Sourced;

/// Sizes of huge pages that Linux has on x86-64 and on arm64.
const PAGES: [&str; 6] = ["64Ki", "2Mi", "32Mi", "512Mi", "1Gi", "16Gi"];

/// Requirements of which no instance type has a value.
pub(super) fn node_pools(pools: &[Sourced<NodePool>], catalogue: &Catalogue) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pool in pools {
        let requirements = &pool.object.spec.template.spec.requirements;
        for (at, requirement) in requirements.iter().enumerate() {
            let key = labels::normalise(&requirement.key);
            if requirement.operator.as_str() != "In" || requirement.values.is_empty() {
                continue;
            }
            let known = values_of(key, catalogue);
            let unknown = |value: &&String| !known.is_empty() && !known.contains(value.as_str());
            let missing: Vec<&String> = requirement.values.iter().filter(unknown).collect();
            let Some(first) = missing.first() else { continue };
            let effect = if missing.len() == requirement.values.len() {
                "so the pool never launches anything"
            } else {
                "so the value has no effect"
            };
            let listed = missing
                .iter()
                .map(|value| format!("{value:?}"))
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!("no instance type of the catalog has {key} {listed}, {effect}");
            let fix = match nearest(first, known.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => {
                    let some: Vec<&str> = known.iter().copied().take(6).collect();
                    let more = if known.len() > some.len() { ", …" } else { "" };
                    format!("there are {}{more}", some.join(", "))
                }
            };
            let field = format!("spec.template.spec.requirements[{at}].values");
            findings.push(pool.finding(Rule::NeverLaunches, &field, message, &fix));
        }
    }
    findings
}

/// The values that instance types and offerings have of a label; none where any value is possible.
fn values_of<'a>(key: &str, catalogue: &'a Catalogue) -> BTreeSet<&'a str> {
    let vocabulary = &catalogue.vocabulary;
    let mut values = BTreeSet::new();
    for it in &catalogue.types {
        let offered = it
            .offerings
            .iter()
            .flat_map(|offering| offering.requirements.iter());
        for (known, requirement) in it.requirements.iter().chain(offered) {
            if vocabulary.text(known) != key {
                continue;
            }
            if requirement.is_complement() {
                return BTreeSet::new();
            }
            values.extend(requirement.values().iter().map(|value| vocabulary.text(*value)));
        }
    }
    // Capacity that was reserved is no part of the catalog.
    if key == labels::CAPACITY_TYPE {
        values.insert(veneer_api::labels::karpenter::CAPACITY_TYPE_RESERVED);
    }
    values
}

/// Amounts below zero, and huge pages of a size that does not exist.
pub(super) fn overlays(overlays: &[Sourced<NodeOverlay>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for overlay in overlays {
        let spec = &overlay.object.spec;
        let mut negative = |field: &str, amounts: &ResourceList| {
            for (name, amount) in amounts {
                let below_zero = amount.0.starts_with('-')
                    && amount.0.parse::<Quantity>().is_ok_and(|q| q != Quantity::ZERO);
                if below_zero {
                    let message = format!("{} is below zero; no node has less than nothing", amount.0);
                    let field = format!("spec.{field}.{name}");
                    findings.push(overlay.finding(
                        Rule::InvalidField,
                        &field,
                        message,
                        "write an amount of 0 or more",
                    ));
                }
            }
        };
        negative("capacity", &spec.capacity);
        negative("overhead", &spec.overhead);
        for name in spec.capacity.keys() {
            let size = name.strip_prefix("hugepages-");
            if let Some(size) = size.filter(|size| !PAGES.contains(size)) {
                let message = format!("there are no huge pages of {size}");
                let fix = format!(
                    "use hugepages-2Mi or hugepages-1Gi (of all: {})",
                    PAGES.join(", ")
                );
                let field = format!("spec.capacity.{name}");
                findings.push(overlay.finding(Rule::InvalidField, &field, message, &fix));
            }
        }
    }
    findings
}

/// Schedules that cannot be read or overlap, and stopped spares where only spot can be launched.
pub(super) fn overprovisioners(
    spares: &[Sourced<Overprovisioner>],
    pools: &[Sourced<NodePool>],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in spares {
        let spec = &one.object.spec;
        let overrides = &spec.scheduled_overrides;
        for (at, window) in overrides.iter().enumerate() {
            if let Err(fault) = Schedule::read(&window.schedule, &window.time_zone) {
                let part = if fault.starts_with("timeZone") {
                    "timeZone"
                } else {
                    "schedule"
                };
                let fault = fault
                    .trim_start_matches("timeZone ")
                    .trim_start_matches("schedule: ")
                    .trim_start_matches("schedule ");
                let field = format!("spec.scheduledOverrides[{at}].{part}");
                findings.push(one.finding(Rule::InvalidField, &field, fault.to_owned(), ""));
            }
            let earlier = overrides
                .iter()
                .take(at)
                .position(|earlier| overlap(earlier, window));
            if let Some(earlier) = earlier {
                let message =
                    format!("overlaps spec.scheduledOverrides[{earlier}]: for some time both are in force");
                let field = format!("spec.scheduledOverrides[{at}].schedule");
                findings.push(one.finding(
                    Rule::InvalidField,
                    &field,
                    message,
                    "let one end before the other begins",
                ));
            }
        }
        if spec.state != SpareState::Stopped {
            continue;
        }
        let targets = spec.target_node_pools.iter().enumerate();
        for (at, target) in targets {
            let pool = pools.iter().find(|pool| pool.name() == target);
            if pool.is_some_and(only_spot) {
                let message = format!(
                    "NodePool {target} launches spot instances only, which cannot be stopped and kept"
                );
                let field = format!("spec.targetNodePools[{at}]");
                let fix = "use state: Running, or allow on-demand in the NodePool";
                findings.push(one.finding(Rule::NeverLaunches, &field, message, fix));
            }
        }
    }
    findings
}

fn only_spot(pool: &Sourced<NodePool>) -> bool {
    let requirements = &pool.object.spec.template.spec.requirements;
    requirements.iter().any(|requirement| {
        labels::normalise(&requirement.key) == labels::CAPACITY_TYPE
            && requirement.operator.as_str() == "In"
            && !requirement.values.is_empty()
            && requirement.values.iter().all(|value| value == "spot")
    })
}

/// Whether two overrides are in force together at some start of one of them, within five weeks.
fn overlap(a: &ScheduledOverride, b: &ScheduledOverride) -> bool {
    let read = |one: &ScheduledOverride| {
        let schedule = Schedule::read(&one.schedule, &one.time_zone).ok()?;
        let duration: SignedDuration = one.duration.parse().ok()?;
        Some((schedule, duration))
    };
    let (Some(a), Some(b)) = (read(a), read(b)) else {
        return false;
    };
    // Any Monday will do: what repeats by the week or the month shows itself in five weeks.
    let Ok(begin) = "2026-01-05T00:00:00Z".parse::<Timestamp>() else {
        return false;
    };
    let Ok(end) = begin.checked_add(SignedDuration::from_hours(35 * 24)) else {
        return false;
    };
    let meets = |(starts, _): &(Schedule, SignedDuration), (other, duration): &(Schedule, SignedDuration)| {
        let mut at = begin;
        while let Some(start) = starts.next(at).filter(|start| *start < end) {
            if other.window(*duration, start).is_some() {
                return true;
            }
            at = start;
        }
        false
    };
    meets(&a, &b) || meets(&b, &a)
}
