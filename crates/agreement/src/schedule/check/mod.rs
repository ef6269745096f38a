//! Proves that every constraint of every placed pod holds.
//!
//! The checker knows manifests and an answer, not how the answer was found. It shares no code with the solver, reads
//! the catalogue by itself and states each constraint as a fact about the finished placement: whichever candidate of a
//! claim is launched in whichever of its zones, the pods on it may be there. What a later placement may legally undo
//! (a pod without a spread constraint that adds to a count, for example) is left out.

mod labels;
mod place;
mod resources;
mod storage;
mod topology;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use veneer_engine::quantity::Quantity;

use super::answer::Answer;
use super::facts::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE};
use super::{Entry, Facts, Scenario};
use labels::Label;
use place::{Place, Placement};

/// What does not hold, one sentence each.
pub fn violations(facts: &Facts, scenario: &Scenario, answer: &Answer) -> Result<Vec<String>> {
    let own;
    let all: &[Entry] = if let Some(catalog) = &scenario.catalog {
        own = Facts::read(catalog)?;
        &own
    } else {
        &facts.entries
    };
    let entries: Vec<&Entry> = all
        .iter()
        .filter(|entry| {
            scenario
                .types
                .as_ref()
                .is_none_or(|types| types.contains(&entry.name))
        })
        .collect();
    let placement = Placement::new(scenario, answer, &entries)?;
    let mut checker = Checker {
        scenario,
        placement: &placement,
        found: Vec::new(),
    };
    checker.every_pod_once(answer);
    for place in &placement.places {
        checker.nodes(place);
        checker.resources(place);
        checker.host_ports(place);
        checker.volumes(place);
    }
    checker.pool_limits();
    checker.min_values();
    checker.topology();
    Ok(checker.found)
}

struct Checker<'a> {
    scenario: &'a Scenario,
    placement: &'a Placement<'a>,
    found: Vec<String>,
}

