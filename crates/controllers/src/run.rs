//! The loop: waits for changes, makes a pass, carries it out.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::Verdict;
use veneer_engine::overlay::status::{Finding, Owner, Plan, Policy};

use crate::act::{Action, Failure, StatusWrite, Writer};
use crate::observe::{Snapshot, Watches};
use crate::pass::{Evaluated, Passes};
use crate::{Health, Metrics, Server};

/// Changes that arrive within this time of each other are one pass.
const COALESCE: Duration = Duration::from_millis(5);
/// How long the writes of a pass may take once the process shall end.
const GRACE: Duration = Duration::from_secs(5);
/// When a failed write is tried again: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

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
    Text(Box<dyn Write + Send>),
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
        }
    }

    fn policy(&self) -> Policy {
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
    #[error("{} could not be written; the first was NodeOverlay {overlay}: {error}", counted(*.count))]
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
    /// The text of a dry run could not be written.
    #[error("cannot write the plan: {0}")]
    Output(#[from] io::Error),
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 status".to_owned(),
        _ => format!("{count} statuses"),
    }
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
    let stop = Arc::new(Notify::new());
    let mut controller = pin!(control(client, settings, Arc::clone(&stop)));
    tokio::select! {
        result = &mut controller => return result,
        () = shutdown => {}
        Some(ended) = servers.join_next() => {
            let ended = ended.map_err(io::Error::other).and_then(|ended| ended);
            return Err(Error::Server(ended.err().unwrap_or_else(|| io::Error::other("no reason given"))));
        }
    }
    info!("stopping");
    stop.notify_one();
    if timeout(GRACE, controller).await.is_err() {
        warn!("the last writes did not end in time; what is missing is written after the next start");
    }
    Ok(())
}

async fn control(client: Client, settings: Settings, stop: Arc<Notify>) -> Result<(), Error> {
    if !settings.node_overlay_gate {
        info!("the feature gate NodeOverlay is off: overlays are left alone");
        settings.health.set_ready();
        if !settings.once {
            stop.notified().await;
        }
        return Ok(());
    }
    let rules = Arc::new(settings.catalogue.rules.clone());
    let watches = Watches::start(&client, settings.provider, Arc::clone(&rules));
    while !watches.synced() {
        tokio::select! {
            () = watches.changed() => {}
            () = stop.notified() => return Ok(()),
        }
        if let Some(error) = watches.error().filter(|_| settings.once) {
            return Err(Error::Unreadable(error));
        }
    }
    settings.health.set_ready();
    let mut controller = Controller {
        passes: Passes::new(Arc::clone(&settings.catalogue), settings.policy()),
        writer: Writer::new(&client, rules),
        printed: String::new(),
        failing: BTreeMap::new(),
        settings,
    };
    let mut retry = RETRY.0;
    loop {
        let outcome = controller.pass(&watches.snapshot()).await?;
        if controller.settings.once {
            return outcome.into_result();
        }
        let retry_in = if outcome.failures.is_empty() {
            retry = RETRY.0;
            None
        } else {
            let delay = retry;
            retry = RETRY.1.min(retry * 2);
            Some(delay)
        };
        let look_again_in = outcome.look_again.map(|at| {
            let left = at.duration_since(Timestamp::now());
            Duration::try_from(left).unwrap_or(Duration::ZERO)
        });
        let wake = retry_in.into_iter().chain(look_again_in).min();
        tokio::select! {
            () = watches.changed() => sleep(COALESCE).await,
            () = sleep(wake.unwrap_or_default()), if wake.is_some() => {}
            () = stop.notified() => return Ok(()),
        }
    }
}

/// What came of a pass.
struct Outcome {
    failures: Vec<Failure>,
    look_again: Option<Timestamp>,
}

impl Outcome {
    fn into_result(self) -> Result<(), Error> {
        let count = self.failures.len();
        match self.failures.into_iter().next() {
            None => Ok(()),
            Some(Failure { overlay, error }) => Err(Error::Unwritten {
                count,
                overlay,
                error,
            }),
        }
    }
}

struct Controller {
    passes: Passes,
    writer: Writer,
    /// What the last dry run said, so that it is said once.
    printed: String,
    /// The failures that were logged, by overlay.
    failing: BTreeMap<String, String>,
    settings: Settings,
}

