//! A NodeClaim, or a recorded request, explained: what EC2 could choose from, what decided, and whether an overlay
//! could have changed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use veneer_api::{NodeClaim, NodePool};

use super::plan::Planner;
use super::pool_types::{PoolTypes, architecture, vcpus};
use super::recorded::RecordedRequest;
use crate::instance_type::{Catalogue, InstanceType};
use crate::labels;
use crate::launch::{AllocationStrategy, Basis, Fleet, Launcher, choice, claim_of, offering_starts};
use crate::packing::NewNodeClaim;
use crate::quantity::Quantity;
use crate::requirements::{Operator, Requirements};
use crate::resources::{CPU, ResourceList};

/// What there is to say about a launch.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The NodeClaim, if it is about one.
    pub node_claim: Option<String>,
    /// The NodePool it belongs to, if that is known.
    pub node_pool: Option<String>,
    /// Whether an overlay could have chosen otherwise among what EC2 was asked.
    pub overlay_could_influence: bool,
    /// The stage that decided, in the words of the funnel.
    pub stage: &'static str,
    /// The answer as a sentence.
    pub verdict: String,
    /// What EC2 could choose from, by architecture.
    pub architectures: Vec<InRequest>,
    /// The architectures that EC2 could not choose, and why.
    pub missing: Vec<Missing>,
    /// How many launch templates the request has.
    pub launch_templates: usize,
    /// `reserved`, `spot` or `on-demand`.
    pub capacity_type: Option<String>,
    /// How EC2 chooses.
    pub strategy: Option<&'static str>,
    /// What EC2 would choose.
    pub expected: Option<Expected>,
    /// What was launched.
    pub launched: Option<String>,
    /// Whether a price overlay was in play when the claim was made, as its annotation says; none for a recorded
    /// request, whose strategy says it.
    pub price_overlay_applied: Option<bool>,
}

/// What Karpenter marks a claim with when a price overlay is in play.
const OVERLAY_ANNOTATION: &str = "karpenter.sh/price-overlay-applied";

/// What a request has of one architecture.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InRequest {
    /// The architecture.
    pub architecture: String,
    /// Its launch templates.
    pub launch_templates: usize,
    /// Its types.
    pub instance_types: usize,
    /// Its overrides: types and zones.
    pub overrides: usize,
    /// The type with the lowest priority.
    pub first: String,
    /// That priority, the price after overlays.
    pub lowest_priority: Option<f64>,
}

/// An architecture that EC2 could not choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The architecture.
    pub architecture: String,
    /// The stage that took it away.
    pub stage: &'static str,
    /// Why.
    pub reason: String,
}

/// What EC2 would launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// The type.
    pub instance_type: String,
    /// The zone.
    pub zone: Option<String>,
    /// The price after overlays.
    pub price: Option<f64>,
    /// Why this one.
    pub because: &'static str,
    /// Whether it depends on something that nobody outside AWS sees.
    pub assumption: bool,
}

/// One line of a request, wherever it comes from.
struct Line<'a> {
    template: usize,
    instance_type: &'a str,
    zone: Option<&'a str>,
    priority: Option<f64>,
}

