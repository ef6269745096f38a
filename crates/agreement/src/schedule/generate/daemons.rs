//! DaemonSets, and their pods on nodes that exist.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::facts::{ARCH, CAPACITY_TYPE};
use super::Draft;

impl Draft<'_> {
    pub(super) fn daemon_sets(&mut self) {
        if !self.has(Constraint::DaemonSets) {
            return;
        }
        for number in 0..self.rng.between(1, 3) {
            let spec = self.daemon_spec();
            let set = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"name": format!("daemon-{number}"), "namespace": "default", "uid": self.uid()},
                "spec": {
                    "selector": {"matchLabels": {"daemon": number.to_string()}},
                    "template": {"metadata": {"labels": {"daemon": number.to_string()}}, "spec": spec},
                },
            });
            self.objects.push(set);
        }
    }

    /// The daemons that run on a node, some of them from an earlier template.
    pub(super) fn daemon_pods(&mut self, node: &str) {
        let sets: Vec<Value> = self
            .objects
            .iter()
            .filter(|object| object["kind"] == "DaemonSet")
            .cloned()
            .collect();
        for set in sets {
            if !self.rng.chance(50) {
                continue;
            }
            let mut spec = set["spec"]["template"]["spec"].clone();
            spec["nodeName"] = node.into();
            if self.rng.chance(20) {
                spec["containers"][0]["resources"]["requests"]["cpu"] = "200m".into();
            }
            let metadata = &set["metadata"];
            let name = format!("{}-{node}", metadata["name"].as_str().unwrap_or_default());
            let owner = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": metadata["name"], "uid": metadata["uid"],
                "controller": true,
            });
            let created = self.timestamp();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "default", "uid": self.uid(), "ownerReferences": [owner],
                    "labels": set["spec"]["template"]["metadata"]["labels"], "creationTimestamp": created,
                },
                "spec": spec,
                "status": {"phase": "Running"},
            });
            self.objects.push(pod);
        }
    }

    fn daemon_spec(&mut self) -> Value {
        let requests = json!({
            "cpu": *self.rng.pick(&["50m", "100m", "500m", "1"]),
            "memory": *self.rng.pick(&["32Mi", "256Mi", "1Gi"]),
        });
        let mut spec = json!({
            "containers": [{"name": "daemon", "image": "example.com/daemon", "resources": {"requests": requests}}],
        });
        // One that fits some types only makes a claim's requests depend on Go's map order, so it is rare.
        match self.rng.below(20) {
            0 => spec["nodeSelector"] = json!({ARCH: "arm64"}),
            1 => spec["nodeSelector"] = json!({CAPACITY_TYPE: "spot"}),
            2 => {
                let terms: Vec<Value> = vec![self.term()];
                spec["affinity"] = json!({"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                }});
            }
            3 => spec["nodeSelector"] = json!({"example.com/nowhere": "x"}),
            _ => {}
        }
        if self.rng.chance(50) {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        } else if self.has(Constraint::Taints) && self.rng.chance(50) {
            spec["tolerations"] = json!([self.toleration()]);
        }
        if self.has(Constraint::HostPorts) && self.rng.chance(40) {
            spec["containers"][0]["ports"] = json!([self.host_port()]);
        }
        spec
    }
}
