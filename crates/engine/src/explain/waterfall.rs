//! The waterfall of a NodePool: from the whole catalogue to what is left for a pod, step by step.
//!
//! Invariants: a step begins with what the one before it has left; the first begins with the whole catalogue; the
//! counts of a step add up over architectures and over families.

use std::collections::BTreeMap;

use crate::bitset::BitSet;
use crate::instance_type::Catalogue;
use crate::labels::ARCH;
use crate::packing::probe::{Constraint, PoolProbe, Probe, Stage};

/// How many types there are, and of which sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub total: usize,
    /// By `kubernetes.io/arch`.
    pub by_architecture: BTreeMap<String, usize>,
    /// By family: what stands before the dot of the name.
    pub by_family: BTreeMap<String, usize>,
    /// By capacity type; a type with several counts in each.
    pub by_capacity_type: BTreeMap<String, usize>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// What kind of constraint it is.
    pub stage: Stage,
    /// What removes types; none where nothing is removed.
    pub constraint: Option<Constraint>,
    /// What there was.
    pub before: Counts,
    /// What is left.
    pub after: Counts,
    /// The types that are removed here, as positions in the catalogue.
    pub removed: BitSet,
}

/// What a NodePool leaves for a pod.
#[derive(Clone, Debug)]
pub struct Waterfall {
    /// The NodePool.
    pub node_pool: String,
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// The types that are left, as positions in the catalogue.
    pub remaining: BitSet,
    /// What the solver itself leaves; none where it refuses the pod.
    pub accepted: Option<BitSet>,
    /// Why the NodePool takes no part at all, if so.
    pub skipped: Option<String>,
}

impl Waterfall {
    pub(super) fn new(pool: &PoolProbe, probe: &Probe, names: &Names) -> Self {
        let steps: Vec<Step> = pool
            .rows
            .iter()
            .map(|row| {
                let mut removed = row.before.clone();
                removed.subtract(&row.after);
                Step {
                    stage: row.stage,
                    constraint: row.constraint.clone(),
                    before: names.counts(&row.before, None, probe),
                    after: names.counts(&row.after, Some(&row.classes), probe),
                    removed,
                }
            })
            .collect();
        let nothing = || BitSet::empty(names.architectures.len());
        Self {
            node_pool: pool.name.clone(),
            remaining: pool.rows.last().map_or_else(nothing, |row| row.after.clone()),
            steps,
            accepted: pool.accepted.clone(),
            skipped: pool.skipped.clone(),
        }
    }

    /// The step that removes a type of the catalogue; none if it is left.
    #[must_use]
    pub fn removed_at(&self, entry: usize) -> Option<(usize, &Step)> {
        let mut steps = self.steps.iter().enumerate();
        steps.find(|(_, step)| step.removed.contains(entry))
    }
}

/// The architecture and the family of every type.
pub(super) struct Names {
    architectures: Vec<String>,
    families: Vec<String>,
}

impl Names {
    pub(super) fn new(catalogue: &Catalogue) -> Self {
        let vocabulary = &catalogue.vocabulary;
        let arch = vocabulary.get(ARCH);
        let types = catalogue.types.iter();
        let (architectures, families) = types
            .map(|it| {
                let values = arch.and_then(|key| it.requirements.get(key));
                let value = values.and_then(|requirement| requirement.values().first());
                let architecture = value.map_or("", |value| vocabulary.text(*value));
                let family = it.name.split_once('.').map_or(&*it.name, |(family, _)| family);
                (architecture.to_owned(), family.to_owned())
            })
            .unzip();
        Self {
            architectures,
            families,
        }
    }

    fn counts(&self, set: &BitSet, classes: Option<&BitSet>, probe: &Probe) -> Counts {
        let mut counts = Counts {
            total: set.len(),
            ..Counts::default()
        };
        for entry in set.iter() {
            if let (Some(architecture), Some(family)) =
                (self.architectures.get(entry), self.families.get(entry))
            {
                count(&mut counts.by_architecture, architecture);
                count(&mut counts.by_family, family);
            }
        }
        let mut with: BTreeMap<&str, BitSet> = BTreeMap::new();
        for (class, (capacity_type, offered)) in probe.capacity_types.iter().zip(&probe.offered).enumerate() {
            if classes.is_none_or(|classes| classes.contains(class)) {
                with.entry(capacity_type)
                    .or_insert_with(|| BitSet::empty(self.families.len()))
                    .union_with(offered);
            }
        }
        for (capacity_type, mut types) in with {
            types.intersect_with(set);
            if !types.is_empty() {
                counts
                    .by_capacity_type
                    .insert(capacity_type.to_owned(), types.len());
            }
        }
        counts
    }
}

fn count(counts: &mut BTreeMap<String, usize>, name: &str) {
    match counts.get_mut(name) {
        Some(number) => *number += 1,
        None => _ = counts.insert(name.to_owned(), 1),
    }
}
