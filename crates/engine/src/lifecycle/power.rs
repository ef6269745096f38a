//! Instances that are stopped on purpose, and started again.
//!
//! The claim says what its instance shall do before anybody asks the provider for it ([`Power`]), so every step can
//! be repeated by another process. A stopped claim is not registered, with [`STOPPED`] as the reason; its node has left the
//! cluster. When it shall run again it goes through registration as at first, with the same timeout.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use veneer_api::labels::{kubernetes, veneer};
use veneer_api::node_claim::{
    CONDITION_DRIFTED, CONDITION_INITIALIZED, CONDITION_LAUNCHED, CONDITION_REGISTERED,
};
use veneer_api::{ConditionStatus, NodeClaim, NodeClaimStatus};

use super::View;
use super::claim::{drifted, pool_of, subject};
use crate::cluster::purchase::purchase_option_of;
use crate::plan::{
    Action, Announcement, Conditions, InstanceState, Plan, Power, Shortage, Target, is_deleting, label, name,
    provider_id,
};
use crate::provision::{LaunchOption, Market, Spare, spare_claim};
use crate::quantity::Quantity;

/// The reason of `Registered=False` of a claim whose instance is stopped.
pub const STOPPED: &str = "Stopped";
/// How soon to look at an instance again that is on its way.
const AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// How many other types are looked at when the one of a stopped instance is not available.
const OPTIONS: usize = 500;

/// Whether the claim waits with a stopped instance.
pub(super) fn is_stopped(conditions: &Conditions) -> bool {
    conditions
        .get(CONDITION_REGISTERED)
        .is_some_and(|one| one.status == ConditionStatus::False && one.reason == STOPPED)
}

/// What has to be written once a stopped instance is of another type.
#[must_use]
pub fn after_change_type(claim: &NodeClaim, instance_type: &str) -> Action {
    Action::PatchClaim {
        target: Target {
            resource_version: String::new(),
            ..Target::from(&claim.metadata)
        },
        labels: [(kubernetes::INSTANCE_TYPE.to_owned(), instance_type.to_owned())].into(),
        annotations: BTreeMap::new(),
        finalizers: None,
    }
}

/// Stops or starts the instance of a claim; says whether nothing else is to be done about the claim.
pub(super) fn advance(claim: &Arc<NodeClaim>, view: &View<'_>, market: &mut Market, plan: &mut Plan) -> bool {
    let Some(id) = provider_id(claim) else {
        return false;
    };
    let state = view.instance_state(claim);
    let power = Power::of(claim);
    if power == Power::Run {
        let says_so = claim
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|list| list.contains_key(veneer::POWER));
        // An instance that somebody else has stopped is none of our business.
        if says_so && state == Some(InstanceState::Stopped) {
            start(claim, id, view, market, plan);
        }
        return false;
    }
    match state {
        Some(InstanceState::Running | InstanceState::Pending) => plan.push(Action::Stop {
            provider_id: id.to_owned(),
            hibernate: power == Power::Hibernate,
        }),
        Some(InstanceState::Stopping) => {
            plan.look_again(view.now.checked_add(AGAIN).unwrap_or(view.now));
        }
        Some(InstanceState::Stopped) => leave(claim, view, plan),
        Some(InstanceState::ShuttingDown) => {}
        None => {
            let known = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
            if is_stopped(&Conditions::new(known, None, view.now)) {
                plan.push(Action::DeleteClaim {
                    target: Target::from(&claim.metadata),
                    reason: "garbage_collected",
                });
            }
        }
    }
    true
}

/// The node of a stopped instance leaves; then the claim says that it waits.
fn leave(claim: &NodeClaim, view: &View<'_>, plan: &mut Plan) {
    let nodes = view.nodes_of(claim);
    for node in nodes.iter().filter(|node| !is_deleting(&node.metadata)) {
        plan.push(Action::DeleteNode {
            target: Target::from(&node.metadata),
        });
    }
    if !nodes.is_empty() {
        return;
    }
    let known = claim.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&known.conditions, claim.metadata.generation, view.now);
    for type_ in [CONDITION_REGISTERED, CONDITION_INITIALIZED] {
        let message = "the instance is stopped and starts when it is needed";
        conditions.set(type_, ConditionStatus::False, STOPPED, message);
    }
    conditions.sum_up(&[CONDITION_LAUNCHED, CONDITION_REGISTERED, CONDITION_INITIALIZED]);
    // Whoever keeps it replaces it, since it would start as what its pool makes no more.
    let drifted = drifted(claim, view);
    if let Some(why) = drifted {
        conditions.set(CONDITION_DRIFTED, ConditionStatus::True, why, why);
    }
    let mut conditions = conditions.into_list();
    conditions.retain(|one| drifted.is_some() || one.type_ != CONDITION_DRIFTED);
    let status = NodeClaimStatus {
        conditions,
        node_name: None,
        ..known.clone()
    };
    if status != known {
        plan.push(Action::ClaimStatus {
            target: Target::from(&claim.metadata),
            status: Box::new(status),
        });
    }
}

