//! Every node with what it costs, what is on it, and what keeps it whatever there is elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_api::node_claim::{
    CONDITION_CONSOLIDATABLE, CONDITION_DRIFTED, CONDITION_INITIALIZED, CONDITION_INSTANCE_TERMINATING,
};
use veneer_api::node_pool::ConsolidationPolicy;
use veneer_api::{NodeClaim, NodePool, Pod, find_condition};

use super::balanced::PoolTotals;
use super::blockers::Blocker;
use super::budgets::{Count, Reason};
use super::commands::Commands;
use super::pdbs::Limits;
use crate::cluster::Index;
use crate::cluster::purchase::purchase_option_of;
use crate::lifecycle::drain::{is_protected, tolerates_disruption};
use crate::lifecycle::{closed_to_moves_until, is_ready, quiet_at};
use crate::packing::hash::FastMap;
use crate::plan::{
    Lifetime, Snapshot, condition_true, controller_of, is_daemon_pod, is_deleting, is_spare, is_spare_taint,
    is_terminal, label, name, node_pool_of, parse_duration, provider_id,
};
use crate::provision::Market;

/// The share of its list price that a machine counts which is paid for anyway: less than anything that could replace it.
const PAID_FOR: f64 = 0.05;

/// A node that Veneer launched.
pub(super) struct Candidate<'a> {
    pub(super) claim: &'a Arc<NodeClaim>,
    pub(super) node: &'a Arc<Node>,
    pub(super) pool: Option<&'a Arc<NodePool>>,
    /// The pods that would need another place.
    pub(super) pods: usize,
    /// In dollars per hour, after overlays.
    pub(super) price: Option<f64>,
    pub(super) instance_type: &'a str,
    pub(super) is_spot: bool,
    /// How much moving its pods disturbs; one for the node itself and about one per pod.
    pub(super) disturbance: f64,
    /// When it drifted, if it has.
    pub(super) drifted: Option<Timestamp>,
    /// What keeps it from going for any reason.
    pub(super) held: Vec<Blocker>,
    /// What keeps it from being consolidated in particular.
    pub(super) unconsolidated: Vec<Blocker>,
}

impl Candidate<'_> {
    pub(super) fn claim_name(&self) -> &str {
        name(&self.claim.metadata)
    }

    pub(super) fn node_name(&self) -> &str {
        name(&self.node.metadata)
    }

    pub(super) fn pool_name(&self) -> &str {
        node_pool_of(&self.claim.metadata)
    }

    /// Dollars per hour for each unit of disturbance: those with more go first.
    pub(super) fn ratio(&self) -> f64 {
        self.price.unwrap_or_default() / self.disturbance
    }

    /// Why it would go, as far as it says itself.
    pub(super) fn reason(&self) -> Reason {
        if self.drifted.is_some() {
            Reason::Drifted
        } else if self.pods == 0 {
            Reason::Empty
        } else {
            Reason::Underutilized
        }
    }

    /// Whether nothing on it or about it keeps it from being consolidated.
    pub(super) fn is_free(&self) -> bool {
        self.held.is_empty() && self.unconsolidated.is_empty()
    }
}

/// The nodes of a snapshot.
pub(super) struct Candidates<'a> {
    pub(super) list: Vec<Candidate<'a>>,
    /// Nodes that no claim stands behind.
    pub(super) unmanaged: Vec<&'a Arc<Node>>,
    /// What each pool has.
    pub(super) counts: BTreeMap<&'a str, Count>,
    /// What each pool comes to.
    pub(super) totals: BTreeMap<&'a str, PoolTotals>,
    /// The nodes that take no pods which consolidation moves, and until when.
    pub(super) closed_to_moves: BTreeMap<&'a str, Timestamp>,
}

/// Whether a pod needs another place when its node goes.
pub(super) fn is_reschedulable(pod: &Pod) -> bool {
    let owners = || pod.metadata.owner_references.iter().flatten();
    let is_owned = |api: &str, kind: &str| owners().any(|one| one.api_version == api && one.kind == kind);
    let ends = is_deleting(&pod.metadata) && !is_owned("apps/v1", "StatefulSet");
    !is_terminal(pod) && !ends && !is_daemon_pod(pod) && !is_owned("v1", "Node")
}

