//! Cost-aware overlays with a real API server and a real Prometheus that scrapes recorded series.

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

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use commitments::{ACCOUNT, Exporter, Fault, Proxy, REGION, Series, fetch, freshness, steering};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};
use support::{Bed, Running, companion, eventually, get, sample, with_metrics};
use veneer_api::NodeClaim;
use veneer_controllers::{Server, Settings, SteeringSettings};
use veneer_testbed::{Options, Part};

const RI: &str = "cost-aware-ri-c5.large-us-west-2";
const FAMILY: &str = "cost-aware-ec2-sp-m5-us-west-2";
const COMPUTE: &str = "cost-aware-compute-sp-global";

/// A cluster with Prometheus, an exporter, a proxy between Prometheus and Veneer, and a NodePool.
struct Site {
    bed: Bed,
    exporter: Exporter,
    proxy: Proxy,
}

/// Controllers with the addresses of their servers.
struct Watched {
    running: Running,
    metrics: SocketAddr,
    probes: SocketAddr,
}

impl Site {
    async fn start() -> Self {
        let bed = Bed::start(Options::api_server().with(Part::Prometheus)).await;
        bed.install_our_crds();
        bed.create_kwok_pool("default").await;
        let exporter = Exporter::start(bed.cluster.exporter_port()).await;
        let proxy = Proxy::start(&bed.cluster.prometheus_url()).await;
        Self { bed, exporter, proxy }
    }

    fn settings(&self, change: impl FnOnce(&mut SteeringSettings)) -> Settings {
        let mut settings = companion();
        let mut steering = steering(&self.proxy.url);
        change(&mut steering);
        settings.steering = Some(steering);
        settings
    }

    async fn run(&self, mut settings: Settings) -> Watched {
        let metrics = with_metrics(&mut settings).await;
        let probes = Server::probes("127.0.0.1:0", &settings.health)
            .await
            .unwrap()
            .unwrap();
        let address = probes.address();
        settings.servers.push(probes);
        Watched {
            running: self.bed.run(settings),
            metrics,
            probes: address,
        }
    }

    /// Waits until exactly these overlays exist.
    async fn overlays(&self, expected: &[&str]) {
        let mut last = Vec::new();
        eventually(&format!("overlays {expected:?}"), async || {
            last = self.bed.versions().await.into_keys().collect();
            (last == expected).then_some(())
        })
        .await;
    }

    /// Shows series, and waits until Prometheus has them.
    async fn show(&self, series: &Series) {
        self.exporter.show(series);
        let url = format!(
            "{}/api/v1/query?query=savings_plan_utilization_percent",
            self.bed.cluster.prometheus_url()
        );
        let expected = format!("\"{}\"", series.family_utilization);
        eventually("Prometheus has scraped", async || {
            let (_, text) = fetch(url.clone()).await;
            text.contains(&expected).then_some(())
        })
        .await;
    }
}

impl Watched {
    async fn metric(&self, series: &str) -> f64 {
        let (_, text) = get(self.metrics, "/metrics").await;
        sample(&text, series).unwrap_or_default()
    }

    /// Waits until this many more reconciliations have ended so.
    async fn reconciled(&self, result: &str, more: f64) {
        let series = format!("veneer_reconciliation_total{{result=\"{result}\"}}");
        let before = self.metric(&series).await;
        eventually(
            &format!("{more} more reconciliations end in {result}"),
            async || (self.metric(&series).await >= before + more).then_some(()),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overlays_follow_utilisation_and_survive_what_nobody_knows() {
    let mut site = Site::start().await;
    site.show(&Series::low()).await;
    let watched = site.run(site.settings(|_| {})).await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    let family = site.bed.overlays().get(FAMILY).await.unwrap();
    assert_eq!(
        family.data["spec"],
        json!({"weight": 20, "price": "0.00", "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m5"]},
        ]})
    );

