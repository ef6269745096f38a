//! Pods as a run needs them: without what scheduling never looks at, and with everything that pods of one workload
//! have in common kept once.
//!
//! A parsed pod takes several kilobytes, most of them for fields that are empty or the same in a thousand others. Of
//! a record only the name, the uid and the times are its own.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, EphemeralVolumeSource, Pod as ParsedPod, PodCondition, PodSpec, PodStatus,
    ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use veneer_api::Pod;
use veneer_api::labels::{karpenter, veneer};

use super::bounds::LeftOut;
use super::fingerprint::{demands_hash, size_hash};
use super::hash::{FastHasher, FastMap};

type Labels = BTreeMap<String, String>;

/// What a run reads of a pod's metadata.
#[derive(Clone, Debug, Default)]
pub struct PodMetadata {
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<Arc<str>>,
    /// Its uid.
    pub uid: Option<String>,
    /// Its labels.
    pub labels: Option<Arc<Labels>>,
    /// Whether it may not be disrupted.
    pub do_not_disrupt: bool,
    /// What a driver has taken out of its demands already.
    pub left_out: LeftOut,
    /// Its controllers.
    pub owner_references: Option<Arc<Vec<OwnerReference>>>,
    /// When it was made.
    pub creation_timestamp: Option<Time>,
    /// When it was asked to go.
    pub deletion_timestamp: Option<Time>,
}

/// What a run reads of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "ParsedPod")]
pub struct PodRecord {
    /// Who it is.
    pub metadata: PodMetadata,
    /// What it asks for; without the node's name.
    pub spec: Option<Arc<PodSpec>>,
    /// The node that it is on.
    pub node_name: Option<Arc<str>>,
    /// How far it is.
    pub status: Option<Arc<PodStatus>>,
}

impl From<ParsedPod> for PodRecord {
    fn from(pod: ParsedPod) -> Self {
        Pods::default().record(pod)
    }
}

/// The pods of a cluster, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    records: Vec<PodRecord>,
    texts: Shared<str>,
    labels: Shared<Labels>,
    owners: Shared<Vec<OwnerReference>>,
    specs: Shared<PodSpec>,
    statuses: Shared<PodStatus>,
}

impl Pods {
    /// Adds a pod.
    pub fn push(&mut self, pod: ParsedPod) {
        let record = self.record(pod);
        self.records.push(record);
    }

    /// A pod as a run needs it, sharing what it has in common with those before it.
    pub(crate) fn read(&mut self, pod: &Pod) -> PodRecord {
        let spec = pod.spec.as_ref();
        let node_name = spec.and_then(|spec| spec.node_name.as_deref());
        PodRecord {
            metadata: self.metadata(&pod.metadata),
            node_name: node_name
                .filter(|name| !name.is_empty())
                .map(|name| self.text(name)),
            spec: spec.map(|spec| self.spec(spec.shared())),
            // Nothing is gained by looking for one that is the same: this one is there anyway.
            status: pod.status.as_ref().map(|status| Arc::clone(status.shared())),
        }
    }

    /// How many different labels are kept.
    #[cfg(test)]
    pub(crate) fn shared_labels(&self) -> usize {
        self.labels.0.values().map(Vec::len).sum()
    }

    /// Forgets what only gone pods have had.
    pub(crate) fn forget_unused(&mut self) {
        self.texts.forget_unused();
        self.labels.forget_unused();
        self.owners.forget_unused();
        self.specs.forget_unused();
        self.statuses.forget_unused();
    }

    /// Adds a pod that was read before.
    pub(crate) fn push_record(&mut self, record: PodRecord) {
        self.records.push(record);
    }

    /// The records alone.
    pub(crate) fn into_records(self) -> Vec<PodRecord> {
        self.records
    }

    /// The other way round, for tests of what may not depend on the order.
    pub fn reverse(&mut self) {
        self.records.reverse();
    }

    fn record(&mut self, pod: ParsedPod) -> PodRecord {
        let metadata = self.metadata(&pod.metadata);
        let mut spec = pod.spec;
        let node_name = spec.as_mut().and_then(|spec| spec.node_name.take());
        PodRecord {
            metadata,
            spec: spec.map(|spec| self.spec(&Arc::new(needed_spec(spec)))),
            node_name: node_name
                .filter(|name| !name.is_empty())
                .map(|name| self.text(&name)),
            status: pod
                .status
                .map(|status| self.status(&Arc::new(needed_status(status)))),
        }
    }

