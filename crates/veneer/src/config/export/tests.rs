//! Every key of Lumina's file is taken as it is, and what is wrong is named.

use super::super::describe;
use super::read::KEYS;
use super::*;

/// Every key, with another value than its default.
const EVERYTHING: &str = r#"
awsAccounts:
  - accountId: "111111111111"
    name: Production
    assumeRoleArn: arn:aws:iam::111111111111:role/lumina-controller
    region: eu-west-1
    regions: [eu-west-1, eu-central-1]
  - accountId: "222222222222"
    name: Staging
    assumeRoleArn: arn:aws-us-gov:iam::222222222222:role/path/lumina-controller
defaultAccount:
  accountId: "333333333333"
  name: Payer
  assumeRoleArn: arn:aws:iam::333333333333:role/lumina-controller
  region: us-east-2
  regions: [us-east-2]
defaultRegion: us-east-1
regions:
  - us-east-1
  - ap-southeast-3
logLevel: debug
metricsBindAddress: ":8080"
healthProbeBindAddress: "0"
accountValidationInterval: 5m
reconciliation:
  risp: 30m
  ec2: 1m
  pricing: 12h
  spotPricing: 30s
pricing:
  operatingSystems: [Linux, RHEL]
  spotPriceCacheExpiration: 2h
  defaultDiscounts:
    ec2Instance: 0.5
    compute: 0.66
metrics:
  disableInstanceMetrics: true
  labels:
    clusterName: k8s_cluster
    accountName: aws_account
    accountId: aws_account_id
    region: aws_region
    nodeName: k8s_node
    hostName: ec2_hostname
  nodeNameSource:
    tagKey: kubernetes.io/node-name
"#;

fn read(text: &str) -> Result<ExportConfig, String> {
    let file = File {
        name: "lumina.yaml",
        text,
    };
    ExportConfig::read(&file).map_err(|faults| describe(&faults))
}

const ACCOUNTS: &str = "awsAccounts: [{accountId: \"111111111111\", name: a}]\n";

fn faults(text: &str) -> String {
    read(text).expect_err("it is wrong")
}

#[test]
fn a_file_with_every_key_of_lumina_is_read() {
    let config = read(EVERYTHING).unwrap();
    let accounts: Vec<(&str, &str, Option<&str>)> = config
        .accounts
        .iter()
        .map(|one| (one.id.as_str(), one.name.as_str(), one.role.as_deref()))
        .collect();
    assert_eq!(
        accounts,
        [
            (
                "111111111111",
                "Production",
                Some("arn:aws:iam::111111111111:role/lumina-controller")
            ),
            (
                "222222222222",
                "Staging",
                Some("arn:aws-us-gov:iam::222222222222:role/path/lumina-controller")
            ),
        ]
    );
    assert_eq!(
        config.regions_of(&config.accounts[0]),
        ["eu-west-1", "eu-central-1"]
    );
    assert_eq!(
        config.regions_of(&config.accounts[1]),
        ["us-east-1", "ap-southeast-3"]
    );
    assert_eq!(config.accounts[0].region.as_deref(), Some("eu-west-1"));
    assert_eq!(
        config.default_account.as_ref().map(|one| one.id.as_str()),
        Some("333333333333")
    );
    assert_eq!(config.default_region, "us-east-1");
    assert_eq!(config.log_level, Level::DEBUG);
    assert_eq!(
        (
            config.metrics_bind_address.as_str(),
            config.health_probe_bind_address.as_str()
        ),
        (":8080", "0")
    );
    assert_eq!(config.account_validation_interval, Duration::from_secs(300));
    assert_eq!(
        config.reconciliation,
        Reconciliation {
            risp: Duration::from_secs(1800),
            ec2: Duration::from_secs(60),
            pricing: Duration::from_secs(12 * 3600),
            spot_pricing: Duration::from_secs(30),
        }
    );
    assert_eq!(config.operating_systems, [Platform::Linux, Platform::RedHat]);
    assert_eq!(config.spot_price_cache_expiration, Duration::from_secs(7200));
    assert_eq!(config.discounts.ec2_instance, veneer_billing::Exact::parse("0.5"));
    assert_eq!(config.discounts.compute, veneer_billing::Exact::parse("0.66"));
    assert!(config.series.without_instances);
    let chosen = config.series.labels.chosen().map(|(_, name)| name);
    assert_eq!(
        chosen,
        [
            "k8s_cluster",
            "aws_account",
            "aws_account_id",
            "aws_region",
            "k8s_node",
            "ec2_hostname"
        ]
    );
    assert_eq!(config.node_name_tag, "kubernetes.io/node-name");
}

