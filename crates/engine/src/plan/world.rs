//! A world in memory that carries plans out, for tests of what decisions lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_api::NodePool;
use veneer_api::Pod;

use super::{
    Action, Announcement, Instance, InstanceState, NodeClass, Plan, Snapshot, Target, is_deleting,
    merged_pool_status, name,
};
use crate::catalogue::kwok;
use crate::cluster::Index;
use crate::disruption;
use crate::lifecycle::{self, Launched, Policy, after_launch};
use crate::packing::Options;
use crate::provision::{self, Market};

pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) market: Market,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
    pub(crate) events: Vec<Announcement>,
    /// Provider ids of instances that were ever launched.
    pub(crate) launched: Vec<String>,
    pub(crate) disruption: disruption::Memory,
    pub(crate) lifecycle: lifecycle::Memory,
    pub(crate) disruption_policy: disruption::Policy,
    /// Whether launched instances join the cluster.
    pub(crate) joins: bool,
    versions: u64,
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Types with 2, 4 and 8 processors in two zones, on demand and spot.
fn catalogue() -> crate::instance_type::Catalogue {
    let offering = |price: f64, capacity: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    let types: Vec<Value> = [("small", 2, 0.1), ("medium", 4, 0.2), ("large", 8, 0.4)]
        .into_iter()
        .map(|(name, cpu, price)| {
            let memory = format!("{}Gi", cpu * 4);
            json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": cpu.to_string(), "memory": memory, "pods": "30"},
            "offerings": [
                offering(price, "on-demand", "zone-a"), offering(price, "on-demand", "zone-b"),
                offering(price * 0.4, "spot", "zone-a"), offering(price * 0.5, "spot", "zone-b"),
            ]})
        })
        .collect();
    kwok::parse(&Value::from(types).to_string(), "test").unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            snapshot: Snapshot::default(),
            market: Market::new(Arc::new(catalogue())),
            policy: Policy::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            events: Vec::new(),
            launched: Vec::new(),
            lifecycle: lifecycle::Memory::default(),
            disruption: disruption::Memory::default(),
            disruption_policy: disruption::Policy {
                validation: SignedDuration::ZERO,
                ..disruption::Policy::default()
            },
            joins: true,
            versions: 0,
        };
        world.snapshot.node_classes.push(NodeClass {
            group: "karpenter.kwok.sh".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            name: "default".to_owned(),
            not_ready: None,
            is_deleting: false,
        });
        world
    }

    pub(crate) fn pool(&mut self, pool: &str, change: impl FnOnce(&mut NodePool)) {
        let mut object: NodePool = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": pool, "uid": format!("uid-{pool}"), "generation": 1},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [], "expireAfter": "Never"}},
                "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}},
        }))
        .unwrap();
        change(&mut object);
        self.snapshot.node_pools.push(Arc::new(object));
    }

    /// A pod that the scheduler could not place.
    pub(crate) fn pod(&mut self, pod: &str, requests: Value) {
        self.snapshot.pods.push(read(json!({
            "metadata": {"name": pod, "namespace": "default", "uid": format!("uid-{pod}")},
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        })));
    }

    pub(crate) fn edit_pod(&mut self, pod: &str, change: impl FnOnce(&mut Pod)) {
        let found = self.snapshot.pods.iter_mut();
        let found = found.into_iter().find(|one| name(&one.metadata) == pod).unwrap();
        change(Arc::make_mut(found));
    }

    /// Puts every pending pod on a node that a claim of its own was made for, as the scheduler would on a ready one.
    pub(crate) fn bind(&mut self, pod: &str, node: &str) {
        self.edit_pod(pod, |pod| {
            pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
            pod.status.as_mut().unwrap().phase = Some("Running".to_owned());
        });
    }

    pub(crate) fn pass_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(crate) fn provision(&mut self) -> provision::Provisioned {
        self.market.update(&self.snapshot);
        provision::decide(&self.snapshot, &mut self.market, &Options::default(), self.now)
    }

    pub(crate) fn lifecycle(&mut self) -> Plan {
        self.market.update(&self.snapshot);
        let index = Index::new(&self.snapshot);
        let mut plan = lifecycle::decide(
            &self.snapshot,
            &index,
            &mut self.market,
            &self.policy,
            &mut self.lifecycle,
            self.now,
        );
        // What is remembered changes nothing.
        let anew = lifecycle::decide(
            &self.snapshot,
            &index,
            &mut self.market,
            &self.policy,
            &mut lifecycle::Memory::default(),
            self.now,
        );
        assert_eq!(format!("{plan:?}"), format!("{anew:?}"));
        plan.extend(provision::decide_pools(
            &self.snapshot,
            &mut self.market,
            self.now,
        ));
        plan.extend(provision::decide_replicas(&self.snapshot, &self.market, self.now));
        plan.extend(self.disrupt().plan);
        plan
    }

    pub(crate) fn disrupt(&mut self) -> disruption::Decision {
        disruption::decide(
            &self.snapshot,
            &mut self.market,
            &self.disruption_policy,
            &mut self.disruption,
            self.now,
        )
    }

    /// Decides and acts until nothing is left to do at this moment, at most `actions` actions; says how many it took.
    pub(crate) fn settle(&mut self, actions: usize) -> usize {
        let mut taken = 0;
        for _ in 0..200 {
            let plan = self.lifecycle();
            let plan: Vec<Action> = plan.actions;
            let is_idle = plan
                .iter()
                .all(|action| matches!(action, Action::Announce(_) | Action::Evict { .. }));
            for action in plan {
                if taken == actions {
                    return taken;
                }
                taken += 1;
                self.act(action);
            }
            if is_idle {
                return taken;
            }
        }
        panic!("never settles: {:?}", self.lifecycle().actions);
    }

    fn meta(&mut self, metadata: &mut ObjectMeta) {
        self.versions += 1;
        metadata.resource_version = Some(self.versions.to_string());
    }

    /// A write that names another version than the newest is refused, as by an API server.
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
                claim.metadata.uid = Some(format!("uid-{}", name(&claim.metadata)));
                claim.metadata.creation_timestamp = Some(Time(self.now));
                self.meta(&mut claim.metadata);
                self.snapshot.node_claims.push(Arc::from(claim));
            }
            Action::Launch { claim, options } => self.launch(&claim, &options),
            Action::PatchClaim {
                target,
                labels,
                annotations,
                finalizers,
            } => {
                self.edit_claim(&target, |claim| {
                    claim.metadata.labels.get_or_insert_default().extend(labels);
                    claim
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .extend(annotations);
                    if let Some(finalizers) = finalizers {
                        claim.metadata.finalizers = Some(finalizers);
                    }
                });
            }
            Action::ClaimStatus { target, status } => {
                self.edit_claim(&target, |claim| claim.status = Some(*status));
            }
            Action::DeleteClaim { target, .. } => {
                let now = self.now;
                self.edit_claim(&target, |claim| {
                    claim.metadata.deletion_timestamp.get_or_insert(Time(now));
                });
            }
            Action::PatchNode { target, change } => self.edit_node(&target, |node| {
                node.metadata.labels.get_or_insert_default().extend(change.labels);
                node.metadata
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
            Action::PoolStatus { target, status } => {
                let pools = self.snapshot.node_pools.iter_mut();
                let pool = pools.into_iter().find(|one| name(&one.metadata) == target.name);
                let pool = Arc::make_mut(pool.unwrap());
                pool.status = Some(merged_pool_status(pool.status.take(), &status));
            }
            Action::AnnotatePool { target, annotations } => {
                let pools = self.snapshot.node_pools.iter_mut();
                let pool = pools.into_iter().find(|one| name(&one.metadata) == target.name);
                let pool = Arc::make_mut(pool.unwrap());
                pool.metadata
                    .annotations
                    .get_or_insert_default()
                    .extend(annotations);
            }
            Action::Stop { provider_id, .. } => self.set_state(&provider_id, InstanceState::Stopped),
            Action::Start { provider_id } => self.set_state(&provider_id, InstanceState::Running),
            Action::ChangeType { .. } | Action::OverprovisionerStatus { .. } | Action::Nominate { .. } => {}
            Action::Announce(event) => self.events.push(event),
        }
    }

    fn set_state(&mut self, provider_id: &str, state: InstanceState) {
        let instances = self.snapshot.instances.iter_mut();
        instances
            .filter(|one| one.provider_id == provider_id)
            .for_each(|one| one.state = state);
    }

    fn launch(&mut self, claim: &Arc<veneer_api::NodeClaim>, options: &[provision::LaunchOption]) {
        let option = options.first().unwrap();
        let claim_name = name(&claim.metadata).to_owned();
        let id = format!("test://{claim_name}");
        if !self.snapshot.instances.iter().any(|one| one.provider_id == id) {
            self.launched.push(id.clone());
            self.snapshot.instances.push(Instance {
                provider_id: id.clone(),
                claim: claim_name.clone(),
                launched: self.now,
                state: InstanceState::Running,
            });
            if self.joins {
                self.snapshot.nodes.push(read::<Node>(json!({
                    "metadata": {"name": claim_name, "uid": format!("uid-node-{claim_name}"), "labels": *option.labels},
                    "spec": {"providerID": id, "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
                    "status": {"capacity": *option.capacity, "allocatable": *option.allocatable,
                        "conditions": [{"type": "Ready", "status": "True"}]},
                })));
            }
        }
        let launched = Launched {
            provider_id: id,
            labels: BTreeMap::clone(&option.labels),
            capacity: BTreeMap::clone(&option.capacity),
            allocatable: BTreeMap::clone(&option.allocatable),
            image_id: None,
            annotations: Default::default(),
        };
        for action in after_launch(claim, &launched, self.now) {
            self.act(action);
        }
    }

    pub(crate) fn edit_claim(&mut self, target: &Target, change: impl FnOnce(&mut veneer_api::NodeClaim)) {
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
