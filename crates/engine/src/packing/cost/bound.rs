//! A proven lower bound on what new nodes cost.
//!
//! Give every resource of every kind of pod a price, `w[kind][resource] ≥ 0`, such that no offering can carry more
//! than it costs:
//!
//! > for every offering: the worth of its room, given to the dearest kinds first, to each as much as it can use, is
//! > at most its price.
//!
//! A kind can use no more than its pods ask for together, and where they are all alike no more than whole pods take
//! (two pods of 6 processors use 12 of 16).
//!
//! Then the pods of a node, whichever they are, are worth at most what the node costs: they fit, so of each resource
//! all kinds together use at most the room and each kind at most what it can use, and under these two limits nothing
//! is worth more than giving the room to the dearest first. Add this up over all new nodes: what they cost is at least
//! the worth of all pods on them, which is the worth of all pods less the worth of those on existing nodes, and that is
//! at most what the room there carries by the same reckoning. Offerings of which there are only so many (capacity
//! reservations) may carry more than they cost, and each of them then takes the difference off. So
//!
//! > cost ≥ Σ demand × `w` − Σ over existing nodes and reservations of count × max(0, worth carried − price).
//!
//! The best such prices are a linear program, solved by cutting planes: solve it with few of the offerings, add the
//! ones that the answer violates, repeat. The answer is then scaled down until no offering is violated at all, so
//! the bound holds whatever the arithmetic did on the way. A second bound is the dearest single pod: the cheapest
//! offering that could take it, where nothing that exists could.

use std::collections::BTreeMap;

use super::demand::{Carrier, Demand};
use super::simplex::{Row, maximise};

/// How often violated offerings are added.
const ROUNDS: usize = 250;
/// Rows beyond this are dropped when they do not bind.
const MOST_ROWS: usize = 500;
/// Rounding in the sums below is far smaller than this share.
const SAFETY: f64 = 1e-9;

/// What cuts are told apart by: the kinds, and the variable of a limited carrier.
type CutKey<'d> = (&'d [usize], Option<usize>);

/// A lower bound, and the prices that prove it.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    pub(super) hourly: f64,
    /// For each kind, what one share of each resource is worth.
    pub(super) worth: Vec<Vec<f64>>,
}

/// The best bound that the linear program gives.
pub(super) fn lower_bound(demand: &Demand) -> Bound {
    let mut worth = Program::new(demand).solve();
    make_feasible(&mut worth, demand);
    let by_weights = value(&worth, demand) * (1.0 - SAFETY);
    Bound {
        hourly: by_weights.max(dearest_kind(demand)).max(0.0),
        worth,
    }
}

/// The kinds by what a resource of theirs is worth, dearest first, for each resource.
fn by_worth(worth: &[Vec<f64>], resources: usize) -> Vec<Vec<usize>> {
    let of = |kind: &usize, resource: usize| {
        let cell = worth.get(*kind).and_then(|row| row.get(resource));
        cell.copied().unwrap_or(0.0)
    };
    let order = |resource: usize| {
        let mut kinds: Vec<usize> = (0..worth.len()).collect();
        kinds.sort_by(|a, b| of(b, resource).total_cmp(&of(a, resource)).then(a.cmp(b)));
        kinds
    };
    (0..resources).map(order).collect()
}

/// The most that the pods on a carrier can be worth: the room goes to the dearest kinds first, to each as much as it
/// can use. `take` hears of every kind, resource and amount.
fn carried(
    worth: &[Vec<f64>],
    order: &[Vec<usize>],
    carrier: &Carrier,
    mut take: impl FnMut(usize, usize, f64),
) -> f64 {
    let mut total = 0.0;
    for ((resource, kinds), room) in order.iter().enumerate().zip(&carrier.room) {
        let mut left = *room;
        for kind in kinds {
            let Ok(at) = carrier.kinds.binary_search(kind) else {
                continue;
            };
            let usable = carrier.usable.get(at).and_then(|row| row.get(resource));
            let amount = usable.copied().unwrap_or(0.0).min(left);
            let each = worth.get(*kind).and_then(|row| row.get(resource));
            total += amount * each.copied().unwrap_or(0.0);
            take(*kind, resource, amount);
            left -= amount;
            if left <= 0.0 {
                break;
            }
        }
    }
    total
}

/// For callers that only want the sum.
const fn nobody(_: usize, _: usize, _: f64) {}

/// Lowers prices until no unlimited offering carries more than it costs. Lowering never breaks another one.
fn make_feasible(worth: &mut [Vec<f64>], demand: &Demand) {
    worth
        .iter_mut()
        .flatten()
        .filter(|cell| **cell < 1e-9)
        .for_each(|cell| *cell = 0.0);
    let mut order = by_worth(worth, demand.resources);
    for carrier in demand.carriers.iter().filter(|carrier| carrier.count.is_none()) {
        let carried = carried(worth, &order, carrier, nobody);
        if carried > carrier.price {
            let factor = (carrier.price / carried * (1.0 - 1e-12)).max(0.0);
            for kind in &carrier.kinds {
                if let Some(row) = worth.get_mut(*kind) {
                    row.iter_mut().for_each(|cell| *cell *= factor);
                }
            }
            order = by_worth(worth, demand.resources);
        }
    }
}

