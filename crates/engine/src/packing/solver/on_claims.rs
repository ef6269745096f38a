//! Placing a pod on a claim that is being built, or on a new one.

use super::{Candidate, Failure, Resolution, Solver};
use crate::bitset::BitSet;
use crate::packing::MinValuesPolicy;
use crate::packing::amounts::add;
use crate::packing::claim::{Accepted, Claim, Refusal};
use crate::packing::host_ports::conflict;
use crate::packing::ids::{ClaimId, Id, PoolId, ShapeId, StateId};
use crate::packing::model::Model;
use crate::packing::pods::PodEntry;
use crate::packing::topology::{HostVerdict, Placed};

impl Solver<'_, '_> {
    pub(super) fn add_to_claim(&mut self, entry: &PodEntry, shape: ShapeId) -> Option<ClaimId> {
        if self.model.shapes[shape].dead_claims.count() == self.claims.len() {
            return None;
        }
        if self.no_state_will_do(shape) {
            return None;
        }
        let resources = self.model.dimensions.names().len();
        let key = (shape, entry.size);
        // Taken out while the claims are looked at, because looking changes the solver.
        let mut too_large = self.too_large.remove(&key).unwrap_or_default();
        let mut position = 0;
        let placed = loop {
            let Some(&id) = self.order.claims().get(position) else {
                break None;
            };
            let at = id.index();
            let (size, marks) = (
                &self.model.sizes[entry.size],
                &self.model.shapes[shape].dead_claims,
            );
            if marks.contains(at) || size.full_claims.contains(at) || too_large.contains(at) {
                position += 1;
                continue;
            }
            self.steps += self.steps_per_place;
            let headroom = self.headroom.get(at * resources..(at + 1) * resources);
            let is_full = size
                .amounts
                .iter()
                .zip(headroom.unwrap_or_default())
                .any(|(needed, left)| needed > left);
            let outcome = if is_full {
                Err(Refusal::Full)
            } else {
                self.claim_accepts(id, entry, shape)
            };
            match outcome {
                Ok(accepted) => {
                    self.place_on_claim(id, entry, shape, accepted);
                    self.order.grow(position);
                    break Some(id);
                }
                Err(Refusal::Never) => self.model.shapes[shape].dead_claims.insert(at),
                Err(Refusal::Full) => self.model.sizes[entry.size].full_claims.insert(at),
                Err(Refusal::TooLarge) => too_large.insert(at),
                Err(Refusal::NotNow | Refusal::Reserved) => {}
            }
            position += 1;
        };
        self.steps += position as u64 / 4;
        if too_large.count() > 0 {
            self.too_large.insert(key, too_large);
        }
        placed
    }

    /// Whether the demands and rules of a pod rule out every claim by its requirements alone. What rules allow
    /// changes from pod to pod, so the claims cannot be marked; but they are in few different states.
    fn no_state_will_do(&mut self, shape: ShapeId) -> bool {
        if !self.checks.has_domains() || !self.model.shapes[shape].volumes.is_empty() {
            return false;
        }
        let in_use = std::mem::take(&mut self.states_in_use);
        self.steps += in_use.len() as u64 * 2;
        let will_do = |state: &StateId| matches!(self.resolve(*state, shape), Resolution::To(_));
        let none = !in_use.iter().any(will_do);
        self.states_in_use = in_use;
        none
    }

    /// Keeps count of the states that claims are in.
    fn count_state(&mut self, before: Option<StateId>, after: StateId) {
        if before == Some(after) {
            return;
        }
        if let Some(count) = before.and_then(|state| self.claims_in.get_mut(state.index())) {
            *count -= 1;
            if *count == 0 {
                self.states_in_use.retain(|state| Some(*state) != before);
            }
        }
        if self.claims_in.len() <= after.index() {
            self.claims_in.resize(after.index() + 1, 0);
        }
        if let Some(count) = self.claims_in.get_mut(after.index()) {
            *count += 1;
            if *count == 1 {
                self.states_in_use.push(after);
            }
        }
    }

    pub(super) fn claim_accepts(
        &mut self,
        id: ClaimId,
        entry: &PodEntry,
        shape: ShapeId,
    ) -> Result<Accepted, Refusal> {
        let claim = &self.claims[id];
        let (pool, state) = (claim.pool, claim.state);
        let host = self.model.first_claim_host + id.index();
        if self.model.shapes[shape].volumes.is_empty() {
            match self.resolve(state, shape) {
                Resolution::To(_) => {}
                Resolution::Never => return Err(Refusal::Never),
                Resolution::NotNow => return Err(Refusal::NotNow),
            }
        }
        self.check_place(pool, host, shape)?;
        let ports = &self.model.shapes[shape].ports;
        if !ports.is_empty() {
            self.steps += 8 * (ports.len() + self.claims[id].ports.len()) as u64;
        }
        if conflict(&self.model.shapes[shape].ports, &self.claims[id].ports).is_some() {
            return Err(Refusal::Never);
        }
        if let Some(steering) = &self.steering
            && !steering.welcomes(id, entry)
        {
            return Err(Refusal::TooLarge);
        }
        let candidate = Candidate {
            claim: Some(id),
            pool,
            size: entry.size,
            shape,
            relax_min_values: false,
        };
        let accepted = self.accept(candidate, state)?;
        match &self.steering {
            Some(steering) if !steering.allows(id, &accepted.types) => Err(Refusal::NotNow),
            _ => Ok(accepted),
        }
    }

