//! The funnel: how many types each of the six stages leaves for one claim, and which of them an overlay can sway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use veneer_api::NodePool;

use super::plan::{Plan, Planner};
use super::pool_types::{PoolTypes, by_architecture};
use crate::instance_type::{Catalogue, InstanceType};
use crate::labels::LabelSet;
use crate::launch::{Launcher, choice};
use crate::packing::NewNodeClaim;
use crate::quantity::Quantity;
use crate::requirements::{Operator, Requirements};
use crate::resources::CPU;
use crate::vocabulary::Vocabulary;

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunnelStage {
    /// `podSorting`, `poolRequirements`, `binPacking`, `amiMapping`, `priceAdjustment` or `fleet`.
    pub stage: &'static str,
    /// What happened, with the numbers of the case.
    pub what: String,
    /// Types before it.
    pub before: usize,
    /// Types after it.
    pub after: usize,
    /// Whether an overlay can change what happens there.
    pub overlay_can_influence: bool,
    /// What took types away.
    pub removed_by: Vec<Removal>,
    /// Types after it, by architecture.
    pub by_architecture: BTreeMap<String, usize>,
}

/// What took types away, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// The constraint.
    pub by: String,
    /// How many types.
    pub instance_types: usize,
}

/// The six stages for a claim of the plan.
pub(super) fn funnel(planner: &Planner<'_>, plan: &Plan, pool: &NodePool, at: usize) -> Vec<FunnelStage> {
    let catalogue = &**planner.catalogue;
    let Some(claim) = plan.results.new_node_claims.get(at) else {
        return Vec::new();
    };
    let types = PoolTypes::new(catalogue, pool);
    let all = catalogue.types.len();
    let left = |types: &mut dyn Iterator<Item = &InstanceType>| by_architecture(types, catalogue);
    let kept = || {
        claim
            .instance_types
            .iter()
            .filter_map(|entry| catalogue.types.get(*entry))
    };
    let cpu = claim.requests.get(CPU).map_or(0, Quantity::milli_value) as f64 / 1000.0;
    let mut stages = vec![
        FunnelStage {
            stage: "podSorting",
            what: format!("{} are taken by cpu, then memory, largest first", pods(plan)),
            before: all,
            after: all,
            overlay_can_influence: false,
            removed_by: Vec::new(),
            by_architecture: left(&mut catalogue.types.iter()),
        },
        FunnelStage {
            stage: "poolRequirements",
            what: "the NodePool's requirements".to_owned(),
            before: all,
            after: types.types.len(),
            overlay_can_influence: false,
            removed_by: by_requirement(catalogue, pool, &types),
            by_architecture: left(&mut types.iter().map(|(_, it)| it)),
        },
        FunnelStage {
            stage: "binPacking",
            what: format!(
                "{} add up to {cpu} vCPU on one node",
                counted(claim.pods.len(), "pod")
            ),
            before: types.types.len(),
            after: claim.instance_types.len(),
            overlay_can_influence: false,
            removed_by: by_packing(planner, plan, &types, claim),
            by_architecture: left(&mut kept()),
        },
    ];
    let fleet = plan.fleets.get(at).map(AsRef::as_ref);
    let mut launcher = Launcher::new(plan.results.vocabulary.clone(), &catalogue.rules);
    let class = planner.node_class(Some(pool), &mut launcher);
    let without_image: Vec<Arc<str>> = kept()
        .filter(|it| launcher.image(it, &class).is_none())
        .map(|it| Arc::clone(&it.name))
        .collect();
    let bootable = || kept().filter(|it| !without_image.contains(&it.name));
    let after_images = bootable().count();
    let images = match fleet {
        Some(Ok(fleet)) => {
            let images: BTreeSet<&str> = fleet
                .request
                .configs
                .iter()
                .map(|config| config.template.image_id.as_str())
                .collect();
            images.len()
        }
        _ => 0,
    };
    stages.push(FunnelStage {
        stage: "amiMapping",
        what: format!("the types are grouped by {}", counted(images, "machine image")),
        before: claim.instance_types.len(),
        after: after_images,
        overlay_can_influence: false,
        removed_by: removal("no machine image suits them", without_image.len()),
        by_architecture: left(&mut bootable()),
    });
    stages.push(FunnelStage {
        stage: "priceAdjustment",
        what: price_adjustment(planner, &types, claim),
        before: after_images,
        after: after_images,
        overlay_can_influence: true,
        removed_by: Vec::new(),
        by_architecture: left(&mut bootable()),
    });
    let last = fleet_stage(catalogue, plan, at, after_images, &without_image);
    stages.push(last);
    stages
}

