//! Our side: the engine's answer in the shape of the oracle's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::{Catalogue, Offering};
use veneer_engine::overlay::{Evaluation, Evaluator, Overlay, Pool, TieBreak};
use veneer_engine::packing::{
    self, MinValuesPolicy, NewNodeClaim, Objects, PreferencePolicy, Problem, Results,
};
use veneer_engine::requirements::{Requirement, Requirements};
use veneer_engine::vocabulary::Vocabulary;

use super::answer::{Answer, Claim, Existing, Expression, Unschedulable};
use super::{Facts, Scenario};

/// Schedules scenarios with the engine.
pub struct Ours {
    catalogue: Arc<Catalogue>,
}

impl Ours {
    /// Reads the catalogue once.
    pub fn new(facts: &Facts) -> Result<Self> {
        let text = std::fs::read_to_string(&facts.path)?;
        let catalogue = kwok::parse(&text, &facts.path.display().to_string())?;
        Ok(Self {
            catalogue: Arc::new(catalogue),
        })
    }

    /// Schedules a scenario.
    pub fn answer(&self, scenario: &Scenario) -> Result<Answer> {
        let catalogue = self.catalogue(scenario)?;
        let objects = objects(scenario)?;
        let evaluation = Arc::new(evaluate(&objects, &catalogue));
        let started = Instant::now();
        let problem = Problem::with_evaluation(&objects, &catalogue, Arc::clone(&evaluation));
        let options = packing::Options {
            min_values: match scenario.options.min_values_policy.as_deref() {
                Some("BestEffort") => MinValuesPolicy::BestEffort,
                _ => MinValuesPolicy::Strict,
            },
            preferences: match scenario.options.preference_policy.as_deref() {
                Some("Ignore") => PreferencePolicy::Ignore,
                _ => PreferencePolicy::Respect,
            },
            ..packing::Options::default()
        };
        let results = packing::solve(&problem, &options);
        let elapsed = started.elapsed();
        let mut answer = View {
            objects: &objects,
            catalogue: &catalogue,
            evaluation: &evaluation,
        }
        .answer(&results)?;
        answer.solve_ms = elapsed.as_secs_f64() * 1000.0;
        Ok(answer)
    }

    /// What the engine decided for objects that it was given, in the shape of the oracle's answers.
    pub fn describe(objects: &Objects, catalogue: &Arc<Catalogue>, results: &Results) -> Result<Answer> {
        let evaluation = evaluate(objects, catalogue);
        View {
            objects,
            catalogue,
            evaluation: &evaluation,
        }
        .answer(results)
    }

    /// The types that a scenario can have.
    pub fn catalogue(&self, scenario: &Scenario) -> Result<Arc<Catalogue>> {
        if let Some(catalog) = &scenario.catalog {
            return Ok(Arc::new(kwok::parse(
                &catalog.to_string(),
                "the scenario's catalogue",
            )?));
        }
        let Some(types) = &scenario.types else {
            return Ok(Arc::clone(&self.catalogue));
        };
        let kept = self
            .catalogue
            .types
            .iter()
            .filter(|it| types.iter().any(|name| **name == *it.name));
        Ok(Arc::new(Catalogue {
            vocabulary: self.catalogue.vocabulary.clone(),
            rules: self.catalogue.rules.clone(),
            types: kept.cloned().collect(),
            hibernation: None,
        }))
    }
}

/// The manifests of a scenario as objects.
pub fn objects(scenario: &Scenario) -> Result<Objects> {
    let mut objects = Objects::default();
    for object in &scenario.objects {
        let kind = object
            .pointer("/kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match kind {
            "Pod" => objects.pods.push(read(object)?),
            "Node" => objects.nodes.push(Arc::new(read(object)?)),
            "NodePool" => objects.node_pools.push(read(object)?),
            "NodeClaim" => objects.node_claims.push(Arc::new(read(object)?)),
            "DaemonSet" => objects.daemon_sets.push(read(object)?),
            "PersistentVolumeClaim" => objects.pvcs.push(read(object)?),
            "PersistentVolume" => objects.pvs.push(read(object)?),
            "StorageClass" => objects.storage_classes.push(read(object)?),
            "CSINode" => objects.csi_nodes.push(read(object)?),
            "Namespace" => objects.namespaces.push(read(object)?),
            "NodeOverlay" if scenario.options.node_overlay => objects.overlays.push(read(object)?),
            _ => {}
        }
    }
    Ok(objects)
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T> {
    serde_json::from_value(object.clone()).with_context(|| format!("reading {object}"))
}

fn evaluate(objects: &Objects, catalogue: &Arc<Catalogue>) -> Evaluation {
    let pools: Vec<Pool> = objects
        .node_pools
        .iter()
        .map(|pool| Pool {
            name: pool.metadata.name.clone().unwrap_or_default(),
            labels: pool.spec.template.metadata.labels.clone().into_iter().collect(),
        })
        .collect();
    let overlays: Vec<_> = objects
        .overlays
        .iter()
        .map(|overlay| Overlay::read(overlay, &catalogue.rules))
        .collect();
    Evaluator::new(Arc::clone(catalogue), TieBreak::default()).evaluate(&pools, &overlays)
}

/// What the engine's positions refer to.
struct View<'a> {
    objects: &'a Objects,
    catalogue: &'a Catalogue,
    evaluation: &'a Evaluation,
}

