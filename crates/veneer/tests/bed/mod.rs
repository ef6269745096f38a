//! A cluster with a scheduler and kwok for `veneer run --mode standalone --provider kwok`, and what tests ask about it.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "every test file uses some of it, and helpers fail as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
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
use tokio::runtime::Runtime;
use veneer_api::{NodeClaim, NodePool, find_condition};
use veneer_testbed::{Cluster, Options, workload};

/// A cluster with nodes to come, and a client for it.
pub(crate) struct Bed {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    /// How long anything may take.
    pub(crate) deadline: Duration,
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

impl Bed {
    /// An empty cluster.
    pub(crate) fn bare() -> Self {
        Self::with(Options::nodes().audited())
    }

    /// An empty cluster of these parts.
    pub(crate) fn with(options: Options) -> Self {
        let cluster = Cluster::start(options).unwrap();
        let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
        let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
        cluster.install_crds(&crds).unwrap();
        let runtime = runtime();
        let client = runtime.block_on(connect(&cluster.kubeconfig_path()));
        Self {
            runtime,
            client,
            cluster,
            deadline: Duration::from_secs(90),
        }
    }

    /// A cluster with the node class `default`.
    pub(crate) fn start() -> Self {
        let bed = Self::bare();
        bed.node_class();
        bed
    }

    /// Creates the node class `default`.
    pub(crate) fn node_class(&self) {
        self.create(
            json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"}}),
        );
    }

    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let plural = match kind {
            "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        if matches!(kind, "Deployment" | "DaemonSet" | "Pod" | "Lease") {
            Api::default_namespaced_with(self.client.clone(), &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    pub(crate) fn create(&self, object: Value) {
        let api = self.api(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        let object = serde_json::from_value(object).unwrap();
        self.runtime
            .block_on(api.create(&PostParams::default(), &object))
            .unwrap();
    }

    pub(crate) fn pool(&self, name: &str, template: Value) {
        self.create(workload::node_pool(name, template));
    }

    pub(crate) fn patch_pool(&self, name: &str, patch: Value) {
        let api: Api<NodePool> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch);
        self.runtime
            .block_on(api.patch(name, &PatchParams::default(), &patch))
            .unwrap();
    }

    pub(crate) fn deployment(&self, name: &str, replicas: usize, requests: Value, more: Value) {
        self.create(workload::deployment(name, replicas, &requests, more));
    }

    pub(crate) fn scale(&self, name: &str, replicas: usize) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.runtime
            .block_on(api.patch(name, &PatchParams::default(), &patch))
            .unwrap();
    }

    pub(crate) fn try_list<T>(&self) -> Result<Vec<T>, String>
    where
        T: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<T> = Api::all(self.client.clone());
        // From the API server's memory: thousands of pods are looked at again and again.
        let params = ListParams::default().match_any();
        let list = self.runtime.block_on(api.list(&params));
        list.map(|list| list.items).map_err(|error| error.to_string())
    }

    pub(crate) fn list<T>(&self) -> Vec<T>
    where
        T: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.try_list().unwrap()
    }

    /// `veneer run` in this cluster; its log goes into the cluster's folder.
    pub(crate) fn veneer(&self, arguments: &[&str]) -> Process {
        self.veneer_by(&self.cluster.kubeconfig_path(), arguments)
    }

