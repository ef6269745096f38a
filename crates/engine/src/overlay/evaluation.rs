//! The answer of an evaluation, and the questions it answers: prices, capacity, winners, losers, verdicts.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::index::TypeIndex;
use super::merge::{NOBODY, Table};
use super::prepared::{Prepared, get};
use super::{Conflict, OverheadAmount, Overlay, Pool, PriceChange, Problem};
use crate::instance_type::{self, Catalogue, InstanceType, Overhead};
use crate::resources::ResourceList;

/// What became of an overlay.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is applied wherever it matches and is the heaviest.
    Ready,
    /// Another overlay of the same weight sets the same field; it is left out everywhere.
    Conflict(Conflict),
    /// It cannot be read; it is left out everywhere.
    Invalid(Vec<Problem>),
}

/// Where an overlay stands at one offering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The overlay, by its position in what was evaluated.
    pub overlay: usize,
    /// What became of it there.
    pub fate: Fate,
}

/// What became of an overlay at one offering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It sets the price.
    Won,
    /// A heavier one sets the price.
    LostTo(usize),
    /// It is left out everywhere, so it sets nothing here either.
    LeftOut,
}

/// Adjusted prices and capacity for every pool, with verdicts and provenance.
#[derive(Debug)]
pub struct Evaluation {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) index: Arc<TypeIndex>,
    pub(super) pools: Vec<Pool>,
    pub(super) names: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) tables: Vec<Table>,
    /// For each group, the price of each offering of each type, in the order of the catalogue.
    pub(super) prices: Vec<Vec<f64>>,
    pub(super) group_of_pool: Vec<usize>,
    pub(super) prepared: Vec<Option<Arc<Prepared>>>,
    /// The overlay at each rank of the merge.
    pub(super) order: Vec<usize>,
}

impl Evaluation {
    /// The pools, as they were given.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The catalogue that was evaluated.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What became of each overlay, in the order given.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The name of an overlay.
    #[must_use]
    pub fn overlay_name(&self, overlay: usize) -> &str {
        self.names.get(overlay).map_or("", String::as_str)
    }

    /// The overlay itself, if it could be read.
    #[must_use]
    pub fn overlay(&self, overlay: usize) -> Option<&Overlay> {
        get(&self.prepared, overlay).map(|prepared| &prepared.overlay)
    }

    fn table(&self, pool: usize) -> Option<&Table> {
        self.group_of_pool
            .get(pool)
            .and_then(|group| self.tables.get(*group))
    }