/// Explains a NodeClaim with today's prices and overlays. `pool` is its NodePool, if it still exists.
pub fn claim(planner: &Planner<'_>, manifest: &NodeClaim, pool: Option<&NodePool>) -> Explanation {
    let catalogue = planner.catalogue;
    let label = |key: &str| manifest.metadata.labels.as_ref()?.get(key).cloned();
    let mut vocabulary = catalogue.vocabulary.clone();
    let mut requirements = Requirements::new();
    for one in &manifest.spec.requirements {
        if let Ok(operator) = one.operator.as_str().parse::<Operator>() {
            requirements.add_selector(&one.key, operator, &one.values, one.min_values, &mut vocabulary);
        }
    }
    let requests: ResourceList = manifest
        .spec
        .resources
        .requests
        .iter()
        .filter_map(|(name, amount)| Some((name.as_str(), amount.0.parse::<Quantity>().ok()?)))
        .collect();
    let candidates: Vec<usize> = (0..catalogue.types.len())
        .filter(|entry| {
            let it = catalogue.types.get(*entry);
            it.is_some_and(|it| it.requirements.intersects(&requirements, &vocabulary).is_ok())
        })
        .collect();
    let found = NewNodeClaim {
        node_pool: label(labels::NODE_POOL).unwrap_or_default(),
        pods: Vec::new(),
        requests,
        requirements,
        instance_types: Arc::from(candidates),
        min_values_relaxed: false,
    };
    let position = planner.position(&found.node_pool).unwrap_or(usize::MAX);
    let mut launcher = Launcher::new(vocabulary, &catalogue.rules);
    let class = planner.node_class(pool, &mut launcher);
    let starts = offering_starts(catalogue);
    let ready = claim_of(
        &mut launcher,
        &found,
        catalogue,
        &planner.evaluation,
        position,
        &starts,
    );
    let mut explanation = match launcher.fleet(&ready, &class) {
        Ok(fleet) => of_fleet(planner, pool, &found, &fleet),
        Err(error) => Explanation {
            stage: "fleet",
            verdict: format!("Today nothing could be launched for it: {error}."),
            ..Explanation::default()
        },
    };
    explanation.node_claim.clone_from(&manifest.metadata.name);
    explanation.node_pool = Some(found.node_pool).filter(|name| !name.is_empty());
    explanation.launched = label(labels::INSTANCE_TYPE);
    let annotations = manifest.metadata.annotations.as_ref();
    explanation.price_overlay_applied =
        Some(annotations.is_some_and(|annotations| annotations.contains_key(OVERLAY_ANNOTATION)));
    explanation
}

fn of_fleet(
    planner: &Planner<'_>,
    pool: Option<&NodePool>,
    found: &NewNodeClaim,
    fleet: &Fleet,
) -> Explanation {
    let lines: Vec<Line<'_>> = fleet
        .request
        .overrides()
        .map(|(template, each)| Line {
            template,
            instance_type: &each.instance_type,
            zone: Some(&each.zone),
            priority: Some(each.priority),
        })
        .collect();
    let expected = choice(&fleet.request).map(|choice| Expected {
        instance_type: choice.chosen.instance_type.to_string(),
        zone: Some(choice.chosen.zone.clone()),
        price: Some(choice.chosen.priority),
        because: choice.basis.describe(),
        assumption: choice.basis.is_assumption(),
    });
    let missing = |arch: &str| {
        let of_claim = |it: &&InstanceType| architecture(it, planner.catalogue) == arch;
        let mut listed = found
            .instance_types
            .iter()
            .filter_map(|at| planner.catalogue.types.get(*at));
        let listed: Option<&InstanceType> = listed.find(of_claim);
        match listed {
            Some(it) if fleet.without_image.contains(&it.name) => Some((
                "amiMapping",
                format!("no machine image of the node class suits {arch}"),
            )),
            Some(_) => Some((
                "fleet",
                format!("the provider's filters or the limit of 60 types left no {arch} type"),
            )),
            None => None,
        }
    };
    let asked = found.requests.get(CPU).map(|cpu| Size::Asked(cpu.clone()));
    let strategy = fleet.request.strategy;
    let mut explanation = of_lines(planner, pool, &lines, strategy, asked, &missing);
    explanation.capacity_type = Some(fleet.capacity_type.to_owned());
    explanation.launch_templates = fleet.request.configs.len();
    explanation.expected = expected;
    explanation
}

