//! Events: told once, and not more than anybody could read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;
use tracing::debug;
use veneer_engine::plan::Announcement;

use super::Clock;
use crate::observe::chain;

/// The same is not said again before this much time has passed.
const AGAIN: Duration = Duration::from_secs(120);
/// How many events may come at once, and how many per second after that.
const BURST: f64 = 100.0;
const RATE: f64 = 10.0;

#[derive(Debug)]
struct Said {
    recent: HashMap<(String, &'static str), Instant>,
    tokens: f64,
    filled: Instant,
}

/// Writes events of one process.
#[derive(Debug)]
pub(crate) struct Events {
    client: Quiet,
    said: Mutex<Said>,
    clock: Clock,
}

/// A client that shows nothing of itself in logs.
struct Quiet(Client);

impl std::fmt::Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Events {
    pub(crate) fn new(client: &Client, clock: &Clock) -> Self {
        Self {
            client: Quiet(client.clone()),
            said: Mutex::new(Said {
                recent: HashMap::new(),
                tokens: BURST,
                filled: Instant::now(),
            }),
            clock: clock.clone(),
        }
    }

    /// Whether an event is news and there is room for it.
    fn admit(&self, announcement: &Announcement) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        said.recent.retain(|_, at| now.duration_since(*at) < AGAIN);
        let key = (announcement.subject.target.uid.clone(), announcement.reason);
        if said.recent.contains_key(&key) {
            return false;
        }
        let gained = now.duration_since(said.filled).as_secs_f64() * RATE;
        said.tokens = BURST.min(said.tokens + gained);
        said.filled = now;
        // Warnings may borrow: there are few, and they are what people look for.
        if said.tokens < 1.0 && !announcement.is_warning {
            return false;
        }
        said.tokens -= 1.0;
        said.recent.insert(key, now);
        true
    }

    pub(crate) async fn write(&self, announcement: &Announcement) {
        if !self.admit(announcement) {
            return;
        }
        let now = self.clock.machine();
        let subject = &announcement.subject;
        let namespace = match subject.target.namespace.as_str() {
            // Events on objects without a namespace go here.
            "" => "default",
            namespace => namespace,
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", subject.target.name, now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            type_: Some(
                if announcement.is_warning {
                    "Warning"
                } else {
                    "Normal"
                }
                .to_owned(),
            ),
            reason: Some(announcement.reason.to_owned()),
            action: Some("Provision".to_owned()),
            note: Some(announcement.message.clone()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some("veneer.io/provisioner".to_owned()),
            reporting_instance: Some("veneer".to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(subject.api_version.to_owned()),
                kind: Some(subject.kind.to_owned()),
                name: Some(subject.target.name.clone()),
                namespace: Some(subject.target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                uid: Some(subject.target.uid.clone()),
                ..ObjectReference::default()
            }),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.0.clone(), namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            debug!(reason = announcement.reason, error = %chain(&error), "cannot write an event");
        }
    }
}
