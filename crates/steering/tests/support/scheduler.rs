//! The scheduler of the cluster in memory: taints, selectors and processors, and nodes that it refuses for reasons of its own.

use k8s_openapi::api::core::v1::Node;
use veneer_api::Pod;
use veneer_engine::plan::{is_deleting, name};

use super::{Cluster, nanos};

/// Nodes that the scheduler refuses for reasons of its own.
#[derive(Default)]
pub(crate) enum Refused {
    #[default]
    None,
    Named(Vec<String>),
    All,
}

/// Whether the scheduler binds a pod to a node.
pub(crate) fn takes(cluster: &Cluster, node: &Node, pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    let taints = node.spec.as_ref().unwrap().taints.iter().flatten();
    let tolerates = |taint: &k8s_openapi::api::core::v1::Taint| {
        let mut tolerations = spec.tolerations.iter().flatten();
        tolerations.any(|one| {
            one.operator.as_deref() == Some("Exists") && one.key.as_deref().is_none_or(|key| key == taint.key)
        })
    };
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selector = spec.node_selector.iter().flatten();
    let cpu = |pod: &Pod| -> i128 {
        let requests = pod.spec.as_ref().unwrap().containers[0]
            .resources
            .as_ref()
            .and_then(|one| one.requests.clone());
        let text = requests.unwrap_or_default();
        text.get("cpu").map_or(0, |text| nanos(&text.0))
    };
    let on_it = cluster.snapshot.pods.iter().filter(|other| {
        let on = other.spec.as_ref().unwrap().node_name.as_deref();
        on == Some(name(&node.metadata))
    });
    let used: i128 = on_it.map(|other| cpu(other)).sum();
    let has = node.status.as_ref().unwrap().allocatable.clone().unwrap();
    let is_refused = match &cluster.refused_nodes {
        Refused::None => false,
        Refused::Named(names) => names.iter().any(|one| one == name(&node.metadata)),
        Refused::All => true,
    };
    !is_deleting(&node.metadata)
        && !is_refused
        && taints.into_iter().all(tolerates)
        && selector
            .into_iter()
            .all(|(key, value)| labels.get(key) == Some(value))
        && used + cpu(pod) <= nanos(&has["cpu"].0)
}
