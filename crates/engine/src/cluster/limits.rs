//! What the limits of NodePools leave.
//!
//! One rule, as in Karpenter: what is on its way out gives its room away, since pods that have to leave it could wait for that room
//! while their disruption budget keeps them there. Only in a pool of a fixed size does it count until it is gone: there the limit
//! is the number of nodes, and its replacement is made by number.
//!
//! A claim without an instance counts as the cheapest one that it can get, and says so itself, for good ([`take_share`]): what is
//! cheapest, or to be had at all, may change before its launch, and a process that starts after a kill does not know what was asked
//! for before. It is launched as nothing larger, and as nothing at all once the limits are reached: they may have been lowered
//! since. One that says nothing (it was made while its pool had no limits, or by others) counts as the cheapest instance that it
//! could get now, when its turn comes.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use veneer_api::labels::veneer;
use veneer_api::{NodeClaim, NodePool, ResourceList as ApiResourceList};

use super::machine::is_leaving;
use crate::plan::{Snapshot, name, node_pool_of, provider_id};
use crate::provision::{LaunchOption, Market, quantities};
use crate::quantity::Quantity;
use crate::resources::ResourceList;

/// The resource by which a NodePool's number of nodes is limited.
pub const NODES: &str = "nodes";

/// Whether a claim of a pool counts against its limits.
#[must_use]
pub fn counts(claim: &NodeClaim, pool: &NodePool) -> bool {
    pool.spec.replicas.is_some() || !is_leaving(claim)
}

/// Writes on a new claim of a pool with limits what it takes: of each limited resource what `capacity` has, and one node.
pub fn take_share(claim: &mut NodeClaim, pool: &NodePool, capacity: &ApiResourceList) {
    let one_node = ApiQuantity("1".to_owned());
    let limits = pool.spec.limits.keys();
    let share: ApiResourceList = limits
        .filter_map(|resource| {
            let amount = if resource == NODES {
                &one_node
            } else {
                capacity.get(resource)?
            };
            Some((resource.clone(), amount.clone()))
        })
        .collect();
    if let (false, Ok(text)) = (share.is_empty(), serde_json::to_string(&share)) {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::SHARE.to_owned(), text);
    }
}

/// What a claim without an instance says that it takes.
#[must_use]
pub(crate) fn share(claim: &NodeClaim) -> Option<ApiResourceList> {
    if provider_id(claim).is_some() {
        return None;
    }
    let text = claim.metadata.annotations.as_ref()?.get(veneer::SHARE)?;
    serde_json::from_str(text).ok()
}

/// What a claim takes as far as its objects say it: what its instance has, or its share. Each with the node itself.
fn stated(claim: &NodeClaim) -> Option<ResourceList> {
    match provider_id(claim) {
        Some(_) => claim.status.as_ref().map(|status| with_node(&status.capacity)),
        None => share(claim).map(|share| with_node(&share)),
    }
}

/// Amounts, with the node itself as one of them.
fn with_node(capacity: &ApiResourceList) -> ResourceList {
    let mut list = quantities(capacity);
    list.insert(NODES, Quantity::from(1));
    list
}

/// How many more nodes the limits of a pool allow, by number alone.
#[must_use]
pub fn nodes_left(pool: &NodePool, snapshot: &Snapshot) -> usize {
    let limit = pool.spec.limits.get(NODES);
    let Some(limit) = limit.and_then(|limit| limit.0.parse::<Quantity>().ok()) else {
        return usize::MAX;
    };
    let claims = snapshot.node_claims.iter();
    let taken =
        claims.filter(|claim| node_pool_of(&claim.metadata) == name(&pool.metadata) && counts(claim, pool));
    usize::try_from(limit.value())
        .unwrap_or_default()
        .saturating_sub(taken.count())
}

/// What is left of the limits, by NodePool. Pools without limits are not listed.
#[derive(Debug)]
pub struct LimitHeadroom<'a>(HashMap<&'a str, ResourceList>);

