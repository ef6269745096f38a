//! `veneer diagnose` on a live cluster: a real API server answers the same as files do.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use support::{root, run, veneer};
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::{Cluster, Options};

const FOLDER: &str = "examples/overlays/discounts";

#[tokio::main(flavor = "current_thread")]
async fn create_all(cluster: &Cluster) {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    for file in ["nodepools.yaml", "overlays.yaml"] {
        let text = std::fs::read_to_string(root().join(FOLDER).join(file)).unwrap();
        for object in serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap() {
            let kind = match object.get("kind").and_then(serde_json::Value::as_str).unwrap() {
                "NodePool" => ApiResource::erase::<NodePool>(&()),
                _ => ApiResource::erase::<NodeOverlay>(&()),
            };
            let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
            let object = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
    }
}

#[test]
fn a_live_cluster_is_diagnosed_as_its_manifests_are() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    create_all(&cluster);
    let kubeconfig = cluster.kubeconfig_path();
    let live = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let ask = |source: &[&str], more: &[&str]| {
        let arguments: Vec<&str> = ["diagnose"].iter().chain(source).chain(more).copied().collect();
        let said = veneer(&arguments);
        assert_eq!(said.code, 0, "{}", said.err);
        said.out
    };
    let from_files = ask(&["-f", FOLDER], &["-o", "json"]);
    assert_eq!(ask(&live, &["-o", "json"]), from_files);

    let deep = "examples/overlays/proposed/deep-discount.yaml";
    let proposed = ["--propose", deep, "--type", "overlay"];
    assert_eq!(ask(&live, &proposed), ask(&["-f", FOLDER], &proposed));

    // The proposal's invocation, with several names after one --overlay.
    let arguments = [
        "diagnose",
        "--kubeconfig",
        live[1],
        "--type",
        "instance-type",
        "--overlay",
        "savings-plan-m5",
        "fuse-device",
        "--nodepool",
        "default",
    ];
    let said = run(env!("CARGO_BIN_EXE_karpenteradm"), &arguments, None, None);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("smarter-devices/fuse: 20"), "{}", said.out);

    let said = veneer(&["diagnose", "--kubeconfig", live[1], "--nodepool", "gpu"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("there is no NodePool \"gpu\" in the cluster"),
        "{}",
        said.err
    );
}
