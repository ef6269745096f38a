//! `veneer run --mode standalone --provider kwok` as a process, beside a real API server, scheduler, controller manager
//! and kwok: pending pods run, nodes go when they are empty, and nothing is lost or doubled by a crash.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::veneer;
use tokio::runtime::Runtime;
use veneer_api::{NodeClaim, NodePool, find_condition};
use veneer_testbed::{Cluster, Options};

const DEADLINE: Duration = Duration::from_secs(90);

/// A cluster with nodes to come, and a client for it.
struct Bed {
    runtime: Runtime,
    client: Client,
    cluster: Cluster,
}

impl Bed {
    fn start() -> Self {
        let cluster = Cluster::start(Options::nodes()).unwrap();
        let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
        let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
        cluster.install_crds(&crds).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            Client::try_from(config.unwrap()).unwrap()
        });
        let bed = Self {
            runtime,
            client,
            cluster,
        };
        bed.create(
            json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"}}),
        );
        bed
    }

    fn create(&self, object: Value) {
        let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", object["apiVersion"].as_str().unwrap()),
        };
        let kind = object["kind"].as_str().unwrap();
        let plural = match kind {
            "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        let api: Api<DynamicObject> = if matches!(kind, "Deployment" | "DaemonSet" | "Pod" | "Lease") {
            Api::default_namespaced_with(self.client.clone(), &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        };
        let object = serde_json::from_value(object).unwrap();
        self.runtime
            .block_on(api.create(&PostParams::default(), &object))
            .unwrap();
    }

    fn pool(&self, name: &str, template: Value) {
        let mut spec = json!({"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"});
        for (key, value) in template.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.create(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
            "template": {"spec": spec},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]},
        }}));
    }

    fn deployment(&self, name: &str, replicas: usize, requests: Value, more: Value) {
        let mut spec = json!({"containers": [{"name": "main", "image": "registry.example/main:1",
            "resources": {"requests": requests, "limits": limits(&requests)}}]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let labels = json!({"app": name});
        self.create(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec}}}),
        );
    }

    fn scale(&self, name: &str, replicas: usize) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.runtime
            .block_on(api.patch(name, &PatchParams::default(), &patch))
            .unwrap();
    }

    fn list<T>(&self) -> Vec<T>
    where
        T: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<T> = Api::all(self.client.clone());
        let list = self.runtime.block_on(api.list(&ListParams::default()));
        list.unwrap().items
    }

    /// `veneer run` in this cluster; its log goes into the cluster's folder.
    fn veneer(&self, arguments: &[&str]) -> Process {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.cluster.folder().join("veneer.log"))
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args(["run", "--mode", "standalone", "--provider", "kwok", "--catalog"])
            .arg(veneer_testbed::karpenter_instance_types().unwrap())
            .args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"])
            // A killed leader's lease would be waited for at every start.
            .args([
                "--leader-election-enabled=false",
                "--batch-idle-duration",
                "300ms",
            ])
            .args(arguments)
            .envs(self.cluster.env())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Process(child)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.cluster.folder().join("veneer.log")).unwrap_or_default()
    }

    fn eventually(&self, what: &str, mut look: impl FnMut() -> Result<(), String>) -> Duration {
        let began = Instant::now();
        loop {
            match look() {
                Ok(()) => return began.elapsed(),
                Err(found) if began.elapsed() > DEADLINE => {
                    let log = self.log();
                    let tail: Vec<&str> = log.lines().rev().take(40).collect();
                    let tail: Vec<&str> = tail.into_iter().rev().collect();
                    panic!("not within {DEADLINE:?}: {what}: {found}\n{}", tail.join("\n"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Waits until `count` pods run and none waits.
    fn all_run(&self, count: usize) -> Duration {
        self.eventually("all pods run", || {
            let pods: Vec<Pod> = self.list();
            let pods: Vec<&Pod> = pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .collect();
            let running = pods.iter().filter(|pod| {
                let owned = pod
                    .owner_references()
                    .iter()
                    .any(|owner| owner.kind == "DaemonSet");
                !owned && pod.status.as_ref().unwrap().phase.as_deref() == Some("Running")
            });
            expect((running.count(), count))
        })
    }

    /// Waits until Nodes, NodeClaims and instances are the same, all ready and none on its way out.
    fn consistent(&self) {
        self.eventually("nodes and claims agree", || {
            let nodes: Vec<Node> = self.list();
            let claims: Vec<NodeClaim> = self.list();
            let leaving = nodes
                .iter()
                .filter(|one| one.metadata.deletion_timestamp.is_some())
                .count()
                + claims
                    .iter()
                    .filter(|one| one.metadata.deletion_timestamp.is_some())
                    .count();
            if leaving > 0 {
                return Err(format!("{leaving} are leaving"));
            }
            let ids = |list: Vec<Option<String>>| {
                let mut ids: Vec<String> = list.into_iter().map(Option::unwrap_or_default).collect();
                ids.sort();
                ids
            };
            let of_nodes = ids(nodes
                .iter()
                .map(|node| node.spec.as_ref()?.provider_id.clone())
                .collect());
            let of_claims = ids(claims
                .iter()
                .map(|claim| claim.status.as_ref()?.provider_id.clone())
                .collect());
            let mut distinct = of_claims.clone();
            distinct.dedup();
            let unready = claims.iter().filter(|claim| {
                let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
                find_condition(conditions, "Ready").is_none_or(|ready| ready.status.as_str() != "True")
            });
            expect((unready.count(), 0))?;
            expect((&distinct, &of_claims))?;
            expect((&of_nodes, &of_claims))
        });
    }
}

/// Extended resources and huge pages need limits.
fn limits(requests: &Value) -> Value {
    let kept = requests.as_object().unwrap().iter();
    let kept = kept.filter(|(key, _)| key.contains('/') || key.starts_with("hugepages-"));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn expect<T: PartialEq + std::fmt::Debug>((found, expected): (T, T)) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found:?}, expected {expected:?}"))
    }
}

/// A process that is killed outright, as by a crash.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mixed_deployments_run_on_what_was_predicted_and_their_nodes_go_when_they_are_empty() {
    let bed = Bed::start();
    bed.pool(
        "default",
        json!({"requirements": [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}),
    );
    bed.pool(
        "team",
        json!({"taints": [{"key": "team", "effect": "NoSchedule"}], "requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}),
    );
    bed.create(json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "extras"},
        "spec": {"capacity": {"example.com/fuse": "10", "hugepages-2Mi": "256Mi"}, "priceAdjustment": "-10%",
            "requirements": [{"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m5"]}]}}));
    bed.create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.example/agent:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}}}));
    let spread = |key: &str| {
        json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}}}])
    };
    bed.deployment("plain", 60, json!({"cpu": "500m", "memory": "512Mi"}), json!({}));
    bed.deployment(
        "spread",
        12,
        json!({"cpu": "1"}),
        json!({"topologySpreadConstraints": spread("topology.kubernetes.io/zone")}),
    );
    bed.deployment("apart", 4, json!({"cpu": "250m"}), json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}]}}}));
    bed.deployment("team", 6, json!({"cpu": "2"}), json!({
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["team"]}]}]}}}}));
    bed.deployment(
        "fuse",
        8,
        json!({"cpu": "200m", "memory": "128Mi", "example.com/fuse": "2", "hugepages-2Mi": "32Mi"}),
        json!({}),
    );
    bed.deployment("strange", 1, json!({"example.com/unknown": "1"}), json!({}));
    let pods = 60 + 12 + 4 + 6 + 8;
    bed.eventually("the scheduler has seen all pods", || {
        let waiting: Vec<Pod> = bed.list();
        let refused = waiting.iter().filter(|pod| {
            let conditions = pod
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_deref());
            let mut conditions = conditions.unwrap_or_default().iter();
            conditions.any(|one| one.reason.as_deref() == Some("Unschedulable"))
        });
        expect((refused.count(), pods + 1))
    });
    let catalogue = veneer_testbed::karpenter_instance_types().unwrap();
    let kubeconfig = bed.cluster.kubeconfig_path();
    let predicted = veneer(&[
        "simulate",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--catalog",
        catalogue.to_str().unwrap(),
        "-o",
        "json",
    ]);
    assert_eq!(predicted.code, 0, "{}", predicted.err);

    // That these launch nothing is the controller's own finding.
    bed.pool(
        "lost",
        json!({"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gone"}}),
    );
    bed.pool(
        "impossible",
        json!({"requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["no-such-type"]}]}),
    );
    let running = bed.veneer(&[]);
    println!("{pods} pods ran {:?} after the start", bed.all_run(pods));
    bed.consistent();
    let mut launched: BTreeMap<String, usize> = BTreeMap::new();
    for node in bed.list::<Node>() {
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        let what = format!(
            "{} {} {} {}",
            label("karpenter.sh/nodepool"),
            label("node.kubernetes.io/instance-type"),
            label("karpenter.sh/capacity-type"),
            label("topology.kubernetes.io/zone")
        );
        *launched.entry(what).or_default() += 1;
    }
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for claim in predicted.json()["newNodeClaims"].as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let cheapest = &claim["cheapest"];
        let what = format!(
            "{} {} {} {}",
            text(&claim["nodePool"]),
            text(&cheapest["instanceType"]),
            text(&cheapest["capacityType"]),
            text(&cheapest["zone"])
        );
        *expected.entry(what).or_default() += 1;
    }
    assert_eq!(launched, expected, "what was launched is what was predicted");

    // Bad objects say what is wrong.
    let condition = |pool: &str, type_: &str| {
        let pools: Vec<NodePool> = bed.list();
        let pool = pools.into_iter().find(|one| one.name_any() == pool).unwrap();
        let status = pool.status.unwrap_or_default();
        let one = find_condition(&status.conditions, type_).cloned();
        one.map(|one| format!("{} {}: {}", one.status, one.reason, one.message))
            .unwrap_or_default()
    };
    assert_eq!(condition("default", "Ready"), "True Ready: ");
    let lost = condition("lost", "NodeClassReady");
    assert!(
        lost.starts_with("False NodeClassNotFound") && lost.contains("create it"),
        "{lost}"
    );
    let events: Vec<Event> = bed.list();
    let said = |name: &str, reason: &str| {
        let mut events = events.iter().filter(|event| {
            let regarding = event
                .regarding
                .as_ref()
                .and_then(|one| one.name.as_deref())
                .unwrap_or_default();
            regarding.starts_with(name)
                && event.reason.as_deref() == Some(reason)
                && event.reporting_controller.as_deref() == Some("veneer.io/provisioner")
        });
        events
            .next()
            .and_then(|event| event.note.clone())
            .unwrap_or_else(|| panic!("no {reason} on {name}"))
    };
    assert!(said("impossible", "NoCompatibleInstanceTypes").contains("widen"));
    assert!(said("lost", "NodeClassNotReady").contains("create it"));
    let strange = said("strange", "FailedScheduling");
    assert!(strange.contains("example.com/unknown"), "{strange}");

    for name in ["plain", "spread", "apart", "team", "fuse", "strange"] {
        bed.scale(name, 0);
    }
    let took = bed.eventually("empty nodes go", || {
        let nodes: Vec<Node> = bed.list();
        let claims: Vec<NodeClaim> = bed.list();
        expect((nodes.len() + claims.len(), 0))
    });
    println!("the nodes were gone {took:?} after the pods were deleted");
    drop(running);
}

