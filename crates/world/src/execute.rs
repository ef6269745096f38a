//! Carries plans out, as the executor of a real cluster does: what failed is left alone for a while, a launch is under way
//! once, and a crash may come between any two actions.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::lifecycle::{after_change_type, after_launch, launch_failed};
use veneer_engine::plan::{
    Action, ActionId, Shortage, Target, Verb, api_list, is_deleting, label, name, node_pool_of, provider_id,
};
use veneer_engine::provision::LaunchOption;

use crate::chaos::{Bug, Fate};
use crate::cloud::State;
use crate::objects::{Written, pod_key};
use crate::rng::Rng;
use crate::statistics::Counter;
use crate::world::{Event, World};

/// How long a failed action is left alone: at first, and at most.
const BACKOFF: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_secs(30));
/// How long an offering counts as not available after the cloud had none of it.
const SHORTAGE: SignedDuration = SignedDuration::from_secs(180);

/// How an action went.
enum Done {
    Changed,
    Same,
    Failed,
}

impl From<Written> for Done {
    fn from(written: Written) -> Self {
        match written {
            Written::Changed => Self::Changed,
            // The next pass sees the newer version.
            Written::Same | Written::Conflict => Self::Same,
        }
    }
}

impl World {
    /// Carries actions out until a crash, if one comes; says whether anything changed.
    pub fn carry_out(&mut self, actions: Vec<Action>) -> bool {
        let mut changed = false;
        for action in actions {
            let key = action_key(&action);
            let waits = self
                .memory
                .failed
                .get(&key)
                .is_some_and(|(until, _)| *until > self.now);
            if waits {
                continue;
            }
            let fate = self
                .faults
                .as_mut()
                .map_or(Fate::Done, |faults| faults.fate(&action));
            if fate == Fate::CrashBefore {
                self.say("the controllers are killed".to_owned());
                self.crash();
                return false;
            }
            let done = if fate == Fate::Refused {
                Done::Failed
            } else {
                self.act(action)
            };
            if fate == Fate::CrashAfter {
                self.say("the controllers are killed".to_owned());
                self.crash();
                return false;
            }
            match done {
                Done::Changed => {
                    self.statistics.steps += 1;
                    changed = true;
                    self.memory.failed.remove(&key);
                }
                Done::Same => {
                    self.memory.failed.remove(&key);
                }
                Done::Failed => self.back_off(key),
            }
        }
        changed
    }

    fn back_off(&mut self, key: ActionId) {
        let known = self.memory.failed.get(&key);
        let delay = known.map_or(BACKOFF.0, |(_, delay)| BACKOFF.1.min(*delay * 2));
        let gives_up = self
            .faults
            .as_ref()
            .is_some_and(|faults| faults.bugs.has(Bug::GivesUp));
        let delay = if gives_up {
            SignedDuration::from_hours(1_000)
        } else {
            delay
        };
        let until = self.now.checked_add(delay).unwrap_or(self.now);
        self.memory.failed.insert(key, (until, delay));
    }

    fn act(&mut self, action: Action) -> Done {
        match action {
            Action::Launch { claim, options } => self.begin_launch(&claim, options),
            Action::Terminate { provider_id } => {
                if !self.cloud.terminate(&provider_id, self.now) {
                    return Done::Same;
                }
                self.statistics.terminated += 1;
                self.at(self.scenario.cloud.terminate.0, Event::Gone(provider_id));
                Done::Changed
            }
            Action::Stop {
                provider_id,
                hibernate,
            } => {
                if !self.cloud.stop(&provider_id, hibernate, self.now) {
                    return Done::Same;
                }
                let (stop, sleep) = self.scenario.cloud.stop;
                self.at(
                    if hibernate { sleep.0 } else { stop.0 },
                    Event::Stopped(provider_id),
                );
                Done::Changed
            }
            Action::Start { provider_id } => self.start(&provider_id),
            Action::ChangeType {
                provider_id,
                instance_type,
            } => self.change_type(&provider_id, &instance_type),
            Action::Evict { pod } => self.evict(&pod),
            Action::DeletePod { pod, .. } => {
                let key = format!("{}/{}", pod.namespace, pod.name);
                match self.objects.pods.get(&key) {
                    Some(known) if known.metadata.uid.as_deref() == Some(&pod.uid) => {
                        self.statistics.forced += 1;
                        self.end_pod(&key);
                        self.pods_changed = true;
                        Done::Changed
                    }
                    _ => Done::Same,
                }
            }
            Action::Announce(event) => {
                if event.reason == "SpareUsed" {
                    self.statistics.spares_used += 1;
                    self.say(format!("spare {}", event.message));
                }
                if event.is_warning && event.reason == "InsufficientCapacityError" {
                    self.say(event.message);
                }
                Done::Same
            }
            action => {
                self.count(&action);
                let written = self.objects.write(&action, self.now);
                if written == Written::Changed {
                    self.tell(&action);
                }
                written.into()
            }
        }
    }

