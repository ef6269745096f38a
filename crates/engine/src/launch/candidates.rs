//! From the packing's answer to a claim that can be launched.

use super::{Candidate, Claim, Launcher, Priced};
use crate::instance_type::Catalogue;
use crate::overlay::Evaluation;
use crate::packing::NewNodeClaim;
use crate::requirements::{Requirement, Requirements};
use crate::vocabulary::Symbol;

/// Where the offerings of each type begin in a pool's list of prices.
#[must_use]
pub fn offering_starts(catalogue: &Catalogue) -> Vec<usize> {
    let counts = catalogue.types.iter().map(|it| it.offerings.len());
    counts
        .scan(0, |total, count| {
            let begin = *total;
            *total += count;
            Some(begin)
        })
        .collect()
}

/// A claim of the packing, ready for launch. `pool` is the NodePool's position in the evaluation, `starts` comes from
/// [`offering_starts`].
pub fn claim_of<'a>(
    launcher: &mut Launcher,
    found: &'a NewNodeClaim,
    catalogue: &'a Catalogue,
    evaluation: &Evaluation,
    pool: usize,
    starts: &[usize],
) -> Claim<'a> {
    let prices = evaluation.prices(pool);
    let mut candidates = Vec::with_capacity(found.instance_types.len());
    for &entry in found.instance_types.iter() {
        let (Some(it), Some(start)) = (catalogue.types.get(entry), starts.get(entry)) else {
            continue;
        };
        let offerings = it.offerings.iter().enumerate();
        candidates.push(Candidate {
            instance_type: it,
            capacity: evaluation.capacity(pool, entry, it),
            allocatable: evaluation.allocatable(pool, entry, it),
            offerings: offerings
                .map(|(at, offering)| Priced {
                    offering,
                    // A pool that nobody evaluated has list prices.
                    price: prices.get(start + at).copied().unwrap_or(offering.price),
                    overlaid: evaluation.winner(pool, entry, at).is_some(),
                })
                .collect(),
        });
    }
    launcher.claim(
        &found.requirements,
        &found.requests,
        candidates,
        found.min_values_relaxed,
    )
}

/// The requirements with the names of the candidates and the capacity types that they can be bought as.
pub(super) fn narrowed(
    launcher: &mut Launcher,
    requirements: &Requirements,
    candidates: &[Candidate<'_>],
) -> Requirements {
    let mut all = requirements.clone();
    let names: Vec<Symbol> = candidates
        .iter()
        .map(|candidate| launcher.vocabulary.intern(&candidate.instance_type.name))
        .collect();
    let keys = launcher.keys;
    all.add(
        keys.instance_type,
        Requirement::one_of(names),
        &launcher.vocabulary,
    );
    let mut capacity_types: Vec<Symbol> = Vec::new();
    for priced in candidates.iter().flat_map(|candidate| &candidate.offerings) {
        let value = priced.offering.requirements.get(keys.capacity_type);
        if let Some(value) = value.and_then(Requirement::single_value)
            && !capacity_types.contains(&value)
            && launcher.allows(&all, priced.offering)
        {
            capacity_types.push(value);
        }
    }
    if !capacity_types.is_empty() {
        all.add(
            keys.capacity_type,
            Requirement::one_of(capacity_types),
            &launcher.vocabulary,
        );
    }
    all
}
