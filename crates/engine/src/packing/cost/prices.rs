//! What a claim costs: the cheapest offering that is left to it.

use std::sync::Arc;

use super::super::claim::Claim;
use super::super::hash::FastMap;
use super::super::model::Model;
use super::super::pools::Pool;
use super::super::solver::Solver;
use super::super::{Problem, ReservedMode};
use crate::bitset::BitSet;

/// The types of a NodePool by price, cheapest first.
type ByPrice = Arc<[(f64, u32)]>;

/// Prices by NodePool and ways to buy, worked out once for all runs.
pub(super) struct Prices<'p, 'a> {
    problem: &'p Problem<'a>,
    orders: FastMap<(usize, BitSet), ByPrice>,
}

impl<'p, 'a> Prices<'p, 'a> {
    pub(super) fn new(problem: &'p Problem<'a>) -> Self {
        Self {
            problem,
            orders: FastMap::default(),
        }
    }

    /// The total of all claims, in dollars per hour.
    pub(super) fn total(&mut self, solver: &mut Solver<'_, '_>) -> f64 {
        let claims = std::mem::take(&mut solver.claims);
        let total = claims.iter().map(|claim| self.of_claim(claim, solver)).sum();
        solver.claims = claims;
        total
    }

    /// The price of the cheapest offering that is left to `claim`.
    pub(super) fn of_claim(&mut self, claim: &Claim, solver: &mut Solver<'_, '_>) -> f64 {
        let is_tracked = solver.options.reserved != ReservedMode::Off;
        let Model {
            types,
            states,
            pools,
            ..
        } = &mut solver.model;
        let mut classes = types.left(claim.state, states).classes.clone();
        if is_tracked && !types.reserved.is_empty() {
            // A reservation is only to be had by the claim that holds it, and that one uses nothing else.
            let mut held = BitSet::empty(types.classes.len());
            let mut reserved = BitSet::empty(types.classes.len());
            for offering in &types.reserved {
                reserved.insert(offering.class as usize);
                if claim.reserved.contains(&offering.reservation) {
                    held.insert(offering.class as usize);
                }
            }
            if held.is_empty() {
                classes.subtract(&reserved);
            } else {
                classes.intersect_with(&held);
            }
        }
        let order = self.order(&pools[claim.pool], &classes, &types.class_of_offering);
        order
            .iter()
            .find(|(_, entry)| claim.types.contains(*entry as usize))
            .map_or(0.0, |(price, _)| *price)
    }

    fn order(&mut self, pool: &Pool, classes: &BitSet, class_of_offering: &[u32]) -> ByPrice {
        let key = (pool.position, classes.clone());
        if let Some(known) = self.orders.get(&key) {
            return Arc::clone(known);
        }
        let prices = self.problem.prices(pool.position);
        let mut offerings = prices.iter().zip(class_of_offering);
        let mut order: Vec<(f64, u32)> = Vec::new();
        for (entry, it) in (0_u32..).zip(&self.problem.catalogue.types) {
            let mut cheapest = f64::INFINITY;
            for offering in &it.offerings {
                if let Some((price, class)) = offerings.next()
                    && offering.available
                    && classes.contains(*class as usize)
                {
                    cheapest = cheapest.min(*price);
                }
            }
            if cheapest.is_finite() {
                order.push((cheapest, entry));
            }
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let order: ByPrice = order.into();
        self.orders.insert(key, Arc::clone(&order));
        order
    }
}
