//! From pending pods to NodeClaims, and what NodePools say about themselves.
//!
//! [`decide`] packs the pods that the scheduler could not place ([`crate::packing`]) with the prices and the capacity
//! after overlays ([`Market`]), and gives NodeClaims to create, nominations, and the reason for every pod that stays
//! pending. Claims that were created and not launched yet count as the instance that they will become, so a decision
//! made twice launches nothing twice, and limits hold for both.
//!
//! Invariants: no clock and no randomness; the names of new claims follow from the pods, the pool and `now`.

mod batch;
mod claims;
mod demand;
mod hash;
mod market;
mod pools;
mod replicas;
mod retry;

pub(crate) use claims::dynamic;
pub(crate) use demand::relevant;

pub use batch::{Batch, Place, Window};
pub use claims::{Spare, spare as spare_claim};
pub use demand::{demand, is_provisionable, is_unbound, preempts_on, refusal, refusals, waiting};
pub use hash::{HASH_VERSION, pool_hash};
pub use market::{LaunchOption, Market, claim_requirements, quantities};
pub use pools::{decide as decide_pools, readiness};
pub use replicas::decide as decide_replicas;
pub use retry::retry_epoch;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::{NodeClaim, ResourceList};

use crate::cluster::limits::share;
use crate::disruption::Commands;
use crate::packing::{self, HeldNamespace, Objects, Problem, Reason, Unschedulable};
use crate::plan::{
    Action, Announcement, Plan, Snapshot, Subject, Target, is_spare_taint, is_to_be_stopped, is_used_spare,
    name, provider_id,
};

/// How long a node counts as chosen for a pod that is not on it yet.
const NOMINATION: SignedDuration = SignedDuration::from_secs(20);
/// Longer lists of reasons are cut in events.
const MAX_MESSAGE: usize = 1_000;

/// What a run decided.
#[derive(Debug, Default)]
pub struct Provisioned {
    /// The claims to create and the events to write.
    pub plan: Plan,
    /// Nodes and claims that pods are expected on, with the time until which that counts.
    pub nominations: BTreeMap<String, Timestamp>,
    /// Where each pod is expected, by uid.
    pub expected: BTreeMap<String, String>,
    /// Why pods stay pending, by `namespace/name`.
    pub pending: BTreeMap<String, Vec<Reason>>,
    /// The namespaces whose pods took too many steps.
    pub held: Vec<HeldNamespace>,
    /// The steps that were taken.
    pub steps: u64,
}

/// Decides what to launch for the pods that have no place.
#[must_use]
pub fn decide(
    snapshot: &Snapshot,
    market: &mut Market,
    options: &packing::Options<'_>,
    now: Timestamp,
) -> Provisioned {
    let mut pods = market.readings.take(demand::relevant(snapshot));
    let nominated = count_nominated(snapshot, &mut pods);
    let mut objects = objects(snapshot, pods, market, now);
    let problem = Problem::with_evaluation(&objects, market.catalogue(), Arc::clone(market.evaluation()));
    let results = packing::solve(&problem, options);
    let until = now.checked_add(NOMINATION).unwrap_or(now);
    let mut decided = Provisioned::default();
    for node in &results.existing_nodes {
        decided.nominations.insert(node.name.clone(), until);
        for pod in node.pods.iter().filter_map(|at| objects.pods.get(*at)) {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            decided.expected.insert(uid, node.name.clone());
        }
    }
    for (at, new) in results.new_node_claims.iter().enumerate() {
        let pool = snapshot
            .node_pools
            .iter()
            .find(|pool| name(&pool.metadata) == new.node_pool);
        let Some(pool) = pool else { continue };
        let pods: Vec<&packing::PodRecord> = new.pods.iter().filter_map(|at| objects.pods.get(*at)).collect();
        let claim = claims::dynamic(pool, new, &results.vocabulary, market, &pods, (now, at));
        let claim_name = name(&claim.metadata).to_owned();
        for pod in pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            decided.plan.push(Action::Announce(Announcement {
                subject: pod_subject(pod),
                is_warning: false,
                reason: "Nominated",
                message: format!("Pod should schedule on: nodeclaim/{claim_name}"),
            }));
            decided.expected.insert(uid, claim_name.clone());
        }
        decided.nominations.insert(claim_name, until);
        decided.plan.push(Action::CreateClaim(Box::new(claim)));
    }
    for refused in &results.unschedulable {
        refuse(refused, &objects, &mut decided);
    }
    for notice in &results.notices {
        if let Some(pod) = objects.pods.get(notice.pod) {
            decided.plan.push(Action::Announce(Announcement {
                subject: pod_subject(pod),
                is_warning: true,
                reason: "DemandsIgnored",
                message: notice.message.clone(),
            }));
        }
    }
    announce_held(&results.held, snapshot, &mut decided.plan);
    decided.steps = results.steps;
    decided.held = results.held;
    for at in nominated {
        if let Some(pod) = objects.pods.get_mut(at) {
            pod.node_name = None;
        }
    }
    market.readings.keep(objects.pods);
    decided
}

