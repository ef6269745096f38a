//! Which type a new spare is of.
//!
//! The most common type among the pool's nodes in use; else the cheapest that takes the largest pod that the pool has
//! or could have, found by running the scheduler; else the cheapest of the pool. Never one that no pod seen would fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_api::overprovisioner::SpareState;
use veneer_api::{NodePool, Pod};
use veneer_engine::packing;
use veneer_engine::plan::{
    Action, Snapshot, is_daemon_pod, is_deleting, is_spare, label, name, node_pool_of,
};
use veneer_engine::provision::{self, LaunchOption, Market, Spare, is_provisionable, spare_claim};
use veneer_engine::quantity::Quantity;

/// How many sizes of pods are tried, from the largest.
const SIZES: usize = 5;
/// How many ways to launch are looked at.
const OPTIONS: usize = 1_000;
/// Instances with more memory cannot hibernate, in bytes.
const HIBERNATION_LIMIT: i64 = 150_000_000_000;

/// The shape of new spares of a pool, or why there is none.
pub fn choose(
    snapshot: &Snapshot,
    pool: &NodePool,
    state: &SpareState,
    market: &mut Market,
    now: Timestamp,
) -> Result<LaunchOption, String> {
    let pool_name = name(&pool.metadata);
    let on_demand = matches!(state, SpareState::Stopped | SpareState::Hibernated);
    let open = Spare {
        overprovisioner: "",
        instance_type: None,
        capacity_type: on_demand.then_some(karpenter::CAPACITY_TYPE_ON_DEMAND),
        takes_capacity_type: false,
        hibernates: false,
    };
    let mut options = Vec::new();
    if !on_demand || allows_on_demand(pool) {
        options = market.options(&spare_claim(pool, open, (now, 0)), OPTIONS);
    }
    if options.is_empty() {
        let needs = if on_demand {
            format!(
                "{state} spares are on-demand instances, since spot ones cannot be stopped, and no on-demand type of the NodePool is available; allow on-demand in its requirements, or use state Running"
            )
        } else {
            "no instance type that its requirements allow is available; widen them".to_owned()
        };
        return Err(format!("NodePool {pool_name}: {needs}"));
    }
    if *state == SpareState::Hibernated {
        options.retain(can_hibernate);
        if options.is_empty() {
            return Err(format!(
                "NodePool {pool_name}: none of its types can hibernate (at most 150 GB of memory, no bare metal); allow smaller types in its requirements, or use state Stopped"
            ));
        }
    }
    let pods = pods_seen(snapshot, pool_name);
    let fits = if pods.is_empty() {
        None
    } else {
        let mut fits = Fits {
            snapshot,
            pool,
            market,
            now,
        };
        // Who takes the largest pod takes what the others are; the smallest says what is too small for all.
        let smallest = pods.iter().rev().take(SIZES).find_map(|pod| fits.types(pod));
        let largest = pods.iter().take(SIZES).find_map(|pod| fits.types(pod));
        smallest.zip(largest)
    };
    let is_useful = |option: &&LaunchOption| {
        let smallest = fits.as_ref().map(|(smallest, _)| smallest);
        smallest.is_none_or(|types| types.contains(&option.instance_type))
    };
    let option_of = |wanted: &str| {
        let mut options = options.iter().filter(is_useful);
        options.find(|option| option.instance_type == wanted)
    };
    let common = in_use(snapshot, pool_name);
    let common = common.iter().find_map(|wanted| option_of(wanted));
    let by_size = || {
        let (_, largest) = fits.as_ref()?;
        options
            .iter()
            .find(|option| largest.contains(&option.instance_type))
    };
    let found = common.or_else(by_size).or_else(|| options.first());
    found
        .cloned()
        .ok_or_else(|| format!("NodePool {pool_name}: no instance type is available"))
}

fn allows_on_demand(pool: &NodePool) -> bool {
    let requirements = pool.spec.template.spec.requirements.iter();
    let mut requirements = requirements.filter(|one| one.key == karpenter::CAPACITY_TYPE);
    requirements.all(|one| {
        let has = one
            .values
            .iter()
            .any(|value| value == karpenter::CAPACITY_TYPE_ON_DEMAND);
        match one.operator.as_str() {
            "In" => has,
            "NotIn" => !has,
            "DoesNotExist" => false,
            _ => true,
        }
    })
}

fn can_hibernate(option: &LaunchOption) -> bool {
    let memory = option.capacity.get("memory");
    let memory = memory.and_then(|text| text.0.parse::<Quantity>().ok());
    !option.instance_type.contains("metal")
        && memory.is_some_and(|memory| memory.value() <= HIBERNATION_LIMIT)
}

