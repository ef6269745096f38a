//! What either side says, in one shape.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use veneer_engine::quantity::Quantity;

/// Candidates that a claim keeps at most.
const MOST_TYPES: usize = 600;

/// Where the pods go.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Nodes to launch, by first pod.
    pub new_node_claims: Vec<Claim>,
    /// Nodes that exist or are under way and take pods, by name.
    pub existing_nodes: Vec<Existing>,
    /// Pods without a place, by name.
    pub unschedulable: Vec<Unschedulable>,
    /// How long it took.
    #[serde(default)]
    pub solve_ms: f64,
}

/// A node to launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The pool it comes from.
    pub node_pool: String,
    /// `namespace/name`, sorted.
    pub pods: Vec<String>,
    /// What pods and daemons request together.
    pub requests: BTreeMap<String, Quantity>,
    /// Candidates by price, then name; a name may occur twice.
    pub instance_types: Vec<String>,
    /// Their prices.
    pub prices: Vec<f64>,
    /// What its labels must be, by key.
    pub requirements: Vec<Expression>,
}

/// A requirement as in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expression {
    /// The label.
    pub key: String,
    /// In, NotIn, Exists, DoesNotExist, Gte or Lte.
    pub operator: String,
    /// Sorted.
    #[serde(default)]
    pub values: Vec<String>,
    /// How many values must remain.
    #[serde(default)]
    pub min_values: Option<i64>,
}

/// A node that takes pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// Its name.
    pub node: String,
    /// `namespace/name`, sorted.
    pub pods: Vec<String>,
}

/// A pod without a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unschedulable {
    /// `namespace/name`.
    pub pod: String,
    /// Why.
    pub reasons: Vec<String>,
}

impl Answer {
    /// What the cheapest candidates cost together, in dollars per hour.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.new_node_claims
            .iter()
            .filter_map(|claim| claim.prices.first())
            .sum()
    }

    /// Every pod that it speaks of.
    pub(super) fn moved(&self) -> impl Iterator<Item = &str> {
        let claims = self.new_node_claims.iter().flat_map(|claim| &claim.pods);
        let nodes = self.existing_nodes.iter().flat_map(|node| &node.pods);
        let failures = self.unschedulable.iter().map(|failure| &failure.pod);
        claims.chain(nodes).chain(failures).map(String::as_str)
    }

    /// The pods without a place.
    #[must_use]
    pub fn failures(&self) -> BTreeSet<&str> {
        self.unschedulable
            .iter()
            .map(|failure| failure.pod.as_str())
            .collect()
    }
}

impl Claim {
    /// The candidates, each name once, without those at the end of a truncated list: which of several types of one
    /// price are the last to stay is left to Go's sort.
    #[must_use]
    pub fn certain_types(&self) -> Vec<&str> {
        let certain = if self.instance_types.len() < MOST_TYPES {
            self.instance_types.len()
        } else {
            let last = self.prices.last();
            self.prices
                .iter()
                .position(|price| Some(price) == last)
                .unwrap_or(0)
        };
        let mut names: Vec<&str> = self
            .instance_types
            .iter()
            .take(certain)
            .map(String::as_str)
            .collect();
        names.dedup();
        names
    }
}
