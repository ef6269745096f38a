//! Steering beside a real Karpenter: its NodeClaims show whether the overlays that Veneer wrote are in play.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

#[path = "support/commitments.rs"]
mod commitments;
mod support;

use std::time::Instant;

use commitments::{Exporter, Proxy, Series, steering};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{Bed, DEADLINE, companion, eventually};
use veneer_api::NodeClaim;
use veneer_controllers::Settings;
use veneer_testbed::{Options, Part};

const FAMILY: &str = "cost-aware-ec2-sp-m5-us-west-2";
const APPLIED: &str = "karpenter.sh/price-overlay-applied";

struct Site {
    bed: Bed,
    proxy: Proxy,
    claims: Api<DynamicObject>,
}

impl Site {
    fn settings(&self, disabled: bool) -> Settings {
        let mut settings = companion();
        let mut steering = steering(&self.proxy.url);
        steering.overlays.disabled = disabled;
        settings.steering = Some(steering);
        settings
    }

    /// A Pod that needs a node of its own of the family m5, and the NodeClaim that Karpenter makes for it.
    async fn launch(&self, name: &str) -> DynamicObject {
        let before: Vec<String> = self.claim_names().await;
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {
            "nodeSelector": {"karpenter.kwok.sh/instance-family": "m5"},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}},
            "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]}}),
        )
        .unwrap();
        let pods: Api<Pod> = Api::default_namespaced(self.bed.admin.clone());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        eventually(&format!("a NodeClaim for {name}"), async || {
            let all = self.claims.list(&Default::default()).await.unwrap();
            all.into_iter().find(|claim| !before.contains(&claim.name_any()))
        })
        .await
    }

    /// Launches until a NodeClaim is as expected: Karpenter takes a moment to follow overlays that go.
    async fn launch_until_applied_is(&self, expected: bool, name: &str) {
        let began = Instant::now();
        for attempt in 0.. {
            let claim = self.launch(&format!("{name}-{attempt}")).await;
            if claim.annotations().contains_key(APPLIED) == expected {
                return;
            }
            let others = format!("{attempt} more NodeClaims where {APPLIED} is {}", !expected);
            assert!(
                began.elapsed() < DEADLINE,
                "{name}: not within {DEADLINE:?}, and {others}"
            );
        }
    }

    async fn claim_names(&self) -> Vec<String> {
        let all = self.claims.list(&Default::default()).await.unwrap();
        all.iter().map(ResourceExt::name_any).collect()
    }

    /// Changes the annotations of the NodePool.
    async fn annotate(&self, patch: Value) {
        let (pools, params) = (self.bed.pools(), PatchParams::default());
        pools
            .patch("default", &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn gone(&self, overlay: &str) {
        eventually(&format!("{overlay} goes"), async || {
            self.bed
                .overlays()
                .get_opt(overlay)
                .await
                .unwrap()
                .is_none()
                .then_some(())
        })
        .await;
    }
}

async fn create(bed: &Bed, group: &str, version: &str, kind: &str, object: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(bed.admin.clone(), &resource);
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn karpenter_follows_the_overlays_and_ignores_disabled_ones() {
    let bed = Bed::start(Options::karpenter().with(Part::Prometheus)).await;
    let exporter = Exporter::start(bed.cluster.exporter_port()).await;
    let proxy = Proxy::start(&bed.cluster.prometheus_url()).await;
    let claims = Api::all_with(bed.admin.clone(), &ApiResource::erase::<NodeClaim>(&()));
    create(
        &bed,
        "karpenter.kwok.sh",
        "v1alpha1",
        "KWOKNodeClass",
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
    )
    .await;
    bed.create_kwok_pool("default").await;
    exporter.show(&Series::low());
    let site = Site { bed, proxy, claims };

    // Low utilisation: Karpenter takes the overlay, and the next NodeClaim says so.
    let running = site.bed.run(site.settings(false));
    eventually("the overlay exists", async || {
        site.bed.overlays().get_opt(FAMILY).await.unwrap()
    })
    .await;
    site.bed.ready(FAMILY).await;
    site.launch_until_applied_is(true, "covered").await;

    // A preference follows too, and Karpenter takes it.
    let annotation = json!({"metadata": {"annotations": {"veneer.io/preference.2": "kubernetes.io/arch=arm64 adjust=-20%"}}});
    site.annotate(annotation).await;
    eventually("the preference exists", async || {
        site.bed.overlays().get_opt("pref-default-2").await.unwrap()
    })
    .await;
    site.bed.ready("pref-default-2").await;
    let annotation = json!({"metadata": {"annotations": {"veneer.io/preference.2": null}}});
    site.annotate(annotation).await;
    site.gone("pref-default-2").await;

    // Preferences with the weights of cost-aware overlays: those move up, and Karpenter finds no conflict.
    let preference = |adjust: &str| format!("kubernetes.io/arch=x86_64,arm64 adjust={adjust}");
    let annotations = json!({"metadata": {"annotations": {
        "veneer.io/preference.10": preference("-1%"), "veneer.io/preference.20": preference("-2%"),
        "veneer.io/preference.30": preference("-3%")}}});
    site.annotate(annotations).await;
    let all = [
        ("pref-default-10", 10),
        ("pref-default-20", 20),
        ("pref-default-30", 30),
        ("cost-aware-compute-sp-global", 11),
        (FAMILY, 21),
        ("cost-aware-ri-c5.large-us-west-2", 31),
    ];
    for (name, weight) in all {
        eventually(&format!("{name} has weight {weight}"), async || {
            let overlay = site.bed.overlays().get_opt(name).await.unwrap()?;
            (overlay.data["spec"]["weight"] == weight).then_some(())
        })
        .await;
    }
    for (name, _) in all {
        site.bed.ready(name).await;
    }
    let none = json!({"metadata": {"annotations": {
        "veneer.io/preference.10": null, "veneer.io/preference.20": null, "veneer.io/preference.30": null}}});
    site.annotate(none).await;
    eventually("the weights are back", async || {
        let overlay = site.bed.overlays().get(FAMILY).await.unwrap();
        (overlay.data["spec"]["weight"] == 20).then_some(())
    })
    .await;

    // Used up: the overlays go, and the next NodeClaim is an ordinary one.
    exporter.show(&Series {
        family_utilization: 96.0,
        compute_utilization: 96.0,
        reserved: 0,
        ..Series::low()
    });
    site.gone(FAMILY).await;
    site.gone("cost-aware-compute-sp-global").await;
    site.launch_until_applied_is(false, "at-list-price").await;
    running.stop().await;

    // Disabled: the overlays exist, Karpenter finds them valid, and nothing follows from them.
    exporter.show(&Series::low());
    let running = site.bed.run(site.settings(true));
    eventually("the overlay exists", async || {
        site.bed.overlays().get_opt(FAMILY).await.unwrap()
    })
    .await;
    site.bed.ready(FAMILY).await;
    site.launch_until_applied_is(false, "disabled").await;
    running.stop().await;
}