/// Whether a pod would be evicted, were it not protected.
fn is_evictable(pod: &Pod) -> bool {
    let is_static = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|one| one.api_version == "v1" && one.kind == "Node");
    !is_terminal(pod) && !is_deleting(&pod.metadata) && !tolerates_disruption(pod) && !is_static
}

/// What evicting a pod counts, between −10 and 10, usually 1.
fn eviction_cost(pod: &Pod) -> f64 {
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let annotations = pod.metadata.annotations.as_ref();
    let deletion = annotations.and_then(|list| list.get(DELETION_COST)?.parse::<f64>().ok());
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    let cost = 1.0
        + deletion.unwrap_or_default() / f64::from(1 << 27)
        + priority.map_or(0.0, f64::from) / f64::from(1 << 25);
    cost.clamp(-10.0, 10.0)
}

impl<'a> Candidates<'a> {
    /// The names of the nodes at some positions.
    pub(super) fn names(&self, at: &[usize]) -> Vec<String> {
        let nodes = at.iter().filter_map(|at| self.list.get(*at));
        nodes.map(|one| one.node_name().to_owned()).collect()
    }

    pub(super) fn new(
        snapshot: &'a Snapshot,
        index: &Index<'a>,
        commands: &Commands<'_>,
        market: &Market,
        now: Timestamp,
    ) -> Self {
        let limits = Limits::new(snapshot);
        let mut pods: FastMap<&str, Vec<&Arc<Pod>>> = FastMap::default();
        for pod in snapshot.pods.iter().filter(|pod| !is_terminal(pod)) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            if let Some(node) = node {
                pods.entry(node).or_default().push(pod);
            }
        }
        let mut all = Self {
            list: Vec::new(),
            unmanaged: Vec::new(),
            counts: BTreeMap::new(),
            totals: costs(snapshot, market),
            closed_to_moves: BTreeMap::new(),
        };
        for node in &snapshot.nodes {
            let on_node = pods.get(name(&node.metadata)).map_or(&[][..], Vec::as_slice);
            let machine = index.of_node(name(&node.metadata));
            let Some((machine, claim)) = machine.and_then(|machine| Some((machine, machine.claim()?))) else {
                if label(&node.metadata, karpenter::NODEPOOL).is_some() {
                    all.disturb(node_pool_of(&node.metadata), disturbance_of_all(on_node));
                }
                all.unmanaged.push(node);
                continue;
            };
            if let Some(until) = machine
                .pool()
                .and_then(|pool| closed_to_moves_until(claim, pool, snapshot, now))
            {
                all.closed_to_moves.insert(name(&node.metadata), until);
            }
            let is_going = is_deleting(&claim.metadata)
                || is_deleting(&node.metadata)
                || commands.is_going(name(&claim.metadata));
            if condition_true(claim, CONDITION_INITIALIZED)
                && !condition_true(claim, CONDITION_INSTANCE_TERMINATING)
            {
                let count = all.counts.entry(node_pool_of(&claim.metadata)).or_default();
                count.nodes += 1;
                count.disrupted += usize::from(is_going || !is_ready(node));
            }
            if is_going {
                all.disturb(node_pool_of(&claim.metadata), disturbance_of_all(on_node));
                continue;
            }
            let mut candidate = candidate(claim, node, machine.pool(), on_node);
            candidate.price = price_of(claim, &node.metadata, snapshot, market);
            hold(&mut candidate, on_node, &limits, commands, snapshot, now);
            let disturbance = if candidate.held.is_empty() {
                candidate.disturbance
            } else {
                disturbance_of_all(on_node)
            };
            all.disturb(node_pool_of(&claim.metadata), disturbance);
            consolidation(&mut candidate, snapshot, now);
            candidate.unconsolidated.extend(undone(on_node, snapshot, now));
            all.list.push(candidate);
        }
        for (claim, machine) in index.claimed() {
            if provider_id(claim).is_some() && machine.node().is_none() {
                all.disturb(node_pool_of(&claim.metadata), 1.0);
            }
        }
        all
    }

    fn disturb(&mut self, pool: &'a str, disturbance: f64) {
        self.totals.entry(pool).or_default().disturbance += disturbance;
    }
}

