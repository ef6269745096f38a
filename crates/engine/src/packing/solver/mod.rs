//! The decisions, pod by pod.
//!
//! What makes this fast: a rejection that can never change is marked, per shape for what a pod demands and per size
//! for what it asks for, so that a claim or node that said no for good is never asked again; what a pod's demands
//! make of a claim's requirements is worked out once per set of requirements, not once per claim; and what is left
//! of a claim's types is a handful of bit sets combined.

mod accept;
mod on_claims;
mod on_nodes;
mod steered;
pub(super) mod trial;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::amounts::Amount;
use super::claim::{Claim, Reservations};
use super::cost::Steering;
use super::hash::FastMap;
use super::ids::{ClaimId, Id, NodeId, PoolId, ShapeId, SizeId, StateId, Table};
use super::model::Model;
use super::order::Order;
use super::pods::PodEntry;
use super::probe::{self, Recording};
use super::shapes::{Marks, Relaxed, Shape, Tables};
use super::topology::{Checks, Narrowed};
use super::work::Work;
use super::{Options, Place, Placement, ReservedMode};
pub(super) use trial::Trial;

/// From so many rules on it pays to look first whether one of them leaves no place at all.
const MANY_RULES: usize = 4;

/// What a pod's demands make of a set of requirements right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    To(Narrowed),
    Never,
    NotNow,
}

/// A pod that may join a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// None for a claim that does not exist yet.
    pub(super) claim: Option<ClaimId>,
    pub(super) pool: PoolId,
    pub(super) size: SizeId,
    pub(super) shape: ShapeId,
    pub(super) relax_min_values: bool,
}

/// Where a pod went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    Node(NodeId),
    Claim(ClaimId),
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
    /// How many claims are in each state, and the states that have any.
    claims_in: Vec<u32>,
    states_in_use: Vec<StateId>,
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
    /// The claims that will never have room for a size within what a shape's demands leave.
    too_large: FastMap<(ShapeId, SizeId), Marks>,
    /// Directs new claims towards cheap types; none where Karpenter is imitated.
    pub(super) steering: Option<Steering>,
    pub(super) stopped: bool,
    /// The positions in the queue of the pods that went nowhere.
    pub(super) left_over: Vec<PodEntry>,
    /// Nodes as they were before something was tried, while that may be taken back.
    pub(super) trial: Option<Trial>,
    /// The trials within which that one is made.
    outer: Vec<Trial>,
    /// The steps taken so far, by namespace.
    pub(super) work: Work,
    /// The steps of a run that this one took the place of.
    pub(super) earlier_steps: u64,
    /// The steps of the attempt that is under way.
    steps: u64,
    /// What trying the pod in one place costs.
    steps_per_place: u64,
    /// The pod that is watched, for explanations.
    pub(super) recording: Option<Recording<'a>>,
    /// Nodes that pods which are moved do not go to.
    pub(super) avoided: Avoided,
    /// What was placed so far, if somebody wants to know.
    pub(super) placements: Option<Vec<Placement>>,
}

/// Nodes that take no pods which are only moved, while that is asked for.
#[derive(Debug, Default)]
pub(super) struct Avoided {
    pub(super) nodes: Marks,
    /// The pods that go there all the same, by position.
    pub(super) exempt: BTreeSet<usize>,
    pub(super) is_on: bool,
}

impl Avoided {
    /// Whether any node is avoided now for the pod at `position`.
    fn concerns(&self, position: usize) -> bool {
        self.is_on && self.nodes.count() > 0 && !self.exempt.contains(&position)
    }
}

