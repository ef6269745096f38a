//! Launches on the wire: every parameter of the `CreateLaunchTemplate` and `CreateFleet` requests for a claim, against
//! those that the AWS SDK for Go would send for Karpenter's AWS provider (`oracle/internal/fleet`).
//!
//! Compared are names and values of all parameters, user data by what it says (NodeConfig as YAML, Bottlerocket's
//! settings as TOML, scripts by their text). What differs on purpose is taken out below and listed in the guide; which types
//! and subnets a fleet has is the business of [`crate::fleet`].

pub(crate) mod generate;
mod user_data;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_aws::{Cluster, Requests};

use crate::fleet::{self, Fleets};
use crate::harness::{Subject, differ};
use crate::rng::Rng;

/// The subject, with the types of a region.
pub struct Launches {
    fleets: Fleets,
    /// How many launches were compared, by family of images.
    compared: Mutex<BTreeMap<String, u64>>,
}

/// A claim, its types, and everything that a launch template is made of.
#[derive(Debug, Serialize)]
pub struct Case {
    #[serde(flatten)]
    fleet: fleet::Case,
    launch: Launch,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Launch {
    class: Value,
    labels: Value,
    taints: Value,
    startup_taints: Value,
    cluster: CaseCluster,
}

#[derive(Debug, Serialize)]
struct CaseCluster {
    dns: &'static str,
    ca: Option<&'static str>,
    cidr: Option<&'static str>,
    region: &'static str,
}

/// The fields are those of `oracle/internal/fleet`.
#[derive(Debug, Deserialize)]
pub struct Answer {
    #[serde(default)]
    error: String,
    #[serde(default)]
    templates: Vec<Parameters>,
    #[serde(default)]
    fleet: Parameters,
}

/// A request, flat.
type Parameters = BTreeMap<String, String>;

impl Launches {
    /// The subject on the embedded catalogue.
    pub fn new() -> Result<Self> {
        Ok(Self {
            fleets: Fleets::new()?,
            compared: Mutex::default(),
        })
    }

    /// How many launches were compared so far, by family of images: cases in which neither side launches do not count.
    pub fn compared(&self) -> BTreeMap<String, u64> {
        self.compared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn count(&self, class: &Value) {
        let said = class.pointer("/spec/amiFamily").and_then(Value::as_str);
        let alias = class
            .pointer("/spec/amiSelectorTerms/0/alias")
            .and_then(Value::as_str);
        let family = said.or_else(|| alias?.split('@').next());
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        *compared
            .entry(family.unwrap_or_default().to_lowercase())
            .or_default() += 1;
    }

    fn ours(&self, case: &Case) -> Result<std::result::Result<Requests, String>> {
        let fleet = match self.fleets.ours(&case.fleet)? {
            Ok(fleet) => fleet,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Launch {
            class,
            labels,
            taints,
            startup_taints,
            cluster,
        } = &case.launch;
        let mut class: EC2NodeClass = serde_json::from_value(class.clone())?;
        let status = class.status.get_or_insert_default();
        status.amis = serde_json::from_value(serde_json::to_value(&case.fleet.amis)?)?;
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": {"name": "default-x1", "uid": "0b5c", "labels": labels},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": case.fleet.requirements, "resources": {"requests": case.fleet.requests},
                "taints": taints, "startupTaints": startup_taints,
            },
        }))?;
        let cluster_facts = Cluster {
            name: "test".to_owned(),
            endpoint: "https://cluster".to_owned(),
            ca_bundle: cluster.ca.map(str::to_owned),
            service_cidr: cluster.cidr.map(str::to_owned),
            dns: Some(cluster.dns.to_owned()),
            ..Cluster::default()
        };
        let requests = Requests::new(&cluster_facts, cluster.region, &claim, &class, &fleet);
        Ok(requests.map_err(|error| error.to_string()))
    }
}

