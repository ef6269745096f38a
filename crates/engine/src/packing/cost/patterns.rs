//! A lower bound that knows whole pods and whole nodes.
//!
//! Give every pod a worth `v ≥ 0`, the same for all that are alike, such that no set of pods that fits an offering is
//! worth more than the offering costs. Then what all nodes cost is at least what all pods are worth, less what those on
//! existing nodes and reservations are worth beyond their price:
//!
//! > cost ≥ Σ pods × `v` − Σ over existing nodes and reservations of count × max(0, best worth − price).
//!
//! The best such worths are a linear program with a row for each set of pods that fits; sets that the answer violates
//! are added as they are found. At the end every offering is looked at once more with a proven upper bound on its best
//! set, and worths are lowered until none is above its price: so the bound holds whatever was found on the way.
#![expect(
    clippy::indexing_slicing,
    reason = "bins, estimates and worths are lists of the same length as what they are about"
)]

use std::collections::BTreeMap;

use super::demand::{Carrier, Demand};
use super::knapsack::{Bin, Item, Pattern, estimate, exact, grid, parts, refine};
use super::simplex::{Row, maximise};

/// How often sets that are worth too much are added.
const ROUNDS: usize = 200;
/// Rows beyond this are dropped when they do not bind.
const MOST_ROWS: usize = 450;
/// How many sets are added for bins that take the same items, each round.
const ROWS_AT_ONCE: usize = 2;
/// Rounding in the sums is far smaller than this share.
const SAFETY: f64 = 1e-9;

/// Sets that are worth too much: by how much, of which bin, and which; by the items that bins take and the variable of
/// what they take off.
type Worst<'b> = BTreeMap<(&'b [usize], Option<usize>), Vec<(f64, usize, Pattern)>>;

/// The bound, if the demand is made of pods that are alike in few ways.
pub(super) fn lower_bound(demand: &Demand) -> Option<f64> {
    let items = demand.items()?;
    let bins = bins(demand, &items);
    let mut program = Program::new(&items, &bins, demand.resources);
    program.solve();
    Some(program.prove() * (1.0 - SAFETY))
}

/// What can take pods, without what something else beats in every way.
fn bins(demand: &Demand, items: &[Item]) -> Vec<Bin> {
    let mut carriers: Vec<&Carrier> = demand.carriers.iter().collect();
    carriers.sort_by(|a, b| a.price.total_cmp(&b.price));
    let mut kept: BTreeMap<&[usize], Vec<&Carrier>> = BTreeMap::new();
    let mut bins = Vec::new();
    for carrier in carriers {
        if carrier.count.is_none() {
            let cheaper = kept.entry(&carrier.kinds).or_default();
            let is_beaten = cheaper.iter().any(|other| {
                let mut rooms = other.room.iter().zip(&carrier.room);
                rooms.all(|(theirs, own)| theirs >= own)
            });
            if is_beaten {
                continue;
            }
            cheaper.push(carrier);
        }
        bins.push(bin(carrier, items));
    }
    bins
}

fn bin(carrier: &Carrier, items: &[Item]) -> Bin {
    let most = carrier.kinds.iter().zip(&carrier.usable).map(|(kind, usable)| {
        let cells = items[*kind].amounts.iter().zip(usable);
        let mut pods = cells.filter(|(amount, _)| **amount > 0.0);
        pods.next()
            .map_or(items[*kind].pods, |(amount, usable)| (usable / amount).round())
    });
    Bin {
        items: carrier.kinds.clone(),
        most: most.collect(),
        room: carrier.room.clone(),
        price: carrier.price,
        count: carrier.count,
    }
}

/// The linear program with the rows found so far. Variables: the worth of each item, then what each limited bin takes
/// off.
struct Program<'p> {
    items: &'p [Item],
    bins: &'p [Bin],
    grid: Vec<Vec<f64>>,
    /// For each bin, the shares that proved most so far.
    shares: Vec<usize>,
    /// For each bin, the variable of what it takes off.
    excess: Vec<Option<usize>>,
    objective: Vec<f64>,
    rows: Vec<Row>,
    boxes: usize,
    worth: Vec<f64>,
}

impl<'p> Program<'p> {
    fn new(items: &'p [Item], bins: &'p [Bin], resources: usize) -> Self {
        let mut objective: Vec<f64> = items.iter().map(|item| item.pods).collect();
        let mut excess = Vec::with_capacity(bins.len());
        for bin in bins {
            excess.push(bin.count.map(|count| {
                objective.push(-count);
                objective.len() - 1
            }));
        }
        let mut most = vec![f64::INFINITY; items.len()];
        for bin in bins.iter().filter(|bin| bin.count.is_none()) {
            for (item, pods) in bin.items.iter().zip(&bin.most) {
                if *pods > 0.0 {
                    most[*item] = most[*item].min(bin.price / pods);
                }
            }
        }
        let rows = most.iter().enumerate().map(|(item, most)| {
            let mut coefficients = vec![0.0; objective.len()];
            coefficients[item] = 1.0;
            let limit = if most.is_finite() { *most } else { 0.0 };
            Row { coefficients, limit }
        });
        Self {
            rows: rows.collect(),
            boxes: items.len(),
            items,
            bins,
            grid: grid(resources),
            shares: vec![0; bins.len()],
            excess,
            objective,
            worth: vec![0.0; items.len()],
        }
    }

