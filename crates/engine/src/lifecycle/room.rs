//! What the limits of NodePools leave for launches.
//!
//! A new claim is counted as the cheapest instance that it could get. So that this stays an upper bound, a claim of a
//! pool with limits falls back to nothing larger, and to nothing at all once the limits are reached: what was true when
//! the claim was made may have changed since, by a shortage, an overlay or a lower limit.

use std::collections::HashMap;

use crate::plan::{Snapshot, is_deleting, name, node_pool_of, provider_id};
use crate::provision::{LaunchOption, quantities};
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
        // What is on its way out gives its room away, as in Karpenter: pods that have to leave it could wait for that room
        // while their disruption budget keeps them there.
        for claim in snapshot
            .node_claims
            .iter()
            .filter(|claim| !is_deleting(&claim.metadata))
        {
            if let (Some(left), Some(_)) = (left.get_mut(node_pool_of(&claim.metadata)), provider_id(claim)) {
                let capacity = claim.status.iter().flat_map(|status| &status.capacity);
                *left = left.minus(&counted(capacity));
            }
        }
        Self(left)
    }

    pub(super) fn is_limited(&self, pool: &str) -> bool {
        self.0.contains_key(pool)
    }

    /// Keeps the options of a claim that the limits of its pool allow, and takes their room.
    pub(super) fn take(&mut self, pool: &str, options: &mut Vec<LaunchOption>) {
        let Some(left) = self.0.get_mut(pool) else {
            return;
        };
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
