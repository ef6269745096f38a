//! Which types a new claim aims at.
//!
//! The solver keeps every type that fits, as always, and beside that a narrower set that the claim must not grow out
//! of: the types that give most for their price. Where a NodePool has limits, the claim really gives up the other
//! types, because limits count a claim as its largest type.

use std::sync::Arc;

use super::super::hash::FastMap;
use super::super::ids::{ClaimId, Id, PoolId, ShapeId, SizeId};
use crate::bitset::BitSet;

/// What claims opened by pods of one kind aim at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aim {
    /// The most processors of a type.
    pub(super) most_processors: f64,
    /// How much worse than the best type another one may be and still be aimed at, as a share.
    pub(super) tolerance: f64,
}

/// How good offerings are, and how large types are.
#[derive(Debug, Default)]
pub(super) struct Merits {
    /// For each NodePool that can launch: for each offering in the order of the catalogue, its price for what it can
    /// carry; infinite where it cannot be had.
    pub(super) offerings: Vec<Vec<f64>>,
    /// The class of each offering, in the same order.
    pub(super) classes: Vec<u32>,
    /// Where the offerings of each type begin; one more than there are types.
    pub(super) starts: Vec<usize>,
    /// The processors of each type.
    pub(super) processors: Vec<f64>,
    /// NodePools of the same weight have the same number here; the order is the one in which they are tried.
    pub(super) tiers: Vec<usize>,
    pub(super) kind_of: FastMap<(ShapeId, SizeId), usize>,
}

/// Directs the claims of one run.
#[derive(Debug)]
pub(in crate::packing) struct Steering {
    merits: Arc<Merits>,
    /// For each kind of pods.
    aims: Vec<Aim>,
    /// What each open claim must not grow out of.
    kept: Vec<BitSet>,
    /// The merit of each type by NodePool and ways to buy.
    known: FastMap<(usize, BitSet), Arc<[f64]>>,
}

impl Steering {
    pub(super) fn new(merits: &Arc<Merits>, aims: Vec<Aim>) -> Self {
        Self {
            merits: Arc::clone(merits),
            aims,
            kept: Vec::new(),
            known: FastMap::default(),
        }
    }

    /// NodePools with the same number are chosen among by price.
    pub(in crate::packing) fn tier(&self, pool: PoolId) -> usize {
        self.merits.tiers.get(pool.index()).copied().unwrap_or(0)
    }

    /// What of `types` a new claim for a pod should aim at, and how good the best of it is.
    pub(in crate::packing) fn aim(
        &mut self,
        pool: PoolId,
        pod: (ShapeId, SizeId),
        classes: &BitSet,
        types: &BitSet,
    ) -> (BitSet, f64) {
        let kind = self.merits.kind_of.get(&pod).copied().unwrap_or(0);
        let aim = self.aims.get(kind).or(self.aims.first()).copied().unwrap_or(Aim {
            most_processors: f64::INFINITY,
            tolerance: 0.0,
        });
        let of_types = self.merit_of_types(pool.index(), classes);
        let merit = |entry: usize| of_types.get(entry).copied().unwrap_or(f64::INFINITY);
        let processors = |entry: usize| self.merits.processors.get(entry).copied().unwrap_or(0.0);
        let smallest = types.iter().map(processors).fold(f64::INFINITY, f64::min);
        // A pod that needs more than that gets the smallest types it fits on.
        let most = aim.most_processors.max(smallest);
        let best = types
            .iter()
            .filter(|entry| processors(*entry) <= most)
            .map(merit)
            .fold(f64::INFINITY, f64::min);
        let mut chosen = BitSet::empty(types.words().len() * 64);
        for entry in types.iter() {
            if processors(entry) <= most && merit(entry) <= best * (1.0 + aim.tolerance) {
                chosen.insert(entry);
            }
        }
        (chosen, best)
    }

    fn merit_of_types(&mut self, pool: usize, classes: &BitSet) -> Arc<[f64]> {
        let merits = &self.merits;
        let known = self.known.entry((pool, classes.clone())).or_insert_with(|| {
            let offerings = merits.offerings.get(pool).map_or(&[][..], Vec::as_slice);
            let range = |pair: &[usize]| match pair {
                [start, end] => *start..*end,
                _ => 0..0,
            };
            let of_type = |pair: &[usize]| {
                range(pair)
                    .filter(|at| {
                        let class = merits.classes.get(*at);
                        class.is_some_and(|class| classes.contains(*class as usize))
                    })
                    .filter_map(|at| offerings.get(at).copied())
                    .fold(f64::INFINITY, f64::min)
            };
            merits.starts.windows(2).map(of_type).collect()
        });
        Arc::clone(known)
    }

    /// A claim was opened that must stay within `kept`.
    pub(in crate::packing) fn open(&mut self, kept: BitSet) {
        self.kept.push(kept);
    }

    /// What of `types` the claim aims at.
    pub(in crate::packing) fn within(&self, claim: ClaimId, types: &BitSet) -> BitSet {
        let mut within = types.clone();
        if let Some(kept) = self.kept.get(claim.index()) {
            within.intersect_with(kept);
        }
        within
    }

    /// Whether the claim may shrink to `types`.
    pub(in crate::packing) fn allows(&self, claim: ClaimId, types: &BitSet) -> bool {
        self.kept
            .get(claim.index())
            .is_none_or(|kept| kept.intersects(types))
    }
}
