//! EC2's part of the collection as moto plays it: another implementation of the wire format, which checks signatures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::time::Duration;

use serde_json::json;
use support::{Bed, keys};
use veneer_aws::collect::{Collector, Settings, Target};
use veneer_aws::{Client, Patience};
use veneer_billing::{Exact, Platform, Purchase, Tenancy};
use veneer_inventory::{DataKind, Part};

const ACCOUNT: &str = "123456789012";
const REGION: &str = "us-west-2";
const NOW: i64 = 1_794_988_800;

#[test]
fn instances_and_reservations_of_moto_are_collected_and_what_it_lacks_fails_alone() {
    let bed = Bed::start();
    let run = |instance_type: &str, count: &str| {
        let parameters = [
            ("ImageId", bed.prepared.image.as_str()),
            ("InstanceType", instance_type),
            ("MinCount", count),
            ("MaxCount", count),
            ("Placement.AvailabilityZone", "us-west-2a"),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "kubernetes.io/cluster/prod"),
            ("TagSpecification.1.Tag.1.Value", "owned"),
        ];
        bed.aws.call("ec2", "RunInstances", &parameters).unwrap();
    };
    run("m5.large", "3");
    run("c5.large", "2");
    let reserved = |id: &str, zone: Option<&str>, state: &str| {
        let scope = zone.map_or("Region", |_| "Availability Zone");
        let mut row = json!({
            "ReservedInstancesId": id, "InstanceType": "m5.large", "Scope": scope, "State": state, "InstanceCount": 2,
            "Start": "2026-01-01T00:00:00+00:00", "End": "2027-01-01T00:00:00+00:00", "Duration": 31_536_000,
            "FixedPrice": 219.5, "UsagePrice": 0.0, "ProductDescription": "Linux/UNIX", "InstanceTenancy": "default",
            "RecurringCharges": [{"Amount": 0.0309, "Frequency": "Hourly"}],
        });
        if let Some(zone) = zone {
            row["AvailabilityZone"] = zone.into();
        }
        row
    };
    let capacity = json!({
        "CapacityReservationId": "cr-1", "OwnerId": ACCOUNT, "AvailabilityZone": "us-west-2a", "InstanceType": "c5.large",
        "InstancePlatform": "Linux/UNIX", "Tenancy": "default", "TotalInstanceCount": 3, "State": "active",
        "StartDate": "2026-01-01T00:00:00+00:00",
    });
    bed.aws
        .control(&json!({
            "reserved": [reserved("ri-1", None, "active"), reserved("ri-2", Some("us-west-2a"), "active"), reserved("ri-3", None, "retired")],
            "capacity": [capacity], "spot": {"m5.large:us-west-2a": 0.0312}, "throttle": {"DescribeReservedInstances": 2},
        }))
        .unwrap();
    let settings = Settings {
        accounts: vec![Target {
            id: ACCOUNT.to_owned(),
            regions: vec![REGION.to_owned()],
            ..Target::default()
        }],
        patience: Patience {
            attempts: 3,
            pause: (Duration::from_millis(5), Duration::from_millis(50)),
            ..Patience::default()
        },
        ..Settings::default()
    };
    let client = bed
        .runtime
        .block_on(Client::at(REGION, &bed.cluster.aws_url(), keys()))
        .unwrap();
    let mut collector = Collector::new(settings, &client);
    let mut inventory = collector.inventory();
    let round = bed.runtime.block_on(collector.collect(&mut inventory, NOW));
    let organization = inventory.organization(NOW);
    assert_eq!(organization.instances.len(), 5, "{round:?}");
    for instance in &organization.instances {
        assert_eq!(instance.zone, "usw2-az2", "names become ids");
        assert_eq!(instance.machine.platform, Platform::Linux);
        assert_eq!(instance.machine.tenancy, Tenancy::Default);
        assert_eq!(instance.purchase, Purchase::OnDemand);
    }
    let [regional, zonal] = organization.reserved_instances.as_slice() else {
        panic!("{:?}", organization.reserved_instances);
    };
    assert_eq!((regional.id.as_str(), regional.zone.as_deref()), ("ri-1", None));
    assert_eq!(
        (zonal.id.as_str(), zonal.zone.as_deref()),
        ("ri-2", Some("usw2-az2"))
    );
    assert_eq!(zonal.hourly, Exact::parse("0.0309").unwrap());
    assert_eq!(zonal.upfront, Exact::parse("219.5").unwrap());
    assert_eq!(organization.capacity_reservations[0].count, 3);
    let fresh = |account: &str, region: &str, kind| inventory.age(&Part::new(account, region, kind), NOW);
    assert_eq!(fresh(ACCOUNT, REGION, DataKind::SpotPrices), Some(0));
    // moto has no Savings Plans and no billing preferences: that says nothing about the rest.
    assert_eq!(fresh(ACCOUNT, "", DataKind::SavingsPlans), None);
    let failed: Vec<DataKind> = round.failed.iter().map(|(part, _)| part.kind).collect();
    assert!(
        failed.iter().all(|kind| matches!(
            kind,
            DataKind::SavingsPlans | DataKind::Prices | DataKind::Sharing
        )),
        "{round:?}"
    );
    assert_eq!(round.collected, 5, "{round:?}");
}
