//! The controller of steering: writes the overlays that preferences and commitments ask for.
//!
//! Prometheus is asked (or what was collected of the accounts is read) on a timer, beside the loop, so that a slow answer never delays a
//! preference. Everything
//! else happens when a watch brings a change: a new NodeClaim, for instance, is charged to the commitments at once.

mod debug;
mod decide;
mod known;
mod machines;
mod prometheus;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{info, warn};
use veneer_inventory::Inventory;
use veneer_steering::commitments::{Doubt, Ledger, Observation, Scope, ec2_types};
use veneer_steering::decisions::Decision;
use veneer_steering::overlays::diff;
use veneer_steering::steer::{self, Decided};

pub use debug::Decisions;
pub use known::Known;
pub(crate) use machines::seen_machine;
pub use prometheus::{PrometheusError, PrometheusSettings, Series, history};

use crate::export::Exported;
use crate::metrics::SteeringMetrics;
use crate::run::{COALESCE, RETRY, Shared};
use crate::{Error, Provider, Settings};
use decide::Decider;
use prometheus::Prometheus;
use write::{Failure, OverlayWriter, Reporter};

/// What to do about commitments that anybody can invent.
const MATCHER_MISSING: &str = "prometheus.matcher is not set: whoever's metrics this Prometheus scrapes can invent commitments; set it to the labels of the exporter, such as job=\"lumina\",namespace=\"lumina\"";

/// Which overlays to write.
#[derive(Clone, Debug)]
pub struct SteeringSettings {
    /// Where commitments are read; without, there are no cost-aware overlays and none is touched.
    pub prometheus: Option<PrometheusSettings>,
    /// What is collected of the accounts themselves; then Prometheus is not asked.
    pub inventory: Option<Exported>,
    /// Whose commitments count, and how old data may be.
    pub scope: Scope,
    /// How often Prometheus is asked.
    pub interval: Duration,
    /// Which overlays are decided on, and how they look.
    pub overlays: steer::Settings,
}

impl SteeringSettings {
    /// Whether commitments are read from series of whoever is scraped.
    fn believes_anybody(&self) -> bool {
        self.inventory.is_none() && self.prometheus.as_ref().is_some_and(|it| it.matcher.is_none())
    }

    pub(crate) fn counts_machines(&self) -> bool {
        self.inventory.is_some() || self.prometheus.is_some()
    }

    /// Where commitments are read.
    fn source(&self) -> Result<Option<Source>, PrometheusError> {
        match (&self.inventory, &self.prometheus) {
            (Some(inventory), _) => Ok(Some(Source::Accounts(inventory.clone()))),
            (None, Some(prometheus)) => Ok(Some(Source::Prometheus(Prometheus::new(prometheus)?))),
            (None, None) => Ok(None),
        }
    }
}

/// Where commitments are read.
#[derive(Clone)]
enum Source {
    Prometheus(Prometheus),
    Accounts(Exported),
}

/// What was read there.
enum Seen {
    Prometheus(Box<Observation>),
    Accounts(Arc<Inventory>, Timestamp),
}

impl Source {
    async fn look(&self, metrics: &SteeringMetrics) -> Seen {
        match self {
            Self::Prometheus(prometheus) => Seen::Prometheus(Box::new(prometheus.observe(metrics).await)),
            Self::Accounts(exported) => {
                let inventory = exported.first().await;
                Seen::Accounts(inventory, Timestamp::now())
            }
        }
    }
}

impl Seen {
    fn at(&self) -> Timestamp {
        match self {
            Self::Prometheus(observation) => observation.at,
            Self::Accounts(_, at) => *at,
        }
    }

    fn ledger(&self, scope: &Scope) -> Ledger {
        match self {
            Self::Prometheus(observation) => Ledger::read(observation, scope),
            Self::Accounts(inventory, at) => Ledger::of_inventory(inventory, scope, *at),
        }
    }
}

