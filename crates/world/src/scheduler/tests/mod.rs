//! Tables of small clusters: what each filter refuses, what each score prefers, and how the queue behaves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod affinity;
mod filters;
mod nominated;
mod queue;
mod score;
mod spread;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use veneer_api::Pod;

use super::class::Classes;
use super::cluster::{ClusterState, Nodes, Settings};
use super::{Cluster, Owner};

/// A node of four processors, 8 GiB and ten pods, with what differs from that.
fn node(name: &str, change: Value) -> Node {
    let mut node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    merge(&mut node, change);
    serde_json::from_value(node).unwrap()
}

/// A node in a zone.
fn in_zone(name: &str, zone: &str) -> Node {
    node(name, json!({"metadata": {"labels": {"zone": zone}}}))
}

/// A pod with one container that asks for nothing, with what differs from that.
fn pod(name: &str, change: Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Pending"}});
    merge(&mut pod, change);
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A pod of an application, on a node if one is named.
fn of_app(name: &str, app: &str, on: &str, spec: Value) -> Arc<Pod> {
    let mut change = json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": on}});
    merge(&mut change["spec"], spec);
    pod(name, change)
}

/// A pod that is nominated for a node.
fn nominated(pod: &Arc<Pod>, node: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(pod);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(veneer_api::labels::veneer::NOMINATED.to_owned(), node.to_owned());
    Arc::new(pod)
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// A cluster of nodes and of pods that are on them or nominated for them.
fn cluster(nodes: Vec<Node>, pods: &[Arc<Pod>]) -> Cluster {
    let mut cluster = Cluster::new(Settings::default(), Vec::new());
    nodes.into_iter().for_each(|node| cluster.put_node(node));
    pods.iter().for_each(|pod| cluster.put_pod(Pod::clone(pod)));
    cluster
}

/// Where a pod may go.
fn feasible(nodes: Vec<Node>, pods: &[Arc<Pod>], pod: &Arc<Pod>) -> Vec<String> {
    cluster(nodes, pods).decide(pod).feasible
}

fn best(nodes: Vec<Node>, pods: &[Arc<Pod>], pod: &Arc<Pod>) -> Vec<String> {
    cluster(nodes, pods).decide(pod).best
}
