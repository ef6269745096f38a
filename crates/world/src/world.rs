//! The world itself: the clock, what happens when, and the controllers that look after every change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use veneer_api::NodeClaim;
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{ActionId, Instance, InstanceState, NodeClass, Shortage, Snapshot, is_deleting};
use veneer_engine::provision::LaunchOption;
use veneer_steering::cycle::{Cycle, Rules};
use veneer_steering::machines::Prices;

use crate::billing::{self, Bill};
use crate::chaos::Faults;
use crate::cloud::{Cloud, State};
use crate::manifests;
use crate::objects::Objects;
use crate::report::SettledHour;
use crate::rival::Rival;
use crate::scenario::{Scenario, ScenarioError};
use crate::scheduler::{self, Scheduler};
use crate::statistics::Statistics;
use crate::steerer::Steerer;
use crate::workloads;

/// Passes at one moment beyond this mean that the controllers never settle.
const MAX_PASSES: usize = 200;
/// How many lines of what happened are kept.
const LINES: usize = 400;

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The load changes.
    Load,
    /// A job arrives and runs for a while.
    Arrive(usize, SignedDuration),
    /// A job is done.
    PodEnds(String),
    /// A pod that was asked to leave is gone.
    PodGone(String),
    /// The cloud answers to a launch that the controllers of this epoch asked for.
    LaunchDone(Arc<NodeClaim>, Vec<LaunchOption>, u64),
    /// The node of an instance joins.
    Joins(String),
    /// The node of an instance becomes ready.
    Ready(String),
    /// An instance is gone.
    Gone(String),
    /// An instance has stopped.
    Stopped(String),
    /// A message says that an instance will be taken back; the same one may come twice.
    Notice(String),
    /// The exporter looks.
    Export,
    /// Prometheus is asked.
    Observe,
    /// An hour is settled.
    Hour,
    /// Something of the scenario.
    Script(usize),
    /// The controllers wanted to look again.
    Wake,
}

/// What the executor knows beside the objects; lost with a crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) launching: BTreeSet<String>,
    pub(crate) failed: BTreeMap<ActionId, (Timestamp, SignedDuration)>,
    pub(crate) shortages: BTreeMap<Shortage, Timestamp>,
}

/// A cluster, a cloud and a clock.
#[derive(Debug)]
pub struct World {
    /// What was asked for.
    pub scenario: Arc<Scenario>,
    /// The time.
    pub now: Timestamp,
    /// What the API server stores.
    pub objects: Objects,
    /// What runs.
    pub cloud: Cloud,
    /// What was counted.
    pub statistics: Statistics,
    /// The Deployments behind the workloads that have replicas.
    pub deployments: Vec<Arc<Deployment>>,
    pub(crate) seed: u64,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) scheduler: Scheduler,
    pub(crate) prices: Prices,
    pub(crate) rules: Rules,
    pub(crate) cycle: Cycle,
    pub(crate) memory: Memory,
    /// Counts restarts of the controllers.
    pub(crate) epoch: u64,
    pub(crate) steerer: Option<Steerer>,
    pub(crate) faults: Option<Box<Faults>>,
    pub(crate) rival: Option<Box<Rival>>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    queued: u64,
    wake: Option<Timestamp>,
    hour: Timestamp,
    /// How many pods each workload shall have.
    pub(crate) targets: BTreeMap<usize, u32>,
    pub(crate) scaled: BTreeMap<String, (u32, Timestamp)>,
    pub(crate) live: BTreeMap<usize, BTreeSet<String>>,
    pub(crate) numbers: BTreeMap<usize, u64>,
    pub(crate) gap_until: Option<Timestamp>,
    pub(crate) with_daemons: BTreeSet<String>,
    pub(crate) pods_changed: bool,
    pub(crate) claims_changed: bool,
    lines: VecDeque<(Timestamp, String)>,
    /// Every line, if somebody wants them.
    pub history: Option<String>,
    /// Every hour that was settled, if somebody wants a report of it.
    pub ledger: Option<Vec<SettledHour>>,
}

