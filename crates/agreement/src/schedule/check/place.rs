//! Where pods are after the answer: nodes that exist, and claims with everything they may turn into.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use veneer_engine::quantity::Quantity;

use super::super::answer::{Answer, Claim, Expression};
use super::super::facts::{CAPACITY_TYPE, HOSTNAME, NODE_POOL, RESERVATION, ZONE};
use super::super::{Entry, Scenario};
use super::labels::Label;
use super::{candidates, entry_label, full_name, list, quantity, text};

/// What a place may turn out to be.
pub(super) struct Choice {
    /// The type's or the node's name.
    pub(super) name: String,
    labels: BTreeMap<String, Label>,
    /// What the machine has.
    pub(super) capacity: BTreeMap<String, Quantity>,
    /// What pods may use of it; daemons that are not there yet included.
    pub(super) allocatable: BTreeMap<String, Quantity>,
}

impl Choice {
    pub(super) fn label(&self, key: &str) -> Label {
        self.labels.get(key).cloned().unwrap_or(Label::Absent)
    }
}

/// A node or a claim.
pub(super) struct Place<'a> {
    pub(super) name: String,
    /// Whether it is a claim of the answer.
    pub(super) new: bool,
    /// Whether it is going away.
    pub(super) leaving: bool,
    pub(super) pool: Option<&'a Value>,
    pub(super) taints: Vec<&'a Value>,
    pub(super) options: Vec<Choice>,
    /// The types that a claim keeps, whether or not they can be launched.
    pub(super) candidates: Vec<&'a Entry>,
    /// Pods that were there and run.
    pub(super) bound: Vec<&'a Value>,
    /// Pods that the answer puts there.
    pub(super) new_pods: Vec<&'a Value>,
}

impl Place<'_> {
    /// All pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Value> {
        self.bound.iter().chain(&self.new_pods).copied()
    }

    /// The pods that count for rules between pods: one that is ending does not, unless it moves.
    pub(super) fn company(&self) -> impl Iterator<Item = &Value> {
        let stays = |pod: &&&Value| pod.pointer("/metadata/deletionTimestamp").is_none();
        self.bound.iter().filter(stays).chain(&self.new_pods).copied()
    }

    /// Whether the pod selects a label that nothing defines and one of the pods excludes values of: for Karpenter
    /// that defines it (the guide lists this under what is kept on purpose).
    pub(super) fn selects_what_is_excluded(&self, pod: &Value, option: &Choice) -> bool {
        let selected = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
        selected.into_iter().flatten().any(|(key, _)| {
            let excluded = |pod: &&Value| {
                let affinity = pod.pointer("/spec/affinity/nodeAffinity").map(Value::to_string);
                affinity.is_some_and(|text| text.contains(&format!(r#""key":"{key}","operator":"NotIn""#)))
            };
            self.new && matches!(option.label(key), Label::Absent) && self.new_pods.iter().any(excluded)
        })
    }

    /// Whether the pod was there before.
    pub(super) fn had(&self, pod: &Value) -> bool {
        self.bound.iter().any(|bound| std::ptr::eq(*bound, pod))
    }

    /// The domains of a topology that it may be in; none if it has no such label.
    pub(super) fn domains(&self, key: &str) -> BTreeSet<String> {
        if key == HOSTNAME {
            return BTreeSet::from([self.name.clone()]);
        }
        self.options
            .iter()
            .filter_map(|option| match option.label(key) {
                Label::Values(values) => Some(values),
                _ => None,
            })
            .flatten()
            .collect()
    }
}

/// All of them.
pub(super) struct Placement<'a> {
    pub(super) places: Vec<Place<'a>>,
    /// The zones and capacity types that a pool could launch in.
    pub(super) offered: BTreeMap<&'static str, BTreeSet<String>>,
}

impl<'a> Placement<'a> {
    pub(super) fn new(scenario: &'a Scenario, answer: &Answer, entries: &[&'a Entry]) -> Result<Self> {
        let pods: BTreeMap<String, &Value> = scenario.kind("Pod").map(|pod| (full_name(pod), pod)).collect();
        let pools: BTreeMap<&str, &Value> = scenario
            .kind("NodePool")
            .map(|pool| (text(pool, "/metadata/name"), pool))
            .collect();
        let find = |names: &[String]| -> Result<Vec<&'a Value>> {
            names
                .iter()
                .map(|name| pods.get(name).copied().with_context(|| format!("no pod {name}")))
                .collect()
        };
        let mut places = existing(scenario, &pools);
        let moved: BTreeSet<&str> = answer.moved().collect();
        for place in &mut places {
            place.bound.retain(|pod| !moved.contains(full_name(pod).as_str()));
        }
        for filled in &answer.existing_nodes {
            let place = places.iter_mut().find(|place| place.name == filled.node);
            place
                .with_context(|| format!("no node {}", filled.node))?
                .new_pods = find(&filled.pods)?;
        }
        for claim in &answer.new_node_claims {
            let pool = *pools
                .get(claim.node_pool.as_str())
                .context("a claim without its pool")?;
            let candidates = candidates(entries, &claim.instance_types)?;
            let name = format!("the claim with {}", claim.pods.first().map_or("", String::as_str));
            places.push(Place {
                name,
                new: true,
                leaving: false,
                pool: Some(pool),
                taints: list(pool, "/spec/template/spec/taints").iter().collect(),
                options: options(claim, pool, &candidates),
                candidates,
                bound: Vec::new(),
                new_pods: find(&claim.pods)?,
            });
        }
        let offered = [ZONE, CAPACITY_TYPE].map(|key| (key, offered(scenario, entries, key)));
        Ok(Self {
            places,
            offered: offered.into(),
        })
    }
}

