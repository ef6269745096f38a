//! What happens by itself: load, pods that come and end, nodes that join, instances that are taken back, the script.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, PodCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::SignedDuration;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{is_daemon_pod, is_deleting};
use veneer_steering::cycle::Cycle;
use veneer_steering::machines::Prices;

use crate::cloud::State;
use crate::manifests;
use crate::objects::{node_of, whole};
use crate::rng::Rng;
use crate::scenario::{Interrupt, PriceChange};
use crate::workloads;
use crate::world::{Event, World};

/// How long a pod takes to leave.
const LEAVES: SignedDuration = SignedDuration::from_secs(3);
/// How long before its end a spot instance is told.
const NOTICE: SignedDuration = SignedDuration::from_secs(120);

impl World {
    /// The load of the interval that begins now; says whether it is another one.
    pub(crate) fn load(&mut self) -> bool {
        let scenario = Arc::clone(&self.scenario);
        let before = self.objects.version();
        let interval = scenario.load_interval.0;
        self.at(interval, Event::Load);
        for (number, workload) in scenario.workloads.iter().enumerate() {
            if let Some(replicas) = &workload.replicas {
                let scaled = self
                    .scaled
                    .get(&workload.name)
                    .filter(|(_, until)| *until > self.now);
                let target = match scaled {
                    Some((count, _)) => *count,
                    None => {
                        let times = (scenario.start, self.now);
                        workloads::wanted(replicas, &workload.name, self.seed, times)
                    }
                };
                self.targets.insert(number, target);
                self.reconcile(number);
            }
            if let Some(jobs) = &workload.jobs {
                for (after, runs) in workloads::arrivals(jobs, &workload.name, self.seed, self.now, interval)
                {
                    self.at(after, Event::Arrive(number, runs));
                }
            }
        }
        self.spot_market(interval);
        self.objects.version() != before
    }

    /// Interrupts as many spot instances as the interval usually takes.
    fn spot_market(&mut self, interval: SignedDuration) {
        let rate = self.scenario.cloud.spot_interruptions_per_hour;
        let is_calm = self.faults.as_ref().is_some_and(|faults| faults.calm);
        if rate <= 0.0 || is_calm {
            return;
        }
        let chance = 1.0 - (-rate * interval.as_secs_f64() / 3600.0).exp();
        let second = self.now.as_second().to_string();
        let seed = self.seed;
        let machines = self.cloud.machines.values();
        let unlucky: Vec<String> = machines
            .filter(|machine| machine.is_spot() && machine.state == State::Running && !machine.interrupted)
            .filter(|machine| Rng::of(seed, &["spot", &machine.id, &second]).chance(chance))
            .map(|machine| machine.id.clone())
            .collect();
        self.interrupt(&unlucky);
    }

    fn interrupt(&mut self, ids: &[String]) {
        for id in ids {
            let Some(machine) = self.cloud.machines.get_mut(id) else {
                continue;
            };
            machine.interrupted = true;
            let line = format!(
                "EC2 takes spot {} {} back in 2 minutes",
                machine.instance_type, machine.zone
            );
            self.statistics.interruptions += 1;
            self.say(line);
            self.at(NOTICE, Event::Gone(id.clone()));
            let delays = self.faults.as_mut().map_or_else(
                || vec![SignedDuration::from_secs(1)],
                |faults| faults.deliveries(),
            );
            for delay in delays {
                self.at(delay, Event::Notice(id.clone()));
            }
        }
    }

    /// As many pods as the workload shall have: new ones, or fewer of the newest.
    pub(crate) fn reconcile(&mut self, workload: usize) {
        let target =
            usize::try_from(self.targets.get(&workload).copied().unwrap_or_default()).unwrap_or_default();
        let live = self.live.entry(workload).or_default();
        if live.len() < target {
            for _ in live.len()..target {
                self.create_pod(workload, None);
            }
            return;
        }
        let excess = live.len() - target;
        if excess == 0 {
            return;
        }
        let mut surplus: Vec<String> = live.iter().cloned().collect();
        // As a ReplicaSet does: those without a node first, then the newest.
        surplus.sort_by_key(|key| {
            let pod = self.objects.pods.get(key);
            let on_node = pod.is_some_and(|pod| node_of(pod).is_some());
            let created = pod.and_then(|pod| pod.metadata.creation_timestamp.clone());
            (on_node, std::cmp::Reverse(created), key.clone())
        });
        surplus.truncate(excess);
        // Each of them that ends looks whether the workload has its number.
        live.retain(|key| !surplus.contains(key));
        for key in surplus {
            self.end_pod(&key);
        }
    }

