//! The objects of the cluster, with the rules of an API server: versions, conflicts, finalizers, owners, disruption budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::veneer;
use veneer_api::{NodeClaim, NodeOverlay, NodePool, Overprovisioner, Pod};
use veneer_engine::plan::{Action, Target, is_deleting, merged_pool_status, name};

/// How a write went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Something is different now.
    Changed,
    /// It was so already, or the object is gone.
    Same,
    /// Somebody else was faster.
    Conflict,
}

/// Everything that an API server of this world stores.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Pods by `namespace/name`.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// NodeClaims by name.
    pub claims: BTreeMap<String, Arc<NodeClaim>>,
    /// NodePools by name.
    pub pools: BTreeMap<String, Arc<NodePool>>,
    /// NodeOverlays by name.
    pub overlays: BTreeMap<String, Arc<NodeOverlay>>,
    /// Overprovisioners by name.
    pub overprovisioners: BTreeMap<String, Arc<Overprovisioner>>,
    /// DaemonSets by `namespace/name`.
    pub daemon_sets: BTreeMap<String, Arc<DaemonSet>>,
    /// PodDisruptionBudgets by `namespace/name`.
    pub budgets: BTreeMap<String, Arc<PodDisruptionBudget>>,
    /// Pods on each node.
    pub by_node: BTreeMap<String, BTreeSet<String>>,
    /// When a pod last came to or left a node.
    pub pod_events: BTreeMap<String, Timestamp>,
    /// Changes when something does that may let refused pods in.
    pub generation: u64,
    versions: u64,
}

/// `namespace/name`.
#[must_use]
pub fn pod_key(pod: &Pod) -> String {
    format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or("default"),
        name(&pod.metadata)
    )
}

/// The node that a pod is on.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

