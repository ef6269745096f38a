//! What an EC2NodeClass selects: asked of AWS, then written to its status.
//!
//! Asking ([`find`]) and judging ([`status`]) are apart: the status is a pure function of what was found. A part that
//! could not be asked keeps what the status had, since doubt takes nothing away; only an answer that finds nothing does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use veneer_api::ec2_node_class::{
    Ami, AmiFamily, AmiSelectorTerm, CONDITION_AMIS_READY, CONDITION_INSTANCE_PROFILE_READY,
    CONDITION_SECURITY_GROUPS_READY, CONDITION_SUBNETS_READY, SecurityGroup, Subnet as StatusSubnet,
};
use veneer_api::labels::{aws, kubernetes};
use veneer_api::{ConditionStatus, EC2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus};
use veneer_engine::plan::{Conditions, name};

use crate::client::Client;
use crate::ec2::{Group, Image, Subnet, filter, tag_filters};
use crate::error::Error;
use crate::names;

/// The conditions that make a class usable.
const NEEDED: [&str; 4] = [
    CONDITION_SUBNETS_READY,
    CONDITION_SECURITY_GROUPS_READY,
    CONDITION_AMIS_READY,
    CONDITION_INSTANCE_PROFILE_READY,
];

/// What was found for a class; each part by itself, with the reason where it failed.
#[derive(Clone, Debug)]
pub struct Found {
    /// The subnets.
    pub subnets: Result<Vec<Subnet>, String>,
    /// The security groups.
    pub groups: Result<Vec<Group>, String>,
    /// The machine images, best first.
    pub images: Result<Vec<Ami>, String>,
    /// The instance profile.
    pub profile: Result<String, String>,
}

/// Where a class is used.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The name of the cluster.
    pub cluster_name: String,
    /// The version of Kubernetes, as `1.33`.
    pub kubernetes_version: String,
}

/// The family of a class: as stated, else that of its alias.
#[must_use]
pub fn family(spec: &Ec2NodeClassSpec) -> AmiFamily {
    if let Some(family) = &spec.ami_family {
        return family.clone();
    }
    let mut aliases = spec
        .ami_selector_terms
        .iter()
        .filter_map(|term| term.alias.as_deref());
    let family = aliases.next().and_then(|alias| alias.split('@').next());
    match family.unwrap_or_default() {
        "al2" => AmiFamily::Al2,
        "al2023" => AmiFamily::Al2023,
        "bottlerocket" => AmiFamily::Bottlerocket,
        "windows2019" => AmiFamily::Windows2019,
        "windows2022" => AmiFamily::Windows2022,
        "windows2025" => AmiFamily::Windows2025,
        _ => AmiFamily::Custom,
    }
}

/// Asks AWS for everything that a class selects.
pub async fn find(client: &Client, class: &EC2NodeClass, site: &Site, now: Timestamp) -> Found {
    let spec = class.spec.clone().unwrap_or_default();
    let text = |error: Error| error.to_string();
    Found {
        subnets: subnets(client, &spec).await.map_err(text),
        groups: groups(client, &spec).await.map_err(text),
        images: images(client, &spec, site, now).await,
        profile: profile(client, class, &spec, site).await.map_err(text),
    }
}

async fn subnets(client: &Client, spec: &Ec2NodeClassSpec) -> Result<Vec<Subnet>, Error> {
    let terms = &spec.subnet_selector_terms;
    let ids: Vec<&str> = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    let mut queries: Vec<Vec<Value>> = Vec::new();
    if !ids.is_empty() {
        queries.push(vec![filter("subnet-id", &ids)]);
    }
    queries.extend(
        terms
            .iter()
            .filter(|term| term.id.is_none())
            .map(|term| tag_filters(&term.tags)),
    );
    let mut found: BTreeMap<String, Subnet> = BTreeMap::new();
    for query in queries {
        found.extend(
            client
                .subnets(query)
                .await?
                .into_iter()
                .map(|one| (one.id.clone(), one)),
        );
    }
    let mut found: Vec<Subnet> = found.into_values().collect();
    // The one with the most room first, as people expect to see it.
    found.sort_by(|a, b| {
        b.free_addresses
            .cmp(&a.free_addresses)
            .then_with(|| a.id.cmp(&b.id))
    });
    Ok(found)
}

