//! The two small HTTP servers: `/metrics`, `/debug/decisions` and `/debug/pending`, and the probes `/healthz` and `/readyz`.

mod caller;
mod connections;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use veneer_inventory::series::CONTENT_TYPE;

use crate::export::{Exported, clock};
use crate::standalone::Pending;
use crate::watch_ages::WatchAges;
use crate::{Decisions, Metrics};

const METRICS_OPTION: &str = "--metrics-bind-address";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The text is no address.
    #[error(
        "{option} {text:?} is no address; expected host:port such as 127.0.0.1:8080, :8080 for all interfaces, or 0 for none"
    )]
    Malformed {
        /// The option that has it.
        option: &'static str,
        /// What was given.
        text: String,
    },
    /// The address cannot be used.
    #[error("cannot listen on {option} {text}: {source}; choose another port, or 0 for none")]
    Unusable {
        /// The option that has it.
        option: &'static str,
        /// What was given.
        text: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Whether the process is ready: shared with the probe.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    listed: AtomicBool,
    /// Whether provisioning has begun and not seen everything yet.
    provisioning_waits: AtomicBool,
    fault: Mutex<Option<String>>,
    watches: WatchAges,
    /// Why it is not known whether another provisioner runs here.
    guard_fault: Mutex<Option<String>>,
}

impl Health {
    /// Nothing is ready yet; the watches are those that metrics show too.
    pub(crate) fn new(watches: &WatchAges) -> Self {
        Self(Arc::new(State {
            watches: watches.clone(),
            ..State::default()
        }))
    }

    /// How the watches are.
    pub(crate) fn watches(&self) -> &WatchAges {
        &self.0.watches
    }

    pub(crate) fn set_ready(&self) {
        self.0.listed.store(true, Ordering::Relaxed);
    }

    /// Whether provisioning still waits for its first lists.
    pub(crate) fn set_provisioning_waits(&self, waits: bool) {
        self.0.provisioning_waits.store(waits, Ordering::Relaxed);
    }

    /// What keeps the process from doing all of its work, if anything.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Why it is not known whether another provisioner runs here, if it is not.
    pub(crate) fn set_guard_fault(&self, fault: Option<String>) {
        *self.0.guard_fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Why the process is not ready.
    fn trouble(&self) -> Option<String> {
        let dead = || {
            let dead = self.0.watches.dead(None);
            let dead: Vec<String> = dead.iter().map(ToString::to_string).collect();
            (!dead.is_empty()).then(|| dead.join("; "))
        };
        let waits = |what: &str| match dead() {
            Some(dead) => Some(format!("{what}; {dead}")),
            None => Some(what.to_owned()),
        };
        if !self.0.listed.load(Ordering::Relaxed) {
            return waits("waiting for the first list of objects");
        }
        if self.0.provisioning_waits.load(Ordering::Relaxed) {
            return waits("waiting for the first list of pods, nodes and what else provisioning looks at");
        }
        if let Some(dead) = dead() {
            return Some(dead);
        }
        let guard_fault = self.0.guard_fault.lock().unwrap_or_else(PoisonError::into_inner);
        if guard_fault.is_some() {
            return guard_fault.clone();
        }
        self.0
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Manifests to apply to an embedded world, and where the answer goes.
#[derive(Debug)]
pub struct ApplyRequest {
    /// YAML or JSON, one or several documents.
    pub text: String,
    /// Takes a line per object, or what is wrong.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// What everybody may look at.
fn observers(metrics: &Metrics, decisions: &Decisions, pending: &Pending) -> Router {
    const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
    let (metrics, decisions, pending) = (metrics.clone(), decisions.clone(), pending.clone());
    let show = async move || (JSON, decisions.json());
    let wait = async move || (JSON, pending.json());
    let answer = async move || match metrics.text() {
        Ok(body) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], body),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            error.to_string(),
        ),
    };
    Router::new()
        .route("/metrics", get(answer))
        .route("/debug/decisions", get(show))
        .route("/debug/pending", get(wait))
}

/// `/healthz` and `/readyz` of an exporter.
fn exporter_probes(exported: &Exported) -> Router {
    let exported = exported.clone();
    let ready = async move || match exported.trouble() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
    };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
}

