//! The decisions, pod by pod.
//!
//! What makes this fast: a rejection that can never change is marked, per shape for what a pod demands and per size
//! for what it asks for, so that a claim or node that said no for good is never asked again; what a pod's demands
//! make of a claim's requirements is worked out once per set of requirements, not once per claim; and what is left
//! of a claim's types is a handful of bit sets combined.

use std::collections::VecDeque;
use std::sync::Arc;

use super::amounts::{Amount, add};
use super::claim::{Accepted, Claim, Refusal, Reservations};
use super::hash::FastMap;
use super::host_ports::conflict;
use super::ids::{ClaimId, Id, NodeId, PoolId, ShapeId, SizeId, StateId, Table};
use super::model::Model;
use super::order::Order;
use super::pods::PodEntry;
use super::pools::min_values_unmet;
use super::shapes::{Relaxed, Shape, Tables};
use super::states::{Merge, Side};
use super::topology::{Checks, HostVerdict, Narrowed, Placed};
use super::{MinValuesPolicy, Options, ReservedMode};
use crate::bitset::BitSet;
use crate::requirements::{Requirement, Requirements};

/// What a pod's demands make of a set of requirements right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    To(Narrowed),
    Never,
    NotNow,
}

/// Why a pod went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing takes it as it is; relaxed it may go somewhere.
    Unplaced,
    /// Reserved capacity is all taken for now; relaxing would not help.
    Reserved,
}

/// The state of a run.
pub(super) struct Solver<'o, 'a> {
    pub(super) model: Model<'a>,
    pub(super) options: Options<'o>,
    pub(super) claims: Table<ClaimId, Claim>,
    pub(super) order: Order,
    /// For each claim, one row: how much more of each resource its largest types have.
    headroom: Vec<Amount>,
    reservations: Reservations,
    track_reservations: bool,
    track_min_values: bool,
    pub(super) checks: Checks,
    /// Resolutions of the pod that is being placed, by state; valid where the number is the current one.
    resolutions: Vec<(u64, Resolution)>,
    attempt: u64,
    /// Counts placements: nothing that failed before succeeds until it grows.
    version: u64,
    failed: FastMap<(ShapeId, SizeId), u64>,
    pub(super) stopped: bool,
    /// The positions in the queue of the pods that went nowhere.
    pub(super) left_over: Vec<PodEntry>,
}

impl<'o, 'a> Solver<'o, 'a> {
    pub(super) fn new(model: Model<'a>, options: Options<'o>) -> Self {
        let reservations = Reservations::new(model.types.reservations.iter().map(|(_, free)| *free));
        let track_reservations = options.reserved != ReservedMode::Off && !model.types.reserved.is_empty();
        let track_min_values = model
            .pools
            .iter()
            .any(|pool| model.states.get(pool.template).has_min_values());
        Self {
            model,
            options,
            claims: Table::default(),
            order: Order::default(),
            headroom: Vec::new(),
            reservations,
            track_reservations,
            track_min_values,
            checks: Checks::default(),
            resolutions: Vec::new(),
            attempt: 0,
            version: 1,
            failed: FastMap::default(),
            stopped: false,
            left_over: Vec::new(),
        }
    }

    /// Places every pod that can be placed. A pod that fails goes back to the end of the queue; the run ends when
    /// the queue has been gone through without placing any.
    pub(super) fn run(&mut self) {
        let mut queue: VecDeque<(PodEntry, usize)> = std::mem::take(&mut self.model.queue)
            .into_iter()
            .map(|entry| (entry, 0))
            .collect();
        while let Some((entry, length_when_pushed)) = queue.pop_front() {
            // The pod was put back when the queue was as long as it is now: everyone had a turn, nobody moved.
            if length_when_pushed == queue.len() + 1 {
                queue.push_front((entry, length_when_pushed));
                break;
            }
            if (self.options.should_stop)() {
                self.stopped = true;
                break;
            }
            if !self.try_schedule(&entry) {
                let length = queue.len() + 1;
                queue.push_back((entry, length));
            }
        }
        self.left_over = queue
            .into_iter()
            .filter(|(_, pushed)| *pushed > 0)
            .map(|(entry, _)| entry)
            .collect();
    }

