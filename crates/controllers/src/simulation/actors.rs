//! Everybody else in the cluster: users, the controllers of workloads and budgets, the scheduler, kubelets, and whoever clears
//! up after a node that died. They never err, and they talk to the API server without a network.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_engine::plan::api_list;

use super::api_server::{Path, is_deleting, seconds, text};
use super::{Inner, Sim};

/// Pods of one kind, as many as are wanted.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) replicas: usize,
    pub(super) milli_cpu: u64,
}

fn milli(amount: &str) -> u64 {
    match amount.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap_or(0),
        None => amount.parse::<u64>().unwrap_or(0) * 1000,
    }
}

fn pod(app: &str, name: &str, milli_cpu: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": format!("rs-{app}"), "controller": true}]},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "image": "registry.example/main:1",
            "resources": {"requests": {"cpu": format!("{milli_cpu}m"), "memory": "128Mi"}}}]},
        "status": {"phase": "Pending"}})
}

pub(super) fn path_of(plural: &str, object: &Value) -> Path {
    Path::of(
        plural,
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    )
}

fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

fn is_past(at: Option<Timestamp>, by: i64, now: Timestamp) -> bool {
    at.is_some_and(|at| now.duration_since(at) >= SignedDuration::from_secs(by))
}

impl Sim {
    /// One second of everybody else.
    pub(super) fn tick(&self) {
        let now = self.now();
        let is_changed = self.with(|inner| {
            let version = inner.api.version();
            inner.kubelets(now);
            inner.workloads(now);
            inner.schedule(now);
            inner.budgets();
            inner.api.version() != version
        });
        if is_changed {
            self.wake();
        }
    }
}

impl Inner {
    fn workloads(&mut self, now: Timestamp) {
        for (app, workload) in self.workloads.clone() {
            let pods = self.api.all("pods");
            let mut alive: Vec<&Arc<Value>> = pods
                .iter()
                .filter(|pod| text(pod, "/metadata/labels/app") == app && !is_deleting(pod))
                .collect();
            for _ in alive.len()..workload.replicas {
                self.pods += 1;
                let name = format!("{app}-{}", self.pods);
                drop(
                    self.api
                        .create("pods", "default", pod(&app, &name, workload.milli_cpu), now),
                );
            }
            // Those that wait go first.
            alive.sort_by_key(|pod| !text(pod, "/spec/nodeName").is_empty());
            for pod in alive.iter().take(alive.len().saturating_sub(workload.replicas)) {
                drop(self.api.delete(&path_of("pods", pod), &Value::Null, now));
            }
        }
    }

