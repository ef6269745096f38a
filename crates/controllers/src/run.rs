//! The run: watches, the election of a leader, and the two controllers that act while this replica leads.

use std::io::{self, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};
use veneer_engine::backoff::Backoff;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::status::{Owner, Policy};

use crate::lease::{Election, Fence};
use crate::observe::Watches;
use crate::prices::{LiveCatalog, LivePrices};
use crate::standalone;
use crate::steer::{Decisions, PrometheusError, SteeringSettings};
use crate::vitals::{Leadership, Vitals};
use crate::{Health, Metrics, Server, steer, verdicts};

/// Changes that arrive within this time of each other are one pass.
pub(crate) const COALESCE: Duration = Duration::from_millis(5);
/// How long the writes of a pass may take once the process shall end.
const GRACE: Duration = Duration::from_secs(5);
/// When a failed write is tried again.
pub(crate) const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// Who provisions nodes, and so who owns the conditions of overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Karpenter does.
    Companion,
    /// Veneer does.
    Standalone,
}

/// Where instance types come from, and so which NodePools have any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// KWOK nodes: every pool has every type, whatever its node class.
    Kwok,
    /// EC2: a pool has types once its EC2NodeClass exists.
    Ec2,
}

/// Where decisions go.
pub enum Output {
    /// Into the cluster.
    Cluster,
    /// Into this text; the cluster stays as it is.
    Text(Box<dyn Write + Send + Sync>),
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cluster => "Cluster",
            Self::Text(_) => "Text",
        })
    }
}

/// How to run.
#[derive(Debug)]
pub struct Settings {
    /// Who provisions nodes.
    pub mode: Mode,
    /// Which NodePools count.
    pub provider: Provider,
    /// The instance types.
    pub catalogue: Arc<Catalogue>,
    /// What stands in place of their prices, if that is collected.
    pub prices: Option<LivePrices>,
    /// Whether NodeOverlays are evaluated at all.
    pub node_overlay_gate: bool,
    /// Whether to end after the first pass.
    pub once: bool,
    /// Where decisions go.
    pub output: Output,
    /// How long Karpenter's verdict must differ before that is told.
    pub settle: Duration,
    /// The least time between two events on one NodePool.
    pub event_interval: Duration,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What `/readyz` shows.
    pub health: Health,
    /// The servers to run.
    pub servers: Vec<Server>,
    /// Which overlays to write; none in a run that only looks at those of others.
    pub steering: Option<SteeringSettings>,
    /// How to provision nodes, if Veneer does that.
    pub provisioning: Option<standalone::Settings>,
    /// Whether spares of Overprovisioners are kept beside a Karpenter.
    pub spares_beside: bool,
    /// What `/debug/decisions` shows.
    pub decisions: Decisions,
    /// What is known about commitments, for those who price launches.
    pub ledger: steer::Known,
    /// What `/debug/pending` shows.
    pub pending: standalone::Pending,
    /// How replicas agree on one that acts; without, this one always does.
    pub election: Option<Election>,
    /// How often standalone mode looks whether a Karpenter has come.
    pub look_for_karpenter_every: Duration,
}

