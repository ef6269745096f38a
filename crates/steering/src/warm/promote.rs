//! Which spares pending pods get.
//!
//! The scheduler is run on the cluster as it would be with the spares open, so what it says holds for taints, labels,
//! volumes and topology as for any other node. The hottest spares are tried first, and only for pods that no node in
//! use and none on its way would take: a pod that waits for a node of its own must not eat the buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::NodeClaim;
use veneer_api::Pod;
use veneer_api::labels::{karpenter, veneer};
use veneer_api::node_claim::CONDITION_INITIALIZED;
use veneer_engine::packing;
use veneer_engine::plan::{
    Action, NodeChange, Plan, Power, Snapshot, Target, condition_true, is_spare, is_spare_taint, label, name,
    provider_id,
};
use veneer_engine::provision::{self, Market, is_provisionable};

use super::keep::price;
use super::spares::{Spare, Spares, Stage};
use super::status::announce;

/// How long until the same spares are tried again for the same pods.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// The stages from which pods are served, the hottest first.
pub const SERVED: [Stage; 4] = [Stage::Ready, Stage::Warming, Stage::Hibernated, Stage::Stopped];

/// The stages from which pods are served as soon as they are seen.
pub const AT_ONCE: [Stage; 1] = [Stage::Ready];

/// The stages from which pods are served when all that come together are there: one by one they would fill one spare each.
const TOGETHER: [Stage; 3] = [Stage::Warming, Stage::Hibernated, Stage::Stopped];

/// How much more than nodes of their own spares on their way may cost for pods, as a factor. They are ready a little sooner.
const WORTH: f64 = 1.25;

/// What pending pods get.
#[derive(Debug, Default)]
pub struct Promotion {
    /// The name of the node or claim that each pod gets, by the pod's uid.
    pub expected: BTreeMap<String, String>,
    /// The claims that are spares no more.
    pub claims: BTreeSet<String>,
}

/// What a search started from: the pending pods by uid, and the spares with how far they are.
type Tried = (BTreeSet<String>, Vec<(String, Stage)>);

/// Remembers which pods and spares did not fit each other, so that they are not tried again with every change.
#[derive(Debug, Default)]
pub struct Search {
    tried: Option<(Tried, Timestamp)>,
}

impl Search {
    /// Finds spares for pending pods, unless that was tried before and nothing has changed since.
    pub fn find(
        &mut self,
        snapshot: &Snapshot,
        spares: &Spares<'_>,
        stages: &[Stage],
        market: &mut Market,
        now: Timestamp,
    ) -> Promotion {
        let pods = snapshot.pods.iter().filter(|pod| is_provisionable(pod));
        let pods: BTreeSet<String> = pods
            .map(|pod| pod.metadata.uid.clone().unwrap_or_default())
            .collect();
        let list = spares.empty.values().flatten();
        let list = list.filter(|spare| stages.contains(&spare.stage));
        let list: Vec<(String, Stage)> = list.map(|spare| (spare.name().to_owned(), spare.stage)).collect();
        // A spare that was given to pods and is not open yet would be taken for no place at all.
        let mut used = spares.used.values().flatten();
        if pods.is_empty() || list.is_empty() || used.any(Spare::is_closed) {
            return Promotion::default();
        }
        let tried = (pods, list);
        let is_known = self
            .tried
            .as_ref()
            .is_some_and(|(known, at)| *known == tried && now.duration_since(*at) < TRY_AGAIN);
        if is_known {
            return Promotion::default();
        }
        let promotion = decide(snapshot, spares, stages, market, now);
        self.tried = promotion.expected.is_empty().then_some((tried, now));
        promotion
    }
}

/// Opens the spares that pods get, and takes them out of the empty ones.
#[must_use]
pub fn give<'a>(snapshot: &'a Snapshot, spares: &mut Spares<'a>, promotion: &Promotion) -> Plan {
    let mut plan = Plan::default();
    for spare in spares.promote(&promotion.claims) {
        plan.actions.extend(open(&spare));
        let owner = label(&spare.claim.metadata, veneer::OVERPROVISIONER);
        let owner = snapshot
            .overprovisioners
            .iter()
            .find(|one| Some(name(&one.metadata)) == owner);
        if let Some(owner) = owner {
            let message = format!("{} is given to pods", spare.name());
            plan.push(announce(owner, false, "SpareUsed", message));
        }
    }
    plan
}

