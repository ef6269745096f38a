//! What the pods need and what could carry it, in the numbers that the bound is made of.
//!
//! Pods are put into *kinds* by the offerings and nodes that could take them at all; *carriers* are offerings (or
//! existing room) put together by the kinds that they could take. Whatever is left out of "could" here would make
//! the bound wrong, so every doubt counts as yes: rules among pods, volumes, limits and `minValues` are ignored.

use std::collections::BTreeMap;

use super::super::amounts::{Amount, Dimensions};
use super::super::hash::FastMap;
use super::super::ids::{Id, NodeId, ShapeId, SizeId};
use super::super::model::Model;
use super::super::pools::Pool;
use super::super::solver::Solver;
use super::super::states::{Merge, Side};
use super::super::{Problem, ReservedMode};
use crate::bitset::BitSet;
use crate::resources::{CPU, MEMORY, PODS};

/// More kinds than this are merged: the bound stays true and gets weaker.
const MOST_KINDS: usize = 40;
/// Beyond this many pairs of shape and node every node counts as open to every pod.
const MOST_NODE_CHECKS: usize = 200_000;

/// The offerings of one NodePool that could take a pod: some types, bought in some ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Choice {
    pool: usize,
    types: BitSet,
    classes: BitSet,
}

/// Where a pod could go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Reach {
    choices: Vec<Choice>,
    nodes: BitSet,
}

/// Everything that the bound is computed from. Amounts are shares of the total demand.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// How many resources there are.
    pub(super) resources: usize,
    /// What one share of each resource is, in billionths of its unit; 0 where nobody asks for it.
    pub(super) units: Vec<f64>,
    /// What the pods of each kind ask for.
    pub(super) kinds: Vec<Vec<f64>>,
    /// Where all pods of a kind ask for the same: that, and how many there are.
    units_of: Vec<Option<(Vec<Amount>, f64)>>,
    pub(super) carriers: Vec<Carrier>,
    /// For each NodePool that can launch, what each type has room for beside DaemonSets, in billionths.
    pub(super) rooms: Vec<Vec<Vec<f64>>>,
    /// For each NodePool that can launch, for each offering in the order of the catalogue: its carrier and price.
    pub(super) offerings: Vec<Vec<Option<(usize, f64)>>>,
    /// The kind of each pod to be placed, by what it demands and asks for.
    pub(super) kind_of: FastMap<(ShapeId, SizeId), usize>,
}

/// Room, and how much of it each of some kinds can use.
type FreeRoom = (Vec<f64>, Vec<Vec<f64>>);

/// Room that pods of some kinds could use.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    pub(super) kinds: Vec<usize>,
    pub(super) room: Vec<f64>,
    /// For each of `kinds`, how much of each resource its pods can use at most.
    pub(super) usable: Vec<Vec<f64>>,
    pub(super) price: f64,
    /// How many there are; none if as many as one likes.
    pub(super) count: Option<f64>,
}

impl Demand {
    /// The demand of the pods at the positions of `placed`.
    pub(super) fn new(solver: &mut Solver<'_, '_>, problem: &Problem<'_>, placed: &BitSet) -> Self {
        let mut pods: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for entry in &solver.model.queue {
            if placed.contains(entry.position) {
                *pods.entry((entry.shape.index(), entry.size.index())).or_default() += 1.0;
            }
        }
        let mut demand = Self {
            resources: solver.model.dimensions.names().len(),
            ..Self::default()
        };
        let mut totals = vec![0.0; demand.resources];
        for ((_, size), count) in &pods {
            let amounts = &solver.model.sizes[SizeId::new(*size)].amounts;
            for (total, amount) in totals.iter_mut().zip(amounts) {
                *total += real(*amount).max(0.0) * count;
            }
        }
        demand.units = totals;
        let reaches = demand.read_kinds(solver, &pods);
        demand.read_offerings(solver, problem, &reaches);
        demand.read_nodes(&solver.model, &reaches);
        // Nobody uses more of a node than all pods that could go there.
        for carrier in &mut demand.carriers {
            for (resource, room) in carrier.room.iter_mut().enumerate() {
                let usable: f64 = carrier
                    .usable
                    .iter()
                    .filter_map(|of_kind| of_kind.get(resource))
                    .sum();
                *room = room.min(usable);
            }
        }
        demand
    }

