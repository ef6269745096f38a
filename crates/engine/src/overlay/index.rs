//! The catalogue as columns, so that a requirement is matched once per distinct label value and not once per type.
//!
//! A *shape* is one distinct requirement that types have on a label; nearly every label has few (two
//! architectures, forty sizes). An *offering class* is one distinct set of offering labels (spot in zone a, …).
//! An overlay is compared with shapes and classes; the answer for 1,724 types is then a handful of bit operations.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::bitset::BitSet;
use crate::instance_type::Catalogue;
use crate::labels::LabelSet;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::vocabulary::{Symbol, Vocabulary};

/// One label across all types.
#[derive(Debug, Default)]
struct Column {
    /// Each distinct requirement that some type has on this label, with the types that have it.
    shapes: Vec<(Requirement, BitSet)>,
    /// The shapes that allow exactly one value, by that value.
    by_value: HashMap<Symbol, usize>,
    /// The shapes that are not in `by_value`.
    irregular: Vec<usize>,
    /// The types that say nothing about this label.
    absent: BitSet,
}

/// The types of a catalogue, arranged for matching.
#[derive(Debug)]
pub(super) struct TypeIndex {
    columns: HashMap<Symbol, Column>,
    entries: usize,
    /// Each distinct set of offering labels.
    classes: Vec<Requirements>,
    /// The class of each offering of each type.
    class_of: Vec<Vec<u32>>,
    /// For each type, the classes that it is offered in.
    classes_of_entry: Vec<BitSet>,
    /// Which types share a name, and so share what overlays do to them: the number of the name.
    name_of: Vec<u32>,
    names: usize,
}

impl TypeIndex {
    pub(super) fn new(catalogue: &Catalogue) -> Self {
        let entries = catalogue.types.len();
        let mut classes: Vec<Requirements> = Vec::new();
        let mut class_numbers: HashMap<&Requirements, u32> = HashMap::new();
        let mut name_numbers: HashMap<&str, u32> = HashMap::new();
        let mut class_of = Vec::with_capacity(entries);
        let mut name_of = Vec::with_capacity(entries);
        for it in &catalogue.types {
            let next = number(name_numbers.len());
            name_of.push(*name_numbers.entry(&it.name).or_insert(next));
            let number_of = |requirements| {
                *class_numbers.entry(requirements).or_insert_with(|| {
                    classes.push(Requirements::clone(requirements));
                    number(classes.len() - 1)
                })
            };
            class_of.push(
                it.offerings
                    .iter()
                    .map(|offering| &offering.requirements)
                    .map(number_of)
                    .collect(),
            );
        }
        let classes_of_entry = class_of
            .iter()
            .map(|of: &Vec<u32>| {
                let mut set = BitSet::empty(classes.len());
                of.iter().for_each(|class| set.insert(*class as usize));
                set
            })
            .collect();
        let names = name_numbers.len();
        Self {
            columns: columns(catalogue),
            entries,
            classes,
            class_of,
            classes_of_entry,
            name_of,
            names,
        }
    }

    /// How many types there are.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// How many distinct names the types have.
    pub(super) fn names(&self) -> usize {
        self.names
    }

    /// How many offering classes there are.
    pub(super) fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// The number of the name of type `entry`.
    pub(super) fn name_of(&self, entry: usize) -> usize {
        self.name_of.get(entry).map_or(0, |name| *name as usize)
    }

    /// The class of each offering of type `entry`.
    pub(super) fn class_of(&self, entry: usize) -> &[u32] {
        self.class_of.get(entry).map_or(&[], Vec::as_slice)
    }

    /// The classes that type `entry` is offered in.
    pub(super) fn classes_of_entry(&self, entry: usize) -> &[u64] {
        self.classes_of_entry.get(entry).map_or(&[], BitSet::words)
    }

    /// The offering classes that a selection by `wanted` includes.
    pub(super) fn matching_classes(
        &self,
        wanted: &Requirements,
        well_known: &LabelSet,
        vocabulary: &Vocabulary,
    ) -> BitSet {
        let mut set = BitSet::empty(self.classes.len());
        for (class, offered) in self.classes.iter().enumerate() {
            if wanted.compatible(offered, well_known, vocabulary).is_ok() {
                set.insert(class);
            }
        }
        set
    }

    /// The types whose label `key`, narrowed by what the pool says about it, satisfies `wanted`. A label that
    /// neither defines only satisfies a requirement that accepts its absence.
    pub(super) fn matching_entries(
        &self,
        key: Symbol,
        wanted: &Requirement,
        pool: Option<&Requirement>,
        vocabulary: &Vocabulary,
    ) -> BitSet {
        let agree = |offered: &Requirement| {
            offered.has_intersection(wanted, vocabulary)
                || (wanted.accepts_absence() && offered.accepts_absence())
        };
        let undefined = || pool.map_or_else(|| wanted.accepts_absence(), &agree);
        let Some(column) = self.columns.get(&key) else {
            return if undefined() {
                BitSet::full(self.entries)
            } else {
                BitSet::empty(self.entries)
            };
        };
        let mut set = if undefined() {
            column.absent.clone()
        } else {
            BitSet::empty(self.entries)
        };
        let mut consider = |(shape, entries): &(Requirement, BitSet)| {
            let matches = match pool {
                Some(pool) => agree(&shape.intersection(pool, vocabulary)),
                None => agree(shape),
            };
            if matches {
                set.union_with(entries);
            }
        };
        // A list of values finds its shapes by look-up; everything else asks each shape.
        if wanted.operator() == Operator::In && pool.is_none() {
            let listed = wanted
                .values()
                .iter()
                .filter_map(|value| column.by_value.get(value));
            listed
                .chain(&column.irregular)
                .filter_map(|at| column.shapes.get(*at))
                .for_each(consider);
        } else {
            column.shapes.iter().for_each(&mut consider);
        }
        set
    }
}

fn columns(catalogue: &Catalogue) -> HashMap<Symbol, Column> {
    let entries = catalogue.types.len();
    let mut columns: HashMap<Symbol, Column> = HashMap::new();
    let mut shape_numbers: HashMap<(Symbol, &Requirement), usize> = HashMap::new();
    for (entry, it) in catalogue.types.iter().enumerate() {
        for (key, requirement) in it.requirements.iter() {
            let column = columns.entry(key).or_insert_with(|| Column {
                absent: BitSet::full(entries),
                ..Column::default()
            });
            let at = *shape_numbers.entry((key, requirement)).or_insert_with(|| {
                let at = column.shapes.len();
                column.shapes.push((requirement.clone(), BitSet::empty(entries)));
                match requirement
                    .single_value()
                    .map(|value| column.by_value.entry(value))
                {
                    Some(Entry::Vacant(first)) => {
                        first.insert(at);
                    }
                    _ => column.irregular.push(at),
                }
                at
            });
            if let Some((_, set)) = column.shapes.get_mut(at) {
                set.insert(entry);
            }
        }
    }
    for column in columns.values_mut() {
        let Column { shapes, absent, .. } = column;
        shapes.iter().for_each(|(_, set)| absent.subtract(set));
    }
    columns
}

/// A position as a compact number; catalogues are far below the limit.
pub(super) fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
