//! `veneer run` as a process with a configuration file and a real Prometheus: a plan before anything is written, one
//! line of log per change of mind, and none while nothing changes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::{Cluster, Options, Part};

const DEADLINE: Duration = Duration::from_secs(30);
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

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
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

struct Running {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (log, err) = (Arc::default(), child.stderr.take().unwrap());
        let lines: Arc<Mutex<Vec<Value>>> = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, log }
    }

    fn lines(&self, message: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|line| line["message"] == message)
            .cloned()
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        pools
            .create(&PostParams::default(), &serde_json::from_value(pool).unwrap())
            .await
            .unwrap();
    }
    let overlays: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<NodeOverlay>(&()));
    let found = overlays.list(&ListParams::default()).await.unwrap();
    found.iter().map(ResourceExt::name_any).collect()
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
    assert!(overlays(&cluster, Some(pool)).is_empty());
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
        plan.contains(COMPUTE).then_some(plan)
    });
    for line in [
        "create NodeOverlay pref-web-1",
        "create NodeOverlay cost-aware-compute-sp-global",
        "  +   priceAdjustment: -95%",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\n{plan}");
    }
    assert!(overlays(&cluster, None).is_empty());
    // One real pass, and then nothing is left to plan.
    said(&command(&cluster, &config).arg("--once").output().unwrap());
    assert_eq!(overlays(&cluster, None), [COMPUTE, "pref-web-1"]);
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
    let address = eventually("it serves metrics", || {
        let line = running.lines("serving metrics").pop()?;
        Some(line["address"].as_str().unwrap().to_owned())
    });
    let reconciled = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let series = "veneer_reconciliation_total{result=\"success\"} ";
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    eventually("it has decided", || running.lines("decided").pop());
    eventually("it has looked a few times", || {
        (reconciled() >= 3.0).then_some(())
    });
    let quiet = running.log.lock().unwrap().len();
    let so_far = reconciled();
    eventually("it has looked some more", || {
        (reconciled() >= so_far + 5.0).then_some(())
    });
    assert_eq!(
        running.log.lock().unwrap().len(),
        quiet,
        "{:#?}",
        running.log.lock().unwrap()
    );

    *text.lock().unwrap() = series(97);
    let decided = eventually("the second decision", || running.lines("decided").get(1).cloned());
    assert_eq!(decided["reason"], "utilization-above-threshold");
    assert_eq!(decided["utilization"], 97.0);
    eventually("the overlay is deleted", || {
        let written = running.lines("overlay written").pop()?;
        (written["overlay"] == COMPUTE && written["operation"] == "delete").then_some(())
    });
    assert_eq!(overlays(&cluster, None), ["pref-web-1"]);
}
