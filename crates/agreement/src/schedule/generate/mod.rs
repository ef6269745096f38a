//! Draws scenarios. A scenario depends on its seed, its number and the constraint asked for, on nothing else.

mod daemons;
mod groups;
mod nodes;
mod overlays;
mod pools;
mod selectors;
mod storage;
mod topology;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::facts::{Entry, Facts, Offer, OfferLabel, RESERVATION, ZONES};
use super::{Constraint, Options, Scenario};
use crate::Rng;

/// What is drawn, step by step.
struct Draft<'a> {
    rng: &'a mut Rng,
    constraints: BTreeSet<Constraint>,
    /// The entries that can be launched.
    entries: Vec<Entry>,
    /// The names of pools, and how many of the groups of pods there are.
    pools: Vec<String>,
    /// Labels that pools put on their nodes.
    pool_labels: Vec<(String, String)>,
    groups: usize,
    objects: Vec<Value>,
    serial: i64,
}

/// The scenario `number` under `seed`, and what it exercises. Every third has one constraint only.
#[must_use]
pub fn generate(
    facts: &Facts,
    seed: u64,
    number: u64,
    only: Option<Constraint>,
) -> (BTreeSet<Constraint>, Scenario) {
    let rng = &mut Rng::new(seed, number);
    let all = Constraint::ALL;
    let mut constraints = BTreeSet::new();
    match only {
        Some(constraint) => _ = constraints.insert(constraint),
        None if number.is_multiple_of(3) => {
            let at = (number / 3) as usize % all.len();
            constraints.extend(all.get(at));
        }
        None => {
            for _ in 0..rng.between(2, 6) {
                constraints.insert(*rng.pick(all));
            }
        }
    }
    let chosen = constraints.clone();
    imply(&mut constraints);
    let whole = constraints.contains(&Constraint::FullCatalogue);
    let entries = if whole {
        facts.entries.clone()
    } else {
        some_entries(facts, rng)
    };
    let types = (!whole).then(|| {
        let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        names.into_iter().collect()
    });
    let mut draft = Draft {
        rng,
        constraints,
        entries,
        pools: Vec::new(),
        pool_labels: Vec::new(),
        groups: 0,
        objects: Vec::new(),
        serial: 0,
    };
    let catalog = draft.reserve();
    draft.groups = draft.rng.between(1, 5) as usize;
    draft.node_pools();
    draft.namespaces();
    draft.overlays();
    draft.storage_classes();
    draft.daemon_sets();
    draft.nodes();
    draft.pods();
    let options = draft.options();
    let scenario = Scenario {
        objects: draft.objects,
        types: if catalog.is_some() { None } else { types },
        catalog,
        options,
    };
    (chosen, scenario)
}

/// Some constraints mean nothing without others.
fn imply(constraints: &mut BTreeSet<Constraint>) {
    use Constraint::{
        AttachLimits, ExistingNodes, IgnorePreferences, PreferredNodeAffinity, PreferredPodAffinity,
        SpreadOptions, ZoneSpread,
    };
    for (one, others) in [
        (
            IgnorePreferences,
            [PreferredNodeAffinity, PreferredPodAffinity, SpreadOptions].as_slice(),
        ),
        (SpreadOptions, &[ZoneSpread]),
        (AttachLimits, &[ExistingNodes]),
    ] {
        if constraints.contains(&one) {
            constraints.extend(others);
        }
    }
}

/// A few families, up to some size, so that claims do not all end in the same large machines.
fn some_entries(facts: &Facts, rng: &mut Rng) -> Vec<Entry> {
    let mut families = BTreeSet::from(["m5"]);
    for _ in 0..rng.between(1, 8) {
        families.insert(rng.pick(&facts.entries).family());
    }
    let largest = *rng.pick(&[2, 4, 8, 16, 32, 96, 1000]);
    let fits = |entry: &&Entry| families.contains(entry.family()) && entry.cpu() <= largest;
    facts.entries.iter().filter(fits).cloned().collect()
}

impl Draft<'_> {
    fn has(&self, constraint: Constraint) -> bool {
        self.constraints.contains(&constraint)
    }

    /// A number of its own for names and uids.
    fn serial(&mut self) -> i64 {
        self.serial += 1;
        self.serial
    }

    fn uid(&mut self) -> String {
        // Random first, so that the order of uids is not that of names; the serial makes it unique.
        format!(
            "{:08x}-0000-4000-8000-{:012x}",
            self.rng.next() >> 32,
            self.serial()
        )
    }

    fn timestamp(&mut self) -> String {
        format!(
            "2026-01-01T00:{:02}:{:02}Z",
            self.rng.below(10),
            self.rng.below(60)
        )
    }

    fn entry(&mut self) -> Entry {
        self.rng.pick(&self.entries).clone()
    }

    fn options(&mut self) -> Options {
        let best_effort = self.has(Constraint::MinValues) && self.rng.chance(50);
        Options {
            min_values_policy: best_effort.then(|| "BestEffort".to_owned()),
            preference_policy: self
                .has(Constraint::IgnorePreferences)
                .then(|| "Ignore".to_owned()),
            node_overlay: self.has(Constraint::PriceOverlays) || self.has(Constraint::ExtendedResources),
        }
    }

    /// Adds reservations to some entries; the catalogue has none.
    fn reserve(&mut self) -> Option<Value> {
        if !self.has(Constraint::Reserved) {
            return None;
        }
        // A catalogue inside a scenario is read for it alone; a large one would take most of the time.
        self.entries.truncate(60);
        let mut entries = std::mem::take(&mut self.entries);
        let reservations = self.rng.between(1, 4);
        for at in 0..reservations {
            let zone = *self.rng.pick(&ZONES);
            let capacity = self.rng.between(1, 3);
            let chosen = self.rng.below(entries.len());
            let Some(name) = entries.get(chosen).map(|entry| entry.name.clone()) else {
                continue;
            };
            // Entries of one name share the machine, so they share the reservation.
            for entry in entries.iter_mut().filter(|entry| entry.name == name) {
                let label = |key: &str, value: String| OfferLabel {
                    key: key.to_owned(),
                    operator: "In".to_owned(),
                    values: vec![value],
                };
                entry.offerings.push(Offer {
                    price: 0.000_001,
                    reservation_capacity: capacity,
                    requirements: vec![
                        label("karpenter.sh/capacity-type", "reserved".to_owned()),
                        label("topology.kubernetes.io/zone", zone.to_owned()),
                        label(RESERVATION, format!("cr-{at}")),
                    ],
                });
            }
        }
        self.entries = entries;
        Some(json!(self.entries))
    }

    fn namespaces(&mut self) {
        for (name, team) in [("default", "a"), ("other", "b")] {
            self.objects.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"team": team, "kubernetes.io/metadata.name": name}},
            }));
        }
    }
}
