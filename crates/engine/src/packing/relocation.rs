//! Where the pods of some nodes would go if those nodes went away, asked again and again of one cluster.
//!
//! A cluster is compiled once, with every pod that may move; an answer then costs what the pods of the nodes in
//! question cost. Each answer is taken back, or kept so that the next one starts from it. Pods that wait for a place
//! and pods on nodes that are going away already get theirs first; what would be launched for them is not relied on.

use std::collections::BTreeSet;

use super::cluster::{cluster_nodes, node_name};
use super::hash::FastMap;
use super::ids::{Id, NodeId, PoolId};
use super::model::Model;
use super::pods::PodEntry;
use super::results::{Ranking, finish};
use super::solver::Solver;
use super::{NewNodeClaim, Options, Problem, Reason};
use crate::labels::{NODE_POOL, ON_DEMAND, RESERVED, SPOT};
use crate::resources::ResourceList;
use crate::vocabulary::Vocabulary;

/// What a cluster would do without some nodes. Pods are named by their position in [`super::Objects::pods`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The pods that find room on nodes, with the number of the node.
    pub(crate) on_nodes: Vec<(usize, usize)>,
    /// The pods that need a new node, by node.
    pub(crate) on_claims: Vec<Vec<usize>>,
    /// The pods that find no place at all.
    pub(crate) nowhere: Vec<usize>,
    /// A node that is not initialised yet and that some of the pods would need.
    pub(crate) unready: Option<usize>,
    /// Pods that were placed on the nodes before, and so would have to move before they have come.
    pub(crate) coming: Vec<usize>,
}

/// What nodes that are taken away are to the limits of their pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Still there: what replaces them is launched before they go.
    Present,
    /// Gone, for those who want to know whether the limits alone keep them.
    Gone,
}

/// One way to buy a new node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// The type, as a position in the catalogue.
    pub(crate) entry: usize,
    /// The offering, as a position in the type's list.
    pub(crate) offering: usize,
    /// The price after overlays.
    pub(crate) price: f64,
    /// How it is bought; none for what nobody knows.
    pub(crate) capacity_type: Option<&'static str>,
}

/// A cluster that can be asked.
pub(crate) struct Relocation<'o, 'p> {
    solver: Solver<'o, 'p>,
    problem: &'p Problem<'p>,
    ranking: Ranking<'p>,
    /// The pods that may move, in the order of the queue.
    movable: Vec<PodEntry>,
    /// Where the offerings of each type begin in a list of all.
    begins: Vec<usize>,
    /// How each of them is bought.
    capacity_types: Vec<Option<&'static str>>,
    nodes: Vec<Place<'p>>,
    by_name: FastMap<&'p str, usize>,
    places: FastMap<NodeId, usize>,
}

/// A node from which pods can be taken away.
struct Place<'p> {
    slot: NodeId,
    is_initialised: bool,
    /// Where it is in the view that rules count.
    viewed: Option<usize>,
    pool: Option<PoolId>,
    capacity: ResourceList,
    name: &'p str,
    /// Its pods that may move, as positions in the list of them.
    pods: Vec<usize>,
}

