//! A mirror of one kind that also knows our own writes, so that a decision never starts from before them.
//!
//! Versions of objects are compared as numbers, as Kubernetes allows for objects of one kind: what a watch brings late
//! does not undo what a write answered.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::runtime::watcher::Event;
use veneer_api::labels::veneer;

use crate::act::FIELD_MANAGER;

/// The objects of one kind, by `namespace/name`.
#[derive(Debug)]
pub(crate) struct Store<T> {
    objects: BTreeMap<String, Arc<T>>,
    listed: BTreeMap<String, Arc<T>>,
    /// Uids of objects that are known to be gone, until the watch says so too.
    gone: HashSet<String>,
    /// Our own writes that the watch has not brought yet.
    unconfirmed: HashMap<String, u64>,
    pub(crate) synced: bool,
    /// Counts changes of what is stored.
    pub(crate) version: u64,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
            gone: HashSet::new(),
            unconfirmed: HashMap::new(),
            synced: false,
            version: 0,
        }
    }
}

/// What a store needs to know of an object.
pub(crate) trait Stored: Send + Sync + 'static {
    fn metadata(&self) -> &ObjectMeta;

    /// Drops what no decision looks at: who wrote which field is as large as the rest of a small object. Before
    /// that, a nomination of ours becomes an annotation.
    fn trim(&mut self);
}

impl<T: kube::Resource + Send + Sync + 'static> Stored for T {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    fn trim(&mut self) {
        if let Some(pod) = (self as &mut dyn Any).downcast_mut::<Pod>() {
            mark_nomination(pod);
        }
        self.meta_mut().managed_fields = None;
    }
}

/// Makes a nomination of ours an annotation.
fn mark_nomination(pod: &mut Pod) {
    if !pod.metadata.managed_fields.iter().flatten().any(is_nomination) {
        return;
    }
    let status = pod.status.as_mut();
    if let Some(node) = status.and_then(|status| status.nominated_node_name.take()) {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::NOMINATED.to_owned(), node);
    }
}

/// Whether fields of a pod that one writer has set are a nomination of ours.
fn is_nomination(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry
        .fields_v1
        .as_ref()
        .and_then(|fields| fields.0.get("f:status"));
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && fields.is_some_and(|status| status.get("f:nominatedNodeName").is_some())
}

fn key(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}

fn number(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

impl<T: Stored> Store<T> {
    /// What was last seen.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(&format!("{namespace}/{name}"))
    }

    fn is_stale(&self, metadata: &ObjectMeta) -> bool {
        if seeded!(LateWatchWins) {
            return false;
        }
        self.gone.contains(uid(metadata))
            || self.objects.get(&key(metadata)).is_some_and(|known| {
                let known = known.metadata();
                uid(known) == uid(metadata) && number(known) > number(metadata)
            })
    }

    /// Takes in what the watch says; gives back the object that was replaced or removed.
    pub(crate) fn apply(&mut self, event: Event<T>) -> Option<Arc<T>> {
        self.version += 1;
        match event {
            Event::Apply(mut object) => {
                object.trim();
                let key = key(object.metadata());
                if self.is_stale(object.metadata()) {
                    return None;
                }
                let confirmed = self.unconfirmed.get(&key).copied();
                if confirmed.is_some_and(|written| number(object.metadata()) >= written) {
                    self.unconfirmed.remove(&key);
                }
                self.objects.insert(key, Arc::new(object))
            }
            Event::Delete(object) => {
                let key = key(object.metadata());
                self.gone.remove(uid(object.metadata()));
                let known = self.objects.get(&key)?;
                if uid(known.metadata()) != uid(object.metadata()) {
                    return None;
                }
                self.unconfirmed.remove(&key);
                self.objects.remove(&key)
            }
            Event::Init => {
                self.listed.clear();
                None
            }
            Event::InitApply(mut object) => {
                object.trim();
                if !self.gone.contains(uid(object.metadata())) {
                    self.listed.insert(key(object.metadata()), Arc::new(object));
                }
                None
            }
            Event::InitDone => {
                let mut listed = std::mem::take(&mut self.listed);
                if seeded!(ListKeepsOld) {
                    for (key, known) in &self.objects {
                        listed.entry(key.clone()).or_insert_with(|| Arc::clone(known));
                    }
                }
                let newest = listed
                    .values()
                    .map(|one| number(one.metadata()))
                    .max()
                    .unwrap_or(0);
                for (key, known) in &self.objects {
                    let written = number(known.metadata());
                    let is_newer = match listed.get(key) {
                        Some(other) => number(other.metadata()) < written,
                        // Made by us while the list was under way; the watch that follows brings it.
                        None => self.unconfirmed.contains_key(key) && written > newest,
                    };
                    if is_newer {
                        listed.insert(key.clone(), Arc::clone(known));
                    }
                }
                self.objects = listed;
                self.gone.clear();
                self.synced = true;
                None
            }
        }
    }

    /// Takes in what a write of ours answered. An object that is deleted and held by nothing is gone.
    pub(crate) fn written(&mut self, mut object: T) {
        object.trim();
        let metadata = object.metadata();
        let held = metadata.finalizers.iter().flatten().next().is_some();
        if metadata.deletion_timestamp.is_some() && !held {
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            let uid = uid(metadata).to_owned();
            self.lost(&namespace.unwrap_or_default(), &name.unwrap_or_default(), &uid);
            return;
        }
        if !self.is_stale(metadata) {
            self.version += 1;
            let key = key(metadata);
            self.unconfirmed.insert(key.clone(), number(metadata));
            self.objects.insert(key, Arc::new(object));
        }
    }

    /// Takes in that an object is not there any more.
    pub(crate) fn lost(&mut self, namespace: &str, name: &str, uid_gone: &str) {
        let key = format!("{namespace}/{name}");
        self.version += 1;
        if self
            .objects
            .get(&key)
            .is_some_and(|known| uid(known.metadata()) == uid_gone)
        {
            self.objects.remove(&key);
            self.unconfirmed.remove(&key);
            self.gone.insert(uid_gone.to_owned());
        }
    }
}

