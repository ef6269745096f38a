//! The state of the world that decisions start from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::jiff::Timestamp;
use veneer_api::{NodeClaim, NodeOverlay, NodePool, Overprovisioner, Pod};

/// Everything that a decision may look at. Lists are in a fixed order (by namespace and name).
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every pod.
    pub pods: Vec<Arc<Pod>>,
    /// Every node.
    pub nodes: Vec<Arc<Node>>,
    /// Every NodeClaim.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Every NodePool.
    pub node_pools: Vec<Arc<NodePool>>,
    /// Every NodeOverlay that is to be considered.
    pub overlays: Vec<Arc<NodeOverlay>>,
    /// Every Overprovisioner.
    pub overprovisioners: Vec<Arc<Overprovisioner>>,
    /// Every node class of the provider.
    pub node_classes: Vec<NodeClass>,
    /// The fingerprints of node classes, where their provider keeps any.
    pub node_class_hashes: Vec<NodeClassHash>,
    /// Claims whose instance is not what their provider would launch now, by name, and why.
    pub drifted: BTreeMap<String, &'static str>,
    /// Every DaemonSet.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// Every Deployment, where spares are kept: what its pods would ask for.
    pub deployments: Vec<Arc<Deployment>>,
    /// Every StatefulSet, likewise.
    pub stateful_sets: Vec<Arc<StatefulSet>>,
    /// Every Job, likewise.
    pub jobs: Vec<Arc<Job>>,
    /// Every PodTemplate, likewise.
    pub pod_templates: Vec<Arc<PodTemplate>>,
    /// Every claim on a volume.
    pub pvcs: Vec<Arc<PersistentVolumeClaim>>,
    /// Every volume.
    pub pvs: Vec<Arc<PersistentVolume>>,
    /// Every class of volumes.
    pub storage_classes: Vec<Arc<StorageClass>>,
    /// How many volumes each node can attach.
    pub csi_nodes: Vec<Arc<CSINode>>,
    /// Which volumes are attached where.
    pub volume_attachments: Vec<Arc<VolumeAttachment>>,
    /// Every namespace.
    pub namespaces: Vec<Arc<Namespace>>,
    /// Every PodDisruptionBudget.
    pub pdbs: Vec<Arc<PodDisruptionBudget>>,
    /// What the provider runs.
    pub instances: Vec<Instance>,
    /// Names of claims whose launch is under way, where the driver knows; they are not launched again meanwhile.
    pub launching: BTreeSet<String>,
    /// What the provider could not launch lately.
    pub shortages: Vec<Shortage>,
    /// When a pod last came to or left a node, by the node's name, as far as that was seen.
    pub pod_events: BTreeMap<String, Timestamp>,
    /// Nodes and claims that were chosen for pods that are not on them yet, by name, with the time until which that
    /// counts.
    pub nominations: BTreeMap<String, Timestamp>,
    /// Pods that kube-scheduler was told to expect on a node and may still bind there, by uid, with the name of the node: they
    /// count as being there.
    pub nominated_pods: BTreeMap<String, String>,
    /// Names of nodes that take no further pod, whatever they have left: kube-scheduler refuses them for the pods that are
    /// decided about.
    pub closed_nodes: BTreeSet<String>,
    /// Workloads whose pods are not moved for a while, since a node had to be launched for them when they last were: the uid of
    /// the controller, with the time until which that holds.
    pub undone_moves: BTreeMap<String, Timestamp>,
    /// Claims whose machines are paid for whether they run or not, by name: moving their pods elsewhere saves next to
    /// nothing.
    pub paid_for: BTreeSet<String>,
    /// Kinds that the driver may not list and does without: of these nothing is known.
    pub unseen_kinds: BTreeSet<&'static str>,
    /// Whether some of this may be old, because a driver cannot watch it: then no node goes that could stay.
    pub is_stale: bool,
}

/// A machine as its provider lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The provider's name of it.
    pub provider_id: String,
    /// The NodeClaim for which it was launched.
    pub claim: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// What it does.
    pub state: InstanceState,
}

/// What a machine does, as its provider says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// It is being launched or started.
    Pending,
    /// It runs.
    #[default]
    Running,
    /// It is being stopped or hibernated.
    Stopping,
    /// It is stopped or hibernated.
    Stopped,
    /// It is on its way to its end.
    ShuttingDown,
}

/// A node class, as far as pools depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClass {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// Why it cannot be used, if so.
    pub not_ready: Option<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

/// What a node class would launch today, as a hash that claims carry too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClassHash {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The annotation of a claim that has the hash.
    pub key: String,
    /// The hash.
    pub hash: String,
    /// The annotation of a claim that says how the hash is computed.
    pub version_key: String,
    /// How it is computed now; a claim of another version has not drifted.
    pub version: String,
}

/// An offering that the provider had none of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shortage {
    /// The instance type.
    pub instance_type: String,
    /// The capacity type.
    pub capacity_type: String,
    /// The zone.
    pub zone: String,
}
