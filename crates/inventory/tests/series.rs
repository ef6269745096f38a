//! The metrics: names and labels as dashboards read them, values as the allocator has them.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use support::{A, B, COMPUTE, FAMILY, NOW, REGION, instance, organization, parse, part, values};
use veneer_billing::Platform;
use veneer_inventory::series::{self, LabelNames, METRICS, Options};
use veneer_inventory::{DataKind, Inventory, Rows};

/// Every series of Lumina 0.4 with its labels.
const LUMINA: [(&str, &[&str]); 16] = [
    (
        "savings_plan_hourly_commitment",
        &[
            "savings_plan_arn",
            "account_id",
            "account_name",
            "type",
            "region",
            "instance_family",
        ],
    ),
    (
        "savings_plan_remaining_hours",
        &["savings_plan_arn", "account_id", "account_name", "type"],
    ),
    (
        "savings_plan_current_utilization_rate",
        &["savings_plan_arn", "account_id", "account_name", "type"],
    ),
    (
        "savings_plan_remaining_capacity",
        &["savings_plan_arn", "account_id", "account_name", "type"],
    ),
    (
        "savings_plan_utilization_percent",
        &["savings_plan_arn", "account_id", "account_name", "type"],
    ),
    (
        "ec2_reserved_instance",
        &[
            "account_id",
            "account_name",
            "region",
            "instance_type",
            "availability_zone",
        ],
    ),
    (
        "ec2_reserved_instance_count",
        &["account_id", "account_name", "region", "instance_family"],
    ),
    (
        "ec2_instance",
        &[
            "account_id",
            "account_name",
            "region",
            "instance_type",
            "availability_zone",
            "instance_id",
            "tenancy",
            "platform",
        ],
    ),
    (
        "ec2_instance_count",
        &["account_id", "account_name", "region", "instance_family"],
    ),
    (
        "ec2_instance_hourly_cost",
        &[
            "instance_id",
            "account_id",
            "account_name",
            "region",
            "instance_type",
            "cost_type",
            "availability_zone",
            "lifecycle",
            "pricing_accuracy",
            "node_name",
            "cluster_name",
            "host_name",
        ],
    ),
    (
        "lumina_data_freshness_seconds",
        &["account_id", "account_name", "region", "data_type"],
    ),
    (
        "lumina_data_last_success",
        &["account_id", "account_name", "region", "data_type"],
    ),
    ("lumina_controller_running", &[]),
    (
        "lumina_account_validation_status",
        &["account_id", "account_name"],
    ),
    (
        "lumina_account_validation_last_success_timestamp",
        &["account_id", "account_name"],
    ),
    (
        "lumina_account_validation_duration_seconds_sum",
        &["account_id", "account_name"],
    ),
];

fn all(inventory: &Inventory) -> String {
    series::all(inventory, &Options::default(), NOW)
}

