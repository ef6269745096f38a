//! Preferences of NodePools in a real API server: the overlays follow the annotations, whoever wrote them before.

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

use std::time::{Duration, Instant};

use commitments::preferences_only;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{Bed, Text, companion, eventually};
use veneer_controllers::{Settings, SteeringSettings};
use veneer_testbed::Part;

/// How soon an overlay must follow its annotation.
const SOON: Duration = Duration::from_secs(2);

fn settings(change: impl FnOnce(&mut SteeringSettings)) -> Settings {
    let mut settings = companion();
    let mut steering = preferences_only();
    change(&mut steering);
    settings.steering = Some(steering);
    settings
}

async fn annotate(bed: &Bed, pool: &str, annotations: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    bed.pools()
        .patch(pool, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// The overlay once `fits` holds, and within the time that is promised.
async fn soon(bed: &Bed, name: &str, fits: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
    let began = Instant::now();
    let found = eventually(&format!("overlay {name} follows"), async || {
        let found = bed.overlays().get_opt(name).await.unwrap();
        found.filter(|overlay| fits(overlay))
    })
    .await;
    assert!(began.elapsed() < SOON, "{name} took {:?}", began.elapsed());
    found
}

async fn gone(bed: &Bed, name: &str) {
    let began = Instant::now();
    eventually(&format!("overlay {name} goes"), async || {
        bed.overlays()
            .get_opt(name)
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    assert!(began.elapsed() < SOON, "{name} took {:?}", began.elapsed());
}

async fn warnings(bed: &Bed) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(bed.admin.clone(), "default");
    let all = events.list(&Default::default()).await.unwrap();
    // The API server itself writes some, about its own service.
    let about = |event: &Event| event.regarding.as_ref().and_then(|one| one.kind.clone());
    let warnings = all.into_iter().filter(|event| {
        event.type_.as_deref() == Some("Warning") && about(event).as_deref() == Some("NodePool")
    });
    let mut notes: Vec<String> = warnings
        .map(|event| format!("{} {}", event.reason.unwrap(), event.note.unwrap()))
        .collect();
    notes.sort();
    notes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_is_created_updated_and_deleted_with_its_annotation() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("web").await;
    let running = bed.run(settings(|_| {}));

    annotate(
        &bed,
        "web",
        json!({"veneer.io/preference.3": "kubernetes.io/arch=arm64 adjust=-20%"}),
    )
    .await;
    let overlay = soon(&bed, "pref-web-3", |_| true).await;
    let pool = bed.pools().get("web").await.unwrap();
    assert_eq!(
        overlay.data["spec"],
        json!({"weight": 3, "priceAdjustment": "-20%", "requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["web"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
        ]})
    );
    assert_eq!(overlay.owner_references()[0].uid, pool.uid().unwrap());
    assert_eq!(overlay.labels()["veneer.io/preference-number"], "3");
    let managers: Vec<&str> = overlay
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|one| one.subresource.is_none())
        .filter_map(|one| {
            one.manager
                .as_deref()
                .filter(|_| one.operation.as_deref() == Some("Apply"))
        })
        .collect();
    assert_eq!(managers, ["veneer"]);

    annotate(
        &bed,
        "web",
        json!({"veneer.io/preference.3": "kubernetes.io/arch=arm64 adjust=-30%"}),
    )
    .await;
    soon(&bed, "pref-web-3", |one| {
        one.data["spec"]["priceAdjustment"] == "-30%"
    })
    .await;

    // Somebody edits it: it comes back.
    bed.patch_overlay("pref-web-3", json!({"spec": {"weight": 77}}))
        .await;
    soon(&bed, "pref-web-3", |one| one.data["spec"]["weight"] == 3).await;

    annotate(
        &bed,
        "web",
        json!({"veneer.io/preference.3": null, "veneer.io/preference.4": "a!=b adjust=+5%"}),
    )
    .await;
    gone(&bed, "pref-web-3").await;
    soon(&bed, "pref-web-4", |_| true).await;

    bed.pools().delete("web", &Default::default()).await.unwrap();
    gone(&bed, "pref-web-4").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_annotation_leaves_the_good_ones_working_and_warns_once() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("web").await;
    annotate(
        &bed,
        "web",
        json!({
            "veneer.io/preference.1": "kubernetes.io/arch=arm64 adjust=20%",
            "veneer.io/preference.2": "kubernetes.io/arch=arm64 adjust=-20%",
            "veneer.io/preference.12": "kubernetes.io/arch=amd64 adjust=-1%",
        }),
    )
    .await;
    let running = bed.run(settings(|_| {}));
    soon(&bed, "pref-web-2", |_| true).await;
    soon(&bed, "pref-web-12", |_| true).await;
    let expected = [
        "InvalidPreference veneer.io/preference.1: \"adjust=20%\" has no sign; expected adjust=-20% or adjust=+20%",
        "PreferenceOutranksCommitments veneer.io/preference.12: weight 12 can outrank overlays for capacity that is paid for (one of the same weight moves up to the next free weight); expected a number below 10",
    ];
    let found = eventually("both warnings", async || {
        let found = warnings(&bed).await;
        (found.len() == 2).then_some(found)
    })
    .await;
    assert_eq!(found, expected);
    assert!(bed.overlays().get_opt("pref-web-1").await.unwrap().is_none());

    // Other changes of the pool, and another replica, do not repeat them.
    annotate(&bed, "web", json!({"veneer.io/preference.5": "a=b adjust=-1%"})).await;
    soon(&bed, "pref-web-5", |_| true).await;
    running.stop().await;
    bed.run_once(settings(|_| {})).await.unwrap();
    assert_eq!(warnings(&bed).await.len(), 2);

    // What the API server refuses is told as well: only it knows which keys of the provider there are.
    let running = bed.run(settings(|_| {}));
    annotate(
        &bed,
        "web",
        json!({"veneer.io/preference.6": "karpenter.kwok.sh/unknown=b adjust=-1%"}),
    )
    .await;
    eventually("a refusal or an overlay", async || {
        let told = warnings(&bed)
            .await
            .iter()
            .any(|note| note.starts_with("PreferenceRejected NodeOverlay pref-web-6: "));
        let made = bed.overlays().get_opt("pref-web-6").await.unwrap().is_some();
        (told || made).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switching_preferences_off_cleans_up_and_disabled_mode_goes_both_ways() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("web").await;
    annotate(&bed, "web", json!({"veneer.io/preference.1": "a=b adjust=-1%"})).await;
    bed.create_overlay("pref-web-2", json!({"priceAdjustment": "-2%"}))
        .await;
    let foreign = bed.overlays().get("pref-web-2").await.unwrap();
    bed.run_once(settings(|_| {})).await.unwrap();
    let requirements = async || {
        let overlay = bed.overlays().get("pref-web-1").await.unwrap();
        overlay.data["spec"]["requirements"].as_array().unwrap().clone()
    };
    let enabled = requirements().await;
    bed.run_once(settings(|steering| steering.overlays.disabled = true))
        .await
        .unwrap();
    let mut disabled = enabled.clone();
    disabled.push(json!({"key": "veneer.io/disabled", "operator": "In", "values": ["true"]}));
    assert_eq!(requirements().await, disabled);
    bed.run_once(settings(|_| {})).await.unwrap();
    assert_eq!(requirements().await, enabled);

    // A dry run shows the deletion and does not make it.
    let text = Text::default();
    let mut dry = settings(|steering| steering.overlays.preferences = false);
    dry.output = text.output();
    bed.run_once(dry).await.unwrap();
    let printed = text.read();
    assert!(
        printed.contains("delete NodeOverlay pref-web-1\n  - "),
        "{printed}"
    );
    assert_eq!(requirements().await, enabled);

    bed.run_once(settings(|steering| steering.overlays.preferences = false))
        .await
        .unwrap();
    assert!(bed.overlays().get_opt("pref-web-1").await.unwrap().is_none());

    // A name that somebody else uses stays theirs.
    annotate(&bed, "web", json!({"veneer.io/preference.2": "a=b adjust=-1%"})).await;
    bed.run_once(settings(|_| {})).await.unwrap();
    let after = bed.overlays().get("pref-web-2").await.unwrap();
    assert_eq!(after.data["spec"], foreign.data["spec"]);
    assert_eq!(after.metadata.labels, foreign.metadata.labels);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_and_writes_of_others_are_survived() {
    let mut bed = Bed::standalone().await;
    bed.create_kwok_pool("web").await;
    annotate(&bed, "web", json!({"veneer.io/preference.1": "a=b adjust=-1%"})).await;
    let running = bed.run(settings(|_| {}));
    soon(&bed, "pref-web-1", |_| true).await;

    bed.cluster.stop_part(Part::ApiServer);
    tokio::task::block_in_place(|| bed.cluster.start_part(Part::ApiServer)).unwrap();
    annotate(&bed, "web", json!({"veneer.io/preference.1": "a=b adjust=-2%"})).await;
    // The watch waits longer and longer while the server is away, so this may take more than a moment.
    eventually("the overlay follows after the restart", async || {
        let found = bed.overlays().get_opt("pref-web-1").await.unwrap()?;
        (found.data["spec"]["priceAdjustment"] == "-2%").then_some(())
    })
    .await;

    // Another writer touches the overlay all the time; each of our writes names a version, and the last one wins.
    for round in 0..20 {
        annotate(
            &bed,
            "web",
            json!({"veneer.io/preference.1": format!("a=b adjust=-{}%", 10 + round)}),
        )
        .await;
        bed.patch_overlay("pref-web-1", json!({"metadata": {"annotations": {"round": round.to_string()}}, "spec": {"weight": 50 + round}}))
            .await;
    }
    eventually("the overlay is as it should be", async || {
        let found = bed.overlays().get("pref-web-1").await.unwrap();
        let spec = &found.data["spec"];
        (spec["priceAdjustment"] == "-29%" && spec["weight"] == 1).then_some(())
    })
    .await;
    let found = bed.overlays().get("pref-web-1").await.unwrap();
    assert_eq!(found.annotations()["round"], "19", "what others add stays");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_of_the_first_release_is_adopted() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("web").await;
    annotate(&bed, "web", json!({"veneer.io/preference.1": "a=b adjust=-1%"})).await;
    // Written by another manager, with a field that ours would not have.
    let old = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "pref-web-1", "labels": {
            "app.kubernetes.io/managed-by": "veneer", "veneer.io/type": "preference", "veneer.io/source-nodepool": "web"}},
        "spec": {"requirements": [], "price": "1.00", "weight": 1}});
    let params = PostParams {
        field_manager: Some("manager".to_owned()),
        ..PostParams::default()
    };
    bed.overlays()
        .create(&params, &serde_json::from_value(old).unwrap())
        .await
        .unwrap();
    bed.run_once(settings(|_| {})).await.unwrap();
    let adopted = bed.overlays().get("pref-web-1").await.unwrap();
    assert_eq!(adopted.data["spec"]["priceAdjustment"], "-1%");
    assert_eq!(adopted.data["spec"].get("price"), None);
    let versions = bed.versions().await;
    bed.run_once(settings(|_| {})).await.unwrap();
    assert_eq!(bed.versions().await, versions, "nothing is left to write");
}
