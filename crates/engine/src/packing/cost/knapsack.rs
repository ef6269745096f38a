//! The most that whole pods on one node can be worth.
//!
//! A node has room for several resources. Weigh them: any shares that add up to one turn all limits into a single one
//! that every set of pods keeps which keeps them all. What is worth most under that one limit, with parts of pods
//! allowed, is quickly found and is an upper bound, whatever the shares; several are tried and the least counts. Taking
//! whole pods in the same order gives a set that really fits.
#![expect(
    clippy::indexing_slicing,
    reason = "positions come from ranges over the same lists"
)]

/// A pod that is one of several alike. Amounts are shares of the total demand.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) amounts: Vec<f64>,
    pub(super) pods: f64,
}

/// What can take pods.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    /// The items that could be on it.
    pub(super) items: Vec<usize>,
    /// The most of each of them.
    pub(super) most: Vec<f64>,
    pub(super) room: Vec<f64>,
    pub(super) price: f64,
    /// How many there are; none if as many as one likes.
    pub(super) count: Option<f64>,
}

/// Pods on a node: positions in the bin's items, with numbers.
pub(super) type Pattern = Vec<(usize, f64)>;

/// How precise amounts are.
const PRECISION: f64 = 1e-9;
/// A search for the best set looks at so many incomplete ones at most.
const MOST_STEPS: usize = 4_000;

/// The shares that are tried for so many resources.
pub(super) fn grid(resources: usize) -> Vec<Vec<f64>> {
    let mut grid = Vec::new();
    for first in 0..resources {
        let mut alone = vec![0.0; resources];
        alone[first] = 1.0;
        grid.push(alone);
        for second in first + 1..resources {
            for part in [0.15, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85] {
                let mut shares = vec![0.0; resources];
                shares[first] = part;
                shares[second] = 1.0 - part;
                grid.push(shares);
            }
        }
    }
    grid
}

/// One bin with what its items are worth, by one weighing of the resources: items by worth for their weight.
struct Weighed<'b> {
    bin: &'b Bin,
    items: &'b [Item],
    /// Position in the bin's items, worth and weight, best first.
    order: Vec<(usize, f64, f64)>,
}

impl<'b> Weighed<'b> {
    fn new(bin: &'b Bin, items: &'b [Item], worth: &[f64], shares: &[f64]) -> Self {
        let mut order = Vec::with_capacity(bin.items.len());
        for (at, item) in bin.items.iter().enumerate() {
            if bin.most[at] <= 0.0 || worth[*item] <= 0.0 {
                continue;
            }
            let mut weight = 0.0;
            for ((share, amount), room) in shares.iter().zip(&items[*item].amounts).zip(&bin.room) {
                if *room > 0.0 {
                    weight += share * amount / room;
                }
            }
            order.push((at, worth[*item], weight));
        }
        let density = |item: &(usize, f64, f64)| item.1 / item.2;
        order.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.0.cmp(&b.0)));
        Self { bin, items, order }
    }

    /// The worth of what fits into `left` of the one limit, from position `from` on, parts of pods included.
    fn at_most(&self, from: usize, mut left: f64) -> f64 {
        let mut total = 0.0;
        for &(at, worth, weight) in &self.order[from..] {
            let most = self.bin.most[at];
            if weight * most <= left {
                total += worth * most;
                left -= weight * most;
            } else {
                return total + worth * left.max(0.0) / weight;
            }
        }
        total
    }

    /// What [`Self::at_most`] takes, parts of pods included.
    fn parts(&self) -> Pattern {
        let mut left = 1.0;
        let mut pattern = Pattern::new();
        for &(at, _, weight) in &self.order {
            let most = self.bin.most[at];
            let count = if weight * most <= left {
                most
            } else {
                left / weight
            };
            pattern.push((at, count));
            left -= weight * count;
            if left <= 0.0 {
                break;
            }
        }
        pattern
    }

    /// How many of an item fit into `room`.
    fn fitting(&self, at: usize, room: &[f64]) -> f64 {
        let amounts = &self.items[self.bin.items[at]].amounts;
        let mut most = self.bin.most[at];
        for (amount, room) in amounts.iter().zip(room) {
            if *amount > 0.0 {
                most = most.min((room / amount + PRECISION).floor());
            }
        }
        most.max(0.0)
    }

    fn take(&self, at: usize, count: f64, room: &mut [f64]) {
        let amounts = &self.items[self.bin.items[at]].amounts;
        for (room, amount) in room.iter_mut().zip(amounts) {
            *room -= amount * count;
        }
    }

    /// Whole pods in order, as many of each as fit.
    fn greedy(&self) -> (f64, Pattern) {
        let mut room = self.bin.room.clone();
        let (mut total, mut pattern) = (0.0, Pattern::new());
        for &(at, worth, _) in &self.order {
            let count = self.fitting(at, &room);
            if count > 0.0 {
                self.take(at, count, &mut room);
                total += worth * count;
                pattern.push((at, count));
            }
        }
        (total, pattern)
    }
}