    pub(crate) fn create_pod(&mut self, workload: usize, runs: Option<SignedDuration>) {
        let scenario = Arc::clone(&self.scenario);
        let Some(spec) = scenario.workloads.get(workload) else {
            return;
        };
        let number = self.numbers.entry(workload).or_default();
        *number += 1;
        let mut pod = workloads::pod(spec, *number);
        if let Some(runs) = runs {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert("world/runs".to_owned(), runs.as_secs().to_string());
        }
        let key = self.objects.add_pod(pod, self.now);
        self.live.entry(workload).or_default().insert(key);
        self.statistics.pods_created += 1;
        self.pods_changed = true;
    }

    fn workload_of(&self, key: &str) -> Option<usize> {
        let mut live = self.live.iter();
        live.find(|(_, pods)| pods.contains(key))
            .map(|(workload, _)| *workload)
    }

    /// Asks a pod to leave; a Deployment makes another one at once.
    pub(crate) fn end_pod(&mut self, key: &str) {
        let Some(pod) = self.objects.pods.get(key) else {
            return;
        };
        if is_deleting(&pod.metadata) {
            return;
        }
        if let Some(workload) = self.workload_of(key) {
            if let Some(live) = self.live.get_mut(&workload) {
                live.remove(key);
            }
            if self.targets.contains_key(&workload) {
                self.reconcile(workload);
            }
        }
        if node_of(&pod_of(self, key)).is_none() {
            self.objects.remove_pod(key, self.now);
            return;
        }
        let now = self.now;
        self.objects.edit_pod(key, |pod| {
            let grace = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.termination_grace_period_seconds);
            let until = now
                .checked_add(SignedDuration::from_secs(grace.unwrap_or(30)))
                .unwrap_or(now);
            pod.metadata.deletion_timestamp = Some(Time(whole(until)));
        });
        self.at(LEAVES, Event::PodGone(key.to_owned()));
    }

    pub(crate) fn pod_ends(&mut self, key: &str) -> bool {
        if let Some(workload) = self.workload_of(key)
            && let Some(live) = self.live.get_mut(&workload)
        {
            live.remove(key);
        }
        self.pod_gone(key)
    }

    pub(crate) fn pod_gone(&mut self, key: &str) -> bool {
        let gone = self.objects.remove_pod(key, self.now).is_some();
        self.pods_changed |= gone;
        gone
    }

    /// Pods whose node vanished under them: a Deployment replaces them.
    fn lose_pods(&mut self, pods: Vec<String>) {
        for key in pods {
            let is_daemon = self.objects.pods.get(&key).is_some_and(|pod| is_daemon_pod(pod));
            self.objects.remove_pod(&key, self.now);
            if is_daemon {
                continue;
            }
            if let Some(workload) = self.workload_of(&key) {
                if let Some(live) = self.live.get_mut(&workload) {
                    live.remove(&key);
                }
                if self.targets.contains_key(&workload) {
                    self.reconcile(workload);
                }
            }
        }
        self.pods_changed = true;
    }

    /// Removes pods of nodes that are no more.
    pub(crate) fn collect_pods(&mut self) {
        let nodes = &self.objects.nodes;
        let gone = self
            .objects
            .by_node
            .keys()
            .filter(|node| !nodes.contains_key(*node));
        let gone: Vec<String> = gone.cloned().collect();
        for node in gone {
            self.with_daemons.remove(&node);
            let pods = self.objects.remove_node(&node);
            self.lose_pods(pods);
        }
    }

    pub(crate) fn joins(&mut self, id: &str) -> bool {
        let Some(machine) = self
            .cloud
            .machines
            .get(id)
            .filter(|one| one.state == State::Running)
        else {
            return false;
        };
        if self.objects.nodes.contains_key(&machine.claim) {
            return false;
        }
        let wait = self.scenario.cloud.ready.0;
        let is_ready = if wait > SignedDuration::ZERO {
            "False"
        } else {
            "True"
        };
        let mut labels = machine.described.labels.clone();
        labels.insert(kubernetes::HOSTNAME.to_owned(), machine.claim.clone());
        let node = Node {
            metadata: ObjectMeta {
                name: Some(machine.claim.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: Some(id.to_owned()),
                taints: Some(vec![Taint {
                    key: karpenter::UNREGISTERED_TAINT.to_owned(),
                    effect: "NoExecute".to_owned(),
                    ..Taint::default()
                }]),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(machine.described.capacity.clone()),
                allocatable: Some(machine.described.allocatable.clone()),
                conditions: Some(vec![ready(is_ready)]),
                ..NodeStatus::default()
            }),
        };
        self.objects.add_node(node, self.now);
        if wait > SignedDuration::ZERO {
            self.at(wait, Event::Ready(id.to_owned()));
        }
        true
    }

    /// The network and everything else that a new node needs is there.
    pub(crate) fn node_ready(&mut self, id: &str) -> bool {
        let machine = self.cloud.machines.get(id);
        let Some(machine) = machine.filter(|one| one.state == State::Running) else {
            return false;
        };
        let node = machine.claim.clone();
        self.objects.edit_node(&node, |node| {
            node.status.get_or_insert_default().conditions = Some(vec![ready("True")]);
        });
        self.pods_changed = true;
        true
    }

    pub(crate) fn instance_gone(&mut self, id: &str) -> bool {
        let Some(machine) = self.cloud.remove(id, self.now) else {
            return false;
        };
        let node = self.objects.nodes.get(&machine.claim);
        let is_its = node
            .is_some_and(|node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(id));
        if is_its {
            let pods = self.objects.by_node.remove(&machine.claim).unwrap_or_default();
            self.lose_pods(pods.into_iter().collect());
            self.objects.edit_node(&machine.claim, |node| {
                node.status.get_or_insert_default().conditions = Some(vec![ready("False")]);
            });
            let released = self.objects.nodes.get(&machine.claim);
            let is_free =
                released.is_some_and(|node| node.metadata.finalizers.iter().flatten().next().is_none());
            if is_free {
                self.objects.remove_node(&machine.claim);
            }
            self.with_daemons.remove(&machine.claim);
        }
        true
    }

    /// The kubelet of a stopped instance is silent.
    pub(crate) fn instance_stopped(&mut self, id: &str) -> bool {
        let Some(machine) = self.cloud.stopped(id) else {
            return false;
        };
        let node = machine.claim.clone();
        self.objects.edit_node(&node, |node| {
            node.status.get_or_insert_default().conditions = Some(vec![ready("False")]);
        });
        true
    }

    /// The scheduler's turn: daemons on new nodes, then pods without a node.
    pub(crate) fn bind_pods(&mut self) -> bool {
        self.collect_pods();
        let mut changed = self.start_daemons();
        let is_due = self.scheduler.look_again().is_some_and(|at| at <= self.now);
        if !self.pods_changed && !is_due {
            return changed;
        }
        let pods_changed = std::mem::take(&mut self.pods_changed);
        let bindings = self.scheduler.schedule(&self.objects, self.now, pods_changed);
        for key in &bindings.taken_back {
            self.objects.take_nomination_back(key);
            self.say(format!(
                "{key} fits nowhere; the scheduler takes its nomination back"
            ));
            changed = true;
        }
        for (key, node) in &bindings.bound {
            self.objects.bind(key, node, self.now);
            let pod = pod_of(self, key);
            let created = pod
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(self.now, |time| time.0);
            self.statistics.bound(self.now.duration_since(created));
            let runs = pod
                .metadata
                .annotations
                .as_ref()
                .and_then(|list| list.get("world/runs"));
            if let Some(runs) = runs.and_then(|text| text.parse().ok()) {
                self.at(SignedDuration::from_secs(runs), Event::PodEnds(key.clone()));
            }
            changed = true;
        }
        let now = self.now;
        for key in &bindings.refused {
            let known = pod_of(self, key);
            let conditions = known
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_ref());
            if conditions.is_some_and(|list| !list.is_empty()) {
                continue;
            }
            self.objects.edit_pod(key, |pod| {
                pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
                    type_: "PodScheduled".to_owned(),
                    status: "False".to_owned(),
                    reason: Some("Unschedulable".to_owned()),
                    last_transition_time: Some(Time(whole(now))),
                    ..PodCondition::default()
                }]);
            });
            changed = true;
        }
        changed
    }

    fn start_daemons(&mut self) -> bool {
        let fresh: Vec<Arc<Node>> = self
            .objects
            .nodes
            .iter()
            .filter(|(name, node)| !self.with_daemons.contains(*name) && workloads::takes_daemons(node))
            .map(|(_, node)| Arc::clone(node))
            .collect();
        let sets: Vec<_> = self.objects.daemon_sets.values().cloned().collect();
        for node in &fresh {
            let name = node.metadata.name.clone().unwrap_or_default();
            for set in &sets {
                if let Some(pod) = workloads::daemon(set, node) {
                    self.objects.add_pod(pod, self.now);
                }
            }
            self.with_daemons.insert(name);
            self.pods_changed = true;
        }
        !fresh.is_empty()
    }

    /// What the scenario says about this moment.
    pub(crate) fn script(&mut self, number: usize) -> bool {
        let scenario = Arc::clone(&self.scenario);
        let Some(event) = scenario.events.get(number) else {
            return false;
        };
        for manifest in &event.apply {
            match manifests::apply(&mut self.objects, manifest, self.now) {
                Ok(applied) => self.say(format!("{} {}", applied.object, applied.outcome)),
                Err(error) => self.say(format!("refused: {error}")),
            }
        }
        for object in &event.delete {
            match manifests::delete(&mut self.objects, object, self.now) {
                Ok(applied) => self.say(format!("{} deleted", applied.object)),
                Err(error) => self.say(format!("refused: {error}")),
            }
        }
        if let Some(scale) = &event.scale {
            let until = self.now.checked_add(scale.lasts.0).unwrap_or(self.now);
            self.say(format!(
                "{} is scaled to {} pods for {}",
                scale.workload, scale.replicas, scale.lasts
            ));
            self.scaled
                .insert(scale.workload.clone(), (scale.replicas, until));
            let workload = scenario
                .workloads
                .iter()
                .position(|one| one.name == scale.workload);
            if let Some(workload) = workload {
                self.targets.insert(workload, scale.replicas);
                self.reconcile(workload);
            }
        }
        if let Some(outage) = &event.shortage {
            let until = self.now.checked_add(outage.lasts.0).unwrap_or(self.now);
            self.say(format!(
                "EC2 has no {} for {}",
                described(&outage.of),
                outage.lasts
            ));
            self.cloud.outage(outage.of.clone(), until);
        }
        if let Some(interrupt) = &event.interrupt {
            self.interrupt_share(interrupt);
        }
        if let Some(change) = &event.price {
            self.change_prices(change);
        }
        if let Some(gap) = event.prometheus_gap {
            self.gap_until = self.now.checked_add(gap.0).ok();
            self.say(format!("Prometheus does not answer for {gap}"));
        }
        self.claims_changed = true;
        true
    }

    fn interrupt_share(&mut self, interrupt: &Interrupt) {
        let machines = self.cloud.machines.values();
        let mut ids: Vec<String> = machines
            .filter(|one| one.is_spot() && one.state == State::Running && !one.interrupted)
            .filter(|one| {
                interrupt
                    .of
                    .matches(&one.instance_type, &one.capacity_type, &one.zone)
            })
            .map(|one| one.id.clone())
            .collect();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a small number"
        )]
        let count = (ids.len() as f64 * interrupt.share.clamp(0.0, 1.0)).ceil() as usize;
        ids.truncate(count);
        self.interrupt(&ids);
    }

    fn change_prices(&mut self, change: &PriceChange) {
        let mut catalogue = Catalogue::clone(&self.catalogue);
        for it in &mut catalogue.types {
            for offering in &mut it.offerings {
                let capacity_type = offering.capacity_type(&catalogue.vocabulary).unwrap_or_default();
                let zone = offering.zone(&catalogue.vocabulary).unwrap_or_default();
                if change.of.matches(&it.name, capacity_type, zone) {
                    offering.price *= change.factor;
                }
            }
        }
        for machine in self.cloud.machines.values_mut() {
            if change
                .of
                .matches(&machine.instance_type, &machine.capacity_type, &machine.zone)
            {
                machine.price *= change.factor;
            }
        }
        self.catalogue = Arc::new(catalogue);
        self.prices = Prices::of(&self.catalogue);
        // A new catalogue is a new market; what the cycle remembered beside it may be forgotten.
        self.cycle = Cycle::new(Arc::clone(&self.catalogue), self.rules.clone());
        self.ask();
        self.objects.generation += 1;
        self.say(format!(
            "prices of {} change by a factor of {}",
            described(&change.of),
            change.factor
        ));
    }
}

fn pod_of(world: &World, key: &str) -> Arc<veneer_api::Pod> {
    world.objects.pods.get(key).cloned().unwrap_or_default()
}

fn ready(status: &str) -> NodeCondition {
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    }
}

fn described(offer: &crate::scenario::Offer) -> String {
    let parts = [&offer.instance_type, &offer.capacity_type, &offer.zone];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    if parts.is_empty() {
        "instances at all".to_owned()
    } else {
        parts.join(" ")
    }
}