#[test]
fn the_file_with_every_key_has_every_key_of_the_table() {
    for key in KEYS {
        let name = key.rsplit('.').next().unwrap().trim_end_matches("[]");
        assert!(EVERYTHING.contains(&format!("{name}:")), "{key}");
    }
}

#[test]
fn an_account_is_enough() {
    let config = read(ACCOUNTS).unwrap();
    assert_eq!(
        config,
        ExportConfig {
            accounts: vec![AccountConfig {
                id: "111111111111".to_owned(),
                name: "a".to_owned(),
                ..AccountConfig::default()
            }],
            ..ExportConfig::default()
        }
    );
    assert_eq!(config.metrics_bind_address, "127.0.0.1:8080");
    // A name is nice to have.
    let unnamed = read("awsAccounts: [{accountId: \"111111111111\"}]").unwrap();
    assert_eq!(unnamed.accounts[0].name, "111111111111");
}

#[test]
fn everything_that_is_wrong_is_named_at_once_with_the_accepted_form() {
    let said = faults(
        r#"
awsAccounts:
  - accountId: 12
    assumeRoleArn: role/x
  - name: nobody
  - accountId: "111111111111"
    assumeRoleArn: arn:aws:iam::222222222222:role/x
  - accountId: "111111111111"
    nmae: x
regions: us-west-2
defaultRegion: nowhere
reconcilation: {}
reconciliation:
  risp: hourly
  ec2: [5m]
pricing:
  operatingSystems: [Linux, Plan9]
  defaultDiscounts: 0.72
metrics:
  disableInstanceMetrics: maybe
  labels:
    region: account_id
    nodeName: 8s
    hostName: instance_id
testData: {}
"#,
    );
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "the configuration has 18 errors:",
            "awsAccounts[0].accountId is 12 (lumina.yaml); expected 12 digits such as \"123456789012\" (in quotes in YAML)",
            "awsAccounts[0].assumeRoleArn is \"role/x\" (lumina.yaml); expected the ARN of a role such as arn:aws:iam::123456789012:role/veneer-export",
            "awsAccounts[1].accountId is missing (lumina.yaml); expected 12 digits such as \"123456789012\" (in quotes in YAML)",
            "awsAccounts[2].assumeRoleArn is \"arn:aws:iam::222222222222:role/x\" (lumina.yaml); expected a role of account 111111111111",
            "awsAccounts[3].nmae is no key (lumina.yaml); did you mean awsAccounts[].name?",
            "awsAccounts[3].accountId is \"111111111111\" (lumina.yaml); expected each account once",
            "defaultRegion is \"nowhere\" (lumina.yaml); expected a region such as us-west-2",
            "regions is \"us-west-2\" (lumina.yaml); expected a list of regions such as [us-west-2, us-east-1]",
            "reconciliation.risp is \"hourly\" (lumina.yaml); expected a duration such as 90s, 5m or 1h5m",
            "reconciliation.ec2 is a list (lumina.yaml); expected a duration such as 90s, 5m or 1h5m",
            "pricing.operatingSystems[1] is \"Plan9\" (lumina.yaml); expected a list of Linux, Windows, RHEL and SUSE",
            "pricing.defaultDiscounts is 0.72 (lumina.yaml); expected keys below it such as pricing.defaultDiscounts.ec2Instance",
            "metrics.disableInstanceMetrics is \"maybe\" (lumina.yaml); expected true or false",
            "metrics.labels.nodeName is \"8s\" (lumina.yaml); expected a label name of letters, digits and underscores, such as aws_account_id",
            "reconcilation is no key (lumina.yaml); did you mean reconciliation?",
            "testData is no key (lumina.yaml); the guide's page on veneer export lists the keys",
            "metrics.labels.region is \"account_id\" (lumina.yaml), which is the name of metrics.labels.accountId; expected a label name of letters, digits and underscores, such as aws_account_id",
            "metrics.labels.hostName is \"instance_id\" (lumina.yaml), which is another label's name; expected a label name of letters, digits and underscores, such as aws_account_id",
        ]
    );
}

#[test]
fn a_file_without_accounts_and_one_that_is_no_yaml_are_told_apart() {
    assert!(faults("").contains("awsAccounts is empty"));
    assert!(faults("awsAccounts: []").contains("awsAccounts is empty"));
    assert!(faults("awsAccounts: {").contains("lumina.yaml is no YAML"));
    assert!(faults("- a").contains("lumina.yaml holds a list"));
    assert!(
        faults(&format!(
            "{ACCOUNTS}pricing: {{defaultDiscounts: {{compute: 1.5}}}}"
        ))
        .contains("at most 1")
    );
}