impl Checker<'_> {
    fn violated(&mut self, what: &str, detail: impl std::fmt::Display) {
        self.found.push(format!("violated {what}: {detail}"));
    }

    fn every_pod_once(&mut self, answer: &Answer) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in answer.moved() {
            *seen.entry(pod).or_default() += 1;
        }
        for pod in self
            .scenario
            .kind("Pod")
            .filter(|pod| pod.pointer("/spec/schedulingGates").is_none())
        {
            let name = full_name(pod);
            let times = seen.remove(name.as_str()).unwrap_or(0);
            // A pod on a node that goes away moves, unless it may not.
            let may_stay = pod.pointer("/spec/nodeName").is_some() && times == 0;
            if times != 1 && !may_stay {
                self.violated("completeness", format!("{name} occurs {times} times"));
            }
        }
        for name in seen.into_keys() {
            self.violated("completeness", format!("{name} is not to be scheduled"));
        }
    }

    /// Taints, node selectors, required node affinity, and candidates that the pool allows.
    fn nodes(&mut self, place: &Place<'_>) {
        for pod in &place.new_pods {
            for taint in &place.taints {
                if !labels::tolerates(pod, taint) {
                    self.violated("taints", format!("{} on {}: {taint}", full_name(pod), place.name));
                }
            }
            for option in &place.options {
                if !labels::selects(pod, |key| option.label(key))
                    && !place.selects_what_is_excluded(pod, option)
                {
                    let detail = format!("{} on {} as {}", full_name(pod), place.name, option.name);
                    self.violated("node selection", detail);
                    break;
                }
            }
        }
        let Some(pool) = place.pool else { return };
        if !place.new || place.options.is_empty() {
            if place.new {
                self.violated(
                    "candidates",
                    format!("{} has none that can be launched", place.name),
                );
            }
            return;
        }
        let wanted = list(pool, "/spec/template/spec/requirements");
        for option in &place.options {
            let broken = wanted.iter().find(|wanted| {
                let label = option.label(text(wanted, "/key"));
                let excused = matches!(label, Label::Absent) && torn(pool, text(wanted, "/key"));
                !excused && !labels::satisfies(wanted, &label)
            });
            if let Some(broken) = broken {
                let detail = format!("{} as {}: {broken}", place.name, option.name);
                self.violated("pool requirements", detail);
            }
        }
    }

    /// What a pool launches stays within its limits, whichever candidates are taken.
    fn pool_limits(&mut self) {
        for pool in self.scenario.kind("NodePool") {
            let Some(limits) = pool.pointer("/spec/limits").and_then(Value::as_object) else {
                continue;
            };
            let of_pool: Vec<&Place<'_>> = self
                .placement
                .places
                .iter()
                .filter(|place| !place.leaving && place.pool.is_some_and(|own| own == pool))
                .collect();
            if !of_pool.iter().any(|place| place.new) {
                continue;
            }
            for (resource, limit) in limits {
                let limit = quantity(limit);
                let mut total = Quantity::default();
                for place in &of_pool {
                    let most = match resource.as_str() {
                        // Karpenter counts only the nodes from before the run: one run may go past the limit.
                        "nodes" if place.new => Some(Quantity::default()),
                        "nodes" => Some(Quantity::from(1)),
                        _ => place
                            .options
                            .iter()
                            .filter_map(|option| option.capacity.get(resource))
                            .max()
                            .cloned(),
                    };
                    total += &most.unwrap_or_default();
                }
                if resource == "nodes" {
                    total += &Quantity::from(1);
                }
                if total > limit {
                    let name = text(pool, "/metadata/name");
                    self.violated(
                        "limits",
                        format!("{name} may have {limit} {resource} and could get {total}"),
                    );
                }
            }
        }
    }

    /// The candidates of a claim keep as many values as the pool demands, unless that may be relaxed.
    fn min_values(&mut self) {
        if self.scenario.options.min_values_policy.as_deref() == Some("BestEffort") {
            return;
        }
        for place in self.placement.places.iter().filter(|place| place.new) {
            let Some(pool) = place.pool else { continue };
            for wanted in list(pool, "/spec/template/spec/requirements") {
                let Some(least) = wanted.pointer("/minValues").and_then(Value::as_u64) else {
                    continue;
                };
                let key = text(wanted, "/key");
                // Candidates count even where a reservation leaves them no offering.
                let values: BTreeSet<String> = place
                    .candidates
                    .iter()
                    .filter_map(|entry| entry_label(entry, key))
                    .flatten()
                    .collect();
                if (values.len() as u64) < least {
                    self.violated(
                        "minValues",
                        format!("{} keeps {} of {least} values of {key}", place.name, values.len()),
                    );
                }
            }
        }
    }
}

/// Whether a pool says more than one thing of a label. If they exclude each other, its nodes go without the label.
fn torn(pool: &Value, key: &str) -> bool {
    let stated = list(pool, "/spec/template/spec/requirements")
        .iter()
        .filter(|one| text(one, "/key") == key)
        .count();
    let labelled = pool
        .pointer("/spec/template/metadata/labels")
        .is_some_and(|labels| labels.get(key).is_some());
    stated + usize::from(labelled) > 1
}

/// The labels of a node of this entry, apart from what an offering and a pool add.
fn entry_label(entry: &Entry, key: &str) -> Option<BTreeSet<String>> {
    if matches!(key, ZONE | CAPACITY_TYPE) {
        return None;
    }
    if key == super::facts::OS {
        return Some(entry.operating_systems.iter().cloned().collect());
    }
    entry.labels().remove(key).map(|value| BTreeSet::from([value]))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn quantity(value: &Value) -> Quantity {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn full_name(object: &Value) -> String {
    let namespace = match text(object, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    };
    format!("{namespace}/{}", text(object, "/metadata/name"))
}

fn namespace(object: &Value) -> &str {
    match text(object, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    }
}

/// The entries with the names of a claim's candidates.
fn candidates<'a>(entries: &[&'a Entry], names: &[String]) -> Result<Vec<&'a Entry>> {
    let mut found: Vec<&Entry> = Vec::new();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for name in &wanted {
        let before = found.len();
        found.extend(entries.iter().filter(|entry| entry.name == *name));
        (found.len() > before)
            .then_some(())
            .with_context(|| format!("{INSTANCE_TYPE} {name} is not offered"))?;
    }
    Ok(found)
}