impl Objects {
    fn next_version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    /// A number that grows with every change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.versions
    }

    /// What the API server adds to a new object.
    pub fn stamp(&mut self, metadata: &mut ObjectMeta, now: Timestamp) {
        let version = self.next_version();
        metadata.uid.get_or_insert_with(|| format!("uid-{version}"));
        metadata.creation_timestamp.get_or_insert(Time(whole(now)));
        metadata.generation.get_or_insert(1);
        metadata.resource_version = Some(version);
    }

    /// Stores a new pod.
    pub fn add_pod(&mut self, mut pod: Pod, now: Timestamp) -> String {
        self.stamp(&mut pod.metadata, now);
        let key = pod_key(&pod);
        if let Some(node) = node_of(&pod) {
            self.by_node
                .entry(node.to_owned())
                .or_default()
                .insert(key.clone());
            self.pod_events.insert(node.to_owned(), now);
        }
        self.pods.insert(key.clone(), Arc::new(pod));
        key
    }

    /// Changes a pod; its version changes too.
    pub fn edit_pod(&mut self, key: &str, change: impl FnOnce(&mut Pod)) {
        let version = self.next_version();
        if let Some(pod) = self.pods.get_mut(key) {
            let pod = Arc::make_mut(pod);
            change(pod);
            pod.metadata.resource_version = Some(version);
        }
    }

    /// Puts a pod on a node, where it runs.
    pub fn bind(&mut self, key: &str, node: &str, now: Timestamp) {
        self.edit_pod(key, |pod| {
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Running".to_owned());
            status.start_time = Some(Time(whole(now)));
            status.conditions = None;
            forget_nomination(pod);
        });
        self.by_node
            .entry(node.to_owned())
            .or_default()
            .insert(key.to_owned());
        self.pod_events.insert(node.to_owned(), now);
    }

    /// Removes a pod for good.
    pub fn remove_pod(&mut self, key: &str, now: Timestamp) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        self.versions += 1;
        if let Some(node) = node_of(&pod) {
            if let Some(pods) = self.by_node.get_mut(node) {
                pods.remove(key);
            }
            self.pod_events.insert(node.to_owned(), now);
        }
        Some(pod)
    }

    /// Removes a node for good; says which pods were on it.
    pub fn remove_node(&mut self, node: &str) -> Vec<String> {
        self.nodes.remove(node);
        self.pod_events.remove(node);
        let pods = self.by_node.remove(node).unwrap_or_default();
        pods.into_iter().collect()
    }

    /// Changes a node.
    pub fn edit_node(&mut self, node: &str, change: impl FnOnce(&mut Node)) {
        let version = self.next_version();
        if let Some(node) = self.nodes.get_mut(node) {
            let node = Arc::make_mut(node);
            change(node);
            node.metadata.resource_version = Some(version);
        }
    }

    /// Stores a new node.
    pub fn add_node(&mut self, mut node: Node, now: Timestamp) {
        self.stamp(&mut node.metadata, now);
        self.nodes.insert(name(&node.metadata).to_owned(), Arc::new(node));
    }

    /// Carries out an action on objects other than pods. Actions on the cloud, on pods, and events change nothing here.
    pub fn write(&mut self, action: &Action, now: Timestamp) -> Written {
        match action {
            Action::CreateClaim(claim) => {
                let key = name(&claim.metadata).to_owned();
                if self.claims.contains_key(&key) {
                    return Written::Same;
                }
                let mut claim = NodeClaim::clone(claim);
                self.stamp(&mut claim.metadata, now);
                self.claims.insert(key, Arc::new(claim));
                Written::Changed
            }
            Action::PatchClaim {
                target,
                labels,
                annotations,
                finalizers,
            } => self.edit_claim(target, |claim| {
                extend(&mut claim.metadata.labels, labels);
                extend(&mut claim.metadata.annotations, annotations);
                if let Some(finalizers) = finalizers {
                    claim.metadata.finalizers = Some(finalizers.clone());
                }
            }),
            Action::ClaimStatus { target, status } => {
                self.edit_claim(target, |claim| claim.status = Some((**status).clone()))
            }
            Action::DeleteClaim { target, .. } => self.edit_claim(&any_version(target), |claim| {
                claim.metadata.deletion_timestamp.get_or_insert(Time(whole(now)));
            }),
            Action::PatchNode { target, change } => self.edit_node_at(target, |node| {
                extend(&mut node.metadata.labels, &change.labels);
                extend(&mut node.metadata.annotations, &change.annotations);
                if let Some(taints) = &change.taints {
                    node.spec.get_or_insert_default().taints = Some(taints.clone());
                }
                if let Some(finalizers) = &change.finalizers {
                    node.metadata.finalizers = Some(finalizers.clone());
                }
                if let Some(owners) = &change.owner_references {
                    node.metadata.owner_references = Some(owners.clone());
                }
            }),
            Action::DeleteNode { target } => self.edit_node_at(&any_version(target), |node| {
                node.metadata.deletion_timestamp.get_or_insert(Time(whole(now)));
            }),
            Action::PoolStatus { target, status } => self.edit_pool(target, |pool| {
                pool.status = Some(merged_pool_status(pool.status.take(), status));
            }),
            Action::AnnotatePool { target, annotations } => {
                self.edit_pool(target, |pool| extend(&mut pool.metadata.annotations, annotations))
            }
            Action::OverprovisionerStatus { target, status } => {
                let Some(known) = self.overprovisioners.get(&target.name) else {
                    return Written::Same;
                };
                if !is_meant(&known.metadata, target) {
                    return Written::Conflict;
                }
                if known.status.as_ref() == Some(&**status) {
                    return Written::Same;
                }
                let mut one = Overprovisioner::clone(known);
                one.status = Some((**status).clone());
                one.metadata.resource_version = Some(self.next_version());
                self.overprovisioners.insert(target.name.clone(), Arc::new(one));
                Written::Changed
            }
            Action::Nominate { pod, node } => self.nominate(pod, node.as_deref()),
            Action::Launch { .. }
            | Action::Terminate { .. }
            | Action::Stop { .. }
            | Action::Start { .. }
            | Action::ChangeType { .. }
            | Action::Evict { .. }
            | Action::DeletePod { .. }
            | Action::Announce(_) => Written::Same,
        }
    }

    /// Tells the scheduler which node a pod is expected on, or that it is expected nowhere.
    fn nominate(&mut self, target: &Target, node: Option<&str>) -> Written {
        let pod = self
            .pods
            .get_mut(&format!("{}/{}", target.namespace, target.name));
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&target.uid)) else {
            return Written::Same;
        };
        let annotations = Arc::make_mut(pod).metadata.annotations.get_or_insert_default();
        match node {
            Some(node) => annotations.insert(veneer::NOMINATED.to_owned(), node.to_owned()),
            None => annotations.remove(veneer::NOMINATED),
        };
        Written::Changed
    }

    /// The scheduler does not expect a pod on a node any more.
    pub fn take_nomination_back(&mut self, key: &str) {
        self.edit_pod(key, forget_nomination);
    }

    /// Changes a claim as long as it is the one that was meant.
    pub fn edit_claim(&mut self, target: &Target, change: impl FnOnce(&mut NodeClaim)) -> Written {
        let Some(known) = self.claims.get(&target.name) else {
            return Written::Same;
        };
        if !is_meant(&known.metadata, target) {
            return Written::Conflict;
        }
        let mut claim = NodeClaim::clone(known);
        change(&mut claim);
        if claim == **known {
            return Written::Same;
        }
        claim.metadata.resource_version = Some(self.next_version());
        if is_released(&claim.metadata) {
            self.claims.remove(&target.name);
            self.generation += 1;
        } else {
            self.claims.insert(target.name.clone(), Arc::new(claim));
        }
        Written::Changed
    }

    fn edit_node_at(&mut self, target: &Target, change: impl FnOnce(&mut Node)) -> Written {
        let Some(known) = self.nodes.get(&target.name) else {
            return Written::Same;
        };
        if !is_meant(&known.metadata, target) {
            return Written::Conflict;
        }
        let mut node = Node::clone(known);
        change(&mut node);
        if node == **known {
            return Written::Same;
        }
        node.metadata.resource_version = Some(self.next_version());
        if is_released(&node.metadata) {
            // Its pods are found by whoever looks for pods without a node.
            self.nodes.remove(&target.name);
            self.pod_events.remove(&target.name);
        } else {
            self.nodes.insert(target.name.clone(), Arc::new(node));
        }
        Written::Changed
    }

    fn edit_pool(&mut self, target: &Target, change: impl FnOnce(&mut NodePool)) -> Written {
        let Some(known) = self.pools.get(&target.name) else {
            return Written::Same;
        };
        if !is_meant(&known.metadata, target) {
            return Written::Conflict;
        }
        let mut pool = NodePool::clone(known);
        change(&mut pool);
        if pool == **known {
            return Written::Same;
        }
        pool.metadata.resource_version = Some(self.next_version());
        self.pools.insert(target.name.clone(), Arc::new(pool));
        Written::Changed
    }

    /// How many pods a budget is about, how many of them are healthy, and how many must be.
    fn counts(&self, budget: &PodDisruptionBudget) -> (usize, usize, usize) {
        let spec = budget.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.as_ref());
        let (mut expected, mut healthy) = (0_usize, 0_usize);
        for one in self.pods.values() {
            let is_one = one.metadata.namespace.as_deref().unwrap_or("default")
                == budget.metadata.namespace.as_deref().unwrap_or("default")
                && selector.is_some_and(|selector| selects(selector, &one.metadata));
            expected += usize::from(is_one);
            healthy += usize::from(is_one && node_of(one).is_some() && !is_deleting(&one.metadata));
        }
        let wanted = match spec.map(|spec| (&spec.min_available, &spec.max_unavailable)) {
            Some((Some(least), _)) => share(least, expected),
            Some((None, Some(most))) => expected.saturating_sub(share(most, expected)),
            _ => 0,
        };
        (expected, healthy, wanted)
    }

    /// The budgets with what they allow now, as the disruption controller would write it. One that allows what it did
    /// is the same object, so that nobody looks at everything again.
    pub fn budgets_with_status(&mut self) -> Vec<Arc<PodDisruptionBudget>> {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let mut changed = Vec::new();
        for (key, budget) in &self.budgets {
            let (expected, healthy, wanted) = self.counts(budget);
            let status = PodDisruptionBudgetStatus {
                current_healthy: Some(number(healthy)),
                desired_healthy: Some(number(wanted)),
                disruptions_allowed: Some(number(healthy.saturating_sub(wanted))),
                expected_pods: Some(number(expected)),
                observed_generation: budget.metadata.generation,
                ..PodDisruptionBudgetStatus::default()
            };
            if budget.status.as_ref() != Some(&status) {
                changed.push((key.clone(), status));
            }
        }
        for (key, status) in changed {
            if let Some(budget) = self.budgets.get_mut(&key) {
                Arc::make_mut(budget).status = Some(status);
            }
        }
        self.budgets.values().cloned().collect()
    }

    /// Whether disruption budgets let a pod go now, or which one does not.
    pub fn may_evict(&self, pod: &Pod) -> Result<(), String> {
        // A pod that does not run makes nothing worse by going.
        if node_of(pod).is_none() || is_deleting(&pod.metadata) {
            return Ok(());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        for (key, budget) in &self.budgets {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let is_about = budget.metadata.namespace.as_deref().unwrap_or("default") == namespace
                && selector.is_some_and(|selector| selects(selector, &pod.metadata));
            if !is_about {
                continue;
            }
            let (expected, healthy, wanted) = self.counts(budget);
            if healthy <= wanted {
                return Err(format!(
                    "PodDisruptionBudget {key} needs {wanted} of {expected}, {healthy} are healthy"
                ));
            }
        }
        Ok(())
    }
}

