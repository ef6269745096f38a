//! Steering in the world: what Prometheus says with its delay, the real decisions, and the overlays that follow.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use veneer_api::NodeOverlay;
use veneer_engine::plan::{is_deleting, name};
use veneer_steering::commitments::{Ledger, Observation, Scope};
use veneer_steering::decisions::Decision;
use veneer_steering::machines::{SeenMachine, machines};
use veneer_steering::overlays::{Action, Existing, MixedPools, Naming, Pricing, Purpose, Weights};
use veneer_steering::steer::{Decided, Decider, Settings, SteeredPool};

use crate::billing::{ACCOUNT, Applied, Export, silence};
use crate::chaos::Bug;
use crate::scenario::{self, Scenario};
use crate::world::World;

/// How much is taken off what is covered.
const ORDERED: &str = "-95%";
/// Data is believed up to this age.
const FRESH: k8s_openapi::jiff::SignedDuration = k8s_openapi::jiff::SignedDuration::from_mins(65);

/// The steering controller of a world.
#[derive(Debug)]
pub struct Steerer {
    decider: Decider,
    scope: Scope,
    exports: VecDeque<Export>,
    /// What was decided last.
    pub decided: Decided,
}

impl Steerer {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        // The exporter was there before the world began, and saw that nothing was used.
        let nothing = Applied {
            plans: vec![0.0; scenario.commitments.savings_plans.len()],
            ..Applied::default()
        };
        let before = scenario.start.checked_sub(scenario.commitments.delay.0);
        let before = before.unwrap_or(scenario.start);
        let first = Export::new(&scenario.commitments, &nothing, &scenario.region, before);
        Self {
            decider: Decider::new(settings(scenario)),
            scope: Scope {
                account: ACCOUNT.to_owned(),
                region: scenario.region.clone(),
                shared_plans: true,
                freshness_limit: FRESH,
            },
            exports: VecDeque::from([first]),
            decided: Decided::default(),
        }
    }

    /// A restart: the exporter goes on, the decisions start anew.
    pub(crate) fn forget(&mut self, scenario: &Scenario) {
        self.decider = Decider::new(settings(scenario));
    }

    /// The exporter looks at what runs.
    pub(crate) fn export(&mut self, scenario: &Scenario, applied: &Applied, now: Timestamp) {
        self.exports
            .push_back(Export::new(&scenario.commitments, applied, &scenario.region, now));
        if self.exports.len() > 100 {
            self.exports.pop_front();
        }
    }

    /// What Prometheus has to say: the newest look that is old enough.
    fn observation(&self, scenario: &Scenario, now: Timestamp) -> Observation {
        let delay = scenario.commitments.delay.0;
        let known = |export: &&Export| now.duration_since(export.at) >= delay;
        match self.exports.iter().rev().find(known) {
            Some(export) => export.observed(now),
            None => silence(now),
        }
    }

    /// When the data that decisions rest on was asked for.
    #[must_use]
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.decider.observed_at()
    }

    /// What was learned about commitments last.
    #[must_use]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.decider.ledger()
    }
}

fn settings(scenario: &Scenario) -> Settings {
    Settings {
        threshold: scenario.steering.threshold,
        hysteresis: scenario.steering.hysteresis,
        disabled: false,
        weights: Weights::default(),
        naming: Naming::default(),
        pricing: match scenario.steering.pricing {
            scenario::Pricing::Ordered => Pricing::Ordered {
                adjustment: ORDERED.to_owned(),
            },
            scenario::Pricing::Zero => Pricing::Zero,
        },
        family_label: None,
        mixed_pools: MixedPools::Include,
        preferences: true,
    }
}

