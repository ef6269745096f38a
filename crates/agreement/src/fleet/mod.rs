//! Fleet requests: what EC2 is asked for a claim, against Karpenter's AWS provider with an EC2 that writes down what
//! it is asked (`oracle/internal/fleet`).
//!
//! Both sides get the same types in the same order, with the case's offerings, overlays and reservations. Compared
//! are the whole request (context, target, strategies, every launch template's image, pods, EFA interfaces,
//! reservation and tenancy, every override's type, zone, subnet, image and priority to the last bit) and, where there
//! is none, why. The order of launch templates and, among reserved types, that of overrides is Go's random map order
//! and not compared; the order of all other overrides is.

mod generate;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::{Catalogue, InstanceType, Offering};
use veneer_engine::labels;
use veneer_engine::launch::{
    AllocationStrategy, Candidate, Fleet, LaunchError, Launcher, NodeClass, Priced, Subnet, TargetCapacity,
};
use veneer_engine::overlay::PriceChange;
use veneer_engine::packing::MinValuesPolicy;
use veneer_engine::quantity::Quantity;
use veneer_engine::requirements::{Operator, Requirement, Requirements};
use veneer_engine::resources::ResourceList;
use veneer_engine::vocabulary::Vocabulary;

use crate::harness::{Subject, differ};
use crate::rng::Rng;

const REGION: &str = "us-east-1";

/// The subject, with the types of a region.
pub struct Fleets {
    catalogue: Catalogue,
    zone_ids: BTreeMap<String, String>,
    /// The same types for the oracle; deleted with the subject.
    region: tempfile::NamedTempFile,
}

