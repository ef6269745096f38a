//! Nodes that exist, nodes that are starting and NodeClaims without a node.

use serde_json::{Value, json};
use veneer_engine::quantity::Quantity;

use super::super::Constraint;
use super::super::facts::{CAPACITY_TYPE, Entry, HOSTNAME, NODE_POOL, ZONE, ZONES};
use super::Draft;

/// How far a machine has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Initialised.
    Ready,
    /// Initialised and going away.
    Leaving,
    /// The node has joined, but waits for taints to go or resources to come.
    Registered,
    /// The node has joined, but Karpenter has not seen to it.
    Joined,
    /// No node yet.
    Launched,
}

impl Draft<'_> {
    pub(super) fn nodes(&mut self) {
        let mut number = 0;
        for (constraint, stages) in [
            (Constraint::ExistingNodes, [Stage::Ready].as_slice()),
            (Constraint::UnreadyNodes, &[Stage::Registered, Stage::Joined]),
            (Constraint::InFlight, &[Stage::Launched]),
            (
                Constraint::Deleting,
                &[Stage::Leaving, Stage::Leaving, Stage::Ready],
            ),
        ] {
            if self.has(constraint) {
                for _ in 0..self.rng.between(1, 5) {
                    number += 1;
                    let stage = *self.rng.pick(stages);
                    self.machine(&format!("node-{number}"), stage);
                }
            }
        }
    }

    fn machine(&mut self, name: &str, stage: Stage) {
        let entry = self.entry();
        let initialised = matches!(stage, Stage::Ready | Stage::Leaving);
        let managed = !initialised || self.rng.chance(75);
        let pool = self.rng.pick(&self.pools).clone();
        let mut labels = entry.labels();
        labels.insert(ZONE.to_owned(), (*self.rng.pick(&ZONES)).to_owned());
        labels.insert(
            CAPACITY_TYPE.to_owned(),
            (*self.rng.pick(&["spot", "on-demand"])).to_owned(),
        );
        if managed {
            labels.insert(NODE_POOL.to_owned(), pool.clone());
            labels.insert("karpenter.kwok.sh/kwoknodeclass".to_owned(), "default".to_owned());
        }
        labels.extend(self.pool_labels.iter().cloned());
        let mut labels = json!(labels);
        let provider = format!("kwok://{name}");
        let taints = self.machine_taints(stage);
        let (capacity, allocatable) = sizes(&entry);
        if managed {
            let mut claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": format!("{name}-claim"), "uid": self.uid(), "labels": labels},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [], "taints": taints, "resources": {},
                    "startupTaints": [{"key": "example.com/starting", "effect": "NoSchedule"}],
                },
                "status": {"providerID": provider, "capacity": capacity, "allocatable": allocatable},
            });
            if stage == Stage::Leaving {
                leave(&mut claim);
            }
            self.objects.push(claim);
        }
        if stage == Stage::Launched {
            return;
        }
        if self.rng.chance(95) {
            labels[HOSTNAME] = name.into();
        }
        if managed && stage != Stage::Joined {
            labels["karpenter.sh/registered"] = "true".into();
        }
        if managed && initialised {
            labels["karpenter.sh/initialized"] = "true".into();
        }
        let node_taints = self.node_taints(stage, &taints);
        // A kubelet that has just started may not report everything.
        let unreported = !initialised && self.rng.chance(40);
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": self.uid(), "labels": labels},
            "spec": {"providerID": provider, "taints": node_taints},
            "status": if unreported { json!({}) } else { json!({"capacity": capacity, "allocatable": allocatable}) },
        });
        if stage == Stage::Leaving && !managed {
            leave(&mut node);
        }
        self.objects.push(node);
        self.attach_limit(name);
        if initialised {
            self.bound_pods(name);
            self.daemon_pods(name);
        }
    }

    fn machine_taints(&mut self, stage: Stage) -> Vec<Value> {
        let tainted = self.has(Constraint::Taints) && self.rng.chance(30);
        let mut taints = Vec::new();
        if tainted {
            taints.push(self.taint());
        }
        if matches!(stage, Stage::Ready | Stage::Leaving) && self.rng.chance(5) {
            taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
        }
        taints
    }

    fn node_taints(&mut self, stage: Stage, taints: &[Value]) -> Vec<Value> {
        let mut taints = taints.to_vec();
        let more: &[Value] = match stage {
            Stage::Ready | Stage::Leaving | Stage::Launched => &[],
            Stage::Registered => &[
                json!({"key": "example.com/starting", "effect": "NoSchedule"}),
                json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
                json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}),
                json!({"key": "example.com/other", "effect": "NoSchedule"}),
            ],
            Stage::Joined => &[json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"})],
        };
        for taint in more {
            if self.rng.chance(50) {
                taints.push(taint.clone());
            }
        }
        taints
    }

    fn bound_pods(&mut self, node: &str) {
        for _ in 0..self.rng.between(0, 4) {
            let number = self.serial();
            let namespace = self.namespace();
            let name = format!("bound-{number}");
            let group = self.rng.below(self.groups);
            let mut spec = json!({
                "nodeName": node,
                "containers": [{"name": "main", "image": "example.com/app", "resources": {"requests": self.bound_requests()}}],
            });
            let [_, anti] = self.pod_affinities(group);
            if anti
                .get("requiredDuringSchedulingIgnoredDuringExecution")
                .is_some()
            {
                spec["affinity"]["podAntiAffinity"] = anti;
            }
            if self.has(Constraint::HostPorts) && self.rng.chance(40) {
                spec["containers"][0]["ports"] = json!([self.host_port()]);
            }
            self.volumes(&mut spec, &namespace, &name, group);
            let phase = *self
                .rng
                .pick(&["Running", "Running", "Running", "Running", "Succeeded"]);
            if self.rng.chance(3) {
                // A pod that its node has left behind.
                spec["nodeName"] = "gone".into();
            }
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": namespace, "uid": self.uid(),
                    "labels": {"app": format!("g{group}"), "tier": *self.rng.pick(&["front", "back"])},
                    "creationTimestamp": self.timestamp(),
                },
                "spec": spec,
                "status": {"phase": phase},
            });
            match self.rng.below(20) {
                0 => leave(&mut pod),
                1 => pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"}),
                _ => {}
            }
            self.objects.push(pod);
        }
    }

    fn bound_requests(&mut self) -> Value {
        json!({"cpu": *self.rng.pick(&["100m", "250m", "1"]), "memory": *self.rng.pick(&["64Mi", "512Mi", "1Gi"])})
    }
}

/// Marks an object as being deleted.
fn leave(object: &mut Value) {
    object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
}

/// Capacity and allocatable as the KWOK provider would report them.
fn sizes(entry: &Entry) -> (Value, Value) {
    let mut capacity = serde_json::Map::new();
    let mut allocatable = serde_json::Map::new();
    for (name, quantity) in &entry.resources {
        let reserved = match name.as_str() {
            "cpu" => Quantity::from_milli(100),
            "memory" => Quantity::binary(10 << 20),
            _ => Quantity::default(),
        };
        capacity.insert(name.clone(), quantity.to_string().into());
        allocatable.insert(name.clone(), (quantity - &reserved).to_string().into());
    }
    (Value::Object(capacity), Value::Object(allocatable))
}
