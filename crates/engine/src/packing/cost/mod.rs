//! The packing policy `cost`: the fewest dollars per hour instead of Karpenter's answer.
//!
//! Every candidate is a run of the real solver, so that every constraint holds by construction; what differs is which
//! types new claims aim at (`steering`), and for which kinds of pods. Karpenter's own answer is the first
//! candidate, and another one takes its place only if it places every pod that was placed before and costs less: so
//! the result is never worse, on any input. How far it can be from the best possible one is proven by a lower bound
//! (`bound`).
//!
//! Invariants: no clock and no randomness, the same input gives the same result; at most [`Options::cost_runs`] runs
//! of the solver; a run that was told to stop is thrown away.

mod bound;
mod demand;
mod prices;
mod simplex;
mod steering;

pub(super) use steering::Steering;

use std::sync::Arc;

use super::model::Model;
use super::solver::Solver;
use super::{Options, Problem, Results, pools, results};
use crate::bitset::BitSet;
use crate::resources::CPU;
use bound::{Bound, carried, lower_bound};
use demand::{Demand, real};
use prices::Prices;
use steering::{Aim, Merits};

/// What the policy found.
#[derive(Clone, Debug)]
pub struct CostResults {
    /// Where every pod goes.
    pub results: Results,
    /// What the new claims cost in dollars per hour, each at its cheapest offering after overlays.
    pub hourly: f64,
    /// The same for Karpenter's answer.
    pub ffd_hourly: f64,
    /// No placement of these pods costs less.
    pub lower_bound: f64,
    /// The share of `hourly` that a better placement could save at most.
    pub gap: f64,
    /// How many times the solver ran.
    pub runs: usize,
}

/// Decides where every pod goes, at the lowest price that can be found.
#[must_use]
pub fn solve(problem: &Problem<'_>, options: &Options<'_>) -> CostResults {
    let mut prices = Prices::new(problem);
    let mut solver = Solver::new(Model::new(problem, options), *options);
    solver.run();
    let ffd_hourly = prices.total(&mut solver);
    let results = results::collect(solver, problem);
    let mut search = Search {
        problem,
        options,
        unplaced: unplaced(&results, problem),
        results,
        hourly: ffd_hourly,
        prices,
        runs: 1,
        merits: Arc::default(),
    };
    let mut bound = 0.0;
    if !search.results.stopped && !search.results.new_node_claims.is_empty() {
        let (proven, merits) = weigh(problem, options, &search.unplaced);
        bound = proven.hourly.min(search.hourly);
        search.merits = Arc::new(merits);
        search.improve(proven.worth.len(), bound);
        bound = bound.min(search.hourly);
    }
    let gap = if search.hourly > 0.0 { 1.0 - bound / search.hourly } else { 0.0 };
    CostResults {
        hourly: search.hourly,
        results: search.results,
        ffd_hourly,
        lower_bound: bound,
        gap,
        runs: search.runs,
    }
}

/// The pods that go nowhere.
fn unplaced(results: &Results, problem: &Problem<'_>) -> BitSet {
    let mut set = BitSet::empty(problem.objects.pods.len());
    results.unschedulable.iter().for_each(|entry| set.insert(entry.pod));
    set
}

