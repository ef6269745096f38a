//! What is asked of EC2, with answers as plain values. Lists are read page by page.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use roxmltree::{Document, Node};
use serde_json::{Value, json};

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::wire::{field, find, items};

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its zone.
    pub zone: String,
    /// The id of its zone.
    pub zone_id: String,
    /// How many addresses are free.
    pub free_addresses: i64,
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// A machine image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// `x86_64` or `arm64`.
    pub(crate) architecture: String,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
    /// When its owner retires it.
    pub(crate) deprecated: Option<Timestamp>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// Its type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    pub state: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// Whether it is a spot instance.
    pub is_spot: bool,
    /// Its machine image.
    pub image_id: String,
    /// Its subnet; empty while it is not known.
    pub subnet_id: String,
    /// Its security groups; empty while they are not known.
    pub groups: Vec<String>,
    /// Whether it can hibernate.
    pub can_hibernate: bool,
    /// Whether it was stopped with its memory kept.
    pub is_hibernated: bool,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// A launch template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Its name.
    pub(crate) name: String,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
}

/// What a fleet request led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetAnswer {
    /// The instances: id, type, zone, image.
    pub(crate) launched: Vec<FleetInstance>,
    /// What could not be had.
    pub(crate) errors: Vec<FleetError>,
}

/// An instance that a fleet request made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetInstance {
    /// Its id.
    pub(crate) id: String,
    /// Its type.
    pub(crate) instance_type: String,
    /// Its zone, if the answer has it.
    pub(crate) zone: String,
    /// Its subnet, if the answer has it.
    pub(crate) subnet_id: String,
}

/// An override that could not be launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetError {
    /// EC2's code.
    pub(crate) code: String,
    /// EC2's words.
    pub(crate) message: String,
    /// The type.
    pub(crate) instance_type: String,
    /// The zone.
    pub(crate) zone: String,
    /// The subnet.
    pub(crate) subnet_id: String,
}

/// A filter of a list.
pub(crate) fn filter(name: &str, values: &[&str]) -> Value {
    json!({"Name": name, "Value": values})
}

/// Filters for tags; `*` matches every value.
pub(crate) fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Value> {
    let one = |(key, value): (&String, &String)| match value.as_str() {
        "*" => filter("tag-key", &[key]),
        value => filter(&format!("tag:{key}"), &[value]),
    };
    tags.iter().map(one).collect()
}

fn time(item: Node<'_, '_>, name: &str) -> Option<Timestamp> {
    field(item, name).parse().ok()
}

fn tags(node: Node<'_, '_>) -> BTreeMap<String, String> {
    let items = items(node, "tagSet").into_iter();
    items
        .map(|item| (field(item, "key"), field(item, "value")))
        .collect()
}

impl Client {
    /// Reads all pages of a list: `read` takes what it needs from each.
    pub(crate) async fn pages(
        &self,
        call: Call,
        mut request: Value,
        mut read: impl FnMut(Node<'_, '_>),
    ) -> Result<(), Error> {
        loop {
            let text = self.query(call, &request).await?;
            let document = parse(call, &text)?;
            let root = document.root_element();
            read(root);
            let next = find(root, "nextToken").and_then(|one| one.text());
            match next.filter(|token| !token.is_empty()) {
                Some(token) => {
                    if let Some(fields) = request.as_object_mut() {
                        fields.insert("NextToken".to_owned(), token.into());
                    }
                }
                None => return Ok(()),
            }
        }
    }

    /// Subnets by id or filters.
    pub(crate) async fn subnets(&self, filters: Vec<Value>) -> Result<Vec<Subnet>, Error> {
        let mut found = Vec::new();
        let request = json!({"Filter": filters, "MaxResults": 1000});
        self.pages(Call::DescribeSubnets, request, |root| {
            for item in items(root, "subnetSet") {
                found.push(Subnet {
                    id: field(item, "subnetId"),
                    zone: field(item, "availabilityZone"),
                    zone_id: field(item, "availabilityZoneId"),
                    free_addresses: field(item, "availableIpAddressCount").parse().unwrap_or_default(),
                });
            }
        })
        .await?;
        Ok(found)
    }

    /// Security groups by filters.
    pub(crate) async fn security_groups(&self, filters: Vec<Value>) -> Result<Vec<Group>, Error> {
        let mut found = Vec::new();
        let request = json!({"Filter": filters, "MaxResults": 1000});
        self.pages(Call::DescribeSecurityGroups, request, |root| {
            for item in items(root, "securityGroupInfo") {
                found.push(Group {
                    id: field(item, "groupId"),
                    name: field(item, "groupName"),
                });
            }
        })
        .await?;
        Ok(found)
    }

    /// Available machine images by filters.
    pub(crate) async fn images(&self, mut filters: Vec<Value>, owners: &[&str]) -> Result<Vec<Image>, Error> {
        filters.push(filter("state", &["available"]));
        let mut found = Vec::new();
        let request =
            json!({"Filter": filters, "Owner": owners, "IncludeDeprecated": true, "MaxResults": 1000});
        self.pages(Call::DescribeImages, request, |root| {
            for item in items(root, "imagesSet") {
                found.push(Image {
                    id: field(item, "imageId"),
                    name: field(item, "name"),
                    architecture: field(item, "architecture"),
                    created: time(item, "creationDate"),
                    deprecated: time(item, "deprecationTime"),
                });
            }
        })
        .await?;
        Ok(found)
    }

