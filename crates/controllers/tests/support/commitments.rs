//! Commitments for tests: an exporter that Prometheus scrapes, and a proxy before Prometheus that can misbehave.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use veneer_controllers::{PrometheusSettings, SteeringSettings};
use veneer_steering::commitments::Scope;
use veneer_steering::overlays::{MixedPools, Naming, Pricing, Weights};
use veneer_steering::steer;

pub(crate) const ACCOUNT: &str = "123456789012";
pub(crate) const REGION: &str = "us-west-2";

/// Steering with the first release's prices and fast turns, without Prometheus.
pub(crate) fn preferences_only() -> SteeringSettings {
    SteeringSettings {
        prometheus: None,
        inventory: None,
        scope: Scope {
            account: ACCOUNT.to_owned(),
            region: REGION.to_owned(),
            shared_plans: true,
            freshness_limit: "65m".parse().unwrap(),
        },
        interval: Duration::from_millis(100),
        overlays: steer::Settings {
            threshold: 95.0,
            hysteresis: 5.0,
            disabled: false,
            weights: Weights::default(),
            naming: Naming::default(),
            pricing: Pricing::Zero,
            family_label: None,
            mixed_pools: MixedPools::Include,
            preferences: true,
        },
    }
}

/// The same with a Prometheus.
pub(crate) fn steering(url: &str) -> SteeringSettings {
    SteeringSettings {
        prometheus: Some(PrometheusSettings {
            url: url.to_owned(),
            timeout: Duration::from_secs(2),
            retries: 1,
            ..PrometheusSettings::default()
        }),
        ..preferences_only()
    }
}

/// The text that an exporter shows.
#[derive(Clone, Default)]
pub(crate) struct Exporter(Arc<Mutex<String>>);

impl Exporter {
    pub(crate) async fn start(port: u16) -> Self {
        let exporter = Self::default();
        let shown = exporter.clone();
        let router = Router::new().fallback(move || {
            let text = shown.0.lock().unwrap().clone();
            async move { text }
        });
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        exporter
    }

    pub(crate) fn show(&self, series: &Series) {
        self.raw(&series.text());
    }

    pub(crate) fn raw(&self, text: &str) {
        text.clone_into(&mut self.0.lock().unwrap());
    }
}

/// The recorded series of one account: a plan for m5, a Compute plan and Reserved Instances, each with what is left.
#[derive(Clone)]
pub(crate) struct Series {
    pub(crate) family_utilization: f64,
    pub(crate) compute_utilization: f64,
    pub(crate) reserved: u32,
    pub(crate) age: f64,
    /// More lines.
    pub(crate) more: String,
}

impl Series {
    pub(crate) fn low() -> Self {
        Self {
            family_utilization: 50.0,
            compute_utilization: 60.0,
            reserved: 2,
            age: 30.0,
            more: String::new(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let plan = |kind: &str, arn: &str, place: &str, utilization: f64| {
            let short = format!("account_id=\"{ACCOUNT}\",type=\"{kind}\",savings_plan_arn=\"{arn}\"");
            let left = 100.0 - utilization;
            format!(
                "savings_plan_hourly_commitment{{{short}{place}}} 100\n\
                 savings_plan_remaining_capacity{{{short}}} {left}\n\
                 savings_plan_utilization_percent{{{short}}} {utilization}\n"
            )
        };
        let family_place = format!(",instance_family=\"m5\",region=\"{REGION}\"");
        let mut text = plan(
            "ec2_instance",
            "arn:family",
            &family_place,
            self.family_utilization,
        );
        text += &plan("compute", "arn:compute", "", self.compute_utilization);
        text += &format!(
            "ec2_reserved_instance{{account_id=\"{ACCOUNT}\",region=\"{REGION}\",instance_type=\"c5.large\",availability_zone=\"\"}} {}\n",
            self.reserved
        );
        text += &freshness(self.age);
        text + &self.more
    }
}

pub(crate) fn freshness(age: f64) -> String {
    let line = |data: &str| {
        format!("lumina_data_freshness_seconds{{account_id=\"{ACCOUNT}\",data_type=\"{data}\"}} {age}\n")
    };
    line("savings_plans") + &line("reserved_instances")
}

/// How the proxy behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    Status(u16),
    Hang,
    Garbage,
    Warnings,
    /// Some of the queries fail: those about running instances and about the age of the samples.
    Half,
    /// Nothing says how old the data is.
    NoFreshness,
    /// Every number is none.
    NotANumber,
}

/// A proxy before Prometheus.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) url: String,
    fault: Arc<Mutex<Fault>>,
    pub(crate) queries: Arc<AtomicUsize>,
    pub(crate) headers: Arc<Mutex<HeaderMap>>,
    pub(crate) path: Arc<Mutex<String>>,
}

impl Proxy {
    pub(crate) async fn start(prometheus: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            fault: Arc::new(Mutex::new(Fault::None)),
            queries: Arc::default(),
            headers: Arc::default(),
            path: Arc::default(),
        };
        let (prometheus, shared) = (prometheus.to_owned(), proxy.clone());
        let router = Router::new().fallback(move |request: Request| {
            let (prometheus, shared) = (prometheus.clone(), shared.clone());
            let path = request.uri().path_and_query().unwrap().to_string();
            *shared.headers.lock().unwrap() = request.headers().clone();
            shared.path.lock().unwrap().clone_from(&path);
            let path = path.trim_start_matches("/prefix").to_owned();
            async move { shared.answer(&prometheus, path).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        proxy
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    async fn answer(&self, prometheus: &str, path: String) -> (StatusCode, String) {
        self.queries.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.lock().unwrap();
        let fault = match fault {
            Fault::Half if path.contains("hourly_cost") || path.contains("timestamp") => Fault::Status(503),
            other => other,
        };
        match fault {
            Fault::Status(code) => return (StatusCode::from_u16(code).unwrap(), "broken".to_owned()),
            Fault::Hang => tokio::time::sleep(Duration::from_secs(60)).await,
            Fault::Garbage => return (StatusCode::OK, "<html>not Prometheus</html>".to_owned()),
            _ => {}
        }
        let (status, text) = fetch(format!("{prometheus}{path}")).await;
        let text = match fault {
            Fault::Warnings => text.replacen('{', r#"{"warnings":["a store is gone"],"#, 1),
            Fault::NotANumber => edited(&text, |results| {
                for one in results.iter_mut().filter(|one| !is_freshness(one)) {
                    one["value"][1] = "NaN".into();
                }
            }),
            Fault::NoFreshness => edited(&text, |results| results.retain(|one| !is_freshness(one))),
            _ => text,
        };
        (StatusCode::from_u16(status).unwrap(), text)
    }
}

/// Whether a result says how old data is; the age of a sample has no name.
fn is_freshness(result: &Value) -> bool {
    result["metric"]["__name__"] == "lumina_data_freshness_seconds"
        || result["metric"].get("__name__").is_none()
}

fn edited(text: &str, edit: impl FnOnce(&mut Vec<Value>)) -> String {
    let mut answer: Value = serde_json::from_str(text).unwrap();
    edit(answer["data"]["result"].as_array_mut().unwrap());
    answer.to_string()
}

/// Status and body of a GET.
pub(crate) async fn fetch(url: String) -> (u16, String) {
    let answer = tokio::task::spawn_blocking(move || {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut answer = match agent.get(&url).call() {
            Ok(answer) => answer,
            Err(error) => return (502, error.to_string()),
        };
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    });
    answer.await.unwrap()
}
