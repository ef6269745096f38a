//! `veneer simulate` and `veneer snapshot` on a live cluster: a real API server, with more pods than a page has.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use support::{root, veneer};
use veneer_api::NodePool;
use veneer_testbed::{Cluster, Options};

const POOL: &str = "examples/simulate/packing/nodepool.yaml";
const PODS: usize = 620;
const SECRET: &str = "t0p-s3cret";

fn pod(name: &str, cpu: &str) -> Pod {
    let annotations = json!({"example.com/note": SECRET});
    let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {
        "containers": [{
            "name": "main", "image": "registry.example/main:1", "args": [SECRET],
            "env": [{"name": "SECRET_PASSWORD", "value": SECRET}],
            "envFrom": [{"secretRef": {"name": "credentials"}}],
            "resources": {"requests": {"cpu": cpu}},
        }],
        "volumes": [{"name": "keys", "secret": {"secretName": "credentials"}}],
    }});
    serde_json::from_value(pod).unwrap()
}

/// A pool, a node with room for one large pod, and many pods.
#[tokio::main(flavor = "current_thread")]
async fn create_all(cluster: &Cluster) {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let text = std::fs::read_to_string(root().join(POOL)).unwrap();
    let pool: NodePool = serde_saphyr::from_str(&text).unwrap();
    let created = PostParams::default();
    Api::all(client.clone()).create(&created, &pool).await.unwrap();

    let nodes: Api<Node> = Api::all(client.clone());
    let labels = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"});
    let node = serde_json::from_value(json!({"metadata": {"name": "old", "labels": labels}})).unwrap();
    nodes.create(&created, &node).await.unwrap();
    // A new node is tainted as not ready until a controller says otherwise.
    let ready = json!({"spec": {"taints": null}});
    nodes
        .patch("old", &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .unwrap();
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "1"});
    let status = json!({"status": {"capacity": room, "allocatable": room}});
    nodes
        .patch_status("old", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();

    let secret = json!({"metadata": {"name": "credentials"}, "stringData": {"password": SECRET}});
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets
        .create(&created, &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&created, &pod("large", "4")).await.unwrap();
    for at in 1..PODS {
        pods.create(&created, &pod(&format!("small-{at}"), "100m"))
            .await
            .unwrap();
    }
}

#[test]
fn a_live_cluster_is_read_page_by_page_and_its_nodes_are_filled_first() {
    let cluster = Cluster::start(Options::api_server()).unwrap();
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    cluster.install_crds(&crds).unwrap();
    create_all(&cluster);
    let kubeconfig = cluster.kubeconfig_path();
    let said = veneer(&[
        "simulate",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "-o",
        "json",
    ]);
    assert_eq!(said.code, 0, "{}", said.err);
    let report = said.json();
    assert_eq!(
        report["existingNodes"],
        json!([{"node": "old", "pods": ["default/large"]}]),
        "{report}"
    );
    assert_eq!(report["unschedulable"], json!([]));
    let claims = report["newNodeClaims"].as_array().unwrap();
    let placed: usize = claims
        .iter()
        .map(|claim| claim["pods"].as_array().unwrap().len())
        .sum();
    assert_eq!(placed, PODS - 1);

    // The same from a snapshot, which holds nothing secret.
    let folder = tempfile::tempdir().unwrap();
    let take = |name: &str, more: &[&str]| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        let kubeconfig = kubeconfig.to_str().unwrap();
        let arguments = ["snapshot", "--kubeconfig", kubeconfig, "-o", &path];
        let arguments: Vec<&str> = arguments.iter().chain(more).copied().collect();
        let said = veneer(&arguments);
        assert_eq!(said.code, 0, "{}", said.err);
        path
    };
    let file = take("cluster.yaml", &[]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("small-619") && text.contains("\"old\""));
    let encoded = "dDBwLXMzY3JldA";
    for word in [
        SECRET,
        encoded,
        "SECRET_PASSWORD",
        "credentials",
        "env",
        "registry.example",
        "example.com/note",
    ] {
        assert!(!text.contains(word), "{word} is in the snapshot");
    }
    let from_file = veneer(&["simulate", "-f", &file, "-o", "json"]);
    assert_eq!(from_file.code, 0, "{}", from_file.err);
    assert!(
        from_file.json() == report,
        "the snapshot gives another answer than the cluster"
    );

    // Every other command reads it too, and hashed names change nothing but names.
    for arguments in [
        &["diagnose", "-f", &file][..],
        &["lint", "-f", &file],
        &["explain", "pod", "large", "-f", &file],
    ] {
        let said = veneer(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
    }
    let hidden = take("hidden.yaml", &["--anonymise"]);
    let text = std::fs::read_to_string(&hidden).unwrap();
    assert!(!text.contains("small-") && !text.contains("\"old\""));
    let said = veneer(&["simulate", "-f", &hidden, "-o", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.json()["cost"], report["cost"]);
}