/// The instance types of a scenario's region.
pub fn catalogue(scenario: &Scenario) -> Result<Arc<Catalogue>, ScenarioError> {
    let region = aws::region(&scenario.region).map_err(|error| ScenarioError(format!("region: {error}")))?;
    let mut catalogue = region.catalogue;
    if !scenario.families.is_empty() {
        catalogue.types.retain(|it| {
            let family = it.name.split('.').next().unwrap_or_default();
            scenario.families.iter().any(|one| one == family)
        });
        if catalogue.types.is_empty() {
            return Err(ScenarioError(format!(
                "families: none of {} exists in {}; `veneer catalog --region {}` lists what does",
                scenario.families.join(", "),
                scenario.region,
                scenario.region
            )));
        }
    }
    Ok(Arc::new(catalogue))
}

fn scheduler_settings(scenario: &Scenario) -> scheduler::Settings {
    scheduler::Settings {
        added_affinity: scenario.scheduler.added_affinity.clone(),
        back_off: scenario.scheduler.back_off,
        ..scheduler::Settings::default()
    }
}

impl World {
    /// The world of a scenario at its beginning.
    pub fn new(scenario: Arc<Scenario>, catalogue: Arc<Catalogue>, seed: u64) -> Result<Self, ScenarioError> {
        let prices = Prices::of(&catalogue);
        let rules = Rules::default();
        let start = scenario.start;
        let deployments = scenario.workloads.iter().filter_map(workloads::deployment);
        let deployments = deployments.map(Arc::new).collect();
        let owners = scenario.workloads.iter().filter_map(workloads::owner).collect();
        let mut world = Self {
            now: start,
            objects: Objects::default(),
            cloud: Cloud::new(&scenario.cloud),
            statistics: Statistics::default(),
            deployments,
            seed,
            scheduler: Scheduler::new(scheduler_settings(&scenario), owners),
            cycle: Cycle::new(Arc::clone(&catalogue), rules.clone()),
            rules,
            prices,
            catalogue,
            memory: Memory::default(),
            epoch: 0,
            steerer: scenario.steering.enabled.then(|| Steerer::new(&scenario)),
            faults: None,
            rival: None,
            queue: BTreeMap::new(),
            queued: 0,
            wake: None,
            hour: start,
            targets: BTreeMap::new(),
            scaled: BTreeMap::new(),
            live: BTreeMap::new(),
            numbers: BTreeMap::new(),
            gap_until: None,
            with_daemons: BTreeSet::new(),
            pods_changed: true,
            claims_changed: true,
            lines: VecDeque::new(),
            history: None,
            ledger: None,
            scenario,
        };
        let manifests = world.scenario.objects.clone();
        for manifest in &manifests {
            manifests::apply(&mut world.objects, manifest, start)?;
        }
        world.wake_after(SignedDuration::ZERO);
        world.at(SignedDuration::ZERO, Event::Load);
        world.at(SignedDuration::ZERO, Event::Export);
        world.at(SignedDuration::ZERO, Event::Observe);
        world.at(SignedDuration::from_hours(1), Event::Hour);
        for number in 0..world.scenario.events.len() {
            if let Some(event) = world.scenario.events.get(number) {
                let at = event.at.0;
                world.at(at, Event::Script(number));
            }
        }
        Ok(world)
    }

    /// The same world without steering, for comparison.
    pub fn unsteered(&self) -> Result<Self, ScenarioError> {
        let mut scenario = Scenario::clone(&self.scenario);
        scenario.steering.enabled = false;
        Self::new(Arc::new(scenario), Arc::clone(&self.catalogue), self.seed)
    }

    pub(crate) fn at(&mut self, after: SignedDuration, event: Event) {
        let at = self.now.checked_add(after).unwrap_or(Timestamp::MAX);
        self.queue_at(at, event);
    }

