//! The parts of which workloads are made: templates with constraints, and the objects around them.

use serde_json::{Value, json};
use veneer_agreement::Rng;

use super::feature::Feature;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];

/// The spec of a workload's pods.
pub(super) struct Template {
    app: String,
    pub(super) spec: Value,
}

pub(super) fn requests(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

/// How many pods a workload with these features can have.
pub(super) fn most(features: &[Feature]) -> usize {
    let of = |feature: &Feature| match feature {
        Feature::ZoneAntiAffinity => 4,
        Feature::HostAffinity | Feature::HostPorts => 6,
        Feature::HostAntiAffinity | Feature::Volumes | Feature::HostSpread => 12,
        Feature::BarePods => 8,
        Feature::StatefulSets | Feature::Jobs => 20,
        _ => 80,
    };
    features.iter().map(of).min().unwrap_or(80)
}

impl Template {
    pub(super) fn new(app: &str, rng: &mut Rng) -> Self {
        let (cpu, memory) = *rng.pick(&[
            ("100m", "128Mi"),
            ("250m", "1Gi"),
            ("500m", "512Mi"),
            ("500m", "4Gi"),
            ("1", "2Gi"),
            ("1500m", "2Gi"),
            ("2", "8Gi"),
        ]);
        Template {
            app: app.to_owned(),
            spec: json!({"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "registry.example/main:1",
                "resources": {"requests": requests(cpu, memory)}}]}),
        }
    }

    /// Adds what a feature means to the pods of workload `number`. Features of other things change nothing here.
    pub(super) fn add(&mut self, feature: Feature, number: usize, rng: &mut Rng) {
        match feature {
            Feature::ZoneSpread => self.spread(ZONE, "DoNotSchedule", json!({}), rng),
            Feature::HostSpread => self.spread(HOST, "DoNotSchedule", json!({}), rng),
            Feature::CapacitySpread => self.spread(CAPACITY_TYPE, "DoNotSchedule", json!({}), rng),
            Feature::SoftSpread => {
                let key = *rng.pick(&[ZONE, HOST, CAPACITY_TYPE]);
                self.spread(key, "ScheduleAnyway", json!({}), rng);
            }
            Feature::MinDomains => {
                let domains = rng.between(2, 4);
                self.spread(ZONE, "DoNotSchedule", json!({"minDomains": domains}), rng);
            }
            Feature::MatchLabelKeys => {
                let key = *rng.pick(&[ZONE, HOST]);
                let more = json!({"matchLabelKeys": ["pod-template-hash"]});
                self.spread(key, "DoNotSchedule", more, rng);
            }
            Feature::ZoneAffinity => self.required("podAffinity", &self.app.clone(), ZONE),
            Feature::HostAffinity => {
                self.spec["containers"][0]["resources"]["requests"] = requests("200m", "256Mi");
                self.required("podAffinity", &self.app.clone(), HOST);
            }
            Feature::ZoneAntiAffinity => self.required("podAntiAffinity", &self.app.clone(), ZONE),
            Feature::HostAntiAffinity => self.required("podAntiAffinity", &self.app.clone(), HOST),
            Feature::OtherAntiAffinity => {
                let other = format!("app-{}", (number + 1) % 2);
                self.required("podAntiAffinity", &other, HOST);
            }
            Feature::PreferredPodAffinity => {
                let kind = *rng.pick(&["podAffinity", "podAntiAffinity"]);
                let key = *rng.pick(&[ZONE, HOST]);
                let term = json!({"weight": rng.between(1, 100), "podAffinityTerm": term(&self.app, key)});
                self.affinity(kind, "preferredDuringSchedulingIgnoredDuringExecution", term);
            }
            Feature::NodeSelector => self.node_selector(rng),
            Feature::NodeAffinity => self.node_affinity(rng),
            Feature::PreferredNodeAffinity => {
                let preference = json!({"matchExpressions": [node_requirement(rng)]});
                let term = json!({"weight": rng.between(1, 100), "preference": preference});
                self.affinity(
                    "nodeAffinity",
                    "preferredDuringSchedulingIgnoredDuringExecution",
                    term,
                );
            }
            Feature::HostPorts => {
                self.spec["containers"][0]["ports"] =
                    json!([{"containerPort": 80, "hostPort": 8000 + rng.below(2)}]);
            }
            Feature::Taints => {
                self.spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
                if rng.chance(50) {
                    self.spec["nodeSelector"]["example.com/pool"] = json!("dedicated");
                }
            }
            _ => {}
        }
    }

    fn spread(&mut self, key: &str, otherwise: &str, more: Value, rng: &mut Rng) {
        let mut constraint = json!({"maxSkew": rng.between(1, 3), "topologyKey": key, "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": {"app": self.app}}});
        if rng.chance(15) {
            constraint["nodeTaintsPolicy"] = json!("Honor");
        }
        if rng.chance(10) {
            constraint["nodeAffinityPolicy"] = json!("Ignore");
        }
        if let (Some(constraint), Value::Object(more)) = (constraint.as_object_mut(), more) {
            constraint.extend(more);
        }
        let constraints = &mut self.spec["topologySpreadConstraints"];
        match constraints.as_array_mut() {
            // A pair of key and effect may occur once.
            Some(all) => {
                all.retain(|other| other["topologyKey"] != key || other["whenUnsatisfiable"] != otherwise);
                all.push(constraint);
            }
            None => *constraints = json!([constraint]),
        }
    }

    fn required(&mut self, kind: &str, app: &str, key: &str) {
        self.affinity(
            kind,
            "requiredDuringSchedulingIgnoredDuringExecution",
            term(app, key),
        );
    }

    fn affinity(&mut self, kind: &str, strength: &str, term: Value) {
        let terms = &mut self.spec["affinity"][kind][strength];
        match terms.as_array_mut() {
            Some(all) => all.push(term),
            None => *terms = json!([term]),
        }
    }

    fn node_selector(&mut self, rng: &mut Rng) {
        let (key, value) = *rng.pick(&[
            (CAPACITY_TYPE, "spot"),
            (CAPACITY_TYPE, "on-demand"),
            ("kubernetes.io/arch", "arm64"),
            ("kubernetes.io/arch", "amd64"),
            (ZONE, "us-west-2b"),
            ("example.com/pool", "general"),
        ]);
        self.spec["nodeSelector"][key] = json!(value);
    }

    /// One term, or several of which any will do.
    fn node_affinity(&mut self, rng: &mut Rng) {
        let count = 1 + rng.below(3);
        let terms: Vec<Value> = (0..count)
            .map(|_| json!({"matchExpressions": [node_requirement(rng)]}))
            .collect();
        self.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
}

