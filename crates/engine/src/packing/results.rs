//! What was decided.

use std::sync::Arc;

use crate::requirements::Requirements;
use crate::resources::ResourceList;
use crate::vocabulary::Vocabulary;

/// Where every pod goes. Pods are named by their position in [`super::Objects::pods`].
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The claims to make, in Karpenter's order.
    pub new_node_claims: Vec<NewNodeClaim>,
    /// The existing nodes and claims in flight that get pods, in the order in which they are tried.
    pub existing_nodes: Vec<ExistingNode>,
    /// The pods that go nowhere, by position.
    pub unschedulable: Vec<Unschedulable>,
    /// Whether the run was stopped before every pod had its turn; those that had none are in neither list.
    pub stopped: bool,
    /// The strings behind the symbols in `requirements`.
    pub vocabulary: Vocabulary,
}

/// A node to launch.
#[derive(Clone, Debug)]
pub struct NewNodeClaim {
    /// The NodePool it comes from.
    pub node_pool: String,
    /// The pods on it, in the order in which they were placed.
    pub pods: Vec<usize>,
    /// What the pods and the daemonsets ask for in total.
    pub requests: ResourceList,
    /// What its labels must be, without the hostname.
    pub requirements: Requirements,
    /// The types that fit, as positions in the catalogue, by adjusted price and then by name. Claims with the same
    /// types share one list.
    pub instance_types: Arc<[usize]>,
    /// Whether `minValues` was lowered to make it.
    pub min_values_relaxed: bool,
}

/// An existing node, or a claim in flight, that gets pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingNode {
    /// The node's name, or the claim's as long as its node has not registered.
    pub name: String,
    /// The new pods on it, in the order in which they were placed.
    pub pods: Vec<usize>,
}

/// A pod that goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// The pod.
    pub pod: usize,
    /// Why, per NodePool in the order in which they are tried.
    pub reasons: Vec<Reason>,
}

/// Why a pod does not go somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The NodePool that was tried; none where the pod itself is at fault.
    pub node_pool: Option<String>,
    /// What stands in the way, as a sentence for people.
    pub message: String,
}