/// Explains a recorded request. `pool` is its NodePool, if it is known.
#[must_use]
pub fn recorded(planner: &Planner<'_>, request: &RecordedRequest, pool: Option<&NodePool>) -> Explanation {
    let lines: Vec<Line<'_>> = request
        .overrides
        .iter()
        .map(|each| Line {
            template: each.template,
            instance_type: &each.instance_type,
            zone: each.zone.as_deref(),
            priority: each.priority,
        })
        .collect();
    let sizes = lines
        .iter()
        .filter_map(|line| find(planner.catalogue, line.instance_type));
    let smallest = sizes.map(vcpus).min().map(Size::Smallest);
    let mut explanation = of_lines(planner, pool, &lines, request.strategy, smallest, &|_| None);
    let basis = match request.strategy {
        Some(AllocationStrategy::Prioritized) => Some(Basis::Priority),
        Some(AllocationStrategy::CapacityOptimizedPrioritized) => Some(Basis::SpotPriorityAssumed),
        // List prices of the day are not in the record.
        _ => None,
    };
    let mut first: Option<&Line<'_>> = None;
    for line in lines.iter().filter(|line| line.priority.is_some()) {
        if first.is_none_or(|first| line.priority < first.priority) {
            first = Some(line);
        }
    }
    explanation.expected = first.zip(basis).map(|(line, basis)| Expected {
        instance_type: line.instance_type.to_owned(),
        zone: line.zone.map(str::to_owned),
        price: line.priority,
        because: basis.describe(),
        assumption: basis.is_assumption(),
    });
    explanation.node_pool = pool
        .and_then(|pool| pool.metadata.name.clone())
        .or_else(|| request.node_pool.clone());
    explanation.capacity_type.clone_from(&request.target);
    explanation.launch_templates = request.templates.len();
    explanation.launched.clone_from(&request.launched);
    explanation
}

/// How large the node has to be.
enum Size {
    /// What the pods ask for.
    Asked(Quantity),
    /// The processors of the smallest type in the request.
    Smallest(i64),
}

fn find<'a>(catalogue: &'a Catalogue, name: &str) -> Option<&'a InstanceType> {
    catalogue.types.iter().find(|it| *it.name == *name)
}

