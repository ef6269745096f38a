//! Random workloads in standalone mode, beside a real kube-scheduler at the request rates of a real cluster: every pod runs
//! that Karpenter runs. `bench/run workloads` runs many more of them, on both sides.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

use std::path::Path;

use kube::api::{DynamicObject, PostParams};
use veneer_bench::objects;
use veneer_bench::sides::{Rates, Side};
use veneer_bench::workloads::case::Action;
use veneer_bench::workloads::{Setup, generate, run};
use veneer_testbed::{Cluster, Options};

/// Seeds of which Karpenter runs all pods. None of them has required affinity to a host: whether all pods of such a workload find
/// room depends on where kube-scheduler puts the first of them, on either side.
const SEEDS: [u64; 3] = [2, 5, 13];

#[test]
fn every_pod_of_three_random_workloads_runs() {
    for seed in SEEDS {
        let case = generate(seed);
        let setup = Setup {
            rates: Rates::Default,
            veneer: Path::new(env!("CARGO_BIN_EXE_veneer")),
            logs: None,
            settle: false,
        };
        let outcome = run(&case, Side::Veneer, setup).unwrap();
        println!(
            "seed {seed}: {} pods run after {:?} s",
            outcome.pods, outcome.all_running_seconds
        );
        assert!(
            outcome.pending.is_empty(),
            "seed {seed} ({:?}): {:?} do not run: {:?}",
            case.features,
            outcome.pending,
            outcome.pending_reasons
        );
    }
}

#[tokio::test]
async fn every_object_of_random_workloads_is_accepted() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    cluster
        .install_crds(&veneer_testbed::karpenter_crds().unwrap())
        .unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for class in generate(0).setting {
        if class["kind"] == "PriorityClass" {
            objects::create(&client, &class).await.unwrap();
        }
    }
    for seed in 0..200 {
        let case = generate(seed);
        let created = case.steps.into_iter().filter_map(|step| match step.action {
            Action::Create(object) => Some(object),
            _ => None,
        });
        let setting = case
            .setting
            .into_iter()
            .filter(|object| object["kind"] != "PriorityClass");
        for object in setting.chain(created) {
            let text = |key: &str| object[key].as_str().unwrap();
            let api = objects::api(&client, text("apiVersion"), text("kind"));
            let sent: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let answer = api.create(&params, &sent).await;
            assert!(answer.is_ok(), "seed {seed}: {object}: {answer:?}");
        }
    }
}
