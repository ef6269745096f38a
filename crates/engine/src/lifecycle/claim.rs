//! A claim that nobody has deleted: from the request to a ready node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, veneer};
use veneer_api::node_claim::{
    CONDITION_CONSOLIDATABLE, CONDITION_DRIFTED, CONDITION_INITIALIZED, CONDITION_LAUNCHED,
    CONDITION_REGISTERED,
};
use veneer_api::node_pool::CONDITION_NODE_REGISTRATION_HEALTHY;
use veneer_api::{ConditionStatus, NodeClaim, NodeClaimStatus, NodePool, ResourceList};

use super::node::{self, Initialisation};
use super::power;
use super::{Policy, View, quiet};
use crate::cluster::LimitHeadroom;
use crate::disruption::drift;
use crate::plan::{
    Action, Announcement, Conditions, Lifetime, Plan, Subject, Target, condition_true, is_deleting, is_spare,
    name, node_pool_of, provider_id,
};
use crate::provision::Market;

/// The conditions that make a claim ready.
const STEPS: [&str; 3] = [CONDITION_LAUNCHED, CONDITION_REGISTERED, CONDITION_INITIALIZED];
/// Longer messages of providers are cut.
const MAX_MESSAGE: usize = 300;

/// An instance, as its provider describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launched {
    /// The provider's name of it.
    pub provider_id: String,
    /// Labels that its node will have.
    pub labels: BTreeMap<String, String>,
    /// What it has.
    pub capacity: ResourceList,
    /// What pods can use of it.
    pub allocatable: ResourceList,
    /// Its machine image.
    pub image_id: Option<String>,
    /// Annotations of its claim: what it was made from.
    pub annotations: BTreeMap<String, String>,
}

/// What has to be written once a claim has its instance. Labels come first: a claim with a provider id has them.
#[must_use]
pub fn after_launch(claim: &NodeClaim, launched: &Launched, now: Timestamp) -> [Action; 2] {
    let own = claim.metadata.labels.clone().unwrap_or_default();
    let labels = launched.labels.iter().filter(|(key, _)| !own.contains_key(*key));
    let mut labels: BTreeMap<String, String> =
        labels.map(|(key, value)| (key.clone(), value.clone())).collect();
    // The capacity type of a spare says that it is one; how it was bought is kept beside it.
    if own.contains_key(karpenter::CAPACITY_TYPE)
        && let Some(bought) = launched.labels.get(karpenter::CAPACITY_TYPE)
    {
        labels
            .entry(veneer::PURCHASE_OPTION.to_owned())
            .or_insert_with(|| bought.clone());
    }
    let mut status = claim.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, claim.metadata.generation, now);
    conditions.set_true(CONDITION_LAUNCHED);
    waiting(&mut conditions, CONDITION_REGISTERED);
    waiting(&mut conditions, CONDITION_INITIALIZED);
    conditions.sum_up(&STEPS);
    status.conditions = conditions.into_list();
    status.provider_id = Some(launched.provider_id.clone());
    status.capacity = launched.capacity.clone();
    status.allocatable = launched.allocatable.clone();
    status.image_id = launched.image_id.clone();
    // Both are written one after the other, so the second cannot name the version that the first one makes.
    let target = Target {
        resource_version: String::new(),
        ..Target::from(&claim.metadata)
    };
    [
        Action::PatchClaim {
            target: target.clone(),
            labels,
            annotations: launched.annotations.clone(),
            finalizers: None,
        },
        Action::ClaimStatus {
            target,
            status: Box::new(status),
        },
    ]
}

/// What has to be written when a launch failed for a reason that may pass.
#[must_use]
pub fn launch_failed(claim: &NodeClaim, reason: &str, message: &str, now: Timestamp) -> Action {
    let mut status = claim.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, claim.metadata.generation, now);
    let cut = message.floor_char_boundary(MAX_MESSAGE);
    let message = message.get(..cut).unwrap_or_default();
    conditions.set(CONDITION_LAUNCHED, ConditionStatus::Unknown, reason, message);
    conditions.sum_up(&STEPS);
    status.conditions = conditions.into_list();
    Action::ClaimStatus {
        target: Target {
            resource_version: String::new(),
            ..Target::from(&claim.metadata)
        },
        status: Box::new(status),
    }
}

fn waiting(conditions: &mut Conditions, type_: &str) {
    if conditions.get(type_).is_none() {
        let message = "waits for the step before it";
        conditions.set(type_, ConditionStatus::Unknown, "AwaitingReconciliation", message);
    }
}

