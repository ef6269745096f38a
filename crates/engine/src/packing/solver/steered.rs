//! Opening claims where price decides, for the packing policy `cost`.

use super::{Candidate, Failure, Solver};
use crate::bitset::BitSet;
use crate::packing::MinValuesPolicy;
use crate::packing::claim::{Accepted, Refusal};
use crate::packing::cost::Offer;
use crate::packing::ids::{ClaimId, Id, PoolId, ShapeId};
use crate::packing::pods::PodEntry;

impl Solver<'_, '_> {
    /// Puts the pod on the claim that is meant for it, which is opened if need be.
    pub(super) fn add_to_group(&mut self, entry: &PodEntry, shape: ShapeId) -> Option<ClaimId> {
        let (group, claim) = self.steering.as_ref()?.group(entry)?;
        if let Some(id) = claim {
            let accepted = self.claim_accepts(id, entry, shape).ok()?;
            self.place_on_claim(id, entry, shape, accepted);
            if let Some(position) = self.order.claims().iter().position(|claim| *claim == id) {
                self.order.grow(position);
            }
            return Some(id);
        }
        let (pool, kept) = self.steering.as_ref()?.plan(group)?;
        let accepted = self.try_pool(pool, entry, shape)?;
        let mut types = accepted.types.clone();
        types.intersect_with(&kept);
        if types.is_empty() {
            return None;
        }
        let id = ClaimId::new(self.claims.len());
        if let Some(steering) = &mut self.steering {
            steering.opened(group, id);
        }
        Some(self.open_steered(pool, entry, shape, accepted, Offer::within(kept)))
    }

    /// Opens a claim in the NodePool with the best offer.
    pub(super) fn add_to_steered_claim(
        &mut self,
        entry: &PodEntry,
        shape: ShapeId,
    ) -> Result<ClaimId, Failure> {
        let mut best: Option<(PoolId, Accepted, Offer)> = None;
        for pool in self.model.pools.ids() {
            if let Some(accepted) = self.try_pool(pool, entry, shape) {
                let offer = self.offer(pool, entry, &accepted);
                if best.as_ref().is_none_or(|(.., known)| offer.merit < known.merit) {
                    best = Some((pool, accepted, offer));
                }
            }
        }
        let (pool, accepted, offer) = best.ok_or(Failure::Unplaced)?;
        Ok(self.open_steered(pool, entry, shape, accepted, offer))
    }

    /// What a new claim of the NodePool would be with the pod.
    fn try_pool(&mut self, pool: PoolId, entry: &PodEntry, shape: ShapeId) -> Option<Accepted> {
        let host = self.model.first_claim_host + self.claims.len();
        if self.model.pools[pool].limits.nodes_exhausted() || self.check_place(pool, host, shape).is_err() {
            return None;
        }
        let candidate = Candidate {
            claim: None,
            pool,
            size: entry.size,
            shape,
            relax_min_values: self.options.min_values == MinValuesPolicy::BestEffort,
        };
        let outcome: Result<Accepted, Refusal> = self.accept(candidate, self.model.pools[pool].template);
        outcome.ok()
    }

    fn open_steered(
        &mut self,
        pool: PoolId,
        entry: &PodEntry,
        shape: ShapeId,
        mut accepted: Accepted,
        offer: Offer,
    ) -> ClaimId {
        let demands = self.model.states.get(accepted.state);
        if !self.model.pools[pool].limits.is_unlimited() && !demands.has_min_values() {
            accepted.types.intersect_with(&offer.kept);
        }
        if let Some(steering) = &mut self.steering {
            steering.open(offer);
        }
        self.open_claim(pool, entry, shape, accepted)
    }

    fn offer(&mut self, pool: PoolId, entry: &PodEntry, accepted: &Accepted) -> Offer {
        let types = &mut self.model.types;
        let left = types.left(accepted.state, &self.model.states);
        let mut classes = left.classes.clone();
        if accepted.reserved.is_empty() && self.track_reservations {
            let mut reserved = BitSet::empty(types.classes.len());
            for offering in &types.reserved {
                reserved.insert(offering.class as usize);
            }
            classes.subtract(&reserved);
        }
        match &mut self.steering {
            Some(steering) => steering.offer(pool, entry, &classes, &accepted.types),
            None => Offer::within(accepted.types.clone()),
        }
    }
}
