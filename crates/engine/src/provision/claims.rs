//! New NodeClaims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::node_claim::ResourceRequirements;
use veneer_api::{Extra, NodeClaim, NodeClaimSpec, NodePool, NodeSelectorRequirementWithMinValues, Operator};

use super::hash::{HASH_VERSION, Hasher, pool_hash};
use super::market::Market;
use crate::cluster::limits::take_share;
use crate::labels::LabelSet;
use crate::packing::{NewNodeClaim, PodRecord};
use crate::plan::{api_list, name, spare_taint};
use crate::requirements::{Operator as EngineOperator, Requirement, Requirements};
use crate::vocabulary::Vocabulary;

/// A label value, and so the hostname label, has at most 63 characters; the suffix needs nine.
const MAX_BASE: usize = 54;
/// What the scheduler assumes of every node and no claim may demand.
const ASSUMED: [&str; 2] = [karpenter::REGISTERED, karpenter::INITIALIZED];

/// The claim for a node that the scheduler wants. `(now, number)` makes its name new.
pub(crate) fn dynamic(
    pool: &NodePool,
    new: &NewNodeClaim,
    vocabulary: &Vocabulary,
    market: &mut Market,
    pods: &[&PodRecord],
    (now, number): (Timestamp, usize),
) -> NodeClaim {
    let mut hasher = seed(pool, now, number);
    for pod in pods {
        hasher.write(pod.metadata.uid.as_deref().unwrap_or_default().as_bytes());
    }
    let catalogue = Arc::clone(market.catalogue());
    let evaluation = Arc::clone(market.evaluation());
    let at = evaluation
        .pools()
        .iter()
        .position(|one| one.name == new.node_pool)
        .unwrap_or_default();
    let well_known = LabelSet::known(catalogue.rules.well_known(), vocabulary);
    let mut types: Vec<String> = Vec::new();
    let mut capacity_types: BTreeSet<String> = BTreeSet::new();
    let (mut priced, mut sized) = (false, false);
    for entry in new.instance_types.iter() {
        let Some(it) = catalogue.types.get(*entry) else {
            continue;
        };
        let type_name = it.name.to_string();
        if !types.contains(&type_name) {
            types.push(type_name);
        }
        sized |= !evaluation.capacity_overlays(at, *entry).is_empty();
        for (number, offering) in it.offerings.iter().enumerate() {
            let fits = offering.available
                && new
                    .requirements
                    .compatible(&offering.requirements, &well_known, vocabulary)
                    .is_ok();
            if fits {
                capacity_types.extend(offering.capacity_type(&catalogue.vocabulary).map(str::to_owned));
                priced |= evaluation.winner(at, *entry, number).is_some();
            }
        }
    }
    let mut requirements: BTreeMap<String, Vec<NodeSelectorRequirementWithMinValues>> =
        stated(&new.requirements, vocabulary);
    let min_values = |requirements: &BTreeMap<String, Vec<NodeSelectorRequirementWithMinValues>>,
                      key: &str| {
        let known = requirements.get(key)?;
        known.iter().find_map(|one| one.min_values)
    };
    let min_types = min_values(&requirements, kubernetes::INSTANCE_TYPE);
    requirements.insert(
        kubernetes::INSTANCE_TYPE.to_owned(),
        vec![one_of(kubernetes::INSTANCE_TYPE, types, min_types)],
    );
    if !capacity_types.is_empty() {
        let minimum = min_values(&requirements, karpenter::CAPACITY_TYPE);
        let values = capacity_types.into_iter().collect();
        requirements.insert(
            karpenter::CAPACITY_TYPE.to_owned(),
            vec![one_of(karpenter::CAPACITY_TYPE, values, minimum)],
        );
    }
    let mut claim = template(pool, hasher);
    let labels = claim.metadata.labels.get_or_insert_default();
    for (key, requirement) in new.requirements.iter() {
        let text = vocabulary.text(key);
        if well_known.contains(key) || ASSUMED.contains(&text) {
            continue;
        }
        // A label of the user's own has to have a value before the node exists.
        if let (EngineOperator::In, Some(value)) = (requirement.operator(), requirement.values().first()) {
            let value = vocabulary.text(*value).to_owned();
            labels.entry(text.to_owned()).or_insert(value);
        }
    }
    let annotations = claim.metadata.annotations.get_or_insert_default();
    for (key, holds) in [
        (karpenter::PRICE_OVERLAY_APPLIED, priced),
        (karpenter::CAPACITY_OVERLAY_APPLIED, sized),
        (karpenter::NODECLAIM_MIN_VALUES_RELAXED, new.min_values_relaxed),
    ] {
        if holds {
            annotations.insert(key.to_owned(), "true".to_owned());
        }
    }
    claim.spec.requirements = requirements.into_values().flatten().collect();
    claim.spec.resources = ResourceRequirements {
        requests: api_list(&new.requests),
        extra: Extra::new(),
    };
    // Finding what is cheapest takes time, and only limits ask for it.
    if !pool.spec.limits.is_empty()
        && let Some(option) = market.options(&claim, 1).first()
    {
        take_share(&mut claim, pool, &option.capacity);
    }
    claim
}

