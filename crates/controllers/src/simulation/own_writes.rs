//! A decision never starts from before our own writes: what a process was answered, what it knows never falls behind.

use std::time::Duration;

use serde_json::Value;

use super::api_server::{is_deleting, is_held, text};
use super::wire::Process;
use super::{Seat, Sim};
use crate::feed::number;
use crate::standalone::{SharedStore, Stores, locked};

/// After so long no watch brings anything any more from before a write.
const FORGOTTEN: Duration = Duration::from_secs(200);

/// What a process was answered about an object that it wrote.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    plural: String,
    namespace: String,
    name: String,
    uid: String,
    version: u64,
    is_gone: bool,
    at: Duration,
    /// Of the API server, which a restore changes.
    epoch: u64,
}

/// What is known of an object: its uid and its version.
fn known(stores: &Stores, answer: &Answer) -> Option<(String, u64)> {
    fn of<T>(store: &SharedStore<T>, answer: &Answer) -> Option<(String, u64)>
    where
        T: kube::Resource + Clone + Send + Sync + 'static,
    {
        let store = locked(store);
        let metadata = store.get(&answer.namespace, &answer.name)?.meta();
        let version = number(metadata.resource_version.as_deref().unwrap_or_default());
        Some((metadata.uid.clone().unwrap_or_default(), version))
    }
    match answer.plural.as_str() {
        // Nominations and evictions of pods are known when the watch brings them.
        "nodes" => of(&stores.nodes, answer),
        "nodeclaims" => of(&stores.node_claims, answer),
        "nodepools" => of(&stores.node_pools, answer),
        "ec2nodeclasses" => of(&stores.ec2_node_classes, answer),
        _ => None,
    }
}

impl Answer {
    /// How what is known contradicts it.
    fn contradiction(&self, stores: &Stores) -> Option<String> {
        let (uid, version) = known(stores, self)?;
        let (plural, name, written) = (&self.plural, &self.name, self.version);
        if uid != self.uid {
            return None;
        }
        if self.is_gone {
            return Some(format!(
                "{plural} {name} is known again after its deletion was answered"
            ));
        }
        let is_behind = version < written;
        is_behind
            .then(|| format!("{plural} {name} is known at {version}, and a write at {written} was answered"))
    }
}

impl Sim {
    /// A process is answered about its own write.
    pub(super) fn answered(&self, process: &Process, plural: &str, object: &Value, epoch: u64) {
        let at = self.elapsed();
        let text = |pointer: &str| text(object, pointer).to_owned();
        let answer = Answer {
            plural: plural.to_owned(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            version: number(&text("/metadata/resourceVersion")),
            is_gone: is_deleting(object) && !is_held(object),
            at,
            epoch,
        };
        self.with(|inner| {
            if let Some(seat) = inner.seats.get_mut(process.replica) {
                seat.answers
                    .insert((plural.to_owned(), answer.uid.clone()), answer);
            }
        });
    }

    /// Whether what a process knows has fallen behind what it was answered.
    pub(super) fn check_own_writes(&self, process: &Process) {
        let at = self.elapsed();
        let wrong = self.with(|inner| {
            let epoch = inner.api.epoch;
            let Seat { stores, answers, .. } = inner.seats.get_mut(process.replica)?;
            answers.retain(|_, answer| answer.epoch == epoch && at < answer.at + FORGOTTEN);
            let stores = stores.as_ref()?;
            // What was answered at this very moment may not have been taken in.
            let mut taken_in = answers.values().filter(|answer| answer.at < at);
            taken_in.find_map(|answer| answer.contradiction(stores))
        });
        if let Some(wrong) = wrong {
            self.violate(format!("{}: {wrong}", process.identity));
        }
    }
}
