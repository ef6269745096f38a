//! What stands between the drivers and the simulated servers: every request of one replica passes here, is counted and checked,
//! and fares as the faults have it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tower::{BoxError, Service};

use super::Sim;
use super::api_server::{Path, Refusal};
use super::cloud;
use super::faults::{EC2, Rude};

/// The body of an answer: pieces as they come, or where it breaks off.
pub(super) struct Answer(UnboundedReceiver<Result<Bytes, std::io::Error>>);

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

type Pieces = UnboundedSender<Result<Bytes, std::io::Error>>;

fn broken() -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "connection reset by the simulation",
    )
}

/// One process of a replica. Nothing of it passes any more once it has ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) replica: usize,
    pub(super) identity: String,
    pub(super) ended: AtomicBool,
}

impl Process {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// The way of one process to the API server.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) sim: Arc<Sim>,
    pub(super) process: Arc<Process>,
}

/// A request, taken apart.
struct Asked {
    method: Method,
    path: Path,
    query: String,
    body: Value,
}

impl Asked {
    fn parameter(&self, name: &str) -> String {
        let form = cloud::form(&self.query);
        form.get(name).cloned().unwrap_or_default()
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { wire.answer(request).await })
    }
}

fn whole(status: u16, body: &Value) -> Result<Response<Answer>, BoxError> {
    let (pieces, answer) = unbounded_channel();
    drop(pieces.send(Ok(Bytes::from(body.to_string()))));
    Ok(Response::builder().status(status).body(Answer(answer))?)
}

fn half(status: u16, body: &Value) -> Result<Response<Answer>, BoxError> {
    let (pieces, answer) = unbounded_channel();
    let mut text = body.to_string();
    text.truncate(text.len() / 2);
    drop(pieces.send(Ok(Bytes::from(text))));
    drop(pieces.send(Err(broken())));
    Ok(Response::builder().status(status).body(Answer(answer))?)
}

impl Wire {
    async fn end(&self) -> Result<Response<Answer>, BoxError> {
        std::future::pending().await
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let asked = Asked {
            path: Path::parse(head.uri.path()),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            method: head.method,
        };
        if self.process.has_ended() {
            return self.end().await;
        }
        let mut what = format!("{} {}", asked.method, head.uri.path());
        if asked.parameter("watch") == "true" {
            what = what.replace("GET", "WATCH");
        } else if !asked.parameter("continue").is_empty() {
            what.push_str(" (more)");
        } else if !asked.parameter("fieldSelector").is_empty() {
            what.push_str(" (some)");
        }
        self.sim.sent(
            &self.process,
            &what,
            &asked.path.plural,
            asked.method != Method::GET,
        );
        let sim = &self.sim;
        sim.check_own_writes(&self.process);
        let (before, after, rude) = sim.fate(&asked.path.plural, self.process.replica);
        sleep(before).await;
        if let Some(rude) = rude {
            sim.log(|| format!("{} {what}: {rude:?}", self.process.identity));
        }
        match rude {
            Some(Rude::Cut) => return Err(Box::new(broken())),
            Some(Rude::Slow) => sleep(Duration::from_secs(3)).await,
            Some(Rude::Forbidden) => {
                let refusal = Refusal {
                    code: 403,
                    reason: "Forbidden",
                    message: format!("{} is forbidden", asked.path.plural),
                };
                return whole(403, &refusal.body());
            }
            Some(Rude::Throttled) => {
                let refusal = Refusal {
                    code: 429,
                    reason: "TooManyRequests",
                    message: "too many requests, please try again later".to_owned(),
                };
                let mut answer = whole(429, &refusal.body())?;
                answer
                    .headers_mut()
                    .insert("retry-after", http::HeaderValue::from_static("5"));
                return Ok(answer);
            }
            Some(Rude::Unavailable) => {
                let refusal = Refusal {
                    code: 503,
                    reason: "ServiceUnavailable",
                    message: "apiserver is shutting down".to_owned(),
                };
                return whole(503, &refusal.body());
            }
            _ => {}
        }
        if asked.method == Method::GET && asked.parameter("watch") == "true" {
            return self.watch(&asked, rude);
        }
        let epoch = sim.with(|inner| inner.api.epoch);
        let (status, body) = self.carry_out(&asked);
        sim.log(|| format!("{} {what} → {status}", self.process.identity));
        if rude == Some(Rude::Slow) {
            sleep(Duration::from_secs(6)).await;
        }
        if rude == Some(Rude::LateAnswer) && asked.method != Method::GET {
            sleep(Duration::from_secs(7)).await;
        }
        sleep(after).await;
        if self.process.has_ended() {
            return self.end().await;
        }
        match rude {
            Some(Rude::LostAnswer) => Err(Box::new(broken())),
            Some(Rude::HalfAnswer) => half(status, &body),
            _ => {
                if asked.method != Method::GET && status < 300 {
                    sim.answered(&self.process, &asked.path.plural, &body, epoch);
                }
                whole(status, &body)
            }
        }
    }