async fn groups(client: &Client, spec: &Ec2NodeClassSpec) -> Result<Vec<Group>, Error> {
    let terms = &spec.security_group_selector_terms;
    let ids: Vec<&str> = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    let names: Vec<&str> = terms.iter().filter_map(|term| term.name.as_deref()).collect();
    let mut queries: Vec<Vec<Value>> = Vec::new();
    for (key, values) in [("group-id", &ids), ("group-name", &names)] {
        if !values.is_empty() {
            queries.push(vec![filter(key, values)]);
        }
    }
    let tagged = terms
        .iter()
        .filter(|term| term.id.is_none() && term.name.is_none());
    queries.extend(tagged.map(|term| tag_filters(&term.tags)));
    let mut found: BTreeMap<String, Group> = BTreeMap::new();
    for query in queries {
        let groups = client.security_groups(query).await?;
        found.extend(groups.into_iter().map(|one| (one.id.clone(), one)));
    }
    Ok(found.into_values().collect())
}

async fn profile(
    client: &Client,
    class: &EC2NodeClass,
    spec: &Ec2NodeClassSpec,
    site: &Site,
) -> Result<String, Error> {
    let Some(role) = &spec.role else {
        return Ok(spec.instance_profile.clone().unwrap_or_default());
    };
    let profile = names::profile(&site.cluster_name, client.region(), class, role);
    let tags = names::class_tags(&site.cluster_name, class);
    client.ensure_profile(&profile, role, &tags).await?;
    Ok(profile)
}

/// Removes what was made for a class.
pub async fn clean(client: &Client, class: &EC2NodeClass, site: &Site) -> Result<(), Error> {
    let tags = names::class_tags(&site.cluster_name, class);
    for template in client.templates(tag_filters(&tags)).await? {
        client.delete_template(&template.name).await?;
    }
    let role = class.spec.as_ref().and_then(|spec| spec.role.as_ref());
    if let Some(role) = role {
        let profile = names::profile(&site.cluster_name, client.region(), class, role);
        client.delete_profile(&profile).await?;
    }
    Ok(())
}

/// Which types an image suits beside its architecture.
#[derive(Clone, Copy, Debug)]
enum Variant {
    /// No accelerators.
    Standard,
    Nvidia,
    Neuron,
}

impl Variant {
    fn requirements(self) -> Vec<NodeSelectorRequirement> {
        let one = |key: &str, operator: &str| NodeSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: None,
        };
        match self {
            Self::Standard => vec![
                one(aws::INSTANCE_ACCELERATOR_COUNT, "DoesNotExist"),
                one(aws::INSTANCE_GPU_COUNT, "DoesNotExist"),
            ],
            Self::Nvidia => vec![one(aws::INSTANCE_GPU_COUNT, "Exists")],
            Self::Neuron => vec![one(aws::INSTANCE_ACCELERATOR_COUNT, "Exists")],
        }
    }
}

const ANY: &[Variant] = &[];
const STANDARD: &[Variant] = &[Variant::Standard];
const NVIDIA: &[Variant] = &[Variant::Nvidia];
const NEURON: &[Variant] = &[Variant::Neuron];
const STANDARD_AND_NEURON: &[Variant] = &[Variant::Standard, Variant::Neuron];
const NEURON_AND_NVIDIA: &[Variant] = &[Variant::Neuron, Variant::Nvidia];