    fn metadata(&mut self, metadata: &ObjectMeta) -> PodMetadata {
        let protected = |annotations: &Labels| {
            annotations
                .get(karpenter::DO_NOT_DISRUPT)
                .is_some_and(|value| value == "true")
        };
        let namespace = metadata.namespace.as_deref();
        PodMetadata {
            name: metadata.name.clone(),
            namespace: namespace.map(|namespace| self.text(namespace)),
            uid: metadata.uid.clone(),
            labels: metadata.labels.as_ref().map(|labels| {
                let hash = hash(|hasher| {
                    for (key, value) in labels {
                        hasher.text(key);
                        hasher.text(value);
                    }
                });
                self.labels.share(hash, labels, || Arc::new(labels.clone()))
            }),
            do_not_disrupt: metadata.annotations.as_ref().is_some_and(protected),
            left_out: metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(veneer::LEFT_OUT))
                .and_then(|text| LeftOut::read(text))
                .unwrap_or_default(),
            owner_references: metadata.owner_references.as_ref().map(|owners| {
                let hash = hash(|hasher| owners.iter().for_each(|owner| hasher.text(&owner.uid)));
                self.owners.share(hash, owners, || Arc::new(owners.clone()))
            }),
            creation_timestamp: metadata.creation_timestamp.clone(),
            deletion_timestamp: metadata.deletion_timestamp.clone(),
        }
    }

    fn spec(&mut self, spec: &Arc<PodSpec>) -> Arc<PodSpec> {
        self.specs.share(spec_hash(spec), &**spec, || Arc::clone(spec))
    }

    fn status(&mut self, status: &Arc<PodStatus>) -> Arc<PodStatus> {
        let hash = hash(|hasher| {
            hasher.maybe(status.phase.as_deref());
            hasher.maybe(status.nominated_node_name.as_deref());
            for container in status.container_statuses.iter().flatten() {
                hasher.text(&container.name);
                let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
                requests
                    .into_iter()
                    .flatten()
                    .for_each(|(_, amount)| hasher.text(&amount.0));
            }
        });
        self.statuses.share(hash, &**status, || Arc::clone(status))
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        let hash = hash(|hasher| hasher.text(text));
        self.texts.share(hash, text, || Arc::from(text))
    }
}

impl Deref for Pods {
    type Target = [PodRecord];

    fn deref(&self) -> &[PodRecord] {
        &self.records
    }
}

impl DerefMut for Pods {
    fn deref_mut(&mut self) -> &mut [PodRecord] {
        &mut self.records
    }
}

impl Extend<ParsedPod> for Pods {
    fn extend<I: IntoIterator<Item = ParsedPod>>(&mut self, pods: I) {
        pods.into_iter().for_each(|pod| self.push(pod));
    }
}

impl FromIterator<ParsedPod> for Pods {
    fn from_iter<I: IntoIterator<Item = ParsedPod>>(pods: I) -> Self {
        let mut all = Self::default();
        all.extend(pods);
        all
    }
}

/// Values that are kept once. A hash finds candidates, a comparison decides.
#[derive(Debug)]
struct Shared<T: ?Sized>(FastMap<u64, Vec<Arc<T>>>);

/// With how many of those with the same hash a value is compared; a hash that does not see a difference must not make
/// adding slow.
const CANDIDATES: usize = 8;

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(FastMap::default())
    }
}

impl<T: PartialEq + ?Sized> Shared<T> {
    /// The one that equals `value`; if there is none yet, what `make` gives is kept.
    fn share(&mut self, hash: u64, value: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let known = self.0.entry(hash).or_default();
        let mut recent = known.iter().rev().take(CANDIDATES);
        if let Some(same) = recent.find(|known| ***known == *value) {
            return Arc::clone(same);
        }
        let made = make();
        known.push(Arc::clone(&made));
        made
    }

    fn forget_unused(&mut self) {
        self.0.retain(|_, known| {
            known.retain(|value| Arc::strong_count(value) > 1);
            !known.is_empty()
        });
    }
}

fn hash(write: impl FnOnce(&mut FastHasher)) -> u64 {
    let mut hasher = FastHasher::default();
    write(&mut hasher);
    hasher.finish()
}

fn spec_hash(spec: &PodSpec) -> u64 {
    hash(|hasher| {
        hasher.write_u64(size_hash(spec));
        hasher.write_u64(demands_hash(spec));
        for volume in spec.volumes.iter().flatten() {
            hasher.text(&volume.name);
            hasher.maybe(
                volume
                    .persistent_volume_claim
                    .as_ref()
                    .map(|claim| claim.claim_name.as_str()),
            );
        }
    })
}

