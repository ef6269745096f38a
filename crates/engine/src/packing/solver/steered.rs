//! Opening claims where price decides, for the packing policy `cost`.

use super::{Candidate, Failure, Solver};
use crate::bitset::BitSet;
use crate::packing::MinValuesPolicy;
use crate::packing::claim::{Accepted, Refusal};
use crate::packing::ids::{PoolId, ShapeId};
use crate::packing::pods::PodEntry;

impl Solver<'_, '_> {
    /// Opens a claim in the NodePool of the highest weight that takes the pod; of several of that weight, in the one
    /// with the best offer.
    pub(super) fn add_to_steered_claim(&mut self, entry: &PodEntry, shape: ShapeId) -> Result<(), Failure> {
        let host = self.model.first_claim_host + self.claims.len();
        let mut best: Option<(usize, f64, PoolId, Accepted, BitSet)> = None;
        for pool in self.model.pools.ids() {
            let tier = self.steering.as_ref().map_or(0, |steering| steering.tier(pool));
            if best.as_ref().is_some_and(|(chosen, ..)| *chosen != tier) {
                break;
            }
            if self.model.pools[pool].limits.nodes_exhausted()
                || self.check_place(pool, host, shape).is_err()
            {
                continue;
            }
            let candidate = Candidate {
                claim: None,
                pool,
                size: entry.size,
                shape,
                relax_min_values: self.options.min_values == MinValuesPolicy::BestEffort,
            };
            match self.accept(candidate, self.model.pools[pool].template) {
                Ok(accepted) => {
                    let (kept, merit) = self.aim(pool, entry, &accepted);
                    if best.as_ref().is_none_or(|(_, known, ..)| merit < *known) {
                        best = Some((tier, merit, pool, accepted, kept));
                    }
                }
                Err(Refusal::Reserved) if best.is_none() => return Err(Failure::Reserved),
                Err(_) => {}
            }
        }
        let Some((_, _, pool, mut accepted, kept)) = best else {
            return Err(Failure::Unplaced);
        };
        let demands = self.model.states.get(accepted.state);
        if !self.model.pools[pool].limits.is_unlimited() && !demands.has_min_values() {
            accepted.types.clone_from(&kept);
        }
        if let Some(steering) = &mut self.steering {
            steering.open(kept);
        }
        self.open_claim(pool, entry, shape, accepted);
        Ok(())
    }

    fn aim(&mut self, pool: PoolId, entry: &PodEntry, accepted: &Accepted) -> (BitSet, f64) {
        let Some(steering) = &mut self.steering else {
            return (accepted.types.clone(), 0.0);
        };
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
        steering.aim(pool, (entry.shape, entry.size), &classes, &accepted.types)
    }
}