    /// The prices of a pool: one for each offering of each type, in the order of the catalogue.
    #[must_use]
    pub fn prices(&self, pool: usize) -> &[f64] {
        self.group_of_pool
            .get(pool)
            .and_then(|group| self.prices.get(*group))
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn adjusted_prices(&self, table: &Table) -> Vec<f64> {
        let changes: Vec<Option<&PriceChange>> = self
            .order
            .iter()
            .map(|at| get(&self.prepared, *at).and_then(|prepared| prepared.overlay.price.as_ref()))
            .collect();
        let mut prices = Vec::new();
        for (entry, it) in self.catalogue.types.iter().enumerate() {
            let winners = self.index.name_of(entry) * self.index.class_count();
            for (offering, class) in it.offerings.iter().zip(self.index.class_of(entry)) {
                let winner = table.price_winner.get(winners + *class as usize);
                let change = winner.and_then(|rank| changes.get(*rank as usize).copied().flatten());
                prices.push(change.map_or(offering.price, |change| change.apply(offering.price)));
            }
        }
        prices
    }

    fn price_winner(&self, table: &Table, entry: usize, class: u32) -> Option<usize> {
        let cell = self.index.name_of(entry) * self.index.class_count() + class as usize;
        let rank = *table.price_winner.get(cell)?;
        if rank == NOBODY {
            None
        } else {
            self.order.get(rank as usize).copied()
        }
    }

    fn class(&self, entry: usize, offering: usize) -> Option<u32> {
        self.index.class_of(entry).get(offering).copied()
    }

    /// The overlay that sets the price of an offering, if one does.
    #[must_use]
    pub fn winner(&self, pool: usize, entry: usize, offering: usize) -> Option<usize> {
        self.price_winner(self.table(pool)?, entry, self.class(entry, offering)?)
    }

    /// Every overlay that would set the price of an offering, heaviest first, and what became of it there.
    #[must_use]
    pub fn standings(&self, pool: usize, entry: usize, offering: usize) -> Vec<Standing> {
        let Some(class) = self.class(entry, offering) else {
            return Vec::new();
        };
        let winner = self.winner(pool, entry, offering);
        let contenders = self.order.iter().copied().filter(|at| {
            get(&self.prepared, *at)
                .is_some_and(|p| p.overlay.price.is_some() && p.matches(pool, entry, class))
        });
        contenders
            .map(|overlay| {
                let left_out = !matches!(self.verdicts.get(overlay), Some(Verdict::Ready));
                let fate = match winner {
                    _ if left_out => Fate::LeftOut,
                    Some(winner) if winner != overlay => Fate::LostTo(winner),
                    _ => Fate::Won,
                };
                Standing { overlay, fate }
            })
            .collect()
    }

    /// Whether an overlay matches an offering in a pool, whatever its verdict.
    #[must_use]
    pub fn matches(&self, overlay: usize, pool: usize, entry: usize, offering: usize) -> bool {
        match (get(&self.prepared, overlay), self.class(entry, offering)) {
            (Some(prepared), Some(class)) => prepared.matches(pool, entry, class),
            _ => false,
        }
    }

    /// The overlays that change the capacity of a type in a pool, heaviest first.
    #[must_use]
    pub fn capacity_overlays(&self, pool: usize, entry: usize) -> Vec<usize> {
        let Some(table) = self.table(pool) else {
            return Vec::new();
        };
        let list = table
            .capacity_list
            .get(self.index.name_of(entry))
            .copied()
            .unwrap_or(0);
        let mut overlays: Vec<usize> = table
            .lists
            .lightest_first(list)
            .filter_map(|rank| self.order.get(rank as usize).copied())
            .collect();
        overlays.reverse();
        overlays
    }

    /// The capacity of a type in a pool.
    #[must_use]
    pub fn capacity<'a>(&self, pool: usize, entry: usize, it: &'a InstanceType) -> Cow<'a, ResourceList> {
        let overlays = self.capacity_overlays(pool, entry);
        let mut capacity = Cow::Borrowed(&it.capacity);
        // From the lightest up, so that the heaviest has the last word.
        for overlay in overlays.into_iter().rev().filter_map(|at| self.overlay(at)) {
            if let Some(more) = overlay.capacity.as_ref().filter(|more| !more.is_empty()) {
                capacity = Cow::Owned(capacity.overridden_by(more));
            }
        }
        capacity
    }

    /// What pods can use of a type in a pool.
    #[must_use]
    pub fn allocatable(&self, pool: usize, entry: usize, it: &InstanceType) -> ResourceList {
        let capacity = self.capacity(pool, entry, it);
        let mut kept: HashMap<&str, &OverheadAmount> = HashMap::new();
        let overlays = self.capacity_overlays(pool, entry);
        for overlay in overlays.into_iter().rev().filter_map(|at| self.overlay(at)) {
            kept.extend(
                overlay
                    .overhead
                    .iter()
                    .map(|(resource, amount)| (resource.as_str(), amount)),
            );
        }
        let more: ResourceList = kept
            .into_iter()
            .filter_map(|(resource, amount)| Some((resource, amount.of(capacity.get(resource)?))))
            .collect();
        if more.is_empty() {
            return instance_type::allocatable(&capacity, &it.overhead);
        }
        let mut system_reserved = it.overhead.system_reserved.clone();
        system_reserved.add(&more);
        instance_type::allocatable(
            &capacity,
            &Overhead {
                system_reserved,
                ..it.overhead.clone()
            },
        )
    }

    /// How many offerings an overlay matches in a pool.
    #[must_use]
    pub fn matched_offerings(&self, overlay: usize, pool: usize) -> usize {
        let matched = get(&self.prepared, overlay).and_then(|prepared| prepared.matched_in(pool));
        matched.map_or(0, |matched| matched.offerings)
    }

    /// How many distinct type names and how many offerings (over all pools) an overlay matches.
    #[must_use]
    pub fn match_counts(&self, overlay: usize) -> (usize, usize) {
        let Some(prepared) = get(&self.prepared, overlay) else {
            return (0, 0);
        };
        let pools = (0..self.pools.len()).filter_map(|pool| prepared.matched_in(pool));
        let mut names: BTreeSet<u32> = BTreeSet::new();
        let mut offerings = 0;
        for matched in pools {
            names.extend(&matched.names);
            offerings += matched.offerings;
        }
        (names.len(), offerings)
    }
}
