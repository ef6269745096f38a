//! Volumes: claims, volumes, storage classes and what a node can attach.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::facts::{HOSTNAME, ZONE, ZONES};
use super::Draft;
use super::groups::push;

const DRIVER: &str = "ebs.csi.aws.com";

impl Draft<'_> {
    fn has_volumes(&self) -> bool {
        self.has(Constraint::Volumes) || self.has(Constraint::AttachLimits)
    }

    pub(super) fn storage_classes(&mut self) {
        if !self.has_volumes() {
            return;
        }
        let zones = |values: &[&str]| json!({"matchLabelExpressions": [{"key": ZONE, "values": values}]});
        let (first, second) = (*self.rng.pick(&ZONES), *self.rng.pick(&ZONES));
        for (name, mode, topologies) in [
            ("wait", "WaitForFirstConsumer", json!([])),
            ("zonal", "WaitForFirstConsumer", json!([zones(&[first, second])])),
            (
                "either",
                "WaitForFirstConsumer",
                json!([zones(&[first]), zones(&[second])]),
            ),
            ("now", "Immediate", json!([])),
        ] {
            self.objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": DRIVER, "volumeBindingMode": mode, "allowedTopologies": topologies,
            }));
        }
    }

    /// How many volumes a node can attach.
    pub(super) fn attach_limit(&mut self, node: &str) {
        if self.has(Constraint::AttachLimits) {
            let count = self.rng.between(0, 5);
            self.objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                "spec": {"drivers": [{"name": DRIVER, "nodeID": node, "topologyKeys": [], "allocatable": {"count": count}}]},
            }));
        }
    }

    /// Gives a pod volumes.
    pub(super) fn volumes(&mut self, spec: &mut Value, namespace: &str, pod: &str, group: usize) {
        if !self.has_volumes() || !self.rng.chance(60) {
            return;
        }
        for number in 0..self.rng.between(1, 2) {
            let volume = match self.rng.below(12) {
                0 => json!({"name": format!("v{number}"), "emptyDir": {}}),
                1..=2 => {
                    // A claim that the whole group shares.
                    let claim = format!("shared-{group}");
                    let known = self.objects.iter().any(|object| {
                        object["kind"] == "PersistentVolumeClaim"
                            && object["metadata"]["name"] == claim.as_str()
                            && object["metadata"]["namespace"] == namespace
                    });
                    if !known {
                        self.claim(namespace, &claim);
                    }
                    json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}})
                }
                3 => {
                    // An ephemeral volume's claim is named after the pod.
                    self.claim(namespace, &format!("{pod}-v{number}"));
                    json!({"name": format!("v{number}"), "ephemeral": {"volumeClaimTemplate": {"spec": {
                        "storageClassName": "wait", "accessModes": ["ReadWriteOnce"],
                    }}}})
                }
                _ => {
                    let claim = format!("{pod}-data-{number}");
                    // A claim that is missing keeps its pod from being scheduled; a bound pod cannot have that.
                    if spec.get("nodeName").is_some() || !self.rng.chance(3) {
                        self.claim(namespace, &claim);
                    }
                    json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}})
                }
            };
            push(&mut spec["volumes"], volume);
        }
    }

    fn claim(&mut self, namespace: &str, name: &str) {
        let mut metadata = json!({"name": name, "namespace": namespace, "uid": self.uid()});
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "wait"});
        match self.rng.below(20) {
            0..=8 => {
                let volume = format!("pv-{namespace}-{name}");
                if self.rng.chance(97) {
                    metadata["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
                }
                spec["volumeName"] = volume.as_str().into();
                self.volume(&volume);
            }
            9..=13 => spec["storageClassName"] = "zonal".into(),
            14..=15 => spec["storageClassName"] = "either".into(),
            16 if self.rng.chance(30) => spec["storageClassName"] = "now".into(),
            17 if self.rng.chance(20) => spec["storageClassName"] = "missing".into(),
            18 if self.rng.chance(20) => spec["storageClassName"] = "".into(),
            _ => {}
        }
        let mut status = json!({});
        match self.rng.below(100) {
            0 => status["phase"] = "Lost".into(),
            1 => {
                metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
                metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            }
            _ => {}
        }
        self.objects.push(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status,
        }));
    }

    fn volume(&mut self, name: &str) {
        let zone =
            |zone: &str| json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
        let mut spec =
            json!({"csi": {"driver": DRIVER, "volumeHandle": name}, "accessModes": ["ReadWriteOnce"]});
        let first = *self.rng.pick(&ZONES);
        let mut terms = vec![zone(first)];
        if self.rng.chance(25) {
            let second = *self.rng.pick(&ZONES);
            terms.push(zone(second));
        }
        if self.rng.chance(10) {
            spec = json!({"local": {"path": "/data"}, "accessModes": ["ReadWriteOnce"]});
            terms =
                vec![json!({"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["gone"]}]})];
        }
        if self.rng.chance(90) {
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
        }
        self.objects.push(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec,
        }));
    }
}