impl<'o, 'a> Solver<'o, 'a> {
    pub(super) fn new(model: Model<'a>, options: Options<'o>) -> Self {
        let reservations = Reservations::new(model.types.reservations.iter().map(|(_, free)| *free));
        let track_reservations = options.reserved != ReservedMode::Off && !model.types.reserved.is_empty();
        let track_min_values = model
            .pools
            .iter()
            .any(|pool| model.states.get(pool.template).has_min_values());
        let work = Work::new(model.namespaces.len(), options.free_steps);
        Self {
            model,
            options,
            work,
            earlier_steps: 0,
            steps: 0,
            steps_per_place: 1,
            claims: Table::default(),
            order: Order::default(),
            headroom: Vec::new(),
            claims_in: Vec::new(),
            states_in_use: Vec::new(),
            reservations,
            track_reservations,
            track_min_values,
            checks: Checks::default(),
            resolutions: Vec::new(),
            attempt: 0,
            version: 1,
            failed: FastMap::default(),
            too_large: FastMap::default(),
            steering: None,
            stopped: false,
            left_over: Vec::new(),
            trial: None,
            outer: Vec::new(),
            recording: None,
            avoided: Avoided::default(),
            placements: None,
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
        let is_watched = probe::is_watched(self.recording.as_ref(), entry);
        // Where some pods of a kind avoid nodes and others do not, one's failure says nothing about the next.
        let is_ordinary = entry.attached.is_empty() && !self.avoided.exempt.contains(&entry.position);
        let memory = (is_ordinary && !is_watched).then_some((entry.shape, entry.size));
        if let Some(key) = memory
            && self.failed.get(&key) == Some(&self.version)
        {
            return false;
        }
        let first = &self.model.shapes[entry.shape];
        let namespace = self.model.subjects[first.subject].namespace_number;
        let places = self.model.nodes.len() + self.claims.len();
        if first.is_deferred || self.work.grant(namespace, places) {
            return false;
        }
        // What was compiled for others is not this one's.
        self.steps = 0;
        self.model.states.take_stored();
        let mut shape = entry.shape;
        let mut relaxations = 0;
        loop {
            if is_watched {
                probe::record(self, entry, shape);
            }
            let outcome = self.add(entry, shape);
            let states = self.model.states.take_stored();
            let is_held = self
                .work
                .spend(namespace, std::mem::take(&mut self.steps) + states);
            match outcome {
                Ok(place) => {
                    self.version += 1;
                    self.note_placement(entry, relaxations, place);
                    return true;
                }
                Err(Failure::Reserved) => break,
                Err(Failure::Unplaced) if is_held => return false,
                Err(Failure::Unplaced) => match self.relaxed(shape) {
                    Some(relaxed) => {
                        shape = relaxed;
                        relaxations += 1;
                    }
                    None => break,
                },
            }
        }
        if let Some(key) = memory {
            self.failed.insert(key, self.version);
        }
        false
    }

    fn note_placement(&mut self, entry: &PodEntry, relaxations: usize, place: Placed) {
        if let Some(placements) = &mut self.placements {
            placements.push(Placement {
                pod: entry.position,
                relaxations,
                place: match place {
                    Placed::Node(id) => Place::Node(self.model.nodes[id].name.clone()),
                    Placed::Claim(id) => Place::Claim(id.index()),
                },
            });
        }
    }

    /// The namespaces whose pods are not tried any more.
    pub(super) fn held(&self) -> BTreeSet<Arc<str>> {
        let namespaces = &self.model.namespaces;
        let held = self.work.held();
        held.filter_map(|at| namespaces.get(at).cloned()).collect()
    }

    /// Grants what it takes to say why pods of a shape go nowhere.
    pub(super) fn begin_to_explain(&mut self, shape: ShapeId) {
        let namespace = self.model.subjects[self.model.shapes[shape].subject].namespace_number;
        let places = self.model.nodes.len() + self.claims.len();
        self.work.grant(namespace, places);
        self.steps = 0;
        self.model.states.take_stored();
    }

    /// Counts what it took.
    pub(super) fn end_to_explain(&mut self, shape: ShapeId) {
        let namespace = self.model.subjects[self.model.shapes[shape].subject].namespace_number;
        let stored = self.model.states.take_stored();
        self.work
            .spend(namespace, std::mem::take(&mut self.steps) + stored);
    }

    /// Whether the pods of a shape are not tried any more.
    pub(super) fn is_held(&self, shape: ShapeId) -> bool {
        let subject = &self.model.subjects[self.model.shapes[shape].subject];
        self.model.shapes[shape].is_deferred || self.work.is_held(subject.namespace_number)
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
                subjects,
                ..
            } = &mut self.model;
            let compiled = Shape::compile(
                source,
                subjects,
                &mut Tables {
                    states,
                    types,
                    taints,
                    topology,
                },
            );
            self.steps += 16 + 2 * compiled.owned.len() as u64;
            shapes.push(compiled)
        });
        self.model.shapes[shape].relaxed = relaxed.map_or(Relaxed::Nothing, Relaxed::To);
        relaxed
    }

    fn add(&mut self, entry: &PodEntry, shape: ShapeId) -> Result<Placed, Failure> {
        if let Some(trial) = &mut self.trial {
            trial.note(shape);
        }
        if self.is_impossible(shape) {
            return Err(Failure::Unplaced);
        }
        self.prepare(shape);
        if let Some(node) = self.add_to_node(entry, shape) {
            return Ok(Placed::Node(node));
        }
        self.order.sort();
        if self.steering.is_some()
            && let Some(claim) = self.add_to_group(entry, shape)
        {
            return Ok(Placed::Claim(claim));
        }
        if let Some(claim) = self.add_to_claim(entry, shape) {
            return Ok(Placed::Claim(claim));
        }
        self.add_to_new_claim(entry, shape).map(Placed::Claim)
    }

    /// Whether one of several rules of a pod leaves no place anywhere, so that none need be asked. With few rules that
    /// is found out soon enough.
    fn is_impossible(&mut self, shape: ShapeId) -> bool {
        let Model {
            shapes,
            topology,
            states,
            ..
        } = &mut self.model;
        let shape = &mut shapes[shape];
        if shape.owned.len() < MANY_RULES {
            return false;
        }
        let stuck = topology.impossible(&shape.owned, shape.stuck, shape.strict, states, &mut self.checks);
        let looked_at = if stuck == Some(shape.stuck) {
            1
        } else {
            shape.owned.len()
        };
        self.steps += 16 * looked_at as u64;
        if let Some(rule) = stuck {
            shape.stuck = rule;
        }
        stuck.is_some()
    }

    /// Works out what the rules allow a pod of `shape` at this moment.
    pub(super) fn prepare(&mut self, shape: ShapeId) {
        self.attempt += 1;
        let Model {
            shapes,
            subjects,
            topology,
            states,
            ..
        } = &mut self.model;
        let shape = &shapes[shape];
        let subject = &mut subjects[shape.subject];
        self.steps += subject.refresh(topology);
        topology.checks(
            &shape.owned,
            &subject.inverse_selected,
            shape.strict,
            states,
            &mut self.checks,
        );
        self.steps_per_place = 4 + self.checks.cost();
        self.steps += 8 * self.steps_per_place;
    }
}
