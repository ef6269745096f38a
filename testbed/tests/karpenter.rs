//! Karpenter with its KWOK provider: it provisions, and it evaluates overlays.
// Clippy knows test functions, but not their helpers.
#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::json;
use veneer_testbed::{Cluster, Options, Part};

mod support;
use support::{client, condition, eventually, object};

fn kind(client: &kube::Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
    )
}

async fn create(api: &Api<DynamicObject>, json: serde_json::Value) {
    api.create(&PostParams::default(), &object(json)).await.unwrap();
}

#[tokio::test]
async fn a_pending_pod_gets_a_node_claim_a_node_and_runs_and_an_overlay_turns_ready() {
    let cluster = Cluster::start(Options::karpenter()).unwrap();
    let client = client(&cluster).await;
    let classes = kind(&client, "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass");
    let pools = kind(&client, "karpenter.sh", "v1", "NodePool");
    let claims = kind(&client, "karpenter.sh", "v1", "NodeClaim");
    let overlays = kind(&client, "karpenter.sh", "v1alpha1", "NodeOverlay");
    let pods = Api::<Pod>::default_namespaced(client.clone());

    create(
        &classes,
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
    )
    .await;
    create(
        &pools,
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    ],
                    "expireAfter": "Never",
                }},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
            },
        }),
    )
    .await;
    create(
        &overlays,
        json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": "discount"},
            "spec": {
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                "priceAdjustment": "-10%",
            },
        }),
    )
    .await;
    eventually("the NodeOverlay is Ready", async || {
        (condition(&overlays.get("discount").await.unwrap(), "Ready")? == "True").then_some(())
    })
    .await;

    let pod = object::<Pod>(json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [
            {"name": "main", "image": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        ]},
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let bound = eventually("the Pod runs", async || {
        let pod = pods.get("web").await.unwrap();
        (condition(&pod, "Ready")? == "True").then_some(pod)
    })
    .await;

    let claim = eventually("the NodeClaim is Ready", async || {
        let claim = claims.list(&ListParams::default()).await.unwrap().items.pop()?;
        (condition(&claim, "Ready")? == "True").then_some(claim)
    })
    .await;
    let node_name = claim
        .data
        .pointer("/status/nodeName")
        .and_then(serde_json::Value::as_str);
    assert_eq!(node_name, bound.spec.unwrap().node_name.as_deref());
    let node = Api::<Node>::all(client).get(node_name.unwrap()).await.unwrap();
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["karpenter.sh/nodepool"], "default");
    assert!(
        labels.contains_key("karpenter.kwok.sh/instance-family"),
        "it is a type of the AWS catalogue: {labels:?}"
    );
}

#[tokio::test]
async fn karpenter_restarts_on_the_same_cluster() {
    let mut cluster = Cluster::start(Options::karpenter()).unwrap();
    let before = cluster.process_ids()[&Part::Karpenter];

    cluster.stop_part(Part::Karpenter);
    assert!(!support::runs(before));
    cluster.start_part(Part::Karpenter).unwrap();

    assert_ne!(cluster.process_ids()[&Part::Karpenter], before);
    cluster.check().unwrap();
}
