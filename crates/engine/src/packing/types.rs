//! The instance types as columns: which of them a set of requirements leaves, and which of them are large enough.
//!
//! A label's distinct requirements over all types are few, so a requirement is compared with those and the answer
//! for every type is a bit set, remembered. The types that have at least an amount of a resource are a bit set per
//! distinct amount. What is left of 1,724 types is then a few dozen machine words combined.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Problem;
use super::amounts::{Amount, Dimensions, amount};
use super::hash::FastMap;
use super::ids::{Id, StateId};
use super::states::States;
use crate::bitset::BitSet;
use crate::instance_type::{Catalogue, InstanceType};
use crate::labels::{CAPACITY_TYPE, RESERVED};
use crate::requirements::{Requirement, Requirements};
use crate::resources::{HUGEPAGES_PREFIX, MEMORY, ResourceList};
use crate::vocabulary::{Symbol, Vocabulary};

/// The label that names a capacity reservation.
const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

/// One label over all types.
#[derive(Debug)]
struct Column {
    /// Each distinct requirement that types have on the label, with those types.
    shapes: Vec<(Requirement, BitSet)>,
    /// The types that say nothing about the label.
    absent: BitSet,
    /// The answers given so far.
    answers: FastMap<Requirement, BitSet>,
}

/// A distinct set of offering labels, with the types that have an available offering with them.
#[derive(Debug)]
pub(super) struct OfferingClass {
    pub(super) requirements: Requirements,
    pub(super) types: BitSet,
}

/// An offering that a capacity reservation holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservedOffering {
    pub(super) entry: usize,
    pub(super) class: u32,
    /// The number of its reservation.
    pub(super) reservation: usize,
}

/// What a state leaves of the catalogue.
#[derive(Debug)]
pub(super) struct Left {
    /// The types that agree with it and have an available offering that does.
    pub(super) types: BitSet,
    /// The offering classes that agree with it.
    pub(super) classes: BitSet,
}

/// The catalogue, arranged for filtering.
#[derive(Debug)]
pub(super) struct Types {
    pub(super) catalogue: Arc<Catalogue>,
    columns: FastMap<Symbol, Column>,
    /// The labels that some type says something about; of all others there is no column.
    labels: BTreeSet<Symbol>,
    /// The column of a label that no type knows.
    unknown: Column,
    pub(super) classes: Vec<OfferingClass>,
    /// The class of every offering of every type, in the order of the catalogue.
    pub(super) class_of_offering: Vec<u32>,
    pub(super) reserved: Vec<ReservedOffering>,
    /// The id and the free capacity of every reservation.
    pub(super) reservations: Vec<(Symbol, i64)>,
    pub(super) reservation_label: Option<Symbol>,
    /// What each state leaves; empty until asked for.
    by_state: Vec<Option<Arc<Left>>>,
}

impl Types {
    pub(super) fn new(catalogue: &Arc<Catalogue>, vocabulary: &Vocabulary) -> Self {
        let mut types = Self {
            catalogue: Arc::clone(catalogue),
            columns: FastMap::default(),
            labels: labels_of(catalogue),
            unknown: Column {
                shapes: Vec::new(),
                absent: BitSet::full(catalogue.types.len()),
                answers: FastMap::default(),
            },
            classes: Vec::new(),
            class_of_offering: Vec::new(),
            reserved: Vec::new(),
            reservations: Vec::new(),
            reservation_label: None,
            by_state: Vec::new(),
        };
        types.read_offerings(vocabulary);
        types
    }

    pub(super) fn count(&self) -> usize {
        self.catalogue.types.len()
    }

