//! How much memory the pods of a cluster take. Prints what it measures; the bounds hold in a release build, too:
//!
//!     cargo test --release -p veneer-controllers --test memory -- --nocapture
//!
//! `VENEER_PODS=10000` makes this the long version.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::fake_api::{FakeApi, client};
use support::sample;
use veneer_controllers::Metrics;
use veneer_controllers::standalone::{self, Settings, Shown};
use veneer_engine::catalogue::aws;

const NODES: usize = 250;
/// Where the API server is that a child of these tests looks at.
const URL: &str = "VENEER_TEST_API_URL";
/// What a child waits for until it says what it has in memory.
const WAITS_FOR: &str = "VENEER_TEST_WAITS_FOR";
const A_PASS: &str = "veneer_provisioning_pass_duration_seconds_count";
const A_DECISION: &str = "karpenter_scheduler_scheduling_duration_seconds_count";

fn node_name(at: usize) -> String {
    format!("ip-10-0-{}-{}.ec2.internal", at / 250, at % 250)
}

fn node(at: usize) -> Value {
    let name = node_name(at);
    let resources = json!({"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    json!({"metadata": {"name": name, "uid": format!("node-{at}"), "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": "us-east-1a", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{at:017x}")},
        "status": {"allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": (0..50).map(|image| json!({"names": [format!("registry.example/team/image-{image}@sha256:{image:064}"),
                format!("registry.example/team/image-{image}:v1.2.3")], "sizeBytes": 123_456_789})).collect::<Vec<_>>()}})
}

