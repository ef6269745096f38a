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

mod appraise;
mod bound;
mod demand;
mod knapsack;
mod patterns;
mod prices;
mod reach;
mod search;
mod simplex;
mod steering;

pub(super) use steering::{Offer, Steering};

use std::sync::Arc;

use super::{Options, Problem, Results, results};
use crate::bitset::BitSet;
use appraise::weigh;
use prices::Prices;
use search::{Found, Search, keep_made, total};

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
    let mut solver = super::run(problem, options);
    let is_held = !solver.model.held.is_empty();
    let mut groups = prices.groups(&mut solver);
    let results = results::collect(solver, problem);
    let unplaced = unplaced(&results, problem);
    keep_made(&mut groups, &unplaced);
    let ffd_hourly = total(&groups);
    let mut bound = 0.0;
    let mut search = Search::new(
        problem,
        options,
        prices,
        Found {
            unplaced,
            hourly: ffd_hourly,
            results,
            groups: groups.into(),
        },
    );
    // Two hundred runs of what is too much for one would be far too much.
    if !is_held && !search.best.results.stopped && !search.best.results.new_node_claims.is_empty() {
        let (proven, merits) = weigh(problem, options, &search.best.unplaced);
        bound = proven.hourly;
        search.improve(&Arc::new(merits), &proven);
    }
    let hourly = search.best.hourly;
    let gap = if hourly > 0.0 {
        (1.0 - bound / hourly).max(0.0)
    } else {
        0.0
    };
    CostResults {
        hourly,
        results: search.best.results,
        ffd_hourly,
        lower_bound: bound,
        gap,
        runs: search.runs,
    }
}

/// The pods that go nowhere.
fn unplaced(results: &Results, problem: &Problem<'_>) -> BitSet {
    let mut set = BitSet::empty(problem.objects.pods.len());
    results
        .unschedulable
        .iter()
        .for_each(|entry| set.insert(entry.pod));
    set
}
