//! Simulations: pods packed, requests built, EC2's choice modelled, and the outcome in a few numbers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;
use veneer_api::{EC2NodeClass, NodePool};

use super::pool_types::vcpus;
use crate::instance_type::Catalogue;
use crate::launch::{Fleet, LaunchError, Launcher, NodeClass, Override, choice, claim_of, offering_starts};
use crate::overlay::Evaluation;
use crate::packing::{NewNodeClaim, Objects, Options, Problem, Results, solve};
use crate::requirements::Requirements;

/// What every simulation of a cluster shares.
pub struct Planner<'a> {
    /// The types.
    pub catalogue: &'a Arc<Catalogue>,
    /// The prices; overlays do not look at requirements, so they hold for every change of those.
    pub evaluation: Arc<Evaluation>,
    /// The node classes; one that is not there, or has found nothing yet, is assumed.
    pub node_classes: &'a [EC2NodeClass],
    /// How to pack.
    pub options: Options<'a>,
}

/// One simulation.
pub(super) struct Plan {
    pub(super) results: Results,
    /// For each new claim its request.
    pub(super) fleets: Vec<Launched>,
}

/// A request, or why there is none; claims that are alike share it.
pub(super) type Launched = Arc<Result<Fleet, LaunchError>>;

impl Planner<'_> {
    /// The position of a NodePool in the evaluation.
    pub(super) fn position(&self, pool: &str) -> Option<usize> {
        self.evaluation
            .pools()
            .iter()
            .position(|known| known.name == pool)
    }

    /// What a NodePool's node class has found, or what is assumed.
    pub(super) fn node_class(&self, pool: Option<&NodePool>, launcher: &mut Launcher) -> NodeClass {
        let wanted = pool.map(|pool| pool.spec.template.spec.node_class_ref.name.as_str());
        let mut classes = self.node_classes.iter();
        let class = classes.find(|class| class.metadata.name.as_deref() == wanted && is_known(class));
        match class {
            Some(class) => launcher.node_class(class),
            None => launcher.assumed_node_class(self.catalogue),
        }
    }

    /// Whether the node class of a NodePool had to be assumed.
    #[must_use]
    pub fn is_assumed(&self, pool: &NodePool) -> bool {
        let wanted = Some(pool.spec.template.spec.node_class_ref.name.as_str());
        let mut classes = self.node_classes.iter();
        !classes.any(|class| class.metadata.name.as_deref() == wanted && is_known(class))
    }

    pub(super) fn plan(&self, objects: &Objects) -> Plan {
        let problem = Problem::with_evaluation(objects, self.catalogue, Arc::clone(&self.evaluation));
        let results = solve(&problem, &self.options);
        let mut launcher = Launcher::new(results.vocabulary.clone(), &self.catalogue.rules);
        launcher.min_values = self.options.min_values;
        let starts = offering_starts(self.catalogue);
        let mut known: HashMap<(usize, Arc<[usize]>, Requirements), Launched> = HashMap::new();
        let mut classes: HashMap<usize, NodeClass> = HashMap::new();
        let mut fleets = Vec::with_capacity(results.new_node_claims.len());
        for found in &results.new_node_claims {
            let pool = self.position(&found.node_pool).unwrap_or_default();
            let key = (
                pool,
                Arc::clone(&found.instance_types),
                found.requirements.clone(),
            );
            let fleet = known.entry(key).or_insert_with(|| {
                let class = classes
                    .entry(pool)
                    .or_insert_with(|| self.node_class(objects.node_pools.get(pool), &mut launcher));
                let claim = claim_of(
                    &mut launcher,
                    found,
                    self.catalogue,
                    &self.evaluation,
                    pool,
                    &starts,
                );
                Arc::new(launcher.fleet(&claim, class))
            });
            fleets.push(Arc::clone(fleet));
        }
        Plan { results, fleets }
    }
}

fn is_known(class: &EC2NodeClass) -> bool {
    let status = class.status.as_ref();
    status.is_some_and(|status| !status.amis.is_empty() && !status.subnets.is_empty())
}

