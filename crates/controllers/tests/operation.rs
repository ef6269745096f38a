//! What an operator relies on: metrics, probes, events, dry runs, single passes, and messages that say what is wrong.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, PostParams};
use serde_json::json;
use support::{
    Bed, Text, catalogue, companion, eventually, family, get, sample, standalone, when, with_metrics,
};
use veneer_controllers::{Mode, Provider, Server, Settings};
use veneer_engine::catalogue::aws;

#[tokio::test(flavor = "multi_thread")]
async fn the_probes_wait_for_the_crds_and_metrics_follow_the_overlays() {
    let bed = Bed::start(veneer_testbed::Options::api_server()).await;
    let mut settings = standalone();
    let metrics = with_metrics(&mut settings).await;
    let probes = Server::probes("127.0.0.1:0", &settings.health)
        .await
        .unwrap()
        .unwrap();
    let probes_address = probes.address();
    settings.servers.push(probes);
    let running = bed.run(settings);

    assert_eq!(get(probes_address, "/healthz").await.0, 200);
    let (status, body) = get(probes_address, "/readyz").await;
    assert_eq!(
        (status, body.as_str()),
        (503, "waiting for the first list of objects\n")
    );
    let (_, text) = get(metrics, "/metrics").await;
    let info = format!(
        "veneer_info{{version=\"{}\",disabled_mode=\"false\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(sample(&text, &info), Some(1.0), "{text}");

    bed.install_our_crds();
    eventually("it is ready", async || {
        (get(probes_address, "/readyz").await.0 == 200).then_some(())
    })
    .await;

    bed.create_kwok_pool("one").await;
    bed.create_kwok_pool("two").await;
    bed.create_overlay("everywhere", family("m5", json!({"price": "1"})))
        .await;
    bed.create_overlay(
        "only-two",
        when(
            "karpenter.sh/nodepool",
            &["two"],
            json!({"priceAdjustment": "-1%", "weight": 5}),
        ),
    )
    .await;
    bed.create_overlay("left-out", json!({"priceAdjustment": "-2%", "weight": 5}))
        .await;
    let text = eventually("all overlays have series", async || {
        let (_, text) = get(metrics, "/metrics").await;
        (sample(&text, r#"veneer_overlay_ready{overlay="left-out"}"#) == Some(0.0)).then_some(text)
    })
    .await;
    let types = catalogue();
    let of_m5 = types
        .types
        .iter()
        .filter(|it| it.name.starts_with("m5."))
        .map(|it| it.offerings.len())
        .sum::<usize>();
    let all = types.types.iter().map(|it| it.offerings.len()).sum::<usize>();
    let matched = |overlay: &str, pool: &str| {
        sample(
            &text,
            &format!("veneer_overlay_matched_offerings{{overlay=\"{overlay}\",nodepool=\"{pool}\"}}"),
        )
    };
    assert_eq!(
        sample(&text, r#"veneer_overlay_ready{overlay="everywhere"}"#),
        Some(1.0),
        "{text}"
    );
    assert_eq!(matched("everywhere", "one"), Some(of_m5 as f64));
    assert_eq!(matched("only-two", "one"), Some(0.0));
    assert_eq!(matched("only-two", "two"), Some(all as f64));
    assert!(sample(&text, "veneer_overlay_evaluation_duration_seconds_count").unwrap() >= 1.0);
    assert!(
        text.ends_with("# EOF\n") && !text.contains("verdict_differs"),
        "{text}"
    );

    bed.delete_overlay("only-two").await;
    bed.ready("left-out").await;
    eventually("the series of a deleted overlay are gone", async || {
        let (_, text) = get(metrics, "/metrics").await;
        (!text.contains("only-two")).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_gets_one_event_when_overlays_change_it_and_no_second_one_soon() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    bed.create_overlay("first", family("m5", json!({"price": "1"})))
        .await;
    let running = bed.run(standalone());
    bed.ready("first").await;

    bed.create_overlay(
        "second",
        family("c5", json!({"capacity": {"example.com/x": "1"}})),
    )
    .await;
    let events: Api<Event> = Api::namespaced(bed.admin.clone(), "default");
    let ours = async || {
        let all = events.list(&Default::default()).await.unwrap();
        let ours = all
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("NodeOverlaysChanged"));
        ours.collect::<Vec<_>>()
    };
    let event = eventually("an event is written", async || ours().await.pop()).await;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    let regarding = event.regarding.unwrap();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.name.as_deref()),
        (Some("NodePool"), Some("default"))
    );
    let note = event.note.unwrap();
    assert!(
        note.starts_with("2 NodeOverlays in effect: ") && note.len() < 200,
        "{note}"
    );

    // The third change is judged, written to the status, and not announced.
    bed.create_overlay("third", family("r5", json!({"price": "1"})))
        .await;
    bed.ready("third").await;
    running.stop().await;
    assert_eq!(ours().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    bed.create_overlay("a", family("m5", json!({"price": "1"}))).await;
    bed.create_overlay("b", family("m5", json!({"price": "2"}))).await;
    let versions = bed.versions().await;
    let text = Text::default();
    let mut settings = standalone();
    settings.output = text.output();
    bed.run_once(settings).await.unwrap();

    let plan = text.read();
    let first = "NodeOverlay a: set ValidationSucceeded=False (Conflict), Applied=False (Conflict), Ready=False (UnhealthyDependents)\n";
    assert!(plan.starts_with(first), "{plan}");
    assert!(
        plan.contains("\n  ValidationSucceeded: conflicts with \"b\""),
        "{plan}"
    );
    assert!(
        plan.contains("NodeOverlay b: set ValidationSucceeded=True (ValidationSucceeded)"),
        "{plan}"
    );
    assert_eq!(bed.versions().await, versions);

    // The real pass does what was printed, and then nothing is left to print.
    bed.run_once(standalone()).await.unwrap();
    assert_ne!(bed.versions().await, versions);
    let text = Text::default();
    let mut settings = standalone();
    settings.output = text.output();
    bed.run_once(settings).await.unwrap();
    assert_eq!(text.read(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn companion_mode_and_a_closed_gate_write_nothing() {
    let bed = Bed::standalone().await;
    bed.create_kwok_pool("default").await;
    let mut settings = companion();
    let metrics = with_metrics(&mut settings).await;
    let running = bed.run(settings);
    for at in 0..5 {
        bed.create_overlay(&format!("overlay-{at}"), family("m5", json!({"price": "1"})))
            .await;
    }
    let versions = bed.versions().await;
    let text = eventually("all of them are judged", async || {
        let (_, text) = get(metrics, "/metrics").await;
        let ready = |at| {
            sample(
                &text,
                &format!("veneer_overlay_ready{{overlay=\"overlay-{at}\"}}"),
            )
        };
        let judged = (ready(0), ready(1), ready(2), ready(3), ready(4));
        (judged == (Some(0.0), Some(0.0), Some(0.0), Some(0.0), Some(1.0))).then(|| text.clone())
    })
    .await;
    assert_eq!(
        sample(&text, r#"veneer_overlay_verdict_differs{overlay="overlay-0"}"#),
        Some(0.0)
    );
    running.stop().await;
    bed.run_once(companion()).await.unwrap();
    assert_eq!(bed.versions().await, versions);

    let mut settings = standalone();
    settings.node_overlay_gate = false;
    bed.run_once(settings).await.unwrap();
    assert_eq!(bed.versions().await, versions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_ec2_counts_once_its_node_class_exists() {
    let bed = Bed::standalone().await;
    bed.create_pool("default", "EC2NodeClass", "karpenter.k8s.aws")
        .await;
    let spec = when(
        "karpenter.k8s.aws/instance-family",
        &["m5"],
        json!({"priceAdjustment": "-10%"}),
    );
    bed.create_overlay("discount", spec).await;
    let catalogue = aws::region("us-east-1").unwrap().catalogue;
    let running = bed.run(Settings::new(Mode::Standalone, Provider::Ec2, catalogue.into()));
    bed.condition("discount", "Applied", "False NoNodePool").await;

    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {
        "role": "node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }});
    let kind = kube::api::ApiResource::erase::<veneer_api::EC2NodeClass>(&());
    let classes = Api::<kube::api::DynamicObject>::all_with(bed.admin.clone(), &kind);
    classes
        .create(&PostParams::default(), &serde_json::from_value(class).unwrap())
        .await
        .unwrap();
    bed.condition("discount", "Applied", "True Applied").await;

    classes.delete("default", &Default::default()).await.unwrap();
    bed.condition("discount", "Applied", "False NoNodePool").await;
    bed.ready("discount").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_pass_says_what_it_lacks() {
    let bed = Bed::start(veneer_testbed::Options::api_server()).await;
    let error = bed.run_once(standalone()).await.unwrap_err().to_string();
    assert!(
        error.contains("the cluster does not serve Node") && error.contains("veneer crds"),
        "{error}"
    );

    bed.install_our_crds();
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(bed.admin.clone());
    let all = roles.get("veneer").await.unwrap();
    let mut less = all.clone();
    less.rules.as_mut().unwrap().retain(|rule| {
        !rule
            .resources
            .iter()
            .flatten()
            .any(|one| one == "nodeoverlays/status")
    });
    roles.replace("veneer", &Default::default(), &less).await.unwrap();
    bed.create_overlay("a", json!({"price": "1"})).await;
    // The authorizer follows its own watch, so the right may last a moment.
    let error = eventually("the write is refused", async || {
        bed.run_once(standalone()).await.err()
    })
    .await
    .to_string();
    assert!(
        error.starts_with("1 NodeOverlay could not be written; the first was a: ")
            && error.contains("forbidden"),
        "{error}"
    );

    less.rules = None;
    less.metadata.resource_version = None;
    roles.replace("veneer", &Default::default(), &less).await.unwrap();
    let error = eventually("reading is refused", async || {
        let error = bed.run_once(standalone()).await.err()?.to_string();
        error.contains("cannot read").then_some(error)
    })
    .await;
    assert!(error.contains("not allowed to list and watch Node"), "{error}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_explained() {
    let settings = standalone();
    let error = Server::metrics("8080", &settings.metrics, &settings.decisions, &settings.pending)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--metrics-bind-address \"8080\" is no address; expected host:port"),
        "{error}"
    );
    let taken = Server::metrics(
        "127.0.0.1:0",
        &settings.metrics,
        &settings.decisions,
        &settings.pending,
    )
    .await
    .unwrap()
    .unwrap();
    let error = Server::probes(&taken.address().to_string(), &settings.health)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot listen on --health-probe-bind-address 127.0.0.1:"),
        "{error}"
    );
    assert!(Server::probes("0", &settings.health).await.unwrap().is_none());
    let everywhere = Server::probes(":0", &settings.health).await.unwrap().unwrap();
    assert!(everywhere.address().ip().is_unspecified());
}
