//! NodeOverlays: verdicts, prices and capacity, against Karpenter's own controller and instance type store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_api::{NodeOverlay, NodePool};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::{Evaluation, Evaluator, Overlay, Pool, TieBreak, Verdict};
use veneer_engine::quantity::Quantity;
use veneer_engine::resources::ResourceList;

use crate::harness::{Subject, differ, karpenter_module};
use crate::rng::Rng;

/// The subject, with the catalogue that its cases choose types from.
pub struct Overlays {
    path: PathBuf,
    catalogue: Catalogue,
    names: Vec<String>,
}

/// A cluster: pools, overlays, and the types that there are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// A catalogue of the case's own, for offerings that the AWS one does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    catalog: Option<Value>,
    /// The names that the catalogue is restricted to; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    types: Vec<String>,
    node_pools: Vec<Value>,
    overlays: Vec<Value>,
}

/// The fields are those of `oracle/internal/overlay`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    #[serde(default)]
    reconcile_error: String,
    overlays: Vec<OverlayAnswer>,
    pools: Vec<PoolAnswer>,
}

#[derive(Debug, Deserialize)]
struct OverlayAnswer {
    name: String,
    ready: String,
    validation: String,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize)]
struct PoolAnswer {
    #[serde(default)]
    error: String,
    #[serde(default)]
    types: Vec<TypeAnswer>,
    entries: usize,
    offerings: usize,
}

#[derive(Debug, Deserialize)]
struct TypeAnswer {
    index: usize,
    #[serde(default)]
    offerings: Vec<(f64, f64)>,
    #[serde(default)]
    capacity: BTreeMap<String, String>,
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
}

impl Overlays {
    /// The subject on Karpenter's own AWS catalogue.
    pub fn new() -> Result<Self> {
        let path = karpenter_module()?.join("kwok/examples/aws_instance_types.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let catalogue = kwok::parse(&text, &path.display().to_string())?;
        let mut names: Vec<String> = catalogue.types.iter().map(|it| it.name.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Self {
            path,
            catalogue,
            names,
        })
    }

    fn catalogue_of(&self, case: &Case) -> Result<Catalogue> {
        if let Some(own) = &case.catalog {
            return Ok(kwok::parse(&own.to_string(), "case")?);
        }
        let wanted = |name: &str| case.types.iter().any(|chosen| chosen == name);
        Ok(Catalogue {
            vocabulary: self.catalogue.vocabulary.clone(),
            rules: self.catalogue.rules.clone(),
            types: self
                .catalogue
                .types
                .iter()
                .filter(|it| wanted(&it.name))
                .cloned()
                .collect(),
            hibernation: None,
        })
    }

    fn evaluate(&self, case: &Case) -> Result<Evaluation> {
        let catalogue = self.catalogue_of(case)?;
        let pools = case.node_pools.iter().map(|pool| {
            let pool: NodePool = serde_json::from_value(pool.clone())?;
            Ok(Pool::from(&pool))
        });
        let overlays = case.overlays.iter().map(|overlay| {
            let overlay: NodeOverlay = serde_json::from_value(overlay.clone())?;
            Ok(Overlay::read(&overlay, &catalogue.rules))
        });
        let (pools, overlays) = (
            pools.collect::<Result<Vec<_>>>()?,
            overlays.collect::<Result<Vec<_>>>()?,
        );
        Ok(Evaluator::new(Arc::new(catalogue), TieBreak::default()).evaluate(&pools, &overlays))
    }
}

impl Subject for Overlays {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        vec![
            "overlay".to_owned(),
            "-catalog".to_owned(),
            self.path.display().to_string(),
        ]
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        let own = rng.chance(15);
        let types = if own {
            Vec::new()
        } else {
            let count = *rng.pick(&[1, 3, 8, 20, 40]);
            // Neighbours in the alphabet share a family, so that overlays meet.
            let start = rng.below(self.names.len());
            let place = |at| (start + at * (1 + rng.below(3))) % self.names.len();
            (0..count)
                .map(place)
                .filter_map(|at| self.names.get(at).cloned())
                .collect()
        };
        let pools = 1 + rng.below(4);
        let overlays = *rng.pick(&[1, 2, 3, 5, 8, 13, 40]);
        Case {
            catalog: own.then(|| own_catalogue(rng)),
            node_pools: (0..pools).map(|at| node_pool(at, rng)).collect(),
            overlays: (0..overlays).map(|at| overlay(at, &types, rng)).collect(),
            types,
        }
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut details = Vec::new();
        if !answer.reconcile_error.is_empty() {
            details.push(format!("the oracle failed: {}", answer.reconcile_error));
            return details;
        }
        let evaluation = match self.evaluate(case) {
            Ok(evaluation) => evaluation,
            Err(error) => return vec![format!("we cannot read the case: {error:#}")],
        };
        compare_verdicts(&evaluation, answer, &mut details);
        for (pool, theirs) in answer.pools.iter().enumerate() {
            compare_pool(&evaluation, pool, theirs, &mut details);
        }
        details
    }
}

