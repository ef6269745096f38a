//! `consolidationPolicy: Balanced`: whether what a command saves is worth what it disturbs.
//!
//! Both are taken as shares of the whole NodePool: what is saved of what the pool costs, and what is disturbed of what
//! disturbing all of it would count (one for each node and about one for each pod). A command goes only if, in every
//! Balanced pool that it touches, the first share is at least half of the second. Sums are made in Karpenter's order, so that
//! a score at the threshold falls on the same side.

use std::collections::BTreeMap;

use veneer_api::node_pool::ConsolidationPolicy;

use super::blockers::Blocker;
use super::candidates::Candidate;

/// The least share of its pool's cost that a command has to save, for each share of the disturbance.
const THRESHOLD: f64 = 0.5;

/// What a NodePool comes to as a whole, nodes that cannot go included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PoolTotals {
    /// In dollars per hour.
    pub(super) cost: f64,
    pub(super) disturbance: f64,
}

/// What a command saves and disturbs in one pool, as shares of that pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    saved: f64,
    disturbed: f64,
}

impl Shares {
    fn new(saving: f64, disturbance: f64, totals: PoolTotals) -> Self {
        if totals.cost <= 0.0 || totals.disturbance <= 0.0 {
            return Self::default();
        }
        Self {
            saved: saving / totals.cost,
            disturbed: disturbance / totals.disturbance,
        }
    }

    fn is_approved(self) -> bool {
        // A command that disturbs nothing saves without a price.
        self.saved > 0.0 && self.saved / self.disturbed >= THRESHOLD
    }
}

fn is_balanced(candidate: &Candidate<'_>) -> bool {
    candidate
        .pool
        .is_some_and(|pool| pool.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced)
}

/// The pool that does not approve of a command, if there is one.
pub(super) fn rejection(
    nodes: &[&Candidate<'_>],
    saving: f64,
    totals: &BTreeMap<&str, PoolTotals>,
) -> Option<Blocker> {
    if !nodes.iter().any(|one| is_balanced(one)) {
        return None;
    }
    let mut pools: BTreeMap<&str, (f64, f64, bool)> = BTreeMap::new();
    for one in nodes {
        let (cost, disturbance, balanced) = pools.entry(one.pool_name()).or_default();
        *cost += one.price.unwrap_or_default();
        *disturbance += one.disturbance;
        *balanced = is_balanced(one);
    }
    let all: f64 = nodes.iter().filter_map(|one| one.price).sum();
    let is_shared = pools.len() > 1 && all > 0.0;
    let balanced = pools.into_iter().filter(|(_, (_, _, balanced))| *balanced);
    for (pool, (cost, disturbance, _)) in balanced {
        // Each pool has the part of the saving that it has of what goes.
        let saving = if is_shared { saving * (cost / all) } else { saving };
        let shares = Shares::new(saving, disturbance, totals.get(pool).copied().unwrap_or_default());
        if !shares.is_approved() {
            return Some(Blocker::Balanced {
                pool: pool.to_owned(),
                saved: shares.saved,
                disturbed: shares.disturbed,
            });
        }
    }
    None
}

/// The same for a node that would go without a replacement: no command saves more by it.
pub(super) fn hopeless(one: &Candidate<'_>, totals: &BTreeMap<&str, PoolTotals>) -> Option<Blocker> {
    rejection(&[one], one.price.unwrap_or_default(), totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten nodes at a dollar with nine pods each.
    const POOL: PoolTotals = PoolTotals {
        cost: 10.0,
        disturbance: 100.0,
    };

    #[test]
    fn half_the_share_that_is_disturbed_has_to_be_saved() {
        let approved = |saving, disturbance| Shares::new(saving, disturbance, POOL).is_approved();
        assert!(approved(1.0, 10.0), "an average node that goes");
        assert!(approved(0.5, 10.0), "at half of its price");
        assert!(!approved(0.49, 10.0), "just short of half");
        assert!(approved(1.0, 20.0) && !approved(1.0, 21.0), "with many more pods");
        assert!(!approved(0.0, 10.0) && !approved(-1.0, 1.0), "without a saving");
    }

    #[test]
    fn a_pool_without_a_price_approves_of_nothing() {
        assert!(!Shares::new(1.0, 1.0, PoolTotals::default()).is_approved());
    }

    #[test]
    fn what_disturbs_nothing_is_approved() {
        assert!(Shares::new(0.01, 0.0, POOL).is_approved());
    }
}
