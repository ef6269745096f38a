//! Manifests of whole workloads: what tests and benchmarks put into a cluster that provisions by itself.
//!
//! One definition for all of them, so that what is measured is what was tested. Nothing in it is random.

use serde_json::{Value, json};

/// Objects in the order in which they are created.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The node class, the NodePools, the NodeOverlay and the DaemonSet.
    pub setting: Vec<Value>,
    /// The Deployments.
    pub deployments: Vec<Value>,
    /// How many pods the Deployments have.
    pub pods: usize,
}

/// About `pods` pods in Deployments of many kinds: plain ones of six sizes, spread over zones and hosts, together in a
/// zone, apart from each other, for a tainted pool, on spot capacity, and with an extended resource and huge pages that
/// only a NodeOverlay gives.
#[must_use]
pub fn mixed(pods: usize) -> Workload {
    let mut deployments = Vec::new();
    let share = |percent: usize, of: usize| (pods * percent / 100 / of).max(1);
    for (at, (cpu, memory)) in [
        ("100m", "128Mi"),
        ("250m", "1Gi"),
        ("500m", "512Mi"),
        ("1", "2Gi"),
        ("1500m", "6Gi"),
        ("3", "4Gi"),
    ]
    .into_iter()
    .enumerate()
    {
        let requests = json!({"cpu": cpu, "memory": memory});
        deployments.push(deployment(
            &format!("plain-{at}"),
            share(48, 6),
            &requests,
            json!({}),
        ));
    }
    for (at, cpu) in ["500m", "1"].into_iter().enumerate() {
        let name = format!("zones-{at}");
        let more = json!({"topologySpreadConstraints": [spread(&name, "topology.kubernetes.io/zone", "DoNotSchedule")]});
        deployments.push(deployment(&name, share(14, 2), &json!({"cpu": cpu}), more));
    }
    let more =
        json!({"topologySpreadConstraints": [spread("hosts", "kubernetes.io/hostname", "ScheduleAnyway")]});
    deployments.push(deployment("hosts", share(4, 1), &json!({"cpu": "400m"}), more));
    let more =
        json!({"affinity": {"podAffinity": required(&pod_term("together", "topology.kubernetes.io/zone"))}});
    deployments.push(deployment(
        "together",
        share(8, 1),
        &json!({"cpu": "750m", "memory": "1Gi"}),
        more,
    ));
    let more =
        json!({"affinity": {"podAntiAffinity": required(&pod_term("apart", "kubernetes.io/hostname"))}});
    deployments.push(deployment("apart", share(1, 1), &json!({"cpu": "250m"}), more));
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["team"]}]}]});
    let more = json!({
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    });
    deployments.push(deployment("team", share(10, 1), &json!({"cpu": "2"}), more));
    let more = json!({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}});
    deployments.push(deployment(
        "spot",
        share(7, 1),
        &json!({"cpu": "600m", "memory": "2Gi"}),
        more,
    ));
    let requests =
        json!({"cpu": "200m", "memory": "128Mi", "example.com/fuse": "2", "hugepages-2Mi": "32Mi"});
    deployments.push(deployment("fuse", share(8, 1), &requests, json!({})));
    Workload::new(setting(), deployments)
}

impl Workload {
    fn new(setting: Vec<Value>, deployments: Vec<Value>) -> Self {
        let replicas = deployments.iter().map(|deployment| {
            let replicas = deployment.pointer("/spec/replicas").and_then(Value::as_u64);
            replicas.unwrap_or_default()
        });
        Workload {
            setting,
            pods: usize::try_from(replicas.sum::<u64>()).unwrap_or_default(),
            deployments,
        }
    }
}

/// What many clusters look like: five Deployments of a fifth of the pods each (plain, spread over zones, with much memory,
/// tolerating a tainted spot pool, spread over hosts where possible) and two NodePools: one for everything, on demand and
/// spot, and a tainted one with spot capacity alone.
#[must_use]
pub fn everyday(pods: usize) -> Workload {
    let share = (pods / 5).max(1);
    let plain = json!({"cpu": "500m", "memory": "512Mi"});
    let zones = json!({"topologySpreadConstraints": [spread("zones", "topology.kubernetes.io/zone", "DoNotSchedule")]});
    let hosts =
        json!({"topologySpreadConstraints": [spread("hosts", "kubernetes.io/hostname", "ScheduleAnyway")]});
    let batch = json!({"tolerations": [{"key": "batch", "operator": "Exists", "effect": "NoSchedule"}]});
    let deployments = vec![
        deployment("plain", share, &plain, json!({})),
        deployment("zones", share, &json!({"cpu": "500m", "memory": "1Gi"}), zones),
        deployment(
            "memory",
            share,
            &json!({"cpu": "500m", "memory": "6Gi"}),
            json!({}),
        ),
        deployment("batch", share, &json!({"cpu": "1", "memory": "1Gi"}), batch),
        deployment("hosts", share, &json!({"cpu": "250m", "memory": "512Mi"}), hosts),
    ];
    let within = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
    let linux = within("kubernetes.io/os", json!(["linux"]));
    let amd64 = within("kubernetes.io/arch", json!(["amd64"]));
    let capacity = |types: Value| within("karpenter.sh/capacity-type", types);
    let setting = vec![
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
        node_pool(
            "general",
            json!({"requirements": [linux, amd64, capacity(json!(["on-demand", "spot"]))]}),
        ),
        node_pool(
            "batch",
            json!({"taints": [{"key": "batch", "effect": "NoSchedule"}],
                "requirements": [linux, amd64, capacity(json!(["spot"]))]}),
        ),
    ];
    Workload::new(setting, deployments)
}

fn setting() -> Vec<Value> {
    let small =
        json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4", "8", "16", "32"]});
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let amd64 = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let on_demand = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
    let labels = json!({"app": "agent"});
    let agent = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.example/agent:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}}});
    vec![
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
        json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "extras"}, "spec": {
            "capacity": {"example.com/fuse": "10", "hugepages-2Mi": "256Mi"}, "priceAdjustment": "-10%",
            "requirements": [{"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m5"]}]}}),
        node_pool("default", json!({"requirements": [linux, amd64, small]})),
        node_pool(
            "team",
            json!({"taints": [{"key": "team", "effect": "NoSchedule"}], "requirements": [linux, on_demand, small]}),
        ),
        agent,
    ]
}

/// A NodePool whose nodes go a second after the last pod; `template` adds to its `spec.template.spec`.
#[must_use]
pub fn node_pool(name: &str, template: Value) -> Value {
    let mut spec = json!({"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [], "expireAfter": "Never"});
    merge(&mut spec, template);
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "template": {"spec": spec},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]},
    }})
}

/// A Deployment; `more` adds to the spec of its pods.
#[must_use]
pub fn deployment(name: &str, replicas: usize, requests: &Value, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "main", "image": "registry.example/main:1",
        "resources": {"requests": requests, "limits": limits(requests)}}]});
    merge(&mut spec, more);
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec}}})
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

/// Extended resources and huge pages need limits.
fn limits(requests: &Value) -> Value {
    let all = requests.as_object().into_iter().flatten();
    let kept = all.filter(|(key, _)| key.contains('/') || key.starts_with("hugepages-"));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn spread(app: &str, key: &str, otherwise: &str) -> Value {
    json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": otherwise,
        "labelSelector": {"matchLabels": {"app": app}}})
}

fn pod_term(app: &str, key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn required(term: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}
