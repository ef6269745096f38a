//! Follows one kind: a paged list, then a watch with bookmarks, and new attempts with growing pauses.
//!
//! Unlike kube's watcher it tells when the API server was last heard of (a quiet watch is not a dead one), it asks for pages
//! of bounded size, and it notices versions that go back: then etcd was restored, and everything is listed anew.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Client;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{Request, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use veneer_engine::backoff::{Backoff, jittered};

use crate::observe::chain;

/// How many objects the first page has; the next ones are made larger or smaller.
const FIRST_PAGE: u32 = 20;
/// How many objects a page may have.
const PAGES: (u32, u32) = (4, 500);
/// How large the text of a page should be at most; one object can have 1.5 MB.
const PAGE_BYTES: usize = 2 << 20;
/// After so many watches that failed in a row everything is listed again.
const WATCH_ATTEMPTS: u32 = 4;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Within this time the API server answers, or the attempt has failed.
    pub(crate) answer: Duration,
    /// A watch that brings nothing, not even a bookmark, for so long is begun again.
    pub(crate) idle: Duration,
    /// The pauses after failures.
    pub(crate) pauses: Backoff,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            pauses: Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30)),
        }
    }
}

/// An object as it is read from the wire.
pub(crate) trait OnTheWire: Clone + DeserializeOwned + Send + 'static {
    fn metadata(&self) -> &ObjectMeta;
}

impl OnTheWire for DynamicObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// What was heard of the API server.
#[derive(Debug)]
pub(crate) enum Heard<W> {
    /// A list begins; what it says was true after this moment.
    ListBegins,
    /// One object of the list.
    Listed(W),
    /// The list is whole: it says what was true at this version.
    ListEnds(u64),
    /// An object was made or changed.
    Applied(W),
    /// An object is gone.
    Deleted(W),
    /// The watch works, and there is nothing new.
    Alive,
    /// Versions went back from the first number to the second; everything is listed again.
    Regressed(u64, u64),
    /// An attempt failed; the next one follows.
    Failed(Trouble),
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("{}", chain(.0))]
    Kube(kube::Error),
    #[error("{}", .0.message)]
    Status(Box<Status>),
    #[error("no answer from the API server within {0:?}")]
    Silent(Duration),
    #[error("the API server ends the watch as soon as it has begun")]
    Closed,
    #[error("an answer that cannot be read: {0}")]
    Unreadable(String),
}

impl Trouble {
    /// The status code of the answer, if there was one.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(kube::Error::Api(status)) | Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the version to go on from is of no use any more.
    fn is_gone(&self) -> bool {
        self.code() == Some(410) || self.to_string().contains("Too large resource version")
    }
}

#[derive(Deserialize)]
#[serde(bound = "W: DeserializeOwned")]
struct Page<W> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, deserialize_with = "null_is_empty")]
    items: Vec<W>,
}

fn null_is_empty<'de, D: Deserializer<'de>, W: Deserialize<'de>>(from: D) -> Result<Vec<W>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// One kind at one API server.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) timing: Timing,
}

/// What is remembered from attempt to attempt.
#[derive(Default)]
struct Progress {
    /// The newest version that was heard of.
    newest: u64,
    failures: u32,
}

impl Feed {
    /// Tells `take` everything, for ever. Each change of `restarts` begins again with a list.
    pub(crate) async fn follow<W: OnTheWire>(&self, restarts: Arc<Notify>, mut take: impl FnMut(Heard<W>)) {
        let mut progress = Progress::default();
        loop {
            let restarted = restarts.notified();
            tokio::select! {
                biased;
                () = restarted => {}
                () = self.list_and_watch(&mut progress, &mut take) => {}
            }
        }
    }

    async fn list_and_watch<W: OnTheWire>(&self, progress: &mut Progress, take: &mut impl FnMut(Heard<W>)) {
        let listed = self.list(progress, take).await;
        let ended = match listed {
            Ok(version) => self.watch(version, progress, take).await,
            Err(trouble) => Some(trouble),
        };
        if let Some(trouble) = ended {
            take(Heard::Failed(trouble));
        }
        self.pause(progress).await;
    }