    /// Groups the pods and returns what each kind could use.
    fn read_kinds(
        &mut self,
        solver: &mut Solver<'_, '_>,
        pods: &BTreeMap<(usize, usize), f64>,
    ) -> Vec<Reach> {
        let mut by_shape: BTreeMap<usize, Reach> = BTreeMap::new();
        let shapes: std::collections::BTreeSet<usize> = pods.keys().map(|(shape, _)| *shape).collect();
        let check_nodes = shapes.len() * solver.model.nodes.len() <= MOST_NODE_CHECKS;
        for shape in shapes {
            by_shape.insert(shape, reach(solver, ShapeId::new(shape), check_nodes));
        }
        let model = &solver.model;
        let mut numbers: FastMap<(Reach, Option<SizeId>), usize> = FastMap::default();
        let mut reaches: Vec<Reach> = Vec::new();
        for ((shape, size), count) in pods {
            let Some(of_shape) = by_shape.get(shape) else {
                continue;
            };
            let (shape, size) = (ShapeId::new(*shape), SizeId::new(*size));
            let amounts = &model.sizes[size].amounts;
            let mut reach = of_shape.clone();
            let at_least: Vec<Amount> = amounts.iter().map(|amount| power_below(*amount)).collect();
            for choice in &mut reach.choices {
                if let Some(pool) = model.pools.iter().nth(choice.pool) {
                    choice.types = fitting(pool, &choice.types, &at_least);
                }
            }
            // Large pods leave room that nothing of their kind can use, so that each size is a kind of its own.
            let own = is_large(amounts, &model.dimensions).then_some(size);
            let number = *numbers.entry((reach.clone(), own)).or_insert_with(|| {
                if reaches.len() < MOST_KINDS {
                    reaches.push(reach.clone());
                    self.kinds.push(vec![0.0; self.resources]);
                    self.units_of.push(own.map(|_| (amounts.clone(), 0.0)));
                } else if let Some(last) = self.units_of.last_mut() {
                    *last = None;
                }
                reaches.len() - 1
            });
            if let Some(Some((_, pods))) = self.units_of.get_mut(number) {
                *pods += count;
            }
            if let Some(last) = reaches.get_mut(number) {
                // A kind that stands for several takes whatever any of them takes.
                last.nodes.union_with(&reach.nodes);
                for choice in reach.choices {
                    if !last.choices.contains(&choice) {
                        last.choices.push(choice);
                    }
                }
            }
            self.kind_of.insert((shape, size), number);
            if let Some(kind) = self.kinds.get_mut(number) {
                for ((cell, amount), unit) in kind.iter_mut().zip(amounts).zip(&self.units) {
                    if *unit > 0.0 {
                        *cell += real(*amount).max(0.0) * count / unit;
                    }
                }
            }
        }
        reaches
    }

    /// How much of each resource the pods of a kind can use of `net`: whole pods where all are the same.
    fn usable(&self, kind: usize, net: &[Amount]) -> Vec<f64> {
        let asked = self.kinds.get(kind).map_or(&[][..], Vec::as_slice);
        if let Some(Some((amounts, pods))) = self.units_of.get(kind) {
            let fits = |(amount, room): (&Amount, &Amount)| (*room).max(0) / *amount;
            let cells = amounts.iter().zip(net).filter(|(amount, _)| **amount > 0);
            let whole = cells.map(fits).min().map_or(*pods, |most| real(most).min(*pods));
            return self
                .shares(amounts.iter().copied())
                .iter()
                .map(|share| share * whole)
                .collect();
        }
        let room = self.shares(net.iter().copied());
        room.iter()
            .zip(asked)
            .map(|(room, asked)| room.min(*asked))
            .collect()
    }

    fn shares(&self, amounts: impl Iterator<Item = Amount>) -> Vec<f64> {
        amounts
            .zip(&self.units)
            .map(|(amount, unit)| {
                if *unit > 0.0 {
                    real(amount).max(0.0) / unit
                } else {
                    0.0
                }
            })
            .collect()
    }

