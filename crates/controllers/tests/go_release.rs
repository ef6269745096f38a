//! What the Go release of Veneer wrote, and what ours writes from the same series.
//!
//! `go_release/` was recorded from the Go release on a real cluster: the series that a real Prometheus had scraped, in the form that
//! Lumina writes them, the NodePool, and the overlays that were there after a while.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

#[path = "support/commitments.rs"]
mod commitments;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use commitments::{Exporter, fetch, steering};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};
use support::{Bed, companion, eventually};
use veneer_api::NodePool;
use veneer_testbed::{Options, Part};

const SERIES: &str = include_str!("go_release/series.json");
const NODE_POOL: &str = include_str!("go_release/nodepool.yaml");
const OVERLAYS: &str = include_str!("go_release/overlays.json");

/// Labels that ours has others of: a reason of its own, and what it says about every overlay.
const OTHER_LABELS: [&str; 2] = ["veneer.io/optimization-reason", "veneer.io/type"];

/// An overlay as far as it is compared: labels, owners, weight, prices, requirements in any order.
#[derive(Debug, PartialEq)]
struct Compared {
    labels: BTreeMap<String, String>,
    owners: BTreeSet<String>,
    weight: Option<i64>,
    price: Option<String>,
    adjustment: Option<String>,
    requirements: BTreeSet<String>,
}

fn compared(labels: &Value, owners: &Value, spec: &Value) -> Compared {
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
    let text = |key: &str| spec[key].as_str().map(str::to_owned);
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    Compared {
        labels: labels
            .into_iter()
            .filter(|(key, _)| !OTHER_LABELS.contains(&key.as_str()))
            .collect(),
        owners: all(owners)
            .iter()
            .map(|owner| format!("{} {}", owner["kind"], owner["name"]))
            .collect(),
        weight: spec["weight"].as_i64(),
        price: text("price"),
        adjustment: text("priceAdjustment"),
        requirements: all(&spec["requirements"])
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

/// Labels and value.
type Sample = (BTreeMap<String, String>, f64);

/// The series as an exporter shows them.
fn exposition() -> String {
    let series: BTreeMap<String, Vec<Sample>> = serde_json::from_str(SERIES).unwrap();
    let mut text = String::new();
    for (name, samples) in &series {
        for (labels, value) in samples {
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}={value:?}"))
                .collect();
            writeln!(text, "{name}{{{}}} {value}", labels.join(",")).unwrap();
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_series_give_the_overlays_of_the_go_release() {
    let bed = Bed::start(Options::api_server().with(Part::Prometheus)).await;
    bed.install_our_crds();
    let pool: NodePool = serde_saphyr::from_str(NODE_POOL).unwrap();
    let pools: kube::Api<NodePool> = kube::Api::all(bed.admin.clone());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let exporter = Exporter::start(bed.cluster.exporter_port()).await;
    exporter.raw(&exposition());
    let url = bed.cluster.prometheus_url();
    eventually("Prometheus has scraped", async || {
        let query = format!("{url}/api/v1/query?query=ec2_reserved_instance_count");
        fetch(query).await.1.contains("m6i").then_some(())
    })
    .await;

    let mut settings = companion();
    let mut steering = steering(&url);
    // The Go release knows one provider's label.
    steering.overlays.family_label = Some("karpenter.k8s.aws/instance-family".to_owned());
    settings.steering = Some(steering);
    let running = bed.run(settings);

    let recorded: Value = serde_json::from_str(OVERLAYS).unwrap();
    let mut expected: BTreeMap<String, Compared> = recorded["overlays"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let name = one["name"].as_str().unwrap().to_owned();
            (
                name,
                compared(&one["labels"], &one["ownerReferences"], &one["spec"]),
            )
        })
        .collect();
    // The differences, each with its reason; the guide has the same table (docs/src/migrate-go.md).
    // All three c6i.2xlarge are in use: nothing is left to steer to. The Go release counts what is owned.
    assert!(expected.remove("cost-aware-ri-c6i.2xlarge-us-west-2").is_some());
    // The r5.large are zonal: the overlay is for their zone, with a weight and a name of its own.
    let mut zonal = expected.remove("cost-aware-ri-r5.large-us-west-2").unwrap();
    zonal.weight = Some(31);
    let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2b"]});
    zonal.requirements.insert(zone.to_string());
    zonal
        .labels
        .insert("veneer.io/zone".to_owned(), "us-west-2b".to_owned());
    expected.insert("cost-aware-ri-r5.large-us-west-2b".to_owned(), zonal);
    // A Compute plan covers everything, so nothing is demanded of the family, which types of other providers do not have.
    let compute = expected.get_mut("cost-aware-compute-sp-global").unwrap();
    compute.requirements.retain(|one| !one.contains("Exists"));

    let names: Vec<&String> = expected.keys().collect();
    eventually(&format!("overlays {names:?}"), async || {
        let found: Vec<String> = bed.versions().await.into_keys().collect();
        found.iter().eq(names.iter().copied()).then_some(())
    })
    .await;
    for (name, expected) in &expected {
        let overlay = bed.overlays().get(name).await.unwrap();
        let labels = serde_json::to_value(overlay.labels()).unwrap();
        let owners = serde_json::to_value(overlay.owner_references()).unwrap();
        let found = compared(&labels, &owners, &overlay.data["spec"]);
        assert_eq!(&found, expected, "{name}");
    }
    drop(running);
}
