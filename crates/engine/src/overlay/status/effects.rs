//! What overlays change, counted per overlay and per pool.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::overlay::advice::capacity::effective;
use crate::overlay::{Evaluation, Overlay};

/// What one overlay changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayEffect {
    /// How many offerings it matches, by pool.
    pub matched: Vec<usize>,
    /// How many offerings have another price or other resources because of it, by pool.
    pub changed: Vec<usize>,
    /// Whether it sets a price or a resource anywhere, be it the value that was there before.
    pub wins: bool,
    /// Whether it sets anything at all, wherever it matches.
    pub sets_something: bool,
}

/// What overlays change in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolEffect {
    /// How many overlays change something.
    pub overlays: usize,
    /// How many offerings have another price.
    pub repriced: usize,
    /// How many offerings there are.
    pub offerings: usize,
    /// How many types (by name) have other resources.
    pub types_with_resources: usize,
    /// Equal for equal prices and resources: tells changes that the counts do not show.
    pub fingerprint: u64,
}

/// What all overlays change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// For each overlay, in the order of the evaluation.
    pub overlays: Vec<OverlayEffect>,
    /// For each pool, in the order of the evaluation.
    pub pools: Vec<PoolEffect>,
}

impl Effects {
    /// What the overlays of `evaluation` change.
    #[must_use]
    pub fn of(evaluation: &Evaluation) -> Self {
        let pools = evaluation.pools().len();
        let overlays = (0..evaluation.verdicts().len()).map(|at| OverlayEffect {
            matched: (0..pools)
                .map(|pool| evaluation.matched_offerings(at, pool))
                .collect(),
            changed: vec![0; pools],
            wins: false,
            sets_something: evaluation.overlay(at).is_some_and(sets_something),
        });
        let mut effects = Self {
            overlays: overlays.collect(),
            pools: Vec::new(),
        };
        // Pools that all overlays match alike have the same result, and are counted once.
        let mut counted: HashMap<usize, usize> = HashMap::new();
        for (pool, group) in evaluation.group_of_pool.iter().enumerate() {
            let effect = match counted.get(group) {
                Some(&alike) => effects.copied(alike, pool),
                None => effects.count(evaluation, pool),
            };
            counted.entry(*group).or_insert(pool);
            effects.pools.push(effect);
        }
        effects
    }

    /// What was counted for one pool, for another that is alike.
    fn copied(&mut self, alike: usize, pool: usize) -> PoolEffect {
        for OverlayEffect { changed, .. } in &mut self.overlays {
            let counted = changed.get(alike).copied().unwrap_or_default();
            if let Some(changed) = changed.get_mut(pool) {
                *changed = counted;
            }
        }
        self.pools.get(alike).cloned().unwrap_or_default()
    }

    fn count(&mut self, evaluation: &Evaluation, pool: usize) -> PoolEffect {
        let mut fingerprint = DefaultHasher::new();
        let mut effect = PoolEffect::default();
        let mut with_resources: BTreeSet<&str> = BTreeSet::new();
        let mut prices = evaluation.prices(pool).iter();
        for (entry, it) in evaluation.catalogue().types.iter().enumerate() {
            let giving = evaluation.capacity_overlays(pool, entry);
            let giving = effective(evaluation, &giving);
            if !giving.is_empty() {
                with_resources.insert(&it.name);
                for overlay in giving.iter().filter_map(|at| evaluation.overlay(*at)) {
                    (entry, format!("{:?} {:?}", overlay.capacity, overlay.overhead)).hash(&mut fingerprint);
                }
            }
            for (offering, price) in prices.by_ref().take(it.offerings.len()).enumerate() {
                price.to_bits().hash(&mut fingerprint);
                let list = it.offerings.get(offering).map(|offering| offering.price);
                let repriced = list.is_none_or(|list| list.to_bits() != price.to_bits());
                effect.repriced += usize::from(repriced);
                let winner = evaluation.winner(pool, entry, offering);
                for &at in &giving {
                    self.record(at, pool, true);
                }
                if let Some(winner) = winner.filter(|winner| !giving.contains(winner)) {
                    self.record(winner, pool, repriced);
                }
            }
            effect.offerings += it.offerings.len();
        }
        let changing = |one: &&OverlayEffect| one.changed.get(pool).is_some_and(|changed| *changed > 0);
        effect.overlays = self.overlays.iter().filter(changing).count();
        effect.types_with_resources = with_resources.len();
        effect.fingerprint = fingerprint.finish();
        effect
    }

    fn record(&mut self, overlay: usize, pool: usize, changes: bool) {
        if let Some(effect) = self.overlays.get_mut(overlay) {
            effect.wins = true;
            if let Some(changed) = effect.changed.get_mut(pool) {
                *changed += usize::from(changes);
            }
        }
    }
}

fn sets_something(overlay: &Overlay) -> bool {
    let capacity = overlay.capacity.as_ref().is_some_and(|list| !list.is_empty());
    overlay.price.is_some() || capacity || !overlay.overhead.is_empty()
}
