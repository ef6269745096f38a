//! What the pods need and what could carry it, in the numbers that the bound is made of.
//!
//! Pods are put into *kinds* by the offerings and nodes that could take them at all; *carriers* are offerings (or
//! existing room) put together by the kinds that they could take. Whatever is left out of "could" here would make
//! the bound wrong, so every doubt counts as yes: volumes, limits, `minValues` and most rules among pods are ignored. Two
//! rules count: a host takes only so many pods of some shapes, and a spread puts a share of its pods into each domain.

use std::collections::BTreeMap;

use super::super::amounts::{Amount, Dimensions};
use super::super::hash::FastMap;
use super::super::ids::{Id, ShapeId, SizeId};
use super::super::model::Model;
use super::super::solver::Solver;
use super::super::topology::ForcedSpread;
use super::super::{Problem, ReservedMode};
use super::knapsack::Item;
use super::reach::{Forced, Reach, fitting, forced, reach, takers};
use crate::bitset::BitSet;
use crate::resources::{CPU, MEMORY, PODS};

/// Beyond this many pairs of shape and node every node counts as open to every pod.
const MOST_NODE_CHECKS: usize = 200_000;

/// How finely pods are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Detail {
    /// By where they could go, and large ones by size.
    #[default]
    Coarse,
    /// All pods of a kind ask for the same, and rules among pods count as far as they force something.
    Fine,
}

impl Detail {
    /// More kinds than this are merged: the bound stays true and gets weaker.
    const fn most_kinds(self) -> usize {
        match self {
            Self::Coarse => 40,
            Self::Fine => 150,
        }
    }
}

/// Everything that the bound is computed from. Amounts are shares of the total demand.
#[derive(Debug, Default)]
pub(super) struct Demand {
    detail: Detail,
    /// How many resources there are.
    pub(super) resources: usize,
    /// What one share of each resource is, in billionths of its unit; 0 where nobody asks for it.
    pub(super) units: Vec<f64>,
    /// What the pods of each kind ask for.
    pub(super) kinds: Vec<Vec<f64>>,
    /// Where all pods of a kind ask for the same.
    units_of: Vec<Option<Same>>,
    pub(super) carriers: Vec<Carrier>,
    /// For each NodePool that can launch, what each type has room for beside DaemonSets, in billionths.
    pub(super) rooms: Vec<Vec<Vec<f64>>>,
    /// For each NodePool that can launch, for each offering in the order of the catalogue: its carrier and price.
    pub(super) offerings: Vec<Vec<Option<(usize, f64)>>>,
    /// The kind of each pod to be placed, by what it demands and asks for.
    pub(super) kind_of: FastMap<(ShapeId, SizeId), usize>,
}

/// Pods that all ask for the same.
#[derive(Debug)]
struct Same {
    amounts: Vec<Amount>,
    pods: f64,
    most_on_host: Option<usize>,
}

