//! Spares beside a Karpenter: it launches the NodeClaims that we make, and we open them for pods.
//!
//! Karpenter waits at least a second for more pods before it launches anything for them. A pod that is bound to an
//! opened spare within that time needs no node of Karpenter's.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use veneer_api::{CONDITION_READY, ConditionStatus, NodePool, find_condition};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{NodeClass, Plan, Snapshot};
use veneer_engine::provision::Market;

use super::keep::{Mode, keep};
use super::needs::Memory;
use super::promote::{self, Search};
use super::spares::Spares;

/// What is remembered from pass to pass. All of it may be forgotten.
#[derive(Debug)]
pub struct Beside {
    market: Market,
    search: Search,
    memory: Memory,
}

impl Beside {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        Self {
            market: Market::new(catalogue),
            search: Search::default(),
            memory: Memory::default(),
        }
    }

    /// Goes on with a newer catalogue: other prices.
    pub fn trade(&mut self, catalogue: Arc<Catalogue>) {
        self.market = Market::new(catalogue);
    }

    /// Prices and capacity after overlays, as of the last pass.
    #[must_use]
    pub const fn market(&self) -> &Market {
        &self.market
    }

    /// Looks once.
    pub fn pass(&mut self, snapshot: &mut Snapshot, now: Timestamp) -> Plan {
        // Whether a class can be used is Karpenter's to say, and it says so on the pools.
        snapshot.node_classes = snapshot.node_pools.iter().map(|pool| class_of(pool)).collect();
        self.market.update(snapshot);
        let mut spares = Spares::of(snapshot);
        let promotion = self
            .search
            .find(snapshot, &spares, &promote::SERVED, &mut self.market, now);
        let mut plan = promote::give(snapshot, &mut spares, &promotion);
        plan.extend(keep(
            snapshot,
            &mut spares,
            &mut self.market,
            &mut self.memory,
            Mode::Companion,
            now,
        ));
        plan
    }
}

fn class_of(pool: &NodePool) -> NodeClass {
    let class = &pool.spec.template.spec.node_class_ref;
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let not_ready = find_condition(conditions, CONDITION_READY)
        .filter(|one| one.status == ConditionStatus::False)
        .map(|one| one.message.clone());
    NodeClass {
        group: class.group.clone(),
        kind: class.kind.clone(),
        name: class.name.clone(),
        not_ready,
        is_deleting: false,
    }
}