/// An upper bound on what pods on `bin` can be worth, and a set that fits with its worth; by the shares given.
pub(super) fn estimate<'g>(
    bin: &Bin,
    items: &[Item],
    worth: &[f64],
    grid: impl Iterator<Item = (usize, &'g Vec<f64>)>,
) -> Estimate {
    let mut found = Estimate {
        at_most: f64::INFINITY,
        shares: 0,
        worth: 0.0,
        pattern: Pattern::new(),
    };
    for (number, shares) in grid {
        let weighed = Weighed::new(bin, items, worth, shares);
        let at_most = weighed.at_most(0, 1.0);
        if at_most < found.at_most {
            found.at_most = at_most;
            found.shares = number;
        }
        if at_most > found.worth {
            let (total, pattern) = weighed.greedy();
            if total > found.worth {
                found.worth = total;
                found.pattern = pattern;
            }
        }
    }
    found
}

/// Moves shares from one resource to another as long as that proves more.
pub(super) fn refine(bin: &Bin, items: &[Item], worth: &[f64], shares: &mut Vec<f64>) -> f64 {
    let mut best = Weighed::new(bin, items, worth, shares).at_most(0, 1.0);
    for step in [0.08, 0.03, 0.01, 0.003, 0.001] {
        let mut improved = true;
        let mut turns = 0;
        while improved && turns < 6 {
            (improved, turns) = (false, turns + 1);
            for from in 0..shares.len() {
                for to in (0..shares.len()).filter(|to| *to != from) {
                    let moved = shares[from].min(step);
                    if moved <= 0.0 {
                        continue;
                    }
                    let mut other = shares.clone();
                    other[from] -= moved;
                    other[to] += moved;
                    let at_most = Weighed::new(bin, items, worth, &other).at_most(0, 1.0);
                    if at_most < best {
                        best = at_most;
                        *shares = other;
                        improved = true;
                    }
                }
            }
        }
    }
    best
}

/// The set that proves an upper bound, parts of pods included.
pub(super) fn parts(bin: &Bin, items: &[Item], worth: &[f64], shares: &[f64]) -> Pattern {
    Weighed::new(bin, items, worth, shares).parts()
}

/// What is known about the best set of pods for a bin.
pub(super) struct Estimate {
    /// No set is worth more.
    pub(super) at_most: f64,
    /// The number of the shares that prove it.
    pub(super) shares: usize,
    /// What the pattern is worth.
    pub(super) worth: f64,
    pub(super) pattern: Pattern,
}

/// The best set of whole pods, unless the search takes too long.
pub(super) fn exact(bin: &Bin, items: &[Item], worth: &[f64], shares: &[f64]) -> Option<(f64, Pattern)> {
    let weighed = Weighed::new(bin, items, worth, shares);
    let (best, pattern) = weighed.greedy();
    let mut search = Search {
        weighed: &weighed,
        best,
        pattern,
        chosen: Pattern::new(),
        steps: 0,
    };
    search.go(0, bin.room.clone(), 1.0, 0.0);
    (search.steps <= MOST_STEPS).then_some((search.best, search.pattern))
}

