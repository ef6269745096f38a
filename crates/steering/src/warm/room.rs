//! How many more spares a pool's limits and an Overprovisioner's spending leave room for.

use std::collections::BTreeMap;

use veneer_api::{NodePool, ResourceList};
use veneer_engine::plan::{Snapshot, name, node_pool_of};
use veneer_engine::provision::{Market, counted};
use veneer_engine::quantity::Quantity;

/// The resource by which a pool's number of nodes is limited.
const NODES: &str = "nodes";
const ONE_NODE: i128 = 1_000_000_000;

/// What the nodes of a pool have in total, those that still go away included, in billionths.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    total: BTreeMap<String, i128>,
}

fn nanos(text: &str) -> Option<i128> {
    text.parse::<Quantity>().ok()?.nanos()
}

impl Usage {
    /// Adds up the claims of a pool; one without an instance counts as what it would become.
    pub fn of(pool: &NodePool, snapshot: &Snapshot, market: &mut Market) -> Self {
        let mut usage = Self::default();
        for claim in &snapshot.node_claims {
            if node_pool_of(&claim.metadata) == name(&pool.metadata) {
                usage.add(&counted(claim, market));
            }
        }
        usage
    }

    /// Adds one node.
    pub fn add(&mut self, capacity: &ResourceList) {
        for (resource, text) in capacity {
            let amount = nanos(&text.0).unwrap_or_default();
            *self.total.entry(resource.clone()).or_default() += amount;
        }
        *self.total.entry(NODES.to_owned()).or_default() += ONE_NODE;
    }

    /// How many more nodes of this capacity the pool's limits allow.
    #[must_use]
    pub fn room(&self, pool: &NodePool, capacity: &ResourceList) -> usize {
        let rooms = pool.spec.limits.iter().map(|(resource, limit)| {
            // A limit that cannot be read allows nothing more.
            let limit = nanos(&limit.0).unwrap_or_default();
            let used = self.total.get(resource).copied().unwrap_or_default();
            let each = match resource.as_str() {
                NODES => ONE_NODE,
                _ => capacity
                    .get(resource)
                    .and_then(|text| nanos(&text.0))
                    .unwrap_or_default(),
            };
            let left = (limit - used).max(0);
            left.checked_div(each)
                .map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
        });
        rooms.min().unwrap_or(usize::MAX)
    }
}

/// How many of spares that cost these prices fit into a spending limit, taken in this order.
#[must_use]
pub fn affordable(prices: impl IntoIterator<Item = f64>, limit: f64) -> usize {
    // Sums of prices are not exact; a millionth of a dollar per hour is no reason to launch one less.
    const SLACK: f64 = 1e-6;
    let mut spent = 0.0;
    let mut count = 0;
    for price in prices {
        spent += price;
        if spent > limit + SLACK {
            break;
        }
        count += 1;
    }
    count
}
