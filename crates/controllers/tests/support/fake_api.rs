//! An API server that says what a test tells it, over loopback: lists in pages, watches that bring nothing, and a record of
//! what was asked.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What is there without any object.
const COLLECTIONS: [&str; 19] = [
    "nodes",
    "pods",
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "daemonsets",
    "deployments",
    "statefulsets",
    "jobs",
    "podtemplates",
    "poddisruptionbudgets",
    "storageclasses",
    "csinodes",
    "volumeattachments",
    "nodeclaims",
    "nodepools",
    "nodeoverlays",
    "overprovisioners",
    "kwoknodeclasses",
];

type Generator = Box<dyn Fn(usize) -> Value + Send + Sync>;

#[derive(Default)]
struct State {
    /// Objects by the path of their collection.
    objects: BTreeMap<String, Vec<Value>>,
    /// What a field selector finds.
    selected: BTreeMap<String, Vec<Value>>,
    /// Objects that are made when they are asked for.
    generated: BTreeMap<String, (usize, Generator)>,
    requests: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    pub(crate) url: String,
    pub(crate) client: Client,
}

/// A client for such a server.
pub(crate) fn client(url: &str) -> Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl FakeApi {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let api = Self {
            state: Arc::default(),
            client: client(&url),
            url,
        };
        let shared = api.clone();
        let router = Router::new().fallback(move |request: Request| {
            let answer = shared.answer(&request);
            async move { answer }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    pub(crate) fn add(&self, collection: &str, object: Value) {
        let mut state = self.state.lock().unwrap();
        state
            .objects
            .entry(collection.to_owned())
            .or_default()
            .push(object);
    }

    /// `count` objects of a collection, each made by `make` when it is asked for.
    pub(crate) fn generate(
        &self,
        collection: &str,
        count: usize,
        make: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) {
        let mut state = self.state.lock().unwrap();
        state
            .generated
            .insert(collection.to_owned(), (count, Box::new(make)));
    }

    /// What lists with a field selector bring, whatever the collection has.
    pub(crate) fn select(&self, selector: &str, objects: Vec<Value>) {
        self.state
            .lock()
            .unwrap()
            .selected
            .insert(selector.to_owned(), objects);
    }

    /// What was asked so far, as `METHOD path`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    fn answer(&self, request: &Request) -> Response<Body> {
        let path = request.uri().path();
        let query: BTreeMap<String, String> = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=").replace("%2F", "/")))
            .collect();
        let mut state = self.state.lock().unwrap();
        state.requests.push(format!("{} {path}", request.method()));
        if request.method() != "GET" {
            return status(StatusCode::FORBIDDEN, "this server is only read");
        }
        if query.contains_key("watch") {
            let nothing = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
            return Response::new(Body::from_stream(nothing));
        }
        if let Some(selector) = query.get("fieldSelector") {
            let found = state.selected.get(selector).cloned().unwrap_or_default();
            return list(&found, None);
        }
        let from: usize = query.get("continue").map_or(0, |text| text.parse().unwrap());
        let limit: usize = query
            .get("limit")
            .map_or(usize::MAX, |text| text.parse().unwrap());
        if let Some((count, make)) = state.generated.get(path) {
            let to = from.saturating_add(limit).min(*count);
            let page: Vec<Value> = (from..to).map(make).collect();
            return list(&page, (to < *count).then_some(to));
        }
        let (collection, name) = path.rsplit_once('/').unwrap();
        if let Some(objects) = state.objects.get(path) {
            return list(objects, None);
        }
        if let Some(objects) = state.objects.get(collection) {
            let found = objects.iter().find(|object| object["metadata"]["name"] == name);
            return match found {
                Some(object) => Response::new(Body::from(object.to_string())),
                None => status(StatusCode::NOT_FOUND, "there is none of that name"),
            };
        }
        if COLLECTIONS.contains(&name) {
            return list(&[], None);
        }
        status(StatusCode::NOT_FOUND, "there is none of that name")
    }
}

fn list(items: &[Value], next: Option<usize>) -> Response<Body> {
    let mut metadata = json!({"resourceVersion": "1000"});
    if let Some(next) = next {
        metadata["continue"] = json!(next.to_string());
    }
    Response::new(Body::from(
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string(),
    ))
}

fn status(code: StatusCode, message: &str) -> Response<Body> {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        _ => "Forbidden",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = code;
    response
}