/// A pod of a Deployment as kube-apiserver shows it: nothing special, and all that admission and the kubelet add.
fn pod(at: usize, annotation_bytes: usize) -> Value {
    let workload = at / 20;
    let name = format!("web-{workload}-7d4b9c6f5d-{at:05}");
    let mount = json!({"name": "kube-api-access-x7k2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    let mut annotations = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
        "prometheus.io/scrape": "true", "prometheus.io/port": "8080"});
    if annotation_bytes > 0 {
        annotations["example.com/large"] = json!("x".repeat(annotation_bytes));
    }
    let resources = json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}});
    json!({"metadata": {"name": name, "generateName": format!("web-{workload}-7d4b9c6f5d-"), "namespace": format!("team-{}", workload % 40),
            "uid": format!("00000000-0000-4000-8000-{at:012}"), "resourceVersion": (at + 1).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("web-{workload}"), "pod-template-hash": "7d4b9c6f5d", "team": format!("team-{}", workload % 40)},
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{workload}-7d4b9c6f5d"),
                "uid": format!("10000000-0000-4000-8000-{workload:012}"), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {
                    "k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}, "f:env": {}}}, "f:restartPolicy": {}}}}]},
        "spec": {"nodeName": node_name(at % NODES), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "schedulerName": "default-scheduler", "priority": 0,
            "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "terminationGracePeriodSeconds": 30, "securityContext": {},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "containers": [{"name": "main", "image": "registry.example/team/web:v1.2.3", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "volumeMounts": [mount],
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": (0..10).map(|number| json!({"name": format!("SETTING_{number}"), "value": "some text of a usual length"})).collect::<Vec<_>>(),
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
                "resources": resources}],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": "10.1.2.3",
            "hostIPs": [{"ip": "10.0.0.1"}], "podIPs": [{"ip": "10.1.2.3"}], "startTime": "2026-01-01T00:00:00Z",
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{"name": "main", "image": "registry.example/team/web:v1.2.3", "ready": true, "started": true, "restartCount": 0,
                "imageID": "registry.example/team/web@sha256:0123", "containerID": "containerd://0123456789abcdef",
                "allocatedResources": {"cpu": "100m", "memory": "128Mi"}, "resources": resources,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": {}, "volumeMounts": [mount]}]}})
}

/// Megabytes that this process has in memory: now, and at most so far.
fn resident() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes / 1000.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs standalone mode against the API server at `url` until it has decided, and prints what it has in memory then.
async fn measure(url: &str) {
    let catalogue = Arc::new(aws::region("us-east-1").unwrap().catalogue);
    let metrics = Metrics::new();
    let mut settings = Settings::new(catalogue);
    settings.meters = metrics.provisioning.clone();
    let running = tokio::spawn(standalone::run(client(url), settings, Shown::default()));
    let waits_for = std::env::var(WAITS_FOR).unwrap();
    let has_decided = || {
        let text = metrics.text().unwrap();
        sample(&text, &waits_for).is_some_and(|count| count >= 1.0)
    };
    let began = Instant::now();
    while !has_decided() {
        assert!(began.elapsed() < Duration::from_secs(300), "it does not decide");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (now, most) = resident();
    println!("resident {now} {most}");
    running.abort();
}

/// What a process that does nothing else has in memory once it has done what is waited for: megabytes now, and at most so far.
async fn resident_with(api: FakeApi, test: &'static str, waits_for: &'static str) -> (f64, f64) {
    let url = api.url.clone();
    let said = tokio::task::spawn_blocking(move || {
        let this = std::env::current_exe().unwrap();
        let child = Command::new(this)
            .args(["--exact", test, "--nocapture"])
            .env(URL, url)
            .env(WAITS_FOR, waits_for)
            .output();
        String::from_utf8(child.unwrap().stdout).unwrap()
    });
    let said = said.await.unwrap();
    let line = said.lines().find_map(|line| line.split_once("resident "));
    let (_, numbers) = line.unwrap_or_else(|| panic!("{said}"));
    let (now, most) = numbers.split_once(' ').unwrap();
    (now.parse().unwrap(), most.trim().parse().unwrap())
}

/// The same for a cluster with so many pods.
async fn resident_with_pods(pods: usize, annotation_bytes: usize) -> (f64, f64) {
    let api = FakeApi::start().await;
    api.generate("/api/v1/nodes", NODES, node);
    api.generate("/api/v1/pods", pods, move |at| pod(at, annotation_bytes));
    let (now, most) = resident_with(api, "the_memory_that_pods_take_is_bounded", A_PASS).await;
    println!("{pods} pods with {annotation_bytes} bytes of annotations: {now:.0} MB, at most {most:.0} MB");
    (now, most)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_that_pods_take_is_bounded() {
    if let Ok(url) = std::env::var(URL) {
        return measure(&url).await;
    }
    let (empty, _) = resident_with_pods(0, 0).await;
    // What nobody reads is not kept, nor is there much of it while it is being listed.
    let (_, most) = resident_with_pods(600, 250_000).await;
    assert!(
        most < empty + 40.0,
        "{most:.0} MB at most, {empty:.0} MB without pods"
    );
    let pods = number("VENEER_PODS", 10_000);
    let (now, most) = resident_with_pods(pods, 0).await;
    let each = (now - empty) * 1_000_000.0 / pods as f64;
    println!("{each:.0} bytes for each pod, {empty:.0} MB without pods");
    assert!(each < 4_000.0, "{each:.0} bytes for each pod");
    assert!(pods > 10_000 || most <= 100.0, "{most:.0} MB for {pods} pods");
}

/// A pod that waits, with many terms of one form.
fn hostile_pod(form: usize) -> Value {
    let labels = |at: usize| json!({"matchExpressions": [{"key": format!("example.com/some-label-{at}"), "operator": "In", "values": ["a", "b"]}]});
    let rule = |at: usize| {
        let key = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"][at % 2];
        json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": format!("app-{at}")}}})
    };
    let preferred = |terms: Vec<Value>| json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
    let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]});
    match form {
        0 => {
            let term = |at: usize| json!({"weight": 1 + at % 100, "preference": labels(at)});
            spec["affinity"]["nodeAffinity"] = preferred((0..2_000).map(term).collect());
        }
        1 => {
            let terms: Vec<Value> = (0..6_000).map(labels).collect();
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        2 => {
            let term = |at: usize| json!({"weight": 1 + at % 100, "podAffinityTerm": rule(at)});
            spec["affinity"]["podAffinity"] = preferred((0..2_000).map(term).collect());
        }
        _ => {
            let spread = |at: usize| {
                let mut spread = rule(at);
                spread["maxSkew"] = json!(1 + at % 7);
                spread["whenUnsatisfiable"] = json!("ScheduleAnyway");
                spread
            };
            spec["topologySpreadConstraints"] = (0..3_000).map(spread).collect();
        }
    }
    json!({"metadata": {"name": format!("hostile-{form}"), "namespace": "default", "uid": form.to_string(),
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "app-1"}},
        "spec": spec, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

/// 561 MB for the first of them before relaxed forms of a pod shared what it demands.
#[tokio::test(flavor = "multi_thread")]
async fn pods_with_thousands_of_terms_are_decided_about_in_little_memory() {
    if let Ok(url) = std::env::var(URL) {
        return measure(&url).await;
    }
    let api = FakeApi::start().await;
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    api.add(
        "/apis/karpenter.sh/v1/nodepools",
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default", "uid": "default", "resourceVersion": "1", "generation": 1},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}}}),
    );
    api.add(
        "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default", "uid": "class", "resourceVersion": "1"}, "spec": {}}),
    );
    api.generate("/api/v1/pods", 4, hostile_pod);
    let test = "pods_with_thousands_of_terms_are_decided_about_in_little_memory";
    let (now, most) = resident_with(api, test, A_DECISION).await;
    println!("four pods with thousands of terms: {now:.0} MB, at most {most:.0} MB");
    assert!(most <= 150.0, "{most:.0} MB at most");
}
