//! What a claim takes of the limits of its pool until it has an instance.
//!
//! A new claim counts as the cheapest instance that it can get, and says so itself, for good: what is cheapest, or to be
//! had at all, may change before its launch, and a process that starts after a kill does not know what was asked for
//! before. It is launched as nothing larger.

use veneer_api::labels::veneer;
use veneer_api::{NodeClaim, NodePool, ResourceList};

use super::market::Market;
use crate::plan::provider_id;

/// Writes on a new claim of a pool with limits what it takes: of each limited resource what `capacity` has.
pub fn take_share(claim: &mut NodeClaim, pool: &NodePool, capacity: &ResourceList) {
    let limits = pool.spec.limits.keys();
    let share: ResourceList = limits
        .filter_map(|resource| Some((resource.clone(), capacity.get(resource)?.clone())))
        .collect();
    if let (false, Ok(text)) = (share.is_empty(), serde_json::to_string(&share)) {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::SHARE.to_owned(), text);
    }
}

/// What a claim without an instance says that it takes.
#[must_use]
pub(crate) fn share(claim: &NodeClaim) -> Option<ResourceList> {
    if provider_id(claim).is_some() {
        return None;
    }
    let text = claim.metadata.annotations.as_ref()?.get(veneer::SHARE)?;
    serde_json::from_str(text).ok()
}

/// What a claim counts against the limits of its pool: what its instance has, or what it will have at most.
#[must_use]
pub fn counted(claim: &NodeClaim, market: &mut Market) -> ResourceList {
    if provider_id(claim).is_some() {
        let status = claim.status.as_ref();
        return status.map(|status| status.capacity.clone()).unwrap_or_default();
    }
    share(claim).unwrap_or_else(|| {
        let option = market.options(claim, 1).into_iter().next();
        option
            .map(|option| ResourceList::clone(&option.capacity))
            .unwrap_or_default()
    })
}
