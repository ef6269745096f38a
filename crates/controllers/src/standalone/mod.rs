//! Standalone mode: Veneer provisions by itself.
//!
//! One loop: a snapshot of what the watches have brought → one pass of [`veneer_steering::cycle`] → the executor. Our own writes are part of the next snapshot, so nothing is decided
//! twice because a watch is late; after a crash the next process finds everything in the objects.

mod alike;
mod before_end;
mod beside;
mod clock;
mod events;
mod execute;
mod follow;
mod guard;
mod hands;
mod launch;
mod metrics;
mod orphans;
#[cfg(test)]
mod panics;
mod patches;
mod pending;
mod setbacks;
mod slim;
mod spare_meters;
mod store;
mod terminate;
mod watch;
mod watched;

pub(crate) use beside::run_beside;
pub use clock::Clock;
pub use hands::Hands;
pub use metrics::Meters;
pub use pending::Pending;

pub(crate) use execute::Executor;
pub(crate) use store::{Shared as SharedStore, lock as locked};
pub(crate) use watch::Stores;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use veneer_api::Overprovisioner;
use veneer_engine::backoff::Backoff;
use veneer_engine::cluster::Index;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{Snapshot, condition_true, is_deleting, provider_id};
use veneer_engine::provision::retry_epoch;
use veneer_steering::cycle::{Cycle, Pass, Rules};

use crate::observe::chain;
use crate::prices::LivePrices;
use crate::provider::Provider;
use crate::provider::ec2::{self, Ec2};
use crate::provider::kwok::{self, Kwok};
use crate::steer::Known;
use crate::{Fence, Health, watch_ages};
use watch::{Kinds, NodeClasses, Tools, Watches};

/// Changes that arrive within this time of each other are one pass: thirty times as long as a pass takes, within bounds,
/// so that looking at a large cluster keeps no processor busy.
const COALESCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(300));
/// Without any change, the next look after this.
const IDLE: Duration = Duration::from_secs(10);
/// A pass that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(5);

/// How to provision.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The instance types.
    pub catalogue: Arc<Catalogue>,
    /// What stands in place of their prices, if that is collected.
    pub prices: Option<LivePrices>,
    /// Whether NodeOverlays count.
    pub node_overlay_gate: bool,
    /// How the cluster is run.
    pub rules: Rules,
    /// Where EC2 instances are launched; without, nodes are KWOK's.
    pub ec2: Option<ec2::Settings>,
    /// What the KWOK provider pretends.
    pub kwok: kwok::Settings,
    /// What is counted.
    pub meters: Meters,
    /// What time it is.
    pub clock: Clock,
    /// A watch that has failed for so long is dead: nothing is disrupted or terminated until it works again.
    pub dead_watch_after: Duration,
    /// How often it is asked whether the cluster's versions went back, as after a restore of etcd.
    pub check_versions_every: Duration,
}

impl Settings {
    /// The usual settings.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        Self {
            catalogue,
            prices: None,
            node_overlay_gate: true,
            rules: Rules::default(),
            ec2: None,
            kwok: kwok::Settings::default(),
            meters: Meters::default(),
            clock: Clock::default(),
            dead_watch_after: watch_ages::DEAD_AFTER,
            check_versions_every: Duration::from_secs(60),
        }
    }

    fn tools(&self, health: &Health) -> Tools {
        health.watches().set_dead_after(self.dead_watch_after);
        Tools {
            meters: self.meters.clone(),
            ages: health.watches().clone(),
            check_versions: self.check_versions_every,
            clock: self.clock.clone(),
            ..Tools::default()
        }
    }
}

/// What provisioning tells others, and what it is told.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Whether everything was listed.
    pub health: Health,
    /// Why pods wait.
    pub pending: Pending,
    /// What is known about commitments.
    pub ledger: Known,
    /// Closes before another replica can act.
    pub fence: Fence,
}

/// Why provisioning does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else provisions here.
    #[error("standalone mode does not run beside a Karpenter: {0}")]
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

/// Waits until it is certain that no Karpenter runs in the cluster: an API server that does not answer is waited for.
pub(crate) async fn wait_until_alone(client: &Client, health: &Health) -> Result<(), Error> {
    let pauses = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10));
    let mut pause = pauses.first();
    loop {
        match check(client).await {
            Ok(()) => {
                health.set_guard_fault(None);
                return Ok(());
            }
            Err(error @ Error::Rival(_)) => return Err(error),
            Err(Error::Unreadable(error)) => {
                warn!(%error, retry_in = ?pause, "not provisioning yet");
                health.set_guard_fault(Some(error));
            }
        }
        sleep(pause).await;
        pause = pauses.after(pause);
    }
}

