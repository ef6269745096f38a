//! From a claim and what would do to an instance.
//!
//! The request is what `veneer_engine::launch` says; this module names its launch templates, sends it, and reads the
//! answer. What EC2 has none of is noted and the next candidates are asked for at once. The client token comes from the
//! claim's uid and the number of the attempt, so whoever asks again after a crash gets the same instance, also while
//! lists do not show it yet.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};
use veneer_api::labels::{aws, karpenter, kubernetes};
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_engine::labels as engine_labels;
use veneer_engine::launch::{Candidate, Claim, LaunchError, Launcher, Priced};
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::{Shortage, name};
use veneer_engine::provision::{LaunchOption, claim_requirements, quantities};

use crate::class_hash;
use crate::ec2::{FleetAnswer, FleetError, Machine, tag_filters};
use crate::error::Error;
use crate::names;
use crate::provider::{Ec2, provider_id};
use crate::requests::Requests;

/// How often other candidates are asked for in one go.
const ATTEMPTS: usize = 8;
/// How long a launch template stays known, and how old an unused one gets.
const TEMPLATE_LIFE: Duration = Duration::from_secs(600);
/// Codes that say: none of this, for a while.
const SHORT: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing that would do can be had.
    #[error("insufficient capacity")]
    InsufficientCapacity(Vec<Shortage>),
    /// The node class cannot be used.
    #[error("{0}")]
    NodeClassNotReady(String),
    /// Something that may pass.
    #[error("{0}")]
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl Ec2 {
    /// Launches the claim's instance, or finds the one that an earlier attempt made.
    pub async fn launch(
        &self,
        claim: &NodeClaim,
        class: &EC2NodeClass,
        options: &[LaunchOption],
    ) -> Result<Launched, Failure> {
        if let Some(machine) = self.machine_of(name(&claim.metadata)) {
            info!(
                node_claim = name(&claim.metadata),
                instance = machine.id,
                "found the instance of an earlier attempt"
            );
            return Ok(adopted(&machine, options));
        }
        let mut left = options.to_vec();
        let mut shortages: Vec<Shortage> = Vec::new();
        for attempt in 0..ATTEMPTS {
            let planned = match self.plan(claim, class, &left) {
                Ok(planned) => planned,
                Err(Failure::InsufficientCapacity(_)) => break,
                Err(other) => return Err(other),
            };
            let answer = match self.ask(&planned, attempt).await {
                Ok(answer) => answer,
                Err(error) if error.code() == "IdempotentParameterMismatch" => {
                    // Somebody asked before us with other words. If that made an instance it will show up.
                    match self.appears(name(&claim.metadata)).await? {
                        Some(machine) => return Ok(adopted(&machine, options)),
                        None => continue,
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let short = self.shortages_of(&planned, &answer);
            if let Some(launched) = self.launched(&planned, &answer, options) {
                self.note_shortages(short);
                return Ok(launched);
            }
            if short.is_empty() {
                return Err(Failure::Other(combined(&answer.errors)));
            }
            warn!(
                node_claim = name(&claim.metadata),
                offerings = short.len(),
                "insufficient capacity; asking for the next candidates"
            );
            left.retain(|option| !short.iter().any(|one| is_same(one, option)));
            shortages.extend(short);
            if left.is_empty() {
                break;
            }
        }
        if shortages.is_empty() {
            shortages.extend(options.iter().map(shortage));
        }
        Err(Failure::InsufficientCapacity(shortages))
    }

    /// What EC2 would be asked.
    pub(crate) fn plan(
        &self,
        claim: &NodeClaim,
        class: &EC2NodeClass,
        options: &[LaunchOption],
    ) -> Result<Requests, Failure> {
        let mut launcher = self.launcher();
        let fleet = {
            let requests = quantities(&claim.spec.resources.requests);
            let claim = self.claim(&mut launcher, claim, options, &requests);
            let mut found = launcher.node_class(class);
            for subnet in &mut found.subnets {
                subnet.available_addresses = self.free_addresses(&subnet.id);
            }
            launcher.fleet(&claim, &found)
        };
        let fleet = fleet.map_err(|error| match error {
            LaunchError::NoSubnets | LaunchError::NoImages => Failure::NodeClassNotReady(error.to_string()),
            LaunchError::NoImageFits => Failure::NodeClassNotReady(format!(
                "EC2NodeClass {}: {error}; amiSelectorTerms may lack an architecture",
                name(&class.metadata)
            )),
            LaunchError::Unavailable(_) | LaunchError::MinValues(_) | LaunchError::NoOfferings => {
                Failure::InsufficientCapacity(Vec::new())
            }
        })?;
        Requests::new(&self.cluster, self.client.region(), claim, class, &fleet)
    }

    /// The claim in the engine's terms; its candidates are the options, by type.
    fn claim<'a>(
        &'a self,
        launcher: &mut Launcher,
        claim: &NodeClaim,
        options: &[LaunchOption],
        requests: &'a veneer_engine::resources::ResourceList,
    ) -> Claim<'a> {
        let mut vocabulary = launcher.vocabulary().clone();
        let requirements = claim_requirements(claim, &mut vocabulary);
        *launcher = Launcher::new(vocabulary, &self.catalogue.rules);
        let mut candidates: Vec<Candidate<'a>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for option in options {
            let entries = self.by_name.get(option.instance_type.as_str());
            for it in entries
                .into_iter()
                .flatten()
                .filter_map(|entry| self.catalogue.types.get(*entry))
            {
                let own = &self.catalogue.vocabulary;
                let offering = it.offerings.iter().find(|offering| {
                    offering.capacity_type(own) == Some(option.capacity_type.as_str())
                        && offering.zone(own) == Some(option.zone.as_str())
                });
                let Some(offering) = offering else { continue };
                let at = *places.entry(&it.name).or_insert_with(|| {
                    candidates.push(Candidate {
                        instance_type: it,
                        capacity: std::borrow::Cow::Borrowed(&it.capacity),
                        allocatable: quantities(&option.allocatable),
                        offerings: Vec::new(),
                    });
                    candidates.len() - 1
                });
                if let Some(candidate) = candidates.get_mut(at) {
                    candidate.offerings.push(Priced {
                        offering,
                        price: option.price,
                        overlaid: false,
                    });
                }
                break;
            }
        }
        let annotations = claim.metadata.annotations.as_ref();
        let says = |key: &str| {
            annotations
                .and_then(|all| all.get(key))
                .is_some_and(|value| value == "true")
        };
        let relaxed = says(karpenter::NODECLAIM_MIN_VALUES_RELAXED);
        let mut made = launcher.claim(&requirements, requests, candidates, relaxed);
        made.price_overlay =
            annotations.is_some_and(|all| all.contains_key(karpenter::PRICE_OVERLAY_APPLIED));
        made
    }

    /// Sends a request; a launch template that somebody deleted meanwhile is made again, once.
    async fn ask(&self, planned: &Requests, attempt: usize) -> Result<FleetAnswer, Error> {
        self.ensure_templates(planned).await?;
        let request = planned.fleet_of(attempt);
        let answer = self.client.create_fleet(&request).await;
        let is_gone = |code: &str| code.starts_with("InvalidLaunchTemplate") && code.contains("NotFound");
        let lost = match &answer {
            Ok(answer) => answer.launched.is_empty() && answer.errors.iter().any(|one| is_gone(&one.code)),
            Err(error) => is_gone(error.code()),
        };
        if !lost {
            return answer;
        }
        self.templates.lock().await.clear();
        self.ensure_templates(planned).await?;
        // The same token would give the same answer.
        let request = planned.fleet_of(attempt + ATTEMPTS);
        self.client.create_fleet(&request).await
    }

    async fn ensure_templates(&self, planned: &Requests) -> Result<(), Error> {
        // Held while they are made, so that a burst of claims makes each one once.
        let mut known = self.templates.lock().await;
        for (template, request) in &planned.templates {
            if known
                .get(template)
                .is_none_or(|used| used.elapsed() > TEMPLATE_LIFE / 2)
            {
                self.client.create_template(request).await?;
                debug!(template, "launch template is there");
            }
            known.insert(template.clone(), Instant::now());
        }
        Ok(())
    }

    /// Deletes launch templates of this cluster that nobody has used for a while.
    pub async fn tidy(&self) -> Result<usize, Error> {
        let cluster = [(names::CLUSTER_TAG.to_owned(), self.cluster.name.clone())];
        let found = self.client.templates(tag_filters(&cluster.into())).await?;
        let mut known = self.templates.lock().await;
        known.retain(|_, used| used.elapsed() < TEMPLATE_LIFE);
        let young = self.client.now() - k8s_openapi::jiff::SignedDuration::from_secs(600);
        let unused = found
            .into_iter()
            .filter(|one| !known.contains_key(&one.name) && one.created.is_none_or(|at| at < young));
        let mut deleted = 0;
        for template in unused {
            self.client.delete_template(&template.name).await?;
            deleted += 1;
        }
        Ok(deleted)
    }

    fn shortages_of(&self, planned: &Requests, answer: &FleetAnswer) -> Vec<Shortage> {
        let errors = answer
            .errors
            .iter()
            .filter(|one| SHORT.contains(&one.code.as_str()));
        let mut short: Vec<Shortage> = Vec::new();
        for error in errors {
            if error.code == "InsufficientFreeAddressesInSubnet" {
                self.set_free_addresses(&error.subnet_id, 0);
            }
            let overrides = planned.request.overrides().map(|(_, one)| one);
            // An error that names nothing is about everything that was asked for.
            let about = overrides.filter(|one| {
                (error.instance_type.is_empty() || *one.instance_type == *error.instance_type)
                    && (error.zone.is_empty() || one.zone == error.zone)
                    && (error.subnet_id.is_empty() || one.subnet_id == error.subnet_id)
            });
            short.extend(about.map(|one| Shortage {
                instance_type: one.instance_type.to_string(),
                capacity_type: planned.capacity_type.to_owned(),
                zone: one.zone.clone(),
            }));
        }
        short.sort();
        short.dedup();
        short
    }

    fn launched(
        &self,
        planned: &Requests,
        answer: &FleetAnswer,
        options: &[LaunchOption],
    ) -> Option<Launched> {
        let first = answer.launched.first()?;
        let mut overrides = planned.request.overrides().map(|(_, one)| one);
        let chosen = overrides.find(|one| {
            *one.instance_type == *first.instance_type
                && (first.zone.is_empty() || one.zone == first.zone)
                && (first.subnet_id.is_empty() || one.subnet_id == first.subnet_id)
        });
        let machine = Machine {
            id: first.id.clone(),
            instance_type: first.instance_type.clone(),
            zone: chosen.map_or_else(|| first.zone.clone(), |one| one.zone.clone()),
            state: "pending".to_owned(),
            launched: self.client.now(),
            is_spot: planned.capacity_type == engine_labels::SPOT,
            image_id: chosen.map(|one| one.image_id.clone()).unwrap_or_default(),
            subnet_id: chosen.map(|one| one.subnet_id.clone()).unwrap_or_default(),
            groups: Vec::new(),
            can_hibernate: false,
            is_hibernated: false,
            tags: planned.instance_tags.clone(),
        };
        self.remember(machine.clone());
        let mut launched = adopted(&machine, options);
        if planned.capacity_type == engine_labels::RESERVED {
            let labels = &mut launched.labels;
            labels.insert(
                karpenter::CAPACITY_TYPE.to_owned(),
                engine_labels::RESERVED.to_owned(),
            );
        }
        Some(launched)
    }
}