impl<'o, 'p> Relocation<'o, 'p> {
    /// Compiles a cluster in which the pods at `movable` may move.
    pub(crate) fn new(problem: &'p Problem<'p>, options: Options<'o>, movable: &[usize]) -> Self {
        let (model, movable) = Model::with_movable(problem, &options, movable, &BTreeSet::new());
        let mut solver = Solver::new(model, options);
        // Rules that come into being later would count pods where they are no more.
        for entry in &movable {
            let mut shape = entry.shape;
            while let Some(relaxed) = solver.relaxed(shape) {
                shape = relaxed;
            }
        }
        solver.begin();
        let queue = std::mem::take(&mut solver.model.queue);
        solver.place(queue);
        solver.end(true);
        let objects = problem.objects;
        let slots: FastMap<String, NodeId> = solver
            .model
            .nodes
            .ids()
            .map(|id| (solver.model.nodes[id].name.clone(), id))
            .collect();
        let viewed: FastMap<&str, usize> = solver
            .model
            .topology
            .view
            .nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name, at))
            .collect();
        let mut nodes = Vec::new();
        let mut by_name = FastMap::default();
        let mut places = FastMap::default();
        for node in cluster_nodes(objects) {
            let Some(slot) = slots.get(node.name()).filter(|_| !node.is_deleting()) else {
                continue;
            };
            let pool = node.labels().get(NODE_POOL);
            let pool = pool.and_then(|pool| {
                let mut ids = solver.model.pools.ids();
                ids.find(|id| solver.model.pools[*id].name == *pool)
            });
            by_name.insert(node.name(), nodes.len());
            places.insert(*slot, nodes.len());
            nodes.push(Place {
                slot: *slot,
                is_initialised: node.is_initialized(),
                viewed: viewed.get(node.name()).copied(),
                pool,
                capacity: node.capacity(),
                name: node.name(),
                pods: Vec::new(),
            });
        }
        for (at, entry) in movable.iter().enumerate() {
            let node = objects.pods.get(entry.position).and_then(node_name);
            let node = node.and_then(|name| by_name.get(name));
            if let Some(node) = node.and_then(|at: &usize| nodes.get_mut(*at)) {
                node.pods.push(at);
            }
        }
        let begins = problem.catalogue.types.iter().scan(0, |next, it| {
            let begin = *next;
            *next += it.offerings.len();
            Some(begin)
        });
        let own = &problem.catalogue.vocabulary;
        let offerings = problem.catalogue.types.iter().flat_map(|it| &it.offerings);
        let capacity_types = offerings.map(|offering| {
            let bought = offering.capacity_type(own)?;
            let mut known = [RESERVED, SPOT, ON_DEMAND].into_iter();
            known.find(|known| *known == bought)
        });
        Self {
            solver,
            capacity_types: capacity_types.collect(),
            begins: begins.collect(),
            problem,
            ranking: Ranking::new(problem),
            movable,
            nodes,
            by_name,
            places,
        }
    }

    /// Closes nodes, by name, to pods that are moved while [`Relocation::avoid`] says so. Pods that have not started are
    /// not kept from them.
    pub(crate) fn close_to_moves<'n>(&mut self, nodes: impl Iterator<Item = &'n str>) {
        let avoided = &mut self.solver.avoided;
        for place in nodes.filter_map(|name| self.nodes.get(*self.by_name.get(name)?)) {
            avoided.nodes.insert(place.slot.index());
        }
        let pods = &self.problem.objects.pods;
        let is_pending = |at: &usize| {
            let status = pods.get(*at).and_then(|pod| pod.status.as_ref());
            status.is_some_and(|status| status.phase.as_deref() == Some("Pending"))
        };
        let movable = self.movable.iter().map(|entry| entry.position);
        avoided.exempt = movable.filter(is_pending).collect();
    }

    /// Whether moved pods keep away from the nodes that are closed to them.
    pub(crate) fn avoid(&mut self, is_on: bool) {
        self.solver.avoided.is_on = is_on;
    }

    /// Whether any node is closed to pods that are moved.
    pub(crate) fn has_closed_nodes(&self) -> bool {
        self.solver.avoided.nodes.count() > 0
    }

    /// The steps taken so far.
    pub(crate) fn steps(&self) -> u64 {
        self.solver.work.total()
    }

    /// The namespaces whose pods took too many of them: their pods find no place any more.
    pub(crate) fn held(&self) -> impl Iterator<Item = String> {
        self.solver.held().into_iter().map(|name| name.to_string())
    }

    /// The number of a node.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: usize) -> &'p str {
        self.nodes.get(node).map_or("", |node| node.name)
    }

    /// The strings behind the symbols of new claims.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.solver.model.states.vocabulary
    }

    /// Whether a pool of some nodes has limits.
    pub(crate) fn is_limited(&self, nodes: &[usize]) -> bool {
        let mut pools = nodes.iter().filter_map(|at| self.nodes.get(*at)?.pool);
        pools.any(|pool| !self.solver.model.pools[pool].limits.is_unlimited())
    }

    /// Takes nodes away and places their pods. What was placed stands until [`Relocation::undo`] or
    /// [`Relocation::keep`].
    pub(crate) fn without(&mut self, nodes: &[usize], counted: Counted) -> Moved {
        let solver = &mut self.solver;
        solver.begin();
        let mut entries: Vec<usize> = Vec::new();
        let mut coming: Vec<usize> = Vec::new();
        for node in nodes.iter().filter_map(|at| self.nodes.get(*at)) {
            coming.extend(&solver.model.nodes[node.slot].pods);
            let pool = node.pool.filter(|_| counted == Counted::Gone);
            solver.close(node.slot, pool.map(|pool| (pool, &node.capacity)));
            for entry in node.pods.iter().filter_map(|at| self.movable.get(*at)) {
                let pod = self.problem.objects.pods.get(entry.position);
                // A pod that is ending was not counted.
                let is_counted = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
                if let Some(viewed) = node.viewed.filter(|_| is_counted) {
                    solver.lift(entry, viewed);
                }
            }
            entries.extend(&node.pods);
        }
        entries.sort_unstable();
        let entries: Vec<PodEntry> = entries
            .into_iter()
            .filter_map(|at| self.movable.get(at).cloned())
            .collect();
        solver.place(entries);
        let mut moved = Moved {
            coming,
            on_claims: solver.claims.iter().map(|claim| claim.pods.clone()).collect(),
            nowhere: solver.left_over.iter().map(|entry| entry.position).collect(),
            ..Moved::default()
        };
        for (id, before) in solver.trial.iter().flat_map(super::solver::trial::Trial::nodes) {
            let Some(place) = self.places.get(id) else {
                continue;
            };
            let pods = &solver.model.nodes[*id].pods;
            let new = pods.get(before.pods.len()..).unwrap_or_default();
            moved.on_nodes.extend(new.iter().map(|pod| (*pod, *place)));
            let is_initialised = self.nodes.get(*place).is_some_and(|place| place.is_initialised);
            if !new.is_empty() && !is_initialised {
                moved.unready = Some(*place);
            }
        }
        moved
    }

    /// The new nodes of the last answer, as they would be launched.
    pub(crate) fn new_claims(&mut self) -> Result<Vec<NewNodeClaim>, Reason> {
        let claims = self.solver.claims.clone();
        claims
            .iter()
            .map(|claim| finish(claim, &mut self.solver, &mut self.ranking))
            .collect()
    }

    /// The ways to buy a new node, type by type in the order of its list.
    pub(crate) fn offers(&self, claim: &NewNodeClaim) -> Vec<Offer> {
        let model = &self.solver.model;
        let classes = model.types.compatible_classes(&claim.requirements, &model.states);
        let pools = &self.problem.objects.node_pools;
        let pool = pools
            .iter()
            .position(|pool| pool.metadata.name.as_deref() == Some(&claim.node_pool));
        let Some(pool) = pool else { return Vec::new() };
        let prices = self.problem.prices(pool);
        let mut offers = Vec::new();
        for &entry in claim.instance_types.iter() {
            let Some(it) = self.problem.catalogue.types.get(entry) else {
                continue;
            };
            let begin = self.begins.get(entry).copied().unwrap_or_default();
            for (offering, one) in it.offerings.iter().enumerate() {
                let class = model.types.class_of_offering.get(begin + offering);
                let fits = class.is_some_and(|class| classes.contains(*class as usize));
                if let Some(price) = prices.get(begin + offering).filter(|_| fits && one.available) {
                    offers.push(Offer {
                        entry,
                        offering,
                        price: *price,
                        capacity_type: self.capacity_types.get(begin + offering).copied().flatten(),
                    });
                }
            }
        }
        offers
    }

    /// From here on everything that is kept can still be taken back as a whole, once.
    pub(crate) fn save(&mut self) {
        self.solver.begin();
    }

    /// Goes back to where [`Relocation::save`] was called.
    pub(crate) fn go_back(&mut self) {
        self.solver.end(false);
    }

    /// Takes the last answer back.
    pub(crate) fn undo(&mut self) {
        self.solver.end(false);
    }

    /// Starts the next answer from the last one.
    pub(crate) fn keep(&mut self) {
        self.solver.end(true);
    }
}