/// The claim for one replica of a static pool: any type that meets the pool's requirements.
pub(super) fn replica(pool: &NodePool, now: Timestamp, number: usize) -> NodeClaim {
    from_template(pool, seed(pool, now, number))
}

/// How a spare differs from other claims of its pool.
#[derive(Clone, Copy, Debug)]
pub struct Spare<'a> {
    /// The Overprovisioner that wants it.
    pub overprovisioner: &'a str,
    /// Its type; any if none.
    pub instance_type: Option<&'a str>,
    /// Its zone; any if none.
    pub zone: Option<&'a str>,
    /// How it must be bought; as the pool allows if none.
    pub capacity_type: Option<&'a str>,
    /// Whether the capacity type of claim and node says that it is a spare. Beside a Karpenter that label is its own.
    pub takes_capacity_type: bool,
    /// Whether its instance will hibernate, which has to be known at the launch.
    pub hibernates: bool,
}

/// The claim for a spare of a pool. `(now, number)` makes its name new.
#[must_use]
pub fn spare(pool: &NodePool, spare: Spare<'_>, (now, number): (Timestamp, usize)) -> NodeClaim {
    let mut hasher = seed(pool, now, number);
    hasher.write(spare.overprovisioner.as_bytes());
    let mut claim = from_template(pool, hasher);
    for (key, value) in [
        (kubernetes::INSTANCE_TYPE, spare.instance_type),
        (kubernetes::ZONE, spare.zone),
        (karpenter::CAPACITY_TYPE, spare.capacity_type),
    ] {
        if let Some(value) = value {
            claim.spec.requirements.retain(|one| one.key != key);
            claim
                .spec
                .requirements
                .push(one_of(key, vec![value.to_owned()], None));
        }
    }
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.insert(
        veneer::OVERPROVISIONER.to_owned(),
        spare.overprovisioner.to_owned(),
    );
    labels.insert(
        veneer::OVERPROVISIONED.to_owned(),
        veneer::OVERPROVISIONED_SPARE.to_owned(),
    );
    if spare.takes_capacity_type {
        labels.insert(
            karpenter::CAPACITY_TYPE.to_owned(),
            karpenter::CAPACITY_TYPE_OVERPROVISIONED.to_owned(),
        );
    }
    let annotations = claim.metadata.annotations.get_or_insert_default();
    if !spare.takes_capacity_type {
        annotations.insert(karpenter::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        // Whether it has drifted is for the Karpenter beside us to say, by its own fingerprint of the pool.
        let of_pool = pool.metadata.annotations.as_ref();
        for key in [karpenter::NODEPOOL_HASH, karpenter::NODEPOOL_HASH_VERSION] {
            match of_pool.and_then(|list| list.get(key)) {
                Some(value) => annotations.insert(key.to_owned(), value.clone()),
                None => annotations.remove(key),
            };
        }
    }
    if spare.hibernates {
        annotations.insert(veneer::HIBERNATION.to_owned(), "true".to_owned());
    }
    claim.spec.taints.push(spare_taint());
    claim
}

/// The claim for any node of a pool.
fn from_template(pool: &NodePool, hasher: Hasher) -> NodeClaim {
    let mut claim = template(pool, hasher);
    let mut requirements = pool.spec.template.spec.requirements.clone();
    let labels = claim.metadata.labels.iter().flatten();
    for (key, value) in labels {
        if !requirements.iter().any(|one| one.key == *key) {
            requirements.push(one_of(key, vec![value.clone()], None));
        }
    }
    claim.spec.requirements = requirements;
    claim
}

fn seed(pool: &NodePool, now: Timestamp, number: usize) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.write(pool.metadata.uid.as_deref().unwrap_or_default().as_bytes());
    hasher.write(name(&pool.metadata).as_bytes());
    hasher.write(&now.as_nanosecond().to_le_bytes());
    hasher.write(&number.to_le_bytes());
    hasher
}

