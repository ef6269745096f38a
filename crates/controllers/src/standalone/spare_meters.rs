//! Metrics of spare nodes: how many there are, what they cost, who got them and how long that took.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::node_claim::CONDITION_INITIALIZED;
use veneer_api::overprovisioner::PoolSpares;
use veneer_engine::plan::{
    Action, Plan, Snapshot, condition_true, is_deleting, is_spare, is_spare_taint, is_to_be_stopped, label,
    name, node_pool_of, provider_id,
};
use veneer_engine::provision::Market;

use super::metrics::{Labels, labels};

const SECONDS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0];

/// The counters and gauges of spares.
#[derive(Clone, Debug)]
pub(super) struct SpareMeters {
    spares: Family<Labels, Gauge>,
    cost: Family<Labels, Gauge<f64, AtomicU64>>,
    used: Family<Labels, Counter>,
    misses: Family<Labels, Counter>,
    time_to_open: Histogram,
    /// Claims that were given to pods and are not open yet, with the time of that.
    given: Arc<Mutex<BTreeMap<String, Timestamp>>>,
}

impl Default for SpareMeters {
    fn default() -> Self {
        Self {
            spares: Family::default(),
            cost: Family::default(),
            used: Family::default(),
            misses: Family::default(),
            time_to_open: Histogram::new(SECONDS),
            given: Arc::default(),
        }
    }
}

impl SpareMeters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "veneer_overprovisioner_spares",
            "Spare nodes by Overprovisioner, NodePool and state: desired, ready, warming, stopped, in_use",
            self.spares.clone(),
        );
        registry.register(
            "veneer_overprovisioner_hourly_cost_dollars",
            "What the running spares that nobody uses cost per hour, after overlays",
            self.cost.clone(),
        );
        registry.register(
            "veneer_overprovisioner_spares_used",
            "Spares that were given to pods",
            self.used.clone(),
        );
        registry.register(
            "veneer_overprovisioner_misses",
            "NodeClaims that were made for pods in a NodePool that has spares, since no spare took the pods",
            self.misses.clone(),
        );
        registry.register(
            "veneer_overprovisioner_open_duration_seconds",
            "How long it took until a spare that was given to pods took them",
            self.time_to_open.clone(),
        );
    }

    /// Takes in how things are and what shall be done about them.
    pub(super) fn passed(&self, snapshot: &Snapshot, plan: &Plan, market: &Market, now: Timestamp) {
        self.count(snapshot, market);
        self.opened(snapshot, now);
        let has_spares = |pool: &str| {
            let mut all = snapshot.overprovisioners.iter();
            all.any(|one| one.spec.target_node_pools.iter().any(|target| target == pool))
        };
        for action in &plan.actions {
            match action {
                Action::CreateClaim(claim) if label(&claim.metadata, veneer::OVERPROVISIONER).is_none() => {
                    let pool = node_pool_of(&claim.metadata);
                    if has_spares(pool) {
                        self.misses.get_or_create(&labels([("nodepool", pool)])).inc();
                    }
                }
                Action::PatchClaim {
                    target, labels: new, ..
                } if new.get(veneer::OVERPROVISIONED).map(String::as_str)
                    == Some(veneer::OVERPROVISIONED_USED) =>
                {
                    let mut claims = snapshot.node_claims.iter();
                    let claim = claims.find(|claim| name(&claim.metadata) == target.name);
                    let Some(claim) = claim else { continue };
                    let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
                    if given.insert(target.name.clone(), now).is_none() {
                        let owner = label(&claim.metadata, veneer::OVERPROVISIONER).unwrap_or_default();
                        let pool = node_pool_of(&claim.metadata);
                        self.used
                            .get_or_create(&labels([("nodepool", pool), ("overprovisioner", owner)]))
                            .inc();
                    }
                }
                _ => {}
            }
        }
    }

    fn count(&self, snapshot: &Snapshot, market: &Market) {
        self.spares.clear();
        self.cost.clear();
        for one in &snapshot.overprovisioners {
            let owner = name(&one.metadata);
            for pool in one.status.iter().flat_map(|status| &status.node_pools) {
                let PoolSpares {
                    desired,
                    ready,
                    warming,
                    stopped,
                    in_use,
                    ..
                } = pool;
                let states = [
                    ("desired", desired),
                    ("ready", ready),
                    ("warming", warming),
                    ("stopped", stopped),
                    ("in_use", in_use),
                ];
                for (state, count) in states {
                    let of = [
                        ("nodepool", pool.name.as_str()),
                        ("overprovisioner", owner),
                        ("state", state),
                    ];
                    self.spares.get_or_create(&labels(of)).set(i64::from(*count));
                }
                let of = [("nodepool", pool.name.as_str()), ("overprovisioner", owner)];
                self.cost.get_or_create(&labels(of)).set(0.0);
            }
        }
        for claim in &snapshot.node_claims {
            let metadata = &claim.metadata;
            if !is_spare(metadata) || is_deleting(metadata) || is_to_be_stopped(claim) {
                continue;
            }
            let of = |key: &str| label(metadata, key).unwrap_or_default();
            let bought = match of(veneer::PURCHASE_OPTION) {
                "" => of(karpenter::CAPACITY_TYPE),
                bought => bought,
            };
            let pool = node_pool_of(metadata);
            let price = market.price(pool, of(kubernetes::INSTANCE_TYPE), bought, of(kubernetes::ZONE));
            let of = [
                ("nodepool", pool),
                ("overprovisioner", of(veneer::OVERPROVISIONER)),
            ];
            self.cost
                .get_or_create(&labels(of))
                .inc_by(price.unwrap_or_default());
        }
    }

    /// Looks which of the spares that were given to pods are open now.
    fn opened(&self, snapshot: &Snapshot, now: Timestamp) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|claim, since| {
            let mut claims = snapshot.node_claims.iter();
            let claim = claims.find(|one| name(&one.metadata) == claim.as_str());
            let Some(claim) = claim.filter(|claim| !is_deleting(&claim.metadata)) else {
                return false;
            };
            let node = provider_id(claim).and_then(|id| {
                let mut nodes = snapshot.nodes.iter();
                nodes.find(|node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(id))
            });
            let is_open = node.is_some_and(|node| {
                let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
                !taints.any(is_spare_taint)
            });
            let is_open = is_open && condition_true(claim, CONDITION_INITIALIZED);
            if is_open {
                self.time_to_open
                    .observe(now.duration_since(*since).as_secs_f64());
            }
            !is_open
        });
    }
}
