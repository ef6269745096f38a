//! What a claim becomes with one pod more.

use std::sync::Arc;

use super::{Candidate, Resolution, Solver};
use crate::bitset::BitSet;
use crate::packing::ReservedMode;
use crate::packing::amounts::add;
use crate::packing::claim::{Accepted, Refusal};
use crate::packing::host_ports::conflict;
use crate::packing::ids::{ClaimId, Id, ShapeId, StateId};
use crate::packing::model::Model;
use crate::packing::pools::min_values_unmet;
use crate::packing::states::{Merge, Side, States};
use crate::requirements::Requirements;
use crate::vocabulary::Symbol;

impl Solver<'_, '_> {
    /// What a claim in `state` becomes if it takes the candidate.
    pub(in crate::packing) fn accept(
        &mut self,
        candidate: Candidate,
        state: StateId,
    ) -> Result<Accepted, Refusal> {
        if !self.model.shapes[candidate.shape].volumes.is_empty() {
            return self.accept_with_volumes(candidate, state);
        }
        let narrowed = match self.resolve(state, candidate.shape) {
            Resolution::To(narrowed) => narrowed,
            Resolution::Never => return Err(Refusal::Never),
            Resolution::NotNow => return Err(Refusal::NotNow),
        };
        let mut outcome = self.accept_types(candidate, narrowed.state);
        for turn in 1..narrowed.turns {
            if outcome != Err(Refusal::NotNow) {
                break;
            }
            let Model {
                states,
                topology,
                shapes,
                ..
            } = &mut self.model;
            let requirements = shapes[candidate.shape].requirements;
            let Merge::Into(merged) = states.merge(state, requirements, Side::Claim) else {
                break;
            };
            if let Ok(other) = topology.narrow(&self.checks, merged, Side::Claim, turn, states) {
                outcome = self.accept_types(candidate, other.state);
            }
        }
        outcome
    }

