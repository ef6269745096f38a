//! A mirror of one kind that also knows our own writes, so that a decision never starts from before them.
//!
//! What a watch brings late does not undo what a write answered. A list is the truth: it replaces everything but what was
//! written after it began. So versions are compared only with those of our own writes that no list and no watch has
//! confirmed, and an etcd that was restored, whose versions are lower, is believed like any other.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use veneer_api::Pod;

use super::alike::Alike;
use super::slim::{slim, slim_metadata};
use super::watched::Watched;
use crate::feed::number as version_number;

/// Of how many objects it is remembered that the watch said that they are gone.
const MOST_ENDED: usize = 1_000;

/// The objects of one kind, by `namespace/name`.
#[derive(Debug)]
pub(crate) struct Store<T> {
    objects: BTreeMap<String, Arc<T>>,
    listed: BTreeMap<String, Arc<T>>,
    /// What does not fit its type, and why; it is not among the objects.
    unreadable: BTreeMap<String, String>,
    listed_unreadable: BTreeMap<String, String>,
    /// Uids of objects that are known to be gone, until the watch says so too, with the list during which that was learned.
    gone: HashMap<String, u64>,
    /// Uids of objects that the watch said are gone, the last ones: the answer to a write of before that may come later.
    ended: VecDeque<String>,
    /// Our own writes that the watch has not brought yet.
    unconfirmed: HashMap<String, Write>,
    /// What the stored pods have in common.
    alike: Alike,
    /// Counts the lists that have begun.
    lists: u64,
    pub(crate) synced: bool,
    /// Whether the kind cannot be listed and is done without.
    is_left_out: bool,
    /// Counts changes of what is stored.
    pub(crate) version: u64,
}

/// A write of ours: the version that it made, and the list during which it was answered.
#[derive(Clone, Copy, Debug)]
struct Write {
    version: u64,
    list: u64,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            listed_unreadable: BTreeMap::new(),
            gone: HashMap::new(),
            ended: VecDeque::new(),
            unconfirmed: HashMap::new(),
            alike: Alike::default(),
            lists: 0,
            synced: false,
            is_left_out: false,
            version: 0,
        }
    }
}

/// What a store needs to know of an object.
pub(crate) trait Stored: Send + Sync + 'static {
    fn metadata(&self) -> &ObjectMeta;

    /// Drops what no decision looks at.
    fn trim(&mut self);

    /// Lets it have what others have already.
    fn share(&mut self, alike: &mut Alike);
}

impl<T: kube::Resource + Send + Sync + 'static> Stored for T {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    fn trim(&mut self) {
        slim(self as &mut dyn Any);
        slim_metadata(self.meta_mut());
    }

    fn share(&mut self, alike: &mut Alike) {
        if let Some(pod) = (self as &mut dyn Any).downcast_mut::<Pod>() {
            alike.share(pod);
        }
    }
}

fn key(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}

fn number(metadata: &ObjectMeta) -> u64 {
    version_number(metadata.resource_version.as_deref().unwrap_or_default())
}

fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

