//! The metrics, probes and decisions of a world in memory, under the same names as those of a real cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use veneer_world::World;
use veneer_world::statistics::Counter;

use crate::standalone::Pending;
use crate::{Decisions, Health, Metrics};

/// Shows a world to those who ask over HTTP.
#[derive(Debug)]
pub struct Publisher {
    metrics: Metrics,
    decisions: Decisions,
    pending: Pending,
    health: Health,
    counted: BTreeMap<(Counter, String, String), u64>,
    observed: Option<k8s_openapi::jiff::Timestamp>,
}

impl Publisher {
    /// Publishes to what servers show.
    #[must_use]
    pub fn new(metrics: &Metrics, decisions: &Decisions, pending: &Pending, health: &Health) -> Self {
        health.set_ready();
        Self {
            metrics: metrics.clone(),
            decisions: decisions.clone(),
            pending: pending.clone(),
            health: health.clone(),
            counted: BTreeMap::new(),
            observed: None,
        }
    }

    /// Takes over how the world is now.
    pub fn publish(&mut self, world: &mut World) {
        let meters = &self.metrics.provisioning;
        for (key, total) in &world.statistics.counters {
            let known = self.counted.entry(key.clone()).or_default();
            let (what, pool, reason) = key;
            for _ in *known..*total {
                match what {
                    Counter::ClaimCreated => meters.claim_created(pool),
                    Counter::ClaimDisrupted => meters.claim_disrupted(pool, reason),
                    Counter::ClaimTerminated => meters.claim_terminated(pool),
                    Counter::NodeCreated => meters.node_created(pool),
                }
            }
            *known = *total;
        }
        meters.waiting(world.pending());
        self.pending.set(world.cycle().pending());
        meters.pools(&world.snapshot());
        let Some(steerer) = world.steering() else { return };
        let steering = &self.metrics.steering;
        steering.set(|data| {
            data.cost_aware = true;
            data.threshold = world.scenario.steering.threshold;
            data.overlays = steerer.decided.owned.clone();
            if let Some(ledger) = steerer.ledger() {
                data.learn(ledger);
            }
        });
        let is_news = steerer.observed_at() != self.observed;
        for decision in &steerer.decided.decisions {
            if is_news {
                steering.decision(decision);
            }
        }
        if is_news {
            steering.reconciled("success", Duration::ZERO);
            self.observed = steerer.observed_at();
        }
        let doubts: Vec<&String> = steerer.decided.doubts.values().collect();
        let fault = doubts
            .first()
            .map(|doubt| format!("cannot observe commitments: {doubt}"));
        self.health.set_fault(fault);
        self.decisions.set(&steerer.decided, steerer.observed_at());
    }
}