/// The parameters that hold the images of an alias.
fn alias_parameters(alias: &str, version: &str) -> Vec<(String, &'static [Variant])> {
    let (family, release) = alias.split_once('@').unwrap_or((alias, "latest"));
    let recommended = |named: String| {
        if release == "latest" {
            "recommended".to_owned()
        } else {
            named
        }
    };
    let eks = format!("/aws/service/eks/optimized-ami/{version}");
    match family {
        "al2023" => {
            let path = |arch: &str, variant: &str| {
                let named = format!("amazon-eks-node-al2023-{arch}-{variant}-{version}-{release}");
                format!(
                    "{eks}/amazon-linux-2023/{arch}/{variant}/{}/image_id",
                    recommended(named)
                )
            };
            vec![
                (path("x86_64", "standard"), STANDARD),
                (path("x86_64", "nvidia"), NVIDIA),
                (path("x86_64", "neuron"), NEURON),
                (path("arm64", "standard"), STANDARD),
                (path("arm64", "nvidia"), NVIDIA),
            ]
        }
        "al2" => {
            let path = |folder: &str, name: &str| {
                let named = format!("amazon-eks-{name}-{version}-{release}");
                format!("{eks}/{folder}/{}/image_id", recommended(named))
            };
            vec![
                (path("amazon-linux-2", "node"), STANDARD),
                (path("amazon-linux-2-arm64", "arm64-node"), STANDARD),
                (path("amazon-linux-2-gpu", "gpu-node"), NEURON_AND_NVIDIA),
            ]
        }
        "bottlerocket" => {
            let release = release.trim_start_matches('v');
            let path = |flavour: &str, arch: &str| {
                format!("/aws/service/bottlerocket/aws-k8s-{version}{flavour}/{arch}/{release}/image_id")
            };
            vec![
                (path("", "x86_64"), STANDARD_AND_NEURON),
                (path("", "arm64"), STANDARD),
                (path("-nvidia", "x86_64"), NVIDIA),
                (path("-nvidia", "arm64"), NVIDIA),
            ]
        }
        windows => {
            let year = windows.trim_start_matches("windows");
            let path = format!(
                "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{version}/image_id"
            );
            vec![(path, ANY)]
        }
    }
}

async fn images(
    client: &Client,
    spec: &Ec2NodeClassSpec,
    site: &Site,
    now: Timestamp,
) -> Result<Vec<Ami>, String> {
    let text = |error: Error| error.to_string();
    let terms = &spec.ami_selector_terms;
    if let Some(alias) = terms.iter().find_map(|term| term.alias.as_deref()) {
        let mut known: BTreeMap<String, &'static [Variant]> = BTreeMap::new();
        for (parameter, variants) in alias_parameters(alias, &site.kubernetes_version) {
            if let Some(id) = client.parameter(&parameter).await.map_err(text)? {
                known.insert(id, variants);
            }
        }
        if known.is_empty() {
            return Err(format!(
                "amiSelectorTerms: AWS publishes no image for the alias {alias} and Kubernetes {}; choose another version",
                site.kubernetes_version
            ));
        }
        let ids: Vec<&str> = known.keys().map(String::as_str).collect();
        let found = client
            .images(vec![filter("image-id", &ids)], &[])
            .await
            .map_err(text)?;
        return Ok(chosen(&found, &known, now));
    }
    let mut ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    for parameter in terms.iter().filter_map(|term| term.ssm_parameter.as_deref()) {
        ids.extend(client.parameter(parameter).await.map_err(text)?);
    }
    let mut found = Vec::new();
    if !ids.is_empty() {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        found.extend(
            client
                .images(vec![filter("image-id", &ids)], &[])
                .await
                .map_err(text)?,
        );
    }
    for term in terms
        .iter()
        .filter(|term| term.id.is_none() && term.ssm_parameter.is_none())
    {
        let (filters, owners) = image_query(term);
        found.extend(client.images(filters, &owners).await.map_err(text)?);
    }
    Ok(chosen(&found, &BTreeMap::new(), now))
}

fn image_query(term: &AmiSelectorTerm) -> (Vec<Value>, Vec<&str>) {
    let mut filters = tag_filters(&term.tags);
    let owner = term.owner.as_deref();
    let owners = match &term.name {
        // Without that, images that strangers made public under the same name would count.
        Some(_) => owner.map_or_else(|| vec!["self", "amazon"], |owner| vec![owner]),
        None => owner.into_iter().collect(),
    };
    if let Some(name) = &term.name {
        filters.push(filter("name", &[name]));
    }
    (filters, owners)
}

