//! Standalone mode on a real API server: conditions arrive soon, are right, and survive what happens to a cluster.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::{Bed, condition_of, eventually, family, sample, standalone, words};
use veneer_testbed::Part;

#[tokio::test(flavor = "multi_thread")]
async fn conditions_arrive_within_a_second_of_a_change() {
    let bed = Bed::standalone().await;
    for pool in 0..10 {
        bed.create_kwok_pool(&format!("pool-{pool}")).await;
    }
    for weight in 1..=100 {
        let spec = json!({"priceAdjustment": "-5%", "weight": weight});
        bed.create_overlay(&format!("background-{weight}"), family("m5", spec))
            .await;
    }
    let settings = standalone();
    let metrics = settings.metrics.clone();
    let began = Instant::now();
    let running = bed.run(settings);
    for weight in (1..=100).rev() {
        bed.ready(&format!("background-{weight}")).await;
    }
    println!(
        "100 overlays had their first conditions {:?} after the start",
        began.elapsed()
    );

    let mut latencies = Vec::new();
    for round in 0..20 {
        let price = format!("0.{:02}", round + 1);
        let began = Instant::now();
        bed.create_overlay("rival", family("c5", json!({"price": price})))
            .await;
        bed.ready("rival").await;
        latencies.push(began.elapsed());

        let began = Instant::now();
        bed.create_overlay("loser", family("c5", json!({"price": price})))
            .await;
        let lost = bed
            .condition("loser", "ValidationSucceeded", "False Conflict")
            .await;
        latencies.push(began.elapsed());
        assert!(
            lost.message.contains("\"rival\"") && lost.message.contains("c5."),
            "{}",
            lost.message
        );

        let began = Instant::now();
        bed.patch_overlay("loser", json!({"spec": {"weight": 7}})).await;
        bed.ready("loser").await;
        latencies.push(began.elapsed());

        bed.delete_overlay("rival").await;
        bed.delete_overlay("loser").await;
    }
    running.stop().await;

    latencies.sort_unstable();
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 100];
    println!(
        "{} changes beside 100 overlays and 10 pools, the request included: median {:?}, 95 % {:?}, slowest {:?}",
        latencies.len(),
        at(50),
        at(95),
        at(100)
    );
    let text = metrics.text().unwrap();
    let total = |part| {
        sample(
            &text,
            &format!("veneer_overlay_evaluation_duration_seconds_{part}"),
        )
        .unwrap()
    };
    println!(
        "{} evaluations took {:.1} ms on average",
        total("count"),
        1000.0 * total("sum") / total("count")
    );
    assert!(at(95) < Duration::from_secs(1), "{latencies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_writers_do_not_keep_conditions_away_and_lose_nothing() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    bed.create_overlay("contested", family("m5", json!({"price": "1"})))
        .await;
    let running = bed.run(standalone());

    // Two writers that never rest: one changes the metadata, one adds a condition of its own to the status.
    let overlays = bed.overlays();
    let labels = tokio::spawn(async move {
        for round in 0.. {
            let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
            overlays
                .patch("contested", &PatchParams::default(), &Patch::Merge(patch))
                .await
                .unwrap();
        }
    });
    let overlays = bed.overlays();
    let status = tokio::spawn(async move {
        for round in 0.. {
            let mut object = overlays.get("contested").await.unwrap();
            let conditions = object
                .data
                .pointer("/status/conditions")
                .and_then(|all| all.as_array())
                .cloned();
            let mut conditions = conditions.unwrap_or_default();
            conditions.retain(|one| one["type"] != "Audited");
            conditions.push(
                json!({"type": "Audited", "status": "True", "reason": "Round", "message": round.to_string(),
                "lastTransitionTime": "2026-01-01T00:00:00Z"}),
            );
            object.data["status"] = json!({"conditions": conditions});
            // It respects the version as well, and simply tries again when it lost.
            let _ = overlays
                .replace_status("contested", &Default::default(), &object)
                .await;
        }
    });

    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        let began = Instant::now();
        bed.create_overlay("rival", family("m5", json!({"price": "2"})))
            .await;
        bed.condition("contested", "ValidationSucceeded", "False Conflict")
            .await;
        slowest = slowest.max(began.elapsed());
        bed.delete_overlay("rival").await;
        let price = json!({"spec": {"price": format!("1.{round}")}});
        bed.patch_overlay("contested", price).await;
        bed.ready("contested").await;
    }
    labels.abort();
    status.abort();
    let (labels, status) = (labels.await.unwrap_err(), status.await.unwrap_err());
    assert!(
        labels.is_cancelled() && status.is_cancelled(),
        "the writers wrote to the end: {labels} {status}"
    );

    let object = bed.overlays().get("contested").await.unwrap();
    assert!(
        condition_of(&object, "Audited").is_some(),
        "a condition of others is kept"
    );
    running.stop().await;
    println!("beside two restless writers, the slowest of 10 conflicts was told after {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_halfway_is_made_good_after_the_restart_and_then_nothing_is_written() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    let running = bed.run(standalone());
    for at in 0..60 {
        let spec = family("m5", json!({"priceAdjustment": "-1%", "weight": 1 + at / 2}));
        bed.create_overlay(&format!("overlay-{at:02}"), spec).await;
    }
    // Of each pair, the later name is in force. Some of them have conditions by now, and some do not.
    running.crash().await;
    let with_conditions = bed.overlays().list(&Default::default()).await.unwrap();
    let before = with_conditions
        .iter()
        .filter_map(|one| condition_of(one, "Ready"))
        .count();

    let running = bed.run(standalone());
    for at in 0..60 {
        let expected = if at % 2 == 1 {
            "True Ready"
        } else {
            "False UnhealthyDependents"
        };
        bed.condition(&format!("overlay-{at:02}"), "Ready", expected)
            .await;
    }
    running.stop().await;
    println!("{before} of 60 overlays had conditions when the controllers crashed");

    let versions = bed.versions().await;
    bed.run_once(standalone()).await.unwrap();
    assert_eq!(
        bed.versions().await,
        versions,
        "a pass over an unchanged cluster writes nothing"
    );

    // Neither does a change that alters no verdict, while the controllers run.
    let running = bed.run(standalone());
    bed.patch_overlay("overlay-00", json!({"metadata": {"labels": {"touched": "yes"}}}))
        .await;
    bed.create_overlay("last", family("c5", json!({"price": "1"})))
        .await;
    bed.ready("last").await;
    running.stop().await;
    let mut after = bed.versions().await;
    after.remove("last");
    let changed: Vec<_> = after
        .iter()
        .filter(|(name, version)| versions.get(*name) != Some(version))
        .collect();
    assert_eq!(changed.len(), 1, "only the touch itself: {changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_that_is_deleted_frees_its_rivals_and_made_again_starts_afresh() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    let running = bed.run(standalone());
    bed.create_overlay("a", family("m5", json!({"price": "1"}))).await;
    bed.create_overlay("b", family("m5", json!({"price": "2"}))).await;
    let lost = bed.condition("a", "Ready", "False UnhealthyDependents").await;
    assert_eq!(lost.message, "ValidationSucceeded=False");
    let applied = bed.condition("a", "Applied", "False Conflict").await;
    assert_eq!(applied.observed_generation, Some(1));

    for _ in 0..10 {
        bed.delete_overlay("b").await;
        bed.ready("a").await;
        bed.create_overlay("b", family("m5", json!({"price": "2"}))).await;
        bed.ready("b").await;
        bed.condition("a", "Ready", "False UnhealthyDependents").await;
    }

    // Deleted and made again with other contents at once: never the conditions of the one before.
    bed.delete_overlay("b").await;
    bed.create_overlay("b", family("no-such-family", json!({"price": "2"})))
        .await;
    bed.condition("b", "Applied", "False MatchesNothing").await;
    bed.ready("a").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_an_older_crd_let_in_are_told_their_faults_and_hide_nobody() {
    let bed = Bed::start(veneer_testbed::Options::api_server()).await;
    let mut crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let strict = crds
        .iter()
        .find(|crd| crd.spec.names.kind == "NodeOverlay")
        .unwrap()
        .clone();
    // A CRD that checks nothing but keeps everything, as a careless first version might.
    for crd in crds.iter_mut().filter(|crd| crd.spec.names.kind == "NodeOverlay") {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = &mut crd.spec.versions[0];
        version.schema.as_mut().unwrap().open_api_v3_schema = Some(serde_json::from_value(open).unwrap());
        version.additional_printer_columns = None;
    }
    let texts: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
    bed.cluster.install_crds(&texts).unwrap();
    bed.create_kwok_pool("default").await;
    let bad = [
        ("bad-weight", json!({"weight": -3, "price": "1"}), "spec.weight"),
        ("bad-price", json!({"price": "cheap"}), "spec.price"),
        ("number-as-price", json!({"price": 5.5}), "spec.price"),
        (
            "both-prices",
            json!({"price": "1", "priceAdjustment": "+1%"}),
            "spec.price",
        ),
        (
            "bad-operator",
            json!({"requirements": [{"key": "a", "operator": "Near", "values": ["b"]}]}),
            "operator",
        ),
        (
            "requirements-no-list",
            json!({"requirements": "all"}),
            "spec.requirements",
        ),
        (
            "earlier-draft",
            json!({"selector": {"matchLabels": {"karpenter.kwok.sh/instance-family": "m5"}}, "pricePercent": 90}),
            "spec.selector",
        ),
        (
            "core-resource",
            json!({"capacity": {"cpu": "1"}}),
            "spec.capacity.cpu",
        ),
    ];
    for (name, spec, _) in &bad {
        bed.create_overlay(name, spec.clone()).await;
    }
    bed.create_overlay("good", family("m5", json!({"price": "1"})))
        .await;

    let running = bed.run(standalone());
    bed.ready("good").await;
    for (name, _, field) in &bad {
        let condition = bed
            .condition(name, "ValidationSucceeded", "False RuntimeValidation")
            .await;
        assert!(condition.message.contains(field), "{name}: {}", condition.message);
    }

    // The strict CRD comes later, as an upgrade brings it; the old objects stay and can still be judged.
    let api = kube::Api::all(bed.admin.clone());
    let mut installed: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
        api.get("nodeoverlays.karpenter.sh").await.unwrap();
    installed.spec = strict.spec;
    api.replace("nodeoverlays.karpenter.sh", &Default::default(), &installed)
        .await
        .unwrap();
    running.stop().await;
    let overlays = bed.overlays();
    eventually("the strict schema is in force", async || {
        let object = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": "probe"}, "spec": {"price": "cheap"}});
        let dry_run = kube::api::PostParams {
            dry_run: true,
            ..Default::default()
        };
        overlays
            .create(&dry_run, &serde_json::from_value(object).unwrap())
            .await
            .err()
            .map(|_| ())
    })
    .await;
    let clear = json!({"status": null});
    overlays
        .patch_status("bad-price", &PatchParams::default(), &Patch::Merge(clear))
        .await
        .unwrap();
    let running = bed.run(standalone());
    bed.condition("bad-price", "ValidationSucceeded", "False RuntimeValidation")
        .await;
    bed.ready("good").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_live_through_a_restart_of_the_api_server() {
    let mut bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    let running = bed.run(standalone());
    bed.create_overlay("first", family("m5", json!({"price": "1"})))
        .await;
    bed.ready("first").await;

    tokio::task::block_in_place(|| {
        bed.cluster.stop_part(Part::ApiServer);
        bed.cluster.start_part(Part::ApiServer).unwrap();
    });

    let overlays = bed.overlays();
    eventually("the API server takes a new overlay", async || {
        let object = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": "second"}, "spec": family("m5", json!({"price": "2"}))});
        overlays
            .create(&Default::default(), &serde_json::from_value(object).unwrap())
            .await
            .ok()
    })
    .await;
    bed.ready("second").await;
    let lost = bed
        .condition("first", "ValidationSucceeded", "False Conflict")
        .await;
    assert_eq!(words(&lost), "False Conflict");
    running.stop().await;
}
