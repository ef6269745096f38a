//! What shall be done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use veneer_api::{NodeClaim, NodeClaimStatus, NodePoolStatus, OverprovisionerStatus};

use crate::provision::LaunchOption;

/// What shall be done now, and when to look again without any change.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The actions, independent of one another.
    pub actions: Vec<Action>,
    /// When the same snapshot would lead to something new.
    pub look_again: Option<Timestamp>,
}

impl Plan {
    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Remembers that the passing of time matters at `at`.
    pub fn look_again(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
    }

    /// Adds everything that `other` says.
    pub fn extend(&mut self, other: Self) {
        self.actions.extend(other.actions);
        if let Some(at) = other.look_again {
            self.look_again(at);
        }
    }
}

/// One version of one object: a write fails when the object is another or has changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The namespace; empty where there is none.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
}

impl From<&ObjectMeta> for Target {
    fn from(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The API version of the object.
    pub api_version: &'static str,
    /// The kind of the object.
    pub kind: &'static str,
    /// Which object.
    pub target: Target,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What it is about.
    pub subject: Subject,
    /// Whether somebody should do something about it.
    pub is_warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// How a node shall look. `None` leaves a field alone; lists are whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChange {
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
    /// All taints.
    pub taints: Option<Vec<Taint>>,
    /// All finalizers.
    pub finalizers: Option<Vec<String>>,
    /// All owners.
    pub owner_references: Option<Vec<OwnerReference>>,
}

/// One thing to do. Each is safe to repeat.
#[derive(Clone, Debug)]
pub enum Action {
    /// Makes a NodeClaim; one of that name that exists already is the same one.
    CreateClaim(Box<NodeClaim>),
    /// Launches an instance for a claim: the first option that the provider has.
    Launch {
        /// The claim.
        claim: Arc<NodeClaim>,
        /// What would do, cheapest first.
        options: Vec<LaunchOption>,
    },
    /// Sets labels, annotations and finalizers of a claim.
    PatchClaim {
        /// The claim.
        target: Target,
        /// Labels to set.
        labels: BTreeMap<String, String>,
        /// Annotations to set.
        annotations: BTreeMap<String, String>,
        /// All finalizers, if they change.
        finalizers: Option<Vec<String>>,
    },
    /// Sets the whole status of a claim.
    ClaimStatus {
        /// The claim.
        target: Target,
        /// The status.
        status: Box<NodeClaimStatus>,
    },
    /// Deletes a claim; its finalizer lets it go when the instance is gone.
    DeleteClaim {
        /// The claim.
        target: Target,
        /// Why, as one word for metrics.
        reason: &'static str,
    },
    /// Changes a node.
    PatchNode {
        /// The node.
        target: Target,
        /// How it shall look.
        change: NodeChange,
    },
    /// Deletes a node; its finalizer lets it go when it is drained.
    DeleteNode {
        /// The node.
        target: Target,
    },
    /// Tells the scheduler where a pod is expected, so that it looks there first and keeps the room for it.
    Nominate {
        /// The pod.
        pod: Target,
        /// The node; none takes back what was told before.
        node: Option<String>,
    },
    /// Asks a pod to leave, as far as its disruption budgets allow.
    Evict {
        /// The pod.
        pod: Target,
    },
    /// Deletes a pod whatever its disruption budgets say.
    DeletePod {
        /// The pod.
        pod: Target,
        /// How many seconds it still has.
        grace_seconds: i64,
    },
    /// Ends an instance.
    Terminate {
        /// The provider's name of it.
        provider_id: String,
    },
    /// Stops an instance; one that is stopped already is fine.
    Stop {
        /// The provider's name of it.
        provider_id: String,
        /// Whether its memory is kept on disk.
        hibernate: bool,
    },
    /// Starts a stopped instance; one that runs already is fine.
    Start {
        /// The provider's name of it.
        provider_id: String,
    },
    /// Makes a stopped instance one of another type.
    ChangeType {
        /// The provider's name of it.
        provider_id: String,
        /// The new type.
        instance_type: String,
    },
    /// Sets the whole status of a NodePool.
    PoolStatus {
        /// The pool.
        target: Target,
        /// The status.
        status: Box<NodePoolStatus>,
    },
    /// Sets the whole status of an Overprovisioner.
    OverprovisionerStatus {
        /// The Overprovisioner.
        target: Target,
        /// The status.
        status: Box<OverprovisionerStatus>,
    },
    /// Sets annotations of a NodePool.
    AnnotatePool {
        /// The pool.
        target: Target,
        /// Annotations to set.
        annotations: BTreeMap<String, String>,
    },
    /// Tells people something.
    Announce(Announcement),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateClaim(claim) => write!(
                f,
                "NodeClaim {}: create",
                claim.metadata.name.as_deref().unwrap_or_default()
            ),
            Self::Launch { claim, options } => {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                match options.first() {
                    Some(first) => write!(
                        f,
                        "NodeClaim {name}: launch {} {} {}",
                        first.instance_type, first.capacity_type, first.zone
                    ),
                    None => write!(f, "NodeClaim {name}: launch, but nothing fits"),
                }
            }
            Self::PatchClaim { target, .. } => write!(f, "NodeClaim {}: set metadata", target.name),
            Self::ClaimStatus { target, status } => {
                write!(f, "NodeClaim {}: set", target.name)?;
                let mut conditions = status.conditions.iter();
                conditions.try_for_each(|one| write!(f, " {}={}", one.type_, one.status))
            }
            Self::DeleteClaim { target, reason } => write!(f, "NodeClaim {}: delete ({reason})", target.name),
            Self::PatchNode { target, .. } => write!(f, "Node {}: set metadata and taints", target.name),
            Self::DeleteNode { target } => write!(f, "Node {}: delete", target.name),
            Self::Nominate { pod, node } => {
                write!(f, "Pod {}/{}: ", pod.namespace, pod.name)?;
                match node {
                    Some(node) => write!(f, "nominate node {node}"),
                    None => write!(f, "withdraw the nomination"),
                }
            }
            Self::Evict { pod } => write!(f, "Pod {}/{}: evict", pod.namespace, pod.name),
            Self::DeletePod { pod, grace_seconds } => {
                write!(
                    f,
                    "Pod {}/{}: delete within {grace_seconds} s",
                    pod.namespace, pod.name
                )
            }
            Self::Terminate { provider_id } => write!(f, "instance {provider_id}: terminate"),
            Self::Stop {
                provider_id,
                hibernate: false,
            } => write!(f, "instance {provider_id}: stop"),
            Self::Stop { provider_id, .. } => write!(f, "instance {provider_id}: hibernate"),
            Self::Start { provider_id } => write!(f, "instance {provider_id}: start"),
            Self::ChangeType {
                provider_id,
                instance_type,
            } => write!(f, "instance {provider_id}: change type to {instance_type}"),
            Self::PoolStatus { target, status } => {
                write!(f, "NodePool {}: status, {} nodes", target.name, status.nodes)
            }
            Self::OverprovisionerStatus { target, status } => write!(
                f,
                "Overprovisioner {}: status, {} of {} ready",
                target.name, status.ready, status.desired
            ),
            Self::AnnotatePool { target, .. } => write!(f, "NodePool {}: set annotations", target.name),
            Self::Announce(one) => write!(
                f,
                "{} {}: event {}: {}",
                one.subject.kind, one.subject.target.name, one.reason, one.message
            ),
        }
    }
}