    fn read_offerings(&mut self, solver: &Solver<'_, '_>, problem: &Problem<'_>, reaches: &[Reach]) {
        let model = &solver.model;
        let is_counted = solver.options.reserved != ReservedMode::Off;
        let reserved: FastMap<(usize, u32), i64> = model
            .types
            .reserved
            .iter()
            .filter(|_| is_counted)
            .filter_map(|offering| {
                let (_, free) = model.types.reservations.get(offering.reservation)?;
                Some(((offering.entry, offering.class), *free))
            })
            .collect();
        for (at, pool) in model.pools.iter().enumerate() {
            let prices = problem.prices(pool.position);
            let mut offerings = prices.iter().zip(&model.types.class_of_offering);
            let mut rooms = Vec::with_capacity(problem.catalogue.types.len());
            let mut listed: Vec<Option<(usize, f64)>> = Vec::with_capacity(prices.len());
            for (entry, it) in problem.catalogue.types.iter().enumerate() {
                let overhead = pool.daemons.iter().find(|group| group.types.contains(entry));
                // The ways to buy the type by the kinds they serve, the cheapest of each.
                let mut ways: BTreeMap<(Vec<usize>, Option<i64>), (f64, usize)> = BTreeMap::new();
                for offering in &it.offerings {
                    let Some((price, class)) = offerings.next() else {
                        break;
                    };
                    if !offering.available || !pool.types.contains(entry) {
                        listed.push(None);
                        continue;
                    }
                    let kinds = takers(reaches, |choice| {
                        choice.pool == at
                            && choice.types.contains(entry)
                            && choice.classes.contains(*class as usize)
                    });
                    let free = reserved.get(&(entry, *class)).copied();
                    if kinds.is_empty() {
                        listed.push(None);
                        continue;
                    }
                    let next = self.carriers.len() + ways.len();
                    let known = ways.entry((kinds, free)).or_insert((f64::INFINITY, next));
                    known.0 = known.0.min(*price);
                    listed.push(Some((known.1, *price)));
                }
                let taken = |resource: usize| {
                    overhead.map_or(0, |group| group.overhead.get(resource).copied().unwrap_or(0))
                };
                let room = || {
                    let of_type = pool.sizes.of_type(entry).enumerate();
                    of_type.map(|(resource, amount)| amount - taken(resource))
                };
                rooms.push(room().map(|amount| real(amount).max(0.0)).collect());
                let net: Vec<Amount> = room().collect();
                let room = self.shares(room());
                let mut ways: Vec<_> = ways.into_iter().collect();
                ways.sort_by_key(|(_, (_, number))| *number);
                for ((kinds, free), (price, _)) in ways {
                    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 machines")]
                    let count = free.map(|free| free.max(0) as f64);
                    let usable = kinds.iter().map(|kind| self.usable(*kind, &net)).collect();
                    self.carriers.push(Carrier {
                        kinds,
                        room: room.clone(),
                        usable,
                        price,
                        count,
                    });
                }
            }
            self.offerings.push(listed);
            self.rooms.push(rooms);
        }
    }

    /// The room on nodes that exist: free, and put together where the same kinds could use it.
    fn read_nodes(&mut self, model: &Model<'_>, reaches: &[Reach]) {
        let mut rooms: BTreeMap<Vec<usize>, FreeRoom> = BTreeMap::new();
        for (at, node) in model.nodes.iter().enumerate() {
            if node.is_overdrawn {
                continue;
            }
            let kinds: Vec<usize> = (0..reaches.len())
                .filter(|kind| reaches.get(*kind).is_some_and(|reach| reach.nodes.contains(at)))
                .collect();
            if kinds.is_empty() {
                continue;
            }
            let free = self.shares(node.remaining.iter().copied());
            let usable: Vec<Vec<f64>> = kinds
                .iter()
                .map(|kind| self.usable(*kind, &node.remaining))
                .collect();
            let nothing = || vec![0.0; self.resources];
            let (room, used) = rooms
                .entry(kinds)
                .or_insert_with(|| (nothing(), vec![nothing(); usable.len()]));
            room.iter_mut().zip(free).for_each(|(cell, free)| *cell += free);
            let cells = used.iter_mut().flatten().zip(usable.iter().flatten());
            cells.for_each(|(cell, more)| *cell += more);
        }
        self.carriers
            .extend(rooms.into_iter().map(|(kinds, (room, usable))| Carrier {
                kinds,
                room,
                usable,
                price: 0.0,
                count: Some(1.0),
            }));
    }
}