pub(super) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn pods(plan: &Plan) -> String {
    let results = &plan.results;
    let new: usize = results.new_node_claims.iter().map(|claim| claim.pods.len()).sum();
    let existing: usize = results.existing_nodes.iter().map(|node| node.pods.len()).sum();
    counted(new + existing + results.unschedulable.len(), "pod")
}

fn removal(by: &str, instance_types: usize) -> Vec<Removal> {
    let by = by.to_owned();
    let one = (instance_types > 0).then_some(Removal { by, instance_types });
    one.into_iter().collect()
}

/// Counts in the order in which reasons first appear.
#[derive(Default)]
struct Tally(Vec<Removal>);

impl Tally {
    fn add(&mut self, by: String) {
        match self.0.iter_mut().find(|removal| removal.by == by) {
            Some(removal) => removal.instance_types += 1,
            None => self.0.push(Removal {
                by,
                instance_types: 1,
            }),
        }
    }

    fn largest_first(mut self) -> Vec<Removal> {
        self.0.sort_by(|a, b| {
            b.instance_types
                .cmp(&a.instance_types)
                .then_with(|| a.by.cmp(&b.by))
        });
        self.0
    }
}

/// For each type that the pool does not allow, the first requirement that excludes it.
fn by_requirement(catalogue: &Catalogue, pool: &NodePool, types: &PoolTypes<'_>) -> Vec<Removal> {
    let mut vocabulary = catalogue.vocabulary.clone();
    let mut demands: Vec<(String, Requirements)> = Vec::new();
    for one in &pool.spec.template.spec.requirements {
        if let Ok(operator) = one.operator.as_str().parse::<Operator>() {
            let mut single = Requirements::new();
            single.add_selector(&one.key, operator, &one.values, None, &mut vocabulary);
            let values = if one.values.is_empty() {
                String::new()
            } else {
                format!(" [{}]", one.values.join(", "))
            };
            demands.push((format!("{} {operator}{values}", one.key), single));
        }
    }
    for (key, value) in &pool.spec.template.metadata.labels {
        let single = Requirements::from_labels([(key.as_str(), value.as_str())], &mut vocabulary);
        demands.push((format!("the label {key}={value}"), single));
    }
    let well_known = LabelSet::of(catalogue.rules.well_known(), &mut vocabulary);
    let mut tally = Tally::default();
    for (entry, it) in catalogue.types.iter().enumerate() {
        if !types.types.contains_key(&entry) {
            let excludes = |(_, single): &&(String, Requirements)| {
                it.requirements.intersects(single, &vocabulary).is_err()
                    || !it.offerings.iter().any(|offering| {
                        single
                            .compatible(&offering.requirements, &well_known, &vocabulary)
                            .is_ok()
                    })
            };
            let is_offered = it.offerings.iter().any(|offering| offering.available);
            let first = demands.iter().find(excludes).filter(|_| is_offered);
            tally.add(match first {
                Some((by, _)) => by.clone(),
                None if is_offered => "the requirements together".to_owned(),
                None => "no offering in this region".to_owned(),
            });
        }
    }
    tally.largest_first()
}

/// For each type of the pool that the claim cannot use, why.
fn by_packing(
    planner: &Planner<'_>,
    plan: &Plan,
    types: &PoolTypes<'_>,
    claim: &NewNodeClaim,
) -> Vec<Removal> {
    let pool = planner.position(&claim.node_pool).unwrap_or_default();
    let vocabulary: &Vocabulary = &plan.results.vocabulary;
    let mut tally = Tally::default();
    for (entry, it) in types.iter() {
        if claim.instance_types.contains(&entry) {
            continue;
        }
        let allocatable = planner.evaluation.allocatable(pool, entry, it);
        let zero = Quantity::default();
        let short = claim
            .requests
            .iter()
            .find(|(name, asked)| *asked > allocatable.get(name).unwrap_or(&zero));
        tally.add(
            if it
                .requirements
                .intersects(&claim.requirements, vocabulary)
                .is_err()
            {
                "what the pods select".to_owned()
            } else if let Some((name, asked)) = short {
                format!("less {name} than the {asked} that the pods ask for")
            } else {
                "no offering left, or other constraints of the pods".to_owned()
            },
        );
    }
    tally.largest_first()
}