    fn try_schedule(&mut self, entry: &PodEntry) -> bool {
        let memory = entry.attached.is_empty().then_some((entry.shape, entry.size));
        if let Some(key) = memory
            && self.failed.get(&key) == Some(&self.version)
        {
            return false;
        }
        let mut shape = entry.shape;
        loop {
            match self.add(entry, shape) {
                Ok(()) => {
                    self.version += 1;
                    return true;
                }
                Err(Failure::Reserved) => break,
                Err(Failure::Unplaced) => match self.relaxed(shape) {
                    Some(relaxed) => shape = relaxed,
                    None => break,
                },
            }
        }
        if let Some(key) = memory {
            self.failed.insert(key, self.version);
        }
        false
    }

    /// The shape with one demand dropped.
    pub(super) fn relaxed(&mut self, shape: ShapeId) -> Option<ShapeId> {
        match self.model.shapes[shape].relaxed {
            Relaxed::To(relaxed) => return Some(relaxed),
            Relaxed::Nothing => return None,
            Relaxed::Unknown => {}
        }
        let source = self.model.shapes[shape].relaxed_source(self.model.tolerate_prefer_no_schedule);
        let relaxed = source.map(|source| {
            let Model {
                states,
                types,
                taints,
                topology,
                shapes,
                ..
            } = &mut self.model;
            let compiled = Shape::compile(
                source,
                &mut Tables {
                    states,
                    types,
                    taints,
                    topology,
                },
            );
            shapes.push(compiled)
        });
        self.model.shapes[shape].relaxed = relaxed.map_or(Relaxed::Nothing, Relaxed::To);
        relaxed
    }

    fn add(&mut self, entry: &PodEntry, shape: ShapeId) -> Result<(), Failure> {
        self.prepare(shape);
        if self.add_to_node(entry, shape) {
            return Ok(());
        }
        self.order.sort();
        if self.add_to_claim(entry, shape) {
            return Ok(());
        }
        self.add_to_new_claim(entry, shape)
    }

    /// Works out what the rules allow a pod of `shape` at this moment.
    pub(super) fn prepare(&mut self, shape: ShapeId) {
        self.attempt += 1;
        let Model {
            shapes,
            topology,
            states,
            ..
        } = &mut self.model;
        let shape = &mut shapes[shape];
        shape.refresh(topology);
        topology.checks(
            &shape.owned,
            &shape.inverse_selected,
            shape.strict,
            states,
            &mut self.checks,
        );
    }

    fn add_to_node(&mut self, entry: &PodEntry, shape: ShapeId) -> bool {
        let count = self.model.nodes.len();
        let mut from = 0;
        loop {
            let (shapes, sizes) = (&self.model.shapes, &self.model.sizes);
            let next = shapes[shape]
                .dead_nodes
                .next_unmarked(&sizes[entry.size].full_nodes, from, count);
            let Some(at) = next else { return false };
            match self.node_accepts(NodeId::new(at), entry, shape) {
                Ok(state) => {
                    self.place_on_node(NodeId::new(at), entry, shape, state);
                    return true;
                }
                Err(Refusal::Never) => self.model.shapes[shape].dead_nodes.insert(at),
                Err(Refusal::Full) => self.model.sizes[entry.size].full_nodes.insert(at),
                Err(Refusal::NotNow | Refusal::Reserved) => {}
            }
            from = at + 1;
        }
    }