    fn solve(&mut self) {
        for round in 0..ROUNDS {
            let solution = maximise(&self.objective, &self.rows);
            self.worth = solution[..self.items.len()].to_vec();
            if self.rows.len() > MOST_ROWS {
                self.drop_loose_rows(&solution);
            }
            if !self.add_violated(&solution, round) {
                break;
            }
        }
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

    /// Adds sets that are worth more than their bin costs; `false` if none was found.
    fn add_violated(&mut self, solution: &[f64], round: usize) -> bool {
        let mut worst: Worst<'_> = BTreeMap::new();
        let mut doubtful = Vec::new();
        for (at, bin) in self.bins.iter().enumerate() {
            let allowed = bin.price + self.excess[at].map_or(0.0, |variable| solution[variable]);
            // A few weighings each round; all of them have their turn.
            let turn = |number: usize| number % 6 == round % 6 || number == self.shares[at];
            let tried = self.grid.iter().enumerate().filter(|(number, _)| turn(*number));
            let found = estimate(bin, self.items, &self.worth, tried);
            if found.at_most <= allowed {
                continue;
            }
            self.shares[at] = found.shares;
            if found.worth > allowed * (1.0 + 1e-7) + 1e-12 {
                let violation = found.worth / (allowed + 1e-9);
                let of_kind = worst.entry((&bin.items, self.excess[at])).or_default();
                of_kind.push((violation, at, found.pattern));
            } else {
                doubtful.push((at, allowed));
            }
        }
        if worst.is_empty() {
            for (at, allowed) in doubtful {
                let bin = &self.bins[at];
                let mut shares = self.grid[self.shares[at]].clone();
                let at_most = refine(bin, self.items, &self.worth, &mut shares);
                if at_most <= allowed {
                    continue;
                }
                // Where the best whole pods cannot be found, parts of pods count: the proof is by them.
                let (worth, pattern) = exact(bin, self.items, &self.worth, &shares)
                    .unwrap_or_else(|| (at_most, parts(bin, self.items, &self.worth, &shares)));
                if worth > allowed * (1.0 + 1e-5) + 1e-12 {
                    let of_kind = worst.entry((&bin.items, self.excess[at])).or_default();
                    of_kind.push((worth / (allowed + 1e-9), at, pattern));
                }
            }
        }
        let mut added = Vec::new();
        for ((_, variable), mut found) in worst {
            found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for (_, at, pattern) in found.into_iter().take(ROWS_AT_ONCE) {
                let bin = &self.bins[at];
                let mut coefficients = vec![0.0; self.objective.len()];
                for (position, count) in pattern {
                    coefficients[bin.items[position]] = count;
                }
                if let Some(variable) = variable {
                    coefficients[variable] = -1.0;
                }
                added.push(Row {
                    coefficients,
                    limit: bin.price,
                });
            }
        }
        let is_any = !added.is_empty();
        self.rows.extend(added);
        is_any
    }

    /// The most that pods on a bin can be worth, proven.
    fn at_most(&self, bin: &Bin) -> f64 {
        let found = estimate(bin, self.items, &self.worth, self.grid.iter().enumerate());
        if found.at_most <= bin.price {
            return found.at_most;
        }
        let mut shares = self.grid[found.shares].clone();
        let at_most = refine(bin, self.items, &self.worth, &mut shares);
        if at_most <= bin.price {
            return at_most;
        }
        let best = exact(bin, self.items, &self.worth, &shares);
        best.map_or(at_most, |(worth, _)| worth.min(at_most))
    }

    /// Lowers worths until no unlimited bin carries more than it costs, and says what that proves.
    fn prove(mut self) -> f64 {
        for bin in self.bins.iter().filter(|bin| bin.count.is_none()) {
            let at_most = self.at_most(bin) * (1.0 + 1e-12);
            if at_most > bin.price {
                let factor = (bin.price / at_most).max(0.0);
                bin.items.iter().for_each(|item| self.worth[*item] *= factor);
            }
        }
        let pods: f64 = self
            .items
            .iter()
            .zip(&self.worth)
            .map(|(item, worth)| item.pods * worth)
            .sum();
        let limited = self.bins.iter().filter_map(|bin| {
            let count = bin.count?;
            let found = estimate(bin, self.items, &self.worth, self.grid.iter().enumerate());
            let mut shares = self.grid[found.shares].clone();
            let at_most = refine(bin, self.items, &self.worth, &mut shares);
            Some(count * (at_most - bin.price).max(0.0))
        });
        pods - limited.sum::<f64>()
    }
}