fn node_requirement(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 => json!({"key": ZONE, "operator": "In", "values": [rng.pick(&ZONES), rng.pick(&ZONES)]}),
        1 => json!({"key": ZONE, "operator": "NotIn", "values": [rng.pick(&ZONES)]}),
        2 => json!({"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]}),
        3 => {
            json!({"key": "kubernetes.io/arch", "operator": "In", "values": [rng.pick(&["amd64", "arm64"])]})
        }
        4 => json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["3"]}),
        _ => json!({"key": "example.com/pool", "operator": "Exists"}),
    }
}

fn term(app: &str, key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn metadata(app: &str) -> Value {
    json!({"labels": {"app": app, "version": "1"}})
}

pub(super) fn deployment(app: &str, replicas: usize, template: &Template) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": app}},
        "template": {"metadata": metadata(app), "spec": template.spec}}})
}

pub(super) fn stateful_set(
    app: &str,
    replicas: usize,
    template: &Template,
    parallel: bool,
    with_volumes: bool,
) -> Value {
    let policy = if parallel { "Parallel" } else { "OrderedReady" };
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": app}, "spec": {
        "replicas": replicas, "serviceName": app, "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": app}},
        "template": {"metadata": metadata(app), "spec": template.spec}}});
    if with_volumes {
        set["spec"]["volumeClaimTemplates"] =
            json!([{"metadata": {"name": "data"}, "spec": volume_claim("")}]);
    }
    set
}

fn volume_claim(volume: &str) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}});
    if !volume.is_empty() {
        spec["volumeName"] = json!(volume);
    }
    spec
}

/// A volume in a zone and the claim that has it, for each pod that a StatefulSet may have.
pub(super) fn volumes(app: &str, count: usize, rng: &mut Rng) -> Vec<Value> {
    let mut objects = Vec::new();
    for number in 0..count {
        let (volume, claim) = (format!("{app}-{number}"), format!("data-{app}-{number}"));
        let zone = rng.pick(&ZONES);
        objects.push(
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": claim},
            "hostPath": {"path": format!("/volumes/{volume}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": [zone]}]}]}}}}),
        );
        objects.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "labels": {"app": app}}, "spec": volume_claim(&volume)}));
    }
    objects
}

pub(super) fn job(app: &str, pods: usize, template: &Template, seconds: i64) -> Value {
    let mut spec = template.spec.clone();
    spec["restartPolicy"] = json!("Never");
    let mut metadata = metadata(app);
    metadata["annotations"] = json!({"testbed.veneer.io/runs-for": format!("{seconds}s")});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": app}, "spec": {
        "parallelism": pods, "completions": pods, "backoffLimit": 50,
        "template": {"metadata": metadata, "spec": spec}}})
}

pub(super) fn bare_pod(app: &str, number: usize, template: &Template) -> Value {
    let mut metadata = metadata(app);
    metadata["name"] = json!(format!("{app}-{number}"));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.spec})
}

pub(super) fn daemon_set(name: &str, requests: &Value, everywhere: bool) -> Value {
    let tolerations = if everywhere {
        json!([{"operator": "Exists"}])
    } else {
        json!([])
    };
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "tolerations": tolerations, "containers": [{"name": "main", "image": "registry.example/agent:1",
                "resources": {"requests": requests}}]}}}})
}

pub(super) fn budget(app: &str, rng: &mut Rng) -> Value {
    let (key, value) = rng
        .pick(&[
            ("maxUnavailable", json!(1)),
            ("maxUnavailable", json!("50%")),
            ("minAvailable", json!("50%")),
            ("minAvailable", json!(1)),
        ])
        .clone();
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": {
        key: value, "selector": {"matchLabels": {"app": app}}}})
}