fn compare_verdicts(evaluation: &Evaluation, answer: &Answer, details: &mut Vec<String>) {
    for (theirs, verdict) in answer.overlays.iter().zip(evaluation.verdicts()) {
        let (status, reason) = match verdict {
            Verdict::Ready => ("True", "ValidationSucceeded"),
            Verdict::Conflict(_) => ("False", "Conflict"),
            Verdict::Invalid(_) => ("False", "RuntimeValidation"),
        };
        let what = || format!("overlay {}", theirs.name);
        let said = (
            theirs.ready.as_str(),
            theirs.validation.as_str(),
            theirs.reason.as_str(),
        );
        differ(details, what, said, (status, status, reason));
        // Whoever is left out for a conflict must be told with whom.
        if let Verdict::Conflict(conflict) = verdict {
            differ(
                details,
                || format!("overlay {} names nobody", theirs.name),
                true,
                !conflict.with.is_empty(),
            );
        }
    }
}

fn compare_pool(evaluation: &Evaluation, pool: usize, theirs: &PoolAnswer, details: &mut Vec<String>) {
    let types = &evaluation.catalogue().types;
    let what = |text: &str| format!("pool {pool}: {text}");
    let offerings: usize = types.iter().map(|it| it.offerings.len()).sum();
    differ(details, || what("error"), theirs.error.as_str(), "");
    differ(details, || what("entries"), theirs.entries, types.len());
    differ(details, || what("offerings"), theirs.offerings, offerings);
    let mut changed = theirs.types.iter().peekable();
    let mut prices = evaluation.prices(pool).iter();
    for (entry, it) in types.iter().enumerate() {
        let theirs = changed.next_if(|changed| changed.index == entry);
        let mut their_prices = theirs
            .map(|theirs| theirs.offerings.as_slice())
            .unwrap_or_default()
            .iter()
            .peekable();
        for (at, offering) in it.offerings.iter().enumerate() {
            let theirs = their_prices.next_if(|(position, _)| *position == at as f64);
            let place = |text: &str| format!("pool {pool}, type {entry} {}, offering {at}: {text}", it.name);
            let winner = evaluation.winner(pool, entry, at);
            differ(details, || place("overlaid"), theirs.is_some(), winner.is_some());
            let expected = theirs.map_or(offering.price, |(_, price)| *price);
            let ours = prices.next().copied().unwrap_or(f64::NAN);
            differ(
                details,
                || place("price bits"),
                expected.to_bits(),
                ours.to_bits(),
            );
        }
        let ours = evaluation.capacity(pool, entry, it);
        let place = |text: &str| format!("pool {pool}, type {entry} {}: {text}", it.name);
        match theirs.filter(|theirs| !theirs.capacity.is_empty()) {
            Some(theirs) => {
                differ(
                    details,
                    || place("capacity"),
                    theirs.capacity.clone(),
                    texts(&ours),
                );
                let allocatable = evaluation.allocatable(pool, entry, it);
                differ(
                    details,
                    || place("allocatable"),
                    theirs.allocatable.clone(),
                    texts(&allocatable),
                );
            }
            None => differ(details, || place("capacity"), &it.capacity, &ours),
        }
    }
}

pub(crate) fn texts(list: &ResourceList) -> BTreeMap<String, String> {
    list.iter()
        .map(|(name, quantity): (&str, &Quantity)| (name.to_owned(), quantity.to_string()))
        .collect()
}