/// The kinds found so far.
#[derive(Default)]
struct Kinds {
    reaches: Vec<Reach>,
    numbers: FastMap<(Reach, Option<SizeId>, Option<ShapeId>), usize>,
    /// Pods of which so many must be in each domain of their spread.
    tied: Vec<(ShapeId, SizeId, usize)>,
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
    pub(super) fn new(
        solver: &mut Solver<'_, '_>,
        problem: &Problem<'_>,
        placed: &BitSet,
        detail: Detail,
    ) -> Self {
        let mut pods: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for entry in &solver.model.queue {
            if placed.contains(entry.position) {
                *pods.entry((entry.shape.index(), entry.size.index())).or_default() += 1;
            }
        }
        let mut demand = Self {
            detail,
            resources: solver.model.dimensions.names().len(),
            ..Self::default()
        };
        let mut totals = vec![0.0; demand.resources];
        for ((_, size), count) in &pods {
            let amounts = &solver.model.sizes[SizeId::new(*size)].amounts;
            for (total, amount) in totals.iter_mut().zip(amounts) {
                *total += real(*amount).max(0.0) * whole(*count);
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
        pods: &BTreeMap<(usize, usize), usize>,
    ) -> Vec<Reach> {
        let shapes: std::collections::BTreeSet<usize> = pods.keys().map(|(shape, _)| *shape).collect();
        let check_nodes = shapes.len() * solver.model.nodes.len() <= MOST_NODE_CHECKS;
        let mut whole: BTreeMap<usize, (Reach, Forced)> = BTreeMap::new();
        for shape in &shapes {
            let id = ShapeId::new(*shape);
            let reach = reach(solver, id, check_nodes, None);
            let forced = match self.detail {
                Detail::Coarse => Forced::default(),
                Detail::Fine => forced(solver, id),
            };
            whole.insert(*shape, (reach, forced));
        }
        let mut kinds = Kinds::default();
        // Pods that have a choice come first: what they can expect counts when new nodes are chosen.
        for ((shape, size), count) in pods {
            let Some((reach, forced)) = whole.get(shape) else {
                continue;
            };
            let in_each = forced.spread.as_ref().map_or(0, |spread| {
                let is_alone = is_alone(solver, spread, pods);
                if is_alone { spread.in_each(*count) } else { 0 }
            });
            let domains = forced.spread.as_ref().map_or(0, |spread| spread.domains.len());
            let (shape, size) = (ShapeId::new(*shape), SizeId::new(*size));
            let free = count - in_each * domains;
            let number = self.add(&solver.model, &mut kinds, reach, (shape, size), forced, free);
            self.kind_of.insert((shape, size), number);
            if in_each > 0 {
                kinds.tied.push((shape, size, in_each));
            }
        }
        for (shape, size, in_each) in std::mem::take(&mut kinds.tied) {
            let Some((_, forced)) = whole.get(&shape.index()) else {
                continue;
            };
            let Some(spread) = &forced.spread else { continue };
            for domain in &spread.domains {
                let within = reach(solver, shape, check_nodes, Some((spread.key, *domain)));
                self.add(&solver.model, &mut kinds, &within, (shape, size), forced, in_each);
            }
        }
        kinds.reaches
    }

    /// Adds `count` pods of a shape and a size that could go to `reach`, and says of which kind they are.
    fn add(
        &mut self,
        model: &Model<'_>,
        kinds: &mut Kinds,
        reach: &Reach,
        (shape, size): (ShapeId, SizeId),
        forced: &Forced,
        count: usize,
    ) -> usize {
        let amounts = &model.sizes[size].amounts;
        let mut reach = reach.clone();
        let at_least: Vec<Amount> = amounts.iter().map(|amount| power_below(*amount)).collect();
        for choice in &mut reach.choices {
            if let Some(pool) = model.pools.iter().nth(choice.pool) {
                choice.types = fitting(pool, &choice.types, &at_least);
            }
        }
        // Large pods leave room that nothing of their kind can use, so that each size is a kind of its own; and pods
        // of which a host takes only a few are one by themselves.
        let apart = forced.most_on_host.map(|_| shape);
        let own = (self.detail == Detail::Fine || is_large(amounts, &model.dimensions)).then_some(size);
        let number = *kinds
            .numbers
            .entry((reach.clone(), own, apart))
            .or_insert_with(|| {
                if kinds.reaches.len() < self.detail.most_kinds() {
                    kinds.reaches.push(reach.clone());
                    self.kinds.push(vec![0.0; self.resources]);
                    self.units_of.push(own.map(|_| Same {
                        amounts: amounts.clone(),
                        pods: 0.0,
                        most_on_host: forced.most_on_host,
                    }));
                } else if let Some(last) = self.units_of.last_mut() {
                    *last = None;
                }
                kinds.reaches.len() - 1
            });
        if let Some(Some(same)) = self.units_of.get_mut(number) {
            same.pods += whole(count);
        }
        if let Some(last) = kinds.reaches.get_mut(number) {
            // A kind that stands for several takes whatever any of them takes.
            last.nodes.union_with(&reach.nodes);
            for choice in reach.choices {
                if !last.choices.contains(&choice) {
                    last.choices.push(choice);
                }
            }
        }
        if let Some(kind) = self.kinds.get_mut(number) {
            for ((cell, amount), unit) in kind.iter_mut().zip(amounts).zip(&self.units) {
                if *unit > 0.0 {
                    *cell += real(*amount).max(0.0) * whole(count) / unit;
                }
            }
        }
        number
    }

    /// The kinds as items of which there are several alike; none if some kind holds different pods.
    pub(super) fn items(&self) -> Option<Vec<Item>> {
        let item = |same: &Option<Same>| {
            let same = same.as_ref()?;
            Some(Item {
                amounts: self.shares(same.amounts.iter().copied()),
                pods: same.pods,
            })
        };
        self.units_of.iter().map(item).collect()
    }

    /// How much of each resource the pods of a kind can use of `net`: whole pods where all are the same.
    fn usable(&self, kind: usize, net: &[Amount]) -> Vec<f64> {
        let asked = self.kinds.get(kind).map_or(&[][..], Vec::as_slice);
        if let Some(Some(same)) = self.units_of.get(kind) {
            let fits = |(amount, room): (&Amount, &Amount)| (*room).max(0) / *amount;
            let cells = same.amounts.iter().zip(net).filter(|(amount, _)| **amount > 0);
            let most = cells
                .map(fits)
                .min()
                .map_or(same.pods, |most| real(most).min(same.pods));
            let most = same.most_on_host.map_or(most, |on_host| most.min(whole(on_host)));
            return self
                .shares(same.amounts.iter().copied())
                .iter()
                .map(|share| share * most)
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

/// Whether the pods of one shape and size are the only ones that a spread counts.
fn is_alone(solver: &Solver<'_, '_>, spread: &ForcedSpread, pods: &BTreeMap<(usize, usize), usize>) -> bool {
    let counted = pods.keys().filter(|(shape, _)| {
        let shape = &solver.model.shapes[ShapeId::new(*shape)];
        let subject = &solver.model.subjects[shape.subject];
        solver.model.topology.counts(spread.group, subject.of_rules())
    });
    counted.count() == 1
}

/// A number of pods as a real number.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 pods")]
fn whole(count: usize) -> f64 {
    count as f64
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