/// The bound, and how good each offering is by the prices that prove it.
fn weigh(problem: &Problem<'_>, options: &Options<'_>, unplaced: &BitSet) -> (Bound, Merits) {
    let mut solver = Solver::new(Model::new(problem, options), *options);
    let mut placed = BitSet::full(problem.objects.pods.len());
    placed.subtract(unplaced);
    let demand = Demand::new(&mut solver, problem, &placed);
    let bound = lower_bound(&demand);
    let merit = |listed: &Option<(usize, f64)>| {
        let (carrier, price) = listed.as_ref()?;
        let carrier = demand.carriers.get(*carrier)?;
        let carried = carried(&bound.worth, carrier);
        // Where nothing is worth anything (free offerings, existing room for all), the cheapest is the best.
        Some(if carried > 0.0 { price / carried } else { *price })
    };
    let offerings = demand.offerings.iter().map(|of_pool| {
        of_pool
            .iter()
            .map(|listed| merit(listed).unwrap_or(f64::INFINITY))
            .collect()
    });
    let mut starts = vec![0];
    let mut end = 0;
    for it in &problem.catalogue.types {
        end += it.offerings.len();
        starts.push(end);
    }
    let mut tiers: Vec<usize> = Vec::new();
    let mut weight = None;
    let weights = pools::in_order(&problem.objects.node_pools);
    for pool in solver.model.pools.iter() {
        let of_pool = weights
            .iter()
            .find(|(position, _)| *position == pool.position)
            .map(|(_, pool)| pool.spec.weight.unwrap_or(0));
        let last = tiers.last().copied().unwrap_or(0);
        tiers.push(if of_pool == weight { last } else { last + 1 });
        weight = of_pool;
    }
    let processors = problem.catalogue.types.iter().map(|it| {
        let cpu = it.capacity.get(CPU).map_or(0, super::amounts::amount);
        real(cpu) / 1e9
    });
    let merits = Merits {
        offerings: offerings.collect(),
        classes: solver.model.types.class_of_offering.clone(),
        starts,
        processors: processors.collect(),
        tiers,
        kind_of: demand.kind_of,
    };
    (bound, merits)
}

/// The search for something cheaper than the best so far.
struct Search<'p, 'a, 'o> {
    problem: &'p Problem<'a>,
    options: &'p Options<'o>,
    results: Results,
    unplaced: BitSet,
    hourly: f64,
    prices: Prices<'p, 'a>,
    runs: usize,
    merits: Arc<Merits>,
}

/// The sizes of nodes that are tried, in processors.
const SIZES: [f64; 10] = [16.0, 32.0, 8.0, 64.0, 4.0, 48.0, 96.0, 2.0, 192.0, f64::INFINITY];
/// How much worse than the best types may be.
const TOLERANCES: [f64; 3] = [0.1, 0.02, 0.3];

impl Search<'_, '_, '_> {
    fn improve(&mut self, kinds: usize, bound: f64) {
        let mut best = vec![
            Aim {
                most_processors: f64::INFINITY,
                tolerance: 0.1,
            };
            kinds.max(1)
        ];
        for most_processors in SIZES {
            for tolerance in TOLERANCES {
                let aims = vec![Aim { most_processors, tolerance }; best.len()];
                if self.is_done(bound) {
                    return;
                }
                if self.try_aims(&aims) {
                    best = aims;
                }
            }
        }
        // One kind of pods at a time, as long as that helps.
        let mut improved = best.len() > 1;
        while improved {
            improved = false;
            for kind in 0..best.len() {
                for most_processors in SIZES {
                    let mut aims = best.clone();
                    if let Some(aim) = aims.get_mut(kind) {
                        aim.most_processors = most_processors;
                    }
                    if self.is_done(bound) {
                        return;
                    }
                    if aims != best && self.try_aims(&aims) {
                        best = aims;
                        improved = true;
                    }
                }
            }
        }
    }

    fn is_done(&self, bound: f64) -> bool {
        self.runs >= self.options.cost_runs
            || self.hourly <= bound * (1.0 + 1e-9)
            || (self.options.should_stop)()
    }

    /// Runs the solver with claims that aim so; keeps the answer if it is better.
    fn try_aims(&mut self, aims: &[Aim]) -> bool {
        self.runs += 1;
        let mut solver = Solver::new(Model::new(self.problem, self.options), *self.options);
        solver.steering = Some(Steering::new(&self.merits, aims.to_vec()));
        solver.run();
        if solver.stopped || self.prices.total(&mut solver) >= self.hourly - 1e-9 {
            return false;
        }
        let hourly = self.prices.total(&mut solver);
        let results = results::collect(solver, self.problem);
        let unplaced = unplaced(&results, self.problem);
        let mut newly = unplaced.clone();
        newly.subtract(&self.unplaced);
        if !newly.is_empty() {
            return false;
        }
        self.results = results;
        self.hourly = hourly;
        self.unplaced = unplaced;
        true
    }
}