/// What the pools cost, all of their claims counted, if any pool wants to know.
fn costs<'a>(snapshot: &'a Snapshot, market: &Market) -> BTreeMap<&'a str, PoolTotals> {
    let mut totals: BTreeMap<&str, PoolTotals> = BTreeMap::new();
    let mut policies = snapshot
        .node_pools
        .iter()
        .map(|pool| &pool.spec.disruption.consolidation_policy);
    if !policies.any(|policy| *policy == ConsolidationPolicy::Balanced) {
        return totals;
    }
    for claim in &snapshot.node_claims {
        if let Some(price) = price_of(claim, &claim.metadata, snapshot, market) {
            totals.entry(node_pool_of(&claim.metadata)).or_default().cost += price;
        }
    }
    totals
}

/// What moving everything on a node would disturb that is not looked at more closely.
fn disturbance_of_all(pods: &[&Arc<Pod>]) -> f64 {
    let own = pods.iter().filter(|pod| !is_daemon_pod(pod));
    1.0 + own.map(|pod| eviction_cost(pod).max(0.0)).sum::<f64>()
}

/// What a machine costs after overlays, by the labels that it has. What is paid for anyway counts little.
fn price_of(claim: &NodeClaim, labels: &ObjectMeta, snapshot: &Snapshot, market: &Market) -> Option<f64> {
    let text = |key| label(labels, key).unwrap_or_default();
    let instance_type = text(kubernetes::INSTANCE_TYPE);
    let capacity_type = purchase_option_of(labels).unwrap_or_default();
    let pool = node_pool_of(&claim.metadata);
    let price = market.price(pool, instance_type, capacity_type, text(kubernetes::ZONE))?;
    if !snapshot.paid_for.contains(name(&claim.metadata)) {
        return Some(price);
    }
    let list = market.on_demand_price(instance_type);
    Some(list.map_or(price, |list| price.min(list * PAID_FOR)))
}

fn candidate<'a>(
    claim: &'a Arc<NodeClaim>,
    node: &'a Arc<Node>,
    pool: Option<&'a Arc<NodePool>>,
    pods: &[&'a Arc<Pod>],
) -> Candidate<'a> {
    let (mut moving, mut disturbance) = (0, 0.0);
    for pod in pods.iter().filter(|pod| is_reschedulable(pod)) {
        moving += 1;
        disturbance += eviction_cost(pod).max(0.0);
    }
    let instance_type = label(&node.metadata, kubernetes::INSTANCE_TYPE).unwrap_or_default();
    let capacity_type = purchase_option_of(&node.metadata).unwrap_or_default();
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let drifted = find_condition(conditions, CONDITION_DRIFTED)
        .filter(|_| condition_true(claim, CONDITION_DRIFTED))
        .map(|one| one.last_transition_time.0);
    Candidate {
        claim,
        node,
        pool,
        pods: moving,
        price: None,
        instance_type,
        is_spot: capacity_type == karpenter::CAPACITY_TYPE_SPOT,
        disturbance: disturbance + 1.0,
        drifted,
        held: Vec::new(),
        unconsolidated: Vec::new(),
    }
}

