//! What the limits of NodePools leave for launches.
//!
//! A claim says what it takes at most ([`crate::provision::share`]) and is launched as nothing larger, and as nothing at
//! all once the limits are reached: they may have been lowered since. One that says nothing (it was made while its pool
//! had no limits, or by others) counts as the cheapest instance that it could get now.

use std::collections::HashMap;

use veneer_api::NodeClaim;

use crate::plan::{Snapshot, is_deleting, name, node_pool_of, provider_id};
use crate::provision::{LaunchOption, quantities, share};
use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// What is left of the limits, by NodePool. Pools without limits are not listed.
pub(super) struct Room<'a>(HashMap<&'a str, ResourceList>);

impl<'a> Room<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let limited = snapshot
            .node_pools
            .iter()
            .filter(|pool| !pool.spec.limits.is_empty());
        let mut left: HashMap<&str, ResourceList> = limited
            .map(|pool| (name(&pool.metadata), quantities(&pool.spec.limits)))
            .collect();
        if left.is_empty() {
            return Self(left);
        }
        // What is on its way out gives its room away, as in Karpenter: pods that have to leave it could wait for that room
        // while their disruption budget keeps them there.
        for claim in snapshot
            .node_claims
            .iter()
            .filter(|claim| !is_deleting(&claim.metadata))
        {
            let Some(left) = left.get_mut(node_pool_of(&claim.metadata)) else {
                continue;
            };
            let taken = match provider_id(claim) {
                Some(_) => claim.status.as_ref().map(|status| counted(&status.capacity)),
                None => share(claim).map(|share| counted(&share)),
            };
            if let Some(taken) = taken {
                *left = left.minus(&taken);
            }
        }
        Self(left)
    }

    pub(super) fn is_limited(&self, pool: &str) -> bool {
        self.0.contains_key(pool)
    }

    /// Keeps the options of a claim that the limits of its pool allow, and takes their room. What a claim says that it
    /// takes was taken from the start.
    pub(super) fn take(&mut self, claim: &NodeClaim, options: &mut Vec<LaunchOption>) {
        let Some(left) = self.0.get_mut(node_pool_of(&claim.metadata)) else {
            return;
        };
        if let Some(share) = share(claim) {
            if left.iter().any(|(_, room)| *room < Quantity::default()) {
                let back = counted(&share);
                let more = |(resource, room): (&str, &Quantity)| {
                    let back = back.get(resource).cloned().unwrap_or_default();
                    (resource.to_owned(), room + &back)
                };
                *left = left.iter().map(more).collect();
                options.clear();
            }
            return;
        }
        let fits = |option: &LaunchOption, room: &ResourceList| {
            let needed = counted(&*option.capacity);
            room.iter()
                .all(|(resource, room)| needed.get(resource).is_none_or(|amount| amount <= room))
        };
        let Some(first) = options.iter().find(|option| fits(option, left)) else {
            options.clear();
            return;
        };
        let bound = counted(&*first.capacity);
        let most: ResourceList = left
            .iter()
            .map(|(resource, _)| (resource, bound.get(resource).cloned().unwrap_or_default()))
            .collect();
        options.retain(|option| fits(option, &most));
        *left = left.minus(&bound);
    }
}

/// Amounts, with the node itself as one of them.
fn counted<'a>(
    capacity: impl IntoIterator<
        Item = (
            &'a String,
            &'a k8s_openapi::apimachinery::pkg::api::resource::Quantity,
        ),
    >,
) -> ResourceList {
    let amounts = capacity
        .into_iter()
        .filter_map(|(resource, text)| Some((resource.as_str(), text.0.parse::<Quantity>().ok()?)));
    let mut list: ResourceList = amounts.collect();
    list.insert("nodes", Quantity::from(1));
    list
}
