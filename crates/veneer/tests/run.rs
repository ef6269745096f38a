//! `veneer run` as a process: what it says, where it listens, how it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use support::{veneer, veneer_at};
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::{Cluster, Options};

const DEADLINE: Duration = Duration::from_secs(120);

/// A cluster with our CRDs, a NodePool and two NodeOverlays that conflict.
fn cluster() -> Cluster {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never",
        }},
        "disruption": {"consolidateAfter": "Never"},
    }});
    create(&cluster, &ApiResource::erase::<NodePool>(&()), pool);
    for name in ["a", "b"] {
        overlay(&cluster, name);
    }
    cluster
}

fn overlay(cluster: &Cluster, name: &str) {
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name},
        "spec": {"priceAdjustment": "-10%"}});
    create(cluster, &ApiResource::erase::<NodeOverlay>(&()), overlay);
}

#[tokio::main(flavor = "current_thread")]
async fn create(cluster: &Cluster, kind: &ApiResource, object: Value) {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let api = Api::<DynamicObject>::all_with(Client::try_from(config).unwrap(), kind);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
        .await
        .unwrap();
}

/// `veneer run` in a cluster, with instance types of the testbed.
fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veneer"));
    command
        .args(["run", "--provider", "kwok", "--catalog"])
        .arg(veneer_testbed::karpenter_instance_types().unwrap())
        .args(arguments)
        .envs(cluster.env())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running process with its log.
struct Running {
    child: Child,
    log: Receiver<Value>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.unwrap();
                let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, log }
    }

    /// The next line of the log with this message.
    fn says(&self, message: &str) -> Value {
        let began = Instant::now();
        let mut others = Vec::new();
        while let Ok(line) = self.log.recv_timeout(DEADLINE.saturating_sub(began.elapsed())) {
            if line.get("message").is_some_and(|found| found == message) {
                return line;
            }
            others.push(line);
        }
        panic!("no {message:?} in the log: {others:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
    }
}

#[test]
fn it_serves_logs_one_line_per_change_of_mind_and_ends_on_sigterm() {
    let cluster = cluster();
    let nowhere = [
        "--metrics-bind-address",
        "127.0.0.1:0",
        "--health-probe-bind-address",
        "127.0.0.1:0",
    ];
    let mut running = Running::start(command(
        &cluster,
        &[&["--mode", "standalone"], &nowhere[..]].concat(),
    ));
    let metrics = running.says("serving metrics")["address"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        metrics.starts_with("127.0.0.1:") && !metrics.ends_with(":0"),
        "{metrics}"
    );
    running.says("serving probes");
    assert_eq!(running.says("starting")["mode"], "Standalone");
    let left_out = running.says("left out: conflict");
    assert_eq!(
        (&left_out["overlay"], &left_out["with"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(left_out["level"], "WARN");
    assert_eq!(running.says("in force")["overlay"], "b");

    let kill = Command::new("kill")
        .args(["-s", "TERM", &running.child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    running.says("stopping");
    assert!(running.child.wait().unwrap().success());
    assert_eq!(
        running.log.iter().count(),
        0,
        "passes over an unchanged cluster say nothing"
    );
}

#[test]
fn a_dry_run_of_one_pass_prints_the_plan_and_a_real_one_leaves_nothing_to_plan() {
    let cluster = cluster();
    let plan = || {
        let output = command(&cluster, &["--mode", "standalone", "--once", "--dry-run"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let before = plan();
    assert!(
        before.contains("NodeOverlay a: set ValidationSucceeded=False (Conflict)"),
        "{before}"
    );
    let mut once = command(&cluster, &["--mode", "standalone", "--once"])
        .spawn()
        .unwrap();
    let mut out = String::new();
    once.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(once.wait().unwrap().success());
    assert_eq!((out, plan()), (String::new(), String::new()));

    // Beside Karpenter, one pass compares at once: these conditions are ours, and they agree.
    let output = command(&cluster, &["--once", "--log-format", "text"])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !log.contains("differ"), "{log}");

    // A third overlay takes the place of b, while the conditions still say what was.
    overlay(&cluster, "c");
    let output = command(&cluster, &["--once", "--log-format", "text"])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let warning = log
        .lines()
        .find(|line| line.contains("Karpenter's conditions differ"))
        .unwrap();
    for part in [
        "WARN",
        "overlay=\"b\"",
        "veneer=\"False (Conflict)\"",
        "karpenter=\"True (ValidationSucceeded)\"",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[test]
fn bad_arguments_are_explained_before_anything_starts() {
    let cases: [(&[&str], &str); 6] = [
        (&["--provider", "kwok"], "--provider kwok needs --catalog FILE"),
        (&["--region", "mars-1"], "unknown region \"mars-1\""),
        (
            &["--catalog", "no-such-file"],
            "cannot read the catalogue no-such-file",
        ),
        (
            &["--feature-gates", "Warp=true"],
            "unknown feature gate \"Warp=true\"; expected NodeOverlay=true",
        ),
        (
            &["--feature-gates", "NodeOverlay=maybe"],
            "NodeOverlay is \"maybe\"; expected true or false",
        ),
        (
            &["--metrics-bind-address", "8080"],
            "metricsBindAddress is \"8080\" (--metrics-bind-address); expected host:port",
        ),
    ];
    for (arguments, expected) in cases {
        let said = veneer(&[&["run"], arguments].concat());
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
        assert!(said.err.contains(expected), "{arguments:?}: {}", said.err);
    }
    let said = veneer(&["run", "--once"]);
    assert!(
        said.err.contains("found no cluster; set KUBECONFIG"),
        "{}",
        said.err
    );
    insta::assert_snapshot!("help_run", veneer_at(100, &["run", "--help"]).out);
}
