//! `veneer export` against a double of AWS: what it prints, what it serves, and which configuration it takes.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

#[path = "support/accounts.rs"]
mod accounts;
#[path = "support/running.rs"]
mod running;
mod support;

use accounts::{ACCOUNT, OTHER, REGION, ROLE, command, organization, write};
use running::{Running, eventually, get};
use serde_json::Value;
use support::{veneer, veneer_at};
use veneer_testbed::aws_double::{AwsDouble, Fault, Trouble};

#[test]
fn help_and_bad_usage() {
    let said = veneer_at(100, &["export", "--help"]);
    assert_eq!(said.code, 0);
    insta::assert_snapshot!("help_export", said.out);
    for arguments in [
        &["export"][..],
        &["export", "--account", "123456789012"],
        &["export", "--account", "12", "--region", "us-west-2", "--once"],
        &["export", "--config", "no/such/file"],
    ] {
        let said = veneer(arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            said.err
        );
    }
}

#[test]
fn once_prints_the_metrics_of_one_account_and_names_what_fails() {
    let double = AwsDouble::start(organization()).unwrap();
    let once = || {
        let arguments = ["export", "--account", ACCOUNT, "--region", REGION, "--once"];
        let output = command(&double, &arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = once();
    assert_eq!(code, Some(0), "{err}");
    for line in [
        "ec2_reserved_instance{account_id=\"123456789012\",account_name=\"123456789012\",region=\"us-west-2\",instance_type=\"c5.large\",availability_zone=\"\"} 1",
        "veneer_reserved_instances{account_id=\"123456789012\",account_name=\"123456789012\",region=\"us-west-2\",instance_type=\"c5.large\",availability_zone=\"\",platform=\"Linux/UNIX\",tenancy=\"default\"} 3",
        "veneer_reserved_instances_unused{account_id=\"123456789012\",account_name=\"123456789012\",region=\"us-west-2\",instance_type=\"c5.large\",availability_zone=\"\",platform=\"Linux/UNIX\",tenancy=\"default\"} 2",
        "savings_plan_remaining_capacity{savings_plan_arn=\"arn:aws:savingsplans::123456789012:savingsplan/family\",account_id=\"123456789012\",account_name=\"123456789012\",type=\"ec2_instance\"} 0.93",
        "savings_plan_remaining_capacity{savings_plan_arn=\"arn:aws:savingsplans::123456789012:savingsplan/compute\",account_id=\"123456789012\",account_name=\"123456789012\",type=\"compute\"} 5",
        "lumina_controller_running 1",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}\n{out}");
    }
    double.trouble(Trouble::always(Fault::Denied).on("DescribeReservedInstances"));
    let (code, out, err) = once();
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("reserved_instances of 123456789012 in us-west-2"),
        "{err}"
    );
    // The rest is told all the same.
    assert!(out.contains("savings_plan_hourly_commitment{"), "{out}");
}

#[test]
fn a_configuration_with_every_key_of_lumina_starts_the_exporter() {
    let double = AwsDouble::start(organization()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
awsAccounts:
  - accountId: "{ACCOUNT}"
    name: Production
    regions: [{REGION}]
  - accountId: "{OTHER}"
    name: Staging
    assumeRoleArn: {ROLE}
    region: {REGION}
defaultAccount: {{accountId: "{ACCOUNT}", name: Production, region: {REGION}}}
defaultRegion: {REGION}
regions: [{REGION}]
logLevel: info
metricsBindAddress: 127.0.0.1:0
healthProbeBindAddress: 127.0.0.1:0
accountValidationInterval: 10m
reconciliation: {{risp: 1h, ec2: 5m, pricing: 24h, spotPricing: 15s}}
pricing:
  operatingSystems: [Linux]
  spotPriceCacheExpiration: 1h
  defaultDiscounts: {{ec2Instance: 0.72, compute: 0.72}}
metrics:
  disableInstanceMetrics: false
  labels:
    clusterName: k8s_cluster
    accountName: aws_account
    accountId: aws_account_id
    region: aws_region
    nodeName: k8s_node
    hostName: ec2_hostname
  nodeNameSource: {{tagKey: Name}}
"#
    );
    let config = write(folder.path(), "lumina.yaml", &text);
    let running = Running::start(command(&double, &["export", "--config", &config]));
    let metrics = running.address("serving metrics");
    let probes = running.address("serving probes");
    assert_eq!(get(&probes, "/healthz").unwrap().0, 200);
    eventually("it is ready", || match get(&probes, "/readyz")? {
        (200, _) => Ok(()),
        (code, why) => Err(format!("{code} {why}")),
    });
    let (_, text) = get(&metrics, "/metrics").unwrap();
    let cost = text
        .lines()
        .find(|line| line.starts_with("ec2_instance_hourly_cost{instance_id=\"i-1\""))
        .unwrap();
    for part in [
        "aws_account_id=\"123456789012\"",
        "aws_account=\"Production\"",
        "aws_region=\"us-west-2\"",
        "cost_type=\"reserved_instance\"",
        "k8s_cluster=\"prod\"",
        "k8s_node=\"node-i-1\"",
    ] {
        assert!(cost.contains(part), "{part}: {cost}");
    }
    assert!(cost.ends_with(" 0.05"), "{cost}");
    assert!(text.contains(
        "lumina_account_validation_status{aws_account_id=\"222222222222\",aws_account=\"Staging\"} 1"
    ));
    let (_, page) = get(&metrics, "/debug/inventory").unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["accounts"].as_array().unwrap().len(), 2);
    assert!(
        page["parts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|part| part["error"].is_null()),
        "{page:#}"
    );
    let (_, page) = get(&metrics, "/debug/bill").unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["commitments"].as_array().unwrap().len(), 3);
    let usage = page["usages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["id"] == "i-1")
        .unwrap();
    assert!(
        usage["paidBy"][0]["why"]
            .as_str()
            .unwrap()
            .contains("rules 2, 3, 4, 5, 8"),
        "{usage:#}"
    );
}
