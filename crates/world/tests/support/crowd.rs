//! Clusters with tenants that mean no good, for tests and for measurements.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every user takes a part of it, and helpers of tests fail as tests do"
)]

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{Action, Announcement, Instance, InstanceState, NodeClass, Snapshot, api_list};
use veneer_engine::provision::Window;
use veneer_steering::cycle::{Cycle, Pass, Rules};
use veneer_world::adversary::Tenant;

/// How large the cluster is without the tenants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) pods_per_node: usize,
    pub(crate) pending: usize,
}

pub(crate) fn catalogue() -> Arc<Catalogue> {
    Arc::new(aws::region("us-east-1").unwrap().catalogue)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn pod(namespace: &str, name: &str, app: &str, node: Option<&str>) -> Value {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true});
    let terms = json!([{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}}}}]);
    json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "labels": {"app": app},
            "ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node,
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}},
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "700m", "memory": "1Gi"}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" },
            "conditions": [{"type": "PodScheduled", "status": if node.is_some() { "True" } else { "False" },
                "reason": if node.is_some() { "" } else { "Unschedulable" }}]},
    })
}

/// A cluster of ready nodes with pods on them, and some that wait in the namespace `shop`.
pub(crate) fn snapshot(catalogue: &Catalogue, size: Size) -> Snapshot {
    let mut snapshot = Snapshot {
        node_classes: vec![NodeClass {
            group: "karpenter.kwok.sh".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            name: "default".to_owned(),
            not_ready: None,
            is_deleting: false,
        }],
        ..Snapshot::default()
    };
    snapshot.node_pools.push(read(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "default", "generation": 1},
        "spec": {"weight": 100, "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "expireAfter": "Never"}},
            "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}},
    })));
    let it = catalogue
        .types
        .iter()
        .find(|it| &*it.name == "m5.2xlarge")
        .unwrap();
    let (capacity, allocatable) = (api_list(&it.capacity), api_list(&it.allocatable()));
    let condition = |of: &str| json!({"type": of, "status": "True", "reason": of, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for at in 0..size.nodes {
        let name = format!("node-{at}");
        let zone = ["us-east-1a", "us-east-1b", "us-east-1c"][at % 3];
        let labels = json!({
            "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "us-east-1",
            "node.kubernetes.io/instance-type": "m5.2xlarge", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name});
        snapshot.nodes.push(read(json!({
            "metadata": {"name": name, "uid": name, "labels": labels, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": format!("test://{name}")},
            "status": {"capacity": capacity, "allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        })));
        snapshot.node_claims.push(read(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("claim-{at}"), "uid": format!("claim-{at}"), "resourceVersion": "1", "labels": labels,
                "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [], "expireAfter": "Never"},
            "status": {"providerID": format!("test://{name}"), "nodeName": name, "capacity": capacity, "allocatable": allocatable,
                "conditions": [condition("Launched"), condition("Registered"), condition("Initialized"), condition("Consolidatable"), condition("Ready")]},
        })));
        snapshot.instances.push(Instance {
            provider_id: format!("test://{name}"),
            claim: format!("claim-{at}"),
            launched: start(),
            state: InstanceState::Running,
        });
        for number in 0..size.pods_per_node {
            let app = format!("app-{}", (at * size.pods_per_node + number) % 97);
            snapshot.pods.push(read(pod(
                "shop",
                &format!("{app}-{at}-{number}"),
                &app,
                Some(&name),
            )));
        }
    }
    for at in 0..size.pending {
        let app = format!("app-{}", at % 7);
        snapshot
            .pods
            .push(read(pod("shop", &format!("waits-{at}"), &app, None)));
    }
    snapshot
}

pub(crate) fn start() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Lets a tenant in. What kube-scheduler could not place is marked so.
pub(crate) fn admit(snapshot: &mut Snapshot, tenant: &Tenant, with_pools: bool) {
    for manifest in &tenant.pods {
        let mut pod = manifest.clone();
        pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["status"] = json!({"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        snapshot.pods.push(read(pod));
    }
    if with_pools {
        let pools = tenant.node_pools.iter().cloned();
        snapshot.node_pools.extend(pools.map(read));
        snapshot
            .overlays
            .extend(tenant.overlays.iter().cloned().map(read));
    }
}

/// A controller that waits for nothing.
pub(crate) fn cycle(catalogue: &Arc<Catalogue>) -> Cycle {
    Cycle::new(
        Arc::clone(catalogue),
        Rules {
            window: Window {
                idle: SignedDuration::ZERO,
                max: SignedDuration::ZERO,
                retry: SignedDuration::from_secs(10),
            },
            ..Rules::default()
        },
    )
}

/// The pods of `shop` that a pass found a place for.
pub(crate) fn nominated_in_shop(pass: &Pass) -> usize {
    let events = announcements(pass);
    events
        .filter(|event| event.reason == "Nominated" && event.subject.target.namespace == "shop")
        .count()
}

pub(crate) fn announcements(pass: &Pass) -> impl Iterator<Item = &Announcement> {
    pass.plan.actions.iter().filter_map(|action| match action {
        Action::Announce(event) => Some(event),
        _ => None,
    })
}
