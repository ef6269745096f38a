//! What the AWS provider takes away from a claim's types before it asks EC2.
//!
//! A filter that would leave nothing of its own kind (no reserved offering, nothing but exotic types) leaves
//! everything; only the first one can end with nothing at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Candidate, Claim, Filter, LaunchError, Launcher, Priced, Rejection};
use crate::labels::{ON_DEMAND, RESERVED, SPOT};
use crate::quantity::Quantity;
use crate::requirements::Requirements;

/// The resources of types that are kept for those who ask for them.
const EXOTIC: [&str; 5] = [
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "amd.com/gpu",
    "nvidia.com/gpu",
    "habana.ai/gaudi",
];

type Step = for<'a> fn(&Launcher, &Claim<'a>, Vec<Candidate<'a>>) -> Vec<Candidate<'a>>;

const STEPS: [(Filter, Step); 6] = [
    (Filter::CompatibleAvailable, compatible_available),
    (Filter::CapacityReservationType, reservation_type),
    (Filter::CapacityBlock, capacity_block),
    (Filter::ReservedOffering, reserved_offering),
    (Filter::ExoticInstanceType, exotic),
    (Filter::SpotOffering, spot_offering),
];

/// The candidates that are left, and what each filter took away.
pub(super) fn apply<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
) -> Result<(Vec<Candidate<'a>>, Vec<Rejection>), LaunchError> {
    let mut candidates = claim.candidates.clone();
    let mut rejections = Vec::new();
    for (filter, step) in STEPS {
        let names: Vec<Arc<str>> = candidates.iter().map(name).collect();
        let offerings = count(&candidates);
        candidates = step(launcher, claim, candidates);
        if candidates.is_empty() {
            return Err(LaunchError::Unavailable(filter));
        }
        let offerings = offerings - count(&candidates);
        let left: std::collections::BTreeSet<Arc<str>> = candidates.iter().map(name).collect();
        let gone: Vec<Arc<str>> = names.into_iter().filter(|name| !left.contains(name)).collect();
        if offerings > 0 || !gone.is_empty() {
            rejections.push(Rejection {
                filter,
                instance_types: gone,
                offerings,
            });
        }
    }
    Ok((candidates, rejections))
}

fn name(candidate: &Candidate<'_>) -> Arc<str> {
    Arc::clone(&candidate.instance_type.name)
}

fn count(candidates: &[Candidate<'_>]) -> usize {
    candidates.iter().map(|candidate| candidate.offerings.len()).sum()
}

fn compatible_available<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
    mut candidates: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    candidates.retain(|candidate| {
        let labels = &candidate.instance_type.requirements;
        let suits = claim
            .requirements
            .compatible(labels, &launcher.well_known, &launcher.vocabulary);
        let mut offerings = candidate.offerings.iter();
        suits.is_ok()
            && claim.requests.fits_into(&candidate.allocatable)
            && offerings.any(|priced| launcher.allows(&claim.requirements, priced.offering))
    });
    candidates
}

/// A kind of reservation: its type, and whether AWS may take the instance back.
type Kind = (String, bool);

fn kind(launcher: &Launcher, priced: &Priced<'_>) -> Kind {
    let of = |key| launcher.label(priced.offering, key);
    (
        of(launcher.keys.reservation_type).to_owned(),
        of(launcher.keys.interruptible) == "true",
    )
}

/// Which of several kinds at the same price comes first.
fn rank((reservation_type, interruptible): &Kind) -> usize {
    match (reservation_type.as_str(), interruptible) {
        ("default", false) => 0,
        ("capacity-block", false) => 1,
        _ => 2,
    }
}

fn is_reserved(launcher: &Launcher, priced: &Priced<'_>) -> bool {
    launcher.label(priced.offering, launcher.keys.capacity_type) == RESERVED
}

fn reservation_type<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
    candidates: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    if !launcher.accepts(&claim.requirements, RESERVED) {
        return candidates;
    }
    let usable = |priced: &&Priced<'a>| {
        is_usable(launcher, &claim.requirements, priced) && is_reserved(launcher, priced)
    };
    // For each kind its lowest price and the candidates that have it.
    let mut kinds: BTreeMap<Kind, (f64, Vec<usize>)> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        for priced in candidate.offerings.iter().filter(usable) {
            let (cheapest, members) = kinds
                .entry(kind(launcher, priced))
                .or_insert((f64::MAX, Vec::new()));
            *cheapest = cheapest.min(priced.price);
            if members.last() != Some(&at) {
                members.push(at);
            }
        }
    }
    let best = kinds.into_iter().min_by(|(a, (price_a, _)), (b, (price_b, _))| {
        price_a.total_cmp(price_b).then_with(|| rank(a).cmp(&rank(b)))
    });
    let Some((chosen, (_, members))) = best else {
        return candidates;
    };
    let mut kept = Vec::with_capacity(members.len());
    for (at, mut candidate) in candidates.into_iter().enumerate() {
        if members.binary_search(&at).is_ok() {
            candidate
                .offerings
                .retain(|priced| is_reserved(launcher, priced) && kind(launcher, priced) == chosen);
            kept.push(candidate);
        }
    }
    kept
}

