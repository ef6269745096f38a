//! How good offerings are, and what pods can expect of them, by the prices that prove the bound.

use super::super::Options;
use super::super::amounts::amount;
use super::super::model::Model;
use super::super::objects::Problem;
use super::super::solver::Solver;
use super::bound::{Bound, lower_bound};
use super::demand::{Demand, Detail, real};
use super::patterns;
use super::steering::{Appraisal, Merits, share};
use crate::bitset::BitSet;
use crate::resources::CPU;

/// The bound for the pods that are placed, and how good each offering is by the prices that prove it.
pub(super) fn weigh(problem: &Problem<'_>, options: &Options<'_>, unplaced: &BitSet) -> (Bound, Merits) {
    let mut solver = Solver::new(Model::new(problem, options), *options);
    let mut placed = BitSet::full(problem.objects.pods.len());
    placed.subtract(unplaced);
    let demand = Demand::new(&mut solver, problem, &placed, Detail::Coarse);
    let mut bound = lower_bound(&demand);
    let fine = Demand::new(&mut solver, problem, &placed, Detail::Fine);
    bound.hourly = patterns::lower_bound(&fine).map_or(bound.hourly, |hourly| bound.hourly.max(hourly));
    let weights = weights(&bound, &demand);
    let listed_room = |at: usize| demand.carriers.get(at).map_or(&[][..], |carrier| &carrier.room);
    let carried = |at: usize| -> f64 {
        let cells = listed_room(at).iter().zip(&weights);
        cells.map(|(room, weight)| room * weight).sum()
    };
    let mut prices: Vec<Vec<f64>> = Vec::new();
    let mut offerings: Vec<Vec<f64>> = Vec::new();
    let mut rates = vec![f64::INFINITY; demand.kinds.len()];
    for of_pool in &demand.offerings {
        let price = |listed: &Option<(usize, f64)>| listed.map_or(f64::INFINITY, |(_, price)| price);
        prices.push(of_pool.iter().map(price).collect());
        let mut merits = Vec::with_capacity(of_pool.len());
        for listed in of_pool {
            let merit = listed.map_or(f64::INFINITY, |(at, price)| price / carried(at).max(1e-300));
            merits.push(merit);
            let carrier = listed.and_then(|(at, _)| demand.carriers.get(at));
            for kind in carrier.iter().flat_map(|carrier| &carrier.kinds) {
                if let Some(rate) = rates.get_mut(*kind) {
                    *rate = rate.min(merit);
                }
            }
        }
        offerings.push(merits);
    }
    let mut starts = vec![0];
    let mut end = 0;
    for it in &problem.catalogue.types {
        end += it.offerings.len();
        starts.push(end);
    }
    let pods = demand.kind_of.iter().map(|(&(shape, size), &kind)| {
        let amounts: Vec<f64> = solver.model.sizes[size]
            .amounts
            .iter()
            .map(|amount| real(*amount))
            .collect();
        let alone = alone(&amounts, kind, &demand, &starts);
        let appraisal = Appraisal {
            kind,
            rate: rates.get(kind).copied().unwrap_or(f64::INFINITY),
            alone,
            amounts: amounts.into(),
        };
        ((shape, size), appraisal)
    });
    let pods = pods.collect();
    let processors = problem.catalogue.types.iter().map(|it| {
        let cpu = it.capacity.get(CPU).map_or(0, amount);
        real(cpu) / 1e9
    });
    let merits = Merits {
        pods,
        offerings,
        prices,
        classes: solver.model.types.class_of_offering.clone(),
        starts,
        processors: processors.collect(),
        rooms: demand.rooms,
    };
    (bound, merits)
}

/// The least that a pod costs where nodes are full of pods like it.
fn alone(amounts: &[f64], kind: usize, demand: &Demand, starts: &[usize]) -> f64 {
    let mut least = f64::INFINITY;
    for (of_pool, rooms) in demand.offerings.iter().zip(&demand.rooms) {
        for (pair, room) in starts.windows(2).zip(rooms) {
            let range = match pair {
                [start, end] => *start..*end,
                _ => continue,
            };
            for (carrier, price) in of_pool.get(range).into_iter().flatten().flatten() {
                let takes = demand
                    .carriers
                    .get(*carrier)
                    .is_some_and(|carrier| carrier.kinds.contains(&kind));
                if takes {
                    least = least.min(price * share(amounts, room));
                }
            }
        }
    }
    least
}

/// How much each resource counts: what all pods together pay for it by the prices of the bound.
fn weights(bound: &Bound, demand: &Demand) -> Vec<f64> {
    let mut weights = vec![0.0; demand.resources];
    for (worth, amounts) in bound.worth.iter().zip(&demand.kinds) {
        for ((weight, worth), amount) in weights.iter_mut().zip(worth).zip(amounts) {
            *weight += worth * amount;
        }
    }
    // Where nothing is worth anything (free offerings, existing room for all), every resource counts the same.
    if weights.iter().all(|weight| *weight <= 0.0) {
        weights.fill(1.0);
    }
    weights
}
