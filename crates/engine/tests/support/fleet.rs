//! Clusters of ready nodes with pods on them, for tests of what goes and what stays.
#![allow(dead_code, reason = "every test uses a part of it")]

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_api::{NodeClaim, NodeOverlay, NodePool};
use veneer_engine::catalogue::kwok;
use veneer_engine::disruption::{self, Decision, Memory, Policy};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{NodeClass, Snapshot};
use veneer_engine::provision::Market;

pub(crate) struct Fleet {
    pub(crate) snapshot: Snapshot,
    pub(crate) market: Market,
    pub(crate) memory: Memory,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

pub(crate) fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Families with 2 to 64 processors at about $0.05 each and hour, in three zones, on demand and spot.
pub(crate) fn catalogue() -> Arc<Catalogue> {
    let offering = |price: f64, capacity: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    let mut types: Vec<Value> = Vec::new();
    for (family, rate, memory) in [("c", 0.045, 2), ("m", 0.05, 4), ("r", 0.065, 8)] {
        for cpu in [2, 4, 8, 16, 32, 64] {
            let price = rate * f64::from(cpu);
            let zones = ["zone-a", "zone-b", "zone-c"];
            let offerings: Vec<Value> = zones
                .iter()
                .flat_map(|zone| {
                    [
                        offering(price, "on-demand", zone),
                        offering(price * 0.4, "spot", zone),
                    ]
                })
                .collect();
            types.push(json!({"name": format!("{family}.{cpu}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * memory), "pods": "110"},
                "offerings": offerings}));
        }
    }
    Arc::new(kwok::parse(&Value::from(types).to_string(), "test").unwrap())
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let snapshot = Snapshot {
            node_classes: vec![NodeClass {
                group: "karpenter.kwok.sh".to_owned(),
                kind: "KWOKNodeClass".to_owned(),
                name: "default".to_owned(),
                not_ready: None,
                is_deleting: false,
            }],
            ..Snapshot::default()
        };
        Self {
            snapshot,
            market: Market::new(catalogue()),
            memory: Memory::default(),
            policy: Policy {
                validation: SignedDuration::ZERO,
                explains: true,
                ..Policy::default()
            },
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
        }
    }

    pub(crate) fn pool(&mut self, name: &str, change: Value) {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "expireAfter": "Never"}},
                "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}},
        });
        merge(&mut pool, change);
        self.snapshot.node_pools.push(read::<NodePool>(pool));
    }

    /// A ready node with its claim.
    pub(crate) fn node(&mut self, name: &str, pool: &str, instance_type: &str, change: Value) {
        let it = self.market.catalogue().types.iter();
        let it = it.clone().find(|it| *it.name == *instance_type).unwrap();
        let amounts = veneer_engine::plan::api_list(&it.capacity);
        let allocatable = veneer_engine::plan::api_list(&it.allocatable());
        let labels = json!({
            "karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a",
            "node.kubernetes.io/instance-type": instance_type, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name, "karpenter.kwok.sh/kwoknodeclass": "default"});
        let mut node = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels, "resourceVersion": "1"},
            "spec": {"providerID": format!("test://{name}")},
            "status": {"capacity": amounts, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        merge(&mut node, change);
        let condition = |of: &str| {
            json!({"type": of, "status": "True", "reason": of, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("claim-{name}"), "uid": format!("uid-claim-{name}"), "resourceVersion": "1",
                "labels": node["metadata"]["labels"], "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [], "expireAfter": "Never"},
            "status": {"providerID": format!("test://{name}"), "nodeName": name, "capacity": amounts,
                "allocatable": allocatable, "conditions": [condition("Launched"), condition("Registered"),
                    condition("Initialized"), condition("Consolidatable"), condition("Ready")]},
        });
        self.snapshot.nodes.push(read(node));
        self.snapshot.node_claims.push(read::<NodeClaim>(claim));
    }

    /// A running pod of a ReplicaSet.
    pub(crate) fn pod(&mut self, name: &str, node: &str, cpu: &str, change: Value) {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": name},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": true}]},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T11:59:00Z"},
        });
        merge(&mut pod, change);
        self.snapshot.pods.push(read(pod));
    }

    pub(crate) fn pdb(&mut self, name: &str, selector: Value, allowed: i32) {
        self.snapshot.pdbs.push(read(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector, "maxUnavailable": 1},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2 - allowed, "expectedPods": 2},
        })));
    }

    pub(crate) fn overlay(&mut self, name: &str, spec: Value) {
        self.snapshot.overlays.push(read::<NodeOverlay>(json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": name, "generation": 1}, "spec": spec})));
    }

    pub(crate) fn decide(&mut self) -> Decision {
        self.market.update(&self.snapshot);
        disruption::decide(
            &self.snapshot,
            &mut self.market,
            &self.policy,
            &mut self.memory,
            self.now,
        )
    }

    /// The same with nothing remembered.
    pub(crate) fn decide_afresh(&mut self) -> Decision {
        self.memory = Memory::default();
        self.decide()
    }
}

/// A generator of the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn one_of<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}