    fn read_offerings(&mut self, vocabulary: &Vocabulary) {
        let count = self.count();
        let catalogue = Arc::clone(&self.catalogue);
        let reserved = vocabulary.get(CAPACITY_TYPE).zip(vocabulary.get(RESERVED));
        self.reservation_label = vocabulary.get(RESERVATION_ID);
        let mut numbers: FastMap<&Requirements, u32> = FastMap::default();
        // Neighbouring types usually have the same offerings in the same order.
        let mut previous: Vec<u32> = Vec::new();
        for (entry, it) in catalogue.types.iter().enumerate() {
            let mut current = Vec::with_capacity(it.offerings.len());
            for (at, offering) in it.offerings.iter().enumerate() {
                let guess = previous.get(at).copied().filter(|class| {
                    self.classes
                        .get(*class as usize)
                        .is_some_and(|known| known.requirements == offering.requirements)
                });
                let class = guess.unwrap_or_else(|| {
                    *numbers.entry(&offering.requirements).or_insert_with(|| {
                        let requirements = offering.requirements.clone();
                        self.classes.push(OfferingClass {
                            requirements,
                            types: BitSet::empty(count),
                        });
                        u32::try_from(self.classes.len() - 1).unwrap_or(u32::MAX)
                    })
                });
                current.push(class);
                if offering.available
                    && let Some(class) = self.classes.get_mut(class as usize)
                {
                    class.types.insert(entry);
                }
                let is_reserved = reserved.is_some_and(|(key, value)| {
                    offering.requirements.get(key).and_then(Requirement::single_value) == Some(value)
                });
                if is_reserved {
                    self.add_reserved(entry, class, offering.reservation_capacity, offering.available);
                }
            }
            self.class_of_offering.extend(&current);
            previous = current;
        }
    }

    fn add_reserved(&mut self, entry: usize, class: u32, capacity: i64, available: bool) {
        let id = self.reservation_label.and_then(|label| {
            self.classes
                .get(class as usize)?
                .requirements
                .get(label)?
                .single_value()
        });
        let Some(id) = id else { return };
        let reservation = self
            .reservations
            .iter()
            .position(|(known, _)| *known == id)
            .unwrap_or_else(|| {
                self.reservations.push((id, capacity));
                self.reservations.len() - 1
            });
        // Several offerings of one reservation: the smallest count is the safe one.
        if let Some((_, free)) = self.reservations.get_mut(reservation) {
            *free = capacity.min(*free);
        }
        if available {
            self.reserved.push(ReservedOffering {
                entry,
                class,
                reservation,
            });
        }
    }

    fn column(&mut self, key: Symbol) -> &mut Column {
        if !self.labels.contains(&key) {
            return &mut self.unknown;
        }
        let catalogue = &self.catalogue;
        self.columns.entry(key).or_insert_with(|| {
            let count = catalogue.types.len();
            let mut shapes: Vec<(Requirement, BitSet)> = Vec::new();
            let mut numbers: FastMap<&Requirement, usize> = FastMap::default();
            let mut absent = BitSet::empty(count);
            for (entry, it) in catalogue.types.iter().enumerate() {
                let Some(requirement) = it.requirements.get(key) else {
                    absent.insert(entry);
                    continue;
                };
                let at = *numbers.entry(requirement).or_insert_with(|| {
                    shapes.push((requirement.clone(), BitSet::empty(count)));
                    shapes.len() - 1
                });
                if let Some((_, set)) = shapes.get_mut(at) {
                    set.insert(entry);
                }
            }
            Column {
                shapes,
                absent,
                answers: FastMap::default(),
            }
        })
    }

    /// Each distinct requirement that types have on `key`, with those types.
    pub(super) fn shapes(&mut self, key: Symbol) -> &[(Requirement, BitSet)] {
        &self.column(key).shapes
    }

    /// Whether some type says nothing about `key`.
    pub(super) fn any_without(&mut self, key: Symbol) -> bool {
        !self.column(key).absent.is_empty()
    }

    /// The types whose own `key` agrees with `requirement`, or that do not have it.
    pub(super) fn agreeing(
        &mut self,
        key: Symbol,
        requirement: &Requirement,
        vocabulary: &Vocabulary,
    ) -> &BitSet {
        let column = self.column(key);
        if column.shapes.is_empty() {
            return &column.absent;
        }
        if !column.answers.contains_key(requirement) {
            let mut set = column.absent.clone();
            for (shape, types) in &column.shapes {
                let agree = shape.has_intersection(requirement, vocabulary)
                    || (shape.accepts_absence() && requirement.accepts_absence());
                if agree {
                    set.union_with(types);
                }
            }
            column.answers.insert(requirement.clone(), set);
        }
        column.answers.entry(requirement.clone()).or_default()
    }

    /// The types that `requirements` leave, whatever is offered.
    pub(super) fn compatible(&mut self, requirements: &Requirements, vocabulary: &Vocabulary) -> BitSet {
        let mut set = BitSet::full(self.count());
        for (key, requirement) in requirements.iter() {
            set.intersect_with(self.agreeing(key, requirement, vocabulary));
        }
        set
    }