/// What a simulation comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// How many nodes are launched.
    pub nodes: usize,
    /// What they cost per hour after overlays.
    pub hourly: f64,
    /// What they cost per hour at list prices.
    pub list_hourly: f64,
    /// The share of the vCPU bought that each architecture has, from 0 to 1.
    pub share: BTreeMap<String, f64>,
    /// The largest node: what is lost with it is the blast radius.
    pub largest_node: Option<LargestNode>,
    /// What is left to choose from, on the node that has the least choice.
    pub spot_fallback: Option<Fallback>,
    /// How many pods go nowhere.
    pub unschedulable: usize,
}

/// A node and what is lost with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LargestNode {
    /// Its type.
    pub instance_type: String,
    /// Its processors.
    pub vcpu: i64,
    /// The pods on it.
    pub pods: usize,
}

/// What EC2 may fall back to where capacity runs out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fallback {
    /// Types in the fleet request.
    pub instance_types: usize,
    /// Architectures in the fleet request.
    pub architectures: usize,
}

/// Without the crumbs that adding in binary leaves.
pub(super) fn rounded(amount: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (amount * scale).round() / scale
}

impl Plan {
    /// The override that EC2 would launch for a claim.
    pub(super) fn chosen(&self, claim: usize) -> Option<&Override> {
        let fleet = self.fleets.get(claim)?.as_ref().as_ref().ok()?;
        Some(choice(&fleet.request)?.chosen)
    }

    pub(super) fn outcome(&self, catalogue: &Catalogue) -> Outcome {
        let mut outcome = Outcome {
            unschedulable: self.results.unschedulable.len(),
            ..Outcome::default()
        };
        let sizes: HashMap<&str, i64> = catalogue.types.iter().map(|it| (&*it.name, vcpus(it))).collect();
        let mut bought: BTreeMap<String, i64> = BTreeMap::new();
        for (at, claim) in self.results.new_node_claims.iter().enumerate() {
            let Some(chosen) = self.chosen(at) else {
                outcome.unschedulable += claim.pods.len();
                continue;
            };
            let vcpu = sizes.get(&*chosen.instance_type).copied().unwrap_or(0);
            outcome.nodes += 1;
            outcome.hourly += chosen.priority;
            outcome.list_hourly += chosen.list_price;
            *bought.entry(chosen.architecture.clone()).or_default() += vcpu;
            let is_larger = |largest: &LargestNode| (vcpu, claim.pods.len()) > (largest.vcpu, largest.pods);
            if outcome.largest_node.as_ref().is_none_or(is_larger) {
                outcome.largest_node = Some(LargestNode {
                    instance_type: chosen.instance_type.to_string(),
                    vcpu,
                    pods: claim.pods.len(),
                });
            }
            let choice = self.fallback(at);
            outcome.spot_fallback = match (outcome.spot_fallback.take(), choice) {
                (Some(least), Some(choice)) => Some(Fallback {
                    instance_types: least.instance_types.min(choice.instance_types),
                    architectures: least.architectures.min(choice.architectures),
                }),
                (least, choice) => least.or(choice),
            };
        }
        let total: i64 = bought.values().sum();
        let share = |vcpu: i64| rounded(vcpu as f64 / total.max(1) as f64, 4);
        outcome.share = bought
            .into_iter()
            .map(|(arch, vcpu)| (arch, share(vcpu)))
            .collect();
        outcome.hourly = rounded(outcome.hourly, 9);
        outcome.list_hourly = rounded(outcome.list_hourly, 9);
        outcome
    }

    fn fallback(&self, claim: usize) -> Option<Fallback> {
        let fleet = self.fleets.get(claim)?.as_ref().as_ref().ok()?;
        let distinct = |key: fn(&Override) -> &str| {
            let mut values: Vec<&str> = fleet.request.overrides().map(|(_, each)| key(each)).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        Some(Fallback {
            instance_types: distinct(|each| &each.instance_type),
            architectures: distinct(|each| &each.architecture),
        })
    }

    /// The claims of a NodePool, by position.
    pub(super) fn claims_of(&self, pool: &str) -> Vec<(usize, &NewNodeClaim)> {
        let claims = self.results.new_node_claims.iter().enumerate();
        claims.filter(|(_, claim)| claim.node_pool == pool).collect()
    }
}