fn of_lines(
    planner: &Planner<'_>,
    pool: Option<&NodePool>,
    lines: &[Line<'_>],
    strategy: Option<AllocationStrategy>,
    size: Option<Size>,
    known: &dyn Fn(&str) -> Option<(&'static str, String)>,
) -> Explanation {
    let catalogue = planner.catalogue;
    let mut groups: BTreeMap<&str, Vec<&Line<'_>>> = BTreeMap::new();
    for line in lines {
        let it = find(catalogue, line.instance_type);
        let arch = it.map_or("unknown", |it| architecture(it, catalogue));
        groups.entry(arch).or_default().push(line);
    }
    let all: BTreeSet<&str> = catalogue
        .types
        .iter()
        .map(|it| architecture(it, catalogue))
        .collect();
    let missing: Vec<Missing> = all
        .iter()
        .filter(|arch| !groups.contains_key(**arch))
        .filter_map(|arch| {
            let (stage, reason) = known(arch).or_else(|| lost(planner, pool, arch, size.as_ref()))?;
            Some(Missing {
                architecture: (*arch).to_owned(),
                stage,
                reason,
            })
        })
        .collect();
    let distinct: BTreeSet<&str> = lines.iter().map(|line| line.instance_type).collect();
    let names: Vec<&str> = groups.keys().copied().collect();
    let stage = match missing.iter().find(|missing| missing.stage != "poolRequirements") {
        Some(missing) if groups.len() == 1 => missing.stage,
        None if groups.len() == 1 && !missing.is_empty() => "poolRequirements",
        _ => "fleet",
    };
    let verdict = verdict(&names, distinct.len(), &missing, strategy);
    Explanation {
        overlay_could_influence: distinct.len() > 1,
        stage,
        verdict,
        architectures: groups
            .iter()
            .map(|(arch, lines)| in_request(arch, lines))
            .collect(),
        missing,
        strategy: strategy.map(AllocationStrategy::as_str),
        ..Explanation::default()
    }
}

fn in_request(arch: &str, lines: &[&Line<'_>]) -> InRequest {
    let types: BTreeSet<&str> = lines.iter().map(|line| line.instance_type).collect();
    let templates: BTreeSet<usize> = lines.iter().map(|line| line.template).collect();
    let first = lines.iter().min_by(|a, b| {
        let key = |line: &Line<'_>| line.priority.unwrap_or(f64::MAX);
        key(a)
            .total_cmp(&key(b))
            .then_with(|| a.instance_type.cmp(b.instance_type))
    });
    InRequest {
        architecture: arch.to_owned(),
        launch_templates: templates.len(),
        instance_types: types.len(),
        overrides: lines.len(),
        first: first.map_or("", |line| line.instance_type).to_owned(),
        lowest_priority: first.and_then(|line| line.priority),
    }
}

/// Where an architecture was lost before the claim was written.
fn lost(
    planner: &Planner<'_>,
    pool: Option<&NodePool>,
    arch: &str,
    size: Option<&Size>,
) -> Option<(&'static str, String)> {
    let catalogue = planner.catalogue;
    let Some(pool) = pool else {
        let reason = "it was gone before prices were looked at: by the NodePool's requirements or by bin packing \
                      (give the NodePool with -f to see which)";
        return Some(("binPacking", reason.to_owned()));
    };
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let types = PoolTypes::new(catalogue, pool);
    let of_arch: Vec<(usize, &InstanceType)> = types
        .iter()
        .filter(|(_, it)| architecture(it, catalogue) == arch)
        .collect();
    let largest = of_arch
        .iter()
        .max_by_key(|(_, it)| (vcpus(it), std::cmp::Reverse(&it.name)));
    let Some((_, largest)) = largest else {
        // An architecture that the pool does not want is no loss.
        let wanted = format!("NodePool {name} allows no {arch} type");
        return Some(("poolRequirements", wanted));
    };
    let position = planner.position(name).unwrap_or(usize::MAX);
    let room = of_arch
        .iter()
        .filter_map(|(entry, it)| {
            planner
                .evaluation
                .allocatable(position, *entry, it)
                .get(CPU)
                .cloned()
        })
        .max()
        .unwrap_or_default();
    let of_pool = format!(
        "the largest {arch} type that NodePool {name} allows is {} with {} vCPU",
        largest.name,
        vcpus(largest)
    );
    let reason = match size {
        Some(Size::Asked(asked)) if *asked > room => {
            format!("the pods ask for {asked} vCPU together; {of_pool}")
        }
        Some(Size::Smallest(smallest)) if *smallest > vcpus(largest) => {
            format!("no type in the request has less than {smallest} vCPU; {of_pool}")
        }
        _ => format!("the pods on it ask for something that no {arch} type of NodePool {name} has"),
    };
    Some(("binPacking", reason))
}

fn verdict(
    names: &[&str],
    types: usize,
    missing: &[Missing],
    strategy: Option<AllocationStrategy>,
) -> String {
    let mut text = match (names, types) {
        (_, 1) => "EC2 had one type to launch, so no overlay could change the outcome.".to_owned(),
        ([only], _) => format!("EC2 could choose among {types} types, all of them {only}."),
        _ => format!("EC2 could choose among {types} types of {}.", names.join(" and ")),
    };
    let lost: Vec<&Missing> = missing
        .iter()
        .filter(|missing| missing.stage != "poolRequirements")
        .collect();
    for missing in &lost {
        text.push_str(&format!(
            " No price could bring {} back: it was gone at the stage {}.",
            missing.architecture, missing.stage
        ));
    }
    if types > 1 {
        text.push_str(match strategy {
            Some(strategy) if strategy.looks_at_priority() => {
                " An overlay was in play: EC2 went by Priority, the price after overlays."
            }
            Some(_) => {
                " No overlay was in play, so EC2 went by its own prices; an overlay on any of these types would make \
                 it go by Priority."
            }
            None => "",
        });
    }
    text
}
