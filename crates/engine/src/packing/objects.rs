//! What a run starts from.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use veneer_api::{NodeClaim, NodeOverlay, NodePool};

use crate::instance_type::Catalogue;
use crate::overlay::{Evaluation, Evaluator, Overlay, Pool, TieBreak};

/// The objects of a cluster, as parsed. Kinds that play no part may stay empty.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Every pod: those without `spec.nodeName` are to be scheduled, the others count on their nodes. A pod without
    /// a uid is known by `namespace/name`.
    pub pods: Vec<Pod>,
    /// Every node.
    pub nodes: Vec<Node>,
    /// Every NodePool. One that is being deleted, has `replicas`, or has a `Ready` condition that is not `True`
    /// launches nothing.
    pub node_pools: Vec<NodePool>,
    /// Every NodeClaim; those without a provider id have no machine yet and are not counted, as in Karpenter.
    pub node_claims: Vec<NodeClaim>,
    /// Every DaemonSet.
    pub daemon_sets: Vec<DaemonSet>,
    /// The claims that pods mount.
    pub pvcs: Vec<PersistentVolumeClaim>,
    /// The volumes they are bound to.
    pub pvs: Vec<PersistentVolume>,
    /// The classes they are made from.
    pub storage_classes: Vec<StorageClass>,
    /// How many volumes each node can attach.
    pub csi_nodes: Vec<CSINode>,
    /// Namespaces with their labels, for affinity terms that select namespaces.
    pub namespaces: Vec<Namespace>,
    /// The overlays that change prices and capacity.
    pub overlays: Vec<NodeOverlay>,
}

/// Objects with the prices and the capacity that hold for each of their NodePools.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub(super) objects: &'a Objects,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) evaluation: Arc<Evaluation>,
}

impl<'a> Problem<'a> {
    /// The problem that `objects` pose with the types of `catalogue`; evaluates the overlays as Karpenter does.
    #[must_use]
    pub fn from_objects(objects: &'a Objects, catalogue: &Arc<Catalogue>) -> Self {
        let pools: Vec<Pool> = objects.node_pools.iter().map(pool).collect();
        let overlays: Vec<_> = objects
            .overlays
            .iter()
            .map(|overlay| Overlay::read(overlay, &catalogue.rules))
            .collect();
        let mut evaluator = Evaluator::new(Arc::clone(catalogue), TieBreak::default());
        let evaluation = evaluator.evaluate(&pools, &overlays);
        Self::with_evaluation(objects, catalogue, Arc::new(evaluation))
    }

    /// The same with overlays that were evaluated before, for the NodePools of `objects` in their order.
    #[must_use]
    pub fn with_evaluation(
        objects: &'a Objects,
        catalogue: &Arc<Catalogue>,
        evaluation: Arc<Evaluation>,
    ) -> Self {
        Self {
            objects,
            catalogue: Arc::clone(catalogue),
            evaluation,
        }
    }
}

/// A NodePool as overlays see it.
fn pool(node_pool: &NodePool) -> Pool {
    let labels = &node_pool.spec.template.metadata.labels;
    Pool {
        name: node_pool.metadata.name.clone().unwrap_or_default(),
        labels: labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}