/// What feasible prices prove.
fn value(worth: &[Vec<f64>], demand: &Demand) -> f64 {
    let cells = worth.iter().flatten().zip(demand.kinds.iter().flatten());
    let pods: f64 = cells.map(|(worth, amount)| worth * amount).sum();
    let order = by_worth(worth, demand.resources);
    let limited = demand.carriers.iter().filter_map(|carrier| {
        let count = carrier.count?;
        let excess = carried(worth, &order, carrier, nobody) - carrier.price;
        Some(count * excess.max(0.0))
    });
    pods - limited.sum::<f64>()
}

/// The dearest kind's cheapest carrier: at least one node is as dear, if a kind has pods that need a new one.
fn dearest_kind(demand: &Demand) -> f64 {
    let cheapest = |kind: usize| {
        let mut cheapest = f64::INFINITY;
        for carrier in demand
            .carriers
            .iter()
            .filter(|carrier| carrier.kinds.contains(&kind))
        {
            cheapest = cheapest.min(carrier.price);
        }
        cheapest
    };
    (0..demand.kinds.len())
        .map(cheapest)
        .filter(|price| price.is_finite())
        .fold(0.0, f64::max)
}

/// The linear program with the rows found so far. Variables: the worth of each kind's resources, then what each
/// limited carrier takes off.
struct Program<'d> {
    demand: &'d Demand,
    objective: Vec<f64>,
    rows: Vec<Row>,
    /// How many rows limit one variable each; these are never dropped.
    boxes: usize,
}

impl<'d> Program<'d> {
    fn new(demand: &'d Demand) -> Self {
        let mut objective: Vec<f64> = demand.kinds.iter().flatten().copied().collect();
        let weights = objective.len();
        let limited = demand.carriers.iter().filter_map(|carrier| carrier.count);
        objective.extend(limited.map(|count| -count));
        let mut program = Self {
            demand,
            objective,
            rows: Vec::new(),
            boxes: weights,
        };
        for variable in 0..weights {
            let mut coefficients = vec![0.0; program.objective.len()];
            if let Some(cell) = coefficients.get_mut(variable) {
                *cell = 1.0;
            }
            let limit = program.most(variable / demand.resources, variable % demand.resources);
            program.rows.push(Row { coefficients, limit });
        }
        program
    }

    /// What one resource of a kind can be worth at most, if it were the only one.
    fn most(&self, kind: usize, resource: usize) -> f64 {
        let mut most = f64::INFINITY;
        for carrier in &self.demand.carriers {
            let at = carrier.kinds.binary_search(&kind).ok();
            let usable = at.and_then(|at| carrier.usable.get(at)?.get(resource));
            if let (None, Some(usable)) = (carrier.count, usable)
                && *usable > 0.0
            {
                most = most.min(carrier.price / usable);
            }
        }
        if most.is_finite() { most } else { 0.0 }
    }

    fn solve(mut self) -> Vec<Vec<f64>> {
        let mut worth = Vec::new();
        for _ in 0..ROUNDS {
            let solution = maximise(&self.objective, &self.rows);
            worth = solution
                .chunks(self.demand.resources.max(1))
                .take(self.demand.kinds.len())
                .map(<[f64]>::to_vec)
                .collect();
            if self.rows.len() > MOST_ROWS {
                self.drop_loose_rows(&solution);
            }
            if !self.add_violated(&worth, &solution) {
                break;
            }
        }
        worth
    }

    fn drop_loose_rows(&mut self, solution: &[f64]) {
        let mut at = 0;
        let boxes = self.boxes;
        self.rows.retain(|row| {
            at += 1;
            let used: f64 = row.coefficients.iter().zip(solution).map(|(a, x)| a * x).sum();
            at <= boxes || used >= row.limit - 1e-7 * (1.0 + row.limit)
        });
    }

    /// Adds the most violated carriers, one for each set of kinds; `false` if there is none.
    fn add_violated(&mut self, worth: &[Vec<f64>], solution: &[f64]) -> bool {
        let weights = self.boxes;
        let mut worst: BTreeMap<CutKey<'_>, (f64, &Carrier)> = BTreeMap::new();
        let order = by_worth(worth, self.demand.resources);
        let mut limited = 0;
        for carrier in &self.demand.carriers {
            let slack_variable = carrier.count.map(|_| {
                limited += 1;
                weights + limited - 1
            });
            let slack = slack_variable
                .and_then(|at| solution.get(at))
                .copied()
                .unwrap_or(0.0);
            let allowed = carrier.price + slack;
            let excess = carried(worth, &order, carrier, nobody) - allowed;
            if excess <= 1e-8 * (1e-3 + allowed) {
                continue;
            }
            let violation = excess / (1e-6 + allowed);
            let known = worst
                .entry((carrier.kinds.as_slice(), slack_variable))
                .or_insert((violation, carrier));
            if violation > known.0 {
                *known = (violation, carrier);
            }
        }
        let found = !worst.is_empty();
        let mut rows = Vec::with_capacity(worst.len());
        for ((_, slack_variable), (_, carrier)) in worst {
            let mut coefficients = vec![0.0; self.objective.len()];
            let resources = self.demand.resources;
            carried(worth, &order, carrier, |kind, resource, amount| {
                if let Some(cell) = coefficients.get_mut(kind * resources + resource) {
                    *cell += amount;
                }
            });
            if let Some(cell) = slack_variable.and_then(|at| coefficients.get_mut(at)) {
                *cell = -1.0;
            }
            rows.push(Row {
                coefficients,
                limit: carrier.price,
            });
        }
        self.rows.extend(rows);
        found
    }
}