/// An overlay as steering sees it.
fn existing(overlay: &NodeOverlay) -> Existing {
    let metadata = &overlay.metadata;
    Existing {
        name: name(metadata).to_owned(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        owners: metadata.owner_references.clone().unwrap_or_default(),
        spec: serde_json::to_value(&overlay.spec).unwrap_or(Value::Null),
        deleting: is_deleting(metadata),
    }
}

impl World {
    /// The steering controller, if there is one.
    #[must_use]
    pub fn steering(&self) -> Option<&Steerer> {
        self.steerer.as_ref()
    }

    /// Prometheus is asked, and steering looks at the answer; says whether the others have to look too.
    pub(crate) fn observe(&mut self) -> bool {
        self.ask();
        self.steer()
    }

    /// Prometheus is asked.
    pub(crate) fn ask(&mut self) {
        let now = self.now;
        let is_gap = self.gap_until.is_some_and(|until| until > now);
        let Some(steerer) = &mut self.steerer else {
            return;
        };
        let observation = if is_gap {
            silence(now)
        } else {
            steerer.observation(&self.scenario, now)
        };
        let ledger = Ledger::read(&observation, &steerer.scope);
        if self.scenario.steering.capped {
            self.cycle.learn(Some(Arc::new(ledger.clone())));
        }
        steerer.decider.learn(now, ledger);
        self.claims_changed = true;
    }

    /// Decides about overlays when something that matters has changed, and writes them.
    pub(crate) fn steer(&mut self) -> bool {
        // The first thing that a new process does.
        if self.steering().is_some_and(|steerer| steerer.ledger().is_none()) {
            self.ask();
        }
        if !std::mem::take(&mut self.claims_changed) {
            return false;
        }
        let Some(mut steerer) = self.steerer.take() else {
            return false;
        };
        let seen: Vec<SeenMachine> = self
            .objects
            .claims
            .values()
            .map(|claim| SeenMachine::from(&**claim))
            .collect();
        let mut machines = machines(seen.iter(), std::iter::empty(), &self.prices);
        let bugs = self.faults.as_ref().map(|faults| faults.bugs).unwrap_or_default();
        if bugs.has(Bug::IgnoresTheCap) || !self.scenario.steering.capped {
            machines.clear();
        }
        let existing: Vec<Existing> = self.objects.overlays.values().map(|one| existing(one)).collect();
        let none = std::collections::BTreeMap::new();
        let pools = self.objects.pools.values().map(|pool| SteeredPool {
            name: name(&pool.metadata),
            uid: pool.metadata.uid.as_deref().unwrap_or_default(),
            annotations: pool.metadata.annotations.as_ref().unwrap_or(&none),
            requirements: &pool.spec.template.spec.requirements,
            node_class_group: &pool.spec.template.spec.node_class_ref.group,
            deleting: is_deleting(&pool.metadata),
        });
        let decided = steerer
            .decider
            .decide(&pools.collect::<Vec<_>>(), &existing, &machines);
        let mut changed = false;
        for action in &decided.actions {
            if bugs.has(Bug::KeepsOverlays) && matches!(action, Action::Delete(_)) {
                continue;
            }
            self.write_overlay(action, &decided.decisions);
            changed = true;
        }
        if bugs.has(Bug::DeletesForeignOverlays) {
            self.objects
                .overlays
                .retain(|_, one| existing_purpose(one) != Purpose::Foreign);
        }
        steerer.decided = decided;
        self.steerer = Some(steerer);
        changed
    }

    fn write_overlay(&mut self, action: &Action, decisions: &[Decision]) {
        let why = decisions.iter().find(|one| covers(action, one));
        let why = why.map_or("preference of its NodePool", |one| one.reason.as_str());
        let operation = action.operation();
        self.say(format!("overlay {}: {operation} ({why})", action.name()));
        *self
            .statistics
            .overlay_writes
            .entry(operation.to_owned())
            .or_default() += 1;
        self.statistics.steps += 1;
        match action {
            Action::Create(overlay) | Action::Update { overlay, .. } => {
                let mut overlay = NodeOverlay::clone(overlay);
                if let Some(known) = self.objects.overlays.get(action.name()) {
                    overlay.metadata.uid.clone_from(&known.metadata.uid);
                    overlay
                        .metadata
                        .creation_timestamp
                        .clone_from(&known.metadata.creation_timestamp);
                }
                self.objects.stamp(&mut overlay.metadata, self.now);
                self.objects
                    .overlays
                    .insert(action.name().to_owned(), Arc::new(overlay));
            }
            Action::Delete(existing) => {
                self.objects.overlays.remove(&existing.name);
            }
        }
        self.objects.generation += 1;
    }
}

fn existing_purpose(overlay: &NodeOverlay) -> Purpose {
    existing(overlay).purpose()
}

/// Whether a decision is the one that led to an action.
fn covers(action: &Action, decision: &Decision) -> bool {
    matches!(action.purpose(), Purpose::CostAware(_, Some(target)) if target == decision.target)
}