    /// What does not depend on a claim's requirements: taints and rules about hosts.
    pub(in crate::packing) fn check_place(
        &mut self,
        pool: PoolId,
        host: usize,
        shape: ShapeId,
    ) -> Result<(), Refusal> {
        let Model {
            pools,
            shapes,
            taints,
            states,
            topology,
            ..
        } = &mut self.model;
        let shape = &mut shapes[shape];
        if !shape
            .tolerated
            .ask(taints, pools[pool].taints, shape.form.tolerations())
        {
            return Err(Refusal::Never);
        }
        match topology.host_verdict(&self.checks, host, states.placeholder, states) {
            HostVerdict::Allowed => Ok(()),
            HostVerdict::Never => Err(Refusal::Never),
            HostVerdict::NotNow => Err(Refusal::NotNow),
        }
    }

    pub(super) fn place_on_claim(
        &mut self,
        id: ClaimId,
        entry: &PodEntry,
        shape: ShapeId,
        accepted: Accepted,
    ) {
        let host = self.model.first_claim_host + id.index();
        let before = (!self.claims[id].pods.is_empty()).then_some(self.claims[id].state);
        self.count_state(before, accepted.state);
        let Model {
            pools,
            shapes,
            subjects,
            sizes,
            taints,
            states,
            topology,
            dimensions,
            ..
        } = &mut self.model;
        let claim = &mut self.claims[id];
        let (pool, shape) = (&pools[claim.pool], &mut shapes[shape]);
        claim.state = accepted.state;
        claim.types = accepted.types;
        add(&mut claim.requests, &sizes[entry.size].amounts);
        claim.named.union_with(&sizes[entry.size].named);
        claim.ports.extend(shape.ports.iter().cloned());
        claim.pods.push(entry.position);
        self.reservations.exchange(&claim.reserved, &accepted.reserved);
        claim.reserved = accepted.reserved;
        let resources = dimensions.names().len();
        let row = id.index() * resources..(id.index() + 1) * resources;
        if let Some(headroom) = self.headroom.get_mut(row) {
            match &self.steering {
                Some(steering) => pool.sizes.largest(&steering.within(id, &claim.types), headroom),
                None => pool.sizes.largest(&claim.types, headroom),
            }
            for (cell, (used, overhead)) in headroom
                .iter_mut()
                .zip(claim.requests.iter().zip(&pool.least_overhead))
            {
                *cell -= used + overhead;
            }
        }
        let placed = Placed {
            host,
            taints: pool.taints,
            state: claim.state,
        };
        let selected = &subjects[shape.subject].selected;
        self.steps += 2 * (selected.len() + shape.inverse_owned.len()) as u64;
        topology.record(selected, &shape.inverse_owned, placed, states, taints);
        // Pods that keep away from their own kind need not ask again what they have just closed.
        if topology.host_verdict(&self.checks, host, states.placeholder, states) == HostVerdict::Never {
            shape.dead_claims.insert(id.index());
        }
    }

    pub(super) fn add_to_new_claim(&mut self, entry: &PodEntry, shape: ShapeId) -> Result<ClaimId, Failure> {
        if self.steering.is_some() {
            return self.add_to_steered_claim(entry, shape);
        }
        let host = self.model.first_claim_host + self.claims.len();
        for pool in self.model.pools.ids() {
            self.steps += 16 + self.steps_per_place;
            if self.model.pools[pool].limits.nodes_exhausted() || self.check_place(pool, host, shape).is_err()
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
                Ok(accepted) => return Ok(self.open_claim(pool, entry, shape, accepted)),
                // A pod that could have reserved capacity here does not go to a NodePool of lower weight.
                Err(Refusal::Reserved) => return Err(Failure::Reserved),
                Err(_) => {}
            }
        }
        Err(Failure::Unplaced)
    }

    pub(super) fn open_claim(
        &mut self,
        pool: PoolId,
        entry: &PodEntry,
        shape: ShapeId,
        accepted: Accepted,
    ) -> ClaimId {
        let resources = self.model.dimensions.names().len();
        let id = self.claims.push(Claim {
            pool,
            state: accepted.state,
            types: BitSet::default(),
            requests: vec![0; resources],
            named: BitSet::empty(resources),
            ports: Vec::new(),
            reserved: Vec::new(),
            pods: Vec::new(),
            min_values_relaxed: accepted.min_values_relaxed,
        });
        self.headroom.resize(self.headroom.len() + resources, 0);
        self.place_on_claim(id, entry, shape, accepted);
        self.order.push(id);
        let types = &self.claims[id].types;
        self.model.pools[pool].limits.take_claim(types);
        id
    }
}