/// Finds spares that are not ready for the pods that have no place, all of them at once. Those that are only on their way are
/// left alone where the pods would cost clearly less on nodes of their own, which come hardly later.
#[must_use]
pub fn together(snapshot: &Snapshot, spares: &Spares<'_>, market: &mut Market, now: Timestamp) -> Promotion {
    let mut used = spares.used.values().flatten();
    let mut empty = spares.empty.values().flatten();
    if !empty.any(|spare| TOGETHER.contains(&spare.stage)) || used.any(Spare::is_closed) {
        return Promotion::default();
    }
    decide(snapshot, spares, &TOGETHER, market, now)
}

/// What the new nodes of a decision cost per hour.
fn cost_of_new(decided: &provision::Provisioned, market: &mut Market) -> f64 {
    let mut cost = 0.0;
    for action in &decided.plan.actions {
        if let Action::CreateClaim(claim) = action {
            cost += market
                .options(claim, 1)
                .first()
                .map_or(0.0, |option| option.price);
        }
    }
    cost
}

/// Whether pods cost not much more on spares that are on their way than on nodes of their own.
fn is_worth_it(
    decided: &provision::Provisioned,
    open: &[&Spare<'_>],
    alone: &Snapshot,
    market: &mut Market,
    now: Timestamp,
) -> bool {
    let places: BTreeSet<&str> = decided.expected.values().map(String::as_str).collect();
    // What was stopped and is starting is faster than a launch, whatever it costs.
    let is_launching = |spare: &&&Spare<'_>| {
        let annotations = spare.claim.metadata.annotations.as_ref();
        !annotations.is_some_and(|list| list.contains_key(veneer::POWER))
    };
    let taken = open.iter().filter(|spare| places.contains(place(spare)));
    let taken = taken.filter(is_launching);
    let on_spares: f64 = taken.map(|spare| price(spare, market)).sum::<f64>() + cost_of_new(decided, market);
    let plain = provision::decide(alone, market, &packing::Options::default(), now);
    let on_their_own = cost_of_new(&plain, market);
    plain.pending.len() > decided.pending.len() || on_spares <= on_their_own * WORTH + 1e-9
}

/// Finds spares of these stages for the pods that have no place.
fn decide(
    snapshot: &Snapshot,
    spares: &Spares<'_>,
    stages: &[Stage],
    market: &mut Market,
    now: Timestamp,
) -> Promotion {
    let mut promotion = Promotion::default();
    let all: Vec<&Spare<'_>> = spares.empty.values().flatten().collect();
    if all.is_empty() {
        return promotion;
    }
    let mut waiting = waiting(snapshot, market, now);
    // Pods that were given a ready spare stand on its node when colder ones are looked at.
    let mut stand: BTreeMap<String, String> = BTreeMap::new();
    for stage in SERVED.into_iter().filter(|stage| stages.contains(stage)) {
        if waiting.is_empty() {
            break;
        }
        let open: Vec<&Spare<'_>> = all.iter().copied().filter(|one| one.stage == stage).collect();
        if open.is_empty() {
            continue;
        }
        let opened = opened(snapshot, &open, &waiting, &stand);
        let decided = provision::decide(&opened, market, &packing::Options::default(), now);
        let is_whole = stages == TOGETHER && stage == Stage::Warming;
        if is_whole && !decided.expected.is_empty() {
            let alone = self::opened(snapshot, &[], &waiting, &stand);
            if !is_worth_it(&decided, &open, &alone, market, now) {
                continue;
            }
        }
        for spare in open {
            let place = place(spare);
            let pods = decided.expected.iter().filter(|(_, to)| *to == place);
            for (pod, _) in pods {
                waiting.remove(pod);
                promotion.expected.insert(pod.clone(), place.to_owned());
                promotion.claims.insert(spare.name().to_owned());
                if stage == Stage::Ready {
                    stand.insert(pod.clone(), place.to_owned());
                }
            }
        }
    }
    promotion
}