    fn node_accepts(&mut self, id: NodeId, entry: &PodEntry, shape_id: ShapeId) -> Result<StateId, Refusal> {
        let Model {
            nodes,
            shapes,
            sizes,
            taints,
            states,
            topology,
            labels_may_appear,
            ..
        } = &mut self.model;
        let (node, shape) = (&nodes[id], &mut shapes[shape_id]);
        if !shape
            .tolerated
            .ask(taints, node.taints, &shape.constraints.tolerations)
        {
            return Err(Refusal::Never);
        }
        let size = &sizes[entry.size].amounts;
        if node.is_overdrawn
            || size
                .iter()
                .zip(&node.remaining)
                .any(|(needed, left)| needed > left)
        {
            return Err(Refusal::Full);
        }
        if conflict(&shape.ports, &node.ports).is_some() {
            return Err(Refusal::Never);
        }
        if !node.volumes.is_unlimited() && !node.volumes.has_room_for(&entry.attached) {
            return Err(Refusal::NotNow);
        }
        match topology.host_verdict(&self.checks, node.host, node.host_name, states) {
            HostVerdict::Allowed => {}
            HostVerdict::Never => return Err(Refusal::Never),
            HostVerdict::NotNow => return Err(Refusal::NotNow),
        }
        let labels_may_appear = *labels_may_appear;
        let refusal = |merge| match merge {
            Merge::Disjoint => Refusal::Never,
            Merge::Undefined(_) if !labels_may_appear => Refusal::Never,
            _ => Refusal::NotNow,
        };
        let base = match states.merge(node.state, shape.requirements, Side::Node) {
            Merge::Into(base) => base,
            other => return Err(refusal(other)),
        };
        let alternatives: &[StateId] = if shape.volumes.is_empty() {
            &[base]
        } else {
            &shape.volumes
        };
        for &volumes in alternatives {
            let with_volumes = match states.merge(base, volumes, Side::Node) {
                _ if shape.volumes.is_empty() => base,
                Merge::Into(with_volumes) => with_volumes,
                _ => continue,
            };
            if let Ok(narrowed) = topology.narrow(&self.checks, with_volumes, Side::Node, 0, states) {
                return Ok(narrowed.state);
            }
        }
        Err(Refusal::NotNow)
    }

    fn place_on_node(&mut self, id: NodeId, entry: &PodEntry, shape: ShapeId, state: StateId) {
        let Model {
            nodes,
            shapes,
            sizes,
            taints,
            states,
            topology,
            ..
        } = &mut self.model;
        let (node, shape) = (&mut nodes[id], &shapes[shape]);
        for (left, needed) in node.remaining.iter_mut().zip(&sizes[entry.size].amounts) {
            *left -= needed;
        }
        node.state = state;
        node.ports.extend(shape.ports.iter().cloned());
        node.volumes.attach(&entry.attached);
        node.pods.push(entry.position);
        let placed = Placed {
            host: node.host,
            taints: node.taints,
            state,
        };
        topology.record(&shape.selected, &shape.inverse_owned, placed, states, taints);
    }

    fn add_to_claim(&mut self, entry: &PodEntry, shape: ShapeId) -> bool {
        let resources = self.model.dimensions.names().len();
        for position in 0..self.order.claims().len() {
            let Some(&id) = self.order.claims().get(position) else {
                break;
            };
            let at = id.index();
            let size = &self.model.sizes[entry.size];
            if self.model.shapes[shape].dead_claims.contains(at) || size.full_claims.contains(at) {
                continue;
            }
            let headroom = self
                .headroom
                .get(at * resources..(at + 1) * resources)
                .unwrap_or_default();
            if size
                .amounts
                .iter()
                .zip(headroom)
                .any(|(needed, left)| needed > left)
            {
                self.model.sizes[entry.size].full_claims.insert(at);
                continue;
            }
            match self.claim_accepts(id, entry, shape) {
                Ok(accepted) => {
                    self.place_on_claim(id, entry, shape, accepted);
                    self.order.grow(position);
                    return true;
                }
                Err(Refusal::Never) => self.model.shapes[shape].dead_claims.insert(at),
                Err(Refusal::Full) => self.model.sizes[entry.size].full_claims.insert(at),
                Err(Refusal::NotNow | Refusal::Reserved) => {}
            }
        }
        false
    }

    fn claim_accepts(&mut self, id: ClaimId, entry: &PodEntry, shape: ShapeId) -> Result<Accepted, Refusal> {
        let claim = &self.claims[id];
        let (pool, state) = (claim.pool, claim.state);
        let host = self.model.first_claim_host + id.index();
        self.check_place(pool, host, shape)?;
        if conflict(&self.model.shapes[shape].ports, &self.claims[id].ports).is_some() {
            return Err(Refusal::Never);
        }
        self.accept(Some(id), pool, state, entry.size, shape, false)
    }