/// A claim with its types and the node class that it is launched with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    pub(crate) types: Vec<CaseType>,
    pub(crate) requirements: Vec<CaseRequirement>,
    pub(crate) requests: BTreeMap<&'static str, String>,
    min_values_relaxed: bool,
    best_effort: bool,
    subnets: Vec<CaseSubnet>,
    pub(crate) amis: Vec<CaseAmi>,
    context: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CaseType {
    name: String,
    offerings: Vec<CaseOffering>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CaseOffering {
    zone: String,
    capacity_type: &'static str,
    price: f64,
    /// The text of a price or priceAdjustment; empty without an overlay.
    overlay: &'static str,
    available: bool,
    reservation: Option<CaseReservation>,
}

#[derive(Debug, Serialize)]
struct CaseReservation {
    id: String,
    r#type: &'static str,
    interruptible: bool,
    capacity: i64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CaseRequirement {
    key: &'static str,
    operator: &'static str,
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_values: Option<i64>,
}

#[derive(Debug, Serialize)]
struct CaseSubnet {
    id: String,
    zone: String,
    addresses: i32,
}

#[derive(Debug, Serialize)]
pub(crate) struct CaseAmi {
    pub(crate) id: String,
    pub(crate) name: String,
    requirements: Vec<CaseRequirement>,
}

/// The fields are those of `oracle/internal/fleet`.
#[derive(Debug, Deserialize)]
pub struct Answer {
    #[serde(default)]
    error: String,
    request: Option<Request>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    context: String,
    configs: Vec<Config>,
    target: String,
    spot_strategy: String,
    on_demand_strategy: String,
    r#type: String,
    total: i32,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    image: String,
    max_pods: i64,
    efa_count: i64,
    reservation: String,
    tenancy: String,
    overrides: Vec<OverrideAnswer>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OverrideAnswer {
    instance_type: String,
    zone: String,
    subnet: String,
    image: String,
    priority: f64,
}

impl Fleets {
    /// The subject on the embedded catalogue; the oracle constructs the same types from what EC2 says of them.
    pub fn new() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog/generate");
        let output = Command::new(&script)
            .arg("--shapes")
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {}", script.display()))?;
        ensure!(output.status.success(), "{} failed", script.display());
        let text = String::from_utf8(output.stdout)?;
        let shapes = text.lines().last().unwrap_or_default();
        let loaded = aws::region(REGION)?;
        let catalogue = loaded.catalogue;
        let zone = catalogue
            .vocabulary
            .get(labels::ZONE)
            .context("the catalogue has no zones")?;
        let offered: BTreeMap<&str, Vec<&str>> = catalogue
            .types
            .iter()
            .filter_map(|it| Some((&*it.name, it.requirements.get(zone)?.values())))
            .map(|(name, zones)| (name, catalogue.vocabulary.sorted_texts(zones)))
            .collect();
        let zones = loaded.region.zones.iter();
        let zones: Vec<Value> = zones.map(|z| json!({ "name": z.name, "id": z.id })).collect();
        let mut region = tempfile::NamedTempFile::new()?;
        let case = json!({ "shapes": shapes, "region": REGION, "zones": zones, "offered": offered });
        region.write_all(case.to_string().as_bytes())?;
        region.flush()?;
        Ok(Self {
            zone_ids: loaded
                .region
                .zones
                .iter()
                .map(|z| (z.name.clone(), z.id.clone()))
                .collect(),
            catalogue,
            region,
        })
    }

    pub(crate) fn ours(&self, case: &Case) -> Result<Result<Fleet, LaunchError>> {
        let mut vocabulary = self.catalogue.vocabulary.clone();
        let mut requirements = Requirements::new();
        for one in &case.requirements {
            let operator: Operator = one.operator.parse()?;
            requirements.add_selector(one.key, operator, &one.values, one.min_values, &mut vocabulary);
        }
        let types: Vec<(InstanceType, Vec<(f64, bool)>)> = case
            .types
            .iter()
            .map(|wanted| self.instance_type(wanted, &mut vocabulary))
            .collect::<Result<_>>()?;
        let requests: ResourceList = case
            .requests
            .iter()
            .map(|(name, amount)| Ok((*name, amount.parse::<Quantity>()?)))
            .collect::<Result<_>>()?;
        let mut launcher = Launcher::new(vocabulary, &self.catalogue.rules);
        if case.best_effort {
            launcher.min_values = MinValuesPolicy::BestEffort;
        }
        let mut class = NodeClass {
            context: case.context.clone(),
            ..NodeClass::default()
        };
        for ami in &case.amis {
            let read = |one: &CaseRequirement| Ok((one.key, one.operator.parse()?, one.values.clone()));
            let wanted = ami.requirements.iter().map(read).collect::<Result<Vec<_>>>()?;
            class.amis.push(launcher.ami(&ami.id, &wanted));
        }
        let subnets = case.subnets.iter().map(|subnet| Subnet {
            id: subnet.id.clone(),
            zone: subnet.zone.clone(),
            available_addresses: i64::from(subnet.addresses),
        });
        class.subnets = subnets.collect();
        let candidates = types.iter().map(|(it, prices)| Candidate {
            instance_type: it,
            capacity: Cow::Borrowed(&it.capacity),
            allocatable: it.allocatable(),
            offerings: it
                .offerings
                .iter()
                .zip(prices)
                .map(|(offering, (price, overlaid))| Priced {
                    offering,
                    price: *price,
                    overlaid: *overlaid,
                })
                .collect(),
        });
        let claim = launcher.claim(
            &requirements,
            &requests,
            candidates.collect(),
            case.min_values_relaxed,
        );
        Ok(launcher.fleet(&claim, &class))
    }

    /// A type with the case's offerings, and for each of them the price after overlays and whether there is one.
    fn instance_type(
        &self,
        wanted: &CaseType,
        vocabulary: &mut Vocabulary,
    ) -> Result<(InstanceType, Vec<(f64, bool)>)> {
        let mut types = self.catalogue.types.iter();
        let found = types
            .find(|it| *it.name == *wanted.name)
            .context("no such type")?;
        let mut it = found.clone();
        let mut prices = Vec::new();
        it.offerings = Vec::new();
        for one in &wanted.offerings {
            let zone_id = self.zone_ids.get(&one.zone).map_or("", String::as_str);
            let mut labelled = vec![
                (labels::CAPACITY_TYPE, one.capacity_type),
                (labels::ZONE, &one.zone),
                ("topology.k8s.aws/zone-id", zone_id),
            ];
            let interruptible = one.reservation.as_ref().map(|r| r.interruptible.to_string());
            if let (Some(reservation), Some(interruptible)) = (&one.reservation, &interruptible) {
                labelled.push((labels::RESERVATION_ID, &reservation.id));
                labelled.push((labels::RESERVATION_TYPE, reservation.r#type));
                labelled.push((labels::RESERVATION_INTERRUPTIBLE, interruptible));
            }
            let mut requirements = Requirements::from_labels(labelled, vocabulary);
            if one.reservation.is_none() {
                for key in [
                    labels::RESERVATION_ID,
                    labels::RESERVATION_TYPE,
                    labels::RESERVATION_INTERRUPTIBLE,
                ] {
                    let key = vocabulary.intern(key);
                    requirements.add(key, Requirement::does_not_exist(), vocabulary);
                }
            }
            it.offerings.push(Offering {
                requirements,
                price: one.price,
                available: one.available,
                reservation_capacity: one.reservation.as_ref().map_or(0, |r| r.capacity),
            });
            let change = match one.overlay {
                "" => None,
                text if text.starts_with(['+', '-']) => Some(PriceChange::adjustment(text)?),
                text => Some(PriceChange::price(text)?),
            };
            let price = change
                .as_ref()
                .map_or(one.price, |change| change.apply(one.price));
            prices.push((price, change.is_some()));
        }
        Ok((it, prices))
    }
}

impl Subject for Fleets {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        let region = self.region.path().display().to_string();
        // The provider waits 35 ms for claims to batch with every request.
        ["fleet", "--parallel", "32", "--region", &region]
            .map(str::to_owned)
            .into()
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        generate::case(&self.catalogue, rng)
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut details = Vec::new();
        let ours = match self.ours(case) {
            Ok(ours) => ours,
            Err(error) => return vec![format!("our side cannot read the case: {error:#}")],
        };
        match (&answer.request, ours) {
            (None, Err(error)) => {
                let theirs = reason(&answer.error);
                differ(
                    &mut details,
                    || format!("why nothing is launched ({})", answer.error),
                    theirs,
                    kind(&error),
                );
            }
            (Some(request), Err(error)) => {
                details.push(format!("the oracle asks for {}, we say: {error}", request.target));
            }
            (None, Ok(_)) => details.push(format!("the oracle says: {}, we make a request", answer.error)),
            (Some(theirs), Ok(fleet)) => compare(&mut details, theirs, &view(&fleet)),
        }
        details
    }
}

fn compare(details: &mut Vec<String>, theirs: &Request, ours: &Request) {
    differ(details, || "context".to_owned(), &theirs.context, &ours.context);
    differ(details, || "target".to_owned(), &theirs.target, &ours.target);
    let strategies = |request: &Request| (request.spot_strategy.clone(), request.on_demand_strategy.clone());
    differ(
        details,
        || "strategies".to_owned(),
        strategies(theirs),
        strategies(ours),
    );
    let whole = |request: &Request| (request.r#type.clone(), request.total);
    differ(
        details,
        || "type and total".to_owned(),
        whole(theirs),
        whole(ours),
    );
    let templates = |request: &Request| {
        let configs = request.configs.iter();
        configs
            .map(|c| {
                (
                    c.image.clone(),
                    c.max_pods,
                    c.efa_count,
                    c.reservation.clone(),
                    c.tenancy.clone(),
                )
            })
            .collect::<Vec<_>>()
    };
    differ(
        details,
        || "launch templates".to_owned(),
        templates(theirs),
        templates(ours),
    );
    for (theirs, ours) in theirs.configs.iter().zip(&ours.configs) {
        let overrides = |config: &Config| {
            let mut overrides = config.overrides.clone();
            if !config.reservation.is_empty() {
                overrides.sort_by(|a, b| (&a.instance_type, &a.zone).cmp(&(&b.instance_type, &b.zone)));
            }
            overrides
        };
        differ(
            details,
            || format!("overrides of {} with {} pods", theirs.image, theirs.max_pods),
            overrides(theirs),
            overrides(ours),
        );
    }
}

/// Our request in the oracle's words.
fn view(fleet: &Fleet) -> Request {
    let request = &fleet.request;
    let strategy = request.strategy.map_or("", AllocationStrategy::as_str).to_owned();
    let is_spot = request.target == TargetCapacity::Spot;
    let (spot_strategy, on_demand_strategy) = if is_spot {
        (strategy, String::new())
    } else {
        (String::new(), strategy)
    };
    let mut configs: Vec<Config> = request
        .configs
        .iter()
        .map(|config| Config {
            image: config.template.image_id.clone(),
            max_pods: config.template.max_pods,
            efa_count: config.template.efa_count,
            reservation: config.template.reservation_id.clone().unwrap_or_default(),
            tenancy: config.template.tenancy.to_owned(),
            overrides: config
                .overrides
                .iter()
                .map(|each| OverrideAnswer {
                    instance_type: each.instance_type.to_string(),
                    zone: each.zone.clone(),
                    subnet: each.subnet_id.clone(),
                    image: each.image_id.clone(),
                    priority: each.priority,
                })
                .collect(),
        })
        .collect();
    configs.sort_by(|a, b| {
        let key = |c: &Config| (c.image.clone(), c.max_pods, c.efa_count, c.reservation.clone());
        key(a).cmp(&key(b))
    });
    Request {
        context: request.context.clone().unwrap_or_default(),
        configs,
        target: request.target.as_str().to_owned(),
        spot_strategy,
        on_demand_strategy,
        r#type: "instant".to_owned(),
        total: 1,
    }
}

/// The oracle's errors by what they mean.
fn reason(error: &str) -> &'static str {
    let known = [
        ("all requested instance types were unavailable", "unavailable"),
        ("validating minValues", "minValues"),
        ("getting subnets", "no subnets"),
        ("no amis exist", "no images"),
        ("no instance types satisfy requirements of amis", "no image fits"),
        ("no capacity offerings are currently available", "no offerings"),
    ];
    let found = known.iter().find(|(text, _)| error.contains(text));
    found.map_or("something else", |(_, reason)| reason)
}

fn kind(error: &LaunchError) -> &'static str {
    match error {
        LaunchError::Unavailable(_) => "unavailable",
        LaunchError::MinValues(_) => "minValues",
        LaunchError::NoSubnets => "no subnets",
        LaunchError::NoImages => "no images",
        LaunchError::NoImageFits => "no image fits",
        LaunchError::NoOfferings => "no offerings",
    }
}