pub(super) fn advance(
    claim: &Arc<NodeClaim>,
    view: &View<'_>,
    market: &mut Market,
    policy: &Policy,
    limits: &mut LimitHeadroom<'_>,
    plan: &mut Plan,
) {
    if let Some(reason) = overdue(claim, view, policy, plan) {
        plan.push(Action::DeleteClaim {
            target: Target::from(&claim.metadata),
            reason,
        });
        if matches!(reason, "launch_timeout" | "registration_timeout") {
            unhealthy(claim, view, plan);
        }
        return;
    }
    let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers
        .iter()
        .any(|one| one == karpenter::TERMINATION_FINALIZER)
    {
        let ours = [karpenter::TERMINATION_FINALIZER.to_owned()];
        plan.push(Action::PatchClaim {
            target: Target::from(&claim.metadata),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            finalizers: Some(finalizers.into_iter().chain(ours).collect()),
        });
        return;
    }
    if provider_id(claim).is_none() {
        launch(claim, view, market, policy.launch_options, limits, plan);
        return;
    }
    if power::advance(claim, view, market, plan) {
        return;
    }
    status(claim, view, plan);
}

fn launch(
    claim: &Arc<NodeClaim>,
    view: &View<'_>,
    market: &mut Market,
    most: usize,
    limits: &mut LimitHeadroom<'_>,
    plan: &mut Plan,
) {
    let pool = node_pool_of(&claim.metadata);
    if !pool.is_empty() && pool_of(claim, view).is_none_or(|pool| is_deleting(&pool.metadata)) {
        let why = format!("NodePool {pool} was deleted; the pods are scheduled again on another one");
        give_up(claim, ("NodePoolDeleted", "nodepool_deleted"), &why, plan);
        return;
    }
    if view.snapshot.launching.contains(name(&claim.metadata)) {
        // Its room was taken before, whatever becomes of it.
        return;
    }
    let mut options = market.options(claim, most);
    if options.is_empty() {
        // As when the provider says so: the claim makes room for one that can be launched.
        let why = "no instance type that the claim allows is available; the pods are scheduled again";
        let reasons = ("InsufficientCapacityError", "insufficient_capacity");
        give_up(claim, reasons, why, plan);
        return;
    }
    limits.take(claim, &mut options);
    if options.is_empty() {
        let why = format!(
            "the limits of NodePool {pool} leave no room for any instance type that the claim allows; raise its spec.limits"
        );
        give_up(claim, ("LimitReached", "limit_reached"), &why, plan);
        return;
    }
    plan.push(Action::Launch {
        claim: Arc::clone(claim),
        options,
    });
}

/// Deletes a claim that cannot be launched, and tells why.
fn give_up(claim: &NodeClaim, (event, reason): (&'static str, &'static str), why: &str, plan: &mut Plan) {
    plan.push(Action::Announce(Announcement {
        subject: subject(claim),
        is_warning: true,
        reason: event,
        message: format!("NodeClaim {} event: {why}", name(&claim.metadata)),
    }));
    plan.push(Action::DeleteClaim {
        target: Target::from(&claim.metadata),
        reason,
    });
}

pub(super) fn subject(claim: &NodeClaim) -> Subject {
    Subject {
        api_version: "karpenter.sh/v1",
        kind: "NodeClaim",
        target: Target::from(&claim.metadata),
    }
}

/// Why the claim has to go for the passing of time alone, if so.
fn overdue(claim: &NodeClaim, view: &View<'_>, policy: &Policy, plan: &mut Plan) -> Option<&'static str> {
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let list = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let conditions = Conditions::new(list, None, view.now);
    let changed = |type_| {
        conditions
            .get(type_)
            .map_or(created, |one| one.last_transition_time.0)
    };
    let mut deadlines: Vec<(Timestamp, &'static str)> = Vec::new();
    let mut limit = |from: Timestamp, by, reason| {
        deadlines.extend(from.checked_add(by).ok().map(|at| (at, reason)));
    };
    if provider_id(claim).is_none() {
        limit(created, policy.launch_timeout, "launch_timeout");
    } else if !conditions.is_true(CONDITION_REGISTERED) && !power::is_stopped(&conditions) {
        limit(
            changed(CONDITION_REGISTERED),
            policy.registration_timeout,
            "registration_timeout",
        );
    }
    // Spares expire one at a time, which whoever keeps them decides.
    if let Lifetime::After(life) = Lifetime::read(&claim.spec.expire_after)
        && !is_spare(&claim.metadata)
    {
        limit(created, life, "expired");
    }
    let (at, reason) = deadlines.into_iter().min()?;
    if at <= view.now {
        return Some(reason);
    }
    plan.look_again(at);
    None
}

/// Tells the pool that its instances do not join.
fn unhealthy(claim: &NodeClaim, view: &View<'_>, plan: &mut Plan) {
    let Some(pool) = pool_of(claim, view) else { return };
    let mut status = pool.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, pool.metadata.generation, view.now);
    let launched = claim
        .status
        .as_ref()
        .and_then(|status| veneer_api::find_condition(&status.conditions, CONDITION_LAUNCHED));
    let (reason, message) = match launched {
        Some(one) if one.status != ConditionStatus::True && !one.reason.is_empty() => {
            (one.reason.clone(), one.message.clone())
        }
        _ => (
            "RegistrationFailed".to_owned(),
            format!(
                "the node of NodeClaim {} did not join the cluster",
                name(&claim.metadata)
            ),
        ),
    };
    conditions.set(
        CONDITION_NODE_REGISTRATION_HEALTHY,
        ConditionStatus::False,
        &reason,
        &message,
    );
    status.conditions = conditions.into_list();
    if Some(&status) != pool.status.as_ref() {
        plan.push(Action::PoolStatus {
            target: Target::from(&pool.metadata),
            status: Box::new(status),
        });
    }
}

pub(super) fn pool_of<'a>(claim: &NodeClaim, view: &View<'a>) -> Option<&'a Arc<NodePool>> {
    let pool = node_pool_of(&claim.metadata);
    let mut pools = view.snapshot.node_pools.iter();
    pools.find(|one| name(&one.metadata) == pool)
}