fn forget_nomination(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(veneer::NOMINATED);
    }
}

/// Kubernetes keeps whole seconds.
#[must_use]
pub fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn any_version(target: &Target) -> Target {
    Target {
        resource_version: String::new(),
        ..target.clone()
    }
}

fn is_meant(metadata: &ObjectMeta, target: &Target) -> bool {
    let is = |found: &Option<String>, wanted: &str| {
        wanted.is_empty() || found.as_deref().unwrap_or_default() == wanted
    };
    is(&metadata.uid, &target.uid) && is(&metadata.resource_version, &target.resource_version)
}

fn is_released(metadata: &ObjectMeta) -> bool {
    is_deleting(metadata) && metadata.finalizers.iter().flatten().next().is_none()
}

fn extend(list: &mut Option<BTreeMap<String, String>>, more: &BTreeMap<String, String>) {
    if !more.is_empty() {
        let more = more.iter().map(|(key, value)| (key.clone(), value.clone()));
        list.get_or_insert_default().extend(more);
    }
}

/// Whether a selector of labels selects an object; expressions beyond In, NotIn and Exists select nothing.
fn selects(selector: &LabelSelector, metadata: &ObjectMeta) -> bool {
    let empty = BTreeMap::new();
    let labels = metadata.labels.as_ref().unwrap_or(&empty);
    let wanted = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    wanted
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|one| {
            let found = labels.get(&one.key);
            let listed = found.is_some_and(|value| one.values.iter().flatten().any(|known| known == value));
            match one.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// A number, or a percentage rounded up.
fn share(amount: &IntOrString, of: usize) -> usize {
    match amount {
        IntOrString::Int(count) => usize::try_from(*count).unwrap_or_default(),
        IntOrString::String(text) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or(100);
            (percent * of).div_ceil(100)
        }
    }
}