impl Subject for Launches {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        self.fleets.arguments()
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        let mut fleet = self.fleets.generate(rng);
        // Few types make few templates; what a fleet has is compared elsewhere.
        fleet.types.truncate(1 + rng.below(8));
        for ami in &mut fleet.amis {
            if rng.chance(30) {
                ami.name = "bottlerocket-aws-k8s-1.33-x86_64-v1.47.0-431fe75a".to_owned();
            }
        }
        let images: Vec<String> = fleet.amis.iter().map(|ami| ami.id.clone()).collect();
        let launch = generate::launch(&images, rng);
        Case { fleet, launch }
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let mut details = Vec::new();
        match self.ours(case) {
            Err(error) => details.push(format!("our side cannot read the case: {error:#}")),
            Ok(Err(error)) if answer.error.is_empty() => {
                details.push(format!("the oracle launches, we say: {error}"));
            }
            Ok(Err(_)) => {}
            Ok(Ok(_)) if !answer.error.is_empty() => {
                details.push(format!("the oracle says: {}, we launch", answer.error));
            }
            Ok(Ok(requests)) => {
                self.count(&case.launch.class);
                compare(&mut details, answer, &requests);
            }
        }
        details
    }
}

fn compare(details: &mut Vec<String>, answer: &Answer, ours: &Requests) {
    let collect = |flat: Vec<(String, String)>| flat.into_iter().collect::<Parameters>();
    let templates = |list: Vec<Parameters>| {
        let mut list: Vec<Parameters> = list.into_iter().map(template).collect();
        list.sort();
        // The same content is one template, however many configurations there are.
        list.dedup();
        list
    };
    let theirs = templates(answer.templates.clone());
    let own = templates(ours.templates().map(collect).collect());
    differ(
        details,
        || "number of launch templates".to_owned(),
        theirs.len(),
        own.len(),
    );
    for (theirs, ours) in theirs.iter().zip(&own) {
        fields(details, "launch template", theirs, ours);
    }
    fields(
        details,
        "fleet",
        &fleet(answer.fleet.clone()),
        &fleet(collect(ours.fleet())),
    );
}

fn fields(details: &mut Vec<String>, what: &str, theirs: &Parameters, ours: &Parameters) {
    let mut keys: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        differ(
            details,
            || format!("{what}: {key}"),
            theirs.get(key),
            ours.get(key),
        );
    }
}

/// A template in a form in which the two sides must be equal.
fn template(mut parameters: Parameters) -> Parameters {
    // The SDK makes up a token; the name comes from the content on both sides, and that is what makes a repeat safe.
    for key in ["Action", "Version", "ClientToken", "LaunchTemplateName"] {
        parameters.remove(key);
    }
    const PLACEMENT: &str = "LaunchTemplateData.Placement.GroupName";
    if let Some(name) = parameters.remove(PLACEMENT) {
        // The provider looks up the id, which its EC2 makes of the name; EC2 takes a name as well.
        parameters.insert(
            "LaunchTemplateData.Placement.GroupId".to_owned(),
            format!("pg-{name}"),
        );
    }
    if let Some(text) = parameters.remove("LaunchTemplateData.UserData") {
        parameters.insert("user data".to_owned(), user_data::meaning(&text));
    }
    parameters
}

/// A fleet request without its configurations.
fn fleet(mut parameters: Parameters) -> Parameters {
    parameters.retain(|key, _| !key.starts_with("LaunchTemplateConfigs."));
    // The provider has no token, so a launch that it repeats after a crash may double.
    for key in ["Action", "Version", "ClientToken"] {
        parameters.remove(key);
    }
    tags(&mut parameters);
    parameters
}

/// Tags by resource and key. The provider names the claim and the instance only once the node is there; we do at
/// launch, by which an instance is found again after a crash.
fn tags(parameters: &mut Parameters) {
    let listed: Vec<(String, String)> = parameters
        .extract_if(.., |key, _| key.starts_with("TagSpecification."))
        .collect();
    let value = |key: &str| {
        let found = listed.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for (key, name) in listed.iter().filter(|(key, _)| key.ends_with(".Key")) {
        let Some((of, _)) = key.split_once(".Tag.") else {
            continue;
        };
        let resource = value(&format!("{of}.ResourceType"));
        let text = value(&format!("{}Value", key.trim_end_matches("Key")));
        let is_late = matches!(
            name.as_str(),
            "karpenter.sh/nodeclaim" | "karpenter.k8s.aws/ec2nodeclass-hash"
        ) || (name == "Name" && text.starts_with("default/"));
        if !is_late {
            parameters.insert(format!("tag of {resource}: {name}"), text);
        }
    }
}
