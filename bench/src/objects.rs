//! Manifests as requests to an API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use veneer_api::NodePool;

/// How long NodePools may take until they are ready.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Where objects of a kind are, in the default namespace if they are in one.
#[must_use]
pub fn api(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = match kind {
        "KWOKNodeClass" | "PriorityClass" | "StorageClass" => format!("{}es", kind.to_lowercase()),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    let has_namespace = matches!(
        kind,
        "Deployment"
            | "DaemonSet"
            | "StatefulSet"
            | "Job"
            | "Pod"
            | "PodDisruptionBudget"
            | "PersistentVolumeClaim"
    );
    if has_namespace {
        Api::default_namespaced_with(client.clone(), &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// Creates what a manifest says.
pub async fn create(client: &Client, manifest: &Value) -> Result<()> {
    let text = |key: &str| manifest[key].as_str().unwrap_or_default();
    let api = api(client, text("apiVersion"), text("kind"));
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("cannot create {manifest}"))?;
    Ok(())
}

/// Waits until all NodePools are ready.
pub async fn node_pools_ready(client: &Client) -> Result<()> {
    let pools: Api<NodePool> = Api::all(client.clone());
    let began = Instant::now();
    loop {
        let list = pools.list(&ListParams::default()).await?;
        let is_ready = |pool: &NodePool| {
            let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
            veneer_api::find_condition(conditions, "Ready")
                .is_some_and(|condition| condition.status.as_str() == "True")
        };
        if list.items.iter().all(is_ready) {
            return Ok(());
        }
        if began.elapsed() > READY_WITHIN {
            bail!("the NodePools did not become ready");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