    /// What does not depend on a claim's requirements: taints and rules about hosts.
    fn check_place(&mut self, pool: PoolId, host: usize, shape: ShapeId) -> Result<(), Refusal> {
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
            .ask(taints, pools[pool].taints, &shape.constraints.tolerations)
        {
            return Err(Refusal::Never);
        }
        match topology.host_verdict(&self.checks, host, states.placeholder, states) {
            HostVerdict::Allowed => Ok(()),
            HostVerdict::Never => Err(Refusal::Never),
            HostVerdict::NotNow => Err(Refusal::NotNow),
        }
    }

    /// What a claim (none: a new one) of `pool` in `state` becomes with a pod more.
    fn accept(
        &mut self,
        id: Option<ClaimId>,
        pool: PoolId,
        state: StateId,
        size: SizeId,
        shape: ShapeId,
        relax_min_values: bool,
    ) -> Result<Accepted, Refusal> {
        if !self.model.shapes[shape].volumes.is_empty() {
            return self.accept_with_volumes(id, pool, state, size, shape, relax_min_values);
        }
        let narrowed = match self.resolve(state, shape) {
            Resolution::To(narrowed) => narrowed,
            Resolution::Never => return Err(Refusal::Never),
            Resolution::NotNow => return Err(Refusal::NotNow),
        };
        let mut outcome = self.accept_types(id, pool, narrowed.state, size, shape, relax_min_values);
        for turn in 1..narrowed.turns {
            if outcome != Err(Refusal::NotNow) {
                break;
            }
            let requirements = self.model.shapes[shape].requirements;
            let Model { states, topology, .. } = &mut self.model;
            let Merge::Into(merged) = states.merge(state, requirements, Side::Claim) else {
                break;
            };
            if let Ok(other) = topology.narrow(&self.checks, merged, Side::Claim, turn, states) {
                outcome = self.accept_types(id, pool, other.state, size, shape, relax_min_values);
            }
        }
        outcome
    }