    /// Counts what a write is about to do; one that is refused is decided again, so little is counted twice.
    fn count(&mut self, action: &Action) {
        let pool_of = |world: &Self, claim: &str| {
            let claim = world.objects.claims.get(claim);
            claim
                .map(|claim| node_pool_of(&claim.metadata).to_owned())
                .unwrap_or_default()
        };
        match action {
            Action::CreateClaim(claim) => {
                let pool = node_pool_of(&claim.metadata);
                self.statistics.count(Counter::ClaimCreated, pool, "");
            }
            Action::DeleteClaim { target, reason } => {
                let pool = pool_of(self, &target.name);
                self.statistics.count(Counter::ClaimDisrupted, &pool, reason);
            }
            Action::PatchClaim {
                target,
                finalizers: Some(list),
                ..
            } if list.is_empty() => {
                let pool = pool_of(self, &target.name);
                self.statistics.count(Counter::ClaimTerminated, &pool, "");
            }
            Action::PatchNode { target, change } if change.labels.contains_key(karpenter::REGISTERED) => {
                let pool = pool_of(self, &target.name);
                self.statistics.count(Counter::NodeCreated, &pool, "");
            }
            _ => {}
        }
    }

    /// What is worth a line, and what steering and the scheduler have to look at.
    fn tell(&mut self, action: &Action) {
        match action {
            Action::CreateClaim(_) => {
                self.claims_changed = true;
                self.statistics.claims += 1;
            }
            Action::DeleteClaim { target, reason } => {
                let claim = self.objects.claims.get(&target.name);
                let pool = claim
                    .map(|claim| node_pool_of(&claim.metadata).to_owned())
                    .unwrap_or_default();
                let type_ = claim
                    .and_then(|claim| veneer_engine::plan::label(&claim.metadata, kubernetes::INSTANCE_TYPE))
                    .unwrap_or("a claim")
                    .to_owned();
                self.claims_changed = true;
                *self.statistics.deleted.entry((*reason).to_owned()).or_default() += 1;
                self.say(format!("{pool}: {type_} goes ({})", reason.replace('_', " ")));
            }
            Action::PatchNode { .. } | Action::DeleteNode { .. } => self.pods_changed = true,
            _ => {}
        }
    }

    fn evict(&mut self, target: &Target) -> Done {
        let key = format!("{}/{}", target.namespace, target.name);
        let Some(pod) = self.objects.pods.get(&key) else {
            return Done::Same;
        };
        if pod.metadata.uid.as_deref() != Some(&target.uid) || pod.metadata.deletion_timestamp.is_some() {
            return Done::Same;
        }
        if let Err(why) = self.objects.may_evict(pod) {
            self.statistics.refused_evictions += 1;
            self.say(format!("{key} stays: {why}"));
            return Done::Failed;
        }
        debug_assert_eq!(key, pod_key(pod));
        self.statistics.evictions += 1;
        self.end_pod(&key);
        self.pods_changed = true;
        Done::Changed
    }