/// Starts an instance; where its type is not available, it becomes one of another type first, or makes room.
fn start(claim: &Arc<NodeClaim>, id: &str, view: &View<'_>, market: &mut Market, plan: &mut Plan) {
    let is_short = |instance_type: &str| {
        view.snapshot.shortages.contains(&Shortage {
            instance_type: instance_type.to_owned(),
            capacity_type: bought_as(claim).to_owned(),
            zone: of_label(claim, kubernetes::ZONE).to_owned(),
        })
    };
    let current = of_label(claim, kubernetes::INSTANCE_TYPE);
    if !is_short(current) {
        plan.push(Action::Start {
            provider_id: id.to_owned(),
        });
        return;
    }
    let annotations = claim.metadata.annotations.as_ref();
    let chosen = annotations.and_then(|list| list.get(veneer::CHANGE_TYPE));
    if let Some(chosen) = chosen.filter(|chosen| *chosen != current && !is_short(chosen)) {
        plan.push(Action::ChangeType {
            provider_id: id.to_owned(),
            instance_type: chosen.clone(),
        });
        return;
    }
    let target = Target::from(&claim.metadata);
    // What a hibernated instance has in memory fits its own type only.
    let hibernates = annotations.is_some_and(|list| list.contains_key(veneer::HIBERNATION));
    let other = if hibernates {
        None
    } else {
        another_type(claim, view, market)
    };
    match other {
        Some(other) => {
            plan.push(Action::Announce(Announcement {
                subject: subject(claim),
                is_warning: false,
                reason: "ChangingInstanceType",
                message: format!("{current} is not available; the stopped instance becomes {other}"),
            }));
            plan.push(Action::PatchClaim {
                target,
                labels: BTreeMap::new(),
                annotations: [(veneer::CHANGE_TYPE.to_owned(), other)].into(),
                finalizers: None,
            });
        }
        None => {
            plan.push(Action::Announce(Announcement {
                subject: subject(claim),
                is_warning: true,
                reason: "InsufficientCapacityError",
                message: format!(
                    "NodeClaim {} event: neither {current} nor a type of at least its size is available in its zone; its pods are scheduled again",
                    name(&claim.metadata)
                ),
            }));
            plan.push(Action::DeleteClaim {
                target,
                reason: "insufficient_capacity",
            });
        }
    }
}

fn of_label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    label(&claim.metadata, key).unwrap_or_default()
}

/// How the claim's instance was bought.
fn bought_as(claim: &NodeClaim) -> &str {
    purchase_option_of(&claim.metadata).unwrap_or_default()
}

/// The cheapest available type of the pool that can take the place of the claim's own.
fn another_type(claim: &NodeClaim, view: &View<'_>, market: &mut Market) -> Option<String> {
    let pool = pool_of(claim, view)?;
    let open = Spare {
        overprovisioner: "",
        instance_type: None,
        zone: None,
        capacity_type: Some(bought_as(claim)),
        takes_capacity_type: false,
        hibernates: false,
    };
    let open = spare_claim(pool, open, (view.now, 0));
    let has = claim.status.as_ref().map(|status| &status.allocatable)?;
    let amount = |text: &str| text.parse::<Quantity>().ok();
    let is_as_big = |option: &LaunchOption| {
        has.iter().all(|(resource, least)| {
            let offered = option.allocatable.get(resource).and_then(|text| amount(&text.0));
            match (offered, amount(&least.0)) {
                (Some(offered), Some(least)) => offered >= least,
                (None, Some(least)) => least.is_zero(),
                (_, None) => true,
            }
        })
    };
    let current = of_label(claim, kubernetes::INSTANCE_TYPE);
    let same = |option: &LaunchOption, key: &str| {
        let of_option = option.labels.get(key).map(String::as_str);
        of_option.unwrap_or_default() == of_label(claim, key)
    };
    let options = market.options(&open, OPTIONS);
    let other = options.into_iter().find(|option| {
        option.instance_type != current
            && same(option, kubernetes::ZONE)
            && same(option, kubernetes::ARCH)
            && is_as_big(option)
    });
    other.map(|option| option.instance_type)
}