fn shortage(option: &LaunchOption) -> Shortage {
    Shortage {
        instance_type: option.instance_type.clone(),
        capacity_type: option.capacity_type.clone(),
        zone: option.zone.clone(),
    }
}

fn is_same(one: &Shortage, option: &LaunchOption) -> bool {
    one.instance_type == option.instance_type
        && one.capacity_type == option.capacity_type
        && one.zone == option.zone
}

/// An instance as the claim will have it.
fn adopted(machine: &Machine, options: &[LaunchOption]) -> Launched {
    let capacity_type = if machine.is_spot {
        engine_labels::SPOT
    } else {
        engine_labels::ON_DEMAND
    };
    let of_type = options
        .iter()
        .filter(|option| option.instance_type == machine.instance_type);
    let same = |option: &&LaunchOption| option.zone == machine.zone && option.capacity_type == capacity_type;
    let option = of_type.clone().find(same).or_else(|| of_type.clone().next());
    let mut labels = option.map(|option| (*option.labels).clone()).unwrap_or_default();
    labels.insert(
        kubernetes::INSTANCE_TYPE.to_owned(),
        machine.instance_type.clone(),
    );
    labels.insert(kubernetes::ZONE.to_owned(), machine.zone.clone());
    labels.insert(karpenter::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    Launched {
        provider_id: provider_id(machine),
        labels,
        capacity: option
            .map(|option| (*option.capacity).clone())
            .unwrap_or_default(),
        allocatable: option
            .map(|option| (*option.allocatable).clone())
            .unwrap_or_default(),
        image_id: Some(machine.image_id.clone()).filter(|id| !id.is_empty()),
        annotations: match machine.tags.get(aws::NODE_CLASS_HASH) {
            Some(hash) => [
                (aws::NODE_CLASS_HASH.to_owned(), hash.clone()),
                (
                    aws::NODE_CLASS_HASH_VERSION.to_owned(),
                    class_hash::VERSION.to_owned(),
                ),
            ]
            .into(),
            None => BTreeMap::new(),
        },
    }
}

/// What EC2 said, once for each different thing.
fn combined(errors: &[FleetError]) -> String {
    let mut texts: Vec<String> = errors
        .iter()
        .map(|one| format!("{}: {}", one.code, one.message))
        .collect();
    texts.sort();
    texts.dedup();
    match texts.is_empty() {
        true => "CreateFleet gave neither an instance nor an error".to_owned(),
        false => format!("CreateFleet: {}", texts.join("; ")),
    }
}