impl Settings {
    /// The usual settings, without a server.
    #[must_use]
    pub fn new(mode: Mode, provider: Provider, catalogue: Arc<Catalogue>) -> Self {
        let metrics = Metrics::new();
        Self {
            health: metrics.health(),
            metrics,
            mode,
            provider,
            catalogue,
            prices: None,
            node_overlay_gate: true,
            once: false,
            output: Output::Cluster,
            settle: Duration::from_secs(120),
            event_interval: Duration::from_secs(600),
            servers: Vec::new(),
            steering: None,
            provisioning: None,
            spares_beside: false,
            decisions: Decisions::default(),
            ledger: steer::Known::default(),
            pending: standalone::Pending::default(),
            election: None,
            look_for_karpenter_every: Duration::from_secs(60),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        let settle = if self.once { Duration::ZERO } else { self.settle };
        Policy {
            owner: match self.mode {
                Mode::Standalone => Owner::Veneer,
                Mode::Companion => Owner::Karpenter {
                    settle: signed(settle),
                },
            },
            event_interval: signed(self.event_interval),
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Why the run ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A single pass was asked for, and the cluster cannot be read.
    #[error("cannot read the cluster: {0}")]
    Unreadable(String),
    /// A single pass was asked for, and not everything could be written.
    #[error("{count} NodeOverlay{} could not be written; the first was {overlay}: {error}", if *.count == 1 { "" } else { "s" })]
    Unwritten {
        /// How many.
        count: usize,
        /// One of them.
        overlay: String,
        /// What the API server said.
        error: String,
    },
    /// A server stopped listening.
    #[error("a server ended: {0}")]
    Server(io::Error),
    /// A single pass was asked for, and not everything could be observed.
    #[error("commitments could not be observed: {0}")]
    Unobserved(String),
    /// Prometheus cannot be asked.
    #[error(transparent)]
    Prometheus(#[from] PrometheusError),
    /// Another replica acts now.
    #[error("this replica no longer leads: {0}")]
    LostLease(String),
    /// Somebody else provisions nodes here.
    #[error(transparent)]
    Rival(#[from] standalone::Error),
    /// The API server cannot be reached with these settings.
    #[error("cannot use the kubeconfig for the Lease: {0}")]
    Connection(Box<kube::Error>),
    /// The text of a dry run could not be written.
    #[error("cannot write the plan: {0}")]
    Output(#[from] io::Error),
}

/// Tells everybody that the process shall end.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns once the process shall end.
    pub(crate) async fn wait(&self) {
        let mut flag = self.0.clone();
        while !*flag.borrow_and_update() {
            // Nobody is left to say so: then it is over as well.
            if flag.changed().await.is_err() {
                return;
            }
        }
    }
}

/// A text that both controllers print to.
#[derive(Clone)]
pub(crate) struct Printer(Arc<Mutex<Box<dyn Write + Send + Sync>>>);

impl Printer {
    pub(crate) fn print(&self, text: &str) -> io::Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// What both controllers share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) watches: Watches,
    pub(crate) stop: Stop,
    /// Where decisions go in a dry run.
    pub(crate) printer: Option<Printer>,
}

/// Runs until `shutdown`, or until the first pass is done if that was asked for.
pub async fn run(
    client: Client,
    mut settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let election = settings.election.take();
    let needs_thread = !settings.servers.is_empty()
        || election
            .as_ref()
            .is_some_and(|election| election.cluster.is_some());
    let vitals = needs_thread.then(Vitals::start).transpose();
    let vitals = vitals.map_err(Error::Server)?;
    let mut servers = JoinSet::new();
    if let Some(vitals) = &vitals {
        for server in settings.servers.drain(..) {
            servers.spawn_on(server.run(), vitals.handle());
        }
    }
    let (stopping, stop) = watch::channel(false);
    let leadership = match election {
        Some(election) => {
            let leadership = Leadership::new(&client, election, vitals.as_ref());
            let leadership = leadership.map_err(|error| Error::Connection(Box::new(error)))?;
            Some(Arc::new(leadership))
        }
        None => None,
    };
    let ended = {
        let mut controllers = pin!(lead(client, settings, leadership.clone(), Stop(stop)));
        tokio::select! {
            result = &mut controllers => result,
            () = shutdown => {
                info!("stopping");
                stopping.send_replace(true);
                match timeout(GRACE, controllers).await {
                    Ok(result) => result,
                    Err(_) => {
                        warn!("the last writes did not end in time; what is missing is written after the next start");
                        Ok(())
                    }
                }
            }
            Some(ended) = servers.join_next() => {
                let ended = ended.map_err(io::Error::other).and_then(|ended| ended);
                Err(Error::Server(ended.err().unwrap_or_else(|| io::Error::other("no reason given"))))
            }
        }
    };
    // Only one that still leads has something to give back.
    if let Some(leadership) = leadership.filter(|_| !matches!(ended, Err(Error::LostLease(_)))) {
        let _ = timeout(GRACE, leadership.release()).await;
    }
    ended
}

/// Watches, waits to become the leader, and acts for as long as this replica is it.
async fn lead(
    client: Client,
    settings: Settings,
    leadership: Option<Arc<Leadership>>,
    stop: Stop,
) -> Result<(), Error> {
    let fence = leadership.as_ref().map(|leadership| leadership.fence());
    let fence = fence.unwrap_or_default();
    // Without an election provisioning begins at once; a replica that waits for its turn is ready for that.
    settings
        .health
        .set_provisioning_waits(settings.provisioning.is_some() && leadership.is_none());
    if !settings.node_overlay_gate {
        info!("the feature gate NodeOverlay is off: overlays are left alone");
        settings.health.set_ready();
        if settings.once {
            return Ok(());
        }
        let provisioning = async {
            if let Some(leadership) = &leadership {
                leadership.acquire().await;
            }
            tokio::select! {
                why = lost(leadership.as_deref()) => Err(Error::LostLease(why)),
                ended = provision(client, &settings, fence) => ended,
            }
        };
        return tokio::select! {
            ended = provisioning, if settings.provisioning.is_some() || settings.spares_beside => ended,
            () = stop.wait() => Ok(()),
        };
    }
    let rules = Arc::new(settings.catalogue.rules.clone());
    let counts_machines = settings
        .steering
        .as_ref()
        .is_some_and(SteeringSettings::counts_machines);
    let watches = Watches::start(
        &client,
        settings.provider,
        rules,
        counts_machines,
        (&settings.metrics.provisioning, settings.health.watches()),
    );
    while !watches.synced() {
        tokio::select! {
            () = watches.changed() => {}
            () = stop.wait() => return Ok(()),
        }
        if let Some(error) = watches.error().filter(|_| settings.once) {
            return Err(Error::Unreadable(error));
        }
    }
    settings.health.set_ready();
    if let Some(leadership) = &leadership {
        tokio::select! {
            () = leadership.acquire() => {}
            () = stop.wait() => return Ok(()),
        }
    }
    tokio::select! {
        result = act(client, settings, watches, stop, fence) => result,
        why = lost(leadership.as_deref()) => Err(Error::LostLease(why)),
    }
}

/// Waits until this replica leads no more.
async fn lost(leadership: Option<&Leadership>) -> String {
    match leadership {
        Some(leadership) => leadership.lost().await,
        None => std::future::pending().await,
    }
}

async fn act(
    client: Client,
    mut settings: Settings,
    watches: Watches,
    stop: Stop,
    fence: Fence,
) -> Result<(), Error> {
    let printer = match std::mem::replace(&mut settings.output, Output::Cluster) {
        Output::Cluster => None,
        Output::Text(text) => Some(Printer(Arc::new(Mutex::new(text)))),
    };
    let provisioner = client.clone();
    let shared = Shared {
        client,
        watches,
        stop,
        printer,
    };
    let (shared, settings) = (Arc::new(shared), Arc::new(settings));
    let steering = steer::control(Arc::clone(&shared), Arc::clone(&settings));
    let verdicts = verdicts::control(shared, Arc::clone(&settings));
    if settings.once {
        verdicts.await?;
        return steering.await;
    }
    tokio::select! {
        ended = async { tokio::try_join!(verdicts, steering) } => ended.map(|_| ()),
        ended = provision(provisioner, &settings, fence) => ended,
    }
}

/// Provisions or keeps spares, if that was asked for; ends only where a Karpenter provisions.
async fn provision(client: Client, settings: &Settings, fence: Fence) -> Result<(), Error> {
    let shown = standalone::Shown {
        health: settings.health.clone(),
        pending: settings.pending.clone(),
        ledger: settings.ledger.clone(),
        fence,
    };
    match &settings.provisioning {
        Some(provisioning) => {
            standalone::wait_until_alone(&client, &settings.health).await?;
            // On the heap: it is large, and most runs do without it.
            let provisioning = Box::pin(standalone::run(client.clone(), provisioning.clone(), shown));
            tokio::select! {
                () = provisioning => Ok(()),
                rival = standalone::watch_for_rival(&client, settings.look_for_karpenter_every) => Err(rival.into()),
            }
        }
        None if settings.spares_beside => {
            let catalogue = LiveCatalog::new(Arc::clone(&settings.catalogue), settings.prices.clone());
            let clock = standalone::Clock::default();
            let gate = settings.node_overlay_gate;
            let meters = settings.metrics.provisioning.clone();
            Box::pin(standalone::run_beside(
                client, catalogue, gate, clock, meters, shown,
            ))
            .await;
            Ok(())
        }
        None => std::future::pending().await,
    }
}
