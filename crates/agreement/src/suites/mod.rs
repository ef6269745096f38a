//! Answers for Karpenter's own test suites (`oracle/suites`): one question per line, one answer per line.
//!
//! A question about scheduling is what Karpenter's scheduler knows when its `Solve` is called; the answer is every placement in its order,
//! with how often the pod was relaxed before, and which instance types are left for each claim.

mod overlays;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use veneer_engine::instance_type::{Catalogue, InstanceType, Offering, Overhead};
use veneer_engine::labels::LabelRules;
use veneer_engine::packing::{
    self, MinValuesPolicy, Objects, Place, PreferencePolicy, Problem, ReservedMode,
};
use veneer_engine::quantity::Quantity;
use veneer_engine::requirements::{Operator, Requirements};
use veneer_engine::resources::ResourceList;
use veneer_engine::vocabulary::Vocabulary;

use crate::schedule::{Scenario, objects};

#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
enum Asked {
    Scheduling(Question),
    Overlays(overlays::Question),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answered {
    Scheduling(Answer),
    Overlays(overlays::Answer),
    Failed { error: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    objects: Vec<Value>,
    types: Vec<Type>,
    well_known: Vec<String>,
    closed: Vec<String>,
    options: Options,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    min_values: String,
    preferences: String,
    reserved: String,
}

#[derive(Deserialize)]
struct Type {
    name: String,
    requirements: Vec<Expression>,
    offerings: Vec<TypeOffering>,
    capacity: HashMap<String, String>,
    overhead: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeOffering {
    requirements: Vec<Expression>,
    price: f64,
    available: bool,
    reservation_capacity: i64,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: String,
    #[serde(default)]
    values: Option<Vec<String>>,
}

#[derive(Default, Serialize)]
struct Answer {
    placements: Vec<Placed>,
    claims: Vec<Claim>,
}

#[derive(Serialize)]
struct Placed {
    /// The pod's uid.
    pod: String,
    relaxations: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<usize>,
}

#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    node_pool: String,
    instance_types: Vec<String>,
}

/// Answers questions until there are no more.
pub fn serve(questions: impl BufRead, mut answers: impl Write) -> Result<()> {
    for line in questions.lines() {
        let answer = answer_line(&line?).unwrap_or_else(|error| Answered::Failed {
            error: format!("{error:#}"),
        });
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer_line(line: &str) -> Result<Answered> {
    Ok(
        match serde_json::from_str(line).context("reading the question")? {
            Asked::Scheduling(question) => Answered::Scheduling(answer(question)?),
            Asked::Overlays(question) => Answered::Overlays(overlays::answer(question)?),
        },
    )
}

fn answer(question: Question) -> Result<Answer> {
    let catalogue = Arc::new(catalogue(&question.types, &question.well_known)?);
    let scenario = Scenario {
        objects: question.objects,
        types: None,
        catalog: None,
        options: crate::schedule::Options::default(),
    };
    let mut objects = objects(&scenario)?;
    objects.closed_nodes = question.closed.into_iter().collect();
    let problem = Problem::from_objects(&objects, &catalogue);
    let options = packing::Options {
        min_values: match question.options.min_values.as_str() {
            "BestEffort" => MinValuesPolicy::BestEffort,
            _ => MinValuesPolicy::Strict,
        },
        preferences: match question.options.preferences.as_str() {
            "Ignore" => PreferencePolicy::Ignore,
            _ => PreferencePolicy::Respect,
        },
        reserved: match question.options.reserved.as_str() {
            "Fallback" => ReservedMode::Fallback,
            "Off" => ReservedMode::Off,
            _ => ReservedMode::Strict,
        },
        // What is left over after a launch is limited is for whoever asks.
        max_instance_types: usize::MAX,
        ..packing::Options::default()
    };
    let (results, placements) = packing::solve_step_by_step(&problem, &options);
    let mut answer = Answer::default();
    let mut opened: HashMap<usize, usize> = HashMap::new();
    for placement in placements {
        let (node, claim) = match placement.place {
            Place::Node(name) => (Some(name), None),
            Place::Claim(claim) => (None, Some(claim)),
        };
        if let Some(claim) = claim {
            opened.insert(placement.pod, claim);
            let count = answer.claims.len().max(claim + 1);
            answer.claims.resize(count, Claim::default());
        }
        answer.placements.push(Placed {
            pod: uid(&objects, placement.pod)?,
            relaxations: placement.relaxations,
            node,
            claim,
        });
    }
    for claim in &results.new_node_claims {
        let at = claim.pods.first().and_then(|pod| opened.get(pod));
        let at = at.context("a claim without pods")?;
        let types = claim.instance_types.iter();
        let names = types.filter_map(|entry| Some(catalogue.types.get(*entry)?.name.to_string()));
        *answer
            .claims
            .get_mut(*at)
            .context("a claim that was not opened")? = Claim {
            node_pool: claim.node_pool.clone(),
            instance_types: names.collect(),
        };
    }
    Ok(answer)
}

fn uid(objects: &Objects, pod: usize) -> Result<String> {
    let pod = objects.pods.get(pod).context("a pod that was not given")?;
    pod.metadata
        .uid
        .as_deref()
        .map(str::to_owned)
        .context("a pod without a uid")
}

fn catalogue(described: &[Type], well_known: &[String]) -> Result<Catalogue> {
    let mut rules = LabelRules::core();
    for key in well_known {
        rules.add_well_known(key);
    }
    let mut vocabulary = Vocabulary::new();
    let mut types = Vec::new();
    for it in described {
        let mut offerings = Vec::new();
        for offering in &it.offerings {
            offerings.push(Offering {
                requirements: requirements(&offering.requirements, &mut vocabulary)?,
                price: offering.price,
                available: offering.available,
                reservation_capacity: offering.reservation_capacity,
            });
        }
        types.push(InstanceType {
            name: Arc::from(it.name.as_str()),
            requirements: requirements(&it.requirements, &mut vocabulary)?,
            offerings,
            capacity: resources(&it.capacity)?,
            overhead: Overhead {
                kube_reserved: it
                    .overhead
                    .as_ref()
                    .map(resources)
                    .transpose()?
                    .unwrap_or_default(),
                ..Overhead::default()
            },
        });
    }
    Ok(Catalogue {
        vocabulary,
        rules,
        types,
        hibernation: None,
    })
}

fn requirements(expressions: &[Expression], vocabulary: &mut Vocabulary) -> Result<Requirements> {
    let mut requirements = Requirements::new();
    for expression in expressions {
        let operator: Operator = expression.operator.parse()?;
        let values = expression.values.as_deref().unwrap_or_default();
        requirements.add_selector(&expression.key, operator, values, None, vocabulary);
    }
    Ok(requirements)
}

fn resources(list: &HashMap<String, String>) -> Result<ResourceList> {
    let mut resources = ResourceList::new();
    for (name, quantity) in list {
        let quantity: Quantity = quantity
            .parse()
            .map_err(|error| anyhow::anyhow!("{name}: {quantity:?}: {error}"))?;
        resources.insert(name.as_str(), quantity);
    }
    Ok(resources)
}