/// The values of an offering's label that some pool allows.
fn offered(scenario: &Scenario, entries: &[&Entry], key: &str) -> BTreeSet<String> {
    let all: BTreeSet<&str> = entries
        .iter()
        .flat_map(|entry| &entry.offerings)
        .map(|offer| offer.label(key))
        .collect();
    let mut result = BTreeSet::new();
    for pool in scenario.kind("NodePool") {
        let wanted = list(pool, "/spec/template/spec/requirements");
        let mut wanted = wanted.iter().filter(|wanted| text(wanted, "/key") == key);
        for value in &all {
            let label = Label::Values(BTreeSet::from([(*value).to_owned()]));
            if wanted
                .clone()
                .all(|wanted| super::labels::satisfies(wanted, &label))
            {
                result.insert((*value).to_owned());
            }
        }
        // Zones that a pool names count, whether or not a type is offered there.
        for value in wanted.by_ref().filter(|wanted| text(wanted, "/operator") == "In") {
            result.extend(
                list(value, "/values")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned),
            );
        }
    }
    result
}

/// What a claim may turn into: its candidates, each wherever the claim's requirements let it be launched.
fn options(claim: &Claim, pool: &Value, entries: &[&Entry]) -> Vec<Choice> {
    let allows = |key: &str, value: &str| {
        let label = Label::Values(BTreeSet::from([value.to_owned()]));
        let own = claim.requirements.iter().filter(|own| own.key == key);
        own.map(as_value)
            .all(|own| super::labels::satisfies(&own, &label))
    };
    let mut result = Vec::new();
    for entry in entries {
        let mut labels: BTreeMap<String, Label> = BTreeMap::new();
        for own in &claim.requirements {
            let values = || own.values.iter().cloned().collect();
            let label = match own.operator.as_str() {
                "In" => Label::Values(values()),
                "DoesNotExist" => Label::Absent,
                "NotIn" => Label::Not(values()),
                _ => Label::Not(BTreeSet::new()),
            };
            labels.insert(own.key.clone(), label);
        }
        let offers: Vec<_> = entry
            .offerings
            .iter()
            .filter(|offer| offer.labels().all(|(key, value)| allows(key, value)))
            .collect();
        let of_entry = entry.labels();
        if offers.is_empty() || !of_entry.keys().all(|key| fits(entry, key, &allows)) {
            // Two entries share a name; at least one of them must do, and the caller sees if none does.
            continue;
        }
        for key in [ZONE, CAPACITY_TYPE, RESERVATION] {
            let values: BTreeSet<String> = offers
                .iter()
                .map(|offer| offer.label(key))
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
                .collect();
            if !values.is_empty() {
                labels.insert(key.to_owned(), Label::Values(values));
            }
        }
        for key in of_entry.keys() {
            if let Some(values) = entry_label(entry, key) {
                let values = values.into_iter().filter(|value| allows(key, value)).collect();
                labels.insert(key.clone(), Label::Values(values));
            }
        }
        let name = text(pool, "/metadata/name").to_owned();
        labels.insert(NODE_POOL.to_owned(), Label::Values(BTreeSet::from([name])));
        result.push(Choice {
            name: entry.name.clone(),
            labels,
            capacity: entry.resources.clone(),
            allocatable: super::resources::allocatable(entry),
        });
    }
    result
}