const TEAMS: [&str; 3] = ["red", "blue", "green"];
const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];
const CAPACITY_TYPES: [&str; 3] = ["spot", "on-demand", "reserved"];
const RESERVATION: &str = "example.com/reservation-id";

/// Types whose offerings have what the AWS catalogue lacks: reservations, several zones in one offering, one name
/// with different offerings, and no offering at all.
fn own_catalogue(rng: &mut Rng) -> Value {
    let entries = (0..2 + rng.below(5)).map(|at| {
        let offerings = (0..rng.below(6)).map(|_| {
            let capacity_type = *rng.pick(&CAPACITY_TYPES);
            let zones: Vec<&str> = (0..1 + rng.below(2)).map(|_| *rng.pick(&ZONES)).collect();
            let mut requirements = vec![
                json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]}),
                json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones}),
            ];
            if capacity_type == "reserved" || rng.chance(10) {
                let id = format!("cr-{}", rng.below(3));
                requirements.push(json!({"key": RESERVATION, "operator": "In", "values": [id]}));
            }
            if rng.chance(5) {
                requirements.push(json!({"key": "example.com/tenancy", "operator": "Exists"}));
            }
            json!({"Price": rng.below(1000) as f64 / 64.0, "Available": rng.chance(80), "Requirements": requirements})
        });
        let offerings: Vec<Value> = offerings.collect();
        json!({
            "name": format!("own.{}", at / 2),
            "architecture": rng.pick(&["x86_64", "arm64"]),
            "operatingSystems": [rng.pick(&["linux", "windows"])],
            "offerings": offerings,
            "resources": {"cpu": (1 << rng.below(5)).to_string(), "memory": format!("{}Gi", 1 << rng.below(6)), "example.com/a": "2"},
        })
    });
    entries.collect()
}

fn node_pool(at: usize, rng: &mut Rng) -> Value {
    let mut labels = serde_json::Map::new();
    let candidates: [(&str, &[&str]); 7] = [
        ("example.com/team", &TEAMS),
        ("tier", &["1", "5", "10"]),
        ("kubernetes.io/arch", &["arm64", "x86_64"]),
        ("beta.kubernetes.io/os", &["linux", "windows"]),
        ("karpenter.kwok.sh/instance-family", &["m5", "c5", "own"]),
        ("karpenter.kwok.sh/instance-cpu", &["2", "4", "96"]),
        ("topology.kubernetes.io/zone", &ZONES),
    ];
    for (position, (key, values)) in candidates.iter().enumerate() {
        if rng.chance(if position < 2 { 50 } else { 6 }) {
            labels.insert((*key).to_owned(), json!(rng.pick(values)));
        }
    }
    let requirement =
        json!({"key": "kubernetes.io/arch", "operator": "In", "values": [rng.pick(&["arm64", "x86_64"])]});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": format!("pool-{at}")},
        "spec": {"template": {
            "metadata": {"labels": labels},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [requirement],
            },
        }},
    })
}

fn overlay(at: usize, types: &[String], rng: &mut Rng) -> Value {
    let mut spec = serde_json::Map::new();
    let requirements: Vec<Value> = (0..rng.below(4)).map(|_| requirement(types, rng)).collect();
    spec.insert("requirements".to_owned(), json!(requirements));
    if rng.chance(80) {
        // Few weights, so that many are equal.
        spec.insert("weight".to_owned(), json!(rng.pick(&[1, 2, 3, 10, 10000])));
    }
    let sets = rng.below(10);
    if sets < 8 {
        let (field, value) = price(rng);
        spec.insert(field.to_owned(), json!(value));
    }
    if sets >= 5 && rng.chance(60) {
        spec.insert("capacity".to_owned(), capacity(rng));
    }
    // Names that are not in the order of their positions.
    let name = format!("{}-{at}", rng.pick(&["a", "m", "z"]));
    json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec})
}

fn price(rng: &mut Rng) -> (&'static str, String) {
    let number = match rng.below(5) {
        0 => format!("{}", rng.below(100)),
        1 => format!("{}.{:02}", rng.below(10), rng.below(100)),
        2 => format!("0.{}", rng.below(1_000_000_000)),
        3 => "0".to_owned(),
        _ => format!("{}.{}", rng.below(100), rng.next()),
    };
    let sign = *rng.pick(&["+", "-"]);
    match rng.below(3) {
        0 => ("price", number),
        1 => ("priceAdjustment", format!("{sign}{number}")),
        _ if rng.chance(10) => ("priceAdjustment", "-100%".to_owned()),
        _ => ("priceAdjustment", format!("{sign}{number}%")),
    }
}

