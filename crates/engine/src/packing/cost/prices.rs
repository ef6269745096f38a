//! What a claim costs: the cheapest offering that is left to it.

use std::sync::Arc;

use super::super::claim::Claim;
use super::super::hash::FastMap;
use super::super::model::Model;
use super::super::pools::Pool;
use super::super::solver::Solver;
use super::super::{Problem, ReservedMode};
use super::steering::Group;
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

    /// Every claim with its price, the cheapest offering that is left to it.
    pub(super) fn groups(&mut self, solver: &mut Solver<'_, '_>) -> Vec<Group> {
        let claims = std::mem::take(&mut solver.claims);
        let groups = claims.iter().map(|claim| self.group(claim, solver)).collect();
        solver.claims = claims;
        groups
    }

    fn group(&mut self, claim: &Claim, solver: &mut Solver<'_, '_>) -> Group {
        let is_tracked = solver.options.reserved != ReservedMode::Off;
        let Model {
            types, states, pools, ..
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
        let cheapest = order
            .iter()
            .find(|(_, entry)| claim.types.contains(*entry as usize));
        let price = cheapest.map_or(0.0, |(price, _)| *price);
        let mut no_dearer = BitSet::empty(types.count());
        for (_, entry) in order.iter().take_while(|(other, _)| *other <= price) {
            no_dearer.insert(*entry as usize);
        }
        Group {
            pool: claim.pool,
            pods: claim.pods.clone(),
            price,
            types: no_dearer,
        }
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