/// A store that several tasks share.
pub(crate) type Shared<T> = Arc<Mutex<Store<T>>>;

/// Every change to a store is whole before it can panic.
pub(crate) fn lock<T>(store: &Mutex<Store<T>>) -> MutexGuard<'_, Store<T>> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(name: &str, uid: &str, version: u64) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        }
    }

    fn seen(store: &Store<Node>) -> Vec<(String, u64)> {
        let objects = store.objects();
        objects
            .map(|one| (uid(one.metadata()).to_owned(), number(one.metadata())))
            .collect()
    }

    fn pairs(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter()
            .map(|(uid, version)| ((*uid).to_owned(), *version))
            .collect()
    }

    #[test]
    fn nominations_of_ours_leave_a_pod_waiting_and_those_of_others_do_not() {
        let nominated = |manager: &str, field: &str| {
            let mut pod: Pod = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "managedFields": [
                    {"manager": "kubelet", "operation": "Update", "subresource": "status"},
                    {"manager": manager, "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:status": {field: {}}}}]},
                "status": {"nominatedNodeName": "node"}}))
            .unwrap();
            pod.trim();
            assert_eq!(pod.metadata.managed_fields, None);
            let annotations = pod.metadata.annotations.unwrap_or_default();
            let ours = annotations.get(veneer::NOMINATED).cloned();
            (ours, pod.status.unwrap().nominated_node_name)
        };
        let node = Some("node".to_owned());
        assert_eq!(nominated("veneer", "f:nominatedNodeName"), (node.clone(), None));
        assert_eq!(
            nominated("kube-scheduler", "f:nominatedNodeName"),
            (None, node.clone())
        );
        assert_eq!(nominated("veneer", "f:phase"), (None, node));
    }

    #[test]
    fn a_late_watch_does_not_undo_our_writes() {
        let mut store = Store::default();
        store.apply(Event::Apply(node("a", "1", 5)));
        store.written(node("a", "1", 9));
        store.apply(Event::Apply(node("a", "1", 7)));
        assert_eq!(seen(&store), pairs(&[("1", 9)]));
        // Deleted and held by nothing.
        let mut ended = node("a", "1", 11);
        ended.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        store.written(ended);
        store.apply(Event::Apply(node("a", "1", 10)));
        assert_eq!(seen(&store), []);
        store.apply(Event::Delete(node("a", "1", 12)));
        store.apply(Event::Apply(node("a", "2", 13)));
        assert_eq!(seen(&store), pairs(&[("2", 13)]));
        // A deletion of the one before comes late.
        store.apply(Event::Delete(node("a", "1", 12)));
        assert_eq!(seen(&store), pairs(&[("2", 13)]));
    }

    #[test]
    fn a_new_list_keeps_what_we_wrote_after_it() {
        let mut store = Store::default();
        store.apply(Event::Apply(node("old", "0", 3)));
        store.apply(Event::Init);
        store.apply(Event::InitApply(node("a", "1", 5)));
        store.written(node("a", "1", 8));
        store.written(node("b", "2", 9));
        store.apply(Event::InitDone);
        assert_eq!(seen(&store), pairs(&[("1", 8), ("2", 9)]));
    }
}