    fn schedule(&mut self, now: Timestamp) {
        let pods = self.api.all("pods");
        let mut room: BTreeMap<String, u64> = BTreeMap::new();
        for node in self.api.all("nodes") {
            let taints = node.pointer("/spec/taints").and_then(Value::as_array);
            let is_closed = taints.is_some_and(|list| !list.is_empty()) || is_deleting(&node);
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            let is_ready = conditions
                .into_iter()
                .flatten()
                .any(|one| text(one, "/status") == "True");
            if !is_closed && is_ready {
                let name = text(&node, "/metadata/name").to_owned();
                room.insert(name, milli(text(&node, "/status/allocatable/cpu")));
            }
        }
        let cpu = |pod: &Value| milli(text(pod, "/spec/containers/0/resources/requests/cpu"));
        for pod in &pods {
            if let Some(free) = room.get_mut(text(pod, "/spec/nodeName")) {
                *free = free.saturating_sub(cpu(pod));
            }
        }
        for pod in pods
            .iter()
            .filter(|pod| text(pod, "/spec/nodeName").is_empty() && !is_deleting(pod))
        {
            let nominated = text(pod, "/status/nominatedNodeName");
            let fits = |node: &str| room.get(node).is_some_and(|free| *free >= cpu(pod));
            let node = if fits(nominated) {
                Some(nominated.to_owned())
            } else {
                room.keys().find(|node| fits(node)).cloned()
            };
            let path = path_of("pods", pod);
            match node {
                Some(node) => {
                    if let Some(free) = room.get_mut(&node) {
                        *free -= cpu(pod);
                    }
                    self.api.edit(&path, |pod| {
                        super::api_server::merge(pod, &json!({"spec": {"nodeName": node}, "status": {"phase": "Running",
                            "nominatedNodeName": null, "startTime": seconds(now), "conditions": [
                                {"type": "PodScheduled", "status": "True", "lastTransitionTime": seconds(now)}]}}));
                    });
                }
                None => self.api.edit(&path, |pod| {
                    if pod.pointer("/status/conditions").is_none() {
                        super::api_server::merge(
                            pod,
                            &json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
                            "reason": "Unschedulable", "message": "0/0 nodes are available",
                            "lastTransitionTime": seconds(now)}]}}),
                        );
                    }
                }),
            }
        }
    }

    fn kubelets(&mut self, now: Timestamp) {
        let nodes = self.api.all("nodes");
        for node in &nodes {
            let is_up = self.cloud.is_running(text(node, "/spec/providerID"));
            let is_ready = text(node, "/status/conditions/0/status") == "True";
            if is_ready != is_up && (!is_up || is_past(time(node, "/metadata/creationTimestamp"), 4, now)) {
                let status = if is_up { "True" } else { "Unknown" };
                self.api.edit(&path_of("nodes", node), |node| {
                    super::api_server::merge(node, &json!({"status": {"conditions": [{"type": "Ready", "status": status,
                        "reason": "Simulated", "lastTransitionTime": seconds(now), "lastHeartbeatTime": seconds(now)}]}}));
                });
            }
        }
        // The cloud's own controller removes the nodes of instances that are gone.
        for node in nodes.iter().filter(|node| !is_deleting(node)) {
            let is_up = self.cloud.is_running(text(node, "/spec/providerID"));
            if !is_up && is_past(time(node, "/status/conditions/0/lastTransitionTime"), 60, now) {
                drop(self.api.delete(&path_of("nodes", node), &Value::Null, now));
            }
        }
        // Pods end when their kubelet has ended them, or when somebody finds that their node is dead.
        for pod in self.api.all("pods") {
            let on = text(&pod, "/spec/nodeName");
            if on.is_empty() {
                continue;
            }
            let node = nodes.iter().find(|node| text(node, "/metadata/name") == on);
            let is_up = node.is_some_and(|node| self.cloud.is_running(text(node, "/spec/providerID")));
            let deleted = time(&pod, "/metadata/deletionTimestamp");
            if is_past(deleted, 3, now) && is_up || is_past(deleted, 20, now) || node.is_none() {
                self.api.remove(&path_of("pods", &pod));
            } else if !is_up && deleted.is_none() {
                let since = node.and_then(|node| time(node, "/status/conditions/0/lastTransitionTime"));
                if is_past(since, 40, now) {
                    drop(self.api.delete(&path_of("pods", &pod), &Value::Null, now));
                }
            }
        }
        let instances: Vec<_> = self
            .cloud
            .instances
            .values()
            .filter(|one| one.is_up() && one.joins <= now)
            .cloned()
            .collect();
        for instance in instances {
            let name = format!("{}.internal", instance.id);
            if nodes.iter().any(|node| text(node, "/metadata/name") == name) {
                continue;
            }
            let mut types = self.catalogue.types.iter();
            let Some(known) = types.find(|one| *one.name == *instance.instance_type) else {
                continue;
            };
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                    "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": instance.instance_type,
                    "topology.kubernetes.io/zone": instance.zone}},
                "spec": {"providerID": instance.provider_id(),
                    "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
                "status": {"capacity": api_list(&known.capacity), "allocatable": api_list(&known.allocatable()),
                    "conditions": [{"type": "Ready", "status": "False", "reason": "Simulated",
                        "lastTransitionTime": seconds(now), "lastHeartbeatTime": seconds(now)}]}});
            drop(self.api.create("nodes", "", node, now));
        }
    }

    fn budgets(&mut self) {
        for budget in self.api.all("poddisruptionbudgets") {
            let allowed = self.api.disruptions_allowed(&budget);
            self.api
                .edit(&path_of("poddisruptionbudgets", &budget), |budget| {
                    super::api_server::merge(
                        budget,
                        &json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": 0,
                    "desiredHealthy": 0, "expectedPods": 0, "observedGeneration": 1}}),
                    );
                });
        }
    }
}