    fn begin_launch(&mut self, claim: &Arc<NodeClaim>, options: Vec<LaunchOption>) -> Done {
        if !self.memory.launching.insert(name(&claim.metadata).to_owned()) {
            return Done::Same;
        }
        let event = Event::LaunchDone(Arc::clone(claim), options, self.epoch);
        self.at(self.scenario.cloud.launch.0, event);
        Done::Changed
    }

    /// As the Kubernetes driver handles a message of the queue: the claim goes while there is time to drain its node, and what EC2
    /// takes back is not to be had for a while.
    pub(crate) fn notice(&mut self, id: &str) -> bool {
        let mut claims = self.objects.claims.values();
        let claim = claims.find(|claim| provider_id(claim) == Some(id)).cloned();
        let Some(claim) = claim.filter(|claim| !is_deleting(&claim.metadata)) else {
            return false;
        };
        let of = |key: &str| label(&claim.metadata, key).unwrap_or_default().to_owned();
        let shortage = Shortage {
            instance_type: of(kubernetes::INSTANCE_TYPE),
            capacity_type: karpenter::CAPACITY_TYPE_SPOT.to_owned(),
            zone: of(kubernetes::ZONE),
        };
        let until = self.now.checked_add(SHORTAGE).unwrap_or(Timestamp::MAX);
        self.memory.shortages.insert(shortage, until);
        let action = Action::DeleteClaim {
            target: Target::from(&claim.metadata),
            reason: "spot_interrupted",
        };
        self.count(&action);
        if self.objects.write(&action, self.now) == Written::Changed {
            self.tell(&action);
        }
        true
    }

    /// What is short is remembered, so that the next decision takes another type.
    fn start(&mut self, id: &str) -> Done {
        match self.cloud.start(id, self.now) {
            Ok(false) => Done::Same,
            Ok(true) => {
                let hibernated = self.cloud.machines.get(id).is_some_and(|one| one.hibernates);
                let (stopped, asleep) = self.scenario.cloud.start;
                let after = if hibernated { asleep.0 } else { stopped.0 };
                self.say(format!("a stopped spare starts ({id})"));
                self.at(after, Event::Joins(id.to_owned()));
                Done::Changed
            }
            Err(shortage) => {
                let until = self.now.checked_add(SHORTAGE).unwrap_or(Timestamp::MAX);
                self.memory.shortages.insert(shortage, until);
                self.statistics.insufficient += 1;
                Done::Failed
            }
        }
    }

    fn change_type(&mut self, id: &str, instance_type: &str) -> Done {
        let known = self
            .catalogue
            .types
            .iter()
            .find(|one| &*one.name == instance_type);
        let (Some(known), Some(machine)) = (known, self.cloud.machines.get_mut(id)) else {
            return Done::Failed;
        };
        if machine.state != State::Stopped {
            return Done::Failed;
        }
        machine.instance_type = instance_type.to_owned();
        machine.described.capacity = api_list(&known.capacity);
        machine.described.allocatable = api_list(&known.allocatable());
        let labels = &mut machine.described.labels;
        labels.insert(kubernetes::INSTANCE_TYPE.to_owned(), instance_type.to_owned());
        if let Some(price) = self.prices.get(instance_type) {
            machine.price = price;
        }
        let mut claims = self.objects.claims.values();
        let claim = claims.find(|claim| provider_id(claim) == Some(id)).cloned();
        self.say(format!("a stopped spare becomes {instance_type}"));
        claim.map_or(Done::Same, |claim| {
            self.objects
                .write(&after_change_type(&claim, instance_type), self.now)
                .into()
        })
    }