    pub(crate) fn queue_at(&mut self, at: Timestamp, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next(&self) -> Timestamp {
        self.queue
            .first_key_value()
            .map_or(Timestamp::MAX, |((at, _), _)| *at)
    }

    /// Lets everything happen up to a moment, which is the time afterwards.
    pub fn advance(&mut self, until: Timestamp) {
        while self.next() <= until {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Lets everything happen that happens next at one moment, and the controllers look at it.
    pub fn step(&mut self) {
        let at = self.next();
        if at == Timestamp::MAX {
            return;
        }
        self.now = self.now.max(at);
        let mut changed = false;
        while self.next() <= self.now {
            if let Some((_, event)) = self.queue.pop_first() {
                let is_timer = matches!(event, Event::Wake);
                let matters = self.happen(event);
                self.statistics.steps += u64::from(matters && !is_timer);
                changed |= matters;
            }
        }
        if changed {
            self.control();
        }
    }

    /// Lets things happen for a while without any controller looking at them.
    pub fn idle(&mut self, span: SignedDuration) {
        let until = self.now.checked_add(span).unwrap_or(self.now);
        while self.next() <= until {
            if let Some(((at, _), event)) = self.queue.pop_first() {
                self.now = self.now.max(at);
                self.happen(event);
            }
        }
        self.now = until;
    }

    /// Says whether the controllers have to look.
    fn happen(&mut self, event: Event) -> bool {
        match event {
            Event::Load => self.load(),
            Event::Arrive(workload, runs) => {
                self.create_pod(workload, Some(runs));
                true
            }
            Event::PodEnds(key) => self.pod_ends(&key),
            Event::PodGone(key) => self.pod_gone(&key),
            Event::LaunchDone(claim, options, epoch) => {
                self.launched(&claim, &options, epoch);
                true
            }
            Event::Joins(id) => self.joins(&id),
            Event::Ready(id) => self.node_ready(&id),
            Event::Gone(id) => self.instance_gone(&id),
            Event::Stopped(id) => self.instance_stopped(&id),
            Event::Notice(id) => self.notice(&id),
            Event::Export => {
                let applied = self.rates();
                let (scenario, now) = (Arc::clone(&self.scenario), self.now);
                if let Some(steerer) = &mut self.steerer {
                    steerer.export(&scenario, &applied, now);
                    self.at(scenario.commitments.refresh.0, Event::Export);
                }
                false
            }
            Event::Observe => {
                if self.steerer.is_some() {
                    self.at(self.scenario.steering.interval.0, Event::Observe);
                }
                self.observe()
            }
            Event::Hour => {
                self.settle_hour();
                self.at(SignedDuration::from_hours(1), Event::Hour);
                false
            }
            Event::Script(number) => self.script(number),
            // One that an earlier look has made needless is none.
            Event::Wake if self.wake.is_some_and(|at| at <= self.now) => {
                self.wake = None;
                true
            }
            Event::Wake => false,
        }
    }

    /// What commitments do with what runs now, as of one hour.
    #[must_use]
    pub fn rates(&self) -> billing::Applied {
        let price = |name: &str| self.prices.get(name).unwrap_or_default();
        billing::apply(&self.scenario.commitments, &self.cloud.rates(), 1.0, &price)
    }

    fn open_hour(&self) -> (billing::Used, Bill) {
        let hours = self.now.duration_since(self.hour).as_secs_f64() / 3600.0;
        let used = self.cloud.usage(self.hour, self.now);
        let price = |name: &str| self.prices.get(name).unwrap_or_default();
        let bill = billing::apply(&self.scenario.commitments, &used, hours, &price).bill;
        (used, bill)
    }

    fn settle_hour(&mut self) {
        let (used, bill) = self.open_hour();
        self.statistics.bill.add(&bill);
        self.statistics.instance_hours(&used);
        let (from, to) = (self.hour, self.now);
        if let Some(ledger) = &mut self.ledger {
            ledger.push(SettledHour { from, to, used });
        }
        self.cloud.settled(self.now);
        self.hour = self.now;
    }

    /// The hour that runs, as far as it is over.
    pub(crate) fn open_ledger_hour(&self) -> SettledHour {
        SettledHour {
            from: self.hour,
            to: self.now,
            used: self.cloud.usage(self.hour, self.now),
        }
    }

    /// What everything has cost so far, the hour that runs included.
    #[must_use]
    pub fn bill(&self) -> Bill {
        let mut bill = self.statistics.bill;
        bill.add(&self.open_hour().1);
        bill
    }

    /// The controllers look until nothing is left to do at this moment.
    fn control(&mut self) {
        for _ in 0..MAX_PASSES {
            let mut changed = self.bind_pods();
            changed |= self.steer();
            let (acted, look_again) = self.pass();
            changed |= acted;
            let (rival_acted, rival_looks) = self.rival_pass();
            changed |= rival_acted;
            if !changed {
                let scheduler_looks = self.scheduler.look_again();
                let looks = look_again.into_iter().chain(rival_looks).chain(scheduler_looks);
                self.wake_at(looks.min());
                self.statistics.pass_peak(self.objects.nodes.len());
                return;
            }
        }
        self.statistics.unsettled += 1;
        self.wake_at(Some(
            self.now
                .checked_add(SignedDuration::from_secs(1))
                .unwrap_or(self.now),
        ));
    }

    /// One pass of standalone mode; says whether it changed anything, and when it wants to look again.
    pub(crate) fn pass(&mut self) -> (bool, Option<Timestamp>) {
        let mut snapshot = self.snapshot();
        let (now, generation) = (self.seen_now(), self.objects.generation);
        let mut pass = self.cycle.pass(&mut snapshot, generation, now);
        if let Some(faults) = &self.faults {
            faults.bugs.spoil_plan(&mut pass.plan, &snapshot);
            if faults.was_stale {
                // A watch that comes through later wakes the controllers.
                pass.plan
                    .look_again(now.checked_add(SignedDuration::from_secs(2)).unwrap_or(now));
            }
        }
        self.statistics.passes += 1;
        self.statistics.most_steps = self.statistics.most_steps.max(pass.steps);
        if let Some(decided) = &pass.decided {
            for (pod, reasons) in decided.pending.iter().take(3) {
                let why = reasons
                    .first()
                    .map(|reason| reason.message.clone())
                    .unwrap_or_default();
                self.say(format!("{pod} stays pending: {why}"));
            }
        }
        let look_again = pass.plan.look_again;
        (self.carry_out(pass.plan.actions), look_again)
    }

    /// A launch has been answered, whoever asked for it.
    pub(crate) fn is_answered(&mut self, claim: &str) {
        self.memory.launching.remove(claim);
        if let Some(rival) = &mut self.rival {
            rival.memory.launching.remove(claim);
        }
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        let failed = self.memory.failed.values().map(|(until, _)| *until);
        let short = self.memory.shortages.values().copied();
        let own = failed.chain(short).filter(|until| *until > self.now).min();
        let next = at.into_iter().chain(own).min();
        let Some(next) = next else { return };
        // Never at this moment again: what has to be done now was done.
        let soonest = self
            .now
            .checked_add(SignedDuration::from_millis(100))
            .unwrap_or(self.now);
        self.wake_by(next.max(soonest));
    }

    fn wake_by(&mut self, at: Timestamp) {
        if self.wake.is_none_or(|known| at < known || known <= self.now) {
            self.wake = Some(at);
            self.queue_at(at, Event::Wake);
        }
    }

    /// Users have changed something, or the controllers start anew.
    pub(crate) fn wake_after(&mut self, span: SignedDuration) {
        self.claims_changed = true;
        self.wake_by(self.now.checked_add(span).unwrap_or(self.now));
    }

    /// Everything that the controllers see.
    pub fn snapshot(&mut self) -> Snapshot {
        let now = self.now;
        self.memory.shortages.retain(|_, until| *until > now);
        let machines = self.cloud.machines.values();
        let mut node_classes: Vec<NodeClass> = Vec::new();
        for pool in self.objects.pools.values() {
            let class = &pool.spec.template.spec.node_class_ref;
            let class = NodeClass {
                group: class.group.clone(),
                kind: class.kind.clone(),
                name: class.name.clone(),
                not_ready: None,
                is_deleting: false,
            };
            if !node_classes.contains(&class) {
                node_classes.push(class);
            }
        }
        let mut snapshot = Snapshot {
            pods: self.objects.pods.values().cloned().collect(),
            nodes: self.objects.nodes.values().cloned().collect(),
            node_claims: self.objects.claims.values().cloned().collect(),
            node_pools: self.objects.pools.values().cloned().collect(),
            overlays: self.objects.overlays.values().cloned().collect(),
            node_classes,
            overprovisioners: self.objects.overprovisioners.values().cloned().collect(),
            daemon_sets: self.objects.daemon_sets.values().cloned().collect(),
            deployments: self.deployments.clone(),
            instances: machines
                .map(|machine| Instance {
                    provider_id: machine.id.clone(),
                    claim: machine.claim.clone(),
                    launched: machine.launched,
                    state: match machine.state {
                        State::Running => InstanceState::Running,
                        State::Stopping => InstanceState::Stopping,
                        State::Stopped => InstanceState::Stopped,
                        State::Ending => InstanceState::ShuttingDown,
                    },
                })
                .collect(),
            pdbs: self.objects.budgets_with_status(),
            launching: self.memory.launching.clone(),
            shortages: self.memory.shortages.keys().cloned().collect(),
            pod_events: self.objects.pod_events.clone(),
            ..Snapshot::default()
        };
        if let Some(faults) = &mut self.faults {
            faults.blur(&mut snapshot);
        }
        snapshot
    }

    /// The time that the controllers believe in.
    pub(crate) fn seen_now(&self) -> Timestamp {
        let skew = self
            .faults
            .as_ref()
            .map_or(SignedDuration::ZERO, |faults| faults.skew);
        self.now.checked_add(skew).unwrap_or(self.now)
    }

    /// The controllers are killed and start again, with nothing but the objects.
    pub fn crash(&mut self) {
        self.epoch += 1;
        self.rival = None;
        self.memory = Memory::default();
        self.cycle = Cycle::new(Arc::clone(&self.catalogue), self.rules.clone());
        let scenario = Arc::clone(&self.scenario);
        if let Some(steerer) = &mut self.steerer {
            steerer.forget(&scenario);
        }
        self.wake_after(SignedDuration::from_secs(1));
    }

    /// From now on the scheduler demands this of every pod, beside what the pod demands itself.
    pub fn set_added_affinity(&mut self, added: Option<NodeSelector>) {
        self.scheduler.set_added_affinity(added);
        self.pods_changed = true;
        self.wake_after(SignedDuration::ZERO);
    }

    /// Applies a manifest, as a user would.
    pub fn apply(&mut self, manifest: &Value) -> Result<manifests::Applied, ScenarioError> {
        let applied = manifests::apply(&mut self.objects, manifest, self.now)?;
        self.say(format!("{} {}", applied.object, applied.outcome));
        self.wake_after(SignedDuration::ZERO);
        Ok(applied)
    }

    /// Deletes `kind/name`, as a user would.
    pub fn delete(&mut self, object: &str) -> Result<manifests::Applied, ScenarioError> {
        let applied = manifests::delete(&mut self.objects, object, self.now)?;
        self.say(format!("{} deleted", applied.object));
        self.wake_after(SignedDuration::ZERO);
        Ok(applied)
    }

    /// Writes down what happened.
    pub(crate) fn say(&mut self, line: String) {
        if let Some(history) = &mut self.history {
            history.push_str(&format!("{} {line}\n", self.now));
        }
        self.lines.push_back((self.now, line));
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    /// What happened lately, newest last.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &(Timestamp, String)> {
        self.lines.iter()
    }

    /// What decides about nodes, as it is now.
    #[must_use]
    pub const fn cycle(&self) -> &Cycle {
        &self.cycle
    }

    /// Pods of workloads that are on no node.
    #[must_use]
    pub fn pending(&self) -> usize {
        let pods = self.objects.pods.values();
        let waits = |pod: &&Arc<veneer_api::Pod>| {
            crate::objects::node_of(pod).is_none() && !is_deleting(&pod.metadata)
        };
        pods.filter(waits).count()
    }

    /// Instances that are paid.
    #[must_use]
    pub fn running(&self) -> usize {
        let machines = self.cloud.machines.values();
        machines.filter(|machine| machine.state == State::Running).count()
    }
}
