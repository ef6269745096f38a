//! Carries plans out: conditions with optimistic concurrency, and events.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams, Resource};
use serde_json::json;
use veneer_api::{Condition, NodeOverlay, NodePool};
use veneer_engine::labels::LabelRules;
use veneer_engine::overlay::Verdict;
use veneer_engine::overlay::status::{Announcement, OverlayEffect, Subject, conditions};

use crate::observe::{SeenOverlay, SeenPool, chain, seen_overlay};

/// Who writes, in managed fields and events.
pub(crate) const FIELD_MANAGER: &str = "veneer";
/// How often a write is tried against other writers before it waits for the next pass.
const ATTEMPTS: usize = 10;
/// How many objects are written at once.
pub(crate) const CONCURRENCY: usize = 16;

/// One thing that is to be written.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// New conditions of a NodeOverlay.
    SetConditions {
        /// The overlay's name.
        overlay: String,
        /// All its conditions.
        conditions: Vec<Condition>,
    },
    /// An event on a NodePool.
    Announce(Announcement),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetConditions { overlay, conditions } => {
                write!(f, "NodeOverlay {overlay}: set")?;
                for (at, one) in conditions.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma} {}={} ({})", one.type_, one.status, one.reason)?;
                }
                conditions
                    .iter()
                    .filter(|one| !one.message.is_empty())
                    .try_for_each(|one| write!(f, "\n  {}: {}", one.type_, one.message))
            }
            Self::Announce(Announcement { node_pool, note }) => {
                write!(f, "NodePool {node_pool}: event: {note}")
            }
        }
    }
}

/// A write that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The overlay's name.
    pub(crate) overlay: String,
    pub(crate) error: String,
}

/// A status to write, with what is needed to decide it again.
#[derive(Debug)]
pub(crate) struct StatusWrite {
    pub(crate) name: String,
    pub(crate) seen: Arc<SeenOverlay>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) verdict: Verdict,
    pub(crate) effect: OverlayEffect,
}

/// Writes to one cluster.
#[derive(Clone)]
pub(crate) struct Writer {
    overlays: Api<DynamicObject>,
    events: Api<Event>,
    rules: Arc<LabelRules>,
}

impl Writer {
    pub(crate) fn new(client: &Client, rules: Arc<LabelRules>) -> Self {
        let kind = ApiResource::erase::<NodeOverlay>(&());
        Self {
            overlays: Api::all_with(client.clone(), &kind),
            // Events on objects without a namespace go here.
            events: Api::namespaced(client.clone(), "default"),
            rules,
        }
    }

    /// Writes all, several at a time, and gives back those that failed.
    pub(crate) async fn write_statuses(&self, writes: Vec<StatusWrite>, now: Timestamp) -> Vec<Failure> {
        let writes = writes.into_iter().map(|write| {
            let writer = self.clone();
            async move {
                let overlay = write.name.clone();
                let result = writer.write_status(write, now).await;
                result.err().map(|error| Failure { overlay, error })
            }
        });
        let writes = futures::stream::iter(writes).buffer_unordered(CONCURRENCY);
        writes.filter_map(std::future::ready).collect().await
    }

    /// Writes the conditions onto the version of the object that they were decided for. When somebody else was
    /// faster, reads it again: as long as it is the same object with the same spec, the verdict stands, and the
    /// conditions are decided again from it. Otherwise the watch brings it, and the next pass decides.
    async fn write_status(&self, mut write: StatusWrite, now: Timestamp) -> Result<(), String> {
        let mut resource_version = write.seen.resource_version.clone();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        for _ in 0..ATTEMPTS {
            let patch = json!({
                "metadata": {"resourceVersion": resource_version},
                "status": {"conditions": write.conditions},
            });
            match self
                .overlays
                .patch_status(&write.name, &params, &Patch::Merge(&patch))
                .await
            {
                Ok(_) => return Ok(()),
                // Deleted meanwhile: there is nothing left to tell.
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return Err(chain(&error)),
            }
            let current = self
                .overlays
                .get_opt(&write.name)
                .await
                .map_err(|error| chain(&error))?;
            let Some(current) = current.map(|object| seen_overlay(&object, &self.rules)) else {
                return Ok(());
            };
            if (&current.uid, current.generation) != (&write.seen.uid, write.seen.generation) {
                return Ok(());
            }
            let subject = Subject {
                generation: current.generation,
                conditions: &current.conditions,
            };
            match conditions(&write.verdict, &write.effect, subject, now) {
                Some(conditions) => write.conditions = conditions,
                None => return Ok(()),
            }
            resource_version = current.resource_version;
        }
        Err(format!("another writer was faster {ATTEMPTS} times in a row"))
    }

    /// Writes an event on a pool.
    pub(crate) async fn announce(
        &self,
        pool: &SeenPool,
        announcement: &Announcement,
        now: Timestamp,
    ) -> Result<(), String> {
        let event = PoolEvent {
            pool: &announcement.node_pool,
            uid: &pool.uid,
            name: format!("{}.{:x}", announcement.node_pool, now.as_nanosecond()),
            type_: "Normal",
            reason: "NodeOverlaysChanged",
            action: "Evaluate",
            note: announcement.note.clone(),
        };
        let created = self.events.create(&PostParams::default(), &event.at(now)).await;
        created.map(|_| ()).map_err(|error| chain(&error))
    }
}

/// An event on a NodePool.
pub(crate) struct PoolEvent<'a> {
    pub(crate) pool: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) name: String,
    pub(crate) type_: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) note: String,
}

impl PoolEvent<'_> {
    pub(crate) fn at(self, now: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name),
                ..ObjectMeta::default()
            },
            type_: Some(self.type_.to_owned()),
            reason: Some(self.reason.to_owned()),
            action: Some(self.action.to_owned()),
            note: Some(self.note),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some("veneer.io/overlays".to_owned()),
            reporting_instance: Some(FIELD_MANAGER.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(NodePool::api_version(&()).into_owned()),
                kind: Some(NodePool::kind(&()).into_owned()),
                name: Some(self.pool.to_owned()),
                uid: Some(self.uid.to_owned()),
                ..ObjectReference::default()
            }),
            ..Event::default()
        }
    }
}
