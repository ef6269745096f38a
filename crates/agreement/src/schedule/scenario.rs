//! What both sides are asked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cluster and how to schedule it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Manifests; a pod without `spec.nodeName` is one to schedule.
    pub objects: Vec<Value>,
    /// The names that the catalogue is restricted to; all if not given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub types: Option<Vec<String>>,
    /// Instance types in the KWOK provider's format, instead of its AWS catalogue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub catalog: Option<Value>,
    /// What Karpenter's command line would say.
    #[serde(default)]
    pub options: Options,
}

/// Policies of the scheduler; Karpenter's defaults if not given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// `Strict` or `BestEffort`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_values_policy: Option<String>,
    /// `Respect` or `Ignore`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preference_policy: Option<String>,
    /// Whether overlays count.
    #[serde(default)]
    pub node_overlay: bool,
}

impl Scenario {
    /// The objects of a kind.
    pub fn kind(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |object| object.pointer("/kind").and_then(Value::as_str) == Some(kind))
    }

    /// How many pods there are to schedule.
    #[must_use]
    pub fn pending(&self) -> usize {
        let waits = |pod: &&Value| {
            pod.pointer("/spec/nodeName").is_none() && pod.pointer("/spec/schedulingGates").is_none()
        };
        self.kind("Pod").filter(waits).count()
    }
}
