//! Generated nodes and pods with everything that kube-scheduler's filters and scores look at.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Numbers that follow from a seed (SplitMix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

const APPS: [&str; 3] = ["red", "blue", "green"];
const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const KEYS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "rack",
];

pub(crate) fn node(rng: &mut Rng, case: u64, number: u64) -> Value {
    let name = format!("n{case}-{number}");
    let mut labels = json!({"kubernetes.io/hostname": name, "rank": rng.below(10).to_string()});
    if rng.percent(92) {
        labels["topology.kubernetes.io/zone"] = json!(rng.pick(&["a", "b", "c"]));
    }
    if rng.percent(60) {
        labels["rack"] = json!(rng.pick(&["r1", "r2"]));
    }
    if rng.percent(70) {
        labels["disk"] = json!(rng.pick(&["ssd", "hdd"]));
    }
    let mut taints = Vec::new();
    if rng.percent(20) {
        let effect = rng.pick(&["NoSchedule", "NoSchedule", "NoExecute"]);
        taints.push(json!({"key": "team", "value": rng.pick(&["x", "y"]), "effect": effect}));
    }
    for key in ["slow", "old"] {
        if rng.percent(20) {
            taints.push(json!({"key": key, "effect": "PreferNoSchedule"}));
        }
    }
    let gpus = rng.pick(&["0", "0", "1", "2"]);
    let resources = json!({"cpu": rng.pick(&["2", "3900m", "4", "8"]), "memory": rng.pick(&["4Gi", "8Gi", "7500Mi", "16Gi"]),
        "pods": rng.pick(&["4", "8", "20"]), "ephemeral-storage": "20Gi", "example.com/gpu": gpus});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": rng.percent(6)},
        "status": {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn selector(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["red", "blue"]}]}),
        1 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["green"]}]}),
        2 => json!({"matchExpressions": [{"key": "version", "operator": "Exists"}]}),
        3 => {
            json!({"matchExpressions": [{"key": "version", "operator": "DoesNotExist"}], "matchLabels": {"app": "red"}})
        }
        4 if rng.percent(20) => json!({}),
        _ => json!({"matchLabels": {"app": rng.pick(&APPS)}}),
    }
}

fn term(rng: &mut Rng) -> Value {
    let mut term = json!({"topologyKey": rng.pick(&KEYS), "labelSelector": selector(rng)});
    match rng.below(8) {
        0 => term["namespaces"] = json!([rng.pick(&NAMESPACES)]),
        1 => term["namespaceSelector"] = json!({"matchLabels": {"side": rng.pick(&["left", "right"])}}),
        2 => term["namespaceSelector"] = json!({}),
        3 => {
            term["namespaceSelector"] =
                json!({"matchExpressions": [{"key": "side", "operator": "NotIn", "values": ["left"]}]});
        }
        _ => {}
    }
    match rng.below(8) {
        0 => term["matchLabelKeys"] = json!(["tier"]),
        1 => term["mismatchLabelKeys"] = json!(["tier"]),
        _ => {}
    }
    term
}

fn weighted(rng: &mut Rng) -> Value {
    json!({"weight": 1 + rng.below(100), "podAffinityTerm": term(rng)})
}

fn spread(rng: &mut Rng) -> Value {
    let hard = rng.percent(65);
    let mut one = json!({"maxSkew": 1 + rng.below(2), "topologyKey": rng.pick(&KEYS),
        "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" }, "labelSelector": selector(rng)});
    if hard && rng.percent(25) {
        one["minDomains"] = json!(1 + rng.below(4));
    }
    if rng.percent(25) {
        one["matchLabelKeys"] = json!(["tier"]);
    }
    if rng.percent(30) {
        one["nodeAffinityPolicy"] = json!(rng.pick(&["Honor", "Ignore"]));
    }
    if rng.percent(30) {
        one["nodeTaintsPolicy"] = json!(rng.pick(&["Honor", "Ignore"]));
    }
    one
}

fn node_term(rng: &mut Rng, case: u64) -> Value {
    match rng.below(8) {
        0 => {
            json!({"matchExpressions": [{"key": "rank", "operator": "Gt", "values": [rng.below(8).to_string()]}]})
        }
        1 => {
            json!({"matchExpressions": [{"key": "rank", "operator": "Lt", "values": [(2 + rng.below(8)).to_string()]}]})
        }
        2 => json!({"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]}),
        3 => json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}),
        4 => {
            json!({"matchFields": [{"key": "metadata.name", "operator": rng.pick(&["In", "NotIn"]), "values": [format!("n{case}-{}", rng.below(5))]}]})
        }
        _ => {
            json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [rng.pick(&["a", "b", "c"]), "a"]}]})
        }
    }
}