/// The name by which the scheduler knows a spare.
fn place<'a>(spare: &'a Spare<'_>) -> &'a str {
    let registered = spare.node.filter(|node| {
        let is_registered = label(&node.metadata, karpenter::REGISTERED);
        is_registered == Some("true")
    });
    registered.map_or_else(|| spare.name(), |node| name(&node.metadata))
}

/// The pods that only a spare or a new node can take, by uid.
fn waiting(snapshot: &Snapshot, market: &mut Market, now: Timestamp) -> BTreeSet<String> {
    let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
    let pods = snapshot.pods.iter().filter(|pod| is_provisionable(pod));
    let mut waiting: BTreeSet<String> = pods.map(uid).collect();
    let in_flight = snapshot
        .node_claims
        .iter()
        .any(|claim| is_in_flight(claim) && !is_spare(&claim.metadata));
    if waiting.is_empty() || !in_flight {
        return waiting;
    }
    let decided = provision::decide(snapshot, market, &packing::Options::default(), now);
    let known: BTreeSet<&str> = snapshot
        .node_claims
        .iter()
        .map(|claim| name(&claim.metadata))
        .chain(snapshot.nodes.iter().map(|node| name(&node.metadata)))
        .collect();
    waiting.retain(|pod| {
        let place = decided.expected.get(pod);
        place.is_none_or(|place| !known.contains(place.as_str()))
    });
    waiting
}

fn is_in_flight(claim: &NodeClaim) -> bool {
    !condition_true(claim, CONDITION_INITIALIZED)
}