/// Registration, initialisation and consolidatability of a claim with an instance.
fn status(claim: &Arc<NodeClaim>, view: &View<'_>, plan: &mut Plan) {
    let known = claim.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&known.conditions, claim.metadata.generation, view.now);
    conditions.set_true(CONDITION_LAUNCHED);
    waiting(&mut conditions, CONDITION_REGISTERED);
    waiting(&mut conditions, CONDITION_INITIALIZED);
    let mut node_name = known.node_name.clone();
    let nodes = view.nodes_of(claim);
    if !conditions.is_true(CONDITION_REGISTERED) {
        match nodes {
            [] => conditions.set(
                CONDITION_REGISTERED,
                ConditionStatus::Unknown,
                "NodeNotFound",
                "Node not registered with cluster",
            ),
            [node] => match node::registration(claim, node) {
                Some(change) => plan.push(Action::PatchNode {
                    target: Target::from(&node.metadata),
                    change,
                }),
                None => {
                    conditions.set_true(CONDITION_REGISTERED);
                    node_name = node.metadata.name.clone();
                }
            },
            _ => conditions.set(
                CONDITION_REGISTERED,
                ConditionStatus::False,
                "MultipleNodesFound",
                "several Nodes have the provider id of this claim; delete those that are not its own",
            ),
        }
    }
    if conditions.is_true(CONDITION_REGISTERED) && !conditions.is_true(CONDITION_INITIALIZED) {
        match nodes
            .first()
            .map(|node| (*node, node::initialisation(claim, node)))
        {
            None => conditions.set(
                CONDITION_INITIALIZED,
                ConditionStatus::Unknown,
                "NodeNotFound",
                "Node not registered with cluster",
            ),
            Some((_, Initialisation::Waits { reason, message })) => {
                conditions.set(CONDITION_INITIALIZED, ConditionStatus::Unknown, reason, &message);
            }
            Some((node, Initialisation::Untaint(change) | Initialisation::Label(change))) => {
                plan.push(Action::PatchNode {
                    target: Target::from(&node.metadata),
                    change,
                });
            }
            Some((_, Initialisation::Done)) => conditions.set_true(CONDITION_INITIALIZED),
        }
    }
    let (last_pod_event_time, is_quiet) = quiet::quiet(claim, &conditions, view, plan);
    let mut list = {
        conditions.sum_up(&STEPS);
        conditions
    };
    if is_quiet {
        list.set_true(CONDITION_CONSOLIDATABLE);
    }
    let drifted = drifted(claim, view);
    if let Some(why) = drifted {
        list.set(CONDITION_DRIFTED, ConditionStatus::True, why, why);
    }
    let mut list = list.into_list();
    list.retain(|one| {
        (is_quiet || one.type_ != CONDITION_CONSOLIDATABLE)
            && (drifted.is_some() || one.type_ != CONDITION_DRIFTED)
    });
    let status = NodeClaimStatus {
        conditions: list,
        node_name,
        last_pod_event_time,
        ..known.clone()
    };
    if status != known {
        plan.push(Action::ClaimStatus {
            target: Target::from(&claim.metadata),
            status: Box::new(status),
        });
    }
}

/// Why a claim with a node is not what its pool would make, if so.
pub(super) fn drifted(claim: &NodeClaim, view: &View<'_>) -> Option<&'static str> {
    let pool = pool_of(claim, view).filter(|_| condition_true(claim, CONDITION_LAUNCHED))?;
    let class = &claim.spec.node_class_ref;
    let mut hashes = view.snapshot.node_class_hashes.iter();
    let hash =
        hashes.find(|one| one.group == class.group && one.kind == class.kind && one.name == class.name);
    let pool_hash = view.pool_hashes.get(name(&pool.metadata));
    let says_provider = || view.snapshot.drifted.get(name(&claim.metadata)).copied();
    drift::reason(claim, pool, pool_hash.map_or("", String::as_str), hash).or_else(says_provider)
}

/// Whether a claim has been registered.
pub(super) fn is_registered(claim: &NodeClaim) -> bool {
    condition_true(claim, CONDITION_REGISTERED)
}
