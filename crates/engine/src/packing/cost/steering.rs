//! Which types a new claim aims at, and which pods it takes.
//!
//! The solver keeps every type that fits, as always, and beside that a narrower set that the claim must not grow out
//! of: the types that give most for their price. Where a NodePool has limits, the claim really gives up the other
//! types, because limits count a claim as its largest type. A pod that could have cheaper room elsewhere does not
//! join a claim whose room is dear (say, on demand because of another pod).

use std::sync::Arc;

use super::super::hash::FastMap;
use super::super::ids::{ClaimId, Id, PoolId, ShapeId, SizeId};
use super::super::pods::PodEntry;
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
    /// Their prices, likewise.
    pub(super) prices: Vec<Vec<f64>>,
    /// For each NodePool that can launch, what each type has room for.
    pub(super) rooms: Vec<Vec<Vec<f64>>>,
    /// The class of each offering, in the same order.
    pub(super) classes: Vec<u32>,
    /// Where the offerings of each type begin; one more than there are types.
    pub(super) starts: Vec<usize>,
    /// The processors of each type.
    pub(super) processors: Vec<f64>,
    /// What is known about each pod.
    pub(super) pods: FastMap<(ShapeId, SizeId), Appraisal>,
}

/// What a pod can expect.
#[derive(Clone, Debug)]
pub(super) struct Appraisal {
    pub(super) kind: usize,
    /// The merit of the best offering that could take it.
    pub(super) rate: f64,
    /// The least that it costs where nodes are full of pods like it.
    pub(super) alone: f64,
    /// What it asks for, in billionths.
    pub(super) amounts: Arc<[f64]>,
}

/// The largest share of `room` that `amounts` take of any resource.
pub(super) fn share(amounts: &[f64], room: &[f64]) -> f64 {
    let shares = amounts.iter().zip(room).filter(|(amount, _)| **amount > 0.0);
    shares.map(|(amount, room)| amount / room).fold(0.0, f64::max)
}

/// What makes a type good for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// What it costs for the resources of all pods.
    Mix,
    /// What it costs when full of pods like the first one.
    Profile,
}

/// A claim of an earlier run that is to be made again.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) pool: PoolId,
    pub(super) pods: Vec<usize>,
    pub(super) price: f64,
    /// The types that cost no more.
    pub(super) types: BitSet,
}

/// What a run aims at.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// For each kind of pods.
    pub(super) aims: Vec<Aim>,
    pub(super) measure: Measure,
    /// The least share of a claim's worth that a pod that joins it must be worth by itself.
    pub(super) strictness: f64,
    /// The claims to be made again.
    pub(super) groups: Arc<[Group]>,
    /// The group of each pod, by position.
    pub(super) group_of: FastMap<usize, usize>,
}

/// What a new claim is aimed at.
#[derive(Clone, Debug)]
pub(in crate::packing) struct Offer {
    /// What it must not grow out of.
    pub(in crate::packing) kept: BitSet,
    /// How good the best of it is: the less the better.
    pub(in crate::packing) merit: f64,
    /// The NodePool, the best type and its price; none if that does not matter.
    best: Option<(usize, usize, f64)>,
}

impl Offer {
    /// A claim within `kept` that takes whatever fits.
    pub(in crate::packing) fn within(kept: BitSet) -> Self {
        Self {
            kept,
            merit: 0.0,
            best: None,
        }
    }
}

/// The merit and the price of each type.
type ByType = Arc<[(f64, f64)]>;

/// Directs the claims of one run.
#[derive(Debug)]
pub(in crate::packing) struct Steering {
    merits: Arc<Merits>,
    plan: Plan,
    /// What each open claim was aimed at.
    open: Vec<Offer>,
    /// The claim of each group, once it is open.
    claims: Vec<Option<ClaimId>>,
    /// The merit and the price of each type by NodePool and ways to buy.
    known: FastMap<(usize, BitSet), ByType>,
}

impl Steering {
    pub(super) fn new(merits: &Arc<Merits>, plan: Plan) -> Self {
        Self {
            merits: Arc::clone(merits),
            claims: vec![None; plan.groups.len()],
            plan,
            open: Vec::new(),
            known: FastMap::default(),
        }
    }

    /// The group that the pod belongs to, and its claim if it is open.
    pub(in crate::packing) fn group(&self, entry: &PodEntry) -> Option<(usize, Option<ClaimId>)> {
        let group = *self.plan.group_of.get(&entry.position)?;
        Some((group, self.claims.get(group).copied().flatten()))
    }

    /// Where the claim of a group is made, and within which types.
    pub(in crate::packing) fn plan(&self, group: usize) -> Option<(PoolId, BitSet)> {
        let group = self.plan.groups.get(group)?;
        Some((group.pool, group.types.clone()))
    }

    /// The claim of a group is open.
    pub(in crate::packing) fn opened(&mut self, group: usize, claim: ClaimId) {
        if let Some(slot) = self.claims.get_mut(group) {
            *slot = Some(claim);
        }
    }