/// The fields that decide where a pod can go and what it takes there.
fn needed_spec(spec: PodSpec) -> PodSpec {
    let containers = |containers: Vec<Container>| containers.into_iter().map(needed_container).collect();
    let volumes = |volumes: Vec<Volume>| {
        let claimed =
            |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        volumes.into_iter().filter(claimed).map(needed_volume).collect()
    };
    PodSpec {
        affinity: spec.affinity,
        containers: containers(spec.containers),
        init_containers: spec.init_containers.map(containers),
        node_selector: spec.node_selector,
        overhead: spec.overhead,
        resource_claims: spec.resource_claims,
        resources: spec.resources,
        scheduling_gates: spec.scheduling_gates,
        tolerations: spec.tolerations,
        topology_spread_constraints: spec.topology_spread_constraints,
        volumes: spec.volumes.map(volumes),
        ..PodSpec::default()
    }
}

fn needed_container(container: Container) -> Container {
    let ports = container.ports.map(|mut ports| {
        ports.retain(|port| port.host_port.is_some_and(|port| port != 0));
        ports
    });
    Container {
        name: container.name,
        ports: ports.filter(|ports| !ports.is_empty()),
        resources: container.resources,
        restart_policy: container.restart_policy,
        ..Container::default()
    }
}

fn needed_volume(volume: Volume) -> Volume {
    Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: volume.ephemeral.map(|_| EphemeralVolumeSource::default()),
        ..Volume::default()
    }
}

fn needed_status(status: PodStatus) -> PodStatus {
    let resized = |conditions: Vec<PodCondition>| {
        let needed = |condition: &PodCondition| condition.type_ == "PodResizePending";
        conditions.into_iter().filter(needed).map(timeless).collect()
    };
    let with_resources = |containers: Vec<ContainerStatus>| {
        let needed = |container: &ContainerStatus| container.resources.is_some();
        containers
            .into_iter()
            .filter(needed)
            .map(needed_container_status)
            .collect()
    };
    PodStatus {
        phase: status.phase,
        nominated_node_name: status.nominated_node_name,
        conditions: status.conditions.map(resized),
        container_statuses: status.container_statuses.map(with_resources),
        init_container_statuses: status.init_container_statuses.map(with_resources),
        ..PodStatus::default()
    }
}

fn timeless(condition: PodCondition) -> PodCondition {
    PodCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        ..PodCondition::default()
    }
}

fn needed_container_status(status: ContainerStatus) -> ContainerStatus {
    let resources = status.resources.map(|resources| ResourceRequirements {
        requests: resources.requests,
        ..ResourceRequirements::default()
    });
    ContainerStatus {
        name: status.name,
        allocated_resources: status.allocated_resources,
        resources,
        ..ContainerStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, volume: &str, node: &str) -> ParsedPod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default", "uid": name, "labels": { "app": "a" } },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "main", "image": "x", "env": [{ "name": "POD", "value": name }],
                    "resources": { "requests": { "cpu": "1" } }, "ports": [{ "containerPort": 80 }],
                    "volumeMounts": [{ "name": volume, "mountPath": "/token" }] }],
                "volumes": [{ "name": volume, "projected": {} }],
            },
            "status": { "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": name },
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_one_workload_share_all_but_their_names() {
        let pods: Pods = [pod("a-1", "token-x", "n1"), pod("a-2", "token-y", "n2")]
            .into_iter()
            .collect();
        let [one, other] = &*pods else { panic!("{pods:?}") };
        let shared = |a: &Option<Arc<PodSpec>>, b: &Option<Arc<PodSpec>>| {
            Arc::ptr_eq(a.as_ref().unwrap(), b.as_ref().unwrap())
        };
        assert!(shared(&one.spec, &other.spec));
        assert!(Arc::ptr_eq(
            one.status.as_ref().unwrap(),
            other.status.as_ref().unwrap()
        ));
        assert!(Arc::ptr_eq(
            one.metadata.labels.as_ref().unwrap(),
            other.metadata.labels.as_ref().unwrap()
        ));
        assert_eq!(one.node_name.as_deref(), Some("n1"));
        assert_eq!(other.metadata.name.as_deref(), Some("a-2"));
    }

    #[test]
    fn a_difference_that_scheduling_sees_is_kept() {
        let mut larger = pod("a-2", "token", "");
        larger.spec.as_mut().unwrap().containers[0].resources = None;
        let pods: Pods = [pod("a-1", "token", ""), larger].into_iter().collect();
        assert_ne!(pods[0].spec, pods[1].spec);
        assert_eq!(pods[0].node_name, None, "an empty name is none");
    }
}