/// Looks again and again whether a Karpenter has come; ends when one has. What cannot be found out changes nothing.
pub(crate) async fn watch_for_rival(client: &Client, every: Duration) -> Error {
    loop {
        sleep(every).await;
        match check(client).await {
            Ok(()) => {}
            Err(error @ Error::Rival(_)) => return error,
            Err(Error::Unreadable(error)) => warn!(%error, "provisioning goes on"),
        }
    }
}

/// Provisions. Never ends by itself.
pub async fn run(client: Client, settings: Settings, shown: Shown) {
    shown.health.set_provisioning_waits(true);
    let watches = watch(&client, &settings, &shown.health).await;
    shown.health.set_provisioning_waits(false);
    provision(client, watches, settings, shown).await;
}

/// Waits until everything is listed.
pub(crate) async fn watch(client: &Client, settings: &Settings, health: &Health) -> Watches {
    let overprovisioners = has_overprovisioners(client).await;
    if !overprovisioners {
        info!(
            "the cluster does not serve Overprovisioner, so there are no spare nodes; for some, run `veneer crds --mode standalone | kubectl apply --server-side -f -` and restart"
        );
    }
    let kinds = Kinds {
        overlays: settings.node_overlay_gate,
        overprovisioners,
        node_classes: if settings.ec2.is_some() {
            NodeClasses::Ec2
        } else {
            NodeClasses::Kwok
        },
    };
    let watches = Watches::start(client, kinds, settings.tools(health));
    watches.stores.listed().await;
    watches
}

/// Provisions on what the watches bring. Never ends by itself.
pub(crate) async fn provision(client: Client, watches: Watches, settings: Settings, shown: Shown) {
    let stores = Arc::clone(&watches.stores);
    match &settings.ec2 {
        None => {
            let provider = kwok_provider(&client, &stores, &settings);
            let executor = Executor::new(&client, stores, provider, settings.meters.clone());
            let executor = executor.behind(shown.fence.clone());
            drive(Arc::new(executor), settings, shown).await;
        }
        Some(ec2) => {
            let provider = Ec2::start(
                &client,
                &stores,
                &settings.catalogue,
                settings.prices.as_ref(),
                ec2,
            )
            .await;
            let background = provider.background(&client);
            let executor = Executor::new(&client, stores, provider, settings.meters.clone());
            let executor = Arc::new(executor.behind(shown.fence.clone()));
            let interruptions = ec2::follow_interruptions(Arc::clone(&executor));
            tokio::join!(drive(executor, settings, shown), background, interruptions);
        }
    }
}

fn kwok_provider(client: &Client, stores: &Stores, settings: &Settings) -> Kwok {
    Kwok::new(
        client,
        stores,
        Arc::clone(&settings.catalogue),
        settings.prices.clone(),
        settings.kwok.clone(),
    )
}

async fn drive<P: Provider>(executor: Arc<Executor<P>>, settings: Settings, shown: Shown) {
    let stores = Arc::clone(&executor.stores);
    executor.provider.resume(&without_nodes(&stores.snapshot()));
    info!(
        nodes = stores.snapshot().node_claims.len(),
        "provisioning: everything was listed"
    );
    let mut controller = Controller {
        cycle: Cycle::new(Arc::clone(&settings.catalogue), settings.rules),
        executor,
        stores,
        meters: settings.meters,
        clock: settings.clock,
        pending: shown.pending,
        ledger: shown.ledger,
        dead: String::new(),
    };
    loop {
        controller.stores.listed().await;
        let began = Instant::now();
        let (look_again, took) = controller.pass().await;
        let wait = look_again
            .map(|at| Duration::try_from(at.duration_since(controller.clock.now())).unwrap_or_default());
        tokio::select! {
            biased;
            () = controller.stores.changed() => {
                // Pods that could have a spare do not wait for others, unless a pass has just begun.
                let pause = if controller.stores.has_spares() {
                    COALESCE.0.max(took * 3).saturating_sub(began.elapsed())
                } else {
                    (took * 30).clamp(COALESCE.0, COALESCE.1)
                };
                sleep(pause).await;
            }
            () = sleep(wait.unwrap_or(IDLE).min(IDLE)) => {}
        }
    }
}