/// The kinds that have a choice for which `takes` holds.
fn takers(reaches: &[Reach], takes: impl Fn(&Choice) -> bool) -> Vec<usize> {
    reaches
        .iter()
        .enumerate()
        .filter(|(_, reach)| reach.choices.iter().any(&takes))
        .map(|(kind, _)| kind)
        .collect()
}

/// Where pods of `shape` could go, with every demand that could be relaxed taken as relaxed.
fn reach(solver: &mut Solver<'_, '_>, shape: ShapeId, check_nodes: bool) -> Reach {
    let nodes = solver.model.nodes.len();
    let mut reach = Reach {
        choices: Vec::new(),
        nodes: if check_nodes {
            BitSet::empty(nodes)
        } else {
            BitSet::full(nodes)
        },
    };
    let mut next = Some(shape);
    while let Some(shape) = next {
        let Model {
            states,
            types,
            taints,
            shapes,
            pools,
            nodes,
            labels_may_appear,
            ..
        } = &mut solver.model;
        let shape_of = &mut shapes[shape];
        for (at, pool) in pools.iter().enumerate() {
            if !shape_of
                .tolerated
                .ask(taints, pool.taints, &shape_of.constraints.tolerations)
            {
                continue;
            }
            let (of_types, classes) = match states.merge(pool.template, shape_of.requirements, Side::Claim) {
                Merge::Into(state) => {
                    let left = types.left(state, states);
                    let mut of_types = left.types.clone();
                    of_types.intersect_with(&pool.types);
                    (of_types, left.classes.clone())
                }
                Merge::Undefined(_) if *labels_may_appear => {
                    (pool.types.clone(), BitSet::full(types.classes.len()))
                }
                _ => continue,
            };
            let choice = Choice {
                pool: at,
                types: of_types,
                classes,
            };
            if !reach.choices.contains(&choice) {
                reach.choices.push(choice);
            }
        }
        for at in (0..nodes.len()).filter(|_| check_nodes) {
            let node = &nodes[NodeId::new(at)];
            if reach.nodes.contains(at)
                || !shape_of
                    .tolerated
                    .ask(taints, node.taints, &shape_of.constraints.tolerations)
            {
                continue;
            }
            match states.merge(node.state, shape_of.requirements, Side::Node) {
                Merge::Into(_) => reach.nodes.insert(at),
                Merge::Undefined(_) if *labels_may_appear => reach.nodes.insert(at),
                _ => {}
            }
        }
        next = solver.relaxed(shape);
    }
    reach
}

/// The types of `set` on which `needed` fits beside the DaemonSets.
fn fitting(pool: &Pool, set: &BitSet, needed: &[Amount]) -> BitSet {
    let mut all = BitSet::empty(set.words().len() * 64);
    for group in &pool.daemons {
        let mut of_group = set.clone();
        of_group.intersect_with(&group.types);
        let with_overhead: Vec<Amount> = needed
            .iter()
            .zip(&group.overhead)
            .map(|(needed, overhead)| needed.saturating_add(*overhead))
            .collect();
        pool.sizes.keep_fitting(&mut of_group, &with_overhead);
        all.union_with(&of_group);
    }
    all
}

/// Whether a pod is so large that few fit on a common node.
fn is_large(amounts: &[Amount], dimensions: &Dimensions) -> bool {
    const UNIT: Amount = 1_000_000_000;
    amounts
        .iter()
        .zip(dimensions.names())
        .any(|(amount, name)| match &**name {
            CPU => *amount >= UNIT,
            MEMORY => *amount >= (4 << 30) * UNIT,
            PODS => false,
            _ => *amount > 0,
        })
}

/// The largest power of two of whole units that is not larger: close sizes give the same kind.
fn power_below(amount: Amount) -> Amount {
    const UNIT: Amount = 1_000_000_000;
    match amount / UNIT {
        units if units > 0 => (1 << units.ilog2()) * UNIT,
        _ => 0,
    }
}

/// An amount as a real number of billionths.
#[expect(clippy::cast_precision_loss, reason = "the bound allows for rounding")]
pub(super) fn real(amount: Amount) -> f64 {
    amount as f64
}