impl<'a> LimitHeadroom<'a> {
    /// What the claims of a snapshot leave that say what they take. Those that do not are counted when they take their room.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let pools = snapshot.node_pools.iter();
        let limited = pools.filter(|pool| !pool.spec.limits.is_empty());
        let limited: HashMap<&str, &Arc<NodePool>> =
            limited.map(|pool| (name(&pool.metadata), pool)).collect();
        let left = limited
            .iter()
            .map(|(pool, object)| (*pool, quantities(&object.spec.limits)));
        let mut headroom = Self(left.collect());
        if limited.is_empty() {
            return headroom;
        }
        for claim in &snapshot.node_claims {
            let pool = node_pool_of(&claim.metadata);
            if limited.get(pool).is_some_and(|pool| counts(claim, pool))
                && let Some(taken) = stated(claim)
            {
                headroom.draw(pool, &taken);
            }
        }
        headroom
    }

    /// What all claims of one pool leave, also those that do not say what they take.
    #[must_use]
    pub fn of_pool(pool: &'a NodePool, snapshot: &Snapshot, market: &mut Market) -> Self {
        let pool_name = name(&pool.metadata);
        let mut headroom = Self(HashMap::from([(pool_name, quantities(&pool.spec.limits))]));
        if pool.spec.limits.is_empty() {
            return headroom;
        }
        let claims = snapshot.node_claims.iter();
        let claims = claims.filter(|claim| node_pool_of(&claim.metadata) == pool_name && counts(claim, pool));
        for claim in claims {
            let taken = stated(claim).unwrap_or_else(|| {
                let option = market.options(claim, 1).into_iter().next();
                with_node(
                    &option
                        .map(|option| ApiResourceList::clone(&option.capacity))
                        .unwrap_or_default(),
                )
            });
            headroom.draw(pool_name, &taken);
        }
        headroom
    }

    /// Whether a pool has limits.
    #[must_use]
    pub fn is_limited(&self, pool: &str) -> bool {
        self.0.contains_key(pool)
    }

    fn draw(&mut self, pool: &str, taken: &ResourceList) {
        if let Some(left) = self.0.get_mut(pool) {
            *left = left.minus(taken);
        }
    }

    fn give_back(&mut self, pool: &str, taken: &ResourceList) {
        let Some(left) = self.0.get_mut(pool) else { return };
        let more = |(resource, room): (&str, &Quantity)| {
            let back = taken.get(resource).cloned().unwrap_or_default();
            (resource.to_owned(), room + &back)
        };
        *left = left.iter().map(more).collect();
    }

    /// How many more nodes of this capacity fit. A limit that cannot be read allows nothing more.
    #[must_use]
    pub fn room_for(&self, pool: &NodePool, capacity: &ApiResourceList) -> usize {
        let Some(left) = self.0.get(name(&pool.metadata)) else {
            return usize::MAX;
        };
        let each = with_node(capacity);
        let rooms = pool.spec.limits.keys().map(|resource| {
            let left = left.get(resource).and_then(Quantity::nanos).unwrap_or_default();
            let each = each.get(resource).and_then(Quantity::nanos).unwrap_or_default();
            left.max(0)
                .checked_div(each)
                .map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
        });
        rooms.min().unwrap_or(usize::MAX)
    }

    /// Takes the room of one more node.
    pub fn take_node(&mut self, pool: &str, capacity: &ApiResourceList) {
        self.draw(pool, &with_node(capacity));
    }

    /// Takes the room of a claim whose launch is under way, whatever becomes of it.
    pub fn take_under_way(&mut self, claim: &NodeClaim, first: Option<&LaunchOption>) {
        if share(claim).is_none() {
            let none = ApiResourceList::new();
            let capacity = first.map_or(&none, |option| &option.capacity);
            self.take_node(node_pool_of(&claim.metadata), capacity);
        }
    }

    /// Keeps the options of a claim that the limits of its pool allow, and takes their room. What a claim says that it
    /// takes was taken from the start, and is given back if nothing may be launched.
    pub fn take(&mut self, claim: &NodeClaim, options: &mut Vec<LaunchOption>) {
        let pool = node_pool_of(&claim.metadata);
        let Some(left) = self.0.get(pool) else { return };
        if let Some(share) = share(claim) {
            if left.iter().any(|(_, room)| *room < Quantity::default()) {
                self.give_back(pool, &with_node(&share));
                options.clear();
            }
            return;
        }
        let fits = |option: &LaunchOption, room: &ResourceList| {
            let needed = with_node(&option.capacity);
            room.iter()
                .all(|(resource, room)| needed.get(resource).is_none_or(|amount| amount <= room))
        };
        let Some(first) = options.iter().find(|option| fits(option, left)) else {
            options.clear();
            return;
        };
        let bound = with_node(&first.capacity);
        let most: ResourceList = left
            .iter()
            .map(|(resource, _)| (resource, bound.get(resource).cloned().unwrap_or_default()))
            .collect();
        options.retain(|option| fits(option, &most));
        self.draw(pool, &bound);
    }
}
