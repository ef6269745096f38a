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
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::status::{Owner, Policy};

use crate::lease::{Candidate, Election};
use crate::observe::Watches;
use crate::standalone;
use crate::steer::{Decisions, PrometheusError, SteeringSettings};
use crate::{Health, Metrics, Server, steer, verdicts};

/// Changes that arrive within this time of each other are one pass.
pub(crate) const COALESCE: Duration = Duration::from_millis(5);
/// How long the writes of a pass may take once the process shall end.
const GRACE: Duration = Duration::from_secs(5);
/// When a failed write is tried again: at first, and at most.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

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
}

impl Settings {
    /// The usual settings, without a server.
    #[must_use]
    pub fn new(mode: Mode, provider: Provider, catalogue: Arc<Catalogue>) -> Self {
        Self {
            mode,
            provider,
            catalogue,
            node_overlay_gate: true,
            once: false,
            output: Output::Cluster,
            settle: Duration::from_secs(120),
            event_interval: Duration::from_secs(600),
            metrics: Metrics::new(),
            health: Health::default(),
            servers: Vec::new(),
            steering: None,
            provisioning: None,
            spares_beside: false,
            decisions: Decisions::default(),
            ledger: steer::Known::default(),
            pending: standalone::Pending::default(),
            election: None,
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
    let mut servers = JoinSet::new();
    for server in settings.servers.drain(..) {
        servers.spawn(server.run());
    }
    let (stopping, stop) = watch::channel(false);
    let election = settings.election.take();
    let candidate = election.map(|election| Arc::new(Candidate::new(&client, election)));
    let ended = {
        let mut controllers = pin!(lead(client, settings, candidate.clone(), Stop(stop)));
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
    if let Some(candidate) = candidate.filter(|_| !matches!(ended, Err(Error::LostLease(_)))) {
        let _ = timeout(GRACE, candidate.release()).await;
    }
    ended
}

/// Watches, waits to become the leader, and acts for as long as this replica is it.
async fn lead(
    client: Client,
    settings: Settings,
    candidate: Option<Arc<Candidate>>,
    stop: Stop,
) -> Result<(), Error> {
    // Without an election provisioning begins at once; a replica that waits for its turn is ready for that.
    settings
        .health
        .set_provisioning_waits(settings.provisioning.is_some() && candidate.is_none());
    if !settings.node_overlay_gate {
        info!("the feature gate NodeOverlay is off: overlays are left alone");
        settings.health.set_ready();
        if settings.once {
            return Ok(());
        }
        let provisioning = async {
            if let Some(candidate) = &candidate {
                candidate.acquire().await;
            }
            let lost = async {
                match &candidate {
                    Some(candidate) => Err(Error::LostLease(candidate.hold().await)),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                lost = lost => lost,
                () = provision(client, &settings) => Ok(()),
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
    let watches = Watches::start(&client, settings.provider, rules, counts_machines);
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
    if let Some(candidate) = &candidate {
        tokio::select! {
            () = candidate.acquire() => {}
            () = stop.wait() => return Ok(()),
        }
    }
    let lost = async {
        match candidate {
            Some(candidate) => candidate.hold().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = act(client, settings, watches, stop) => result,
        why = lost => Err(Error::LostLease(why)),
    }
}

async fn act(client: Client, mut settings: Settings, watches: Watches, stop: Stop) -> Result<(), Error> {
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
        () = provision(provisioner, &settings) => Ok(()),
    }
}

/// Provisions or keeps spares, if that was asked for; never ends.
async fn provision(client: Client, settings: &Settings) {
    match &settings.provisioning {
        Some(provisioning) => {
            let provisioning = provisioning.clone();
            let shown = standalone::Shown {
                health: settings.health.clone(),
                pending: settings.pending.clone(),
                ledger: settings.ledger.clone(),
            };
            // On the heap: it is large, and most runs do without it.
            Box::pin(standalone::run(client, provisioning, shown)).await;
        }
        None if settings.spares_beside => {
            let catalogue = Arc::clone(&settings.catalogue);
            let clock = standalone::Clock::default();
            Box::pin(standalone::run_beside(
                client,
                catalogue,
                settings.node_overlay_gate,
                clock,
            ))
            .await;
        }
        None => std::future::pending().await,
    }
}
