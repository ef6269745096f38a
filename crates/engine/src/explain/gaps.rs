//! Gaps: claim sizes for which an architecture, a capacity type or a family drops out of a NodePool.
//!
//! A claim keeps every type that is large enough. So a value drops out above the largest size that it has in the
//! pool, and matters up to the largest size that the pool has at all: a gap is that interval, in the units of the
//! sizes, both ends included. Nothing about any architecture is built in.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use veneer_api::NodePool;

use super::pool_types::{PoolTypes, family_label, memory_gib, vcpus};
use crate::instance_type::Catalogue;
use crate::labels;
use crate::overlay::Evaluation;
use crate::packing::{NewNodeClaim, Results};
use crate::quantity::Quantity;
use crate::resources::{CPU, MEMORY};

/// An interval of sizes in which a value is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The label, e.g. `kubernetes.io/arch`.
    pub label: String,
    /// The value that drops out, e.g. `arm64`.
    pub value: String,
    /// `cpu`, in vCPU, or `memory`, in GiB.
    pub resource: &'static str,
    /// The smallest claim without the value.
    pub from: i64,
    /// The largest claim that the pool can launch.
    pub to: i64,
    /// A type of the largest size with the value.
    pub largest_with_value: String,
    /// A type of the largest size of all.
    pub largest: String,
    /// How many of the nodes that the pods need fall into it.
    pub affected_claims: usize,
    /// How many pods are on them.
    pub affected_pods: usize,
}

/// The gaps of the NodePool at `pool`, by label (architecture, capacity type, family), resource and value, with the
/// claims of `results` that fall into them.
#[must_use]
pub fn gaps(
    catalogue: &Catalogue,
    evaluation: &Evaluation,
    pool: usize,
    manifest: &NodePool,
    results: &Results,
) -> Vec<Gap> {
    let types = PoolTypes::new(catalogue, manifest);
    let name = manifest.metadata.name.as_deref().unwrap_or_default();
    let claims: Vec<&NewNodeClaim> = results
        .new_node_claims
        .iter()
        .filter(|claim| claim.node_pool == name)
        .collect();
    let mut gaps = Vec::new();
    for label in [labels::ARCH, labels::CAPACITY_TYPE, family_label(catalogue)] {
        for resource in [CPU, MEMORY] {
            // Hundreds of families with less memory than the largest would say nothing.
            if resource == MEMORY && label != labels::ARCH {
                continue;
            }
            let size = |entry: usize| {
                let it = catalogue.types.get(entry)?;
                if resource == CPU {
                    Some(vcpus(it))
                } else {
                    memory_gib(it, catalogue)
                }
            };
            for (value, members) in members(&types, label) {
                let Some(mut gap) = between(&types, &members, size, catalogue) else {
                    continue;
                };
                let room = members.iter().filter_map(|entry| {
                    let it = catalogue.types.get(*entry)?;
                    evaluation.allocatable(pool, *entry, it).get(resource).cloned()
                });
                let room = room.max().unwrap_or_default();
                for claim in &claims {
                    if falls_into(claim, resource, &room, &members) && wants(claim, label, value, results) {
                        gap.affected_claims += 1;
                        gap.affected_pods += claim.pods.len();
                    }
                }
                gap.label = label.to_owned();
                gap.value = value.to_owned();
                gap.resource = resource;
                gaps.push(gap);
            }
        }
    }
    gaps
}

/// The types of the pool by their value of a label.
fn members<'a>(types: &PoolTypes<'a>, label: &str) -> BTreeMap<&'a str, Vec<usize>> {
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (entry, _) in types.iter() {
        for value in types.values(entry, label) {
            members.entry(value).or_default().push(entry);
        }
    }
    members
}

/// The sizes above the largest of `members` that other types of the pool have.
fn between(
    types: &PoolTypes<'_>,
    members: &[usize],
    size: impl Fn(usize) -> Option<i64>,
    catalogue: &Catalogue,
) -> Option<Gap> {
    // Of equal sizes the first by name.
    let largest = |entries: &mut dyn Iterator<Item = usize>| {
        let sized = entries.filter_map(|entry| {
            let it = catalogue.types.get(entry)?;
            Some((size(entry)?, std::cmp::Reverse(Arc::clone(&it.name))))
        });
        sized.max()
    };
    let (has, std::cmp::Reverse(with_value)) = largest(&mut members.iter().copied())?;
    let (all, std::cmp::Reverse(of_all)) = largest(&mut types.types.keys().copied())?;
    (has < all).then(|| Gap {
        label: String::new(),
        value: String::new(),
        resource: CPU,
        from: has + 1,
        to: all,
        largest_with_value: with_value.to_string(),
        largest: of_all.to_string(),
        affected_claims: 0,
        affected_pods: 0,
    })
}

/// Whether a claim is too large for every type with the value.
fn falls_into(claim: &NewNodeClaim, resource: &str, room: &Quantity, members: &[usize]) -> bool {
    let asks = claim.requests.get(resource);
    asks.is_some_and(|asks| asks > room) && !claim.instance_types.iter().any(|entry| members.contains(entry))
}

/// Whether a claim's pods would accept the value: pods that ask for another do not fall into its gap.
fn wants(claim: &NewNodeClaim, label: &str, value: &str, results: &Results) -> bool {
    let vocabulary = &results.vocabulary;
    let (Some(key), Some(value)) = (vocabulary.get(label), vocabulary.get(value)) else {
        return true;
    };
    claim
        .requirements
        .get(key)
        .is_none_or(|requirement| requirement.has(value, vocabulary))
}