impl View<'_> {
    fn answer(&self, results: &Results) -> Result<Answer> {
        let mut answer = Answer::default();
        // Where the offerings of each type begin in a pool's list of prices.
        let mut begins = Vec::with_capacity(self.catalogue.types.len());
        let mut total = 0;
        for it in &self.catalogue.types {
            begins.push(total);
            total += it.offerings.len();
        }
        for claim in &results.new_node_claims {
            answer
                .new_node_claims
                .push(self.claim(claim, &results.vocabulary, &begins)?);
        }
        for node in &results.existing_nodes {
            answer.existing_nodes.push(Existing {
                node: node.name.clone(),
                pods: self.pods(&node.pods),
            });
        }
        for failure in &results.unschedulable {
            answer.unschedulable.push(Unschedulable {
                pod: self.pods(&[failure.pod]).pop().unwrap_or_default(),
                reasons: failure
                    .reasons
                    .iter()
                    .map(|reason| reason.message.clone())
                    .collect(),
            });
        }
        answer.new_node_claims.sort_by(|a, b| a.pods.cmp(&b.pods));
        answer.existing_nodes.sort_by(|a, b| a.node.cmp(&b.node));
        answer.unschedulable.sort_by(|a, b| a.pod.cmp(&b.pod));
        Ok(answer)
    }

    fn pods(&self, positions: &[usize]) -> Vec<String> {
        let name = |position: &usize| {
            let metadata = self.objects.pods.get(*position).map(|pod| &pod.metadata)?;
            Some(format!(
                "{}/{}",
                metadata.namespace.as_deref().unwrap_or("default"),
                metadata.name.as_deref()?
            ))
        };
        let mut names: Vec<String> = positions.iter().filter_map(name).collect();
        names.sort();
        names
    }

    fn claim(&self, claim: &NewNodeClaim, vocabulary: &Vocabulary, begins: &[usize]) -> Result<Claim> {
        let pool = self
            .evaluation
            .pools()
            .iter()
            .position(|pool| pool.name == claim.node_pool)
            .with_context(|| format!("a claim names the pool {:?}", claim.node_pool))?;
        let prices = self.evaluation.prices(pool);
        let mut names = Vec::new();
        let mut cheapest = Vec::new();
        let mut by_offering: HashMap<(String, String, String), bool> = HashMap::new();
        for position in claim.instance_types.iter() {
            let it = self
                .catalogue
                .types
                .get(*position)
                .context("a candidate outside the catalogue")?;
            let begin = begins.get(*position).copied().unwrap_or(0);
            let mut least = f64::MAX;
            for (offering, price) in it.offerings.iter().zip(prices.iter().skip(begin)) {
                let allowed = offering.available
                    && allows(
                        &claim.requirements,
                        offering,
                        &self.catalogue.vocabulary,
                        vocabulary,
                        &mut by_offering,
                    );
                if allowed && *price < least {
                    least = *price;
                }
            }
            names.push(it.name.to_string());
            cheapest.push(least);
        }
        Ok(Claim {
            node_pool: claim.node_pool.clone(),
            pods: self.pods(&claim.pods),
            requests: claim
                .requests
                .iter()
                .map(|(name, quantity)| (name.to_owned(), quantity.clone()))
                .collect(),
            instance_types: names,
            prices: cheapest,
            requirements: expressions(&claim.requirements, vocabulary),
        })
    }
}

/// Whether a claim's requirements allow an offering. Texts are compared, so that a fault in symbols shows.
fn allows(
    requirements: &Requirements,
    offering: &Offering,
    catalogue: &Vocabulary,
    vocabulary: &Vocabulary,
    known: &mut HashMap<(String, String, String), bool>,
) -> bool {
    let text = |key: &str| {
        let found = catalogue.get(key).and_then(|key| offering.requirements.get(key));
        found
            .and_then(Requirement::single_value)
            .map_or("", |value| catalogue.text(value))
            .to_owned()
    };
    let key = (
        text(super::facts::CAPACITY_TYPE),
        text(super::facts::ZONE),
        text(super::facts::RESERVATION),
    );
    if let Some(known) = known.get(&key) {
        return *known;
    }
    let allowed = offering.requirements.iter().all(|(label, offered)| {
        let Some(wanted) = vocabulary
            .get(catalogue.text(label))
            .and_then(|label| requirements.get(label))
        else {
            return true;
        };
        offered
            .values()
            .iter()
            .any(|value| match vocabulary.get(catalogue.text(*value)) {
                Some(value) => wanted.has(value, vocabulary),
                None => wanted.is_complement(),
            })
    });
    known.insert(key, allowed);
    allowed
}

/// Requirements as Karpenter writes them into a NodeClaim.
fn expressions(requirements: &Requirements, vocabulary: &Vocabulary) -> Vec<Expression> {
    let mut result = Vec::new();
    for (key, requirement) in requirements.iter() {
        let mut push = |operator: &str, values: Vec<String>| {
            result.push(Expression {
                key: vocabulary.text(key).to_owned(),
                operator: operator.to_owned(),
                values,
                min_values: requirement.min_values(),
            });
        };
        let bounds = requirement.bounds();
        if let Some(bound) = bounds.gte {
            push("Gte", vec![bound.to_string()]);
        }
        if let Some(bound) = bounds.lte {
            push("Lte", vec![bound.to_string()]);
        }
        if bounds.gte.is_none() && bounds.lte.is_none() {
            let values = vocabulary.sorted_texts(requirement.values());
            push(
                requirement.operator().as_str(),
                values.into_iter().map(str::to_owned).collect(),
            );
        }
    }
    result.sort();
    result
}
