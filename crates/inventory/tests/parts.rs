//! Parts of the inventory: what stays, what is replaced, and what the allocator gets.

mod support;

use support::{A, B, NOW, exact, instance, organization, part, spot};
use veneer_billing::{Allocator, Purchase};
use veneer_inventory::{
    Account, DataKind, InstanceKind, InstanceRow, Instances, Inventory, Part, Rows, cluster_of,
};

#[test]
fn what_cannot_be_collected_keeps_its_rows_and_its_age() {
    let mut inventory = organization();
    let of_b = part(B, DataKind::Instances);
    inventory.failed(&of_b, "AccessDenied", NOW);
    let collected = inventory.part(&of_b).expect("the part");
    assert_eq!(collected.rows.as_ref().map(Rows::len), Some(2));
    assert_eq!(
        (inventory.age(&of_b, NOW), collected.error.as_deref()),
        (Some(50), Some("AccessDenied"))
    );
    inventory.replace(&of_b, Rows::Instances(Instances::new()), NOW);
    let collected = inventory.part(&of_b).expect("the part");
    assert!(collected.rows.as_ref().is_some_and(Rows::is_empty));
    assert_eq!(
        (inventory.age(&of_b, NOW + 5), collected.error.as_deref()),
        (Some(5), None)
    );
}

#[test]
fn a_part_that_was_never_collected_has_no_age_and_takes_it_from_its_kind() {
    let mut inventory = organization();
    assert_eq!(inventory.oldest(DataKind::Instances, NOW), Some(50));
    inventory.expect(Part::new(B, "eu-west-1", DataKind::Instances));
    assert_eq!(
        inventory.age(&Part::new(B, "eu-west-1", DataKind::Instances), NOW),
        None
    );
    assert_eq!(inventory.oldest(DataKind::Instances, NOW), None);
    // Expecting what is there already changes nothing.
    inventory.expect(part(B, DataKind::Instances));
    assert_eq!(inventory.age(&part(B, DataKind::Instances), NOW), Some(50));
}

#[test]
fn the_rows_decide_of_which_kind_a_part_is() {
    let mut inventory = Inventory::new(Vec::new());
    inventory.replace(&part(A, DataKind::Prices), Rows::Instances(Instances::new()), NOW);
    assert_eq!(inventory.part(&part(A, DataKind::Prices)), None);
    assert!(inventory.part(&part(A, DataKind::Instances)).is_some());
}

#[test]
fn zones_mean_the_same_in_all_accounts() {
    let organization = organization().organization(NOW);
    let zone = |id: &str| {
        let mut instances = organization.instances.iter();
        &instances.find(|one| one.id == id).expect(id).zone
    };
    assert_eq!(
        (zone("i-a1").as_str(), zone("i-b1").as_str()),
        ("use1-az1", "use1-az2")
    );
    let zonal = organization
        .reserved_instances
        .iter()
        .find(|one| one.id == "ri-3");
    assert_eq!(zonal.and_then(|one| one.zone.as_deref()), Some("use1-az1"));
}

#[test]
fn the_zone_id_of_an_instance_is_enough_for_the_reservations_of_its_account() {
    let mut inventory = Inventory::new(vec![Account {
        id: A.to_owned(),
        name: String::new(),
    }]);
    let mut row = instance("i-1", "c5.large");
    row.kind.zone_id = "use1-az4".to_owned();
    inventory.replace(
        &part(A, DataKind::Instances),
        Rows::Instances([row].into_iter().collect()),
        NOW,
    );
    let zonal = support::reserved("ri", A, "c5.large", Some("us-east-1a"), 1);
    inventory.replace(
        &part(A, DataKind::ReservedInstances),
        Rows::ReservedInstances(vec![zonal]),
        NOW,
    );
    let organization = inventory.organization(NOW);
    let allocator = Allocator::new(&organization);
    let left = allocator.now(NOW).commitment("ri").map(|one| one.left());
    assert_eq!(left, Some(exact("0")));
}

#[test]
fn spot_costs_its_price_and_at_most_the_list_price_where_that_is_unknown() {
    let mut inventory = organization();
    let rows = [
        spot("i-known", "m5.large"),
        spot("i-unknown", "m5.xlarge"),
        spot("i-nobody", "x9.large"),
    ];
    inventory.replace(
        &part(A, DataKind::Instances),
        Rows::Instances(rows.into_iter().collect()),
        NOW,
    );
    let estimate = inventory.estimate(NOW);
    let price = |id: &str| {
        let mut instances = estimate.organization.instances.iter();
        instances.find(|one| one.id == id).expect(id).purchase.clone()
    };
    assert_eq!(price("i-known"), Purchase::Spot(exact("0.035")));
    assert_eq!(price("i-unknown"), Purchase::Spot(exact("0.192")));
    assert_eq!(price("i-nobody"), Purchase::Spot(exact("0")));
    let estimated: Vec<&str> = estimate.prices.iter().map(String::as_str).collect();
    assert_eq!(estimated, ["i-nobody", "i-unknown"]);
}

#[test]
fn an_instance_that_was_launched_by_a_clock_ahead_of_ours_runs_nevertheless() {
    let mut inventory = organization();
    let mut row = instance("i-1", "c5.large");
    row.launched = NOW + 30;
    inventory.replace(
        &part(B, DataKind::Instances),
        Rows::Instances([row].into_iter().collect()),
        NOW,
    );
    let organization = inventory.organization(NOW);
    assert!(Allocator::new(&organization).now(NOW).usage("i-1").is_some());
}

#[test]
fn instances_hold_once_what_they_have_in_common() {
    let rows = (0..1000).map(|number| InstanceRow {
        id: format!("i-{number:017x}"),
        kind: InstanceKind {
            zone: ["us-east-1a", "us-east-1b"][number % 2].to_owned(),
            ..InstanceKind::default()
        },
        ..InstanceRow::default()
    });
    let instances: Instances = rows.collect();
    assert_eq!((instances.len(), instances.kinds().len()), (1000, 2));
    let third = instances.iter().nth(3).expect("a row");
    assert_eq!(
        (third.id, third.kind.zone.as_str()),
        ("i-00000000000000003", "us-east-1b")
    );
}

#[test]
fn a_cluster_is_known_by_the_key_of_a_tag() {
    assert_eq!(
        cluster_of(["Name", "kubernetes.io/cluster/prod", "eks:cluster-name"]),
        "prod"
    );
    assert_eq!(
        cluster_of(["kubernetes.io/cluster/b", "kubernetes.io/cluster/a"]),
        "a"
    );
    assert_eq!(cluster_of(["Name", "kubernetes.io/cluster/"]), "");
}