    /// Lists everything, page by page, and says which version that is.
    async fn list<W: OnTheWire>(
        &self,
        progress: &mut Progress,
        take: &mut impl FnMut(Heard<W>),
    ) -> Result<String, Trouble> {
        take(Heard::ListBegins);
        let mut limit = FIRST_PAGE;
        let mut params = ListParams::default();
        loop {
            params.limit = Some(limit);
            let request = Request::new(&self.url).list(&params);
            let request = request.map_err(|error| Trouble::Unreadable(error.to_string()))?;
            let text = self.answered(self.client.request_text(request)).await?;
            let page: Page<W> =
                serde_json::from_str(&text).map_err(|error| Trouble::Unreadable(error.to_string()))?;
            limit = next_limit(limit, text.len(), page.items.len());
            drop(text);
            for item in page.items {
                take(Heard::Listed(item));
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_some() {
                continue;
            }
            let version = page.metadata.resource_version.unwrap_or_default();
            if version.is_empty() {
                return Err(Trouble::Unreadable("the list has no resource version".to_owned()));
            }
            let (known, listed) = (progress.newest, number(&version));
            progress.newest = listed;
            if listed < known {
                take(Heard::Regressed(known, listed));
            }
            take(Heard::ListEnds(listed));
            return Ok(version);
        }
    }

    /// Watches until everything has to be listed again, and says why if that is a failure.
    async fn watch<W: OnTheWire>(
        &self,
        mut version: String,
        progress: &mut Progress,
        take: &mut impl FnMut(Heard<W>),
    ) -> Option<Trouble> {
        let params = WatchParams::default();
        loop {
            let request = match Request::new(&self.url).watch(&params, &version) {
                Ok(request) => request,
                Err(error) => return Some(Trouble::Unreadable(error.to_string())),
            };
            let began = Instant::now();
            let ended = match self.answered(self.client.request_events::<W>(request)).await {
                Ok(events) => {
                    take(Heard::Alive);
                    self.read(events, &mut version, progress, take).await
                }
                Err(trouble) => Ended::Failed(trouble),
            };
            match ended {
                // As it does every few minutes.
                Ended::Closed if began.elapsed() >= Duration::from_secs(1) => {
                    progress.failures = 0;
                    continue;
                }
                // Whoever closes it at once, again and again, brings nothing: what is new is listed then.
                Ended::Closed if progress.failures >= WATCH_ATTEMPTS => return Some(Trouble::Closed),
                Ended::Closed => {}
                Ended::Regressed => return None,
                Ended::Failed(_) if seeded!(WatchEndsOnError) => std::future::pending().await,
                Ended::Failed(trouble) if trouble.is_gone() => return None,
                Ended::Failed(trouble) if progress.failures >= WATCH_ATTEMPTS => return Some(trouble),
                Ended::Failed(trouble) => take(Heard::Failed(trouble)),
            }
            self.pause(progress).await;
        }
    }

    async fn read<W: OnTheWire>(
        &self,
        events: impl futures::Stream<Item = kube::Result<WatchEvent<W>>>,
        version: &mut String,
        progress: &mut Progress,
        take: &mut impl FnMut(Heard<W>),
    ) -> Ended {
        let mut events = std::pin::pin!(events);
        loop {
            let heard = match timeout(self.timing.idle, events.next()).await {
                Err(_) | Ok(None) => return Ended::Closed,
                Ok(Some(Err(error))) => return Ended::Failed(Trouble::Kube(error)),
                Ok(Some(Ok(WatchEvent::Error(status)))) => return Ended::Failed(Trouble::Status(status)),
                Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                    *version = mark.metadata.resource_version;
                    Heard::Alive
                }
                Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                    *version = version_of(&object);
                    Heard::Deleted(object)
                }
                Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                    *version = version_of(&object);
                    Heard::Applied(object)
                }
            };
            let now = number(version);
            if now < progress.newest {
                take(Heard::Regressed(progress.newest, now));
                progress.newest = now;
                return Ended::Regressed;
            }
            progress.newest = now;
            progress.failures = 0;
            take(heard);
        }
    }

    async fn answered<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
        let limit = self.timing.answer;
        let answer = timeout(limit, request)
            .await
            .map_err(|_| Trouble::Silent(limit))?;
        answer.map_err(Trouble::Kube)
    }

    /// Waits after a failure: longer after each, and not as long as those who follow other kinds.
    async fn pause(&self, progress: &mut Progress) {
        let pause = jittered(self.timing.pauses.nth(progress.failures), &self.url);
        progress.failures = progress.failures.saturating_add(1);
        sleep(pause).await;
    }
}

enum Ended {
    Closed,
    Regressed,
    Failed(Trouble),
}

/// A version as a number; Kubernetes lets those of one kind be compared.
pub(crate) fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

fn version_of<W: OnTheWire>(object: &W) -> String {
    object.metadata().resource_version.clone().unwrap_or_default()
}

/// How many objects the next page shall have.
fn next_limit(limit: u32, bytes: usize, items: usize) -> u32 {
    let fits = PAGE_BYTES / bytes.checked_div(items).unwrap_or_default().max(1);
    let fits = u32::try_from(fits).unwrap_or(u32::MAX);
    // Those that follow may be larger.
    fits.min(limit.saturating_mul(2)).clamp(PAGES.0, PAGES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_large_as_their_objects_allow() {
        assert_eq!(next_limit(100, 100 * 4_000, 100), 200);
        assert_eq!(next_limit(400, 400 * 4_000, 400), 500);
        assert_eq!(next_limit(20, 20 * 250_000, 20), 8);
        assert_eq!(next_limit(20, 20 * 1_500_000, 20), 4);
        assert_eq!(next_limit(10, 10 * 100_000, 10), 20);
        assert_eq!(next_limit(100, 40, 0), 200);
    }
}
