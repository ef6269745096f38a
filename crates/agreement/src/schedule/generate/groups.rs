//! Pending pods: groups of equal ones, and singles.

use serde_json::{Value, json};

use super::super::Constraint;
use super::Draft;

const CPU: [&str; 12] = [
    "100m", "250m", "500m", "1", "1", "1500m", "2", "3", "4", "7", "750m", "0",
];
const MEMORY: [&str; 10] = [
    "64Mi", "128Mi", "512Mi", "1Gi", "1Gi", "2Gi", "3Gi", "8Gi", "14Gi", "900M",
];

impl Draft<'_> {
    pub(super) fn pods(&mut self) {
        let mut left = self.rng.between(5, 60);
        for group in 0..self.groups {
            let single = self.rng.chance(20);
            let replicas = if single { 1 } else { self.rng.between(2, 16) };
            self.group(group, replicas.min(left));
            left -= replicas.min(left);
        }
    }

    fn group(&mut self, group: usize, replicas: i64) {
        let spec = self.pod_spec(group);
        let namespace = self.namespace();
        let mut labels = json!({"app": format!("g{group}")});
        if self.rng.chance(60) {
            labels["tier"] = json!(self.rng.pick(&["front", "back"]));
        }
        let created = self.timestamp();
        let together = self.rng.chance(60);
        let halves = self.rng.chance(50);
        for replica in 0..replicas {
            let mut labels = labels.clone();
            // A rollout under way has two of them.
            let hash = if halves && replica * 2 < replicas {
                "aaaa"
            } else {
                "bbbb"
            };
            labels["pod-template-hash"] = hash.into();
            let name = format!("g{group}-{replica}");
            let mut spec = spec.clone();
            self.volumes(&mut spec, &namespace, &name, group);
            let created = if together {
                created.clone()
            } else {
                self.timestamp()
            };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": namespace, "uid": self.uid(), "labels": labels,
                    "creationTimestamp": created,
                },
                "spec": spec,
            });
            self.objects.push(pod);
        }
    }

    pub(super) fn namespace(&mut self) -> String {
        let other = self.has(Constraint::Namespaces) && self.rng.chance(40);
        if other { "other" } else { "default" }.to_owned()
    }

    pub(super) fn requests(&mut self) -> Value {
        let mut requests = serde_json::Map::new();
        if self.rng.chance(96) {
            requests.insert("cpu".to_owned(), (*self.rng.pick(&CPU)).into());
        }
        if self.rng.chance(92) {
            requests.insert("memory".to_owned(), (*self.rng.pick(&MEMORY)).into());
        }
        if self.rng.chance(8) {
            requests.insert(
                "ephemeral-storage".to_owned(),
                (*self.rng.pick(&["1Gi", "10Gi", "25Gi"])).into(),
            );
        }
        Value::Object(requests)
    }

    fn container(&mut self, name: &str) -> Value {
        let requests = self.requests();
        let mut container =
            json!({"name": name, "image": "example.com/app", "resources": {"requests": requests}});
        if self.rng.chance(10) {
            // Where only limits are stated, they are the requests.
            container["resources"] = json!({"limits": container["resources"]["requests"]});
        }
        container
    }

    fn pod_spec(&mut self, group: usize) -> Value {
        let mut spec = json!({"containers": [self.container("main")]});
        if self.rng.chance(10) {
            let second = self.container("second");
            push(&mut spec["containers"], second);
        }
        if self.has(Constraint::Containers) {
            self.more_containers(&mut spec);
        }
        if self.has(Constraint::NodeSelector) && self.rng.chance(65) {
            spec["nodeSelector"] = self.node_selector();
        }
        if self.has(Constraint::Taints) && self.rng.chance(65) {
            let tolerations: Vec<Value> = (0..self.rng.between(1, 2)).map(|_| self.toleration()).collect();
            spec["tolerations"] = json!(tolerations);
        }
        match self.rng.below(150) {
            0 => spec["resourceClaims"] = json!([{"name": "device", "resourceClaimName": "device"}]),
            1 => spec["schedulingGates"] = json!([{"name": "example.com/gate"}]),
            _ => {}
        }
        let spreads = self.spreads(group);
        if !spreads.is_empty() {
            spec["topologySpreadConstraints"] = json!(spreads);
        }
        self.affinity(&mut spec, group);
        if self.has(Constraint::HostPorts) && self.rng.chance(60) {
            spec["containers"][0]["ports"] = json!([self.host_port()]);
        }
        if self.has(Constraint::ExtendedResources) && self.rng.chance(60) {
            let (name, amount) = *self.rng.pick(&[
                ("example.com/gpu", "1"),
                ("example.com/gpu", "2"),
                ("hugepages-2Mi", "64Mi"),
                ("example.com/none", "1"),
            ]);
            let resources = &mut spec["containers"][0]["resources"];
            resources["requests"][name] = amount.into();
            resources["limits"][name] = amount.into();
        }
        spec
    }

    pub(super) fn host_port(&mut self) -> Value {
        let mut port = json!({"containerPort": 80, "hostPort": *self.rng.pick(&[8080, 8080, 9090, 9100])});
        if self.rng.chance(25) {
            port["protocol"] = json!(self.rng.pick(&["TCP", "UDP"]));
        }
        if self.rng.chance(25) {
            port["hostIP"] = json!(self.rng.pick(&["127.0.0.1", "10.0.0.1", "0.0.0.0"]));
        }
        port
    }

    fn more_containers(&mut self, spec: &mut Value) {
        if self.rng.chance(70) {
            let count = self.rng.between(1, 3);
            let mut containers = Vec::new();
            for at in 0..count {
                let mut container = self.container(&format!("init-{at}"));
                if self.rng.chance(40) {
                    container["restartPolicy"] = "Always".into();
                }
                containers.push(container);
            }
            spec["initContainers"] = json!(containers);
        }
        if self.rng.chance(40) {
            spec["overhead"] = json!({"cpu": "250m", "memory": "120Mi"});
        }
        if self.rng.chance(15) {
            spec["resources"] = json!({"requests": self.requests()});
        }
    }

    fn affinity(&mut self, spec: &mut Value, group: usize) {
        let mut node = json!({});
        if self.has(Constraint::NodeAffinity) && self.rng.chance(65) {
            let mut terms: Vec<Value> = (0..self.rng.between(1, 3)).map(|_| self.term()).collect();
            if self.rng.chance(2) {
                terms.push(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}));
            }
            node["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": terms});
        }
        if self.has(Constraint::PreferredNodeAffinity) && self.rng.chance(65) {
            let terms: Vec<Value> = (0..self.rng.between(1, 3))
                .map(|_| json!({"weight": self.rng.between(1, 100), "preference": self.term()}))
                .collect();
            node["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
        let [affinity, anti] = self.pod_affinities(group);
        for (name, value) in [
            ("nodeAffinity", node),
            ("podAffinity", affinity),
            ("podAntiAffinity", anti),
        ] {
            if value.as_object().is_some_and(|fields| !fields.is_empty()) {
                spec["affinity"][name] = value;
            }
        }
    }
}

pub(super) fn push(list: &mut Value, value: Value) {
    match list.as_array_mut() {
        Some(values) => values.push(value),
        None => *list = json!([value]),
    }
}
