//! Merging by weight: who sets the price of each offering and the capacity of each type, for one group of pools.
//!
//! Pools that every overlay matches alike form one group and share one result. The state is indexed by the number
//! of the type's *name*, and offering classes are bits, so taking one overlay costs a few operations per matched
//! name, however many offerings there are.

#![allow(
    clippy::indexing_slicing,
    reason = "names and classes index arrays that were sized for them when the table was made"
)]

use std::collections::HashMap;

use super::Overlay;
use crate::bitset::bits;

/// The names that an overlay matches in a group of pools, each with the offering classes that match.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) names: Vec<u32>,
    /// `words_per_name` words for each of `names`.
    pub(super) classes: Vec<u64>,
    /// How many offerings match, those of several entries of one name counted each.
    pub(super) offerings: usize,
}

/// Nobody.
pub(super) const NOBODY: u32 = u32::MAX;

/// A type that two overlays of the same weight both change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    Price { name: u32, class: u32 },
    Capacity { name: u32 },
}

/// The result for one group of pools, and the state while it is made.
#[derive(Debug)]
pub(super) struct Table {
    words_per_name: usize,
    class_count: usize,
    /// The overlay that sets the price, by name and class.
    pub(super) price_winner: Vec<u32>,
    /// The list of overlays that change the capacity, by name.
    pub(super) capacity_list: Vec<u32>,
    pub(super) lists: Lists,
    priced: Vec<u64>,
    /// Which classes an overlay of the current weight has touched.
    touched: Vec<u64>,
    current_weight: i32,
}

/// Lists of overlays, heaviest first, each stored once: list 0 is empty, and every other one extends a shorter one.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The shorter list and the overlay that was added to it.
    links: Vec<(u32, u32)>,
}

impl Lists {
    fn extended(&mut self, list: u32, overlay: u32) -> u32 {
        self.links.push((list, overlay));
        super::index::number(self.links.len())
    }

    fn last(&self, list: u32) -> Option<(u32, u32)> {
        (list as usize)
            .checked_sub(1)
            .and_then(|at| self.links.get(at))
            .copied()
    }

    /// The overlays of `list`, lightest first.
    pub(super) fn lightest_first(&self, list: u32) -> impl Iterator<Item = u32> {
        let mut at = list;
        std::iter::from_fn(move || {
            let (rest, overlay) = self.last(at)?;
            at = rest;
            Some(overlay)
        })
    }
}

impl Table {
    pub(super) fn new(names: usize, class_count: usize) -> Self {
        let words_per_name = class_count.div_ceil(64);
        Self {
            words_per_name,
            class_count,
            price_winner: vec![NOBODY; names * class_count],
            capacity_list: vec![0; names],
            lists: Lists::default(),
            priced: vec![0; names * words_per_name],
            touched: vec![0; names * words_per_name],
            current_weight: i32::MIN,
        }
    }

    /// The first place where taking `overlay` would set what another of the same weight has set.
    pub(super) fn clash(&mut self, overlay: &Overlay, matched: &Matched, all: &[&Overlay]) -> Option<Clash> {
        self.enter_weight(overlay.weight);
        let sets_capacity = overlay.capacity.is_some() || !overlay.overhead.is_empty();
        let words = self.words_per_name;
        for (at, &name) in matched.names.iter().enumerate() {
            if overlay.price.is_some() {
                for word in 0..words {
                    let both =
                        self.touched[name as usize * words + word] & matched.classes[at * words + word];
                    if let Some(bit) = bits(both).next() {
                        return Some(Clash::Price {
                            name,
                            class: super::index::number(word * 64 + bit),
                        });
                    }
                }
            }
            if sets_capacity && self.capacity_clash(name, overlay, all) {
                return Some(Clash::Capacity { name });
            }
        }
        None
    }

    /// Karpenter compares capacity with the last overlay that set any, and only if its weight is the same. The
    /// draft's overhead, which Karpenter lacks, is compared with every overlay of the same weight.
    fn capacity_clash(&self, name: u32, overlay: &Overlay, all: &[&Overlay]) -> bool {
        let list = self.capacity_list[name as usize];
        let mut same_weight = self
            .lists
            .lightest_first(list)
            .map(|earlier| all[earlier as usize])
            .take_while(|earlier| earlier.weight == overlay.weight);
        let capacity_meets = |earlier: &Overlay| match (&overlay.capacity, &earlier.capacity) {
            (Some(ours), Some(theirs)) => ours.iter().any(|(resource, _)| theirs.contains(resource)),
            _ => false,
        };
        let overhead_meets = |earlier: &Overlay| {
            overlay
                .overhead
                .keys()
                .any(|resource| earlier.overhead.contains_key(resource))
        };
        if overlay.overhead.is_empty() {
            same_weight
                .find(|earlier| earlier.capacity.is_some())
                .is_some_and(capacity_meets)
        } else {
            let mut last_capacity = true;
            same_weight.any(|earlier| {
                let capacity = last_capacity && capacity_meets(earlier);
                last_capacity &= earlier.capacity.is_none();
                capacity || overhead_meets(earlier)
            })
        }
    }

    /// Takes `overlay`, which must not clash.
    pub(super) fn take(&mut self, number: u32, overlay: &Overlay, matched: &Matched) {
        self.enter_weight(overlay.weight);
        let words = self.words_per_name;
        if overlay.price.is_some() {
            for (at, &name) in matched.names.iter().enumerate() {
                let name = name as usize;
                for word in 0..words {
                    let classes = matched.classes[at * words + word];
                    let state = name * words + word;
                    self.touched[state] |= classes;
                    let new = classes & !self.priced[state];
                    self.priced[state] |= new;
                    for bit in bits(new) {
                        self.price_winner[name * self.class_count + word * 64 + bit] = number;
                    }
                }
            }
        }
        if overlay.capacity.is_some() || !overlay.overhead.is_empty() {
            // Most names have the same list before, and then they have the same list after.
            let mut extended: HashMap<u32, u32> = HashMap::new();
            for &name in &matched.names {
                let before = self.capacity_list[name as usize];
                let lists = &mut self.lists;
                self.capacity_list[name as usize] = *extended
                    .entry(before)
                    .or_insert_with(|| lists.extended(before, number));
            }
        }
    }

    /// Forgets what lighter overlays no longer have to be compared with.
    fn enter_weight(&mut self, weight: i32) {
        if weight != self.current_weight {
            self.current_weight = weight;
            self.touched.fill(0);
        }
    }
}