    /// The offering classes that `requirements` leave.
    pub(super) fn compatible_classes(&self, requirements: &Requirements, states: &States) -> BitSet {
        let mut classes = BitSet::empty(self.classes.len());
        for (at, class) in self.classes.iter().enumerate() {
            if requirements
                .compatible(&class.requirements, states.well_known(), &states.vocabulary)
                .is_ok()
            {
                classes.insert(at);
            }
        }
        classes
    }

    /// The types that have an available offering of one of `classes`.
    pub(super) fn offered(&self, classes: &BitSet) -> BitSet {
        let mut set = BitSet::empty(self.count());
        for class in classes.iter().filter_map(|class| self.classes.get(class)) {
            set.union_with(&class.types);
        }
        set
    }

    /// What `state` leaves.
    pub(super) fn left(&mut self, state: StateId, states: &States) -> Arc<Left> {
        if let Some(Some(known)) = self.by_state.get(state.index()) {
            return Arc::clone(known);
        }
        let requirements = states.get(state);
        let mut types = self.compatible(requirements, &states.vocabulary);
        let classes = self.compatible_classes(requirements, states);
        types.intersect_with(&self.offered(&classes));
        let left = Arc::new(Left { types, classes });
        if self.by_state.len() <= state.index() {
            self.by_state.resize(state.index() + 1, None);
        }
        if let Some(slot) = self.by_state.get_mut(state.index()) {
            *slot = Some(Arc::clone(&left));
        }
        left
    }
}

fn labels_of(catalogue: &Catalogue) -> BTreeSet<Symbol> {
    let all = catalogue.types.iter();
    all.flat_map(|it| it.requirements.iter().map(|(key, _)| key))
        .collect()
}

/// One resource over all types.
#[derive(Debug, Default)]
pub(super) struct Ladder {
    /// What each type has.
    row: Vec<Amount>,
    /// The distinct amounts, ascending.
    amounts: Vec<Amount>,
    /// For each of them, the types that have at least as much.
    at_least: Vec<BitSet>,
    /// The types by amount, largest first.
    descending: Vec<u32>,
}

/// How large the types are for the pods of a NodePool.
#[derive(Debug)]
pub(super) struct Sizes {
    ladders: Vec<Ladder>,
    /// The types on which anything fits at all.
    usable: BitSet,
}

impl Sizes {
    /// The sizes in the NodePool at `pool`, after overlays.
    pub(super) fn new(problem: &Problem<'_>, pool: usize, dimensions: &Dimensions) -> Self {
        let catalogue = &problem.catalogue;
        let count = catalogue.types.len();
        let mut rows = vec![vec![0; count]; dimensions.names().len()];
        let mut usable = BitSet::empty(count);
        for (entry, it) in catalogue.types.iter().enumerate() {
            if problem.is_plain(pool, entry) {
                if is_usable(it) {
                    usable.insert(entry);
                }
                for (row, name) in rows.iter_mut().zip(dimensions.names()) {
                    if let Some(cell) = row.get_mut(entry) {
                        *cell = allocatable(it, name);
                    }
                }
            } else {
                let list = problem.allocatable(pool, entry, it);
                if list.iter().all(|(_, quantity)| !quantity.is_negative()) {
                    usable.insert(entry);
                }
                for (row, value) in rows.iter_mut().zip(dimensions.row(&list)) {
                    if let Some(cell) = row.get_mut(entry) {
                        *cell = value;
                    }
                }
            }
        }
        Self {
            ladders: rows.into_iter().map(Ladder::new).collect(),
            usable,
        }
    }

    /// Removes from `set` the types on which `needed` does not fit.
    pub(super) fn keep_fitting(&self, set: &mut BitSet, needed: &[Amount]) {
        set.intersect_with(&self.usable);
        for (ladder, needed) in self.ladders.iter().zip(needed) {
            ladder.keep(set, *needed);
        }
    }

    /// What a type has of each resource.
    pub(super) fn of_type(&self, entry: usize) -> impl Iterator<Item = Amount> {
        self.ladders
            .iter()
            .map(move |ladder| ladder.row.get(entry).copied().unwrap_or(0))
    }