impl<T: Stored + Clone> Store<T> {
    /// What was last seen.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(&format!("{namespace}/{name}"))
    }

    /// How many objects do not fit their type.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// The kind cannot be listed: unless it was, nobody waits for it, and nothing counts that was known before.
    pub(crate) fn leave_out(&mut self) {
        if !self.synced {
            self.version += 1;
            self.objects.clear();
            self.unreadable.clear();
            (self.synced, self.is_left_out) = (true, true);
        }
    }

    /// Whether the kind cannot be listed and is done without.
    pub(crate) const fn is_left_out(&self) -> bool {
        self.is_left_out
    }

    /// Whether what the watch says is older than a write of ours.
    fn is_late(&self, metadata: &ObjectMeta) -> bool {
        let key = key(metadata);
        if seeded!(LateWatchWins) {
            return false;
        }
        if seeded!(VersionsOnlyGrow)
            && let Some(known) = self.objects.get(&key)
        {
            return number(known.metadata()) > number(metadata);
        }
        let is_same = |known: &Arc<T>| uid(known.metadata()) == uid(metadata);
        self.gone.contains_key(uid(metadata))
            || self.objects.get(&key).is_some_and(is_same)
                && self
                    .unconfirmed
                    .get(&key)
                    .is_some_and(|write| write.version > number(metadata))
    }

    /// Takes in that an object was made or changed; gives back what it was before, and whether it is news that it does
    /// not fit its type.
    pub(crate) fn applied(&mut self, object: Watched<T>) -> (Option<Arc<T>>, bool) {
        self.version += 1;
        let metadata = object.metadata();
        let key = key(metadata);
        if self.is_late(metadata) {
            return (None, false);
        }
        let confirmed = self.unconfirmed.get(&key).copied();
        if confirmed.is_some_and(|write| number(metadata) >= write.version) {
            self.unconfirmed.remove(&key);
        }
        match object {
            Watched::Readable(mut object) => {
                object.share(&mut self.alike);
                self.unreadable.remove(&key);
                (self.objects.insert(key, Arc::new(*object)), false)
            }
            Watched::Unreadable(object) => {
                self.unconfirmed.remove(&key);
                let before = match object.stand_in() {
                    Some(stand_in) => self.objects.insert(key.clone(), Arc::new(stand_in)),
                    None => self.objects.remove(&key),
                };
                let known = self.unreadable.insert(key, object.error.clone());
                (before, known != Some(object.error))
            }
        }
    }

    /// Takes in that an object is gone; gives back what it was before.
    pub(crate) fn deleted(&mut self, metadata: &ObjectMeta) -> Option<Arc<T>> {
        self.version += 1;
        let key = key(metadata);
        self.gone.remove(uid(metadata));
        self.ended.push_back(uid(metadata).to_owned());
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_front();
        }
        match self.objects.get(&key) {
            // A deletion of the one before comes late.
            Some(known) if uid(known.metadata()) != uid(metadata) => None,
            _ => {
                self.unreadable.remove(&key);
                self.unconfirmed.remove(&key);
                self.objects.remove(&key)
            }
        }
    }

    /// A list begins: what is written from now on may not be in it.
    pub(crate) fn list_begins(&mut self) {
        self.lists += 1;
        self.listed.clear();
        self.listed_unreadable.clear();
    }

    /// One object of the list; says whether it is news that it does not fit its type.
    pub(crate) fn listed(&mut self, object: Watched<T>) -> bool {
        let key = key(object.metadata());
        match object {
            Watched::Readable(mut object) => {
                let known = self.objects.get(&key).filter(|known| {
                    let (known, new) = (known.metadata(), object.metadata());
                    uid(known) == uid(new) && known.resource_version == new.resource_version
                });
                // Those who compare snapshots see that nothing has changed, and nothing is kept twice.
                let object = known.map(Arc::clone).unwrap_or_else(|| {
                    object.share(&mut self.alike);
                    Arc::new(*object)
                });
                self.listed.insert(key, object);
                false
            }
            Watched::Unreadable(object) => {
                if let Some(stand_in) = object.stand_in() {
                    self.listed.insert(key.clone(), Arc::new(stand_in));
                }
                let is_news = self.unreadable.get(&key) != Some(&object.error);
                self.listed_unreadable.insert(key, object.error);
                is_news
            }
        }
    }

    /// The list is whole, and true for `version`: it replaces everything but what we wrote after it.
    pub(crate) fn list_ends(&mut self, version: u64) {
        self.version += 1;
        let list = self.lists;
        self.gone.retain(|_, known| *known == list);
        // A write of before the list began counts for nothing, however large its version is: etcd may have been restored. Of one
        // that the list has seen, the list says what became of it.
        self.unconfirmed
            .retain(|_, write| write.list == list && write.version > version);
        let mut listed = std::mem::take(&mut self.listed);
        if !self.ended.is_empty() {
            let back: HashSet<&str> = listed.values().map(|object| uid(object.metadata())).collect();
            self.ended.retain(|uid| !back.contains(uid.as_str()));
        }
        for (key, known) in self.objects.iter().filter(|_| seeded!(ListKeepsOld)) {
            listed.entry(key.clone()).or_insert_with(|| Arc::clone(known));
        }
        for (key, known) in self.objects.iter().filter(|_| seeded!(VersionsOnlyGrow)) {
            let other = listed.get_mut(key);
            if let Some(other) = other.filter(|other| number(other.metadata()) < number(known.metadata())) {
                *other = Arc::clone(known);
            }
        }
        listed.retain(|_, object| !self.gone.contains_key(uid(object.metadata())));
        for (key, write) in &self.unconfirmed {
            let Some(known) = self.objects.get(key) else {
                continue;
            };
            let is_newer = listed
                .get(key)
                .is_none_or(|other| number(other.metadata()) < write.version);
            if is_newer {
                listed.insert(key.clone(), Arc::clone(known));
            }
        }
        self.objects = listed;
        self.unreadable = std::mem::take(&mut self.listed_unreadable);
        (self.synced, self.is_left_out) = (true, false);
    }

    /// Takes in what a write of ours answered. An object that is deleted and held by nothing is gone.
    pub(crate) fn written(&mut self, object: T) {
        let known = self.objects.get(&key(object.metadata()));
        let is_late = known.is_some_and(|known| {
            let (known, new) = (known.metadata(), object.metadata());
            uid(known) == uid(new) && number(known) > number(new)
        });
        if !is_late {
            self.replace(object);
        }
    }

    /// Takes in what the API server has, after it refused a write for `version`: if that is what is known here, it is
    /// replaced, whatever the numbers are.
    pub(crate) fn read_again(&mut self, object: T, version: &str) {
        let known = self.objects.get(&key(object.metadata()));
        let known = known.and_then(|known| known.metadata().resource_version.as_deref());
        if known == Some(version) && !seeded!(VersionsOnlyGrow) {
            self.replace(object);
        } else {
            self.written(object);
        }
    }

    fn replace(&mut self, mut object: T) {
        object.trim();
        let metadata = object.metadata();
        let held = metadata.finalizers.iter().flatten().next().is_some();
        if metadata.deletion_timestamp.is_some() && !held {
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            let uid = uid(metadata).to_owned();
            self.lost(&namespace.unwrap_or_default(), &name.unwrap_or_default(), &uid);
            return;
        }
        let has_ended = |ended: &String| ended == uid(metadata);
        if self.gone.contains_key(uid(metadata)) || self.ended.iter().any(has_ended) {
            return;
        }
        self.version += 1;
        let key = key(metadata);
        let write = Write {
            version: number(metadata),
            list: self.lists,
        };
        object.share(&mut self.alike);
        self.unconfirmed.insert(key.clone(), write);
        self.unreadable.remove(&key);
        self.objects.insert(key, Arc::new(object));
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
            self.gone.insert(uid_gone.to_owned(), self.lists);
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
    use serde_json::json;
    use veneer_api::NodePool;

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

    fn watched(name: &str, uid: &str, version: u64) -> Watched<Node> {
        Watched::Readable(Box::new(node(name, uid, version)))
    }

    fn list(store: &mut Store<Node>, nodes: &[(&str, &str, u64)]) {
        store.list_begins();
        for (name, uid, version) in nodes {
            store.listed(watched(name, uid, *version));
        }
        let newest = nodes.iter().map(|(_, _, version)| *version).max();
        store.list_ends(newest.unwrap_or_default());
    }

    fn seen<T: Stored + Clone>(store: &Store<T>) -> Vec<(String, u64)> {
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

    fn ended(name: &str, uid: &str, version: u64) -> Node {
        let mut ended = node(name, uid, version);
        ended.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        ended
    }

    #[test]
    fn a_late_watch_does_not_undo_our_writes() {
        let mut store = Store::default();
        store.applied(watched("a", "1", 5));
        store.written(node("a", "1", 9));
        store.applied(watched("a", "1", 7));
        assert_eq!(seen(&store), pairs(&[("1", 9)]));
        // Deleted and held by nothing.
        store.written(ended("a", "1", 11));
        store.applied(watched("a", "1", 10));
        assert_eq!(seen(&store), []);
        store.deleted(&node("a", "1", 12).metadata);
        store.applied(watched("a", "2", 13));
        assert_eq!(seen(&store), pairs(&[("2", 13)]));
        // A deletion of the one before comes late.
        store.deleted(&node("a", "1", 12).metadata);
        assert_eq!(seen(&store), pairs(&[("2", 13)]));
    }

    #[test]
    fn a_new_list_keeps_what_we_wrote_after_it() {
        let mut store = Store::default();
        store.applied(watched("old", "0", 3));
        store.list_begins();
        store.listed(watched("a", "1", 5));
        store.listed(watched("c", "3", 5));
        store.written(node("a", "1", 8));
        store.written(node("b", "2", 9));
        store.applied(watched("c", "3", 5));
        store.written(ended("c", "3", 10));
        store.list_ends(6);
        assert_eq!(seen(&store), pairs(&[("1", 8), ("2", 9)]));
        // What the watch still brings of the one that is gone changes nothing.
        store.applied(watched("c", "3", 6));
        assert_eq!(seen(&store), pairs(&[("1", 8), ("2", 9)]));
    }

    #[test]
    fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let mut store = Store::default();
        store.applied(watched("a", "1", 5));
        store.deleted(&node("a", "1", 7).metadata);
        // Answered before the deletion, heard after it.
        store.written(node("a", "1", 6));
        assert_eq!(seen(&store), []);
        store.written(node("a", "2", 8));
        assert_eq!(seen(&store), pairs(&[("2", 8)]));
        // After a restore it may be there again.
        list(&mut store, &[("a", "1", 3)]);
        store.written(node("a", "1", 4));
        assert_eq!(seen(&store), pairs(&[("1", 4)]));
    }

    #[test]
    fn a_list_that_has_seen_a_write_of_ours_says_what_became_of_it() {
        let mut store = Store::default();
        store.applied(watched("a", "1", 5));
        store.list_begins();
        store.written(node("a", "1", 6));
        store.written(node("b", "2", 9));
        // Somebody deleted the one before the list was made, which no watch will tell.
        store.list_ends(7);
        assert_eq!(seen(&store), pairs(&[("2", 9)]));
    }

    #[test]
    fn a_restored_etcd_is_believed() {
        let mut store = Store::default();
        list(&mut store, &[("a", "1", 100), ("b", "2", 101), ("c", "3", 102)]);
        store.written(node("a", "1", 200));
        store.written(node("d", "4", 201));
        store.written(ended("c", "3", 202));
        // Restored to before all of this: a is as it was, b and d were never made, c was never deleted.
        list(&mut store, &[("a", "1", 50), ("c", "3", 51)]);
        assert_eq!(seen(&store), pairs(&[("1", 50), ("3", 51)]));
        // New limits are taken in at once.
        store.applied(watched("a", "1", 60));
        assert_eq!(seen(&store), pairs(&[("1", 60), ("3", 51)]));
    }

    #[test]
    fn what_is_read_again_after_a_conflict_is_believed_although_its_version_is_lower() {
        let mut store = Store::default();
        list(&mut store, &[("a", "1", 100)]);
        store.read_again(node("a", "1", 50), "100");
        assert_eq!(seen(&store), pairs(&[("1", 50)]));
        // Somebody was faster than the answer.
        store.applied(watched("a", "1", 70));
        store.read_again(node("a", "1", 60), "50");
        assert_eq!(seen(&store), pairs(&[("1", 70)]));
    }

    #[test]
    fn a_kind_that_cannot_be_listed_is_left_out_until_it_can() {
        let mut store = Store::default();
        store.list_begins();
        store.leave_out();
        assert!(store.synced && store.is_left_out());
        list(&mut store, &[("a", "1", 5)]);
        assert!(store.synced && !store.is_left_out());
        // What was listed stays when the next attempt fails.
        store.list_begins();
        store.leave_out();
        assert_eq!((seen(&store), store.is_left_out()), (pairs(&[("1", 5)]), false));
        // After a restore of etcd it may never have been.
        store.synced = false;
        store.leave_out();
        assert_eq!((seen(&store), store.is_left_out()), (vec![], true));
    }

    fn pool(version: u64, template: serde_json::Value) -> Watched<NodePool> {
        let value = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": {"template": template},
            "metadata": {"name": "a", "uid": "1", "resourceVersion": version.to_string()}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_became_unreadable_is_not_used_and_can_be_deleted() {
        let good = json!({"spec": {"requirements": [],
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}});
        let mut store = Store::default();
        store.applied(pool(1, good.clone()));
        assert_eq!(seen(&store), pairs(&[("1", 1)]));
        let (_, is_news) = store.applied(pool(2, json!("a text")));
        assert_eq!((seen(&store), store.unreadable(), is_news), (vec![], 1, true));
        let (_, is_news) = store.applied(pool(3, json!("a text")));
        assert!(!is_news);
        store.applied(pool(4, good.clone()));
        assert_eq!((seen(&store), store.unreadable()), (pairs(&[("1", 4)]), 0));
        store.applied(pool(5, json!("a text")));
        store.deleted(pool(6, json!("a text")).metadata());
        assert_eq!((seen(&store), store.unreadable()), (vec![], 0));
        // The same in lists.
        store.applied(pool(7, good));
        store.list_begins();
        assert!(store.listed(pool(8, json!("a text"))));
        store.list_ends(8);
        assert_eq!((seen(&store), store.unreadable()), (vec![], 1));
        store.list_begins();
        store.list_ends(9);
        assert_eq!(store.unreadable(), 0);
    }
}
