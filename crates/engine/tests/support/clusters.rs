//! Generated clusters that look like real ones: deployments of mixed sizes and ratios, one to three NodePools, some
//! constraints, DaemonSets, sometimes nodes that exist already. The same seed gives the same cluster.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::packing::Objects;

/// A small deterministic generator of random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            random.below(2);
        });
        random
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What differs between catalogues.
pub struct Flavour {
    pub group: &'static str,
    pub class: &'static str,
    pub family: &'static str,
    pub architectures: [&'static str; 2],
    pub zones: [&'static str; 3],
}

/// Labels of the embedded AWS catalogue, us-east-1.
pub const AWS: Flavour = Flavour {
    group: "karpenter.k8s.aws",
    class: "EC2NodeClass",
    family: "karpenter.k8s.aws/instance-category",
    architectures: ["amd64", "arm64"],
    zones: ["us-east-1a", "us-east-1b", "us-east-1c"],
};

fn read<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    objects
        .into_iter()
        .map(|object| serde_json::from_value(object).unwrap())
        .collect()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": operator, "values": values })
}

/// The cluster of a seed.
pub fn cluster(seed: u64, flavour: &Flavour) -> Objects {
    let mut random = Random::new(seed);
    let mut objects = Objects {
        node_pools: read(pools(&mut random, flavour)),
        daemon_sets: read(daemon_sets(&mut random)),
        ..Objects::default()
    };
    if random.chance(30) {
        objects.nodes = read(nodes(&mut random, flavour))
            .into_iter()
            .map(Arc::new)
            .collect();
    }
    let deployments = 5 + random.below(30);
    let mut pods = Vec::new();
    for number in 0..deployments {
        deployment(number, &mut pods, &mut random, flavour);
    }
    objects.pods = read(pods).into_iter().collect();
    objects
}

fn pools(random: &mut Random, flavour: &Flavour) -> Vec<Value> {
    let count = 1 + random.below(3);
    (0..count)
        .map(|number| {
            let mut requirements = vec![expression("kubernetes.io/os", "In", &["linux"])];
            let capacity: &[&str] = match random.below(4) {
                0 => &["spot"],
                1 => &["spot", "on-demand"],
                _ => &["on-demand"],
            };
            // The first NodePool takes whatever the pods may demand.
            let capacity = if number == 0 {
                &["spot", "on-demand"]
            } else {
                capacity
            };
            requirements.push(expression("karpenter.sh/capacity-type", "In", capacity));
            if number > 0 && random.chance(40) {
                let architecture = *random.pick(&flavour.architectures);
                requirements.push(expression("kubernetes.io/arch", "In", &[architecture]));
            }
            if random.chance(70) {
                requirements.push(expression(flavour.family, "In", &["c", "m", "r"]));
            }
            let mut spec = json!({ "template": { "spec": {
                "nodeClassRef": { "group": flavour.group, "kind": flavour.class, "name": "default" },
                "requirements": requirements } } });
            if random.chance(25) {
                spec["weight"] = json!(10 * (1 + random.below(3)));
            }
            if random.chance(20) {
                spec["limits"] = json!({ "cpu": (1000 + random.below(4) * 1000).to_string() });
            }
            json!({ "metadata": { "name": format!("pool-{number}") }, "spec": spec })
        })
        .collect()
}

fn daemon_sets(random: &mut Random) -> Vec<Value> {
    (0..random.below(4))
        .map(|number| {
            let cpu = *random.pick(&["25m", "50m", "100m", "200m"]);
            let memory = *random.pick(&["64Mi", "128Mi", "256Mi"]);
            json!({ "metadata": { "name": format!("agent-{number}"), "namespace": "kube-system" },
                "spec": { "selector": {}, "template": { "spec": {
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "agent", "resources": {
                        "requests": { "cpu": cpu, "memory": memory } } }] } } } })
        })
        .collect()
}

fn nodes(random: &mut Random, flavour: &Flavour) -> Vec<Value> {
    (0..1 + random.below(8))
        .map(|number| {
            let cpu = *random.pick(&[2, 4, 8]);
            let zone = *random.pick(&flavour.zones);
            let name = format!("node-{number}");
            let resources =
                json!({ "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "58" });
            json!({ "metadata": { "name": name, "labels": {
                    "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
                    "kubernetes.io/os": "linux", "kubernetes.io/arch": flavour.architectures[0],
                    "karpenter.sh/capacity-type": "on-demand" } },
                "spec": { "providerID": format!("aws:///{zone}/i-{number:08x}") },
                "status": { "capacity": resources, "allocatable": resources,
                    "conditions": [{ "type": "Ready", "status": "True" }] } })
        })
        .collect()
}

fn deployment(number: u64, pods: &mut Vec<Value>, random: &mut Random, flavour: &Flavour) {
    let name = format!("app-{number}");
    let milli = *random.pick(&[
        50, 100, 100, 200, 250, 250, 500, 500, 500, 750, 1000, 1000, 1500, 2000, 2000, 3000, 4000, 6000,
        8000, 14000,
    ]);
    // Memory for each processor, in MiB.
    let ratio = *random.pick(&[512, 1024, 2048, 2048, 4096, 4096, 4096, 8192, 8192, 12288]);
    let memory = (milli * ratio / 1000).max(64);
    let replicas = if milli >= 4000 {
        1 + random.below(6)
    } else {
        let most = *random.pick(&[4, 12, 40]);
        1 + random.below(most)
    };
    let labels = json!({ "app": name });
    let selector = json!({ "matchLabels": labels });
    let mut spec = json!({ "containers": [{ "name": "main", "resources": {
        "requests": { "cpu": format!("{milli}m"), "memory": format!("{memory}Mi") } } }] });
    match random.below(20) {
        0..=2 => {
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector }]);
        }
        3 => {
            // One pod on each host, as far as possible: more than a few would need as many nodes.
            let key = if replicas <= 5 {
                "kubernetes.io/hostname"
            } else {
                "topology.kubernetes.io/zone"
            };
            spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
                "topologyKey": key, "labelSelector": selector }]);
        }
        4 if replicas <= 5 => {
            spec["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "kubernetes.io/hostname", "labelSelector": selector }] } });
        }
        5 => spec["nodeSelector"] = json!({ "topology.kubernetes.io/zone": random.pick(&flavour.zones) }),
        6 | 7 => spec["nodeSelector"] = json!({ "kubernetes.io/arch": random.pick(&flavour.architectures) }),
        8 | 9 => spec["nodeSelector"] = json!({ "karpenter.sh/capacity-type": "on-demand" }),
        10 => {
            spec["affinity"] = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 1, "preference": { "matchExpressions": [
                    expression("topology.kubernetes.io/zone", "In", &[*random.pick(&flavour.zones)])] } }] } });
        }
        _ => {}
    }
    for replica in 0..replicas {
        pods.push(
            json!({ "metadata": { "name": format!("{name}-{replica}"), "namespace": "default",
            "labels": labels }, "spec": spec }),
        );
    }
}
