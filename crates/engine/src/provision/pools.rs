//! What a NodePool says about itself: whether it can launch, what it has, and the fingerprint of its template.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff::Timestamp;
use veneer_api::labels::karpenter;
use veneer_api::node_claim::CONDITION_REGISTERED;
use veneer_api::node_pool::{
    CONDITION_NODE_CLASS_READY, CONDITION_NODE_REGISTRATION_HEALTHY, CONDITION_VALIDATION_SUCCEEDED,
};
use veneer_api::{ConditionStatus, NodeClaim, NodePool, NodePoolStatus, find_condition};

use super::hash::{HASH_VERSION, pool_hash};
use super::market::{Market, quantities};
use crate::cluster::is_leaving;
use crate::disruption::budget_faults;
use crate::labels::{self, LabelRules};
use crate::plan::{
    Action, Announcement, Conditions, Plan, Snapshot, Subject, Target, api_list, is_deleting, name,
    node_pool_of, provider_id,
};
use crate::quantity::Quantity;
use crate::requirements::Operator;
use crate::resources::ResourceList;

/// What a pool's status always counts, as in Karpenter; of a pool without nodes it says zero.
const ALWAYS_COUNTED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// The conditions that a pool has now.
#[must_use]
pub fn readiness(pool: &NodePool, snapshot: &Snapshot, rules: &LabelRules, now: Timestamp) -> Conditions {
    let known = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let mut conditions = Conditions::new(known, pool.metadata.generation, now);
    let faults = faults(pool, rules);
    if faults.is_empty() {
        conditions.set_true(CONDITION_VALIDATION_SUCCEEDED);
    } else {
        conditions.set(
            CONDITION_VALIDATION_SUCCEEDED,
            ConditionStatus::False,
            "NodePoolValidationFailed",
            &faults.join("; "),
        );
    }
    let class = &pool.spec.template.spec.node_class_ref;
    let found = snapshot
        .node_classes
        .iter()
        .find(|one| one.group == class.group && one.kind == class.kind && one.name == class.name);
    let fault = match found {
        None => Some((
            "NodeClassNotFound",
            format!(
                "spec.template.spec.nodeClassRef: there is no {} {:?} of group {}; create it, or name one that exists",
                class.kind, class.name, class.group
            ),
        )),
        Some(one) if one.is_deleting => Some((
            "NodeClassTerminating",
            format!(
                "{} {:?} is being deleted; name another one",
                class.kind, class.name
            ),
        )),
        Some(one) => one
            .not_ready
            .as_ref()
            .map(|why| ("NodeClassNotReady", why.clone())),
    };
    match fault {
        None => conditions.set_true(CONDITION_NODE_CLASS_READY),
        Some((reason, message)) => conditions.set(
            CONDITION_NODE_CLASS_READY,
            ConditionStatus::False,
            reason,
            &message,
        ),
    }
    registration_health(pool, snapshot, &mut conditions);
    conditions.sum_up(&[CONDITION_VALIDATION_SUCCEEDED, CONDITION_NODE_CLASS_READY]);
    conditions
}

/// Unknown until a claim has registered; a failure stands until one has registered after it.
fn registration_health(pool: &NodePool, snapshot: &Snapshot, conditions: &mut Conditions) {
    let type_ = CONDITION_NODE_REGISTRATION_HEALTHY;
    let failed_at = conditions
        .get(type_)
        .filter(|one| one.status == ConditionStatus::False)
        .map(|one| one.last_transition_time.clone());
    let registered = of_pool(pool, snapshot).any(|claim| {
        let list = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let registered = find_condition(list, CONDITION_REGISTERED);
        registered.is_some_and(|one| {
            one.status == ConditionStatus::True
                && failed_at
                    .as_ref()
                    .is_none_or(|failed| one.last_transition_time > *failed)
        })
    });
    if registered {
        conditions.set_true(type_);
    } else if conditions.get(type_).is_none() {
        let message = "no node of this pool has joined the cluster yet";
        conditions.set(type_, ConditionStatus::Unknown, "AwaitingReconciliation", message);
    }
}

fn of_pool<'a>(pool: &'a NodePool, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let claims = snapshot.node_claims.iter();
    claims.filter(|claim| node_pool_of(&claim.metadata) == name(&pool.metadata))
}

/// What is wrong with a pool that its CRD lets through, each with the field.
fn faults(pool: &NodePool, rules: &LabelRules) -> Vec<String> {
    let template = &pool.spec.template;
    let mut faults = Vec::new();
    for (key, value) in &template.metadata.labels {
        let field = "spec.template.metadata.labels";
        if let Err(error) = labels::check_key(key) {
            faults.push(format!("{field}: {key:?} {error}"));
        } else if let Err(error) = labels::check_value(value) {
            faults.push(format!("{field}: value {value:?} of {key:?} {error}"));
        } else if rules.is_restricted(key) {
            faults.push(format!("{field}: {key:?} is set by the provisioner; remove it"));
        }
    }
    for one in &template.spec.requirements {
        let field = "spec.template.spec.requirements";
        let key = labels::normalise(&one.key);
        if let Err(unknown) = one.operator.as_str().parse::<Operator>() {
            faults.push(format!("{field}: {key:?}: {unknown}"));
        }
        if let Err(error) = labels::check_key(key) {
            faults.push(format!("{field}: {key:?} {error}"));
        } else if rules.is_restricted(key) {
            faults.push(format!(
                "{field}: label {key:?} is set by the provisioner and cannot be required; remove the requirement"
            ));
        }
        let bad = one.values.iter().find_map(|value| {
            let error = labels::check_value(value).err()?;
            Some(format!("{field}: value {value:?} of {key:?} {error}"))
        });
        faults.extend(bad);
    }
    faults
}

