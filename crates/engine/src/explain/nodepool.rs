//! A NodePool explained: its gaps, the funnel of one of its claims, and what would close the gap.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use veneer_api::NodePool;

use super::funnel::{FunnelStage, funnel};
use super::gaps::{Gap, gaps};
use super::plan::{Outcome, Plan, Planner};
use super::remedies::{Remedy, remedies};
use crate::labels;
use crate::packing::Objects;
use crate::quantity::Quantity;
use crate::resources::CPU;

/// What there is to say about a NodePool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its name.
    pub node_pool: String,
    /// The six stages for the claim that shows the gap best: the largest one inside it, else the largest.
    pub funnel: Vec<FunnelStage>,
    /// The claim that the funnel is about; none if the pods need no node of this pool.
    pub claim: Option<FunnelClaim>,
    /// Where values drop out.
    pub gaps: Vec<Gap>,
    /// The gap that the remedies are for, by its position.
    #[serde(skip)]
    pub chosen_gap: Option<usize>,
    /// What the pods come to today.
    pub current: Outcome,
    /// What would close the gap.
    pub remedies: Vec<Remedy>,
    /// Whether the pods of the pool's nodes were planned anew, because none is pending.
    pub repacked: bool,
}

/// A claim in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunnelClaim {
    /// How many pods it holds.
    pub pods: usize,
    /// The vCPU that they ask for, DaemonSets included.
    pub cpu: f64,
    /// What EC2 would launch.
    pub instance_type: Option<String>,
}

/// Explains the NodePool at `pool` of the objects.
#[must_use]
pub fn explain(planner: &Planner<'_>, objects: &Objects, pool: usize) -> Option<Explanation> {
    let manifest = objects.node_pools.get(pool)?;
    let name = manifest.metadata.name.clone().unwrap_or_default();
    let anew = objects
        .pods
        .iter()
        .all(|pod| pod.node_name.is_some())
        .then(|| repacked(objects, &name));
    let objects = anew.as_ref().unwrap_or(objects);
    let plan = planner.plan(objects);
    let gaps = gaps(
        planner.catalogue,
        &planner.evaluation,
        pool,
        manifest,
        &plan.results,
    );
    let chosen_gap = most_important(&gaps);
    let claim = show_case(&plan, planner, &name, chosen_gap.and_then(|at| gaps.get(at)));
    let current = plan.outcome(planner.catalogue);
    let remedies = match chosen_gap.and_then(|at| gaps.get(at)) {
        Some(gap) => remedies(planner, objects, pool, gap, &current),
        None => Vec::new(),
    };
    Some(Explanation {
        node_pool: name,
        funnel: claim.map_or_else(Vec::new, |at| funnel(planner, &plan, manifest, at)),
        claim: claim.and_then(|at| summary(&plan, at)),
        gaps,
        chosen_gap,
        current,
        remedies,
        repacked: anew.is_some(),
    })
}

/// The gap in vCPU of an architecture, else of a capacity type, that most claims fall into.
fn most_important(gaps: &[Gap]) -> Option<usize> {
    let sized = gaps.iter().enumerate().filter(|(_, gap)| {
        gap.resource == CPU && (gap.label == labels::ARCH || gap.label == labels::CAPACITY_TYPE)
    });
    // `max_by_key` takes the last of equals, and the first label matters most.
    sized
        .rev()
        .max_by_key(|(_, gap)| gap.affected_claims)
        .map(|(at, _)| at)
}

/// The claim to show: the largest without the value of the gap, else the largest.
fn show_case(plan: &Plan, planner: &Planner<'_>, pool: &str, gap: Option<&Gap>) -> Option<usize> {
    let catalogue = planner.catalogue;
    let cpu = |at: usize| {
        let claim = plan.results.new_node_claims.get(at);
        claim
            .and_then(|claim| claim.requests.get(CPU))
            .cloned()
            .unwrap_or_default()
    };
    let lacks = |at: usize, gap: &Gap| {
        let claim = plan.results.new_node_claims.get(at);
        let mut types = claim.into_iter().flat_map(|claim| claim.instance_types.iter());
        !types.any(|entry| {
            let it = catalogue.types.get(*entry);
            it.is_some_and(|it| {
                super::pool_types::values_of(it, &gap.label, catalogue).contains(&gap.value.as_str())
            })
        })
    };
    plan.claims_of(pool)
        .into_iter()
        .map(|(at, _)| at)
        .max_by_key(|at| {
            (
                gap.is_some_and(|gap| lacks(*at, gap)),
                cpu(*at),
                std::cmp::Reverse(*at),
            )
        })
}

fn summary(plan: &Plan, at: usize) -> Option<FunnelClaim> {
    let claim = plan.results.new_node_claims.get(at)?;
    let milli = claim.requests.get(CPU).map_or(0, Quantity::milli_value);
    Some(FunnelClaim {
        pods: claim.pods.len(),
        cpu: milli as f64 / 1000.0,
        instance_type: plan.chosen(at).map(|chosen| chosen.instance_type.to_string()),
    })
}

/// The objects with the pool's nodes gone and their pods pending; pods of DaemonSets come with nodes.
fn repacked(objects: &Objects, pool: &str) -> Objects {
    let mut objects = objects.clone();
    let of_pool = |labels: &Option<BTreeMap<String, String>>| {
        let named = labels.as_ref().and_then(|labels| labels.get(labels::NODE_POOL));
        named.is_some_and(|named| named == pool)
    };
    let gone: BTreeSet<String> = objects
        .nodes
        .iter()
        .filter(|node| of_pool(&node.metadata.labels))
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    objects.nodes.retain(|node| !of_pool(&node.metadata.labels));
    objects
        .node_claims
        .retain(|claim| !of_pool(&claim.metadata.labels));
    for pod in objects.pods.iter_mut() {
        let is_on_gone = pod.node_name.as_deref().is_some_and(|node| gone.contains(node));
        let owners = pod
            .metadata
            .owner_references
            .as_deref()
            .map_or(&[][..], Vec::as_slice);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let stays = owners.iter().any(|owner| owner.kind == "DaemonSet")
            || matches!(phase, Some("Succeeded" | "Failed"));
        if is_on_gone && !stays {
            (pod.node_name, pod.status) = (None, None);
        }
    }
    objects
}

/// The NodePool of a name.
#[must_use]
pub fn position(pools: &[NodePool], name: &str) -> Option<usize> {
    pools
        .iter()
        .position(|pool| pool.metadata.name.as_deref() == Some(name))
}