/// Says on each namespace whose pods took too many steps that others went first.
fn announce_held(held: &[HeldNamespace], snapshot: &Snapshot, plan: &mut Plan) {
    for one in held {
        let undecided = match one.undecided {
            0 => String::new(),
            1 => "; 1 pod was not decided about in this pass".to_owned(),
            more => format!("; {more} pods were not decided about in this pass"),
        };
        let message = format!(
            "Deciding about the pending pods of this namespace takes too long, so other namespaces went first and preferred \
             affinities and ScheduleAnyway spreads of its pods were ignored{undecided}. Use fewer preferred terms, or fewer \
             different ones"
        );
        plan.push(held_back(&one.namespace, snapshot, message));
    }
}

/// The event on a namespace whose pods took too many steps.
#[must_use]
pub fn held_back(namespace: &str, snapshot: &Snapshot, message: String) -> Action {
    let mut namespaces = snapshot.namespaces.iter();
    let known = namespaces.find(|known| name(&known.metadata) == namespace);
    Action::Announce(Announcement {
        subject: Subject {
            api_version: "v1",
            kind: "Namespace",
            target: Target {
                name: namespace.to_owned(),
                uid: known
                    .and_then(|known| known.metadata.uid.clone())
                    .unwrap_or_default(),
                ..Target::default()
            },
        },
        is_warning: true,
        reason: "NamespaceHeldBack",
        message,
    })
}

/// Puts nominated pods on their nodes; gives their positions.
fn count_nominated(snapshot: &Snapshot, pods: &mut packing::Pods) -> Vec<usize> {
    if snapshot.nominated_pods.is_empty() {
        return Vec::new();
    }
    let mut nominated = Vec::new();
    for (at, pod) in pods.iter_mut().enumerate() {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(node) = snapshot.nominated_pods.get(uid) {
            pod.node_name = Some(node.as_str().into());
            nominated.push(at);
        }
    }
    nominated
}