    /// The same for a pod whose volumes leave several alternatives.
    fn accept_with_volumes(
        &mut self,
        id: Option<ClaimId>,
        pool: PoolId,
        state: StateId,
        size: SizeId,
        shape: ShapeId,
        relax_min_values: bool,
    ) -> Result<Accepted, Refusal> {
        let base = match self
            .model
            .states
            .merge(state, self.model.shapes[shape].requirements, Side::Claim)
        {
            Merge::Into(base) => base,
            _ => return Err(Refusal::NotNow),
        };
        let mut last = Refusal::NotNow;
        let alternatives = Arc::clone(&self.model.shapes[shape].volumes);
        for &volumes in alternatives.iter() {
            let Model { states, topology, .. } = &mut self.model;
            let Merge::Into(with_volumes) = states.merge(base, volumes, Side::Claim) else {
                continue;
            };
            let Ok(narrowed) = topology.narrow(&self.checks, with_volumes, Side::Claim, 0, states) else {
                continue;
            };
            match self.accept_types(id, pool, narrowed.state, size, shape, relax_min_values) {
                Ok(accepted) => return Ok(accepted),
                Err(Refusal::Reserved) => last = Refusal::Reserved,
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// What the demands and rules of a pod make of `state`.
    fn resolve(&mut self, state: StateId, shape: ShapeId) -> Resolution {
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

    fn accept_types(
        &mut self,
        id: Option<ClaimId>,
        pool_id: PoolId,
        mut state: StateId,
        size: SizeId,
        shape: ShapeId,
        relax_min_values: bool,
    ) -> Result<Accepted, Refusal> {
        let Model {
            pools,
            shapes,
            sizes,
            states,
            types,
            ..
        } = &mut self.model;
        let pool = &pools[pool_id];
        let size = &sizes[size].amounts;
        let mut needed = size.clone();
        let mut base = match id {
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
        base.intersect_with(&left.types);
        let ports = &shapes[shape].ports;
        let remaining = match pool.daemons.as_slice() {
            [group] => {
                if conflict(ports, &group.ports).is_some() {
                    return Err(Refusal::Never);
                }
                add(&mut needed, &group.overhead);
                pool.sizes.keep_fitting(&mut base, &needed);
                base
            }
            groups => {
                let mut remaining = BitSet::empty(types.count());
                for group in groups
                    .iter()
                    .filter(|group| conflict(ports, &group.ports).is_none())
                {
                    let mut of_group = base.clone();
                    of_group.intersect_with(&group.types);
                    let mut with_overhead = needed.clone();
                    add(&mut with_overhead, &group.overhead);
                    pool.sizes.keep_fitting(&mut of_group, &with_overhead);
                    remaining.union_with(&of_group);
                }
                remaining
            }
        };
        if remaining.is_empty() {
            // What a rule chose may be chosen otherwise later; without one, types and room only ever shrink.
            return Err(if self.checks.has_domains() {
                Refusal::NotNow
            } else {
                self.why_empty(id, state, shape)
            });
        }
        let mut min_values_relaxed = false;
        if self.track_min_values && states.get(state).has_min_values() {
            let unmet = min_values_unmet(&remaining, states.get(state), types);
            if !unmet.is_empty() {
                if !relax_min_values {
                    return Err(Refusal::NotNow);
                }
                let mut lowered = Requirements::new();
                for (key, requirement) in states.get(state).iter() {
                    let found = unmet
                        .iter()
                        .find(|(label, _)| *label == key)
                        .map(|(_, found)| *found);
                    let minimum = found.or(requirement.min_values());
                    let requirement: Requirement = requirement.clone().with_min_values(minimum);
                    lowered.add(key, requirement, &states.vocabulary);
                }
                state = states.intern(lowered);
                min_values_relaxed = true;
            }
        }
        let reserved = if self.track_reservations {
            self.reserve(id, &remaining, &left.classes)?
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

    /// Whether a claim that has no type left for a pod has none for any pod of its size or of its shape.
    fn why_empty(&self, id: Option<ClaimId>, state: StateId, shape: ShapeId) -> Refusal {
        // If the pod changes nothing about the requirements, only the size can be at fault.
        match id {
            Some(id) if self.claims[id].state == state && self.model.shapes[shape].ports.is_empty() => {
                Refusal::Full
            }
            _ => Refusal::NotNow,
        }
    }

    /// The reservations that a claim with `types` would hold.
    fn reserve(&self, id: Option<ClaimId>, types: &BitSet, classes: &BitSet) -> Result<Vec<usize>, Refusal> {
        let held: &[usize] = id.map_or(&[], |id| &self.claims[id].reserved);
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
        let lost = is_offered || !held.is_empty();
        if self.options.reserved == ReservedMode::Strict && reserved.is_empty() && lost {
            return Err(Refusal::Reserved);
        }
        Ok(reserved)
    }

    fn place_on_claim(&mut self, id: ClaimId, entry: &PodEntry, shape: ShapeId, accepted: Accepted) {
        let host = self.model.first_claim_host + id.index();
        let Model {
            pools,
            shapes,
            sizes,
            taints,
            states,
            topology,
            dimensions,
            ..
        } = &mut self.model;
        let claim = &mut self.claims[id];
        let (pool, shape) = (&pools[claim.pool], &shapes[shape]);
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
            pool.sizes.largest(&claim.types, headroom);
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
        topology.record(&shape.selected, &shape.inverse_owned, placed, states, taints);
    }

    fn add_to_new_claim(&mut self, entry: &PodEntry, shape: ShapeId) -> Result<(), Failure> {
        let host = self.model.first_claim_host + self.claims.len();
        let relax = self.options.min_values == MinValuesPolicy::BestEffort;
        for pool in self.model.pools.ids() {
            if self.model.pools[pool].limits.nodes_exhausted() || self.check_place(pool, host, shape).is_err()
            {
                continue;
            }
            let template = self.model.pools[pool].template;
            match self.accept(None, pool, template, entry.size, shape, relax) {
                Ok(accepted) => {
                    self.open_claim(pool, entry, shape, accepted);
                    return Ok(());
                }
                // A pod that could have reserved capacity here does not go to a NodePool of lower weight.
                Err(Refusal::Reserved) => return Err(Failure::Reserved),
                Err(_) => {}
            }
        }
        Err(Failure::Unplaced)
    }

    fn open_claim(&mut self, pool: PoolId, entry: &PodEntry, shape: ShapeId, accepted: Accepted) {
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
    }
}
