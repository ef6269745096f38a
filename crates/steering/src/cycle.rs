//! One pass of standalone mode: everything that a cluster needs now, as one plan.
//!
//! A [`Cycle`] is what a driver calls with each snapshot: the one that watches an API server and the one that runs a
//! world in memory. It keeps only what may be forgotten (open batches, nominations, the evaluated market), so that a
//! driver that was killed starts again with an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::{self, Policy};
use veneer_engine::packing::{self, Reason};
use veneer_engine::plan::{Plan, Snapshot, is_deleting, name};
use veneer_engine::provision::{self, Batch, Market, Window};

/// How long a pod is believed to go where it was sent.
const BELIEVED: SignedDuration = SignedDuration::from_secs(20);

/// How a cluster is run.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// How long to wait for more pods.
    pub window: Window,
    /// How long things may take.
    pub policy: Policy,
}

/// What one pass came to.
#[derive(Debug, Default)]
pub struct Pass {
    /// What shall be done.
    pub plan: Plan,
    /// How many pods have no place yet.
    pub waiting: usize,
    /// What was decided about them, if their batch was complete.
    pub decided: Option<Decided>,
}

/// What was decided about a batch of pending pods.
#[derive(Debug, Default)]
pub struct Decided {
    /// How many nodes and claims were chosen for pods.
    pub places: usize,
    /// Why pods stay pending, by `namespace/name`.
    pub pending: BTreeMap<String, Vec<Reason>>,
}

/// What is remembered from pass to pass.
#[derive(Debug)]
pub struct Cycle {
    rules: Rules,
    market: Market,
    batch: Batch,
    nominations: BTreeMap<String, Timestamp>,
}

impl Cycle {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>, rules: Rules) -> Self {
        Self {
            rules,
            market: Market::new(catalogue),
            batch: Batch::default(),
            nominations: BTreeMap::new(),
        }
    }

    /// Prices and capacity after overlays, as of the last pass.
    #[must_use]
    pub const fn market(&self) -> &Market {
        &self.market
    }

    /// Looks once. `world` is a number that changes when something does, beside the pods, that may let refused pods
    /// in. The snapshot's nominations are filled in.
    pub fn pass(&mut self, snapshot: &mut Snapshot, world: u64, now: Timestamp) -> Pass {
        self.nominations.retain(|_, until| *until > now);
        snapshot.nominations.clone_from(&self.nominations);
        self.market.update(snapshot);
        let mut pass = Pass {
            plan: lifecycle::decide(snapshot, &mut self.market, &self.rules.policy, now),
            ..Pass::default()
        };
        pass.plan
            .extend(provision::decide_pools(snapshot, &mut self.market, now));
        pass.plan
            .extend(provision::decide_replicas(snapshot, &self.market, now));
        self.provision(snapshot, world, &mut pass, now);
        pass
    }

    /// Adds what pending pods need, if their batch is complete, or when it will be.
    fn provision(&mut self, snapshot: &Snapshot, world: u64, pass: &mut Pass, now: Timestamp) {
        let demand = provision::demand(snapshot);
        pass.waiting = demand.len();
        let claims = snapshot.node_claims.iter().map(|claim| &claim.metadata);
        let nodes = snapshot.nodes.iter().map(|node| &node.metadata);
        let places: std::collections::BTreeSet<&str> = claims
            .chain(nodes)
            .filter(|metadata| !is_deleting(metadata))
            .map(name)
            .collect();
        let window = self.rules.window;
        let exists = |place: &str| places.contains(place);
        if let Err(again) = self.batch.take(&demand, exists, world, window, now) {
            if let Some(at) = again {
                pass.plan.look_again(at);
            }
            return;
        }
        let decided = provision::decide(snapshot, &mut self.market, &packing::Options::default(), now);
        self.batch
            .decided(&demand, &decided.expected, BELIEVED, window, now);
        pass.plan.extend(decided.plan);
        pass.decided = Some(Decided {
            places: decided.nominations.len(),
            pending: decided.pending,
        });
        self.nominations.extend(decided.nominations);
    }
}
