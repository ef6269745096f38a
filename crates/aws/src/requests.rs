//! The requests of one launch: its launch templates and its fleet, in the words of EC2. Pure: what they say follows from
//! the claim, its class, the cluster and the engine's choice alone.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use veneer_api::labels::aws;
use veneer_api::{EC2NodeClass, NodeClaim};
use veneer_engine::launch::{AllocationStrategy, Fleet, FleetRequest, TargetCapacity};
use veneer_engine::plan::{name, node_pool_of};

use crate::class_hash::class_hash;
use crate::launch::Failure;
use crate::names;
use crate::template::{Cluster, Draft, tag_list};
use crate::wire;

/// What EC2 is to be asked.
#[derive(Debug)]
pub struct Requests {
    pub(crate) request: FleetRequest,
    pub(crate) capacity_type: &'static str,
    /// The name of each configuration's launch template, and the request that makes it.
    pub(crate) templates: Vec<(String, Value)>,
    /// The tags of the instance.
    pub(crate) instance_tags: BTreeMap<String, String>,
    fleet: Value,
    uid: String,
}

impl Requests {
    /// The requests for a claim.
    pub fn new(
        cluster: &Cluster,
        region: &str,
        claim: &NodeClaim,
        class: &EC2NodeClass,
        fleet: &Fleet,
    ) -> Result<Self, Failure> {
        let mut templates = Vec::with_capacity(fleet.request.configs.len());
        for config in &fleet.request.configs {
            let draft = Draft {
                cluster,
                region,
                class,
                claim,
                part: &config.template,
                capacity_type: fleet.capacity_type,
                target: fleet.request.target,
            };
            let template = draft.request();
            templates.push(template.map_err(|error| Failure::NodeClassNotReady(error.to_string()))?);
        }
        let tags = names::launch_tags(&cluster.name, class, claim);
        let mut instance_tags = tags.clone();
        instance_tags.insert(names::CLAIM_TAG.to_owned(), name(&claim.metadata).to_owned());
        instance_tags
            .entry("Name".to_owned())
            .or_insert_with(|| format!("{}/{}", node_pool_of(&claim.metadata), name(&claim.metadata)));
        // So that whoever finds the instance after a crash knows what it was made from.
        instance_tags.insert(
            aws::NODE_CLASS_HASH.to_owned(),
            class_hash(class, cluster.ca_bundle.as_deref()),
        );
        Ok(Self {
            fleet: fleet_request(&fleet.request, &templates, &tags, &instance_tags),
            instance_tags,
            request: fleet.request.clone(),
            capacity_type: fleet.capacity_type,
            templates,
            uid: claim.metadata.uid.clone().unwrap_or_default(),
        })
    }

    /// The parameters of every `CreateLaunchTemplate`.
    pub fn templates(&self) -> impl Iterator<Item = Vec<(String, String)>> {
        self.templates
            .iter()
            .map(|(_, request)| wire::parameters(request))
    }

    /// The parameters of the first `CreateFleet`.
    #[must_use]
    pub fn fleet(&self) -> Vec<(String, String)> {
        wire::parameters(&self.fleet_of(0))
    }

    /// The fleet request of an attempt. The token is the same for the same claim and attempt, whoever makes it.
    pub(crate) fn fleet_of(&self, attempt: usize) -> Value {
        let mut request = self.fleet.clone();
        if let Some(fields) = request.as_object_mut() {
            let token = format!("{}-{attempt}", self.uid);
            fields.insert("ClientToken".to_owned(), token.into());
        }
        request
    }
}

fn fleet_request(
    request: &FleetRequest,
    templates: &[(String, Value)],
    tags: &BTreeMap<String, String>,
    instance_tags: &BTreeMap<String, String>,
) -> Value {
    let configs: Vec<Value> = request
        .configs
        .iter()
        .zip(templates)
        .map(|(config, (template, _))| {
            let overrides: Vec<Value> = config
                .overrides
                .iter()
                .map(|one| {
                    json!({
                        "InstanceType": *one.instance_type, "SubnetId": one.subnet_id, "ImageId": one.image_id,
                        "AvailabilityZone": one.zone, "Priority": one.priority,
                    })
                })
                .collect();
            json!({
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": overrides,
            })
        })
        .collect();
    let strategy = request.strategy.map(AllocationStrategy::as_str);
    let target = request.target;
    let reserved =
        (target == TargetCapacity::ReservedCapacity).then_some("interruptible-capacity-reservation");
    json!({
        "Type": "instant",
        "Context": request.context,
        "LaunchTemplateConfigs": configs,
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": target.as_str(), "TotalTargetCapacity": 1},
        "SpotOptions": {"AllocationStrategy": strategy.filter(|_| target == TargetCapacity::Spot)},
        "OnDemandOptions": {"AllocationStrategy": strategy.filter(|_| target == TargetCapacity::OnDemand)},
        "ReservedCapacityOptions": {"ReservationType": reserved.into_iter().collect::<Vec<_>>()},
        "TagSpecification": [
            {"ResourceType": "instance", "Tag": tag_list(instance_tags)},
            {"ResourceType": "volume", "Tag": tag_list(instance_tags)},
            {"ResourceType": "fleet", "Tag": tag_list(tags)},
        ],
    })
}
