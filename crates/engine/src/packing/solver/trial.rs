//! Trying something that may be taken back: nodes taken away, their pods placed elsewhere.
//!
//! What is marked for good during a trial stays marked where it holds without the trial too, that is for every node
//! that the trial has not changed; on those that it has, the marks of the shapes and sizes in question are taken off.
//! A mark that is missing costs time and changes nothing.

use super::super::amounts::Amount;
use super::super::claim::Reservations;
use super::super::ids::{NodeId, PoolId, ShapeId, SizeId, Table};
use super::super::nodes::NodeSlot;
use super::super::order::Order;
use super::super::pods::PodEntry;
use super::super::shapes::Marks;
use super::Solver;
use crate::packing::ids::Id;
use crate::resources::ResourceList;

/// What was before.
#[derive(Debug, Default)]
pub(in crate::packing) struct Trial {
    nodes: Vec<(NodeId, NodeSlot)>,
    saved: Marks,
    limits: Vec<(PoolId, Vec<Amount>)>,
    reservations: Reservations,
    /// The forms and the sizes that were tried.
    shapes: Tried<ShapeId>,
    sizes: Tried<SizeId>,
}

/// What was tried, each once.
#[derive(Debug)]
struct Tried<I> {
    marks: Marks,
    list: Vec<I>,
}

impl<I> Default for Tried<I> {
    fn default() -> Self {
        Self {
            marks: Marks::default(),
            list: Vec::new(),
        }
    }
}

impl<I: Id> Tried<I> {
    fn add(&mut self, id: I) {
        if !self.marks.contains(id.index()) {
            self.marks.insert(id.index());
            self.list.push(id);
        }
    }
}

impl Trial {
    /// Keeps a node as it is, unless that was done already.
    pub(in crate::packing) fn save(&mut self, id: NodeId, node: &NodeSlot) {
        if !self.saved.contains(id.index()) {
            self.saved.insert(id.index());
            self.nodes.push((id, node.clone()));
        }
    }

    /// Notes that a form is tried.
    pub(in crate::packing) fn note(&mut self, shape: ShapeId) {
        self.shapes.add(shape);
    }

    /// The nodes that have changed, as they were.
    pub(in crate::packing) fn nodes(&self) -> &[(NodeId, NodeSlot)] {
        &self.nodes
    }
}

impl Solver<'_, '_> {
    /// Starts a trial. One that is open already goes on when this one has ended.
    pub(in crate::packing) fn begin(&mut self) {
        let trial = Trial {
            reservations: self.reservations.clone(),
            ..Trial::default()
        };
        self.outer.extend(self.trial.replace(trial));
        self.model.topology.begin();
    }

    /// Takes a node away: no pod goes there. A pool that is named has its capacity back.
    pub(in crate::packing) fn close(&mut self, id: NodeId, pool: Option<(PoolId, &ResourceList)>) {
        let Some(trial) = &mut self.trial else { return };
        trial.save(id, &self.model.nodes[id]);
        self.model.nodes[id].is_overdrawn = true;
        if let Some((pool, capacity)) = pool {
            self.save_limits(pool);
            self.model.pools[pool].limits.give_back(capacity);
        }
    }

    fn save_limits(&mut self, pool: PoolId) {
        let limits = &self.model.pools[pool].limits;
        if let Some(trial) = &mut self.trial
            && !limits.is_unlimited()
            && trial.limits.iter().all(|(known, _)| *known != pool)
        {
            trial.limits.push((pool, limits.left()));
        }
    }

    /// Notes that a pod is no longer where it was counted from the start.
    pub(in crate::packing) fn lift(&mut self, entry: &PodEntry, viewed: usize) {
        let model = &mut self.model;
        let shape = &model.shapes[entry.shape];
        let subject = &mut model.subjects[shape.subject];
        subject.refresh(&model.topology);
        model.topology.forget(
            &subject.selected,
            &shape.inverse_owned,
            viewed,
            &model.states,
            &model.taints,
        );
    }

    /// Places `entries`, in their order.
    pub(in crate::packing) fn place(&mut self, entries: Vec<PodEntry>) {
        for pool in self.model.pools.ids() {
            self.save_limits(pool);
        }
        if let Some(trial) = &mut self.trial {
            entries.iter().for_each(|entry| trial.sizes.add(entry.size));
        }
        self.model.queue = entries;
        self.run();
    }

    /// Ends a trial; what was done stays or is taken back. Claims that were made are left out of what follows.
    pub(in crate::packing) fn end(&mut self, keep: bool) {
        let Some(trial) = self.trial.take() else { return };
        self.model.topology.end(keep);
        if keep {
            // The hosts of these claims stay counted, so later ones need others.
            self.model.first_claim_host += self.claims.len();
        }
        for shape in &trial.shapes.list {
            let shape = &mut self.model.shapes[*shape];
            shape.dead_claims.clear();
            if !keep {
                let dead = &mut shape.dead_nodes;
                trial.nodes.iter().for_each(|(node, _)| dead.remove(node.index()));
            }
        }
        for size in &trial.sizes.list {
            let size = &mut self.model.sizes[*size];
            size.full_claims.clear();
            if !keep {
                let full = &mut size.full_nodes;
                trial.nodes.iter().for_each(|(node, _)| full.remove(node.index()));
            }
        }
        self.trial = self.outer.pop();
        if let Some(outer) = &mut self.trial {
            // What was marked here may hold only within the outer one, whether this one is kept or not.
            trial
                .shapes
                .list
                .iter()
                .for_each(|shape| outer.shapes.add(*shape));
            trial.sizes.list.iter().for_each(|size| outer.sizes.add(*size));
            if keep {
                trial.nodes.iter().for_each(|(id, node)| outer.save(*id, node));
                for (pool, limits) in &trial.limits {
                    if outer.limits.iter().all(|(known, _)| known != pool) {
                        outer.limits.push((*pool, limits.clone()));
                    }
                }
            }
        }
        if !keep {
            for (id, node) in trial.nodes {
                self.model.nodes[id] = node;
            }
            for (pool, limits) in trial.limits {
                self.model.pools[pool].limits.put_back(&limits);
            }
            self.reservations = trial.reservations;
        }
        self.claims = Table::default();
        self.order = Order::default();
        self.headroom.clear();
        self.claims_in.clear();
        self.states_in_use.clear();
        self.too_large.clear();
        self.failed.clear();
        self.left_over.clear();
        self.version += 1;
    }
}