/// What overlays do to the claim's types, and which come too late: those that only act on types of the pool that
/// are gone.
fn price_adjustment(planner: &Planner<'_>, types: &PoolTypes<'_>, claim: &NewNodeClaim) -> String {
    let evaluation = &planner.evaluation;
    let pool = planner.position(&claim.node_pool).unwrap_or_default();
    let (mut changed, mut gone) = (0, 0);
    let (mut acting, mut late) = (BTreeSet::new(), BTreeSet::new());
    for (entry, it) in types.iter() {
        let is_left = claim.instance_types.contains(&entry);
        let winners: BTreeSet<&str> = (0..it.offerings.len())
            .filter_map(|offering| evaluation.winner(pool, entry, offering))
            .map(|winner| evaluation.overlay_name(winner))
            .collect();
        let is_changed = usize::from(!winners.is_empty());
        if is_left {
            changed += is_changed;
            acting.extend(winners);
        } else {
            gone += is_changed;
            late.extend(winners);
        }
    }
    let names = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    let all = claim.instance_types.len();
    let mut text = if acting.is_empty() {
        format!("no overlay sets a price of these {all} types")
    } else {
        format!(
            "overlays set prices of {changed} of {all} types: {}",
            names(&acting)
        )
    };
    late.retain(|name| !acting.contains(name));
    if !late.is_empty() {
        let gone = counted(gone, "type");
        text.push_str(&format!(
            "; too late: {} (the {gone} it is for are gone)",
            names(&late)
        ));
    }
    text
}

fn fleet_stage(
    catalogue: &Catalogue,
    plan: &Plan,
    at: usize,
    before: usize,
    without_image: &[Arc<str>],
) -> FunnelStage {
    let mut stage = FunnelStage {
        stage: "fleet",
        what: String::new(),
        before,
        after: 0,
        overlay_can_influence: true,
        removed_by: Vec::new(),
        by_architecture: by_architecture(std::iter::empty(), catalogue),
    };
    let fleet = match plan.fleets.get(at).map(AsRef::as_ref) {
        Some(Ok(fleet)) => fleet,
        Some(Err(error)) => {
            stage.what = error.to_string();
            return stage;
        }
        None => return stage,
    };
    let names: BTreeSet<&str> = fleet
        .request
        .overrides()
        .map(|(_, each)| &*each.instance_type)
        .collect();
    let claim = plan.results.new_node_claims.get(at);
    let listed = claim.into_iter().flat_map(|claim| claim.instance_types.iter());
    let sent: Vec<&InstanceType> = listed
        .filter_map(|entry| catalogue.types.get(*entry))
        .filter(|it| names.contains(&*it.name))
        .collect();
    stage.after = sent.len();
    stage.by_architecture = by_architecture(sent.into_iter(), catalogue);
    // What has no image was counted before.
    let lost = |names: &[Arc<str>]| names.iter().filter(|name| !without_image.contains(name)).count();
    for rejection in &fleet.rejected {
        let by = rejection.filter.describe();
        stage
            .removed_by
            .extend(removal(by, lost(&rejection.instance_types)));
    }
    let cut = lost(&fleet.truncated);
    stage.removed_by.extend(removal("not among the 60 cheapest", cut));
    let told: usize = stage
        .removed_by
        .iter()
        .map(|removal| removal.instance_types)
        .sum();
    let rest = before.saturating_sub(stage.after + told);
    let by = format!("no {} offering left in a zone with a subnet", fleet.capacity_type);
    stage.removed_by.extend(removal(&by, rest));
    if let Some(choice) = choice(&fleet.request) {
        let strategy = fleet
            .request
            .strategy
            .map_or("no strategy", |strategy| strategy.as_str());
        stage.what = format!(
            "{strategy}: {}: {} {} at ${:.4}/h",
            choice.basis.describe(),
            choice.chosen.instance_type,
            fleet.capacity_type,
            choice.chosen.priority
        );
    }
    stage
}