    /// The same, reaching the cluster by another kubeconfig.
    pub(crate) fn veneer_by(&self, kubeconfig: &Path, arguments: &[&str]) -> Process {
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
            .arg("--leader-election-enabled=false")
            .args(arguments)
            .env("VENEER_BATCH_IDLE_DURATION", "300ms")
            .env("VENEER_DISRUPTION_VALIDATION", "300ms")
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Process(child)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.cluster.folder().join("veneer.log")).unwrap_or_default()
    }

    pub(crate) fn eventually(&self, what: &str, mut look: impl FnMut() -> Result<(), String>) -> Duration {
        let began = Instant::now();
        loop {
            let looked = Instant::now();
            match look() {
                Ok(()) => return began.elapsed(),
                Err(found) if began.elapsed() > self.deadline => {
                    let log = self.log();
                    let tail: Vec<&str> = log.lines().rev().take(40).collect();
                    let tail: Vec<&str> = tail.into_iter().rev().collect();
                    panic!(
                        "not within {:?}: {what}: {found}\n{}",
                        self.deadline,
                        tail.join("\n")
                    );
                }
                // Looking must not be what keeps the machine busy.
                Err(_) => std::thread::sleep(looked.elapsed().max(Duration::from_millis(100))),
            }
        }
    }

    /// How many pods of Deployments run.
    pub(crate) fn running(&self) -> Result<usize, String> {
        let pods: Vec<Pod> = self.try_list()?;
        let running = pods.iter().filter(|pod| {
            let mut owners = pod.owner_references().iter();
            pod.metadata.deletion_timestamp.is_none()
                && !owners.any(|owner| owner.kind == "DaemonSet")
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        });
        Ok(running.count())
    }

    /// Waits until `count` pods run.
    pub(crate) fn all_run(&self, count: usize) -> Duration {
        self.eventually("all pods run", || expect((self.running()?, count)))
    }

    /// Waits until the scheduler has refused `count` pods.
    pub(crate) fn all_refused(&self, count: usize) {
        self.eventually("the scheduler has seen all pods", || {
            let waiting: Vec<Pod> = self.list();
            let refused = waiting.iter().filter(|pod| {
                let conditions = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.conditions.as_deref());
                let mut conditions = conditions.unwrap_or_default().iter();
                conditions.any(|one| one.reason.as_deref() == Some("Unschedulable"))
            });
            expect((refused.count(), count))
        });
    }

    /// Waits until Nodes, NodeClaims and instances are the same, all ready and none on its way out.
    pub(crate) fn consistent(&self) {
        self.eventually("nodes and claims agree", || {
            let nodes: Vec<Node> = self.try_list()?;
            let claims: Vec<NodeClaim> = self.try_list()?;
            let leaving = nodes.iter().map(|one| &one.metadata);
            let leaving = leaving.chain(claims.iter().map(|one| &one.metadata));
            let leaving = leaving.filter(|metadata| metadata.deletion_timestamp.is_some());
            expect((leaving.count(), 0))?;
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

    /// Waits until no Node and no NodeClaim is left.
    pub(crate) fn empty(&self) -> Duration {
        self.eventually("all nodes go", || {
            let nodes: Vec<Node> = self.try_list()?;
            let claims: Vec<NodeClaim> = self.try_list()?;
            expect((nodes.len() + claims.len(), 0))
        })
    }

    /// How many nodes there are of each pool, type, capacity type and zone.
    pub(crate) fn launched(&self) -> BTreeMap<String, usize> {
        self.launched_of(|_| true)
    }

    /// The same of the nodes that the first decision asked for. The scheduler goes its own ways on nodes that come one by
    /// one, and what it finds no room for then is decided about later.
    pub(crate) fn launched_at_first(&self) -> BTreeMap<String, usize> {
        let log = self.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut decisions = 0;
        let mut names = BTreeSet::new();
        for line in lines {
            if line["message"] == "decided about pending pods" {
                decisions += 1;
            }
            if line["message"] == "created NodeClaim" && decisions == 1 {
                names.insert(line["node_claim"].as_str().unwrap().to_owned());
            }
        }
        self.launched_of(|name| names.contains(name))
    }

    fn launched_of(&self, counts: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
        let mut launched: BTreeMap<String, usize> = BTreeMap::new();
        let nodes: Vec<Node> = self.list();
        for node in nodes.iter().filter(|node| counts(&node.name_any())) {
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
        launched
    }

    /// A pool's condition as `status reason: message`.
    pub(crate) fn pool_condition(&self, pool: &str, type_: &str) -> String {
        let pools: Vec<NodePool> = self.list();
        let pool = pools.into_iter().find(|one| one.name_any() == pool).unwrap();
        let status = pool.status.unwrap_or_default();
        find_condition(&status.conditions, type_)
            .map(|one| format!("{} {}: {}", one.status, one.reason, one.message))
            .unwrap_or_default()
    }

    /// What our events of a reason on objects whose names begin with `name` say.
    pub(crate) fn said(&self, name: &str, reason: &str) -> Vec<String> {
        let events: Vec<Event> = self.list();
        let ours = events.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref().and_then(|one| one.name.as_deref());
            regarding.unwrap_or_default().starts_with(name)
                && event.reason.as_deref() == Some(reason)
                && event.reporting_controller.as_deref() == Some("veneer.io/provisioner")
        });
        ours.filter_map(|event| event.note).collect()
    }
}

/// A client with all rights.
pub(crate) async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

pub(crate) fn expect<T: PartialEq + std::fmt::Debug>((found, expected): (T, T)) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{found:?}, expected {expected:?}"))
    }
}

/// A process that is killed outright, as by a crash.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