    /// Instances by filters, in every state but `terminated`.
    pub(crate) async fn machines(&self, mut filters: Vec<Value>) -> Result<Vec<Machine>, Error> {
        let states = ["pending", "running", "stopping", "stopped", "shutting-down"];
        filters.push(filter("instance-state-name", &states));
        let mut found = Vec::new();
        let request = json!({"Filter": filters, "MaxResults": 1000});
        self.pages(Call::DescribeInstances, request, |root| {
            for reservation in items(root, "reservationSet") {
                found.extend(items(reservation, "instancesSet").into_iter().map(machine));
            }
        })
        .await?;
        Ok(found)
    }

    /// Our launch templates.
    pub(crate) async fn templates(&self, filters: Vec<Value>) -> Result<Vec<Template>, Error> {
        let mut found = Vec::new();
        let request = json!({"Filter": filters, "MaxResults": 200});
        self.pages(Call::DescribeLaunchTemplates, request, |root| {
            for item in items(root, "launchTemplates") {
                found.push(Template {
                    name: field(item, "launchTemplateName"),
                    created: time(item, "createTime"),
                });
            }
        })
        .await?;
        Ok(found)
    }

    /// Makes a launch template; one of that name has the same content.
    pub(crate) async fn create_template(&self, request: &Value) -> Result<(), Error> {
        match self.query(Call::CreateLaunchTemplate, request).await {
            Err(error) if error.code() == "InvalidLaunchTemplateName.AlreadyExistsException" => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Deletes a launch template; one that is gone is fine.
    pub(crate) async fn delete_template(&self, name: &str) -> Result<(), Error> {
        let request = json!({"LaunchTemplateName": name});
        match self.query(Call::DeleteLaunchTemplate, &request).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Launches.
    pub(crate) async fn create_fleet(&self, request: &Value) -> Result<FleetAnswer, Error> {
        let text = self.query(Call::CreateFleet, request).await?;
        let document = parse(Call::CreateFleet, &text)?;
        let root = document.root_element();
        let mut answer = FleetAnswer::default();
        for item in items(root, "fleetInstanceSet") {
            let overrides = find(item, "overrides");
            let of = |name: &str| overrides.map(|one| field(one, name)).unwrap_or_default();
            for id in items(item, "instanceIds") {
                answer.launched.push(FleetInstance {
                    id: id.text().unwrap_or_default().to_owned(),
                    instance_type: field(item, "instanceType"),
                    zone: of("availabilityZone"),
                    subnet_id: of("subnetId"),
                });
            }
        }
        for item in items(root, "errorSet") {
            let overrides = find(item, "overrides");
            let of = |name: &str| overrides.map(|one| field(one, name)).unwrap_or_default();
            answer.errors.push(FleetError {
                code: field(item, "errorCode"),
                message: field(item, "errorMessage"),
                instance_type: of("instanceType"),
                zone: of("availabilityZone"),
                subnet_id: of("subnetId"),
            });
        }
        Ok(answer)
    }

    /// Ends instances.
    pub(crate) async fn terminate(&self, ids: &[String]) -> Result<(), Error> {
        let request = json!({"InstanceId": ids});
        self.query(Call::TerminateInstances, &request).await.map(|_| ())
    }

    /// Stops an instance.
    pub(crate) async fn stop(&self, id: &str, hibernate: bool) -> Result<(), Error> {
        let request = json!({"InstanceId": [id], "Hibernate": hibernate.then_some(true)});
        self.query(Call::StopInstances, &request).await.map(|_| ())
    }

    /// Starts a stopped instance.
    pub(crate) async fn start(&self, id: &str) -> Result<(), Error> {
        let request = json!({"InstanceId": [id]});
        self.query(Call::StartInstances, &request).await.map(|_| ())
    }

    /// Makes a stopped instance one of another type.
    pub(crate) async fn change_type(&self, id: &str, instance_type: &str) -> Result<(), Error> {
        let request = json!({"InstanceId": id, "InstanceType": {"Value": instance_type}});
        self.query(Call::ModifyInstanceAttribute, &request)
            .await
            .map(|_| ())
    }
}

fn machine(item: Node<'_, '_>) -> Machine {
    let under = |outer: &str, inner: &str| {
        let outer = item.children().find(|one| one.tag_name().name() == outer);
        outer.map(|one| field(one, inner)).unwrap_or_default()
    };
    Machine {
        id: field(item, "instanceId"),
        instance_type: field(item, "instanceType"),
        zone: under("placement", "availabilityZone"),
        state: under("instanceState", "name"),
        launched: time(item, "launchTime").unwrap_or(Timestamp::UNIX_EPOCH),
        is_spot: field(item, "instanceLifecycle") == "spot"
            || !field(item, "spotInstanceRequestId").is_empty(),
        image_id: field(item, "imageId"),
        subnet_id: field(item, "subnetId"),
        groups: items(item, "groupSet")
            .into_iter()
            .map(|group| field(group, "groupId"))
            .collect(),
        can_hibernate: under("hibernationOptions", "configured") == "true",
        is_hibernated: under("stateReason", "code").contains("Hibernate"),
        tags: tags(item),
    }
}

pub(crate) fn parse(call: Call, text: &str) -> Result<Document<'_>, Error> {
    Document::parse(text).map_err(|error| Error::Unreadable {
        action: call.action(),
        message: error.to_string(),
    })
}