/// Whether the cluster knows Overprovisioners. What cannot be found out is asked again: whoever watches them for
/// nothing never starts, and whoever does not watch them would take every spare for one that nobody wants.
async fn has_overprovisioners(client: &Client) -> bool {
    let api: Api<Overprovisioner> = Api::all(client.clone());
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return true,
            Err(kube::Error::Api(status)) if status.code == 404 => return false,
            Err(error) => {
                warn!(error = %chain(&error), "cannot list Overprovisioners; trying again");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Claims with an instance that has not joined.
fn without_nodes(snapshot: &Snapshot) -> Vec<Arc<veneer_api::NodeClaim>> {
    let index = Index::new(snapshot);
    let without = index.claimed().filter(|(claim, machine)| {
        !is_deleting(&claim.metadata)
            && !condition_true(claim, "Registered")
            && provider_id(claim).is_some()
            && machine.nodes().is_empty()
    });
    without.map(|(claim, _)| Arc::clone(claim)).collect()
}

struct Controller<P> {
    cycle: Cycle,
    executor: Arc<Executor<P>>,
    stores: Arc<Stores>,
    meters: Meters,
    clock: Clock,
    pending: Pending,
    ledger: Known,
    /// The kinds whose watches were said to be dead.
    dead: String,
}

impl<P: Provider> Controller<P> {
    /// Looks once and acts; says when to look again without any change, and how long it took to decide.
    async fn pass(&mut self) -> (Option<Timestamp>, Duration) {
        let now = self.clock.now();
        let began = Instant::now();
        self.stores.forget_gone();
        let mut snapshot = self.stores.snapshot();
        let retry_epoch = retry_epoch(&snapshot);
        snapshot.instances = self.executor.provider.instances();
        snapshot.node_class_hashes = self.executor.provider.node_class_hashes();
        snapshot.drifted = self.executor.provider.drifted();
        snapshot.shortages = self.executor.shortages();
        snapshot.launching = self.executor.launching();
        snapshot.is_stale = self.has_dead_watches();
        self.meters.pools(&snapshot);
        self.cycle.learn(self.ledger.get());
        if let Some(catalogue) = self.executor.provider.take_catalogue() {
            self.cycle.trade(catalogue);
        }
        let pass = self.cycle.pass(&mut snapshot, retry_epoch, now);
        let took = began.elapsed();
        self.meters.passed(took);
        if took >= SLOW {
            warn!(
                took_ms = took.as_millis(),
                pods = snapshot.pods.len(),
                waiting = pass.waiting,
                "a pass took long: nothing else was decided or watched meanwhile"
            );
        }
        self.report(&pass, took);
        self.meters
            .spares(&snapshot, &pass.plan, self.cycle.market(), now);
        self.pending.set(self.cycle.pending());
        let look_again = pass.plan.look_again;
        drop(snapshot);
        self.executor.run(pass.plan.actions).await;
        (look_again, took)
    }

    /// Whether what is known may be old; says so when that changes.
    fn has_dead_watches(&mut self) -> bool {
        let dead = self.stores.dead_watches();
        let kinds: Vec<&str> = dead.iter().map(|watch| watch.kind.as_str()).collect();
        let kinds = kinds.join(", ");
        if kinds != self.dead {
            if kinds.is_empty() {
                info!("all watches work again: nodes may be disrupted and terminated");
            } else {
                warn!(
                    kinds,
                    "watches do not work: no node is disrupted or terminated until they do"
                );
            }
        }
        self.dead = kinds;
        self.meters.held_back(!dead.is_empty());
        !dead.is_empty()
    }

    fn report(&self, pass: &Pass, took: Duration) {
        self.meters.waiting(pass.waiting);
        self.meters.disagreements(pass.disagreements.len(), pass.refused);
        for disagreement in &pass.disagreements {
            warn!(
                pod = disagreement.pod,
                pods = disagreement.pods,
                node = disagreement.node,
                scheduler = disagreement.message,
                "kube-scheduler refuses pods that have room by our rules; launching an extra node for them"
            );
        }
        for command in &pass.disrupted {
            info!(
                reason = command.reason,
                nodes = command.nodes.join(","),
                replacements = command.replacements,
                replacement = command
                    .replacement
                    .as_ref()
                    .map(|(it, price)| format!("{it} ${price:.4}/h")),
                saves = format!("${:.4}/h", command.saving),
                "disrupting"
            );
        }
        let Some(decided) = &pass.decided else { return };
        self.meters.decided(took, decided.pending.len());
        info!(
            pods = pass.waiting,
            places = decided.places,
            pending = decided.pending.len(),
            took_ms = took.as_millis(),
            "decided about pending pods"
        );
        for (pod, reasons) in decided.pending.iter().take(10) {
            let whys: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
            warn!(pod, why = whys.join("; "), "stays pending");
        }
    }
}
