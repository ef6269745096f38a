//! Companion mode beside a real Karpenter: the same manifests get the same verdicts, and a difference is noticed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{Bed, companion, condition_of, eventually, get, sample, with_metrics, words};
use veneer_testbed::{Options, Part};

const FAMILY: &str = "karpenter.kwok.sh/instance-family";
const SIZE: &str = "karpenter.kwok.sh/instance-size";
const CPU: &str = "karpenter.kwok.sh/instance-cpu";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const POOL: &str = "karpenter.sh/nodepool";

const FINE: &str = "True ValidationSucceeded";
const CONFLICT: &str = "False Conflict";
const INVALID: &str = "False RuntimeValidation";

fn one(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

fn on(key: &str, values: &[&str]) -> Value {
    json!([one(key, "In", values)])
}

fn price(requirements: Value, price: &str, weight: Option<i32>) -> Value {
    let field = if price.starts_with(['+', '-']) {
        "priceAdjustment"
    } else {
        "price"
    };
    let mut spec = json!({"requirements": requirements, field: price});
    if let Some(weight) = weight {
        spec["weight"] = weight.into();
    }
    spec
}

fn capacity(requirements: Value, capacity: Value, weight: i32) -> Value {
    json!({"requirements": requirements, "capacity": capacity, "weight": weight})
}

/// Overlays with what Karpenter, and so Veneer, is expected to say of each.
fn manifests() -> Vec<(&'static str, Value, &'static str)> {
    let x = json!({"example.com/x": "1"});
    let y = json!({"example.com/y": "1"});
    vec![
        // One weight, one field, common offerings: the name that is later in the alphabet comes first.
        ("m5-a", price(on(FAMILY, &["m5"]), "1.00", Some(10)), CONFLICT),
        ("m5-b", price(on(FAMILY, &["m5"]), "-10%", Some(10)), FINE),
        ("m5-heavier", price(on(FAMILY, &["m5"]), "+0.50", Some(11)), FINE),
        ("m5-lighter", price(on(FAMILY, &["m5"]), "-50%", Some(9)), FINE),
        // The same family without a common offering.
        (
            "c5-spot",
            price(
                json!([one(FAMILY, "In", &["c5"]), one(CAPACITY_TYPE, "In", &["spot"])]),
                "-20%",
                Some(20),
            ),
            FINE,
        ),
        (
            "c5-on-demand",
            price(
                json!([
                    one(FAMILY, "In", &["c5"]),
                    one(CAPACITY_TYPE, "In", &["on-demand"])
                ]),
                "0.01",
                Some(20),
            ),
            FINE,
        ),
        (
            "c5-any-zone-a",
            price(
                json!([one(FAMILY, "In", &["c5"]), one(ZONE, "In", &["us-west-2a"])]),
                "+5%",
                Some(20),
            ),
            CONFLICT,
        ),
        // No weight is weight 0, and that conflicts too.
        ("r5-plain", price(on(FAMILY, &["r5"]), "2", None), FINE),
        ("r5-again", price(on(FAMILY, &["r5"]), "3", None), CONFLICT),
        // All operators.
        (
            "not-in",
            price(
                json!([one(FAMILY, "NotIn", &["m5", "c5", "r5"])]),
                "-1%",
                Some(30),
            ),
            FINE,
        ),
        (
            "large-cpu",
            price(json!([one(CPU, "Gt", &["64"])]), "+1%", Some(31)),
            CONFLICT,
        ),
        (
            "small-cpu",
            price(json!([one(CPU, "Lt", &["2"])]), "+1%", Some(31)),
            FINE,
        ),
        (
            "not-small-cpu",
            price(json!([one(CPU, "Gte", &["65"])]), "+1%", Some(31)),
            FINE,
        ),
        (
            "two-cpu",
            price(
                json!([one(CPU, "Lte", &["2"]), one(SIZE, "In", &["medium"])]),
                "+1%",
                Some(32),
            ),
            FINE,
        ),
        (
            "with-a-family",
            price(json!([{"key": FAMILY, "operator": "Exists"}]), "-1%", Some(33)),
            FINE,
        ),
        (
            "without-a-size",
            price(
                json!([{"key": SIZE, "operator": "DoesNotExist"}]),
                "-1%",
                Some(33),
            ),
            FINE,
        ),
        // A pool of its own, a label of the pool's template, and a pool that does not exist.
        ("pool-one", price(on(POOL, &["one"]), "-3%", Some(40)), CONFLICT),
        (
            "pool-one-team",
            price(on("team", &["one"]), "-4%", Some(40)),
            CONFLICT,
        ),
        ("pool-two", price(on(POOL, &["two"]), "-5%", Some(40)), CONFLICT),
        ("pool-unknown", price(on(POOL, &["three"]), "-6%", Some(40)), FINE),
        ("pools-all", price(json!([]), "-7%", Some(40)), FINE),
        // Capacity: conflicts by resource, with the last overlay of the weight only.
        ("x-first", capacity(on(FAMILY, &["m6i"]), x.clone(), 50), CONFLICT),
        (
            "x-second",
            capacity(on(FAMILY, &["m6i", "m6g"]), x.clone(), 50),
            FINE,
        ),
        ("y-beside-x", capacity(on(FAMILY, &["c6i"]), y.clone(), 51), FINE),
        ("z-x-again", capacity(on(FAMILY, &["c6i"]), x.clone(), 51), FINE),
        ("a-x-between", capacity(on(FAMILY, &["c6i"]), x, 51), FINE),
        (
            "huge-pages",
            capacity(on(FAMILY, &["r6i"]), json!({"hugepages-2Mi": "100Mi"}), 52),
            FINE,
        ),
        (
            "price-and-capacity",
            json!({"requirements": on(FAMILY, &["r6i"]), "price": "9", "capacity": y, "weight": 52}),
            FINE,
        ),
        // Refused at run time only.
        (
            "unknown-capacity-type",
            price(on(CAPACITY_TYPE, &["free"]), "1", Some(60)),
            INVALID,
        ),
        (
            "restricted-label",
            price(on("karpenter.kwok.sh/instance-speed", &["a"]), "1", Some(61)),
            INVALID,
        ),
        (
            "no-label-value",
            price(on(FAMILY, &["not a value"]), "1", Some(62)),
            INVALID,
        ),
        // Matches nothing, changes nothing, sets nothing.
        (
            "matches-nothing",
            price(on(FAMILY, &["no-such-family"]), "1", Some(70)),
            FINE,
        ),
        (
            "sets-nothing",
            json!({"requirements": on(FAMILY, &["m5"]), "weight": 71}),
            FINE,
        ),
        (
            "free-of-charge",
            price(on(FAMILY, &["t3"]), "-100%", Some(72)),
            FINE,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn karpenter_and_veneer_say_the_same_of_the_same_manifests_and_a_difference_is_noticed() {
    let mut bed = Bed::start(Options::karpenter()).await;
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}});
    let kind = kube::api::ApiResource::erase::<veneer_api::KWOKNodeClass>(&());
    kube::Api::<kube::api::DynamicObject>::all_with(bed.admin.clone(), &kind)
        .create(&PostParams::default(), &serde_json::from_value(class).unwrap())
        .await
        .unwrap();
    bed.create_kwok_pool("one").await;
    bed.create_kwok_pool("two").await;

    let mut settings = companion();
    settings.settle = Duration::from_secs(1);
    let metrics = with_metrics(&mut settings).await;
    let running = bed.run(settings);
    let manifests = manifests();
    for (name, spec, _) in &manifests {
        bed.create_overlay(name, spec.clone()).await;
    }

    // Karpenter's verdicts are the expected ones …
    for (name, _, expected) in &manifests {
        bed.condition(name, "ValidationSucceeded", expected).await;
    }
    // … and ours agree with each, by the companion's own comparison and by a fresh look at once.
    let differs = |text: &str, name: &str| {
        sample(
            text,
            &format!("veneer_overlay_verdict_differs{{overlay=\"{name}\"}}"),
        )
    };
    let text = eventually("Veneer agrees on every overlay", async || {
        let (_, text) = get(metrics, "/metrics").await;
        manifests
            .iter()
            .all(|(name, ..)| differs(&text, name) == Some(0.0))
            .then_some(text)
    })
    .await;
    for (name, _, expected) in &manifests {
        let ready = sample(&text, &format!("veneer_overlay_ready{{overlay=\"{name}\"}}"));
        assert_eq!(ready, Some(if *expected == FINE { 1.0 } else { 0.0 }), "{name}");
    }
    let fresh = companion();
    let fresh_metrics = fresh.metrics.clone();
    bed.run_once(fresh).await.unwrap();
    let text = fresh_metrics.text().unwrap();
    let compared = manifests
        .iter()
        .filter(|(name, ..)| differs(&text, name) == Some(0.0))
        .count();
    assert_eq!(compared, manifests.len(), "compared without a delay: {text}");

    // Our own conditions for the same objects: standalone mode would write the same statuses and reasons.
    let karpenters = bed.overlays().list(&Default::default()).await.unwrap();
    let said: Vec<_> = karpenters
        .iter()
        .map(|object| {
            let of = |type_| words(&condition_of(object, type_).unwrap());
            (object.name_any(), of("ValidationSucceeded"), of("Ready"))
        })
        .collect();
    bed.cluster.stop_part(Part::Karpenter);
    for object in &karpenters {
        let clear = Patch::Merge(json!({"status": null}));
        bed.overlays()
            .patch_status(&object.name_any(), &PatchParams::default(), &clear)
            .await
            .unwrap();
    }
    bed.run_once(support::standalone()).await.unwrap();
    for (name, validation, ready) in &said {
        let object = bed.overlays().get(name).await.unwrap();
        let of = |type_| words(&condition_of(&object, type_).unwrap());
        assert_eq!(
            (&of("ValidationSucceeded"), &of("Ready")),
            (validation, ready),
            "{name}"
        );
    }
    println!(
        "{} overlays: Karpenter and Veneer wrote the same statuses and reasons",
        said.len()
    );

    // Somebody breaks the agreement while Karpenter is away.
    let version = async || {
        bed.overlays()
            .get("m5-b")
            .await
            .unwrap()
            .resource_version()
            .unwrap()
    };
    let mut object = bed.overlays().get("m5-b").await.unwrap();
    for condition in object.data["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] != "Applied" {
            condition["status"] = "False".into();
            condition["reason"] = "Conflict".into();
        }
    }
    bed.overlays()
        .replace_status("m5-b", &Default::default(), &object)
        .await
        .unwrap();
    let broken = version().await;
    eventually("the difference is noticed", async || {
        let (_, text) = get(metrics, "/metrics").await;
        (differs(&text, "m5-b") == Some(1.0) && differs(&text, "m5-a") == Some(0.0)).then_some(())
    })
    .await;
    assert_eq!(version().await, broken, "the companion leaves conditions alone");

    // Karpenter comes back and makes it good.
    tokio::task::block_in_place(|| bed.cluster.start_part(Part::Karpenter)).unwrap();
    eventually("both agree again", async || {
        let (_, text) = get(metrics, "/metrics").await;
        (differs(&text, "m5-b") == Some(0.0)).then_some(())
    })
    .await;
    running.stop().await;
}
