//! Standalone mode: Veneer provisions by itself.
//!
//! One loop: a snapshot of what the watches have brought → what claims, nodes and pools need now
//! ([`veneer_engine::lifecycle`]) and, when a batch of pending pods is complete, what to launch for them
//! ([`veneer_engine::provision`]) → the executor. Our own writes are part of the next snapshot, so nothing is decided
//! twice because a watch is late; after a crash the next process finds everything in the objects.

mod events;
mod execute;
mod guard;
mod metrics;
mod store;
mod watch;

pub use metrics::Meters;

pub(crate) use store::{Shared as SharedStore, lock as locked};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::time::sleep;
use tracing::{info, warn};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::{self, Policy};
use veneer_engine::packing;
use veneer_engine::plan::{Snapshot, is_deleting, is_to_be_stopped, provider_id};
use veneer_engine::provision::{self, Batch, Market, Window};

use crate::provider::Provider;
use crate::provider::kwok::{self, Kwok};
use execute::Executor;
use watch::{Stores, Watches};

/// Changes that arrive within this time of each other are one pass.
const COALESCE: Duration = Duration::from_millis(20);
/// Without any change, the next look after this.
const IDLE: Duration = Duration::from_secs(10);
/// How long a pod is believed to go where it was sent.
const BELIEVED: SignedDuration = SignedDuration::from_secs(20);

/// How to provision.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The instance types.
    pub catalogue: Arc<Catalogue>,
    /// Whether NodeOverlays count.
    pub node_overlay_gate: bool,
    /// How long to wait for more pods.
    pub window: Window,
    /// How long things may take.
    pub policy: Policy,
    /// What the KWOK provider pretends.
    pub kwok: kwok::Settings,
    /// What is counted.
    pub meters: Meters,
}

impl Settings {
    /// The usual settings.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        Self {
            catalogue,
            node_overlay_gate: true,
            window: Window::default(),
            policy: Policy::default(),
            kwok: kwok::Settings::default(),
            meters: Meters::default(),
        }
    }
}

/// Why provisioning does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else provisions here.
    #[error("standalone mode does not start beside a running Karpenter: {0}")]
    Rival(String),
    /// That could not be found out.
    #[error("{0}")]
    Unreadable(String),
}

/// Looks whether a Karpenter runs in the cluster.
pub async fn check(client: &Client) -> Result<(), Error> {
    match guard::rival(client).await {
        Ok(None) => Ok(()),
        Ok(Some(rival)) => Err(Error::Rival(rival)),
        Err(error) => Err(Error::Unreadable(error)),
    }
}

/// Provisions with KWOK nodes. Never ends by itself.
pub async fn run(client: Client, settings: Settings) {
    let watches = Watches::start(&client, settings.node_overlay_gate);
    let stores = Arc::clone(&watches.stores);
    while !stores.synced() {
        stores.changed().await;
    }
    let provider = Kwok::new(
        &client,
        Arc::clone(&stores.nodes),
        Arc::clone(&stores.node_classes),
        Arc::clone(&settings.catalogue),
        settings.kwok.clone(),
    );
    provider.resume(&without_nodes(&stores.snapshot()));
    let executor = Executor::new(&client, Arc::clone(&stores), provider, settings.meters.clone());
    info!(
        nodes = stores.snapshot().node_claims.len(),
        "provisioning: everything was listed"
    );
    let mut controller = Controller {
        market: Market::new(Arc::clone(&settings.catalogue)),
        batch: Batch::default(),
        nominations: BTreeMap::new(),
        executor: Arc::new(executor),
        stores,
        settings,
    };
    loop {
        let look_again = controller.pass().await;
        let wait =
            look_again.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        tokio::select! {
            () = controller.stores.changed() => sleep(COALESCE).await,
            () = sleep(wait.unwrap_or(IDLE).min(IDLE)) => {}
        }
    }
}

/// Claims with an instance that has not joined.
fn without_nodes(snapshot: &Snapshot) -> Vec<Arc<veneer_api::NodeClaim>> {
    let has_node = |id: &str| {
        snapshot.nodes.iter().any(|node| {
            let of_node = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            of_node == Some(id)
        })
    };
    let claims = snapshot.node_claims.iter();
    claims
        .filter(|claim| {
            let is_registered = veneer_engine::plan::condition_true(claim, "Registered");
            !is_deleting(&claim.metadata)
                && (!is_registered || is_to_be_stopped(claim))
                && provider_id(claim).is_some_and(|id| !has_node(id))
        })
        .cloned()
        .collect()
}

struct Controller<P> {
    market: Market,
    batch: Batch,
    nominations: BTreeMap<String, Timestamp>,
    executor: Arc<Executor<P>>,
    stores: Arc<Stores>,
    settings: Settings,
}

impl<P: Provider> Controller<P> {
    /// Looks once and acts; says when to look again without any change.
    async fn pass(&mut self) -> Option<Timestamp> {
        let now = Timestamp::now();
        self.nominations.retain(|_, until| *until > now);
        self.stores.forget_gone();
        let world = self.stores.world();
        let mut snapshot = self.stores.snapshot();
        snapshot.instances = self.executor.provider.instances();
        snapshot.shortages = self.executor.shortages();
        snapshot.nominations.clone_from(&self.nominations);
        self.market.update(&snapshot);
        self.settings.meters.pools(&snapshot);
        let mut plan = lifecycle::decide(&snapshot, &mut self.market, &self.settings.policy, now);
        plan.extend(provision::decide_pools(&snapshot, &mut self.market, now));
        plan.extend(provision::decide_replicas(&snapshot, &self.market, now));
        if let Some(at) = self.provision(&snapshot, world, &mut plan, now) {
            plan.look_again(at);
        }
        let look_again = plan.look_again;
        self.executor.run(plan.actions).await;
        look_again
    }

    /// Adds what pending pods need, if their batch is complete; else says when it will be.
    fn provision(
        &mut self,
        snapshot: &Snapshot,
        world: u64,
        plan: &mut veneer_engine::plan::Plan,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let demand = provision::demand(snapshot);
        self.settings.meters.waiting(demand.len());
        let exists = |place: &str| {
            let is_named = |metadata: &kube::api::ObjectMeta| metadata.name.as_deref() == Some(place);
            snapshot
                .node_claims
                .iter()
                .any(|claim| is_named(&claim.metadata) && !is_deleting(&claim.metadata))
                || snapshot
                    .nodes
                    .iter()
                    .any(|node| is_named(&node.metadata) && !is_deleting(&node.metadata))
        };
        let window = self.settings.window;
        if let Err(again) = self.batch.take(&demand, exists, world, window, now) {
            return again;
        }
        let began = Instant::now();
        let decided = provision::decide(snapshot, &mut self.market, &packing::Options::default(), now);
        let took = began.elapsed();
        self.settings.meters.decided(took, decided.pending.len());
        info!(
            pods = demand.len(),
            places = decided.nominations.len(),
            pending = decided.pending.len(),
            took_ms = took.as_millis(),
            "decided about pending pods"
        );
        for (pod, reasons) in decided.pending.iter().take(10) {
            let whys: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
            warn!(pod, why = whys.join("; "), "stays pending");
        }
        self.batch
            .decided(&demand, &decided.expected, BELIEVED, window, now);
        self.nominations.extend(decided.nominations);
        plan.extend(decided.plan);
        None
    }
}