/// What keeps a node from going for any reason that leaves its pods a choice.
fn hold(
    candidate: &mut Candidate<'_>,
    pods: &[&Arc<Pod>],
    limits: &Limits<'_>,
    commands: &Commands<'_>,
    snapshot: &Snapshot,
    now: Timestamp,
) {
    let (claim, node) = (candidate.claim, candidate.node);
    let held = &mut candidate.held;
    if !condition_true(claim, CONDITION_INITIALIZED) {
        held.push(Blocker::NotInitialised);
    }
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_labelled =
        label(&node.metadata, karpenter::CAPACITY_TYPE) == Some(karpenter::CAPACITY_TYPE_OVERPROVISIONED);
    if is_labelled || is_spare(&node.metadata) || is_spare(&claim.metadata) || taints.any(is_spare_taint) {
        held.push(Blocker::Spare);
    }
    let protected = |annotations: Option<&BTreeMap<String, String>>| {
        annotations
            .and_then(|list| list.get(karpenter::DO_NOT_DISRUPT))
            .is_some_and(|value| value == "true")
    };
    if protected(node.metadata.annotations.as_ref()) || protected(claim.metadata.annotations.as_ref()) {
        held.push(Blocker::NodeAnnotation);
    }
    if candidate.pool.is_none() {
        held.push(Blocker::NoPool {
            pool: node_pool_of(&claim.metadata).to_owned(),
        });
    }
    let names = [name(&node.metadata), name(&claim.metadata)];
    let expected = names.iter().filter_map(|name| snapshot.nominations.get(*name));
    if let Some(until) = expected.max().filter(|until| **until > now) {
        held.push(Blocker::Nominated { until: *until });
    }
    if let Some(claims) = commands.replaced_by(name(&claim.metadata)) {
        held.push(Blocker::Replaces {
            claims: claims.to_vec(),
        });
    }
    for pod in pods.iter().filter(|pod| !is_deleting(&pod.metadata)) {
        if is_protected(pod, now) {
            held.push(Blocker::PodAnnotation {
                pod: called(pod),
                until: protected_until(pod),
            });
        }
        if !limits.is_empty() && is_evictable(pod) {
            held.extend(limits.blocker(pod));
        }
    }
}

/// What keeps a node whose pods were moved in vain.
fn undone(pods: &[&Arc<Pod>], snapshot: &Snapshot, now: Timestamp) -> Option<Blocker> {
    if snapshot.undone_moves.is_empty() {
        return None;
    }
    let held = pods.iter().filter_map(|pod| {
        let until = snapshot.undone_moves.get(controller_of(&pod.metadata)?)?;
        (*until > now).then_some((*until, pod))
    });
    let (until, pod) = held.max_by_key(|(until, _)| *until)?;
    Some(Blocker::Undone {
        pod: called(pod),
        until,
    })
}

pub(super) fn called(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    format!("{namespace}/{}", name(&pod.metadata))
}

fn protected_until(pod: &Pod) -> Option<Timestamp> {
    let value = pod
        .metadata
        .annotations
        .as_ref()?
        .get(karpenter::DO_NOT_DISRUPT)?;
    let started = pod.status.as_ref()?.start_time.as_ref()?.0;
    started.checked_add(parse_duration(value)?).ok()
}

/// What keeps a node from being consolidated.
fn consolidation(candidate: &mut Candidate<'_>, snapshot: &Snapshot, now: Timestamp) {
    let Some(pool) = candidate.pool else { return };
    let pool_name = || name(&pool.metadata).to_owned();
    let unconsolidated = &mut candidate.unconsolidated;
    if pool.spec.replicas.is_some() {
        unconsolidated.push(Blocker::StaticPool { pool: pool_name() });
        return;
    }
    let disruption = &pool.spec.disruption;
    if Lifetime::read(&disruption.consolidate_after) == Lifetime::Never {
        unconsolidated.push(Blocker::ConsolidationOff { pool: pool_name() });
    } else if condition_true(candidate.claim, CONDITION_INITIALIZED)
        && !condition_true(candidate.claim, CONDITION_CONSOLIDATABLE)
    {
        let until = quiet_at(candidate.claim, pool, snapshot, now);
        unconsolidated.push(Blocker::Quiet {
            until: until.unwrap_or(now),
            consolidate_after: disruption.consolidate_after.clone(),
        });
    }
    if candidate.pods == 0 {
        return;
    }
    if disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
        unconsolidated.push(Blocker::OnlyEmpty {
            pool: pool_name(),
            pods: candidate.pods,
        });
    }
    if candidate.price.is_none() {
        let text = |key| label(&candidate.node.metadata, key).unwrap_or("?");
        unconsolidated.push(Blocker::NoPrice {
            offering: format!(
                "{} {} in {}",
                text(kubernetes::INSTANCE_TYPE),
                text(karpenter::CAPACITY_TYPE),
                text(kubernetes::ZONE)
            ),
        });
    }
}
