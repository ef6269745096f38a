//! The controller of verdicts: which overlays are in force, which are left out, and why.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;
use tracing::{error, info, warn};
use veneer_engine::overlay::Verdict;
use veneer_engine::overlay::advice::matches_nothing;
use veneer_engine::overlay::status::{Finding, Plan};

use crate::act::{Action, Failure, StatusWrite, Writer};
use crate::observe::Snapshot;
use crate::pass::{Evaluated, Passes};
use crate::run::{COALESCE, Printer, RETRY, Shared};
use crate::{Error, Mode, Settings};

/// Makes a pass after every change until the process shall end.
pub(crate) async fn control(shared: Arc<Shared>, settings: Arc<Settings>) -> Result<(), Error> {
    let watches = &shared.watches;
    let mut controller = Controller {
        passes: Passes::new(Arc::clone(&settings.catalogue), settings.policy()),
        writer: Writer::new(&shared.client, Arc::new(settings.catalogue.rules.clone())),
        printer: shared.printer.clone(),
        printed: String::new(),
        failing: BTreeMap::new(),
        settings: Arc::clone(&settings),
    };
    let mut retry = RETRY.first();
    loop {
        let outcome = controller.pass(&watches.snapshot()).await?;
        if settings.once {
            return outcome.into_result();
        }
        let retry_in = if outcome.failures.is_empty() {
            retry = RETRY.first();
            None
        } else {
            let delay = retry;
            retry = RETRY.after(retry);
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
            () = shared.stop.wait() => return Ok(()),
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
    printer: Option<Printer>,
    settings: Arc<Settings>,
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
        if let Some(printer) = &self.printer {
            print(printer, &mut self.printed, decision.plan, decision.evaluated)?;
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

/// One line per changed verdict.
fn log(plan: &Plan, evaluated: &Evaluated) {
    for &at in &plan.new_verdicts {
        let overlay = evaluated.evaluation.overlay_name(at);
        let matched: usize = evaluated
            .effects
            .overlays
            .get(at)
            .map_or(0, |effect| effect.matched.iter().sum());
        match evaluated.evaluation.verdicts().get(at) {
            Some(Verdict::Ready) => match matches_nothing(&evaluated.evaluation, at) {
                None => info!(overlay, matched_offerings = matched, "in force"),
                Some(advice) => warn!(
                    overlay,
                    field = advice.field,
                    "valid, but changes nothing: {}; {}",
                    advice.message,
                    advice.fix
                ),
            },
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

fn print(printer: &Printer, printed: &mut String, plan: Plan, evaluated: &Evaluated) -> io::Result<()> {
    let statuses = plan.statuses.into_iter().map(|change| Action::SetConditions {
        overlay: evaluated.evaluation.overlay_name(change.overlay).to_owned(),
        conditions: change.conditions,
    });
    let actions = statuses.chain(plan.announcements.into_iter().map(Action::Announce));
    let actions: String = actions.map(|action| format!("{action}\n")).collect();
    if actions == *printed {
        return Ok(());
    }
    printer.print(&actions)?;
    *printed = actions;
    Ok(())
}