fn fits(entry: &Entry, key: &str, allows: &impl Fn(&str, &str) -> bool) -> bool {
    entry_label(entry, key).is_none_or(|values| values.iter().any(|value| allows(key, value)))
}

fn as_value(expression: &Expression) -> Value {
    serde_json::json!({"key": expression.key, "operator": expression.operator, "values": expression.values})
}

/// The nodes and claims that were there.
fn existing<'a>(scenario: &'a Scenario, pools: &BTreeMap<&str, &'a Value>) -> Vec<Place<'a>> {
    let nodes: BTreeMap<&str, &Value> = scenario
        .kind("Node")
        .map(|node| (text(node, "/spec/providerID"), node))
        .collect();
    let claims: BTreeMap<&str, &Value> = scenario
        .kind("NodeClaim")
        .map(|claim| (text(claim, "/status/providerID"), claim))
        .collect();
    let ids: BTreeSet<&str> = nodes.keys().chain(claims.keys()).copied().collect();
    ids.into_iter()
        .map(|id| machine(scenario, nodes.get(id).copied(), claims.get(id).copied(), pools))
        .collect()
}

fn machine<'a>(
    scenario: &'a Scenario,
    node: Option<&'a Value>,
    claim: Option<&'a Value>,
    pools: &BTreeMap<&str, &'a Value>,
) -> Place<'a> {
    let marked = |label: &str| {
        claim.is_none()
            || node.is_some_and(|node| {
                node.pointer("/metadata/labels")
                    .is_some_and(|labels| labels[label] == "true")
            })
    };
    let (registered, initialised) = (
        marked("karpenter.sh/registered"),
        marked("karpenter.sh/initialized"),
    );
    let source = if registered { node } else { claim }
        .or(node)
        .unwrap_or(&Value::Null);
    let mut taints: Vec<&Value> = list(source, "/spec/taints").iter().collect();
    if !initialised {
        let startup = claim.map_or(&[][..], |claim| list(claim, "/spec/startupTaints"));
        taints.retain(|taint| !ephemeral(taint) && !startup.iter().any(|own| same_taint(own, taint)));
    }
    let amounts = |field: &str| {
        let of = |object: Option<&Value>| -> BTreeMap<String, Quantity> {
            let values = object
                .and_then(|object| object.pointer(field))
                .and_then(Value::as_object);
            values
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), quantity(value)))
                .collect()
        };
        let mut result = of(node);
        if !initialised {
            for (name, value) in of(claim) {
                let own = result.entry(name).or_default();
                if *own == Quantity::default() {
                    *own = value;
                }
            }
        }
        result
    };
    let labels = source.pointer("/metadata/labels").and_then(Value::as_object);
    let labels: BTreeMap<String, Label> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let value = value.as_str().unwrap_or_default().to_owned();
            (key.clone(), Label::Values(BTreeSet::from([value])))
        })
        .collect();
    let pool = match labels.get(NODE_POOL) {
        Some(Label::Values(names)) => names.first().and_then(|name| pools.get(name.as_str()).copied()),
        _ => None,
    };
    let node_name = node.map_or("", |node| text(node, "/metadata/name"));
    let bound = scenario.kind("Pod").filter(|pod| {
        !node_name.is_empty()
            && text(pod, "/spec/nodeName") == node_name
            && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
    });
    Place {
        name: text(source, "/metadata/name").to_owned(),
        new: false,
        leaving: claim
            .or(node)
            .is_some_and(|object| object.pointer("/metadata/deletionTimestamp").is_some()),
        pool,
        taints,
        options: vec![Choice {
            name: node_name.to_owned(),
            labels,
            capacity: amounts("/status/capacity"),
            allocatable: amounts("/status/allocatable"),
        }],
        candidates: Vec::new(),
        bound: bound.collect(),
        new_pods: Vec::new(),
    }
}

fn same_taint(a: &Value, b: &Value) -> bool {
    text(a, "/key") == text(b, "/key") && text(a, "/effect") == text(b, "/effect")
}

fn ephemeral(taint: &Value) -> bool {
    matches!(
        (text(taint, "/key"), text(taint, "/effect")),
        ("node.kubernetes.io/not-ready", "NoSchedule" | "NoExecute")
            | ("node.kubernetes.io/unreachable", "NoSchedule")
            | ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")
            | ("karpenter.sh/unregistered", "NoExecute")
    )
}