fn refuse(refused: &Unschedulable, objects: &Objects, decided: &mut Provisioned) {
    let Some(pod) = objects.pods.get(refused.pod) else {
        return;
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let key = format!("{namespace}/{pod_name}");
    let whys: Vec<String> = refused
        .reasons
        .iter()
        .map(|reason| match &reason.node_pool {
            Some(pool) => format!("NodePool {pool}: {}", reason.message),
            None => reason.message.clone(),
        })
        .collect();
    let mut message = format!("Failed to schedule pod, {}", whys.join("; "));
    if message.len() > MAX_MESSAGE {
        let cut = message.floor_char_boundary(MAX_MESSAGE);
        message.truncate(cut);
        message.push('…');
    }
    decided.plan.push(Action::Announce(Announcement {
        subject: pod_subject(pod),
        is_warning: true,
        reason: "FailedScheduling",
        message,
    }));
    decided.pending.insert(key, refused.reasons.clone());
}

fn pod_subject(pod: &packing::PodRecord) -> Subject {
    Subject {
        api_version: "v1",
        kind: "Pod",
        target: Target {
            namespace: pod.metadata.namespace.as_deref().unwrap_or("default").to_owned(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            resource_version: String::new(),
        },
    }
}

/// The objects as the scheduler takes them: pools are as ready as they are now, claims without an instance are what
/// they will become, and claims that are about to be replaced are going away.
pub(crate) fn objects(
    snapshot: &Snapshot,
    pods: packing::Pods,
    market: &mut Market,
    now: Timestamp,
) -> Objects {
    fn plain<T: Clone>(list: &[Arc<T>]) -> Vec<T> {
        list.iter().map(|one| T::clone(one)).collect()
    }
    let commands = Commands::read(snapshot);
    let node_claims = snapshot.node_claims.iter().map(|claim| {
        let mut claim = foreseen(claim, market);
        if commands.is_going(name(&claim.metadata)) {
            let metadata = &mut Arc::make_mut(&mut claim).metadata;
            metadata.deletion_timestamp.get_or_insert(Time(now));
        }
        claim
    });
    let node_claims = node_claims.collect();
    let rules = &market.catalogue().rules;
    let node_pools = snapshot.node_pools.iter().map(|pool| {
        let mut pool = veneer_api::NodePool::clone(pool);
        let conditions = readiness(&pool, snapshot, rules, now).into_list();
        pool.status.get_or_insert_default().conditions = conditions;
        pool
    });
    Objects {
        pods,
        nodes: snapshot.nodes.clone(),
        node_claims,
        node_pools: node_pools.collect(),
        daemon_sets: plain(&snapshot.daemon_sets),
        pvcs: plain(&snapshot.pvcs),
        pvs: plain(&snapshot.pvs),
        storage_classes: plain(&snapshot.storage_classes),
        csi_nodes: plain(&snapshot.csi_nodes),
        namespaces: plain(&snapshot.namespaces),
        overlays: Vec::new(),
        closed_nodes: snapshot.closed_nodes.clone(),
    }
}

/// A claim that has no instance yet, as the instance that it would get now. Its provider id stands for that.
fn foreseen(claim: &Arc<NodeClaim>, market: &mut Market) -> Arc<NodeClaim> {
    let mut foreseen = Arc::clone(claim);
    if is_used_spare(&claim.metadata) {
        let taints = &mut Arc::make_mut(&mut foreseen).spec.taints;
        taints.retain(|taint| !is_spare_taint(taint));
    }
    if is_to_be_stopped(claim) {
        // It counts against the limits of its pool, but nothing runs there.
        let status = Arc::make_mut(&mut foreseen).status.get_or_insert_default();
        status.allocatable = status
            .allocatable
            .keys()
            .map(|resource| (resource.clone(), ApiQuantity("0".to_owned())))
            .collect();
        return foreseen;
    }
    if provider_id(claim).is_some() || claim.metadata.deletion_timestamp.is_some() {
        return foreseen;
    }
    let share = share(claim);
    let option = market.options(claim, 1).into_iter().next();
    if option.is_none() && share.is_none() {
        return foreseen;
    }
    // One that cannot be launched now may have its instance already: it counts, but nothing is placed there.
    let new = Arc::make_mut(&mut foreseen);
    let status = new.status.get_or_insert_default();
    status.provider_id = Some(format!("foreseen://{}", name(&claim.metadata)));
    if let Some(option) = option {
        status.capacity = ResourceList::clone(&option.capacity);
        status.allocatable = ResourceList::clone(&option.allocatable);
        let labels = new.metadata.labels.get_or_insert_default();
        for (key, value) in option.labels.iter() {
            labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    let status = new.status.get_or_insert_default();
    status.capacity.extend(share.into_iter().flatten());
    foreseen
}

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;