    fn carry_out(&self, asked: &Asked) -> (u16, Value) {
        let now = self.sim.now();
        let path = &asked.path;
        let is_write = asked.method != Method::GET;
        let result = self.sim.with(|inner| {
            let api = &mut inner.api;
            let version = api.version();
            let result = if path.plural == "version" || asked.query.is_empty() && path.plural.is_empty() {
                Ok(json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}))
            } else if asked.method == Method::GET && path.name.is_empty() {
                // Whoever asks for no pages gets none.
                let limit = asked.parameter("limit").parse().map_or(usize::MAX, |limit: usize| limit.min(inner.page));
                let (token, field) = (asked.parameter("continue"), asked.parameter("fieldSelector"));
                api.list(&path.plural, limit, &token, &field)
            } else if asked.method == Method::GET {
                api.get(path).map(|found| Value::clone(&found))
            } else if asked.method == Method::POST && path.subresource == "eviction" {
                let evicted = api.evict(path, &asked.body, now);
                evicted.map(|()| json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}))
            } else if asked.method == Method::POST && path.plural == "events" {
                Ok(asked.body.clone())
            } else if asked.method == Method::POST {
                let created = api.create(&path.plural, &path.namespace, asked.body.clone(), now);
                created.map(|made| Value::clone(&made))
            } else if asked.method == Method::PUT {
                api.replace(path, asked.body.clone()).map(|made| Value::clone(&made))
            } else if asked.method == Method::PATCH {
                let manager = asked.parameter("fieldManager");
                api.patch(path, &asked.body, &manager).map(|made| Value::clone(&made))
            } else {
                api.delete(path, &asked.body, now).map(|gone| Value::clone(&gone))
            };
            (result, inner.api.version() != version)
        });
        let (result, is_changed) = result;
        if is_changed {
            self.sim.wake();
        }
        match result {
            Ok(body) if is_write && asked.method == Method::POST => (201, body),
            Ok(body) => (200, body),
            Err(refusal) => (refusal.code, refusal.body()),
        }
    }

    fn watch(&self, asked: &Asked, rude: Option<Rude>) -> Result<Response<Answer>, BoxError> {
        let (pieces, answer) = unbounded_channel();
        let from: u64 = asked.parameter("resourceVersion").parse().unwrap_or(0);
        let from = if seeded!(WatchSkipsEvents) {
            self.sim.with(|inner| inner.api.version())
        } else {
            from
        };
        let wire = self.clone();
        let plural = asked.path.plural.clone();
        tokio::spawn(async move { wire.pump(&plural, from, rude, &pieces).await });
        Ok(Response::new(Answer(answer)))
    }

    /// Writes the changes of a kind to an open watch until it ends.
    async fn pump(&self, plural: &str, from: u64, rude: Option<Rude>, pieces: &Pieces) {
        let sim = &self.sim;
        let epoch = sim.with(|inner| inner.api.epoch);
        let ends = sim.elapsed() + sim.draw(|rng| Duration::from_secs(40 + rng.below(250)));
        let mut at = from;
        loop {
            if pieces.is_closed() || self.process.has_ended() {
                return;
            }
            let mut changed = std::pin::pin!(sim.changed.notified());
            changed.as_mut().enable();
            let (changes, silent, cut, now_at) = sim.with(|inner| {
                let elapsed = sim.elapsed();
                let is_known = inner.api.epoch == epoch;
                let changes = inner.api.since(plural, at).filter(|_| is_known);
                let silent = inner.faults.is_silent(plural, self.process.replica, elapsed);
                (
                    changes,
                    silent,
                    inner.faults.is_cut(plural, self.process.replica, elapsed),
                    inner.api.version(),
                )
            });
            if cut || sim.elapsed() > ends {
                return;
            }
            if silent {
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            let Some(changes) = changes else {
                let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
                    "reason": "Expired", "message": "too old resource version"});
                let line = format!("{}\n", json!({"type": "ERROR", "object": gone}));
                drop(pieces.send(Ok(Bytes::from(line))));
                return;
            };
            let is_idle = changes.is_empty();
            for change in changes {
                let late = sim.with(|inner| {
                    inner.steps += 1;
                    inner.faults.latency(&mut inner.rng)
                });
                sleep(late).await;
                // What was brought before has been taken in.
                sim.check_own_writes(&self.process);
                let mut line = format!("{}\n", json!({"type": change.kind, "object": *change.object}));
                let is_half = rude == Some(Rude::HalfAnswer);
                if is_half {
                    line.truncate(line.len() / 2);
                }
                drop(pieces.send(Ok(Bytes::from(line))));
                if is_half {
                    drop(pieces.send(Err(broken())));
                    return;
                }
                at = change.version;
            }
            if is_idle {
                // Nothing of this kind is older than this: the watch can go on from here.
                at = at.max(now_at);
                let wait = tokio::time::timeout(Duration::from_secs(20), changed);
                if wait.await.is_err() {
                    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Bookmark", "apiVersion": "v1",
                        "metadata": {"resourceVersion": at.to_string()}}});
                    drop(pieces.send(Ok(Bytes::from(format!("{bookmark}\n")))));
                }
            }
        }
    }

    /// The way to EC2.
    pub(super) async fn aws(self, body: String) -> Result<(u16, String), String> {
        if self.process.has_ended() {
            return std::future::pending().await;
        }
        let form = cloud::form(&body);
        let action = form.get("Action").cloned().unwrap_or_default();
        let is_write = !action.starts_with("Describe");
        let what = match form.contains_key("NextToken") {
            true => format!("{action} (more)"),
            false => action.clone(),
        };
        let sim = &self.sim;
        sim.sent(&self.process, &what, EC2, is_write);
        let (before, after, rude) = sim.fate(EC2, self.process.replica);
        sleep(before).await;
        let cut = || Err("connection reset by the simulation".to_owned());
        match rude {
            Some(Rude::Cut) => return cut(),
            Some(Rude::Throttled | Rude::Unavailable) => {
                let text = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors></Response>";
                return Ok((503, text.to_owned()));
            }
            Some(Rude::Forbidden) => {
                let text = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not authorized to perform this operation.</Message></Error></Errors></Response>";
                return Ok((403, text.to_owned()));
            }
            Some(Rude::Slow) => sleep(Duration::from_secs(6)).await,
            _ => {}
        }
        let now = sim.now();
        if action == "TerminateInstances" {
            sim.check_end(&form);
        }
        let (status, mut text) = sim.with(|inner| {
            let types = Arc::clone(&inner.types);
            inner.cloud.answer(&form, &types, now, &mut inner.rng)
        });
        sim.log(|| format!("{} {action} → {status}", self.process.identity));
        sim.notice_cloud();
        sleep(after).await;
        if self.process.has_ended() {
            return std::future::pending().await;
        }
        match rude {
            Some(Rude::LostAnswer) => return cut(),
            Some(Rude::HalfAnswer) => text.truncate(text.len() / 2),
            _ => {}
        }
        Ok((status, text))
    }
}