/// What all claims of a pool have in common.
fn template(pool: &NodePool, hasher: Hasher) -> NodeClaim {
    let pool_name = name(&pool.metadata);
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let mut base = pool_name.to_owned();
    base.truncate(base.floor_char_boundary(MAX_BASE));
    let mut labels = template.metadata.labels.clone();
    labels.insert(karpenter::NODEPOOL.to_owned(), pool_name.to_owned());
    labels.insert(
        format!("{}/{}", class.group, class.kind.to_lowercase()),
        class.name.clone(),
    );
    let mut annotations = template.metadata.annotations.clone();
    annotations.insert(karpenter::NODEPOOL_HASH.to_owned(), pool_hash(pool));
    annotations.insert(
        karpenter::NODEPOOL_HASH_VERSION.to_owned(),
        HASH_VERSION.to_owned(),
    );
    NodeClaim {
        metadata: ObjectMeta {
            name: Some(format!("{base}-{}", hasher.letters(8))),
            labels: Some(labels),
            annotations: Some(annotations),
            // From the start: an instance must never outlive its claim.
            finalizers: Some(vec![karpenter::TERMINATION_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: "karpenter.sh/v1".to_owned(),
                kind: "NodePool".to_owned(),
                name: pool_name.to_owned(),
                uid: pool.metadata.uid.clone().unwrap_or_default(),
                block_owner_deletion: Some(true),
                controller: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: NodeClaimSpec {
            expire_after: template.spec.expire_after.clone(),
            node_class_ref: class.clone(),
            requirements: Vec::new(),
            resources: ResourceRequirements::default(),
            startup_taints: template.spec.startup_taints.clone(),
            taints: template.spec.taints.clone(),
            termination_grace_period: template.spec.termination_grace_period.clone(),
            extra: Extra::new(),
        },
        status: None,
    }
}

fn one_of(key: &str, values: Vec<String>, min_values: Option<i64>) -> NodeSelectorRequirementWithMinValues {
    NodeSelectorRequirementWithMinValues {
        key: key.to_owned(),
        operator: Operator::In,
        values,
        min_values,
        extra: Extra::new(),
    }
}

/// Requirements as an object states them, by label.
fn stated(
    requirements: &Requirements,
    vocabulary: &Vocabulary,
) -> BTreeMap<String, Vec<NodeSelectorRequirementWithMinValues>> {
    let kept = requirements
        .iter()
        .map(|(key, requirement)| (vocabulary.text(key), requirement))
        .filter(|(key, _)| !ASSUMED.contains(key) && *key != kubernetes::HOSTNAME);
    kept.map(|(key, requirement)| (key.to_owned(), state(key, requirement, vocabulary)))
        .collect()
}

fn state(
    key: &str,
    requirement: &Requirement,
    vocabulary: &Vocabulary,
) -> Vec<NodeSelectorRequirementWithMinValues> {
    let values: Vec<String> = vocabulary
        .sorted_texts(requirement.values())
        .into_iter()
        .map(str::to_owned)
        .collect();
    let bounds = requirement.bounds();
    let mut parts: Vec<(Operator, Vec<String>)> = Vec::new();
    match requirement.operator() {
        EngineOperator::In => parts.push((Operator::In, values)),
        EngineOperator::DoesNotExist => parts.push((Operator::DoesNotExist, Vec::new())),
        _ if !values.is_empty() => parts.push((Operator::NotIn, values)),
        _ => {}
    }
    if requirement.is_complement() {
        parts.extend(bounds.gte.map(|least| (Operator::Gte, vec![least.to_string()])));
        parts.extend(bounds.lte.map(|most| (Operator::Lte, vec![most.to_string()])));
        if parts.is_empty() {
            parts.push((Operator::Exists, Vec::new()));
        }
    }
    parts
        .into_iter()
        .map(|(operator, values)| NodeSelectorRequirementWithMinValues {
            key: key.to_owned(),
            operator,
            values,
            min_values: requirement.min_values(),
            extra: Extra::new(),
        })
        .collect()
}
