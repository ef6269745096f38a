//! Short words for tests about spares.
#![allow(dead_code, reason = "each test file uses some of them")]

use serde_json::{Value, json};
use veneer_api::NodeClaim;
use veneer_engine::plan::{label, name};

use super::cluster::Cluster;

pub(crate) fn spec(more: Value) -> Value {
    let mut spec = json!({"targetNodePools": ["default"]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

pub(crate) fn count(count: i64) -> Value {
    spec(json!({"sizing": {"count": count}}))
}

pub(crate) fn names(claims: &[std::sync::Arc<NodeClaim>]) -> Vec<String> {
    claims.iter().map(|one| name(&one.metadata).to_owned()).collect()
}

pub(crate) fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
    let node = cluster.node(node);
    let taints = node.spec.as_ref().unwrap().taints.iter().flatten();
    taints.map(|taint| taint.key.clone()).collect()
}

pub(crate) fn instance_type(claim: &NodeClaim) -> &str {
    label(&claim.metadata, "node.kubernetes.io/instance-type").unwrap()
}

/// The numbers of a status: desired, ready, in use.
pub(crate) fn numbers(cluster: &Cluster, named: &str) -> (i32, i32, i32) {
    let status = cluster.status(named);
    (status.desired, status.ready, status.in_use)
}