    /// The cloud's answer. The instance is there whoever asked for it; only those who asked and still live write it down.
    pub(crate) fn launched(&mut self, claim: &Arc<NodeClaim>, options: &[LaunchOption], epoch: u64) {
        let claim_name = name(&claim.metadata).to_owned();
        let is_heard = epoch == self.epoch;
        if is_heard {
            self.is_answered(&claim_name);
        }
        let mut token = true;
        if let Some(faults) = &mut self.faults {
            token = !faults.bugs.has(Bug::ForgetsToken);
            if let Some(why) = faults.launch_fails() {
                if is_heard {
                    let failed = launch_failed(claim, "LaunchFailed", &why, self.now);
                    self.objects.write(&failed, self.now);
                    self.back_off(ActionId::launch(&claim_name));
                }
                return;
            }
        }
        let known = self.cloud.machines.len();
        let target = Target::from(&claim.metadata);
        let is_new = self.cloud.of_claim(&claim_name).is_none();
        let now = self.now;
        let faults = self.faults.as_mut().filter(|_| is_new);
        let launched = if faults.is_some_and(|faults| faults.fleet_is_short(now)) {
            Err(options.first().map(shortage_of).into_iter().collect())
        } else {
            self.cloud.launch(&claim_name, options, token, now)
        };
        match launched {
            Ok(machine) => {
                let launched = machine.described.clone();
                let line = format!(
                    "{}: {} {} in {} at ${:.4}/h",
                    node_pool_of(&claim.metadata),
                    machine.capacity_type,
                    machine.instance_type,
                    machine.zone,
                    machine.price
                );
                if self.cloud.machines.len() > known {
                    self.statistics.launched(&launched.labels);
                    self.say(line);
                    self.at(self.boot(&claim_name), Event::Joins(launched.provider_id.clone()));
                }
                let answer = self.faults.as_mut().map_or(Fate::Done, Fate::of_answer);
                if answer != Fate::Done {
                    self.crash();
                    return;
                }
                if is_heard {
                    if let Some(machine) = self.cloud.machines.get_mut(&launched.provider_id) {
                        machine.heard = true;
                    }
                    for action in after_launch(claim, &launched, self.now) {
                        self.objects.write(&action, self.now);
                    }
                    self.claims_changed = true;
                }
            }
            Err(shortages) => {
                self.statistics.insufficient += 1;
                let first = options.first();
                let what =
                    first.map(|one| format!("{} {} {}", one.instance_type, one.capacity_type, one.zone));
                self.say(format!(
                    "{}: no capacity for {}",
                    node_pool_of(&claim.metadata),
                    what.unwrap_or_default()
                ));
                if is_heard {
                    let until = self.now.checked_add(SHORTAGE).unwrap_or(Timestamp::MAX);
                    let shortages = shortages.into_iter().map(|one| (one, until));
                    self.memory.shortages.extend(shortages);
                    let reason = "insufficient_capacity";
                    self.objects
                        .write(&Action::DeleteClaim { target, reason }, self.now);
                    self.objects.generation += 1;
                }
            }
        }
    }

    fn boot(&self, claim: &str) -> SignedDuration {
        let (shortest, longest) = self.scenario.cloud.boot;
        let spread = u64::try_from((longest.0 - shortest.0).as_secs()).unwrap_or_default();
        // A grid of five seconds: nodes of one batch join together.
        let more = Rng::of(self.seed, &["boot", claim]).below(spread / 5 + 1) * 5;
        shortest.0 + SignedDuration::from_secs(i64::try_from(more).unwrap_or_default())
    }
}

fn shortage_of(option: &LaunchOption) -> Shortage {
    Shortage {
        instance_type: option.instance_type.clone(),
        capacity_type: option.capacity_type.clone(),
        zone: option.zone.clone(),
    }
}

/// What an action is known by, so that it is neither started twice nor repeated too soon after it failed.
fn action_key(action: &Action) -> ActionId {
    match action {
        // Each by itself: what fails here fails by chance, not for its pool.
        Action::CreateClaim(claim) => ActionId::of(Verb::CreateClaim, name(&claim.metadata)),
        action => action.id(),
    }
}

/// The architecture and the capacity type in a node's labels.
pub(crate) fn kind_of(labels: &std::collections::BTreeMap<String, String>) -> (String, String) {
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    (label("kubernetes.io/arch"), label(karpenter::CAPACITY_TYPE))
}
