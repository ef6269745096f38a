//! `veneer export` against a double of AWS, and what follows from it: metrics that a real Prometheus scrapes, and overlays, with no series
//! written by hand.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::{veneer, veneer_at};
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::aws_double::{
    AwsDouble, Described, DescribedAccount, DescribedInstance, DescribedPlan, DescribedPrice, DescribedRate,
    DescribedRegion, DescribedReserved, Fault, Trouble,
};
use veneer_testbed::{Cluster, Options, Part};

const DEADLINE: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "123456789012";
const OTHER: &str = "222222222222";
const REGION: &str = "us-west-2";
const ROLE: &str = "arn:aws:iam::222222222222:role/veneer-export";

const RESERVED: &str = "cost-aware-ri-c5.large-us-west-2";
const FAMILY: &str = "cost-aware-ec2-sp-m5-us-west-2";
const COMPUTE: &str = "cost-aware-compute-sp-global";

fn instance(id: &str, instance_type: &str) -> DescribedInstance {
    DescribedInstance {
        id: id.to_owned(),
        instance_type: instance_type.to_owned(),
        zone: "us-west-2a".to_owned(),
        state: "running".to_owned(),
        usage_operation: "RunInstances".to_owned(),
        tenancy: "default".to_owned(),
        launched: "2026-01-02T00:00:00.000Z".to_owned(),
        tags: vec![
            ("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned()),
            ("Name".to_owned(), format!("node-{id}")),
        ],
        ..DescribedInstance::default()
    }
}

fn plan(id: &str, kind: &str, family: &str, commitment: &str, rates: &[(&str, &str)]) -> DescribedPlan {
    let rates = rates.iter().map(|(instance_type, rate)| DescribedRate {
        region: REGION.to_owned(),
        instance_type: (*instance_type).to_owned(),
        product: "Linux/UNIX".to_owned(),
        operation: "RunInstances".to_owned(),
        usage_type: format!("USW2-BoxUsage:{instance_type}"),
        tenancy: "shared".to_owned(),
        rate: (*rate).to_owned(),
    });
    DescribedPlan {
        id: id.to_owned(),
        kind: kind.to_owned(),
        family: family.to_owned(),
        region: if family.is_empty() { "" } else { REGION }.to_owned(),
        commitment: commitment.to_owned(),
        state: "active".to_owned(),
        start: "2026-01-01T00:00:00.000Z".to_owned(),
        end: "2099-01-01T00:00:00.000Z".to_owned(),
        rates: rates.collect(),
    }
}

/// Three Reserved Instances of c5.large, one of them used; a plan for m5 and a Compute plan, both nearly unused; and another account.
fn organization() -> Described {
    let zones = || vec![("us-west-2a".to_owned(), "usw2-az1".to_owned())];
    let reserved = DescribedReserved {
        id: "11111111-2222-3333-4444-555555555555".to_owned(),
        instance_type: "c5.large".to_owned(),
        product: "Linux/UNIX".to_owned(),
        tenancy: "default".to_owned(),
        count: 3,
        start: "2026-01-01T00:00:00.000Z".to_owned(),
        end: "2099-01-01T00:00:00.000Z".to_owned(),
        state: "active".to_owned(),
        fixed_price: "0.0".to_owned(),
        hourly: "0.05".to_owned(),
        ..DescribedReserved::default()
    };
    let own = DescribedRegion {
        zones: zones(),
        instances: vec![instance("i-1", "c5.large"), instance("i-2", "m5.large")],
        reserved: vec![reserved],
        ..DescribedRegion::default()
    };
    let other = DescribedRegion {
        zones: zones(),
        ..DescribedRegion::default()
    };
    let rates = [("m5.large", "0.07"), ("c5.large", "0.06")];
    let price = |instance_type: &str, price: &str| DescribedPrice {
        region: REGION.to_owned(),
        instance_type: instance_type.to_owned(),
        operating_system: "Linux".to_owned(),
        operation: "RunInstances".to_owned(),
        tenancy: "Shared".to_owned(),
        price: price.to_owned(),
    };
    Described {
        accounts: vec![
            DescribedAccount {
                id: ACCOUNT.to_owned(),
                shares: true,
                regions: BTreeMap::from([(REGION.to_owned(), own)]),
                plans: vec![
                    plan("family", "EC2Instance", "m5", "1.00", &rates[..1]),
                    plan("compute", "Compute", "", "5.00", &rates),
                ],
                ..DescribedAccount::default()
            },
            DescribedAccount {
                id: OTHER.to_owned(),
                role_arn: Some(ROLE.to_owned()),
                shares: true,
                regions: BTreeMap::from([(REGION.to_owned(), other)]),
                ..DescribedAccount::default()
            },
        ],
        prices: vec![price("m5.large", "0.096"), price("c5.large", "0.085")],
        ..Described::default()
    }
}

/// What the command finds in its environment.
fn environment(double: &AwsDouble) -> Vec<(&'static str, String)> {
    let (key, secret) = AwsDouble::keys(ACCOUNT);
    vec![
        ("AWS_ENDPOINT_URL", double.url()),
        ("AWS_ACCESS_KEY_ID", key),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ("HOME", "/nonexistent".to_owned()),
    ]
}

fn command(double: &AwsDouble, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veneer"));
    command
        .args(arguments)
        .envs(environment(double))
        .env_remove("AWS_PROFILE")
        .env_remove("AWS_SESSION_TOKEN")
        .stdin(Stdio::null());
    command
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(
                began.elapsed() < DEADLINE,
                "not within {DEADLINE:?}: {what}: {why}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Running {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (log, err) = (Arc::default(), child.stderr.take().unwrap());
        let lines: Arc<Mutex<Vec<String>>> = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log }
    }

    /// Where it serves something.
    fn address(&self, what: &str) -> String {
        eventually(what, || {
            let log = self.log.lock().unwrap();
            let lines = log
                .iter()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut served = lines.filter(|line| line["message"] == what);
            let address = served.find_map(|line| Some(line["address"].as_str()?.to_owned()));
            address.ok_or_else(|| log.join("\n"))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> Result<(u16, String), String> {
    let mut stream = std::net::TcpStream::connect(address).map_err(|error| error.to_string())?;
    let question = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream
        .write_all(question.as_bytes())
        .map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or("no status")?, body.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn overlays(cluster: &Cluster, pool: Option<Value>) -> Vec<String> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    if let Some(pool) = pool {
        let pools: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<NodePool>(&()));
        let pool = serde_json::from_value(pool).unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }
    let overlays: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<NodeOverlay>(&()));
    let found = overlays.list(&ListParams::default()).await.unwrap();
    found.iter().map(ResourceExt::name_any).collect()
}

/// A cluster with our resources and a NodePool.
fn cluster(options: Options) -> Cluster {
    let cluster = Cluster::start(options).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"}}, "disruption": {"consolidateAfter": "Never"}}});
    assert!(overlays(&cluster, Some(pool)).is_empty());
    cluster
}

fn wait_for(cluster: &Cluster, running: &Running, expected: &[&str]) {
    eventually("overlays", || {
        let found = overlays(cluster, None);
        let log = || running.log.lock().unwrap().join("\n");
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}\n{}", log()))
        }
    });
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

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

#[test]
fn the_exporter_prometheus_and_steering_make_overlays() {
    let cluster = cluster(Options::api_server().with(Part::Prometheus));
    let double = AwsDouble::start(organization()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "awsAccounts: [{{accountId: \"{ACCOUNT}\", name: Production}}]\nregions: [{REGION}]\nreconciliation: {{ec2: 1s, risp: 1s, spotPricing: 1s}}\nhealthProbeBindAddress: \"0\"\nmetricsBindAddress: 127.0.0.1:{}\n",
        cluster.exporter_port()
    );
    let config = write(folder.path(), "lumina.yaml", &file);
    let _exporter = Running::start(command(&double, &["export", "--config", &config]));
    let file = format!(
        "prometheusUrl: {}\nreconcileInterval: 200ms\nmetricsBindAddress: \"0\"\nhealthProbeBindAddress: \"0\"\naws: {{accountId: \"{ACCOUNT}\", region: {REGION}}}\n",
        cluster.prometheus_url()
    );
    let config = write(folder.path(), "veneer.yaml", &file);
    let mut run = command(&double, &["run", "--config", &config]);
    run.envs(cluster.env());
    let running = Running::start(run);
    wait_for(&cluster, &running, &[COMPUTE, FAMILY, RESERVED]);
    // Two more c5.large use up the Reserved Instances.
    double.change(|described| {
        let region = described.accounts[0].regions.get_mut(REGION).unwrap();
        region
            .instances
            .extend([instance("i-3", "c5.large"), instance("i-4", "c5.large")]);
    });
    wait_for(&cluster, &running, &[COMPUTE, FAMILY]);
}

#[test]
fn steering_on_the_accounts_needs_neither_lumina_nor_prometheus() {
    let cluster = cluster(Options::api_server());
    let double = AwsDouble::start(organization()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "awsAccounts: [{{accountId: \"{ACCOUNT}\", name: Production}}]\nregions: [{REGION}]\nreconciliation: {{ec2: 1s, risp: 1s, spotPricing: 1s}}\n"
    );
    let accounts = write(folder.path(), "accounts.yaml", &file);
    let file = format!(
        "commitments: {{source: aws, configFile: {accounts}}}\nreconcileInterval: 200ms\nmetricsBindAddress: 127.0.0.1:0\nhealthProbeBindAddress: \"0\"\naws: {{accountId: \"{ACCOUNT}\", region: {REGION}}}\n"
    );
    let config = write(folder.path(), "veneer.yaml", &file);
    let mut run = command(&double, &["run", "--config", &config]);
    run.envs(cluster.env());
    let running = Running::start(run);
    wait_for(&cluster, &running, &[COMPUTE, FAMILY, RESERVED]);
    let address = running.address("serving metrics");
    let (_, page) = get(&address, "/debug/decisions").unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    let reserved = page["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["target"]["covers"] == "c5.large");
    let reserved = reserved.unwrap();
    assert_eq!(reserved["balance"]["left"], 2.0);
    assert!(
        reserved["rule"].as_str().unwrap().contains("rules 2, 3, 4, 5, 8"),
        "{reserved:#}"
    );

    // A size that nobody reserved uses them up as well.
    double.change(|described| {
        let region = described.accounts[0].regions.get_mut(REGION).unwrap();
        region.instances.push(instance("i-3", "c5.xlarge"));
    });
    wait_for(&cluster, &running, &[COMPUTE, FAMILY]);
    // What cannot be collected deletes nothing, and what was unused before is not made anew.
    double.trouble(Trouble::always(Fault::Denied));
    double.change(|described| described.accounts[0].plans.clear());
    eventually("the account is denied", || {
        let log = running.log.lock().unwrap();
        let is_denied = log.iter().any(|line| line.contains("not collected"));
        if is_denied { Ok(()) } else { Err(log.join("\n")) }
    });
    assert_eq!(overlays(&cluster, None), [COMPUTE, FAMILY]);
}