/// Numbers that look random and are the same in every run.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn killing_it_at_random_points_loses_and_doubles_nothing() {
    let kills: usize = std::env::var("VENEER_TEST_KILLS").map_or(10, |text| text.parse().unwrap());
    let mut seed = std::env::var("VENEER_TEST_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    let bed = Bed::start();
    bed.pool(
        "default",
        json!({"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4", "8"]}]}),
    );
    bed.deployment("work", 0, json!({"cpu": "1500m"}), json!({}));
    let mut replicas = 0;
    for kill in 0..kills {
        let running = bed.veneer(&["--kwok-launch-delay", "50ms"]);
        replicas = match kill % 2 {
            0 => replicas + 16,
            _ => replicas - 10,
        };
        bed.scale("work", replicas);
        // The experiment is about when, so this waits by the clock.
        std::thread::sleep(Duration::from_millis(300 + random(&mut seed) % 2_000));
        drop(running);
    }
    let running = bed.veneer(&["--kwok-launch-delay", "50ms"]);
    bed.all_run(replicas);
    bed.consistent();
    let used: std::collections::BTreeSet<String> = bed
        .list::<Pod>()
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    bed.eventually("empty nodes go", || {
        expect((bed.list::<Node>().len(), used.len()))
    });
    bed.consistent();
    bed.scale("work", 0);
    bed.eventually("everything goes", || {
        expect((bed.list::<Node>().len() + bed.list::<NodeClaim>().len(), 0))
    });
    drop(running);
}

#[test]
fn it_does_not_start_beside_a_running_karpenter() {
    let bed = Bed::start();
    let labels = json!({"app.kubernetes.io/name": "karpenter"});
    bed.create(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "karpenter", "labels": labels}, "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "controller", "image": "registry.example/karpenter:1"}]}}}}));
    let mut refused = bed.veneer(&[]);
    let status = refused.0.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    let log = bed.log();
    assert!(log.contains("scale deployment karpenter --replicas=0"), "{log}");

    bed.scale("karpenter", 0);
    let mut running = bed.veneer(&[]);
    bed.eventually("it starts", || {
        assert!(running.0.try_wait().unwrap().is_none(), "{}", bed.log());
        let started = bed.log().contains("everything was listed");
        expect((started, true))
    });
}
