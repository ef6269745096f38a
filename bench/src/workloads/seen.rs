//! What a watch has shown of a cluster so far, reduced to what matters: which pods run, and whether anything still moves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use veneer_api::NodeClaim;

use super::case::{Case, Expected, Kind};

/// A pod as the watch has shown it.
#[derive(Clone, Debug)]
pub(super) struct SeenPod {
    app: String,
    version: String,
    owner: String,
    phase: String,
    node: String,
    is_leaving: bool,
    came: Instant,
    ran: Option<Instant>,
}

impl SeenPod {
    /// How long it took until the pod ran.
    pub(super) fn wait(&self) -> Option<f64> {
        Some(self.ran?.duration_since(self.came).as_secs_f64())
    }
}

pub(super) struct Seen {
    pub(super) began: Instant,
    /// Once all expected pods run after the last step: when the last of them began to run.
    pub(super) reached: Option<Instant>,
    pub(super) last_running: Option<Instant>,
    pub(super) settled: bool,
    /// All pods that there ever were, by their uid.
    pub(super) pods: BTreeMap<String, SeenPod>,
    gone: BTreeSet<String>,
    /// By name, what of it matters.
    nodes: BTreeMap<String, (bool, usize, bool)>,
    claims: BTreeMap<String, (bool, bool)>,
    /// The NodePool and the CPUs of each node, by its name.
    cpus: BTreeMap<String, (String, f64)>,
    /// The most CPUs that the nodes of each NodePool had at any time.
    pub(super) most_cpus: BTreeMap<String, f64>,
}

impl Seen {
    pub(super) fn new(began: Instant) -> Self {
        Seen {
            began,
            reached: None,
            last_running: None,
            settled: false,
            pods: BTreeMap::new(),
            gone: BTreeSet::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            cpus: BTreeMap::new(),
            most_cpus: BTreeMap::new(),
        }
    }

    /// How many of the expected pods run (or have succeeded), and how many should.
    pub(super) fn count(&self, expected: &Expected) -> (usize, usize) {
        let of_app = || {
            self.pods
                .iter()
                .filter(|(_, pod)| pod.app == expected.app && pod.version == expected.version)
        };
        let present = || {
            of_app()
                .filter(|(uid, pod)| !self.gone.contains(*uid) && !pod.is_leaving)
                .map(|(_, pod)| pod)
        };
        let running = present().filter(|pod| pod.phase == "Running").count();
        match expected.kind {
            Kind::Job => {
                let succeeded = of_app().filter(|(_, pod)| pod.phase == "Succeeded").count();
                (succeeded.min(expected.pods), expected.pods)
            }
            // Those that were evicted are not missed.
            Kind::Pod => {
                let ended = of_app().count() - present().count();
                (running, expected.pods.saturating_sub(ended))
            }
            Kind::Deployment | Kind::StatefulSet => (running.min(expected.pods), expected.pods),
        }
    }

    pub(super) fn all_run(&self, case: &Case) -> bool {
        case.expected.iter().all(|expected| {
            let (runs, wanted) = self.count(expected);
            runs >= wanted
        })
    }

    pub(super) fn daemon_pods_pending(&self) -> usize {
        let pending = self.pods.iter().filter(|(uid, pod)| {
            pod.owner == "DaemonSet" && pod.phase == "Pending" && !self.gone.contains(*uid) && !pod.is_leaving
        });
        pending.count()
    }

    /// Takes an event in, and says whether anything changed that matters.
    pub(super) fn take(&mut self, event: Changed) -> bool {
        let now = Instant::now();
        match event {
            Changed::Pod(pod) => self.take_pod(&pod, now),
            Changed::PodGone(uid) => self.gone.insert(uid),
            Changed::Node(node) => {
                self.count_cpus(&node);
                let spec = node.spec.clone().unwrap_or_default();
                let conditions = node.status.clone().and_then(|status| status.conditions);
                let is_ready = conditions
                    .unwrap_or_default()
                    .iter()
                    .any(|condition| condition.type_ == "Ready" && condition.status == "True");
                let taints = spec.taints.map_or(0, |taints| taints.len());
                let state = (node.metadata.deletion_timestamp.is_some(), taints, is_ready);
                self.nodes.insert(node.name_any(), state) != Some(state)
            }
            Changed::NodeGone(name) => {
                self.cpus.remove(&name);
                self.nodes.remove(&name).is_some()
            }
            Changed::Claim(claim) => {
                let id = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.provider_id.as_ref());
                let state = (claim.metadata.deletion_timestamp.is_some(), id.is_some());
                self.claims.insert(claim.name_any(), state) != Some(state)
            }
            Changed::ClaimGone(name) => self.claims.remove(&name).is_some(),
        }
    }

    fn count_cpus(&mut self, node: &Node) {
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        let pool = label("karpenter.sh/nodepool");
        let cpus = label("karpenter.kwok.sh/instance-cpu").parse().unwrap_or(0.0);
        self.cpus.insert(node.name_any(), (pool.clone(), cpus));
        let of_pool = self.cpus.values().filter(|(other, _)| *other == pool);
        let total: f64 = of_pool.map(|(_, cpus)| cpus).sum();
        let most = self.most_cpus.entry(pool).or_default();
        *most = most.max(total);
    }

    fn take_pod(&mut self, pod: &Pod, now: Instant) -> bool {
        let label = |key: &str| pod.labels().get(key).cloned().unwrap_or_default();
        let owner = pod.owner_references().first().map(|owner| owner.kind.clone());
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let uid = pod.uid().unwrap_or_default();
        let known = self.pods.get(&uid);
        let mut seen = SeenPod {
            app: label("app"),
            version: label("version"),
            owner: owner.unwrap_or_default(),
            phase: phase.unwrap_or_default(),
            node: node.unwrap_or_default(),
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            came: known.map_or(now, |known| known.came),
            ran: known.and_then(|known| known.ran),
        };
        if seen.ran.is_none() && matches!(seen.phase.as_str(), "Running" | "Succeeded") {
            seen.ran = Some(now);
            if seen.owner != "DaemonSet" {
                self.last_running = Some(now);
            }
        }
        let changed = known.is_none_or(|known| {
            (&known.phase, &known.node, known.is_leaving) != (&seen.phase, &seen.node, seen.is_leaving)
        });
        self.pods.insert(uid, seen);
        changed
    }
}

pub(super) enum Changed {
    Pod(Box<Pod>),
    PodGone(String),
    Node(Box<Node>),
    NodeGone(String),
    Claim(Box<NodeClaim>),
    ClaimGone(String),
}