/// Asks, decides and writes until the process shall end.
pub(crate) async fn control(shared: Arc<Shared>, settings: Arc<Settings>) -> Result<(), Error> {
    let Some(steering) = settings.steering.clone().map(Arc::new) else {
        if !settings.once {
            shared.stop.wait().await;
        }
        return Ok(());
    };
    let source = steering.source()?;
    if source.is_none() {
        info!("prometheusUrl is not set: preferences only, cost-aware overlays are left alone");
    }
    if steering.believes_anybody() {
        warn!("{MATCHER_MISSING}");
    }
    let mut steerer = Steerer {
        decider: Decider::new(&steering, &settings.catalogue),
        writer: OverlayWriter::new(&shared.client),
        reporter: Reporter::new(&shared.client),
        printed: String::new(),
        doubts: String::new(),
        shared: Arc::clone(&shared),
        settings: Arc::clone(&settings),
        steering: Arc::clone(&steering),
        known_types: known_types(&settings),
    };
    if settings.once {
        return steerer.once(source).await;
    }
    let mut retry = RETRY.first();
    let mut pending = source.clone().map(|it| ask(it, &settings, Duration::ZERO));
    loop {
        let observed = tokio::select! {
            () = shared.watches.changed_for_steering() => {
                sleep(COALESCE).await;
                None
            }
            observed = next(&mut pending) => Some(observed),
            () = sleep(retry), if steerer.writer.is_failing() || steerer.reporter.is_failing() => None,
            () = shared.stop.wait() => return Ok(()),
        };
        if let (Some(_), Some(source)) = (&observed, &source) {
            pending = Some(ask(source.clone(), &settings, steering.interval));
        }
        let failures = steerer.pass(observed).await?;
        let fine = failures.is_empty() && !steerer.reporter.is_failing();
        retry = if fine { RETRY.first() } else { RETRY.after(retry) };
    }
}

/// The instance types that commitments can be for: those of EC2's catalog. Another provider's says nothing about EC2.
fn known_types(settings: &Settings) -> BTreeSet<String> {
    match settings.provider {
        Provider::Ec2 => ec2_types(settings.catalogue.types.iter().map(|it| &*it.name)),
        Provider::Kwok => BTreeSet::new(),
    }
}

/// What was read, and when that began.
type Observed = (Seen, Instant);

/// Looks after a while, beside everything else.
fn ask(source: Source, settings: &Settings, after: Duration) -> JoinHandle<Observed> {
    let metrics = settings.metrics.steering.clone();
    tokio::spawn(async move {
        sleep(after).await;
        let began = Instant::now();
        (source.look(&metrics).await, began)
    })
}

/// The next observation; without a source there is none.
async fn next(pending: &mut Option<JoinHandle<Observed>>) -> Observed {
    if let Some(task) = pending {
        match task.await {
            Ok(observed) => return observed,
            // Nobody would ask again.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is going away.
            Err(error) => warn!(%error, "a query was called off"),
        }
        *pending = None;
    }
    std::future::pending().await
}

struct Steerer {
    decider: Decider,
    writer: OverlayWriter,
    reporter: Reporter,
    /// What the last dry run said, so that it is said once.
    printed: String,
    /// The doubts that were logged.
    doubts: String,
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    steering: Arc<SteeringSettings>,
    /// The instance types of EC2 that the catalog has.
    known_types: BTreeSet<String>,
}

impl Steerer {
    async fn once(mut self, source: Option<Source>) -> Result<(), Error> {
        let observed = match source {
            Some(source) => {
                let began = Instant::now();
                Some((source.look(&self.settings.metrics.steering).await, began))
            }
            None => None,
        };
        let failures = self.pass(observed).await?;
        let count = failures.len();
        match failures.into_iter().next() {
            Some(Failure { overlay, error, .. }) => Err(Error::Unwritten {
                count,
                overlay,
                error,
            }),
            None if self.doubts.is_empty() => Ok(()),
            None => Err(Error::Unobserved(self.doubts)),
        }
    }