/// The snapshot with these spares as nodes like any other, and without those that are on their way for other pods.
fn opened(
    snapshot: &Snapshot,
    open: &[&Spare<'_>],
    waiting: &BTreeSet<String>,
    stand: &BTreeMap<String, String>,
) -> Snapshot {
    let names: BTreeSet<&str> = open.iter().map(|spare| spare.name()).collect();
    let mut hidden: BTreeSet<&str> = BTreeSet::new();
    let mut opened = snapshot.clone();
    opened.node_claims = Vec::new();
    for claim in &snapshot.node_claims {
        if names.contains(name(&claim.metadata)) {
            opened.node_claims.push(Arc::new(open_claim(claim)));
        } else if is_in_flight(claim) {
            hidden.extend(provider_id(claim));
        } else {
            opened.node_claims.push(Arc::clone(claim));
        }
    }
    let stands: BTreeSet<&str> = stand.values().map(String::as_str).collect();
    let by_id: BTreeSet<&str> = open.iter().filter_map(|spare| provider_id(spare.claim)).collect();
    opened.nodes = Vec::new();
    for node in &snapshot.nodes {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let id = id.unwrap_or_default();
        if by_id.contains(id) || stands.contains(name(&node.metadata)) {
            opened.nodes.push(Arc::new(open_node(node)));
        } else if !hidden.contains(id) {
            opened.nodes.push(Arc::clone(node));
        }
    }
    opened.pods = Vec::new();
    for pod in &snapshot.pods {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(node) = stand.get(uid) {
            let mut pod = Pod::clone(pod);
            pod.spec.get_or_insert_default().node_name = Some(node.clone());
            opened.pods.push(Arc::new(pod));
        } else if waiting.contains(uid) || !is_provisionable(pod) {
            opened.pods.push(Arc::clone(pod));
        }
    }
    opened
}

fn open_claim(claim: &NodeClaim) -> NodeClaim {
    let mut open = claim.clone();
    open.spec.taints.retain(|taint| !is_spare_taint(taint));
    let (labels, annotations) = used(claim);
    open.metadata.labels.get_or_insert_default().extend(labels);
    open.metadata
        .annotations
        .get_or_insert_default()
        .extend(annotations);
    open
}

fn open_node(node: &Node) -> Node {
    let mut open = node.clone();
    let labels = open.metadata.labels.get_or_insert_default();
    if let Some(bought) = labels.get(veneer::PURCHASE_OPTION).cloned() {
        labels.insert(karpenter::CAPACITY_TYPE.to_owned(), bought);
    }
    let taints = open.spec.as_mut().and_then(|spec| spec.taints.as_mut());
    if let Some(taints) = taints {
        taints.retain(|taint| !is_spare_taint(taint));
    }
    open
}

type Texts = BTreeMap<String, String>;

/// The labels and annotations of a claim that is a spare no more.
fn used(claim: &NodeClaim) -> (Texts, Texts) {
    let mut labels = used_labels(label(&claim.metadata, veneer::PURCHASE_OPTION));
    labels.retain(|key, value| label(&claim.metadata, key) != Some(value));
    let mut annotations = Texts::new();
    if is_protected(&claim.metadata) {
        annotations.insert(karpenter::DO_NOT_DISRUPT.to_owned(), "false".to_owned());
    }
    if Power::of(claim) != Power::Run {
        annotations.insert(veneer::POWER.to_owned(), Power::Run.as_str().to_owned());
    }
    (labels, annotations)
}

/// Whether it is kept from being disrupted for being a spare, as beside a Karpenter, which knows no other mark.
fn is_protected(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    let value = annotations.and_then(|list| list.get(karpenter::DO_NOT_DISRUPT));
    value.is_some_and(|value| value == "true") && label(metadata, veneer::PURCHASE_OPTION).is_none()
}

fn used_labels(bought: Option<&str>) -> Texts {
    let mut labels = Texts::new();
    labels.insert(
        veneer::OVERPROVISIONED.to_owned(),
        veneer::OVERPROVISIONED_USED.to_owned(),
    );
    if let Some(bought) = bought {
        labels.insert(karpenter::CAPACITY_TYPE.to_owned(), bought.to_owned());
    }
    labels
}

/// What makes a spare a node like any other. The node comes first: pods wait for it.
#[must_use]
pub fn open(spare: &Spare<'_>) -> Vec<Action> {
    let mut actions: Vec<Action> = spare
        .node
        .and_then(|node| open_for_pods(node))
        .into_iter()
        .collect();
    if is_spare(&spare.claim.metadata) || is_named_a_spare(&spare.claim.metadata) {
        let (labels, annotations) = used(spare.claim);
        actions.push(Action::PatchClaim {
            target: Target::from(&spare.claim.metadata),
            labels,
            annotations,
            finalizers: None,
        });
    }
    actions
}

/// Whether the capacity type still says that it is a spare although it is known how it was bought: pods got it before
/// its launch.
#[must_use]
pub fn is_named_a_spare(metadata: &ObjectMeta) -> bool {
    label(metadata, karpenter::CAPACITY_TYPE) == Some(karpenter::CAPACITY_TYPE_OVERPROVISIONED)
        && label(metadata, veneer::PURCHASE_OPTION).is_some()
}

/// Takes the taint off a node and gives it its own capacity type back, if that is still to be done. A node that has
/// not registered gets everything from its claim.
#[must_use]
pub fn open_for_pods(node: &Node) -> Option<Action> {
    if label(&node.metadata, karpenter::REGISTERED) != Some("true") {
        return None;
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let taints = taints.unwrap_or_default();
    let is_open = !taints.iter().any(is_spare_taint) && !is_spare(&node.metadata);
    if is_open && !is_named_a_spare(&node.metadata) {
        return None;
    }
    let mut change = NodeChange {
        labels: used_labels(label(&node.metadata, veneer::PURCHASE_OPTION)),
        taints: Some(
            taints
                .into_iter()
                .filter(|taint| !is_spare_taint(taint))
                .collect(),
        ),
        ..NodeChange::default()
    };
    if is_protected(&node.metadata) {
        let no_more = (karpenter::DO_NOT_DISRUPT.to_owned(), "false".to_owned());
        change.annotations.extend([no_more]);
    }
    Some(Action::PatchNode {
        target: Target::from(&node.metadata),
        change,
    })
}
