//! What 200 tenants that mean no good cost the running controller: the same cluster with and without them, each looked at by a process of
//! its own, with the API server in another.
//!
//!     VENEER_TENANT_PODS=5 VENEER_TENANT_TERMS=150 cargo test -p veneer-controllers --test adversaries -- --nocapture
//!
//! Steps, and so time, are bounded by tests of `veneer-world`; the verdict here is about memory alone. With the numbers above it fails: see
//! `bench/RESULTS.md`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and read better so"
)]

#[path = "../../world/tests/support/crowd.rs"]
mod crowd;
mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowd::{Size, admit, catalogue, snapshot};
use serde::Serialize;
use serde_json::json;
use support::fake_api::{FakeApi, client};
use support::sample;
use veneer_controllers::Metrics;
use veneer_controllers::standalone::{self, Settings, Shown};
use veneer_world::adversary::{Scale, tenant};

const TEST: &str = "two_hundred_tenants_at_most_double_the_memory";
/// Where the API server is that a child of this test looks at.
const URL: &str = "VENEER_TEST_API_URL";
const PASSES: &str = "veneer_provisioning_pass_duration_seconds_count";
const DECISIONS: &str = "karpenter_scheduler_scheduling_duration_seconds_count";
const DECIDING: &str = "karpenter_scheduler_scheduling_duration_seconds_sum";

const SIZE: Size = Size {
    nodes: 300,
    pods_per_node: 11,
    pending: 200,
};

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs standalone mode until it has decided and looked at the cluster a few times more, and prints what that took.
async fn measure(url: &str) {
    let metrics = Metrics::new();
    let mut settings = Settings::new(catalogue());
    settings.meters = metrics.provisioning.clone();
    let running = tokio::spawn(standalone::run(client(url), settings, Shown::default()));
    let count = |series: &str| sample(&metrics.text().unwrap(), series).unwrap_or_default();
    let began = Instant::now();
    while count(DECISIONS) < 1.0 || count(PASSES) < 4.0 {
        assert!(began.elapsed() < Duration::from_secs(300), "it does not decide");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kilobytes: f64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    let decision = count(DECIDING) / count(DECISIONS);
    println!("measured {} {decision}", kilobytes / 1024.0);
    running.abort();
}

/// Serves the objects of a cluster, one by one.
fn serve<T: Serialize + Send + Sync + 'static>(api: &FakeApi, collection: &str, objects: Vec<Arc<T>>) {
    api.generate(collection, objects.len(), move |at| {
        let mut object = serde_json::to_value(&*objects[at]).unwrap();
        object["metadata"]["resourceVersion"] = json!((at + 1).to_string());
        object
    });
}

/// The peak of memory in MiB, and how many seconds a decision took, with so many tenants.
async fn cost_of(tenants: usize, pods: usize, terms: usize) -> (f64, f64) {
    let mut cluster = snapshot(&catalogue(), SIZE);
    for number in 0..tenants {
        let scale = Scale {
            pods,
            terms,
            distinct: number % 2 == 0,
        };
        admit(&mut cluster, &tenant(11, number, scale), number % 10 == 0);
    }
    let api = FakeApi::start().await;
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default", "uid": "class", "resourceVersion": "1"}, "spec": {}});
    api.add("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", class);
    serve(&api, "/api/v1/pods", cluster.pods);
    serve(&api, "/api/v1/nodes", cluster.nodes);
    serve(&api, "/apis/karpenter.sh/v1/nodepools", cluster.node_pools);
    serve(&api, "/apis/karpenter.sh/v1/nodeclaims", cluster.node_claims);
    serve(&api, "/apis/karpenter.sh/v1alpha1/nodeoverlays", cluster.overlays);
    let url = api.url.clone();
    let said = tokio::task::spawn_blocking(move || {
        let this = std::env::current_exe().unwrap();
        let child = Command::new(this)
            .args(["--exact", TEST, "--nocapture"])
            .env(URL, url)
            .output();
        String::from_utf8(child.unwrap().stdout).unwrap()
    });
    let said = said.await.unwrap();
    let line = said.lines().find_map(|line| line.split_once("measured "));
    let (_, numbers) = line.unwrap_or_else(|| panic!("{said}"));
    let (peak, decision) = numbers.split_once(' ').unwrap();
    let (peak, decision): (f64, f64) = (peak.parse().unwrap(), decision.trim().parse().unwrap());
    println!(
        "{tenants} tenants of {pods} pods with {terms} terms: at most {peak:.0} MiB, decided in {decision:.2} s"
    );
    (peak, decision)
}

#[test]
fn two_hundred_tenants_at_most_double_the_memory() {
    // As `veneer run` does: one thread for everything.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap();
    match std::env::var(URL) {
        Ok(url) => runtime.block_on(measure(&url)),
        Err(_) => runtime.block_on(compare()),
    }
}

async fn compare() {
    let (without, _) = cost_of(0, 0, 0).await;
    let pods = number("VENEER_TENANT_PODS", 2);
    let terms = number("VENEER_TENANT_TERMS", 60);
    let (with, _) = cost_of(200, pods, terms).await;
    println!("{:.2} times as much", with / without);
    assert!(
        with <= 2.0 * without,
        "{with:.0} MiB with them, {without:.0} MiB without"
    );
}