fn requests(rng: &mut Rng) -> Value {
    let mut requests = json!({});
    if rng.percent(85) {
        requests["cpu"] = json!(rng.pick(&["100m", "250m", "500m", "1", "1500m", "0"]));
    }
    if rng.percent(80) {
        requests["memory"] = json!(rng.pick(&["128Mi", "512Mi", "1Gi", "3Gi", "100M"]));
    }
    if rng.percent(8) {
        requests["ephemeral-storage"] = json!(rng.pick(&["1Gi", "9Gi"]));
    }
    let mut resources = json!({"requests": requests});
    if rng.percent(8) {
        resources["requests"]["example.com/gpu"] = json!("1");
        resources["limits"] = json!({"example.com/gpu": "1"});
    }
    resources
}

fn affinity(rng: &mut Rng, case: u64) -> Value {
    let mut affinity = json!({});
    if rng.percent(18) {
        let terms: Vec<Value> = (0..=rng.below(2)).map(|_| node_term(rng, case)).collect();
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    if rng.percent(18) {
        let terms: Vec<Value> = (0..=rng.below(2))
            .map(|_| json!({"weight": 1 + rng.below(100), "preference": node_term(rng, case)}))
            .collect();
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
    }
    for (kind, chance) in [("podAffinity", 14), ("podAntiAffinity", 16)] {
        if rng.percent(chance) {
            let terms: Vec<Value> = (0..=rng.below(3) / 2).map(|_| term(rng)).collect();
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
        if rng.percent(chance) {
            let terms: Vec<Value> = (0..=rng.below(2)).map(|_| weighted(rng)).collect();
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
    }
    affinity
}

pub(crate) fn pod(rng: &mut Rng, case: u64, number: u64) -> Value {
    let app = rng.pick(&APPS);
    let namespace = rng.pick(&NAMESPACES);
    let mut metadata =
        json!({"name": format!("p{case}-{number}"), "namespace": namespace, "labels": {"app": app}});
    if rng.percent(60) {
        metadata["labels"]["version"] = json!(rng.pick(&["1", "2"]));
    }
    if rng.percent(40) {
        metadata["labels"]["tier"] = json!(rng.pick(&["front", "back"]));
    }
    if rng.percent(25) {
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "u", "controller": true}]);
    }
    let mut main = json!({"name": "main", "image": "main", "resources": requests(rng)});
    if rng.percent(15) {
        let mut port = json!({"containerPort": 80, "hostPort": 8080 + rng.below(2), "protocol": rng.pick(&["TCP", "UDP"])});
        if rng.percent(40) {
            port["hostIP"] = json!(rng.pick(&["127.0.0.1", "10.0.0.1", "0.0.0.0"]));
        }
        main["ports"] = json!([port]);
    }
    let mut spec =
        json!({"containers": [main], "affinity": affinity(rng, case), "terminationGracePeriodSeconds": 0});
    if rng.percent(15) {
        spec["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "beside", "image": "b", "resources": requests(rng)}));
    }
    if rng.percent(20) {
        let mut init = Vec::new();
        for at in 0..=rng.below(3) {
            let mut one = json!({"name": format!("init{at}"), "image": "i", "resources": requests(rng)});
            if rng.percent(50) {
                one["restartPolicy"] = json!("Always");
            }
            init.push(one);
        }
        spec["initContainers"] = json!(init);
    }
    if rng.percent(6) {
        spec["runtimeClassName"] = json!("heavy");
    }
    if rng.percent(12) {
        spec["nodeSelector"] = json!({"disk": rng.pick(&["ssd", "hdd"])});
    }
    if rng.percent(35) {
        let constraints: BTreeMap<String, Value> = (0..=rng.below(2))
            .map(|_| spread(rng))
            .map(|one| (format!("{}{}", one["topologyKey"], one["whenUnsatisfiable"]), one))
            .collect();
        spec["topologySpreadConstraints"] = json!(constraints.into_values().collect::<Vec<_>>());
    }
    let mut tolerations = Vec::new();
    if rng.percent(30) {
        tolerations.push(match rng.below(4) {
            0 => json!({"operator": "Exists"}),
            1 => json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"}),
            2 => json!({"key": "team", "operator": "Equal", "value": "x"}),
            _ => json!({"key": "slow", "operator": "Exists", "effect": rng.pick(&["PreferNoSchedule", "NoSchedule"])}),
        });
    }
    spec["tolerations"] = json!(tolerations);
    if rng.percent(3) {
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}]);
    }
    if rng.percent(40) {
        spec["priorityClassName"] = json!(rng.pick(&["never-0", "never-100", "never-1000"]));
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}
