//! What the watches have brought, in the form in which `veneer_steering` decides about it.

use veneer_engine::instance_type::Catalogue;
use veneer_steering::machines::{Prices, machines};
use veneer_steering::overlays::Existing;
use veneer_steering::steer::{self, Decided, SteeredPool};

use super::SteeringSettings;
use crate::observe::SteeringSnapshot;
use crate::prices::LivePrices;

/// What is kept between two looks.
pub(super) struct Decider {
    pub(super) steering: steer::Decider,
    prices: Prices,
    /// What the catalogue says they are.
    list: Prices,
}

impl Decider {
    pub(super) fn new(settings: &SteeringSettings, catalogue: &Catalogue) -> Self {
        Self {
            steering: steer::Decider::new(settings.overlays.clone()),
            prices: Prices::of(catalogue),
            list: Prices::of(catalogue),
        }
    }

    /// Goes on with the prices of today, where they are known.
    pub(super) fn set_prices(&mut self, prices: &LivePrices) {
        self.prices = self.list.clone().with(prices.market().on_demand);
    }

    pub(super) fn decide(&mut self, snapshot: &SteeringSnapshot) -> Decided {
        let overlays = snapshot.overlays.iter();
        let existing: Vec<Existing> = overlays.map(|seen| seen.existing.clone()).collect();
        let pools = snapshot.pools.iter().map(|pool| SteeredPool {
            name: &pool.pool.name,
            uid: &pool.uid,
            annotations: &pool.annotations,
            requirements: &pool.requirements,
            node_class_group: &pool.node_class_group,
            deleting: pool.deleting,
        });
        let machines = machines(
            snapshot.claims.iter().map(AsRef::as_ref),
            snapshot.nodes.iter().map(AsRef::as_ref),
            &self.prices,
        );
        self.steering
            .decide(&pools.collect::<Vec<_>>(), &existing, &machines)
    }
}