    let used_up = Series {
        family_utilization: 96.0,
        ..Series::low()
    };
    site.show(&used_up).await;
    site.overlays(&[COMPUTE, RI]).await;
    // It returns well below the threshold, not just below it.
    site.show(&Series {
        family_utilization: 93.0,
        ..Series::low()
    })
    .await;
    watched.reconciled("success", 2.0).await;
    site.overlays(&[COMPUTE, RI]).await;
    let (_, decisions) = get(watched.metrics, "/debug/decisions").await;
    let decisions: Value = serde_json::from_str(&decisions).unwrap();
    let of_family = decisions["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["target"]["covers"] == "m5")
        .unwrap();
    assert_eq!(of_family["reason"], "waiting-for-hysteresis");
    assert_eq!(of_family["balance"]["utilization"], 93.0);
    site.show(&Series {
        family_utilization: 80.0,
        ..Series::low()
    })
    .await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;

    // Stale, then without Prometheus: nothing changes although everything would be used up.
    let stale = Series {
        family_utilization: 97.0,
        compute_utilization: 97.0,
        reserved: 0,
        age: 4000.0,
        ..Series::low()
    };
    let versions = site.bed.versions().await;
    site.show(&stale).await;
    watched.reconciled("stale", 2.0).await;
    assert_eq!(get(watched.probes, "/readyz").await.0, 200);
    assert_eq!(watched.metric("veneer_lumina_data_available").await, 0.0);
    site.bed.cluster.stop_part(Part::Prometheus);
    watched.reconciled("error", 1.0).await;
    let (status, body) = get(watched.probes, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.starts_with("cannot observe commitments: "), "{body}");
    assert_eq!(site.bed.versions().await, versions);

    // Back, and the data is fresh: right again.
    tokio::task::block_in_place(|| site.bed.cluster.start_part(Part::Prometheus)).unwrap();
    site.show(&Series { age: 1.0, ..stale }).await;
    site.overlays(&[]).await;
    assert_eq!(get(watched.probes, "/readyz").await.0, 200);
    site.show(&Series::low()).await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;

    // Every metric that dashboards use is there.
    eventually("the gauges have followed", async || {
        (watched
            .metric("veneer_overlay_count{capacity_type=\"reserved-instance\"}")
            .await
            > 0.0)
            .then_some(())
    })
    .await;
    let (_, text) = get(watched.metrics, "/metrics").await;
    for series in [
        "veneer_reconciliation_duration_seconds_count ",
        "veneer_reconciliation_total{result=\"success\"} ",
        "veneer_lumina_data_freshness_seconds ",
        "veneer_lumina_data_available 1",
        "veneer_decision_total{capacity_type=\"compute-savings-plan\",should_exist=\"true\",reason=\"capacity-available\"} ",
        "veneer_decision_duration_seconds_count ",
        "veneer_reserved_instance_data_available 1",
        "veneer_reserved_instance_count{instance_type=\"c5.large\",region=\"us-west-2\"} 2",
        "veneer_savings_plan_utilization_percent{type=\"ec2_instance\",instance_family=\"m5\",region=\"us-west-2\"} 50",
        "veneer_savings_plan_remaining_capacity_dollars{type=\"compute\",instance_family=\"\",region=\"\"} 40",
        "veneer_overlay_operations_total{operation=\"create\",capacity_type=\"reserved-instance\"} ",
        "veneer_overlay_operations_total{operation=\"delete\",capacity_type=\"ec2-instance-savings-plan\"} ",
        "veneer_overlay_count{capacity_type=\"reserved-instance\"} 1",
        "veneer_prometheus_query_duration_seconds_count{query_type=\"scrape_age\"} ",
        "veneer_prometheus_query_errors_total{query_type=\"commitments\"} ",
        "veneer_prometheus_query_result_count{query_type=\"commitments\"} 9",
        "veneer_config_overlays_disabled 0",
        "veneer_config_utilization_threshold_percent 95",
        "veneer_info{version=",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(series)),
            "{series}\n{text}"
        );
    }
    watched.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_prometheus_deletes_an_overlay() {
    let site = Site::start().await;
    site.show(&Series::low()).await;
    let watched = site
        .run(site.settings(|steering| {
            let prometheus = steering.prometheus.as_mut().unwrap();
            prometheus.timeout = Duration::from_millis(300);
        }))
        .await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    let versions = site.bed.versions().await;
    // Whoever mistakes a fault for an answer would now delete.
    let used_up = Series {
        family_utilization: 97.0,
        compute_utilization: 97.0,
        reserved: 0,
        ..Series::low()
    };
    for fault in [
        Fault::Status(500),
        Fault::Status(404),
        Fault::Hang,
        Fault::Garbage,
        Fault::Warnings,
        Fault::NoFreshness,
        Fault::NotANumber,
        Fault::Half,
    ] {
        site.proxy.set(fault);
        if fault == Fault::NotANumber {
            // Numbers that are none put each target in doubt by itself; the queries have answers.
            watched.reconciled("success", 2.0).await;
        } else {
            watched.reconciled("error", 2.0).await;
            assert_eq!(get(watched.probes, "/readyz").await.0, 503, "{fault:?}");
        }
        if fault != Fault::Half {
            site.exporter.show(&used_up);
            watched
                .reconciled(
                    if fault == Fault::NotANumber {
                        "success"
                    } else {
                        "error"
                    },
                    1.0,
                )
                .await;
        }
        assert_eq!(site.bed.versions().await, versions, "{fault:?}");
        site.exporter.show(&Series::low());
    }
    site.show(&Series::low()).await;
    site.proxy.set(Fault::None);
    watched.reconciled("success", 2.0).await;
    assert_eq!(get(watched.probes, "/readyz").await.0, 200);
    assert_eq!(site.bed.versions().await, versions);

    // An empty and fresh answer is no fault.
    let url = format!(
        "{}/api/v1/query?query=ec2_reserved_instance",
        site.bed.cluster.prometheus_url()
    );
    site.exporter.raw(&freshness(5.0));
    eventually("the series are gone", async || {
        fetch(url.clone()).await.1.contains("\"result\":[]").then_some(())
    })
    .await;
    site.overlays(&[]).await;
    watched.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_since_the_data_end_an_overlay_before_new_data_comes() {
    let site = Site::start().await;
    let series = Series {
        family_utilization: 50.0,
        ..Series::low()
    };
    site.show(&series).await;
    // The data comes once; everything after that is the cluster's own doing.
    let settings = site.settings(|steering| steering.interval = Duration::from_secs(3600));
    let watched = site.run(settings).await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    // The data is 30 s old, and so is older than anything that is created now. c5.large has two reservations.
    let claims: Api<DynamicObject> =
        Api::all_with(site.bed.admin.clone(), &ApiResource::erase::<NodeClaim>(&()));
    let claim = |name: &str| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.large"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ]}})
    };
    for (name, left) in [("one", &[COMPUTE, FAMILY, RI][..]), ("two", &[COMPUTE, FAMILY])] {
        let object = serde_json::from_value(claim(name)).unwrap();
        claims.create(&PostParams::default(), &object).await.unwrap();
        let began = Instant::now();
        site.overlays(left).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    let (_, text) = get(watched.metrics, "/debug/decisions").await;
    assert!(text.contains("used-up-by-launches"), "{text}");
    // One of them was called off.
    claims.delete("one", &Default::default()).await.unwrap();
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    watched.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_weights_prices_and_disabled_mode_may_change_at_any_time() {
    let site = Site::start().await;
    site.show(&Series::low()).await;
    let run = async |change: &dyn Fn(&mut SteeringSettings)| {
        let settings = site.settings(change);
        site.bed.run_once(settings).await
    };
    run(&|_| {}).await.unwrap();
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    run(&|steering| {
        steering.overlays.naming.compute_savings_plan = "all".to_owned();
        steering.overlays.weights.ec2_instance_savings_plan = 25;
        steering.overlays.pricing = veneer_steering::overlays::Pricing::Ordered {
            adjustment: "-95%".to_owned(),
        };
        steering.overlays.disabled = true;
    })
    .await
    .unwrap();
    site.overlays(&["all-global", FAMILY, RI]).await;
    let family = site.bed.overlays().get(FAMILY).await.unwrap();
    let spec = &family.data["spec"];
    assert_eq!(
        (&spec["weight"], &spec["priceAdjustment"], spec.get("price")),
        (&json!(25), &json!("-95%"), None)
    );
    let disabled = json!({"key": "veneer.io/disabled", "operator": "In", "values": ["true"]});
    assert!(spec["requirements"].as_array().unwrap().contains(&disabled));
    // Also while nothing can be known: what exists stays, in the form that is configured now.
    site.proxy.set(Fault::Status(500));
    let error = run(&|_| {}).await.unwrap_err().to_string();
    assert!(
        error.starts_with("commitments could not be observed: "),
        "{error}"
    );
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    let family = site.bed.overlays().get(FAMILY).await.unwrap();
    assert_eq!(family.data["spec"]["price"], "0.00");
    assert_eq!(family.data["spec"]["requirements"].as_array().unwrap().len(), 2);

    // Pools that can launch spot too are excluded, and there is no other.
    site.proxy.set(Fault::None);
    let exclude = |steering: &mut SteeringSettings| {
        steering.overlays.mixed_pools = veneer_steering::overlays::MixedPools::Exclude;
    };
    run(&exclude).await.unwrap();
    site.overlays(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_headers_and_certificates_reach_prometheus() {
    let site = Site::start().await;
    site.show(&Series::low()).await;
    let folder = site.bed.cluster.folder().to_owned();
    let token = folder.join("prometheus-token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let seen = |name: &str| {
        let headers = site.proxy.headers.lock().unwrap();
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let bearer = site.settings(|steering| {
        let prometheus = steering.prometheus.as_mut().unwrap();
        prometheus.bearer_token_file = Some(token.display().to_string());
        prometheus
            .headers
            .insert("X-Scope-OrgID".to_owned(), "team".to_owned());
    });
    site.bed.run_once(bearer).await.unwrap();
    assert_eq!(seen("authorization").as_deref(), Some("Bearer s3cret"));
    assert_eq!(seen("x-scope-orgid").as_deref(), Some("team"));
    let basic = site.settings(|steering| {
        steering.prometheus.as_mut().unwrap().url += "/prefix";
        steering.prometheus.as_mut().unwrap().basic = Some(("user".to_owned(), "pass".to_owned()));
    });
    site.bed.run_once(basic).await.unwrap();
    assert_eq!(seen("authorization").as_deref(), Some("Basic dXNlcjpwYXNz"));
    let path = site.proxy.path.lock().unwrap().clone();
    assert!(path.starts_with("/prefix/api/v1/query?query="), "{path}");

    // The API server speaks TLS with a certificate of the testbed's own: with it the question arrives.
    let ca = folder.join("ca.crt").display().to_string();
    let url = site.bed.cluster.url();
    for (ca_file, expected) in [(Some(ca), "status 40"), (None, "ertificate")] {
        let settings = site.settings(|steering| {
            let prometheus = steering.prometheus.as_mut().unwrap();
            prometheus.url.clone_from(&url);
            prometheus.ca_file = ca_file;
        });
        let error = site.bed.run_once(settings).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_cluster_costs_nothing_while_nothing_changes() {
    const POOLS: usize = 50;
    const COMMITMENTS: usize = 250;
    let site = Site::start().await;
    let mut more = String::new();
    for at in 0..COMMITMENTS {
        let labels = format!("account_id=\"{ACCOUNT}\",type=\"ec2_instance\",savings_plan_arn=\"arn:{at}\"");
        more += &format!(
            "savings_plan_hourly_commitment{{{labels},instance_family=\"f{at}\",region=\"{REGION}\"}} 10\n"
        );
        more += &format!(
            "savings_plan_remaining_capacity{{{labels}}} 5\nsavings_plan_utilization_percent{{{labels}}} 50\n"
        );
        more += &format!(
            "ec2_reserved_instance{{account_id=\"{ACCOUNT}\",region=\"{REGION}\",instance_type=\"r{at}.large\",availability_zone=\"\"}} 2\n"
        );
    }
    site.show(&Series {
        more,
        ..Series::low()
    })
    .await;
    for at in 0..POOLS {
        let name = format!("pool-{at}");
        site.bed.create_kwok_pool(&name).await;
        let annotations: serde_json::Map<String, Value> = (1..=9)
            .map(|number| {
                (
                    format!("veneer.io/preference.{number}"),
                    json!(format!("team=t{number} adjust=-{number}%")),
                )
            })
            .collect();
        let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        site.bed
            .pools()
            .patch(&name, &Default::default(), &patch)
            .await
            .unwrap();
    }
    let mut settings = site.settings(|_| {});
    // The evaluation of all overlays is another controller's, and measured elsewhere.
    std::sync::Arc::make_mut(&mut settings.catalogue)
        .types
        .truncate(3);
    let watched = site.run(settings).await;
    let expected = POOLS * 9 + COMMITMENTS * 2 + 3;
    eventually("all overlays exist", async || {
        let found = site
            .bed
            .overlays()
            .list_metadata(&Default::default())
            .await
            .unwrap();
        (found.items.len() == expected).then_some(())
    })
    .await;
    watched.reconciled("success", 3.0).await;

    let server = async || {
        let text = site
            .bed
            .admin
            .request_text(http::Request::get("/metrics").body(Vec::new()).unwrap())
            .await
            .unwrap();
        let counts = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && ["LIST", "POST", "PUT", "PATCH", "DELETE", "APPLY"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
                && ["nodeoverlays", "nodepools", "nodeclaims", "nodes", "events"]
                    .iter()
                    .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
        });
        counts
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum::<f64>()
    };
    let turns = "veneer_reconciliation_duration_seconds_count ";
    let seconds = "veneer_reconciliation_duration_seconds_sum ";
    // Events on the pools that the other controller still had to write are no part of this.
    let mut last = server().await;
    eventually("nothing else writes any more", async || {
        watched.reconciled("success", 3.0).await;
        let now = server().await;
        (std::mem::replace(&mut last, now) == now).then_some(())
    })
    .await;
    let before = (
        server().await,
        watched.metric(turns).await,
        watched.metric(seconds).await,
    );
    let queries = site.proxy.queries.load(Ordering::SeqCst);
    watched.reconciled("success", 10.0).await;
    let after = (watched.metric(turns).await, watched.metric(seconds).await);
    let asked = site.proxy.queries.load(Ordering::SeqCst) - queries;
    assert_eq!(server().await, before.0, "no write and no list");
    let turns = after.0 - before.1;
    let each = (after.1 - before.2) / turns;
    assert!(each < 1.0, "{each} s per reconciliation");
    // One more turn may have begun.
    assert!(
        asked as f64 <= 3.0 * (turns + 1.0),
        "{asked} queries in {turns} turns"
    );
    println!(
        "{expected} overlays: {:.0} ms per reconciliation that changes nothing, {asked} queries in {turns} turns",
        each * 1000.0
    );
    watched.running.stop().await;
    let names: Vec<String> = site.bed.versions().await.into_keys().collect();
    assert!(
        names.iter().any(|name| name == "pref-pool-49-9"),
        "{}",
        names.len()
    );
    let one = site.bed.overlays().get("pref-pool-49-9").await.unwrap();
    assert_eq!(one.labels()["veneer.io/source-nodepool"], "pool-49");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_matcher_keeps_out_commitments_that_somebody_else_invents() {
    let invented = "cost-aware-ri-p5.48xlarge-us-west-2";
    let site = Site::start().await;
    let fake = format!(
        "ec2_reserved_instance{{account_id=\"{ACCOUNT}\",region=\"{REGION}\",instance_type=\"p5.48xlarge\",availability_zone=\"\"}} 100\n"
    );
    let told = Series::low().text();
    let told = told.replace("{account_id", "{source=\"lumina\",account_id");
    site.exporter.raw(&(told + &fake));
    let watched = site.run(site.settings(|_| {})).await;
    site.overlays(&[COMPUTE, FAMILY, RI, invented]).await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(site.bed.admin.clone());
    eventually("an event says that the matcher is missing", async || {
        let events = events.list(&kube::api::ListParams::default()).await.unwrap();
        let mut found = events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("PrometheusMatcherMissing"));
        let note = |event: &k8s_openapi::api::events::v1::Event| event.note.clone().unwrap_or_default();
        found.find(|event| note(event).contains("prometheus.matcher"))
    })
    .await;
    watched.running.stop().await;
    let matcher = "job=\"exporter\",source=~\"lumina|other\"".to_owned();
    let settings = site.settings(|steering| {
        if let Some(prometheus) = &mut steering.prometheus {
            prometheus.matcher = Some(matcher);
        }
    });
    let watched = site.run(settings).await;
    site.overlays(&[COMPUTE, FAMILY, RI]).await;
    watched.running.stop().await;
}
