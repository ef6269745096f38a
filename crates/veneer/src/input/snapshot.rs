//! What was read, as the decisions of standalone mode take it.

use std::sync::Arc;

use veneer_engine::plan::{NodeClass, Snapshot};

use super::cluster::Found;
use super::objects::Objects;

/// What was read, as a decision takes it. Node classes that are not given count as ready.
pub(crate) fn snapshot(mut objects: Objects) -> Snapshot {
    fn shared<T>(found: Vec<Found<T>>) -> Vec<Arc<T>> {
        found.into_iter().map(|found| Arc::new(found.object)).collect()
    }
    let cluster = *objects.cluster.take().unwrap_or_default();
    let mut node_classes: Vec<NodeClass> = Vec::new();
    for pool in &objects.node_pools {
        let class = &pool.object.spec.template.spec.node_class_ref;
        node_classes.push(NodeClass {
            group: class.group.clone(),
            kind: class.kind.clone(),
            name: class.name.clone(),
            not_ready: None,
            is_deleting: false,
        });
    }
    let pods = cluster.pods.into_iter();
    Snapshot {
        pods: pods.map(|found| Arc::new(found.object.into())).collect(),
        nodes: shared(cluster.nodes),
        node_claims: shared(cluster.node_claims),
        node_pools: objects
            .node_pools
            .into_iter()
            .map(|pool| Arc::new(pool.object))
            .collect(),
        overlays: objects
            .node_overlays
            .into_iter()
            .map(|overlay| Arc::new(overlay.object))
            .collect(),
        overprovisioners: objects
            .overprovisioners
            .into_iter()
            .map(|one| Arc::new(one.object))
            .collect(),
        node_classes,
        daemon_sets: shared(cluster.daemon_sets),
        deployments: shared(cluster.deployments),
        stateful_sets: shared(cluster.stateful_sets),
        jobs: shared(cluster.jobs),
        pvcs: shared(cluster.pvcs),
        pvs: shared(cluster.pvs),
        storage_classes: shared(cluster.storage_classes),
        csi_nodes: shared(cluster.csi_nodes),
        namespaces: shared(cluster.namespaces),
        pdbs: shared(cluster.pdbs),
        ..Snapshot::default()
    }
}