fn pairs(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    let pairs = expected.iter();
    pairs.map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

#[test]
fn every_series_of_lumina_is_there_with_exactly_its_labels() {
    let samples = parse(&all(&organization()));
    for (name, labels) in LUMINA {
        let of_name: Vec<_> = samples.iter().filter(|sample| sample.name == name).collect();
        assert!(!of_name.is_empty(), "{name} is missing");
        let expected: BTreeSet<&str> = labels.iter().copied().collect();
        for sample in of_name {
            let found: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn every_metric_is_described_and_every_described_one_is_written() {
    let text = all(&organization());
    let described: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP "))
        .map(|line| line.split_once(' ').expect("a help text").0)
        .collect();
    let listed: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(described, listed);
    let written: BTreeSet<String> = parse(&text).into_iter().map(|sample| sample.name).collect();
    for name in listed {
        let histogram = format!("{name}_bucket");
        assert!(written.contains(name) || written.contains(&histogram), "{name}");
    }
}

#[test]
fn reserved_instances_are_a_presence_beside_true_counts_and_what_is_unused() {
    let text = all(&organization());
    let by_type = ["account_id", "region", "instance_type", "availability_zone"];
    assert_eq!(
        values(&text, "ec2_reserved_instance", &by_type),
        pairs(&[
            ("111111111111 us-east-1 c5.large us-east-1a", 1.0),
            ("111111111111 us-east-1 m5.xlarge ", 1.0),
        ])
    );
    assert_eq!(
        values(&text, "ec2_reserved_instance_count", &["instance_family"]),
        pairs(&[("c5", 3.0), ("m5", 2.0)])
    );
    assert_eq!(
        values(
            &text,
            "veneer_reserved_instances",
            &["instance_type", "platform", "tenancy"]
        ),
        pairs(&[
            ("c5.large Linux/UNIX default", 3.0),
            ("m5.xlarge Linux/UNIX default", 2.0)
        ])
    );
    // The zonal ones are for use1-az1, where no c5.large runs: zone us-east-1a of account B is another one.
    assert_eq!(
        values(&text, "veneer_reserved_instances_unused", &["instance_type"]),
        pairs(&[("c5.large", 3.0), ("m5.xlarge", 0.0)])
    );
}

#[test]
fn plans_tell_what_is_left_of_them() {
    let text = all(&organization());
    assert_eq!(
        values(
            &text,
            "savings_plan_hourly_commitment",
            &["savings_plan_arn", "type", "region", "instance_family"]
        ),
        pairs(&[
            (&format!("{COMPUTE} compute all all"), 0.5),
            (&format!("{FAMILY} ec2_instance us-east-1 c5"), 0.03),
        ])
    );
    // Four m5.large run on the Reserved Instances. The plan for c5 pays 0.03 of 0.05 of i-b1; the Compute plan the other two fifths
    // at 0.06 and i-a5 at 0.07. Nothing has a rate for Windows.
    let left = 0.5 - 0.07 - 0.4 * 0.06;
    for (name, of_compute) in [
        ("savings_plan_remaining_capacity", left),
        ("savings_plan_current_utilization_rate", 0.5 - left),
        ("savings_plan_utilization_percent", 100.0 * (0.5 - left) / 0.5),
        ("savings_plan_remaining_hours", 100.0),
    ] {
        let found = values(&text, name, &["savings_plan_arn"]);
        assert_eq!(found.len(), 2, "{name}");
        assert!((found[0].1 - of_compute).abs() < 1e-9, "{name}: {found:?}");
    }
    assert_eq!(
        values(&text, "savings_plan_remaining_capacity", &["type"])[1].1,
        0.0
    );
    assert_eq!(
        values(&text, "savings_plan_utilization_percent", &["type"])[1].1,
        100.0
    );
}

#[test]
fn an_instance_costs_its_share_of_what_pays_for_it_and_is_named_after_the_largest_part() {
    let text = all(&organization());
    let found = values(
        &text,
        "ec2_instance_hourly_cost",
        &["instance_id", "cost_type", "pricing_accuracy"],
    );
    // Half a Reserved Instance: (0.05 + 87.60 / 8760) / 2.
    assert_eq!(
        found,
        pairs(&[
            ("i-a1 reserved_instance accurate", 0.03),
            ("i-a2 reserved_instance accurate", 0.03),
            ("i-a3 reserved_instance accurate", 0.03),
            ("i-a4 reserved_instance accurate", 0.03),
            ("i-a5 compute_savings_plan accurate", 0.07),
            ("i-a6 spot accurate", 0.035),
            // Three fifths are the plan's for its family (0.03), the rest is the Compute plan's (0.4 × 0.06).
            ("i-b1 ec2_instance_savings_plan accurate", 0.054),
            // Nobody knows what Windows costs here.
            ("i-b2 on_demand estimated", 0.0),
        ])
    );
    let names = values(
        &text,
        "ec2_instance_hourly_cost",
        &["node_name", "cluster_name", "host_name"],
    );
    assert_eq!(names[0].0, "node-i-a1 prod i-a1.ec2.internal");
    assert_eq!(
        names[7].0, "  i-b2.ec2.internal",
        "a tag names a node only in a cluster"
    );
    assert_eq!(
        values(&text, "ec2_instance", &["instance_id", "platform"])[7].0,
        "i-b2 windows"
    );
    assert_eq!(
        values(&text, "ec2_instance_count", &["account_id", "instance_family"]),
        pairs(&[("111111111111 m5", 6.0), ("222222222222 c5", 2.0)])
    );
}

#[test]
fn ages_carry_the_labels_that_lumina_gives_them() {
    let mut inventory = organization();
    inventory.failed(&part(B, DataKind::Instances), "AccessDenied", NOW - 1);
    inventory.failed(&part(B, DataKind::ReservedInstances), "Throttling", NOW - 1);
    inventory.failed(
        &part("333333333333", DataKind::Instances),
        "AccessDenied",
        NOW - 1,
    );
    let text = all(&inventory);
    let labels = ["account_id", "account_name", "region", "data_type"];
    assert_eq!(
        values(&text, "lumina_data_freshness_seconds", &labels),
        pairs(&[
            ("111111111111 Production us-east-1 ec2_instances", 30.0),
            ("222222222222 Staging \"2\" us-east-1 ec2_instances", 50.0),
            ("111111111111 Production us-east-1 reserved_instances", 30.0),
            ("222222222222 Staging \"2\" us-east-1 reserved_instances", 30.0),
            ("111111111111 Production  savings_plans", 30.0),
            ("222222222222 Staging \"2\"  savings_plans", 30.0),
            ("   pricing", 3600.0),
            ("   spot-pricing", 60.0),
        ])
    );
    assert_eq!(
        values(&text, "lumina_data_last_success", &["account_id", "data_type"]),
        pairs(&[
            ("111111111111 ec2_instances", 1.0),
            ("222222222222 ec2_instances", 0.0),
            ("333333333333 ec2_instances", 0.0),
            ("111111111111 reserved_instances", 1.0),
            ("222222222222 reserved_instances", 0.0),
            ("111111111111 savings_plans", 1.0),
            ("222222222222 savings_plans", 1.0),
            (" pricing", 1.0),
            (" spot-pricing", 1.0),
        ])
    );
    // What could not be collected again is still told, as old as it is.
    assert_eq!(
        values(&text, "ec2_instance_count", &["account_id"])[1],
        ("222222222222".to_owned(), 2.0)
    );
}

#[test]
fn accounts_tell_whether_they_can_be_reached() {
    let text = all(&organization());
    assert_eq!(
        values(&text, "lumina_account_validation_status", &["account_id"]),
        pairs(&[(A, 1.0), (B, 0.0)])
    );
    assert_eq!(
        values(
            &text,
            "lumina_account_validation_last_success_timestamp",
            &["account_id"]
        ),
        pairs(&[(A, (NOW - 10) as f64)])
    );
    let buckets = values(
        &text,
        "lumina_account_validation_duration_seconds_bucket",
        &["account_id", "le"],
    );
    let of_a: BTreeMap<String, f64> = buckets
        .into_iter()
        .filter(|(key, _)| key.starts_with(A))
        .collect();
    assert_eq!(
        (of_a[&format!("{A} 0.25")], of_a[&format!("{A} 0.5")]),
        (0.0, 1.0)
    );
    assert_eq!(of_a[&format!("{A} +Inf")], 1.0);
}

#[test]
fn labels_can_be_renamed_and_instances_left_out() {
    let options = Options {
        labels: LabelNames {
            account_id: "aws_account_id".to_owned(),
            region: "aws_region".to_owned(),
            cluster_name: "k8s_cluster".to_owned(),
            ..LabelNames::default()
        },
        without_instances: false,
    };
    let text = series::all(&organization(), &options, NOW);
    for sample in parse(&text) {
        for label in ["account_id", "region", "cluster_name"] {
            assert!(!sample.labels.contains_key(label), "{} has {label}", sample.name);
        }
    }
    assert_eq!(
        values(&text, "ec2_instance_hourly_cost", &["k8s_cluster", "aws_region"])[0].0,
        "prod us-east-1"
    );

    let without = Options {
        without_instances: true,
        ..Options::default()
    };
    let names: BTreeSet<String> = parse(&series::all(&organization(), &without, NOW))
        .into_iter()
        .map(|sample| sample.name)
        .collect();
    assert!(
        !names.iter().any(|name| name.starts_with("ec2_instance")),
        "{names:?}"
    );
    assert!(names.contains("ec2_reserved_instance") && names.contains("savings_plan_remaining_capacity"));
}

#[test]
fn the_order_in_which_rows_came_does_not_matter_and_an_instance_told_twice_is_one() {
    let inventory = organization();
    let mut other = organization();
    let rows = ["i-a6", "i-a3", "i-a5", "i-a1", "i-a2", "i-a4", "i-a3"].map(|id| match id {
        "i-a6" => support::spot(id, "m5.large"),
        id => instance(id, "m5.large"),
    });
    other.replace(
        &part(A, DataKind::Instances),
        Rows::Instances(rows.into_iter().collect()),
        NOW - 30,
    );
    let rows = |text: &str| {
        let told = text.lines().filter(|line| !line.starts_with("veneer_data_rows"));
        told.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows(&all(&other)), rows(&all(&inventory)));
}

#[test]
fn commitments_that_are_not_in_their_term_are_not_told() {
    let mut inventory = organization();
    let mut over = support::reserved("ri-over", A, "r5.large", None, 9);
    over.term.end = NOW;
    let mut returned = support::reserved("ri-back", A, "r5.large", None, 9);
    returned.state = veneer_billing::State::Returned;
    inventory.replace(
        &part(A, DataKind::ReservedInstances),
        Rows::ReservedInstances(vec![over, returned]),
        NOW - 30,
    );
    let text = all(&inventory);
    assert_eq!(values(&text, "ec2_reserved_instance", &["instance_type"]), []);
    assert_eq!(values(&text, "veneer_reserved_instances", &["instance_type"]), []);
}

#[test]
fn rates_that_nobody_knows_are_estimated_only_on_request() {
    let mut inventory = organization();
    inventory.replace(
        &part(A, DataKind::PlanRates),
        Rows::PlanRates(BTreeMap::new()),
        NOW - 30,
    );
    let of = |inventory: &Inventory| {
        let labels = ["instance_id", "cost_type", "pricing_accuracy"];
        let found = values(&all(inventory), "ec2_instance_hourly_cost", &labels);
        found
            .into_iter()
            .find(|(key, _)| key.starts_with("i-a5"))
            .expect("i-a5")
    };
    assert_eq!(of(&inventory), ("i-a5 on_demand accurate".to_owned(), 0.096));
    inventory.discounts.compute = Some(support::exact("0.5"));
    assert_eq!(
        of(&inventory),
        ("i-a5 compute_savings_plan estimated".to_owned(), 0.048)
    );
}

#[test]
fn what_is_paid_per_hour_adds_up() {
    let text = all(&organization());
    let found: BTreeMap<String, f64> = values(&text, "veneer_bill_dollars", &["part"])
        .into_iter()
        .collect();
    let total = found["on_demand"] + found["own_price"] + found["commitments"];
    assert!((found["total"] - total).abs() < 1e-9);
    let effective: f64 = values(&text, "ec2_instance_hourly_cost", &[])
        .into_iter()
        .map(|(_, dollars)| dollars)
        .sum();
    assert!((found["total"] - found["unused_commitments"] - effective).abs() < 1e-9);
    let problems: BTreeMap<String, f64> = values(&text, "veneer_bill_problems", &["problem"])
        .into_iter()
        .collect();
    assert_eq!(problems["no_price"], 1.0);
}

#[test]
fn windows_with_sql_server_is_windows() {
    let mut inventory = organization();
    for (code, expected) in [
        ("0006", "windows"),
        ("0102", "windows"),
        ("0100", "linux"),
        ("1010", "linux"),
    ] {
        let mut row = instance("i-1", "m5.large");
        row.kind.machine.platform = Platform::from_usage_operation(&format!("RunInstances:{code}"));
        let rows = Rows::Instances([row].into_iter().collect());
        inventory.replace(&part(A, DataKind::Instances), rows, NOW);
        let found = values(
            &all(&inventory),
            "ec2_instance",
            &["instance_id", "platform", "region"],
        );
        assert_eq!(found[0].0, format!("i-1 {expected} {REGION}"), "{code}");
    }
}
