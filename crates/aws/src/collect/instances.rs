//! Running instances.

use serde_json::json;
use veneer_billing::{Machine, Platform, Tenancy, family_of};
use veneer_inventory::{InstanceKind, InstanceRow, Instances, Lifecycle, cluster_of};

use super::read::{described, list, needed, seconds, within};
use crate::call::Call;
use crate::client::Client;
use crate::ec2::filter;
use crate::error::Error;
use crate::wire::{field, items};

impl Client {
    /// Every running instance of the region; `node_name_tag` is the tag that names the node.
    pub(super) async fn running_instances(&self, node_name_tag: &str) -> Result<Instances, Error> {
        let mut found = Instances::new();
        let request = json!({
            "Filter": [filter("instance-state-name", &["running"])], "MaxResults": 1000,
            // They use commitments like any other.
            "IncludeManagedResources": true,
        });
        let region = self.region();
        let read = |reservation: roxmltree::Node<'_, '_>| {
            for item in items(reservation, "instancesSet") {
                found.push(row(item, region, node_name_tag)?);
            }
            Ok(())
        };
        list(self, Call::DescribeInstances, request, "reservationSet", read).await?;
        Ok(found)
    }
}

fn row(item: roxmltree::Node<'_, '_>, region: &str, node_name_tag: &str) -> Result<InstanceRow, String> {
    let instance_type = needed(item, "instanceType")?;
    let tags: Vec<(String, String)> = items(item, "tagSet")
        .into_iter()
        .map(|tag| (field(tag, "key"), field(tag, "value")))
        .collect();
    let mut names = tags.iter().filter(|(key, _)| key == node_name_tag);
    let lifecycle = match field(item, "instanceLifecycle").as_str() {
        "spot" => Lifecycle::Spot,
        "capacity-block" => Lifecycle::CapacityBlock,
        _ => Lifecycle::OnDemand,
    };
    let reservation = field(item, "capacityReservationId");
    Ok(InstanceRow {
        id: needed(item, "instanceId")?,
        kind: InstanceKind {
            machine: Machine {
                region: region.to_owned(),
                platform: platform(item, &instance_type),
                tenancy: tenancy(&within(item, "placement", "tenancy"))?,
                instance_type,
            },
            zone: within(item, "placement", "availabilityZone"),
            zone_id: within(item, "placement", "availabilityZoneId"),
            lifecycle,
            capacity_reservation: Some(reservation).filter(|id| !id.is_empty()),
            cluster: cluster_of(tags.iter().map(|(key, _)| key.as_str())).to_owned(),
        },
        launched: seconds(&needed(item, "launchTime")?)?,
        private_dns_name: field(item, "privateDnsName"),
        node_name: names.next().map(|(_, value)| value.clone()).unwrap_or_default(),
    })
}

fn platform(item: roxmltree::Node<'_, '_>, instance_type: &str) -> Platform {
    if family_of(instance_type).starts_with("mac") {
        return Platform::MacOs;
    }
    let operation = field(item, "usageOperation");
    let details = field(item, "platformDetails");
    match (operation.as_str(), details.as_str()) {
        ("", "") if field(item, "platform").eq_ignore_ascii_case("windows") => Platform::Windows,
        ("", "") => Platform::Linux,
        ("", details) => described(details),
        (operation, _) => Platform::from_usage_operation(operation),
    }
}

/// The tenancy with a name of EC2; none is the default.
pub(super) fn tenancy(name: &str) -> Result<Tenancy, String> {
    match name {
        "" => Ok(Tenancy::Default),
        name => Tenancy::from_name(name).ok_or_else(|| format!("{name:?} is no tenancy")),
    }
}