struct Search<'w, 'b> {
    weighed: &'w Weighed<'b>,
    best: f64,
    pattern: Pattern,
    chosen: Pattern,
    steps: usize,
}

impl Search<'_, '_> {
    /// Tries every number of every item from `from` on. At most one level for each item, and there are few.
    fn go(&mut self, from: usize, room: Vec<f64>, left: f64, total: f64) {
        self.steps += 1;
        if total > self.best {
            self.best = total;
            self.pattern.clone_from(&self.chosen);
        }
        let Some(&(at, worth, weight)) = self.weighed.order.get(from) else {
            return;
        };
        let mut count = self.weighed.fitting(at, &room);
        while count >= 0.0 {
            let after = left - weight * count;
            let value = total + worth * count;
            let limit = value + self.weighed.at_most(from + 1, after + PRECISION);
            // Fewer of this item only make room for items that are worth less for their weight.
            if limit <= self.best || self.steps > MOST_STEPS {
                return;
            }
            let mut room = room.clone();
            self.weighed.take(at, count, &mut room);
            if count > 0.0 {
                self.chosen.push((at, count));
            }
            self.go(from + 1, room, after, value);
            if count > 0.0 {
                self.chosen.pop();
            }
            count -= 1.0;
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::expect_used,
    reason = "small numbers in a test"
)]
mod tests {
    use super::*;

    /// The best worth of all sets that fit, by trying every one.
    fn best_of_all(bin: &Bin, items: &[Item], worth: &[f64], from: usize, room: &[f64]) -> f64 {
        let Some(item) = bin.items.get(from) else {
            return 0.0;
        };
        let mut best = 0.0_f64;
        for count in 0..=bin.most[from] as usize {
            let left: Vec<f64> = room
                .iter()
                .zip(&items[*item].amounts)
                .map(|(room, amount)| room - amount * count as f64)
                .collect();
            if left.iter().any(|room| *room < -1e-12) {
                break;
            }
            let rest = best_of_all(bin, items, worth, from + 1, &left);
            best = best.max(worth[*item] * count as f64 + rest);
        }
        best
    }

    #[test]
    fn no_set_is_worth_more_than_the_bound_and_the_search_finds_the_best() {
        let mut state = 7_u64;
        let mut random = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 9) % most
        };
        let mut tight = 0;
        for _ in 0..300 {
            let count = 1 + random(5) as usize;
            let items: Vec<Item> = (0..count)
                .map(|_| Item {
                    amounts: vec![(1 + random(9)) as f64 / 50.0, (1 + random(9)) as f64 / 50.0],
                    pods: 4.0,
                })
                .collect();
            let worth: Vec<f64> = (0..count).map(|_| random(20) as f64 / 10.0).collect();
            let bin = Bin {
                items: (0..count).collect(),
                most: (0..count).map(|_| random(5) as f64).collect(),
                room: vec![(5 + random(15)) as f64 / 50.0, (5 + random(15)) as f64 / 50.0],
                price: 1.0,
                count: None,
            };
            let best = best_of_all(&bin, &items, &worth, 0, &bin.room);
            let shares = grid(2);
            let found = estimate(&bin, &items, &worth, shares.iter().enumerate());
            let mut refined = shares[found.shares].clone();
            let at_most = refine(&bin, &items, &worth, &mut refined);
            assert!(found.worth <= best + 1e-9 && best <= at_most + 1e-9 && at_most <= found.at_most + 1e-9);
            let (searched, pattern) = exact(&bin, &items, &worth, &refined).expect("small");
            assert!((searched - best).abs() < 1e-9, "{searched} is not {best}");
            let total: f64 = pattern.iter().map(|(at, count)| worth[*at] * count).sum();
            assert!((total - best).abs() < 1e-9);
            tight += usize::from(at_most < best * 1.2 + 1e-9);
        }
        assert!(
            tight > 150,
            "the bound is loose: within a fifth only {tight} times of 300"
        );
    }
}
