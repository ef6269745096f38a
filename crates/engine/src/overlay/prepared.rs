//! What one overlay matches, in each pool. It depends on the overlay, the pools and the catalogue alone.

use std::sync::Arc;

use super::Overlay;
use super::index::{TypeIndex, number};
use super::merge::{Matched, NOBODY};
use crate::bitset::BitSet;

/// What one overlay matches.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) overlay: Overlay,
    pub(super) classes: BitSet,
    /// The distinct sets of types over the pools.
    pub(super) sets: Vec<(BitSet, Matched)>,
    /// Which of `sets` belongs to each pool.
    pub(super) set_of_pool: Vec<u32>,
}

pub(super) fn get(prepared: &[Option<Arc<Prepared>>], at: usize) -> Option<&Prepared> {
    prepared.get(at).and_then(Option::as_deref)
}

impl Prepared {
    pub(super) fn set_in(&self, pool: usize) -> Option<&(BitSet, Matched)> {
        self.set_of_pool
            .get(pool)
            .and_then(|set| self.sets.get(*set as usize))
    }

    pub(super) fn matched_in(&self, pool: usize) -> Option<&Matched> {
        self.set_in(pool).map(|(_, matched)| matched)
    }

    /// Whether it matches the offering class of the type in the pool.
    pub(super) fn matches(&self, pool: usize, entry: usize, class: u32) -> bool {
        self.classes.contains(class as usize) && self.set_in(pool).is_some_and(|(set, _)| set.contains(entry))
    }
}

/// Folds the matched types into their names, leaving out types without a matching offering.
pub(super) fn matched(index: &TypeIndex, entries: &BitSet, classes: &BitSet) -> Matched {
    let words = classes.words().len();
    let mut place_of_name: Vec<u32> = vec![NOBODY; index.names()];
    let mut matched = Matched::default();
    for entry in entries.iter() {
        let offered = || {
            index
                .classes_of_entry(entry)
                .iter()
                .zip(classes.words())
                .map(|(a, b)| a & b)
        };
        if offered().all(|word| word == 0) {
            continue;
        }
        let offerings = index.class_of(entry).iter();
        matched.offerings += offerings
            .filter(|class| classes.contains(**class as usize))
            .count();
        let name = index.name_of(entry);
        let Some(place) = place_of_name.get_mut(name) else {
            continue;
        };
        if *place == NOBODY {
            *place = number(matched.names.len());
            matched.names.push(number(name));
            matched.classes.extend(std::iter::repeat_n(0, words));
        }
        for (word, more) in matched
            .classes
            .iter_mut()
            .skip(*place as usize * words)
            .zip(offered())
        {
            *word |= more;
        }
    }
    matched
}