    /// The same for a pod whose volumes leave several alternatives: the first that works counts.
    fn accept_with_volumes(&mut self, candidate: Candidate, state: StateId) -> Result<Accepted, Refusal> {
        let shape = &self.model.shapes[candidate.shape];
        let (requirements, alternatives) = (shape.requirements, Arc::clone(&shape.volumes));
        let Merge::Into(base) = self.model.states.merge(state, requirements, Side::Claim) else {
            return Err(Refusal::NotNow);
        };
        // As in Karpenter, it is the last alternative that says why: a pod that could only have reserved capacity with
        // an earlier one is relaxed all the same.
        let mut last = Refusal::NotNow;
        for &volumes in alternatives.iter() {
            last = Refusal::NotNow;
            let Model { states, topology, .. } = &mut self.model;
            let Merge::Into(with_volumes) = states.merge(base, volumes, Side::Claim) else {
                continue;
            };
            let Ok(narrowed) = topology.narrow(&self.checks, with_volumes, Side::Claim, 0, states) else {
                continue;
            };
            match self.accept_types(candidate, narrowed.state) {
                Ok(accepted) => return Ok(accepted),
                Err(Refusal::Reserved) => last = Refusal::Reserved,
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// What the demands and rules of a pod make of `state`.
    pub(super) fn resolve(&mut self, state: StateId, shape: ShapeId) -> Resolution {
        let at = state.index();
        if let Some((attempt, known)) = self.resolutions.get(at)
            && *attempt == self.attempt
        {
            return *known;
        }
        let Model {
            states,
            topology,
            shapes,
            labels_may_appear,
            ..
        } = &mut self.model;
        let resolution = match states.merge(state, shapes[shape].requirements, Side::Claim) {
            Merge::Disjoint => Resolution::Never,
            Merge::Undefined(_) if !*labels_may_appear => Resolution::Never,
            Merge::Undefined(_) => Resolution::NotNow,
            Merge::Into(merged) => match topology.narrow(&self.checks, merged, Side::Claim, 0, states) {
                Ok(narrowed) => Resolution::To(narrowed),
                Err(_) => Resolution::NotNow,
            },
        };
        if self.resolutions.len() <= at {
            self.resolutions.resize(at + 1, (0, Resolution::NotNow));
        }
        if let Some(slot) = self.resolutions.get_mut(at) {
            *slot = (self.attempt, resolution);
        }
        resolution
    }

    /// Keeps the types that `state` leaves and on which everything fits.
    pub(in crate::packing) fn accept_types(
        &mut self,
        candidate: Candidate,
        mut state: StateId,
    ) -> Result<Accepted, Refusal> {
        let Model {
            pools,
            shapes,
            sizes,
            states,
            types,
            ..
        } = &mut self.model;
        let pool = &pools[candidate.pool];
        // What a rule chose may be chosen otherwise later; without one, types and room only ever shrink.
        let for_good = |refusal| {
            if self.checks.has_domains() || candidate.claim.is_none() {
                Refusal::NotNow
            } else {
                refusal
            }
        };
        let mut needed = sizes[candidate.size].amounts.clone();
        let mut remaining = match candidate.claim {
            Some(id) => {
                add(&mut needed, &self.claims[id].requests);
                self.claims[id].types.clone()
            }
            None => {
                let mut within = pool.types.clone();
                pool.limits.keep_within(&mut within);
                within
            }
        };
        let left = types.left(state, states);
        remaining.intersect_with(&left.types);
        if remaining.is_empty() {
            return Err(for_good(Refusal::Never));
        }
        let ports = &shapes[candidate.shape].ports;
        if let [group] = pool.daemons.as_slice() {
            if conflict(ports, &group.ports).is_some() {
                return Err(Refusal::Never);
            }
            add(&mut needed, &group.overhead);
            pool.sizes.keep_fitting(&mut remaining, &needed);
        } else {
            let mut of_all = BitSet::empty(types.count());
            for group in &pool.daemons {
                if conflict(ports, &group.ports).is_some() {
                    continue;
                }
                let mut of_group = remaining.clone();
                of_group.intersect_with(&group.types);
                let mut with_overhead = needed.clone();
                add(&mut with_overhead, &group.overhead);
                pool.sizes.keep_fitting(&mut of_group, &with_overhead);
                of_all.union_with(&of_group);
            }
            remaining = of_all;
        }
        if remaining.is_empty() {
            return Err(for_good(Refusal::TooLarge));
        }
        let mut min_values_relaxed = false;
        if self.track_min_values && states.get(state).has_min_values() {
            let unmet = min_values_unmet(&remaining, states.get(state), types);
            if !unmet.is_empty() && !candidate.relax_min_values {
                return Err(for_good(Refusal::TooLarge));
            }
            if !unmet.is_empty() {
                state = lower_min_values(state, &unmet, states);
                min_values_relaxed = true;
            }
        }
        let reserved = if self.track_reservations {
            self.reserve(candidate.claim, &remaining, &left.classes)?
        } else {
            Vec::new()
        };
        Ok(Accepted {
            state,
            types: remaining,
            reserved,
            min_values_relaxed,
        })
    }

    /// The reservations that a claim with `types` would hold.
    fn reserve(
        &self,
        claim: Option<ClaimId>,
        types: &BitSet,
        classes: &BitSet,
    ) -> Result<Vec<usize>, Refusal> {
        let held: &[usize] = claim.map_or(&[], |id| &self.claims[id].reserved);
        let mut is_offered = false;
        let mut reserved: Vec<usize> = Vec::new();
        for offering in &self.model.types.reserved {
            if !types.contains(offering.entry) || !classes.contains(offering.class as usize) {
                continue;
            }
            is_offered = true;
            if self.reservations.can_reserve(held, offering.reservation) {
                reserved.push(offering.reservation);
            }
        }
        reserved.sort_unstable();
        reserved.dedup();
        let would_lose = is_offered || !held.is_empty();
        if self.options.reserved == ReservedMode::Strict && reserved.is_empty() && would_lose {
            return Err(Refusal::Reserved);
        }
        Ok(reserved)
    }
}

/// `state` with `minValues` lowered to what there is.
fn lower_min_values(state: StateId, unmet: &[(Symbol, i64)], states: &mut States) -> StateId {
    let mut lowered = Requirements::new();
    for (key, requirement) in states.get(state).iter() {
        let found = unmet
            .iter()
            .find(|(label, _)| *label == key)
            .map(|(_, found)| *found);
        let minimum = found.or(requirement.min_values());
        lowered.add(
            key,
            requirement.clone().with_min_values(minimum),
            &states.vocabulary,
        );
    }
    states.intern(lowered)
}
