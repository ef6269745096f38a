//! The Kubernetes driver passes, on a real API server, the suite that the embedded world passes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::{Bed, catalogue, eventually};
use veneer_api::{KWOKNodeClass, NodeClaim, NodePool, Pod};
use veneer_controllers::standalone::{Hands, Settings};
use veneer_engine::plan::Snapshot;
use veneer_world::conformance::{CASES, Case};

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn add(client: &Client, object: Value) {
    let api = api_of(client, &object);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object.get("status").cloned();
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

async fn all<K>(client: &Client) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let list = api.list(&Default::default()).await.unwrap();
    list.into_iter().map(Arc::new).collect()
}

/// What the API server has, and what the provider runs: nothing here is late.
async fn seen(client: &Client, hands: &Hands) -> Snapshot {
    Snapshot {
        pods: all::<Pod>(client).await,
        nodes: all::<Node>(client).await,
        node_claims: all::<NodeClaim>(client).await,
        node_pools: all::<NodePool>(client).await,
        instances: hands.snapshot().instances,
        ..Snapshot::default()
    }
}

/// Removes every object of a kind, whoever wants to keep it.
async fn clear<K>(client: &Client)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let resource = ApiResource::erase::<K>(&());
    for one in all::<K>(client).await {
        let api: Api<DynamicObject> = match one.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        drop(api.patch(&one.name_any(), &PatchParams::default(), &free).await);
        drop(
            api.delete(&one.name_any(), &DeleteParams::default().grace_period(0))
                .await,
        );
    }
}

async fn play(client: &Client, hands: &Hands, case: &Case) {
    for object in (case.objects)() {
        add(client, object).await;
    }
    // The provider has to see the node class that it launches for.
    let expected = seen(client, hands).await.node_claims.len();
    eventually("the watches have brought the objects", async || {
        (hands.snapshot().node_claims.len() == expected).then_some(())
    })
    .await;
    assert_eq!(case.plans.len(), case.holds.len());
    for (plan, holds) in case.plans.iter().zip(case.holds) {
        hands.run(plan(&seen(client, hands).await)).await;
        eventually(case.name, async || {
            let found = holds(&seen(client, hands).await);
            if let Err(why) = &found {
                println!("{}: {why}", case.name);
            }
            found.ok()
        })
        .await;
    }
    clear::<Pod>(client).await;
    clear::<PodDisruptionBudget>(client).await;
    clear::<NodeClaim>(client).await;
    clear::<Node>(client).await;
    clear::<NodePool>(client).await;
    clear::<KWOKNodeClass>(client).await;
    eventually("the objects of the case are gone", async || {
        let snapshot = hands.snapshot();
        let left = snapshot.pods.len() + snapshot.nodes.len() + snapshot.node_claims.len();
        (left + snapshot.node_classes.len() + snapshot.node_pools.len() == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubernetes_driver_does_what_every_executor_must() {
    let bed = Bed::standalone().await;
    for case in CASES {
        // Backed off actions of one case are not those of the next.
        let hands = Hands::start(&bed.admin, &Settings::new(catalogue())).await;
        play(&bed.admin, &hands, case).await;
        println!("{}", case.name);
    }
}
