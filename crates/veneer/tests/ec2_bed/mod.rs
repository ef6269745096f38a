//! `veneer run --mode standalone --provider ec2` as a process, beside a real API server, scheduler and controller manager,
//! and moto in the role of AWS. A kubelet of the test's own joins the instances that run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]
#![allow(dead_code, reason = "not every test uses every helper")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use veneer_api::NodeClaim;
use veneer_testbed::{Aws, Cluster, Options, Part, Prepared};

pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
const REGION: &str = "us-west-2";
pub(crate) const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";

pub(crate) struct Bed {
    // Ends before the cluster does.
    pub(crate) kubelet: Kubelet,
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) aws: Arc<Aws>,
    pub(crate) prepared: Prepared,
    pub(crate) cluster: Cluster,
}

/// Makes a Node for every instance that runs, as a real one would by itself; and in the role of AWS's cloud controller
/// manager, without which no cluster on EC2 runs, removes a Node that came while its instance was ending. Only one that
/// was never registered: what Veneer has taken over, Veneer has to remove.
pub(crate) struct Kubelet {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Kubelet {
    fn start(aws: Arc<Aws>, kubeconfig: Kubeconfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = runtime();
            let client = connect(&runtime, kubeconfig);
            let nodes: Api<Node> = Api::all(client);
            let (mut joined, mut left_behind) = (BTreeSet::new(), BTreeSet::new());
            while !ended.load(Ordering::SeqCst) {
                for (id, state, _) in aws.instances(CLAIM_TAG).unwrap_or_default() {
                    if state == "terminated" && left_behind.insert(id.clone()) {
                        runtime.block_on(remove_unregistered(&nodes, &node_name(&id)));
                    }
                    if state != "running" {
                        // When it starts again, it joins again.
                        joined.remove(&id);
                    } else if !joined.contains(&id) {
                        let made = runtime.block_on(nodes.create(&PostParams::default(), &node(&aws, &id)));
                        if made.is_ok() {
                            joined.insert(id);
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

fn node_name(id: &str) -> String {
    format!("{id}.internal")
}

async fn remove_unregistered(nodes: &Api<Node>, name: &str) {
    let is_unregistered = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let mut taints = taints.unwrap_or_default().iter();
        taints.any(|taint| taint.key == "karpenter.sh/unregistered")
    };
    if nodes
        .get_opt(name)
        .await
        .unwrap()
        .is_some_and(|node| is_unregistered(&node))
    {
        drop(nodes.delete(name, &DeleteParams::default()).await);
    }
}

fn node(aws: &Aws, id: &str) -> Node {
    let found = aws
        .call("ec2", "DescribeInstances", &[("InstanceId.1", id)])
        .unwrap();
    let between = |open: &str, close: &str| {
        let (_, after) = found.split_once(open).unwrap();
        after.split_once(close).unwrap().0.to_owned()
    };
    let zone = between("<availabilityZone>", "</availabilityZone>");
    let resources = json!({"cpu": "2", "memory": "7Gi", "pods": "29", "ephemeral-storage": "18Gi"});
    let fake = json!({"kwok.x-k8s.io/node": "fake"});
    serde_json::from_value(json!({
        "metadata": {"name": node_name(id), "annotations": fake,
            "labels": {"kubernetes.io/hostname": node_name(id), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "spec": {"providerID": format!("aws:///{zone}/{id}"),
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }))
    .unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn connect(runtime: &Runtime, kubeconfig: Kubeconfig) -> Client {
    runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    })
}

impl Bed {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start(Options::nodes().with(Part::Moto)).unwrap();
        let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
        let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
        cluster.install_crds(&crds).unwrap();
        let runtime = runtime();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        let client = connect(&runtime, kubeconfig.clone());
        let version = runtime.block_on(client.apiserver_version()).unwrap();
        let aws = Arc::new(Aws::of(&cluster, REGION));
        let prepared = aws
            .prepare(&format!("{}.{}", version.major, version.minor))
            .unwrap();
        aws.control(&json!({"boot": 0.3, "end": 0.3})).unwrap();
        let bed = Self {
            kubelet: Kubelet::start(Arc::clone(&aws), kubeconfig),
            runtime,
            client,
            aws,
            prepared,
            cluster,
        };
        let selects = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
        bed.create("ec2nodeclasses", json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node", "subnetSelectorTerms": selects,
                "securityGroupSelectorTerms": selects, "tags": {"team": "a"}}}));
        bed
    }

    pub(crate) fn create(&self, plural: &str, object: Value) {
        let version = object["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: Api<DynamicObject> = match plural {
            "deployments" => Api::default_namespaced_with(self.client.clone(), &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        };
        let object = serde_json::from_value(object).unwrap();
        self.runtime
            .block_on(api.create(&PostParams::default(), &object))
            .unwrap();
    }

    pub(crate) fn pool(&self, capacity: &[&str]) {
        self.create("nodepools", json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "Never", "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5a.large"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity}]}},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}}}));
    }

    pub(crate) fn deployment(&self, replicas: usize) {
        let labels = json!({"app": "web"});
        self.create("deployments", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1200m"}}}]}}}}));
    }

    pub(crate) fn scale(&self, replicas: usize) {
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.runtime
            .block_on(api.patch("web", &PatchParams::default(), &patch))
            .unwrap();
    }

    pub(crate) fn list<T>(&self) -> Vec<T>
    where
        T: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<T> = Api::all(self.client.clone());
        self.runtime
            .block_on(api.list(&ListParams::default()))
            .unwrap()
            .items
    }

    pub(crate) fn veneer(&self) -> Process {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.cluster.folder().join("veneer.log"))
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args([
                "run",
                "--mode",
                "standalone",
                "--provider",
                "ec2",
                "--aws-region",
                REGION,
            ])
            .args([
                "--aws-cluster-name",
                "test",
                "--aws-interruption-queue",
                "interruptions",
            ])
            .args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"])
            .args([
                "--leader-election-enabled=false",
                "--batch-idle-duration",
                "300ms",
            ])
            .envs(self.cluster.env())
            .envs(self.aws.env())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Process(child)
    }

    pub(crate) fn eventually(&self, what: &str, mut look: impl FnMut() -> Result<(), String>) -> Duration {
        let began = Instant::now();
        loop {
            match look() {
                Ok(()) => return began.elapsed(),
                Err(found) if began.elapsed() > DEADLINE => {
                    let log =
                        std::fs::read_to_string(self.cluster.folder().join("veneer.log")).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().collect();
                    let tail = lines.len().saturating_sub(40);
                    panic!(
                        "not within {DEADLINE:?}: {what}: {found}\n{}",
                        lines[tail..].join("\n")
                    );
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    pub(crate) fn all_run(&self, count: usize) -> Duration {
        self.eventually("all pods run", || {
            let pods: Vec<Pod> = self.list();
            let running = pods.iter().filter(|pod| {
                pod.metadata.deletion_timestamp.is_none()
                    && pod.status.as_ref().unwrap().phase.as_deref() == Some("Running")
            });
            expect(running.count(), count)
        })
    }

    /// Instances by claim, those that have ended left out.
    pub(crate) fn instances(&self) -> BTreeMap<String, Vec<String>> {
        let mut by_claim: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, state, claim) in self.aws.instances(CLAIM_TAG).unwrap() {
            if state != "terminated" {
                by_claim.entry(claim).or_default().push(id);
            }
        }
        by_claim
    }

    /// Waits until instances, claims and nodes are the same.
    pub(crate) fn consistent(&self, count: Option<usize>) -> Duration {
        self.eventually("instances, claims and nodes agree", || {
            let claims: Vec<NodeClaim> = self.list();
            let nodes: Vec<Node> = self.list();
            let leaving = claims
                .iter()
                .filter(|one| one.metadata.deletion_timestamp.is_some())
                .count();
            expect(leaving, 0)?;
            let of_claims: BTreeMap<String, Vec<String>> = claims
                .iter()
                .map(|claim| {
                    let id = claim
                        .status
                        .as_ref()
                        .and_then(|status| status.provider_id.clone());
                    (
                        claim.name_any(),
                        vec![id.unwrap_or_default().rsplit('/').next().unwrap().to_owned()],
                    )
                })
                .collect();
            expect(self.instances(), of_claims.clone())?;
            let of_nodes: BTreeSet<String> = nodes
                .iter()
                .map(|node| node.name_any().trim_end_matches(".internal").to_owned())
                .collect();
            expect(of_nodes, of_claims.into_values().flatten().collect())?;
            expect(claims.len(), count.unwrap_or(claims.len()))
        })
    }

    pub(crate) fn interrupt(&self, body: &str) {
        let message = json!({"QueueUrl": self.prepared.queue_url, "MessageBody": body});
        self.aws.sqs("SendMessage", &message).unwrap();
    }
}

pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?}, expected {expected:?}"))
}

/// A process that is killed outright, as by a crash.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