    /// What of `types` a new claim for a pod should aim at.
    pub(in crate::packing) fn offer(
        &mut self,
        pool: PoolId,
        pod: &PodEntry,
        classes: &BitSet,
        types: &BitSet,
    ) -> Offer {
        let of_types = self.merit_of_types(pool.index(), classes);
        let appraisal = self.merits.pods.get(&(pod.shape, pod.size));
        let kind = appraisal.map_or(0, |appraisal| appraisal.kind);
        let aim = self.plan.aims.get(kind).copied().unwrap_or(Aim {
            most_processors: f64::INFINITY,
            tolerance: 0.0,
        });
        let offered = |entry: usize| {
            of_types
                .get(entry)
                .copied()
                .unwrap_or((f64::INFINITY, f64::INFINITY))
        };
        let merit = |entry: usize| {
            let (merit, price) = offered(entry);
            match (self.plan.measure, appraisal) {
                (Measure::Profile, Some(appraisal)) => {
                    price * share(&appraisal.amounts, self.merits.room(pool.index(), entry))
                }
                _ => merit,
            }
        };
        let processors = |entry: usize| self.merits.processors.get(entry).copied().unwrap_or(0.0);
        let smallest = types.iter().map(processors).fold(f64::INFINITY, f64::min);
        // A pod that needs more than that gets the smallest types it fits on.
        let most = aim.most_processors.max(smallest);
        let (best, of_type) = types
            .iter()
            .filter(|entry| processors(*entry) <= most)
            .map(|entry| (merit(entry), entry))
            .fold(
                (f64::INFINITY, 0),
                |best, other| if other.0 < best.0 { other } else { best },
            );
        let mut kept = BitSet::empty(types.words().len() * 64);
        for entry in types.iter() {
            if processors(entry) <= most && merit(entry) <= best * (1.0 + aim.tolerance) {
                kept.insert(entry);
            }
        }
        Offer {
            kept,
            merit: best,
            best: Some((pool.index(), of_type, offered(of_type).1)),
        }
    }

    fn merit_of_types(&mut self, pool: usize, classes: &BitSet) -> ByType {
        let merits = &self.merits;
        let known = self.known.entry((pool, classes.clone())).or_insert_with(|| {
            let offerings = merits.offerings.get(pool).map_or(&[][..], Vec::as_slice);
            let prices = merits.prices.get(pool).map_or(&[][..], Vec::as_slice);
            let of_type = |pair: &[usize]| {
                let range = match pair {
                    [start, end] => *start..*end,
                    _ => 0..0,
                };
                let mut best = (f64::INFINITY, f64::INFINITY);
                for at in range {
                    let class = merits
                        .classes
                        .get(at)
                        .is_some_and(|class| classes.contains(*class as usize));
                    if let (true, Some(merit), Some(price)) = (class, offerings.get(at), prices.get(at)) {
                        best = (best.0.min(*merit), best.1.min(*price));
                    }
                }
                best
            };
            merits.starts.windows(2).map(of_type).collect()
        });
        Arc::clone(known)
    }

    /// A claim was opened.
    pub(in crate::packing) fn open(&mut self, offer: Offer) {
        self.open.push(offer);
    }

    /// What of `types` the claim aims at.
    pub(in crate::packing) fn within(&self, claim: ClaimId, types: &BitSet) -> BitSet {
        let mut within = types.clone();
        if let Some(offer) = self.open.get(claim.index()) {
            within.intersect_with(&offer.kept);
        }
        within
    }

    /// Whether the claim may shrink to `types`.
    pub(in crate::packing) fn allows(&self, claim: ClaimId, types: &BitSet) -> bool {
        self.open
            .get(claim.index())
            .is_none_or(|offer| offer.kept.intersects(types))
    }

    /// Whether the claim's room is not too dear for the pod.
    pub(in crate::packing) fn welcomes(&self, claim: ClaimId, pod: &PodEntry) -> bool {
        let Some(offer) = self.open.get(claim.index()) else {
            return true;
        };
        let (Some((pool, entry, price)), Some(appraisal)) =
            (offer.best, self.merits.pods.get(&(pod.shape, pod.size)))
        else {
            return true;
        };
        let (expected, there) = match self.plan.measure {
            Measure::Mix => (appraisal.rate, offer.merit),
            Measure::Profile => {
                let room = self.merits.room(pool, entry);
                (appraisal.alone, price * share(&appraisal.amounts, room))
            }
        };
        expected >= self.plan.strictness * there
    }
}

impl Merits {
    /// What a type of a NodePool has room for.
    fn room(&self, pool: usize, entry: usize) -> &[f64] {
        let of_pool = self.rooms.get(pool).and_then(|rooms| rooms.get(entry));
        of_pool.map_or(&[], Vec::as_slice)
    }
}