/// A server that listens already and answers once it runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Server {
    /// The server of `/metrics`, `/debug/decisions` and `/debug/pending` on `address`, or none if that is `0`.
    pub async fn metrics(
        address: &str,
        metrics: &Metrics,
        decisions: &Decisions,
        pending: &Pending,
    ) -> Result<Option<Self>, ServeError> {
        Self::bind(METRICS_OPTION, address, observers(metrics, decisions, pending)).await
    }

    /// The same for an embedded world, which also takes manifests (`POST /apply`).
    pub async fn embedded(
        address: &str,
        metrics: &Metrics,
        decisions: &Decisions,
        pending: &Pending,
        requests: mpsc::Sender<ApplyRequest>,
    ) -> Result<Option<Self>, ServeError> {
        let apply = async move |text: String| {
            let (answer, answered) = oneshot::channel();
            let gone = (
                StatusCode::SERVICE_UNAVAILABLE,
                "the world has ended\n".to_owned(),
            );
            if requests.send(ApplyRequest { text, answer }).await.is_err() {
                return gone;
            }
            match answered.await {
                Ok(Ok(lines)) => (StatusCode::OK, lines),
                Ok(Err(why)) => (StatusCode::BAD_REQUEST, format!("{why}\n")),
                Err(_) => gone,
            }
        };
        let router = observers(metrics, decisions, pending).route("/apply", post(apply));
        Self::bind(METRICS_OPTION, address, router).await
    }

    /// The server of the probes on `address`, or none if that is `0`.
    pub async fn probes(address: &str, health: &Health) -> Result<Option<Self>, ServeError> {
        let health = health.clone();
        let ready = async move || match health.trouble() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")),
        };
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready));
        Self::bind("--health-probe-bind-address", address, router).await
    }

    /// The server of an exporter on `address`, or none if that is `0`: `/metrics`, `/debug/inventory`, `/debug/bill` and the probes.
    pub async fn exporter(address: &str, exported: &Exported) -> Result<Option<Self>, ServeError> {
        let [metrics, inventory, bill] = [(); 3].map(|()| exported.clone());
        // Thousands of instances take a while, and a probe must not wait for that.
        let made = async |make: Box<dyn FnOnce() -> String + Send>, kind| match spawn_blocking(make).await {
            Ok(body) => (StatusCode::OK, [(header::CONTENT_TYPE, kind)], body),
            Err(error) => {
                let kind = [(header::CONTENT_TYPE, "text/plain")];
                (StatusCode::INTERNAL_SERVER_ERROR, kind, error.to_string())
            }
        };
        let router = exporter_probes(exported)
            .route(
                "/metrics",
                get(async move || made(Box::new(move || metrics.text(clock())), CONTENT_TYPE).await),
            )
            .route(
                "/debug/inventory",
                get(async move || {
                    made(
                        Box::new(move || inventory.inventory_json(clock())),
                        "application/json",
                    )
                    .await
                }),
            )
            .route(
                "/debug/bill",
                get(async move || made(Box::new(move || bill.bill_json(clock())), "application/json").await),
            );
        Self::bind(METRICS_OPTION, address, router).await
    }

    /// The server of an exporter's probes on `address`, or none if that is `0`.
    pub async fn exporter_probes(address: &str, exported: &Exported) -> Result<Option<Self>, ServeError> {
        Self::bind("--health-probe-bind-address", address, exporter_probes(exported)).await
    }

    async fn bind(option: &'static str, text: &str, router: Router) -> Result<Option<Self>, ServeError> {
        if text == "0" {
            return Ok(None);
        }
        let malformed = || ServeError::Malformed {
            option,
            text: text.to_owned(),
        };
        let addresses = match text.strip_prefix(':') {
            // Both families where there are both, IPv4 where there is no IPv6.
            Some(port) => {
                let port: u16 = port.parse().map_err(|_| malformed())?;
                vec![
                    (Ipv6Addr::UNSPECIFIED, port).into(),
                    (Ipv4Addr::UNSPECIFIED, port).into(),
                ]
            }
            None => vec![text.parse::<SocketAddr>().map_err(|_| malformed())?],
        };
        let unusable = |source| ServeError::Unusable {
            option,
            text: text.to_owned(),
            source,
        };
        let listener = TcpListener::bind(addresses.as_slice()).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        Ok(Some(Self {
            listener,
            address,
            router,
        }))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is dropped.
    pub async fn run(self) -> io::Result<()> {
        // On whichever runtime this runs; it may have been bound on another.
        let listener = TcpListener::from_std(self.listener.into_std()?)?;
        connections::serve(listener, self.address, self.router).await
    }
}
