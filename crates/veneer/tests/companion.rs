//! `veneer run` as a process with a configuration file and a real Prometheus: a plan before anything is written, one
//! line of log per change of mind, and none while nothing changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

#[path = "support/running.rs"]
mod running;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use running::{Objects, Running, eventually, get};
use serde_json::json;
use veneer_testbed::{Cluster, Options, Part};

const COMPUTE: &str = "cost-aware-compute-sp-global";

/// A Compute plan with this utilisation.
fn series(utilization: u32) -> String {
    let labels = "account_id=\"123456789012\",type=\"compute\",savings_plan_arn=\"arn:one\"";
    format!(
        "savings_plan_hourly_commitment{{{labels}}} 100\n\
         savings_plan_remaining_capacity{{{labels}}} {}\n\
         savings_plan_utilization_percent{{{labels}}} {utilization}\n\
         lumina_data_freshness_seconds{{account_id=\"123456789012\",data_type=\"savings_plans\"}} 10\n\
         lumina_data_freshness_seconds{{account_id=\"123456789012\",data_type=\"reserved_instances\"}} 10\n",
        100 - utilization
    )
}

/// Serves a text to whoever asks.
fn export(port: u16, text: &Arc<Mutex<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut question = [0; 4096];
            let _ = stream.read(&mut question);
            let body = text.lock().unwrap().clone();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: ";
            let _ = write!(stream, "{head}{}\r\n\r\n{body}", body.len());
        }
    });
}

fn command(cluster: &Cluster, config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veneer"));
    command
        .args(["run", "--provider", "kwok", "--catalog"])
        .arg(veneer_testbed::karpenter_instance_types().unwrap())
        .arg("--config")
        .arg(config)
        .envs(cluster.env())
        .stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_plan_first_then_one_line_of_log_per_change_of_mind() {
    let cluster = Cluster::start(Options::api_server().with(Part::Prometheus)).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "web", "annotations": {"veneer.io/preference.1": "team=x adjust=-20%"}},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"}}, "disruption": {"consolidateAfter": "Never"}}});
    let objects = Objects::of(&cluster);
    objects.create(pool);
    assert!(objects.overlays().is_empty());
    let text = Arc::new(Mutex::new(series(50)));
    export(cluster.exporter_port(), &text);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("veneer.yaml");
    let file = format!(
        "prometheusUrl: {}\nreconcileInterval: 200ms\nlogFormat: json\nmetricsBindAddress: 127.0.0.1:0\nhealthProbeBindAddress: \"0\"\naws:\n  accountId: \"123456789012\"\n  region: us-west-2\n",
        cluster.prometheus_url()
    );
    std::fs::write(&config, file).unwrap();

    // The plan, as soon as Prometheus has the series; nothing is written.
    let plan = eventually("the plan has both overlays", || {
        let output = command(&cluster, &config)
            .args(["--once", "--dry-run"])
            .output()
            .unwrap();
        let plan = String::from_utf8_lossy(&output.stdout).into_owned();
        if plan.contains(COMPUTE) {
            Ok(plan)
        } else {
            Err(plan)
        }
    });
    for line in [
        "create NodeOverlay pref-web-1",
        "create NodeOverlay cost-aware-compute-sp-global",
        "  +   priceAdjustment: -95%",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\n{plan}");
    }
    assert!(objects.overlays().is_empty());
    // One real pass, and then nothing is left to plan.
    said(&command(&cluster, &config).arg("--once").output().unwrap());
    assert_eq!(objects.overlays(), [COMPUTE, "pref-web-1"]);
    assert_eq!(
        said(
            &command(&cluster, &config)
                .args(["--once", "--dry-run"])
                .output()
                .unwrap()
        ),
        ""
    );

    let running = Running::start(command(&cluster, &config));
    let address = running.address("serving metrics");
    let reconciled = || {
        let (_, text) = get(&address, "/metrics").unwrap();
        let series = "veneer_reconciliation_total{result=\"success\"} ";
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    let at_least = |count: f64| {
        let found = reconciled();
        if found >= count {
            Ok(())
        } else {
            Err(format!("{found}"))
        }
    };
    let decided = |at: usize| {
        eventually("a decision", || {
            let line = running.lines("decided").get(at).cloned();
            line.ok_or_else(|| running.log())
        })
    };
    decided(0);
    eventually("it has looked a few times", || at_least(3.0));
    let quiet = running.log();
    let so_far = reconciled();
    eventually("it has looked some more", || at_least(so_far + 5.0));
    assert_eq!(running.log(), quiet);

    *text.lock().unwrap() = series(97);
    let decided = decided(1);
    assert_eq!(decided["reason"], "utilization-above-threshold");
    assert_eq!(decided["utilization"], 97.0);
    assert!(
        decided["rule"].as_str().unwrap().ends_with("(rules 2, 9, 10)"),
        "{decided}"
    );
    eventually("the overlay is deleted", || {
        let written = running.lines("overlay written").pop();
        let is_deleted =
            written.is_some_and(|line| line["overlay"] == COMPUTE && line["operation"] == "delete");
        if is_deleted { Ok(()) } else { Err(running.log()) }
    });
    assert_eq!(objects.overlays(), ["pref-web-1"]);
}