fn capacity(rng: &mut Rng) -> Value {
    let mut capacity = serde_json::Map::new();
    for resource in [
        "example.com/a",
        "example.com/b",
        "nvidia.com/gpu",
        "hugepages-2Mi",
        "hugepages-1Gi",
    ] {
        if rng.chance(30) {
            let amount = rng.pick(&["0", "1", "2", "100Mi", "2Gi", "1500m", "900Gi"]);
            capacity.insert(resource.to_owned(), json!(amount));
        }
    }
    if capacity.is_empty() || rng.chance(3) {
        let name = *rng.pick(&["example.com/a", "example.com/b", "memory", "cpu", "pods"]);
        capacity.insert(name.to_owned(), json!("7"));
    }
    Value::Object(capacity)
}

fn requirement(types: &[String], rng: &mut Rng) -> Value {
    let name = if types.is_empty() {
        "own.0".to_owned()
    } else {
        rng.pick(types).clone()
    };
    let (family, size) = name.split_once('.').map_or(("own", "0"), |parts| parts);
    let text = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let (key, values): (&str, Vec<String>) = match rng.below(20) {
        0..=2 => (
            "node.kubernetes.io/instance-type",
            vec![name.clone(), rng.pick(&["m5.large", "own.1"]).to_string()],
        ),
        3..=4 => ("karpenter.sh/capacity-type", text(&CAPACITY_TYPES)),
        5 => ("topology.kubernetes.io/zone", text(&ZONES)),
        6 => ("kubernetes.io/arch", text(&["x86_64", "arm64", "amd64"])),
        7 => ("beta.kubernetes.io/arch", text(&["x86_64", "arm64"])),
        8 => ("kubernetes.io/os", text(&["linux", "windows"])),
        9..=10 => (
            "karpenter.kwok.sh/instance-family",
            vec![family.to_owned(), "c5".to_owned()],
        ),
        11 => (
            "karpenter.kwok.sh/instance-size",
            vec![size.to_owned(), "large".to_owned()],
        ),
        12..=13 => (
            "karpenter.kwok.sh/instance-cpu",
            text(&["2", "4", "8", "16", "48", "96", "0"]),
        ),
        14 => ("karpenter.sh/nodepool", text(&["pool-0", "pool-1", "pool-9"])),
        15 => ("example.com/team", text(&TEAMS)),
        16 => ("tier", text(&["0", "1", "5", "9"])),
        17 => (RESERVATION, text(&["cr-0", "cr-1"])),
        18 => ("example.com/nowhere", text(&["x", "1"])),
        _ if rng.chance(80) => ("karpenter.kwok.sh/instance-memory", text(&["8Gi", "16Gi", "4"])),
        // What the CRD lets through and the controller refuses.
        _ => (
            *rng.pick(&[
                "karpenter.kwok.sh/other",
                "sub.karpenter.sh/x",
                "kubernetes.io/hostname",
            ]),
            text(&["x"]),
        ),
    };
    let operator = *rng.pick(&[
        "In",
        "In",
        "In",
        "NotIn",
        "Exists",
        "DoesNotExist",
        "Gt",
        "Lt",
        "Gte",
        "Lte",
    ]);
    let values: Vec<String> = match operator {
        "Exists" | "DoesNotExist" => Vec::new(),
        "Gt" | "Lt" | "Gte" | "Lte" => {
            let bound = rng.pick(&[
                "0",
                "1",
                "2",
                "4",
                "5",
                "16",
                "95",
                "96",
                "9223372036854775807",
                "007",
            ]);
            vec![(*bound).to_owned()]
        }
        _ if rng.chance(2) => vec![rng.pick(&["not a label", "-x", "", "ondemand"]).to_string()],
        _ => (0..1 + rng.below(3)).map(|_| rng.pick(&values).clone()).collect(),
    };
    json!({"key": key, "operator": operator, "values": values})
}