fn is_usable(launcher: &Launcher, requirements: &Requirements, priced: &Priced<'_>) -> bool {
    launcher.allows(requirements, priced.offering)
}

fn capacity_block<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
    candidates: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    let key = launcher.keys.reservation_type;
    let is_block = |priced: &Priced<'a>| launcher.label(priced.offering, key) == "capacity-block";
    // The first offering that says anything about reservations speaks for all: they are of one kind by now.
    let mut offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    let speaks = offerings.find(|priced| priced.offering.requirements.contains(key));
    if !launcher.accepts(&claim.requirements, RESERVED) || !speaks.is_some_and(is_block) {
        return candidates;
    }
    let mut best: Option<Candidate<'a>> = None;
    for mut candidate in candidates {
        let blocks = candidate.offerings.iter().filter(|priced| {
            is_block(priced)
                && is_reserved(launcher, priced)
                && is_usable(launcher, &claim.requirements, priced)
        });
        let Some(cheapest) = first_least(blocks.copied(), |priced| priced.price) else {
            continue;
        };
        let is_better = |best: &Candidate<'a>| {
            best.offerings
                .first()
                .is_some_and(|current| current.price > cheapest.price)
        };
        if best.as_ref().is_none_or(is_better) {
            candidate.offerings = vec![cheapest];
            best = Some(candidate);
        }
    }
    best.into_iter().collect()
}

/// The first of the items with the lowest key.
fn first_least<T>(items: impl Iterator<Item = T>, key: impl Fn(&T) -> f64) -> Option<T> {
    items.reduce(|best, item| if key(&best) > key(&item) { item } else { best })
}

fn reserved_offering<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
    candidates: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    if !launcher.accepts(&claim.requirements, RESERVED) {
        return candidates;
    }
    let mut kept = Vec::new();
    for candidate in &candidates {
        let mut by_zone: BTreeMap<&str, Priced<'a>> = BTreeMap::new();
        for priced in &candidate.offerings {
            if !is_reserved(launcher, priced) || !is_usable(launcher, &claim.requirements, priced) {
                continue;
            }
            let zone = launcher.label(priced.offering, launcher.keys.zone);
            let capacity = |priced: &Priced<'a>| priced.offering.reservation_capacity;
            let is_larger = |current: &Priced<'a>| capacity(priced) > capacity(current);
            if by_zone.get(zone).is_none_or(is_larger) {
                by_zone.insert(zone, *priced);
            }
        }
        if !by_zone.is_empty() {
            let mut candidate = candidate.clone();
            candidate.offerings = by_zone.into_values().collect();
            kept.push(candidate);
        }
    }
    if kept.is_empty() { candidates } else { kept }
}

fn exotic<'a>(launcher: &Launcher, claim: &Claim<'a>, candidates: Vec<Candidate<'a>>) -> Vec<Candidate<'a>> {
    if claim.requirements.has_min_values() {
        return candidates;
    }
    let is_generic = |candidate: &&Candidate<'a>| {
        let size = candidate.instance_type.requirements.get(launcher.keys.size);
        let mut sizes = size.map_or(&[][..], |size| size.values()).iter();
        let is_metal = sizes.any(|size| launcher.vocabulary.text(*size).contains("metal"));
        let has = |resource: &&str| {
            let quantity = candidate.capacity.get(resource);
            quantity.is_some_and(|quantity| !Quantity::is_zero(quantity))
        };
        !is_metal && !EXOTIC.iter().any(has)
    };
    let generic: Vec<Candidate<'a>> = candidates.iter().filter(is_generic).cloned().collect();
    if generic.is_empty() { candidates } else { generic }
}

fn spot_offering<'a>(
    launcher: &Launcher,
    claim: &Claim<'a>,
    mut candidates: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    let accepts = |capacity_type| launcher.accepts(&claim.requirements, capacity_type);
    if claim.requirements.has_min_values() || !accepts(ON_DEMAND) || !accepts(SPOT) {
        return candidates;
    }
    let capacity_type = |priced: &Priced<'a>| launcher.label(priced.offering, launcher.keys.capacity_type);
    let usable = || {
        let all = candidates.iter().flat_map(|candidate| &candidate.offerings);
        all.filter(|priced| is_usable(launcher, &claim.requirements, priced))
    };
    let on_demand = usable().filter(|priced| capacity_type(priced) == ON_DEMAND);
    let cheapest = on_demand.map(|priced| priced.price).reduce(f64::min);
    let has_spot = usable().any(|priced| capacity_type(priced) == SPOT);
    let Some(cheapest) = cheapest.filter(|_| has_spot) else {
        return candidates;
    };
    for candidate in &mut candidates {
        candidate
            .offerings
            .retain(|priced| capacity_type(priced) != SPOT || priced.price <= cheapest);
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}