    /// The most of each resource that a type of `set` has.
    pub(super) fn largest(&self, set: &BitSet, into: &mut [Amount]) {
        for (ladder, cell) in self.ladders.iter().zip(into) {
            *cell = ladder.largest(set);
        }
    }
}

impl Ladder {
    pub(super) fn new(row: Vec<Amount>) -> Self {
        let mut descending: Vec<u32> = (0..u32::try_from(row.len()).unwrap_or(u32::MAX)).collect();
        let of = |entry: &u32| row.get(*entry as usize).copied().unwrap_or(0);
        descending.sort_by_key(|entry| std::cmp::Reverse(of(entry)));
        let (mut amounts, mut at_least) = (Vec::new(), Vec::new());
        let mut set = BitSet::empty(row.len());
        for alike in descending.chunk_by(|a, b| of(a) == of(b)) {
            for entry in alike {
                set.insert(*entry as usize);
            }
            amounts.extend(alike.first().map(of));
            at_least.push(set.clone());
        }
        amounts.reverse();
        at_least.reverse();
        Self {
            row,
            amounts,
            at_least,
            descending,
        }
    }

    /// Removes from `set` the types that have less than `needed`.
    fn keep(&self, set: &mut BitSet, needed: Amount) {
        if needed <= 0 {
            return;
        }
        let step = self.amounts.partition_point(|amount| *amount < needed);
        match self.at_least.get(step) {
            Some(large_enough) => set.intersect_with(large_enough),
            None => set.subtract(&set.clone()),
        }
    }

    /// What each type has.
    pub(super) fn row(&self) -> &[Amount] {
        &self.row
    }

    /// Removes from `set` the types that have more than `allowed`.
    pub(super) fn keep_at_most(&self, set: &mut BitSet, allowed: Amount) {
        let step = self.amounts.partition_point(|amount| *amount <= allowed);
        if let Some(too_large) = self.at_least.get(step) {
            set.subtract(too_large);
        }
    }

    /// The most that a type of `set` has.
    pub(super) fn largest(&self, set: &BitSet) -> Amount {
        let first = self
            .descending
            .iter()
            .find(|entry| set.contains(**entry as usize));
        first
            .and_then(|entry| self.row.get(*entry as usize))
            .copied()
            .unwrap_or(0)
    }
}

/// What the system keeps of a machine, list by list.
fn overhead_lists(it: &InstanceType) -> impl Iterator<Item = &ResourceList> {
    let overhead = &it.overhead;
    [
        &overhead.kube_reserved,
        &overhead.system_reserved,
        &overhead.eviction_threshold,
    ]
    .into_iter()
    .filter(|list| !list.is_empty())
}

/// What the system keeps of `name`.
fn overhead(it: &InstanceType, name: &str) -> Amount {
    overhead_lists(it)
        .filter_map(|list| list.get(name))
        .map(amount)
        .sum()
}

/// What pods can use of `name`, as [`crate::instance_type::allocatable`] states it for all resources at once.
fn allocatable(it: &InstanceType, name: &str) -> Amount {
    let Some(capacity) = it.capacity.get(name) else {
        return 0;
    };
    let left = amount(capacity) - overhead(it, name);
    if name == MEMORY {
        without_hugepages(left, &it.capacity)
    } else {
        left
    }
}

fn without_hugepages(memory: Amount, capacity: &ResourceList) -> Amount {
    let pages = capacity
        .iter()
        .filter(|(name, _)| name.starts_with(HUGEPAGES_PREFIX));
    pages.fold(memory, |left, (_, quantity)| (left - amount(quantity)).max(0))
}

/// Whether no resource is overdrawn by the overhead: nothing fits on a type where one is.
fn is_usable(it: &InstanceType) -> bool {
    // Memory without huge pages may be none at all, but huge pages never make it less than that.
    let has_room = |name: &str| allocatable(it, name) >= 0;
    it.capacity.iter().all(|(_, quantity)| !quantity.is_negative())
        && overhead_lists(it).all(|list| list.iter().all(|(name, _)| has_room(name)))
}

/// The capacity of every type, for one resource of a NodePool's limits.
pub(super) fn capacity_row(problem: &Problem<'_>, pool: usize, resource: &str) -> Vec<Amount> {
    let types = problem.catalogue.types.iter().enumerate();
    types
        .map(|(entry, it)| problem.capacity(pool, entry, it).get(resource).map_or(0, amount))
        .collect()
}
