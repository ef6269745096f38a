//! `veneer snapshot --history`: what a real Prometheus remembers of a cluster becomes a scenario that runs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use support::veneer;
use veneer_api::NodePool;
use veneer_controllers::{PrometheusSettings, history};
use veneer_testbed::{Cluster, Options, Part};

/// Answers every request with a text.
fn exporter(port: u16, text: &Arc<Mutex<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            if stream.read(&mut request).is_err() {
                continue;
            }
            let body = text.lock().unwrap().clone();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
}

/// A pool, and one pod of the Deployment `web`.
async fn create(cluster: &Cluster) {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let pool: NodePool = serde_json::from_value(json!({"metadata": {"name": "default",
            "annotations": {"veneer.io/preference.1": "kubernetes.io/arch=arm64 adjust=-20%"}},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}}}}))
    .unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &pool)
        .await
        .unwrap();
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web-5d4-x", "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "5d4"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4", "uid": "u", "controller": true}]},
        "spec": {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]}}))
    .unwrap();
    Api::namespaced(client, "default")
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
}

/// Waits until Prometheus remembers a number of replicas at a whole second.
async fn remembered(url: &str, replicas: f64) {
    let settings = PrometheusSettings {
        url: url.to_owned(),
        timeout: Duration::from_secs(5),
        ..PrometheusSettings::default()
    };
    let began = Instant::now();
    loop {
        let now = Timestamp::now();
        let times = (now - SignedDuration::from_secs(60), now);
        let found = history(
            &settings,
            "kube_deployment_spec_replicas",
            times,
            Duration::from_secs(1),
        )
        .await;
        let values = found.iter().flatten().flat_map(|series| &series.values);
        if values
            .into_iter()
            .any(|(_, value)| (value - replicas).abs() < 0.1)
        {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn what_prometheus_remembers_becomes_a_scenario_that_runs() {
    let cluster = Cluster::start(Options::api_server().with(Part::Prometheus)).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    let url = cluster.prometheus_url();
    let text = Arc::new(Mutex::new(String::new()));
    exporter(cluster.exporter_port(), &text);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let series = |count: u32| {
        format!(
            "kube_deployment_spec_replicas{{namespace=\"default\",deployment=\"web\"}} {count}\nkube_deployment_spec_replicas{{namespace=\"default\",deployment=\"gone\"}} 1\n"
        )
    };
    runtime.block_on(async {
        create(&cluster).await;
        for count in [3, 5] {
            *text.lock().unwrap() = series(count);
            remembered(&url, f64::from(count)).await;
        }
    });
    let kubeconfig = cluster.kubeconfig_path();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.yaml");
    let file = file.to_str().unwrap();
    let arguments = [
        "snapshot",
        "--history",
        "1m",
        "--step",
        "1s",
        "--prometheus",
        &url,
        "--kubeconfig",
        kubeconfig,
    ];
    let said = veneer(&[&arguments[..], &["-o", file]].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("left out: default/gone"), "{}", said.err);
    assert!(said.err.contains("note: wrote 1 workloads"), "{}", said.err);
    let scenario = std::fs::read_to_string(file).unwrap();
    assert!(scenario.contains("veneer.io/preference.1"), "{scenario}");

    let said = veneer(&["simulate", "--scenario", file, "--duration", "15m", "-o", "json"]);
    assert_eq!(said.code, 0, "{}\n{scenario}", said.err);
    let summary = said.json().to_string();
    assert!(
        summary.contains("\"pods\":5") && summary.contains("\"pending\":0"),
        "{summary}"
    );
    assert!(
        summary.contains("arm64 on-demand"),
        "the preference counts: {summary}"
    );

    let arguments = [
        "snapshot",
        "--history",
        "1m",
        "--step",
        "1s",
        "--prometheus",
        "http://127.0.0.1:9",
    ];
    let said = veneer(&[&arguments[..], &["--kubeconfig", kubeconfig]].concat());
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(
        said.err.contains("cannot ask Prometheus at http://127.0.0.1:9"),
        "{}",
        said.err
    );
}
