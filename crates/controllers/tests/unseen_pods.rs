//! The API server is asked which pods are on a node before its instance ends: a watch that is late, or silent, must not kill
//! a pod that nobody has evicted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use serde_json::{Value, json};
use support::fake_api::FakeApi;
use support::{catalogue, eventually};
use veneer_controllers::standalone::{Hands, Settings};
use veneer_engine::plan::Action;

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "5"},
        "spec": {"nodeName": "node", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}})
}

#[tokio::test]
async fn an_unseen_pod_is_found_before_its_node_ends() {
    let api = FakeApi::start().await;
    api.add(
        "/api/v1/nodes",
        json!({"metadata": {"name": "node", "uid": "n", "resourceVersion": "4"}, "spec": {"providerID": "kwok://node"}}),
    );
    api.add("/api/v1/pods", pod("gone"));
    api.select("spec.nodeName=node", vec![pod("unseen")]);
    let hands = Hands::start(&api.client, &Settings::new(catalogue())).await;
    let end = || {
        let provider_id = "kwok://node".to_owned();
        hands.run(vec![Action::Terminate { provider_id }])
    };
    end().await;
    let names = || -> Vec<String> {
        let snapshot = hands.snapshot();
        let pods = snapshot.pods.iter();
        pods.map(|pod| pod.metadata.name.clone().unwrap()).collect()
    };
    eventually("the pod is known", async || (names() == ["unseen"]).then_some(())).await;
    let ended = || {
        let requests = api.requests();
        requests.iter().any(|one| one == "DELETE /api/v1/nodes/node")
    };
    assert!(!ended());
    // Once it is known it is the decision that says whether the node may go.
    eventually("the instance ends", async || {
        end().await;
        ended().then_some(())
    })
    .await;
}
