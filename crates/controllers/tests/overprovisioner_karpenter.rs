//! Running spares beside a real Karpenter: it launches their NodeClaims, pods land on them, and it launches nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use support::{Bed, companion, eventually};
use veneer_api::labels::veneer;
use veneer_api::{NodeClaim, Overprovisioner, find_condition};
use veneer_engine::plan::{label, name};
use veneer_testbed::Options;

async fn create(bed: &Bed, object: Value) {
    let api_version = object["apiVersion"].as_str().unwrap().to_owned();
    let (group, version) = api_version.split_once('/').unwrap();
    let kind = object["kind"].as_str().unwrap().to_owned();
    let plural = match kind.as_str() {
        "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let kinds = GroupVersionKind::gvk(group, version, &kind);
    let resource = ApiResource::from_gvk_with_plural(&kinds, &plural);
    let api: Api<DynamicObject> = Api::all_with(bed.admin.clone(), &resource);
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// The rights that the guide lists for spares beside Karpenter.
async fn grant(bed: &Bed) {
    let guide = include_str!("../../../docs/src/overprovisioner.md");
    let roles = guide.split("```yaml\n").skip(1);
    let role = roles
        .map(|rest| rest.split("```").next().unwrap())
        .find(|text| text.contains("veneer-overprovisioners"))
        .unwrap();
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "veneer-overprovisioners"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any()},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "veneer-under-test"}],
    }))
    .unwrap();
    let new = PostParams::default();
    Api::all(bed.admin.clone()).create(&new, &role).await.unwrap();
    Api::all(bed.admin.clone()).create(&new, &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_land_on_spares_and_karpenter_launches_no_node_for_them() {
    let trials: usize = std::env::var("VENEER_WARM_BESIDE").map_or(10, |text| text.parse().unwrap());
    let bed = Bed::start(Options::karpenter()).await;
    let crd = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crd = crd.iter().map(|crd| veneer_api::to_yaml(crd).unwrap());
    let crd: Vec<String> = crd
        .filter(|text| text.contains("kind: Overprovisioner"))
        .collect();
    bed.cluster.install_crds(&crd).unwrap();
    grant(&bed).await;
    create(
        &bed,
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
    )
    .await;
    create(
        &bed,
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
        }}),
    )
    .await;
    let mut settings = companion();
    settings.spares_beside = true;
    let running = bed.run(settings);
    for (named, state) in [("warm", "Running"), ("cold", "Stopped")] {
        create(&bed, json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner", "metadata": {"name": named},
            "spec": {"targetNodePools": ["default"], "state": state, "sizing": {"count": 2}}}))
        .await;
    }
    let objects: Api<Overprovisioner> = Api::all(bed.admin.clone());
    let message = eventually("stopped spares are refused", async || {
        let status = objects.get("cold").await.unwrap().status?;
        let ready = find_condition(&status.conditions, "Ready")?;
        (ready.status.as_str() == "False").then(|| ready.message.clone())
    })
    .await;
    assert!(
        message.contains("use state Running, or run Veneer with --mode standalone"),
        "{message}"
    );

    let claims: Api<NodeClaim> = Api::all(bed.admin.clone());
    let pods: Api<Pod> = Api::default_namespaced(bed.admin.clone());
    let mut bound = Vec::new();
    let mut landed = 0;
    for trial in 0..trials {
        eventually("two spares are ready", async || {
            let status = objects.get("warm").await.unwrap().status.unwrap_or_default();
            (status.desired == 2 && status.ready == 2).then_some(())
        })
        .await;
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": format!("pod-{trial}")}, "spec": {
            "containers": [{"name": "main", "image": "registry.example/main:1",
                "resources": {"requests": {"cpu": "1500m"}}}]}}))
        .unwrap();
        let began = Instant::now();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let node = eventually("the pod is bound", async || {
            let pod = pods.get(&format!("pod-{trial}")).await.unwrap();
            pod.spec.unwrap().node_name
        })
        .await;
        bound.push(began.elapsed());
        let all = claims.list(&ListParams::default()).await.unwrap();
        let own = all.iter().find(|claim| {
            let status = claim.status.as_ref();
            status.and_then(|status| status.node_name.as_deref()) == Some(&node)
        });
        // The node is opened before its claim is written, so the claim may not say that it is used yet.
        let is_ours = own.is_some_and(|claim| label(&claim.metadata, veneer::OVERPROVISIONER).is_some());
        landed += usize::from(is_ours);
        println!(
            "trial {trial}: {node}, {:?}, on a spare: {is_ours}",
            began.elapsed()
        );
    }
    // What Karpenter decides, it decides within its batch: ten seconds at most.
    tokio::time::timeout(Duration::from_secs(15), async {
        loop {
            let status = objects.get("warm").await.unwrap().status.unwrap_or_default();
            if status.ready == 2 && usize::try_from(status.in_use).unwrap() == trials {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .ok();
    let all = claims.list(&ListParams::default()).await.unwrap();
    let foreign = all
        .iter()
        .filter(|claim| label(&claim.metadata, veneer::OVERPROVISIONER).is_none());
    let foreign: Vec<&str> = foreign.map(|claim| name(&claim.metadata)).collect();
    bound.sort_unstable();
    println!(
        "{landed} of {trials} pods beside Karpenter on a spare: created to bound median {:?}, slowest {:?}; {} NodeClaims of Karpenter's own",
        bound.get(bound.len() / 2),
        bound.last(),
        foreign.len()
    );
    running.stop().await;
    assert!(landed * 100 >= trials * 99, "{landed} of {trials}");
    assert!(
        foreign.len() * 100 <= trials,
        "{} of {trials}: {foreign:?}",
        foreign.len()
    );
}