impl Controller {
    async fn pass(&mut self, snapshot: &Snapshot) -> Result<Outcome, Error> {
        let now = Timestamp::now();
        let compares = self.settings.mode == Mode::Companion;
        let decision = self.passes.decide(snapshot, now);
        if let Some(took) = decision.evaluation_took {
            self.settings.metrics.evaluated(took);
        }
        self.settings
            .metrics
            .set(decision.evaluated, &decision.plan, compares);
        log(&decision.plan, decision.evaluated);
        let Evaluated { evaluation, effects } = decision.evaluated;
        let mut outcome = Outcome {
            failures: Vec::new(),
            look_again: decision.plan.look_again,
        };
        if let Output::Text(text) = &mut self.settings.output {
            print(text, &mut self.printed, decision.plan, decision.evaluated)?;
            return Ok(outcome);
        }
        let plan = decision.plan;
        let writes = plan.statuses.into_iter().filter_map(|change| {
            Some(StatusWrite {
                name: evaluation.overlay_name(change.overlay).to_owned(),
                seen: Arc::clone(snapshot.overlays.get(change.overlay)?),
                conditions: change.conditions,
                verdict: evaluation.verdicts().get(change.overlay)?.clone(),
                effect: effects.overlays.get(change.overlay)?.clone(),
            })
        });
        let writes: Vec<StatusWrite> = writes.collect();
        outcome.failures = self.writer.write_statuses(writes, now).await;
        for announcement in &plan.announcements {
            let pool = snapshot
                .pools
                .iter()
                .find(|seen| seen.pool.name == announcement.node_pool);
            let Some(pool) = pool else { continue };
            match self.writer.announce(pool, announcement, now).await {
                Ok(()) => info!(node_pool = announcement.node_pool, "{}", announcement.note),
                Err(error) => warn!(node_pool = announcement.node_pool, %error, "cannot write an event"),
            }
        }
        self.log_failures(&outcome.failures);
        Ok(outcome)
    }

    fn log_failures(&mut self, failures: &[Failure]) {
        let failing = failures
            .iter()
            .map(|one| (one.overlay.clone(), one.error.clone()));
        let failing: BTreeMap<String, String> = failing.collect();
        for (overlay, error) in failing
            .iter()
            .filter(|(name, error)| self.failing.get(*name) != Some(error))
        {
            error!(overlay, %error, "cannot write the conditions; trying again");
        }
        self.failing = failing;
    }
}

/// One line per change of mind.
fn log(plan: &Plan, evaluated: &Evaluated) {
    for &at in &plan.new_verdicts {
        let overlay = evaluated.evaluation.overlay_name(at);
        let matched: usize = evaluated
            .effects
            .overlays
            .get(at)
            .map_or(0, |effect| effect.matched.iter().sum());
        match evaluated.evaluation.verdicts().get(at) {
            Some(Verdict::Ready) => info!(overlay, matched_offerings = matched, "in force"),
            Some(Verdict::Conflict(conflict)) => {
                warn!(
                    overlay,
                    with = conflict.with.join(","),
                    node_pool = conflict.node_pool,
                    instance_type = conflict.instance_type,
                    "left out: conflict"
                );
            }
            Some(Verdict::Invalid(problems)) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                warn!(overlay, problems = problems.join("; "), "left out: not valid");
            }
            None => {}
        }
    }
    for finding in &plan.findings {
        match finding {
            Finding::Differs(difference) => warn!(
                overlay = difference.overlay,
                veneer = difference.ours,
                because = difference.because,
                karpenter = difference.karpenters,
                "Karpenter's conditions differ from Veneer's verdict; is the catalogue the one that Karpenter uses?"
            ),
            Finding::AgreesAgain(overlay) => info!(
                overlay,
                "Karpenter's conditions agree with Veneer's verdict again"
            ),
        }
    }
}

fn print(text: &mut impl Write, printed: &mut String, plan: Plan, evaluated: &Evaluated) -> io::Result<()> {
    let statuses = plan.statuses.into_iter().map(|change| Action::SetConditions {
        overlay: evaluated.evaluation.overlay_name(change.overlay).to_owned(),
        conditions: change.conditions,
    });
    let actions = statuses.chain(plan.announcements.into_iter().map(Action::Announce));
    let actions: String = actions.map(|action| format!("{action}\n")).collect();
    if actions == *printed {
        return Ok(());
    }
    text.write_all(actions.as_bytes())?;
    text.flush()?;
    *printed = actions;
    Ok(())
}