/// Of the images that suit the same types the newest that is not retired; newest first.
fn chosen(found: &[Image], known: &BTreeMap<String, &'static [Variant]>, now: Timestamp) -> Vec<Ami> {
    let rank = |image: &Image| {
        (
            image.deprecated.is_none_or(|at| at > now),
            image.created,
            image.name.clone(),
        )
    };
    let mut best: BTreeMap<String, (&Image, Vec<NodeSelectorRequirement>)> = BTreeMap::new();
    for image in found {
        let arch = match image.architecture.as_str() {
            "x86_64" => "amd64",
            "arm64" => "arm64",
            _ => continue,
        };
        let variants = known.get(&image.id).copied().unwrap_or_default();
        let mut sets: Vec<Vec<NodeSelectorRequirement>> =
            variants.iter().map(|one| one.requirements()).collect();
        if sets.is_empty() {
            sets.push(Vec::new());
        }
        for mut requirements in sets {
            requirements.insert(
                0,
                NodeSelectorRequirement {
                    key: kubernetes::ARCH.to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![arch.to_owned()]),
                },
            );
            let key = format!("{requirements:?}");
            match best.get(&key) {
                Some((rival, _)) if rank(rival) >= rank(image) => {}
                _ => drop(best.insert(key, (image, requirements))),
            }
        }
    }
    let mut best: Vec<(&Image, Vec<NodeSelectorRequirement>)> = best.into_values().collect();
    best.sort_by(|(a, _), (b, _)| b.created.cmp(&a.created).then_with(|| a.id.cmp(&b.id)));
    best.into_iter()
        .map(|(image, requirements)| Ami {
            id: image.id.clone(),
            name: Some(image.name.clone()).filter(|name| !name.is_empty()),
            deprecated: image.deprecated.filter(|at| *at <= now).map(|_| true),
            requirements,
            ..Ami::default()
        })
        .collect()
}

/// The status that a class should have.
#[must_use]
pub fn status(class: &EC2NodeClass, found: &Found, now: Timestamp) -> Ec2NodeClassStatus {
    let mut status = class.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, class.metadata.generation, now);
    let mut judge =
        |type_: &str, what: &str, field: &str, outcome: Result<usize, &String>, had: bool| match outcome {
            Ok(0) => conditions.set(
                type_,
                ConditionStatus::False,
                &format!("{what}NotFound"),
                &format!("{field} of {} match nothing", name(&class.metadata)),
            ),
            Ok(_) => conditions.set_true(type_),
            // What was found before still stands.
            Err(_) if had => {}
            Err(error) => conditions.set(
                type_,
                ConditionStatus::Unknown,
                &format!("{what}LookupFailed"),
                error,
            ),
        };
    judge(
        CONDITION_SUBNETS_READY,
        "Subnets",
        "subnetSelectorTerms",
        found.subnets.as_ref().map(Vec::len),
        !status.subnets.is_empty(),
    );
    judge(
        CONDITION_SECURITY_GROUPS_READY,
        "SecurityGroups",
        "securityGroupSelectorTerms",
        found.groups.as_ref().map(Vec::len),
        !status.security_groups.is_empty(),
    );
    judge(
        CONDITION_AMIS_READY,
        "AMI",
        "amiSelectorTerms",
        found.images.as_ref().map(Vec::len),
        !status.amis.is_empty(),
    );
    judge(
        CONDITION_INSTANCE_PROFILE_READY,
        "InstanceProfile",
        "role or instanceProfile",
        found
            .profile
            .as_ref()
            .map(|profile| usize::from(!profile.is_empty())),
        status.instance_profile.is_some(),
    );
    conditions.sum_up(&NEEDED);
    status.conditions = conditions.into_list();
    if let Ok(subnets) = &found.subnets {
        let subnets = subnets.iter().map(|one| StatusSubnet {
            id: one.id.clone(),
            zone: one.zone.clone(),
            zone_id: Some(one.zone_id.clone()).filter(|id| !id.is_empty()),
            ..StatusSubnet::default()
        });
        status.subnets = subnets.collect();
    }
    if let Ok(groups) = &found.groups {
        let groups = groups.iter().map(|one| SecurityGroup {
            id: one.id.clone(),
            name: Some(one.name.clone()),
            ..SecurityGroup::default()
        });
        status.security_groups = groups.collect();
    }
    if let Ok(images) = &found.images {
        status.amis.clone_from(images);
    }
    if let Ok(profile) = &found.profile {
        status.instance_profile = Some(profile.clone()).filter(|profile| !profile.is_empty());
    }
    status
}
