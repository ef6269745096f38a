//! A cluster, what is put into it and when, and which pods shall run at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::feature::Feature;

/// What one seed stands for.
#[derive(Clone, Debug)]
pub struct Case {
    /// The number that it was made from.
    pub seed: u64,
    /// What is in it.
    pub features: BTreeSet<Feature>,
    /// Created before the first pods: node class, NodePools, PriorityClasses, volumes, DaemonSets.
    pub setting: Vec<Value>,
    /// What happens, in order of time.
    pub steps: Vec<Step>,
    /// What shall run after the last step.
    pub expected: Vec<Expected>,
    /// Whether nodes may be removed, which the provisioners think about for half a minute.
    pub consolidates: bool,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub struct Step {
    /// How long after the begin.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// An object is created.
    Create(Value),
    /// A Deployment or StatefulSet gets another size or another template.
    Patch {
        /// Its kind, in `apps/v1`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// A merge patch.
        patch: Value,
    },
    /// The node of the first pod of a workload turns not ready.
    NodeNotReady {
        /// The label `app` of the pod.
        app: String,
    },
    /// All nodes that were turned not ready are ready again.
    NodesReady,
}

/// The pods of one workload that shall run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expected {
    /// The label `app` of the pods.
    pub app: String,
    /// Whose pods they are.
    pub kind: Kind,
    /// How many.
    pub pods: usize,
    /// The label `version` that they have at the end.
    pub version: String,
}

/// Whose pods.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Those of a Deployment.
    Deployment,
    /// Those of a StatefulSet.
    StatefulSet,
    /// Those of a Job, which shall succeed.
    Job,
    /// Nobody's. One that was evicted does not come again, and is not expected any more.
    Pod,
}

impl Case {
    /// How many pods shall run at the end.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.expected.iter().map(|expected| expected.pods).sum()
    }
}
