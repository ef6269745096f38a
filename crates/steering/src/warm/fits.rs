//! Where a pod of a pool fits, as the scheduler says.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_api::{NodeClaim, NodePool, Pod};
use veneer_engine::packing;
use veneer_engine::plan::{Action, Snapshot, name};
use veneer_engine::provision::{self, Market};

/// The nodes of a pool on which a pod fits, beside the DaemonSets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    types: BTreeSet<String>,
    /// Any if none are named.
    zones: BTreeSet<String>,
    /// Any if none are named.
    capacity_types: BTreeSet<String>,
}

impl Fit {
    /// Nodes of these types, wherever they are and however they are bought.
    #[must_use]
    pub fn of_types(types: impl IntoIterator<Item = String>) -> Self {
        Self {
            types: types.into_iter().collect(),
            zones: BTreeSet::new(),
            capacity_types: BTreeSet::new(),
        }
    }

    fn of_claim(claim: &NodeClaim) -> Self {
        let values = |key: &str| {
            let requirements = claim.spec.requirements.iter();
            let stated = requirements.filter(|one| one.key == key && one.operator.as_str() == "In");
            stated.flat_map(|one| one.values.iter().cloned()).collect()
        };
        Self {
            types: values(kubernetes::INSTANCE_TYPE),
            zones: values(kubernetes::ZONE),
            capacity_types: values(karpenter::CAPACITY_TYPE),
        }
    }

    /// The types on which it fits.
    #[must_use]
    pub const fn types(&self) -> &BTreeSet<String> {
        &self.types
    }

    /// Whether the pod fits on such a node; what is not known of the node is no hindrance.
    #[must_use]
    pub fn takes(&self, instance_type: &str, zone: Option<&str>, capacity_type: Option<&str>) -> bool {
        let allows = |allowed: &BTreeSet<String>, value: Option<&str>| {
            allowed.is_empty() || value.is_none_or(|value| allowed.contains(value))
        };
        self.types.contains(instance_type)
            && allows(&self.zones, zone)
            && allows(&self.capacity_types, capacity_type)
    }
}

/// Asks the scheduler about one pool, one pod at a time.
pub(super) struct Asked<'a> {
    snapshot: &'a Snapshot,
    pool: &'a NodePool,
    market: &'a mut Market,
    now: Timestamp,
    /// The cluster without nodes and pods, made when it is first needed.
    alone: Option<Snapshot>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        pool: &'a NodePool,
        market: &'a mut Market,
        now: Timestamp,
    ) -> Self {
        Self {
            snapshot,
            pool,
            market,
            now,
            alone: None,
        }
    }

    pub(super) fn pool_name(&self) -> &'a str {
        name(&self.pool.metadata)
    }

    pub(super) const fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// Where a new node of the pool would take the pod; none if the pool cannot take it at all.
    pub(super) fn fit(&mut self, pod: &Pod) -> Option<Fit> {
        let (snapshot, pool) = (self.snapshot, self.pool);
        let alone = self.alone.get_or_insert_with(|| alone(snapshot, pool));
        alone.pods = vec![Arc::new(unscheduled(pod))];
        // All types, not only the cheapest ones.
        let options = packing::Options {
            max_instance_types: usize::MAX,
            ..packing::Options::default()
        };
        let decided = provision::decide(alone, self.market, &options, self.now);
        decided.plan.actions.into_iter().find_map(|action| match action {
            Action::CreateClaim(claim) => Some(Fit::of_claim(&claim)),
            _ => None,
        })
    }
}

/// The cluster without nodes and pods, in which only one pool can launch anything.
fn alone(snapshot: &Snapshot, only: &NodePool) -> Snapshot {
    // The other pools stay, since prices are by the place of a pool in the list.
    let pools = snapshot.node_pools.iter().map(|pool| {
        let mut pool = NodePool::clone(pool);
        pool.spec.limits.clear();
        if pool.metadata.name == only.metadata.name {
            pool.spec.replicas = None;
        } else {
            let none = ("nodes".to_owned(), ApiQuantity("0".to_owned()));
            pool.spec.limits.extend([none]);
        }
        Arc::new(pool)
    });
    Snapshot {
        node_pools: pools.collect(),
        node_classes: snapshot.node_classes.clone(),
        daemon_sets: snapshot.daemon_sets.clone(),
        pvcs: snapshot.pvcs.clone(),
        pvs: snapshot.pvs.clone(),
        storage_classes: snapshot.storage_classes.clone(),
        namespaces: snapshot.namespaces.clone(),
        ..Snapshot::default()
    }
}

/// A pod as it was before it had a place.
fn unscheduled(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    pod.metadata.deletion_timestamp = None;
    let refused = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        ..PodCondition::default()
    };
    let status = PodStatus {
        phase: Some("Pending".to_owned()),
        conditions: Some(vec![refused]),
        ..PodStatus::default()
    };
    pod.status = Some(status.into());
    pod
}