/// The statuses, fingerprints and events of all pools.
#[must_use]
pub fn decide(snapshot: &Snapshot, market: &mut Market, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let exists = |named: &str| {
        snapshot
            .node_pools
            .iter()
            .any(|pool| name(&pool.metadata) == named)
    };
    market.usages.retain(|pool, _| exists(pool));
    for pool in snapshot
        .node_pools
        .iter()
        .filter(|pool| !is_deleting(&pool.metadata))
    {
        let target = Target::from(&pool.metadata);
        let conditions = readiness(pool, snapshot, &market.catalogue().rules, now);
        let known = pool.status.clone().unwrap_or_default();
        let announce = |reason, message| {
            Action::Announce(Announcement {
                subject: Subject {
                    api_version: "karpenter.sh/v1",
                    kind: "NodePool",
                    target: target.clone(),
                },
                is_warning: true,
                reason,
                message,
            })
        };
        let hash = [
            (karpenter::NODEPOOL_HASH.to_owned(), pool_hash(pool)),
            (
                karpenter::NODEPOOL_HASH_VERSION.to_owned(),
                HASH_VERSION.to_owned(),
            ),
        ];
        let annotations = pool.metadata.annotations.as_ref();
        let hash: BTreeMap<String, String> = hash
            .into_iter()
            .filter(|(key, value)| annotations.and_then(|known| known.get(key)) != Some(value))
            .collect();
        let mut fresh = false;
        if !hash.is_empty() {
            // The status follows with the next snapshot, which has the new version of the pool.
            plan.push(Action::AnnotatePool {
                target: target.clone(),
                annotations: hash,
            });
            fresh = true;
        }
        for (type_, reason) in [
            (CONDITION_VALIDATION_SUCCEEDED, "NodePoolValidationFailed"),
            (CONDITION_NODE_CLASS_READY, "NodeClassNotReady"),
        ] {
            let fault = conditions
                .get(type_)
                .filter(|one| one.status == ConditionStatus::False);
            let is_news = find_condition(&known.conditions, type_).map(|one| &one.message)
                != fault.map(|one| &one.message);
            if let Some(fault) = fault.filter(|_| is_news && !fresh) {
                plan.push(announce(reason, fault.message.clone()));
            }
        }
        if fresh && !market.has_types(pool) {
            let message = "NodePool requirements filtered out all compatible available instance types; \
                           `veneer simulate` and `veneer catalog` show what there is: widen spec.template.spec.requirements";
            plan.push(announce("NoCompatibleInstanceTypes", message.to_owned()));
        }
        let usage = market.usages.entry(name(&pool.metadata).to_owned()).or_default();
        usage.update(pool, snapshot);
        let unreadable = budget_faults(&pool.spec.disruption.budgets).join("; ");
        if usage.unreadable_budgets != unreadable {
            usage.unreadable_budgets.clone_from(&unreadable);
            if !unreadable.is_empty() {
                plan.push(announce("DisruptionBudgetUnreadable", unreadable));
            }
        }
        let (nodes, mut resources) = (count(&usage.claims), usage.resources.clone());
        // Statuses are merged: what is left out would stay as it was, and be written again and again.
        for resource in known.resources.keys() {
            resources
                .entry(resource.clone())
                .or_insert_with(|| ApiQuantity("0".to_owned()));
        }
        let status = NodePoolStatus {
            conditions: conditions.into_list(),
            nodes,
            resources,
            ..known.clone()
        };
        if status != known && !fresh {
            plan.push(Action::PoolStatus {
                target,
                status: Box::new(status),
            });
        }
    }
    plan
}

/// What the nodes of a pool have in total, with the claims that this was counted from.
#[derive(Debug, Default)]
pub(super) struct Usage {
    claims: Vec<Arc<NodeClaim>>,
    resources: veneer_api::ResourceList,
    /// What was last said about the pool's disruption budgets.
    unreadable_budgets: String,
}

fn capacity(claim: &NodeClaim) -> Option<&veneer_api::ResourceList> {
    claim.status.as_ref().map(|status| &status.capacity)
}

fn count(claims: &[Arc<NodeClaim>]) -> i64 {
    i64::try_from(claims.len()).unwrap_or(i64::MAX)
}

impl Usage {
    /// Counts again if it is not about the same claims with the same capacity.
    fn update(&mut self, pool: &NodePool, snapshot: &Snapshot) {
        // What is on its way out is not counted, as in Karpenter.
        let claims =
            of_pool(pool, snapshot).filter(|claim| provider_id(claim).is_some() && !is_leaving(claim));
        let claims: Vec<Arc<NodeClaim>> = claims.map(Arc::clone).collect();
        let is_same = |(known, now): (&Arc<NodeClaim>, &Arc<NodeClaim>)| {
            Arc::ptr_eq(known, now) || capacity(known) == capacity(now)
        };
        let is_known = !self.resources.is_empty()
            && self.claims.len() == claims.len()
            && self.claims.iter().zip(&claims).all(is_same);
        if !is_known {
            let mut total = ResourceList::new();
            for resource in ALWAYS_COUNTED {
                total.insert(resource, Quantity::from(0));
            }
            for claim in &claims {
                total.add(&capacity(claim).map(quantities).unwrap_or_default());
            }
            total.insert("nodes", Quantity::from(count(&claims)));
            self.resources = api_list(&total);
        }
        self.claims = claims;
    }
}
