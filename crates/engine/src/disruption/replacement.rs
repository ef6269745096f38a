//! Which types may replace nodes: only what is cheaper, and for spot only with enough of a choice.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Policy;
use super::blockers::Blocker;
use super::candidates::Candidate;
use crate::instance_type::Catalogue;
use crate::labels::{CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT};
use crate::packing::NewNodeClaim;
use crate::packing::relocation::{Offer, Relocation};
use crate::requirements::{Operator, Requirement};

/// A spot node is replaced by a spot node only if that leaves this many types to choose from.
const SPOT_TYPES: usize = 15;

/// A new node with the types that are cheaper than what it replaces.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    pub(super) claim: NewNodeClaim,
    /// What the cheapest of them costs.
    pub(super) price: f64,
    pub(super) instance_type: String,
    /// The offering that costs this.
    pub(super) offer: Offer,
}

/// Keeps the types of a new node that may replace `candidates`, or says why none may. `pods` are those that have no
/// room on other nodes.
pub(super) fn narrow(
    relocation: &Relocation<'_, '_>,
    catalogue: &Catalogue,
    candidates: &[&Candidate<'_>],
    mut claim: NewNodeClaim,
    pods: impl Fn() -> Vec<String>,
    policy: &Policy,
) -> Result<Replacement, Blocker> {
    let price: f64 = candidates.iter().filter_map(|one| one.price).sum();
    let mut limit = price * (1.0 - policy.least_saving);
    let vocabulary = relocation.vocabulary();
    let mut offers = relocation.offers(&claim);
    let cheapest = offers.iter().min_by(|a, b| a.price.total_cmp(&b.price)).copied();
    let bought = cheapest.and_then(|offer| offer.capacity_type);
    let is_spot_to_spot = candidates.iter().all(|one| one.is_spot) && bought == Some(SPOT);
    if is_spot_to_spot && !policy.spot_to_spot {
        return Err(Blocker::SpotToSpot {
            pods: pods(),
            cheaper: 0,
            needed: None,
        });
    }
    if let Some(bought) = bought.filter(|bought| *bought != RESERVED) {
        // Prices are compared for this capacity type; a launch as something dearer must fail instead.
        offers.retain(|one| one.capacity_type == Some(bought));
        if let (Some(key), Some(bought)) = (vocabulary.get(CAPACITY_TYPE), vocabulary.get(bought)) {
            let only = Requirement::one_of([bought]);
            claim.requirements.add(key, only, vocabulary);
        }
    }
    let mut kept = cheaper(&offers, limit);
    if let [_, _, ..] = candidates {
        // Were the new node of a type that goes away, keeping that node would do; so it has to be cheaper than it.
        let names: BTreeSet<&str> = candidates.iter().map(|one| one.instance_type).collect();
        let same = kept.iter().filter_map(|entry| catalogue.types.get(*entry));
        let same: BTreeSet<&str> = same.map(|it| &*it.name).filter(|it| names.contains(it)).collect();
        let of_same = candidates.iter().filter(|one| same.contains(one.instance_type));
        if let Some(least) = of_same.filter_map(|one| one.price).min_by(f64::total_cmp) {
            limit = limit.min(least);
            kept = cheaper(&offers, limit);
        }
    }
    if kept.is_empty() {
        return Err(Blocker::Price {
            pods: pods(),
            price,
            cheapest: cheapest.and_then(|offer| {
                let it = catalogue.types.get(offer.entry)?;
                Some((it.name.to_string(), offer.price))
            }),
            limit,
        });
    }
    if is_spot_to_spot && candidates.len() == 1 {
        if kept.len() < SPOT_TYPES {
            return Err(Blocker::SpotToSpot {
                pods: pods(),
                cheaper: kept.len(),
                needed: Some(SPOT_TYPES),
            });
        }
        // Only the cheapest: whatever is launched of these is not replaced again at once.
        if !claim.requirements.has_min_values() {
            kept.truncate(SPOT_TYPES);
        }
    }
    claim.instance_types = Arc::from(kept);
    if let Some((label, found, minimum)) = min_values_unmet(&claim, catalogue, relocation) {
        return Err(Blocker::MinValues {
            pods: pods(),
            why: format!("the cheaper types have {found} values of {label} where minValues wants {minimum}"),
        });
    }
    let launched = offers
        .iter()
        .filter(|one| claim.instance_types.contains(&one.entry) && one.price < limit)
        .min_by(|a, b| a.price.total_cmp(&b.price));
    let Some(launched) = launched else {
        return Err(Blocker::Price {
            pods: pods(),
            price,
            cheapest: None,
            limit,
        });
    };
    let it = catalogue.types.get(launched.entry);
    Ok(Replacement {
        price: launched.price,
        offer: *launched,
        instance_type: it.map_or_else(String::new, |it| it.name.to_string()),
        claim,
    })
}

/// The types that cost less than `limit` even where they cost most, of the capacity type that would be launched.
fn cheaper(offers: &[Offer], limit: f64) -> Vec<usize> {
    let mut kept = Vec::new();
    for of_type in offers.chunk_by(|a, b| a.entry == b.entry) {
        let dearest = [RESERVED, SPOT, ON_DEMAND].iter().find_map(|wanted| {
            let of_kind = of_type.iter().filter(|one| one.capacity_type == Some(*wanted));
            of_kind.map(|one| one.price).max_by(f64::total_cmp)
        });
        if dearest.is_some_and(|price| price < limit) {
            kept.extend(of_type.first().map(|one| one.entry));
        }
    }
    kept
}

/// A label of which the types that are left have too few values.
fn min_values_unmet(
    claim: &NewNodeClaim,
    catalogue: &Catalogue,
    relocation: &Relocation<'_, '_>,
) -> Option<(String, usize, i64)> {
    for (key, requirement) in claim.requirements.iter() {
        let Some(minimum) = requirement.min_values() else {
            continue;
        };
        let mut values = BTreeSet::new();
        for it in claim
            .instance_types
            .iter()
            .filter_map(|at| catalogue.types.get(*at))
        {
            let own = it.requirements.get(key);
            if let Some(own) = own.filter(|own| own.operator() == Operator::In) {
                values.extend(own.values().iter().copied());
            }
        }
        if (values.len() as i64) < minimum {
            return Some((
                relocation.vocabulary().text(key).to_owned(),
                values.len(),
                minimum,
            ));
        }
    }
    None
}