/// The types of the pool's nodes that are not spares, the most common first, of equals the first by name.
fn in_use<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in &snapshot.node_claims {
        if node_pool_of(&claim.metadata) != pool || is_deleting(&claim.metadata) || is_spare(&claim.metadata)
        {
            continue;
        }
        if let Some(instance_type) = label(&claim.metadata, kubernetes::INSTANCE_TYPE) {
            *counts.entry(instance_type).or_default() += 1;
        }
    }
    let mut types: Vec<(&str, usize)> = counts.into_iter().collect();
    types.sort_by_key(|(instance_type, count)| (std::cmp::Reverse(*count), *instance_type));
    types
        .into_iter()
        .map(|(instance_type, _)| instance_type)
        .collect()
}

/// The pods on the pool's nodes and those that wait for a place, the largest first.
fn pods_seen<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<&'a Arc<Pod>> {
    let nodes: std::collections::BTreeSet<&str> = snapshot
        .nodes
        .iter()
        .filter(|node| node_pool_of(&node.metadata) == pool)
        .map(|node| name(&node.metadata))
        .collect();
    let mut pods: Vec<(&Arc<Pod>, [i128; 2])> = snapshot
        .pods
        .iter()
        .filter(|pod| {
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            !is_daemon_pod(pod) && (on.is_some_and(|on| nodes.contains(on)) || is_provisionable(pod))
        })
        .map(|pod| (pod, size(pod)))
        .collect();
    pods.sort_by(|a, b| {
        b.1.cmp(&a.1)
            .then_with(|| a.0.metadata.uid.cmp(&b.0.metadata.uid))
    });
    // Pods of one owner and one size are copies of each other.
    let owner = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).next()
    };
    pods.dedup_by(|a, b| a.1 == b.1 && owner(a.0).is_some() && owner(a.0) == owner(b.0));
    pods.into_iter().map(|(pod, _)| pod).collect()
}

fn size(pod: &Pod) -> [i128; 2] {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut size = [0_i128; 2];
    for container in containers {
        let requests = container.resources.as_ref().and_then(|one| one.requests.as_ref());
        for (at, resource) in [(0, "cpu"), (1, "memory")] {
            let amount = requests.and_then(|list| list.get(resource));
            let amount = amount.and_then(|text| text.0.parse::<Quantity>().ok());
            if let (Some(amount), Some(total)) = (amount, size.get_mut(at)) {
                *total += i128::from(amount.milli_value());
            }
        }
    }
    size
}

/// Asks the scheduler which types of one pool would take a pod.
struct Fits<'a> {
    snapshot: &'a Snapshot,
    pool: &'a NodePool,
    market: &'a mut Market,
    now: Timestamp,
}

impl Fits<'_> {
    /// The types on which the pod and the DaemonSets fit; none if the pool cannot take the pod at all.
    fn types(&mut self, pod: &Arc<Pod>) -> Option<Vec<String>> {
        // The other pools stay, since prices are by the place of a pool in the list, but can launch nothing.
        let pools = self.snapshot.node_pools.iter().map(|pool| {
            let mut pool = NodePool::clone(pool);
            pool.spec.limits.clear();
            if pool.metadata.name == self.pool.metadata.name {
                pool.spec.replicas = None;
            } else {
                let none = ("nodes".to_owned(), ApiQuantity("0".to_owned()));
                pool.spec.limits.extend([none]);
            }
            Arc::new(pool)
        });
        let alone = Snapshot {
            pods: vec![Arc::new(unscheduled(pod))],
            node_pools: pools.collect(),
            node_classes: self.snapshot.node_classes.clone(),
            daemon_sets: self.snapshot.daemon_sets.clone(),
            pvcs: self.snapshot.pvcs.clone(),
            pvs: self.snapshot.pvs.clone(),
            storage_classes: self.snapshot.storage_classes.clone(),
            namespaces: self.snapshot.namespaces.clone(),
            ..Snapshot::default()
        };
        let decided = provision::decide(&alone, self.market, &packing::Options::default(), self.now);
        decided.plan.actions.into_iter().find_map(|action| match action {
            Action::CreateClaim(claim) => {
                let types = claim.spec.requirements.into_iter();
                let types = types.filter(|one| one.key == kubernetes::INSTANCE_TYPE);
                Some(types.flat_map(|one| one.values).collect())
            }
            _ => None,
        })
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
