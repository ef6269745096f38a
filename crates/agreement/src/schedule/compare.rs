//! Where two answers differ.

use std::collections::BTreeMap;

use super::answer::{Answer, Claim};

/// How far cost and counts may be from what Karpenter gave, where it gives different answers to one question.
const TOLERANCE: f64 = 0.02;

/// What differs, one sentence each; empty if nothing does.
#[must_use]
pub(super) fn exact(theirs: &Answer, ours: &Answer) -> Vec<String> {
    let mut details = Vec::new();
    let (their_failures, our_failures) = (theirs.failures(), ours.failures());
    for pod in their_failures.difference(&our_failures) {
        details.push(format!("unschedulable: {pod} is placed by us only"));
    }
    for pod in our_failures.difference(&their_failures) {
        details.push(format!("unschedulable: {pod} is placed by Karpenter only"));
    }
    if theirs.existing_nodes != ours.existing_nodes {
        details.push(format!(
            "existing nodes: Karpenter fills {:?}, we fill {:?}",
            theirs.existing_nodes, ours.existing_nodes
        ));
    }
    let (their_count, our_count) = (theirs.new_node_claims.len(), ours.new_node_claims.len());
    if their_count != our_count {
        details.push(format!(
            "claims: Karpenter makes {their_count}, we make {our_count}"
        ));
    }
    let by_pods: BTreeMap<&[String], &Claim> = ours
        .new_node_claims
        .iter()
        .map(|claim| (claim.pods.as_slice(), claim))
        .collect();
    for claim in &theirs.new_node_claims {
        match by_pods.get(claim.pods.as_slice()) {
            Some(ours) => claims(claim, ours, &mut details),
            None => details.push(format!("grouping: no claim of ours has just {:?}", claim.pods)),
        }
    }
    details
}

fn claims(theirs: &Claim, ours: &Claim, details: &mut Vec<String>) {
    let first = theirs.pods.first().map_or("", String::as_str);
    let mut differ = |what: &str, theirs: String, ours: String| {
        details.push(format!(
            "{what} of the claim with {first}: Karpenter says {theirs}, we say {ours}"
        ));
    };
    if theirs.node_pool != ours.node_pool {
        differ("pool", theirs.node_pool.clone(), ours.node_pool.clone());
    }
    let (their_types, our_types) = (theirs.certain_types(), ours.certain_types());
    // Where one list is truncated inside a run of equal prices, the other may be longer.
    let common = their_types.len().min(our_types.len());
    let truncated = theirs.instance_types.len() > their_types.len();
    let same = their_types.get(..common) == our_types.get(..common);
    if !same || (!truncated && their_types.len() != our_types.len()) {
        let at = their_types
            .iter()
            .zip(&our_types)
            .take_while(|(a, b)| a == b)
            .count();
        differ(
            "candidates",
            format!("{} types, {:?} at {at}", their_types.len(), their_types.get(at)),
            format!("{} types, {:?}", our_types.len(), our_types.get(at)),
        );
    }
    if theirs.requests != ours.requests {
        differ(
            "requests",
            format!("{:?}", theirs.requests),
            format!("{:?}", ours.requests),
        );
    }
    if theirs.requirements != ours.requirements {
        let only = |a: &Claim, b: &Claim| -> Vec<_> {
            a.requirements
                .iter()
                .filter(|one| !b.requirements.contains(one))
                .cloned()
                .collect()
        };
        differ(
            "requirements",
            format!("{:?}", only(theirs, ours)),
            format!("{:?}", only(ours, theirs)),
        );
    }
}

/// Whether our answer is as good as the different answers that Karpenter gave to the same question. One that places
/// more pods than any of them is, whatever it takes: Karpenter may choose a domain that leads nowhere.
#[must_use]
pub(super) fn within(theirs: &[Answer], ours: &Answer) -> Vec<String> {
    let mut details = Vec::new();
    let fewest = theirs
        .iter()
        .map(|answer| answer.unschedulable.len())
        .min()
        .unwrap_or(0);
    if ours.unschedulable.len() < fewest {
        return details;
    }
    type Measure = fn(&Answer) -> f64;
    let measures: [(&str, Measure); 3] = [
        ("claims", |answer| answer.new_node_claims.len() as f64),
        ("unschedulable pods", |answer| answer.unschedulable.len() as f64),
        ("dollars per hour", Answer::cost),
    ];
    for (what, measure) in measures {
        let least = theirs.iter().map(measure).fold(f64::INFINITY, f64::min);
        let most = theirs.iter().map(measure).fold(0.0, f64::max);
        let value = measure(ours);
        if value < least * (1.0 - TOLERANCE) || value > most * (1.0 + TOLERANCE) {
            details.push(format!(
                "{what}: Karpenter gives {least} to {most}, we give {value}"
            ));
        }
    }
    details
}
