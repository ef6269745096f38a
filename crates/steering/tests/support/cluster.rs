//! A cluster in memory that carries out what a [`Cycle`] decides, with a scheduler that binds pods to open nodes.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::{NodeClaim, NodePool, Overprovisioner, OverprovisionerStatus};
use veneer_engine::disruption;
use veneer_engine::lifecycle::{Launched, Policy, after_change_type, after_launch};
use veneer_engine::plan::{
    Action, Announcement, Instance, InstanceState, NodeClass, Plan, Shortage, Snapshot, Target, is_deleting,
    is_spare, is_used_spare, label, merged_pool_status, name,
};
use veneer_engine::provision::{LaunchOption, Window};
use veneer_steering::cycle::{Cycle, Rules};

#[path = "market.rs"]
mod market;
#[path = "scheduler.rs"]
mod scheduler;

pub(crate) use market::{catalogue, nanos};
pub(crate) use scheduler::Refused;
use scheduler::takes;

pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) cycle: Cycle,
    pub(crate) now: Timestamp,
    pub(crate) events: Vec<Announcement>,
    /// Names of claims that were ever created.
    pub(crate) created: Vec<String>,
    /// Calls to the provider beside launches, in order.
    pub(crate) calls: Vec<String>,
    /// Types that cannot be started.
    pub(crate) short: Vec<String>,
    /// Whether instances join when they run.
    pub(crate) joins: bool,
    /// Nodes that the scheduler refuses for reasons of its own.
    pub(crate) refused_nodes: Refused,
    versions: u64,
    world: u64,
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Nothing is waited for.
fn rules() -> Rules {
    Rules {
        window: Window {
            idle: SignedDuration::ZERO,
            max: SignedDuration::ZERO,
            retry: SignedDuration::from_secs(10),
        },
        policy: Policy {
            min_drain: SignedDuration::ZERO,
            ..Policy::default()
        },
        disruption: disruption::Policy {
            validation: SignedDuration::ZERO,
            ..disruption::Policy::default()
        },
    }
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let mut cluster = Self {
            snapshot: Snapshot::default(),
            cycle: Cycle::new(catalogue(), rules()),
            now: "2026-01-05T00:00:00Z".parse().unwrap(),
            events: Vec::new(),
            created: Vec::new(),
            calls: Vec::new(),
            short: Vec::new(),
            joins: true,
            refused_nodes: Refused::default(),
            versions: 0,
            world: 0,
        };
        cluster.snapshot.node_classes.push(NodeClass {
            group: "karpenter.kwok.sh".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            name: "default".to_owned(),
            not_ready: None,
            is_deleting: false,
        });
        cluster
    }

    /// With one pool named `default` of on-demand and spot nodes that nobody consolidates.
    pub(crate) fn with_pool() -> Self {
        let mut cluster = Self::new();
        cluster.pool("default", |_| {});
        cluster
    }

    /// As a new process that knows nothing.
    pub(crate) fn reset_cycle(&mut self) {
        self.cycle = Cycle::new(catalogue(), rules());
    }

    /// From now on, pods are waited for as usual before anything is launched for them.
    pub(crate) fn wait_for_pods(&mut self) {
        self.cycle = Cycle::new(catalogue(), Rules::default());
    }

    pub(crate) fn pool(&mut self, pool: &str, change: impl FnOnce(&mut NodePool)) {
        let mut object: NodePool = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": pool, "uid": format!("uid-{pool}"), "generation": 1},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"]}],
                "expireAfter": "Never"}},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s",
                    "budgets": [{"nodes": "100%"}]}},
        }))
        .unwrap();
        change(&mut object);
        self.snapshot.node_pools.push(Arc::new(object));
        self.snapshot
            .node_pools
            .sort_by_key(|one| one.metadata.name.clone());
    }

    pub(crate) fn edit_pool(&mut self, pool: &str, change: impl FnOnce(&mut NodePool)) {
        let pools = self.snapshot.node_pools.iter_mut();
        let found = pools.into_iter().find(|one| name(&one.metadata) == pool).unwrap();
        change(Arc::make_mut(found));
        self.world += 1;
    }

    /// Makes an Overprovisioner, or changes its spec.
    pub(crate) fn overprovisioner(&mut self, named: &str, spec: Value) {
        self.versions += 1;
        let object: Overprovisioner = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner",
            "metadata": {"name": named, "uid": format!("uid-{named}"), "generation": self.versions,
                "resourceVersion": self.versions.to_string()},
            "spec": spec,
        }))
        .unwrap();
        let known = self.snapshot.overprovisioners.iter_mut();
        match known.into_iter().find(|one| name(&one.metadata) == named) {
            Some(known) => {
                let known = Arc::make_mut(known);
                known.spec = object.spec;
                known.metadata = object.metadata;
            }
            None => self.snapshot.overprovisioners.push(Arc::new(object)),
        }
        self.snapshot
            .overprovisioners
            .sort_by_key(|one| one.metadata.name.clone());
    }

    pub(crate) fn status(&self, named: &str) -> OverprovisionerStatus {
        let all = self.snapshot.overprovisioners.iter();
        let one = all.into_iter().find(|one| name(&one.metadata) == named).unwrap();
        one.status.clone().unwrap_or_default()
    }

    /// A condition as `status reason message`.
    pub(crate) fn condition(&self, named: &str, type_: &str) -> String {
        let status = self.status(named);
        let found = veneer_api::find_condition(&status.conditions, type_).unwrap();
        format!("{} {} {}", found.status, found.reason, found.message)
    }

    /// A pod that the scheduler could not place.
    pub(crate) fn pod(&mut self, pod: &str, cpu: &str) {
        self.pod_with(pod, cpu, json!({}));
    }

    pub(crate) fn pod_with(&mut self, pod: &str, cpu: &str, more: Value) {
        let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.snapshot.pods.push(read(json!({
            "metadata": {"name": pod, "namespace": "default", "uid": format!("uid-{pod}")},
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        })));
    }

    pub(crate) fn remove_pod(&mut self, pod: &str) {
        self.snapshot.pods.retain(|one| name(&one.metadata) != pod);
    }

    pub(crate) fn node_of(&self, pod: &str) -> Option<String> {
        let pods = self.snapshot.pods.iter();
        let pod = pods.into_iter().find(|one| name(&one.metadata) == pod)?;
        pod.spec.as_ref()?.node_name.clone()
    }

    pub(crate) fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(crate) fn decide(&mut self) -> Plan {
        self.snapshot
            .pods
            .sort_by_key(|one| (one.metadata.namespace.clone(), one.metadata.name.clone()));
        // Two looks are never at the same moment.
        self.now += SignedDuration::from_millis(1);
        self.cycle.pass(&mut self.snapshot, self.world, self.now).plan
    }

    /// Decides and acts until nothing is left to do at this moment; pods are bound in between.
    pub(crate) fn settle(&mut self) {
        for _ in 0..300 {
            let plan = self.decide();
            let is_idle = plan
                .actions
                .iter()
                .all(|action| matches!(action, Action::Announce(_) | Action::Evict { .. }));
            plan.actions.into_iter().for_each(|action| self.act(action));
            let bound = self.schedule();
            if is_idle && bound == 0 {
                return;
            }
        }
        let left = self.decide().actions;
        panic!(
            "never settles: {:?}",
            left.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
    }

    /// Binds pending pods to the first open node with room; says how many.
    pub(crate) fn schedule(&mut self) -> usize {
        let mut bound = 0;
        for at in 0..self.snapshot.pods.len() {
            let pod = &self.snapshot.pods[at];
            if pod.spec.as_ref().unwrap().node_name.is_some() {
                continue;
            }
            let node = self.snapshot.nodes.iter().find(|node| takes(self, node, pod));
            if let Some(node) = node.map(|node| name(&node.metadata).to_owned()) {
                let pod = Arc::make_mut(&mut self.snapshot.pods[at]);
                pod.spec.as_mut().unwrap().node_name = Some(node);
                pod.status.as_mut().unwrap().phase = Some("Running".to_owned());
                bound += 1;
            }
        }
        bound
    }

    /// The empty spares of an Overprovisioner, by name.
    pub(crate) fn spares(&self, owner: &str) -> Vec<Arc<NodeClaim>> {
        self.claims(|claim| {
            is_spare(&claim.metadata) && label(&claim.metadata, veneer::OVERPROVISIONER) == Some(owner)
        })
    }

    pub(crate) fn used(&self, owner: &str) -> Vec<Arc<NodeClaim>> {
        self.claims(|claim| {
            is_used_spare(&claim.metadata) && label(&claim.metadata, veneer::OVERPROVISIONER) == Some(owner)
        })
    }

    pub(crate) fn claims(&self, which: impl Fn(&NodeClaim) -> bool) -> Vec<Arc<NodeClaim>> {
        let claims = self.snapshot.node_claims.iter();
        claims
            .filter(|claim| !is_deleting(&claim.metadata) && which(claim))
            .cloned()
            .collect()
    }

    pub(crate) fn node(&self, named: &str) -> Arc<Node> {
        let nodes = self.snapshot.nodes.iter();
        let found = nodes.into_iter().find(|node| name(&node.metadata) == named);
        Arc::clone(found.unwrap_or_else(|| panic!("no node {named}")))
    }

    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.reason).collect()
    }

    fn meta(&mut self, metadata: &mut ObjectMeta) {
        self.versions += 1;
        metadata.resource_version = Some(self.versions.to_string());
    }

    fn is_current(metadata: &ObjectMeta, target: &Target) -> bool {
        target.resource_version.is_empty()
            || metadata.resource_version.as_deref().unwrap_or_default() == target.resource_version
    }

    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::CreateClaim(mut claim) => {
                let known = self.snapshot.node_claims.iter();
                if known.clone().any(|one| one.metadata.name == claim.metadata.name) {
                    return;
                }
                self.created.push(name(&claim.metadata).to_owned());
                claim.metadata.uid = Some(format!("uid-{}", name(&claim.metadata)));
                claim.metadata.creation_timestamp = Some(Time(self.now));
                self.meta(&mut claim.metadata);
                self.snapshot.node_claims.push(Arc::from(claim));
                self.snapshot
                    .node_claims
                    .sort_by_key(|one| one.metadata.name.clone());
            }
            Action::Launch { claim, options } => self.launch(&claim, &options),
            Action::PatchClaim {
                target,
                labels,
                annotations,
                finalizers,
            } => self.edit_claim(&target, |claim| {
                let metadata = &mut claim.metadata;
                metadata.labels.get_or_insert_default().extend(labels);
                metadata.annotations.get_or_insert_default().extend(annotations);
                if let Some(finalizers) = finalizers {
                    metadata.finalizers = Some(finalizers);
                }
            }),
            Action::ClaimStatus { target, status } => {
                self.edit_claim(&target, |claim| claim.status = Some(*status));
            }
            Action::DeleteClaim { target, reason } => {
                self.calls.push(format!("delete {reason}"));
                let now = self.now;
                self.edit_claim(&target, |claim| {
                    claim.metadata.deletion_timestamp.get_or_insert(Time(now));
                });
            }
            Action::PatchNode { target, change } => self.edit_node(&target, |node| {
                let metadata = &mut node.metadata;
                metadata.labels.get_or_insert_default().extend(change.labels);
                metadata
                    .annotations
                    .get_or_insert_default()
                    .extend(change.annotations);
                if let Some(taints) = change.taints {
                    node.spec.get_or_insert_default().taints = Some(taints);
                }
                if let Some(finalizers) = change.finalizers {
                    node.metadata.finalizers = Some(finalizers);
                }
            }),
            Action::DeleteNode { target } => {
                let now = self.now;
                self.edit_node(&target, |node| {
                    node.metadata.deletion_timestamp.get_or_insert(Time(now));
                });
            }
            Action::Evict { pod } | Action::DeletePod { pod, .. } => {
                self.snapshot.pods.retain(|one| name(&one.metadata) != pod.name);
            }
            Action::Terminate { provider_id } => {
                self.snapshot
                    .instances
                    .retain(|one| one.provider_id != provider_id);
                self.snapshot.nodes.retain(|node| {
                    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                    id != Some(&provider_id) || node.metadata.finalizers.is_some()
                });
            }
            Action::Stop {
                provider_id,
                hibernate,
            } => {
                let does = if hibernate { "hibernate" } else { "stop" };
                self.calls.push(does.to_owned());
                self.set_state(&provider_id, InstanceState::Stopped);
            }
            Action::Start { provider_id } => self.start(&provider_id),
            Action::ChangeType {
                provider_id,
                instance_type,
            } => {
                self.calls.push(format!("change type to {instance_type}"));
                let claim = self.claim_of(&provider_id);
                self.act(after_change_type(&claim, &instance_type));
            }
            Action::OverprovisionerStatus { target, status } => {
                let all = self.snapshot.overprovisioners.iter_mut();
                let one = all.into_iter().find(|one| name(&one.metadata) == target.name);
                Arc::make_mut(one.unwrap()).status = Some(*status);
            }
            Action::PoolStatus { target, status } => {
                self.edit_pool(&target.name, |pool| {
                    pool.status = Some(merged_pool_status(pool.status.take(), &status));
                });
            }
            Action::AnnotatePool { target, annotations } => {
                self.edit_pool(&target.name, |pool| {
                    pool.metadata
                        .annotations
                        .get_or_insert_default()
                        .extend(annotations);
                });
            }
            Action::Nominate { pod, node } => {
                let pods = self.snapshot.pods.iter_mut();
                for known in pods.filter(|known| known.metadata.uid.as_deref() == Some(&pod.uid)) {
                    let annotations = &mut Arc::make_mut(known).metadata.annotations;
                    let annotations = annotations.get_or_insert_default();
                    match &node {
                        Some(node) => annotations.insert(veneer::NOMINATED.to_owned(), node.clone()),
                        None => annotations.remove(veneer::NOMINATED),
                    };
                }
            }
            Action::Announce(event) => self.events.push(event),
        }
    }

    fn claim_of(&self, provider_id: &str) -> Arc<NodeClaim> {
        let claims = self.snapshot.node_claims.iter();
        let found = claims
            .into_iter()
            .find(|claim| veneer_engine::plan::provider_id(claim) == Some(provider_id));
        Arc::clone(found.unwrap())
    }

    fn set_state(&mut self, provider_id: &str, state: InstanceState) {
        let instances = self.snapshot.instances.iter_mut();
        instances
            .filter(|one| one.provider_id == provider_id)
            .for_each(|one| one.state = state);
    }

    fn start(&mut self, provider_id: &str) {
        let claim = self.claim_of(provider_id);
        let of = |key: &str| label(&claim.metadata, key).unwrap_or_default().to_owned();
        let instance_type = of(kubernetes::INSTANCE_TYPE);
        if self.short.contains(&instance_type) {
            self.calls.push(format!("start {instance_type}: short"));
            self.snapshot.shortages.push(Shortage {
                instance_type,
                capacity_type: of(veneer::PURCHASE_OPTION),
                zone: of(kubernetes::ZONE),
            });
            return;
        }
        self.calls.push(format!("start {instance_type}"));
        self.set_state(provider_id, InstanceState::Running);
        let status = claim.status.clone().unwrap();
        if self.joins {
            let mut labels = claim.metadata.labels.clone().unwrap();
            labels.insert(karpenter::CAPACITY_TYPE.to_owned(), of(veneer::PURCHASE_OPTION));
            let (capacity, allocatable) = (json!(status.capacity), json!(status.allocatable));
            self.join(name(&claim.metadata), provider_id, &labels, capacity, allocatable);
        }
    }

    fn join(
        &mut self,
        named: &str,
        id: &str,
        labels: &BTreeMap<String, String>,
        capacity: Value,
        allocatable: Value,
    ) {
        self.versions += 1;
        self.snapshot.nodes.push(read::<Node>(json!({
            "metadata": {"name": named, "uid": format!("uid-node-{named}-{}", self.versions), "labels": labels},
            "spec": {"providerID": id, "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
            "status": {"capacity": capacity, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}]},
        })));
        self.snapshot.nodes.sort_by_key(|one| one.metadata.name.clone());
    }

    fn launch(&mut self, claim: &Arc<NodeClaim>, options: &[LaunchOption]) {
        let option = options.first().unwrap();
        let claim_name = name(&claim.metadata).to_owned();
        let id = format!("test://{claim_name}");
        if !self.snapshot.instances.iter().any(|one| one.provider_id == id) {
            self.snapshot.instances.push(Instance {
                provider_id: id.clone(),
                claim: claim_name.clone(),
                launched: self.now,
                state: InstanceState::Running,
            });
            if self.joins {
                let (capacity, allocatable) = (json!(*option.capacity), json!(*option.allocatable));
                self.join(&claim_name, &id, &option.labels, capacity, allocatable);
            }
        }
        let launched = Launched {
            provider_id: id,
            labels: std::collections::BTreeMap::clone(&option.labels),
            capacity: std::collections::BTreeMap::clone(&option.capacity),
            allocatable: std::collections::BTreeMap::clone(&option.allocatable),
            image_id: None,
            annotations: Default::default(),
        };
        for action in after_launch(claim, &launched, self.now) {
            self.act(action);
        }
    }

    /// Lets instances join that were launched while they could not.
    pub(crate) fn let_join(&mut self) {
        self.joins = true;
        for instance in self.snapshot.instances.clone() {
            let is_there = self.snapshot.nodes.iter().any(|node| {
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                id == Some(&instance.provider_id)
            });
            if !is_there && instance.state == InstanceState::Running {
                let claim = self.claim_of(&instance.provider_id);
                let status = claim.status.clone().unwrap();
                let labels = claim.metadata.labels.clone().unwrap();
                let (capacity, allocatable) = (json!(status.capacity), json!(status.allocatable));
                self.join(
                    name(&claim.metadata),
                    &instance.provider_id,
                    &labels,
                    capacity,
                    allocatable,
                );
            }
        }
    }

    pub(crate) fn edit_claim(&mut self, target: &Target, change: impl FnOnce(&mut NodeClaim)) {
        self.versions += 1;
        let version = self.versions.to_string();
        let claims = &mut self.snapshot.node_claims;
        let Some(at) = claims.iter().position(|one| name(&one.metadata) == target.name) else {
            return;
        };
        let claim = Arc::make_mut(&mut claims[at]);
        if !Self::is_current(&claim.metadata, target) {
            return;
        }
        change(claim);
        claim.metadata.resource_version = Some(version);
        if is_deleting(&claim.metadata) && claim.metadata.finalizers.iter().flatten().next().is_none() {
            claims.remove(at);
        }
    }

    pub(crate) fn edit_node(&mut self, target: &Target, change: impl FnOnce(&mut Node)) {
        self.versions += 1;
        let version = self.versions.to_string();
        let nodes = &mut self.snapshot.nodes;
        let Some(at) = nodes.iter().position(|one| name(&one.metadata) == target.name) else {
            return;
        };
        let node = Arc::make_mut(&mut nodes[at]);
        if !Self::is_current(&node.metadata, target) {
            return;
        }
        change(node);
        node.metadata.resource_version = Some(version);
        if is_deleting(&node.metadata) && node.metadata.finalizers.iter().flatten().next().is_none() {
            nodes.remove(at);
        }
    }
}