    /// Decides from what is known now, and writes what follows.
    async fn pass(&mut self, observed: Option<Observed>) -> Result<Vec<Failure>, Error> {
        let metrics = self.settings.metrics.steering.clone();
        let began = Instant::now();
        let asked = observed.as_ref().map(|(_, asked)| *asked);
        if let Some((seen, _)) = observed {
            let mut ledger = seen.ledger(&self.steering.scope);
            ledger.doubt_unknown_types(&self.known_types);
            metrics.set(|data| data.learn(&ledger));
            self.tell_doubts(&ledger);
            self.settings.ledger.set(&ledger);
            self.decider.steering.learn(seen.at(), ledger);
            if let Some(prices) = &self.settings.prices {
                self.decider.set_prices(prices);
            }
        }
        let snapshot = self.shared.watches.steering_snapshot();
        let decided = self.decider.decide(&snapshot);
        metrics.decided(began.elapsed());
        metrics.set(|data| {
            data.cost_aware = self.steering.counts_machines();
            data.disabled = self.steering.overlays.disabled;
            data.threshold = self.steering.overlays.threshold;
            data.overlays = decided.owned.clone();
        });
        for decision in &decided.decisions {
            if asked.is_some() || decision.changed {
                metrics.decision(decision);
            }
            if decision.changed {
                log(decision);
            }
        }
        self.settings
            .decisions
            .set(&decided, self.decider.steering.observed_at());
        let failures = self.carry_out(&decided).await?;
        if let Some(asked) = asked {
            let result = match self.decider.steering.worst_doubt() {
                _ if !failures.is_empty() => "error",
                None => "success",
                Some(Doubt::Stale { .. }) => "stale",
                Some(_) => "error",
            };
            metrics.reconciled(result, asked.elapsed());
        }
        Ok(failures)
    }

    async fn carry_out(&mut self, decided: &Decided) -> Result<Vec<Failure>, Error> {
        if let Some(printer) = &self.shared.printer {
            let text: String = decided.actions.iter().map(diff).collect();
            if text != self.printed {
                printer.print(&text)?;
                self.printed = text;
            }
            return Ok(Vec::new());
        }
        let metrics = self.settings.metrics.steering.clone();
        let failures = self.writer.carry_out(&decided.actions, &metrics).await;
        let hint = self.steering.believes_anybody().then_some(MATCHER_MISSING);
        self.reporter
            .report(decided, &failures, hint, Timestamp::now())
            .await;
        Ok(failures)
    }

    /// One line and the probe when the doubts about whole kinds change.
    fn tell_doubts(&mut self, ledger: &Ledger) {
        let doubts: Vec<String> = ledger
            .doubts()
            .map(|(kind, doubt)| format!("{kind}: {doubt}"))
            .collect();
        let doubts = doubts.join("; ");
        // Old data is nothing that a restart or another replica could mend, so the probe does not tell it.
        let faults = ledger
            .doubts()
            .filter(|(_, doubt)| !matches!(doubt, Doubt::Stale { .. }));
        let faults: Vec<String> = faults.map(|(kind, doubt)| format!("{kind}: {doubt}")).collect();
        self.settings.health.set_fault(
            (!faults.is_empty()).then(|| format!("cannot observe commitments: {}", faults.join("; "))),
        );
        let category = |ledger: &Ledger| {
            ledger
                .doubts()
                .map(|(_, doubt)| doubt.category())
                .collect::<Vec<_>>()
        };
        let was_quiet = self.doubts.is_empty();
        let same = self
            .decider
            .steering
            .ledger()
            .is_some_and(|last| category(last) == category(ledger));
        if doubts.is_empty() && !was_quiet {
            info!("commitments can be observed again");
        } else if !doubts.is_empty() && !same {
            warn!(
                doubts,
                "commitments cannot be observed; overlays stay as they are"
            );
        }
        self.doubts = doubts;
    }
}

/// One line per change of mind.
fn log(decision: &Decision) {
    let target = &decision.target;
    info!(
        capacity_type = target.kind.label(),
        covers = target.covers,
        region = target.region,
        zone = target.zone,
        state = ?decision.state,
        reason = decision.reason.as_str(),
        rule = decision.rule,
        utilization = decision.balance.and_then(|balance| balance.utilization),
        left = decision.balance.map(|balance| balance.left),
        launched = decision.used.taken,
        overshoot = decision.used.overshoot,
        doubt = decision.doubt,
        "decided"
    );
}
