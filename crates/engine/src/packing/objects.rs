//! What a run starts from.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use veneer_api::{NodeClaim, NodeOverlay, NodePool};

use super::Pods;
use crate::instance_type::{Catalogue, InstanceType};
use crate::overlay::{Evaluation, Evaluator, Overlay, Pool, TieBreak};
use crate::resources::ResourceList;

/// The objects of a cluster, as parsed. Kinds that play no part may stay empty.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Every pod: those without `spec.nodeName` are to be scheduled, the others count on their nodes. A pod without
    /// a uid is known by `namespace/name`.
    pub pods: Pods,
    /// Every node.
    pub nodes: Vec<Arc<Node>>,
    /// Every NodePool. One that is being deleted, has `replicas`, or has a `Ready` condition that is not `True`
    /// launches nothing.
    pub node_pools: Vec<NodePool>,
    /// Every NodeClaim; those without a provider id have no machine yet and are not counted, as in Karpenter.
    pub node_claims: Vec<Arc<NodeClaim>>,
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
    /// Names of nodes that take no further pod, whatever they have left. The pods on them count as ever.
    pub closed_nodes: BTreeSet<String>,
}

/// Objects with the prices and the capacity that hold for each of their NodePools.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub(super) objects: &'a Objects,
    pub(super) catalogue: Arc<Catalogue>,
    /// None if there is no overlay: then the catalogue's own prices and capacity hold.
    evaluation: Option<Arc<Evaluation>>,
}

impl<'a> Problem<'a> {
    /// The problem that `objects` pose with the types of `catalogue`; evaluates the overlays as Karpenter does.
    #[must_use]
    pub fn from_objects(objects: &'a Objects, catalogue: &Arc<Catalogue>) -> Self {
        let mut problem = Self {
            objects,
            catalogue: Arc::clone(catalogue),
            evaluation: None,
        };
        if !objects.overlays.is_empty() {
            let pools: Vec<Pool> = objects.node_pools.iter().map(pool).collect();
            let read = |overlay| Overlay::read(overlay, &catalogue.rules);
            let overlays: Vec<_> = objects.overlays.iter().map(read).collect();
            let mut evaluator = Evaluator::new(Arc::clone(catalogue), TieBreak::default());
            problem.evaluation = Some(Arc::new(evaluator.evaluate(&pools, &overlays)));
        }
        problem
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
            evaluation: Some(evaluation),
        }
    }

    /// The same prices and capacity for other objects with the same NodePools.
    pub(crate) fn with_objects<'b>(&self, objects: &'b Objects) -> Problem<'b> {
        Problem {
            objects,
            catalogue: Arc::clone(&self.catalogue),
            evaluation: self.evaluation.clone(),
        }
    }

    /// What it was made from.
    #[must_use]
    pub fn objects(&self) -> &'a Objects {
        self.objects
    }

    /// The types that can be had.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// What the overlays do; none if there are none.
    #[must_use]
    pub fn evaluation(&self) -> Option<&Evaluation> {
        self.evaluation.as_deref()
    }

    /// The price of every offering of every type in a NodePool, in the order of the catalogue.
    pub(super) fn prices(&self, pool: usize) -> Cow<'_, [f64]> {
        match &self.evaluation {
            Some(evaluation) => Cow::Borrowed(evaluation.prices(pool)),
            None => {
                let offerings = self.catalogue.types.iter().flat_map(|it| &it.offerings);
                Cow::Owned(offerings.map(|offering| offering.price).collect())
            }
        }
    }

    /// Whether no overlay changes the capacity of a type in a NodePool.
    pub(super) fn is_plain(&self, pool: usize, entry: usize) -> bool {
        let overlays = self.evaluation.as_ref();
        overlays.is_none_or(|evaluation| evaluation.capacity_overlays(pool, entry).is_empty())
    }

    /// What a type has in a NodePool.
    pub(super) fn capacity<'t>(
        &self,
        pool: usize,
        entry: usize,
        it: &'t InstanceType,
    ) -> Cow<'t, ResourceList> {
        match &self.evaluation {
            Some(evaluation) => evaluation.capacity(pool, entry, it),
            None => Cow::Borrowed(&it.capacity),
        }
    }

    /// What pods can use of a type in a NodePool.
    pub(super) fn allocatable(&self, pool: usize, entry: usize, it: &InstanceType) -> ResourceList {
        match &self.evaluation {
            Some(evaluation) => evaluation.allocatable(pool, entry, it),
            None => it.allocatable(),
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
