//! An API server in memory, as far as clients can tell: versions, conflicts, finalizers, generations, subresources, pages, a log
//! for watches, and a backup that it can be thrown back to.
//!
//! It stores JSON, not typed objects as `veneer_world::objects` does: clients must also meet objects that fit no type.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Why a request is refused.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn refuse(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
    Refusal {
        code,
        reason,
        message: message.into(),
    }
}

impl Refusal {
    pub(super) fn body(&self) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code})
    }
}

/// One line of the log that watches read.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) kind: &'static str,
    pub(super) plural: String,
    pub(super) object: Arc<Value>,
}

type Objects = BTreeMap<String, BTreeMap<String, Arc<Value>>>;

/// What a restore goes back to.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    objects: Objects,
    versions: u64,
}

#[derive(Debug, Default)]
pub(super) struct ApiServer {
    objects: Objects,
    log: Vec<Change>,
    versions: u64,
    uids: u64,
    /// Watches that begin before this are too old.
    compacted: u64,
    /// Changes with every restore: nobody can go on from before it.
    pub(super) epoch: u64,
    pages: BTreeMap<String, (u64, Vec<Arc<Value>>)>,
}

/// What a client asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) plural: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

impl Path {
    pub(super) fn parse(path: &str) -> Self {
        let mut parts = path.trim_matches('/').split('/');
        let skip = if parts.next() == Some("apis") { 2 } else { 1 };
        let parts: Vec<&str> = parts.skip(skip).collect();
        let at = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
        let (offset, namespace) = if at(0) == "namespaces" && parts.len() > 2 {
            (2, at(1))
        } else {
            (0, String::new())
        };
        Self {
            plural: at(offset),
            namespace,
            name: at(offset + 1),
            subresource: at(offset + 2),
        }
    }

    pub(super) fn of(plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A string somewhere in an object.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn key_of(object: &Value) -> String {
    format!(
        "{}/{}",
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    )
}

pub(super) fn is_held(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|list| !list.is_empty())
}

/// A merge patch (RFC 7386).
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(target) = into.as_object_mut() else {
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl ApiServer {
    pub(super) fn version(&self) -> u64 {
        self.versions
    }

    pub(super) fn all(&self, plural: &str) -> Vec<Arc<Value>> {
        let objects = self.objects.get(plural).map(BTreeMap::values);
        objects.into_iter().flatten().cloned().collect()
    }

    pub(super) fn get(&self, path: &Path) -> Result<Arc<Value>, Refusal> {
        let found = self
            .objects
            .get(&path.plural)
            .and_then(|all| all.get(&path.key()));
        found.cloned().ok_or_else(|| {
            refuse(
                404,
                "NotFound",
                format!("{} \"{}\" not found", path.plural, path.name),
            )
        })
    }

    fn note(&mut self, kind: &'static str, plural: &str, object: Arc<Value>) {
        self.log.push(Change {
            version: self.versions,
            kind,
            plural: plural.to_owned(),
            object,
        });
    }

    fn set(object: &mut Value, field: &str, value: Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), value);
        }
    }

    /// Stores an object under the next version, or removes it if nothing holds it any more.
    fn store(&mut self, plural: &str, mut object: Value, kind: &'static str) -> Arc<Value> {
        self.versions += 1;
        Self::set(&mut object, "resourceVersion", self.versions.to_string().into());
        let key = key_of(&object);
        // A pod leaves when its kubelet says so, everything else when nothing holds it.
        let is_gone = is_deleting(&object) && !is_held(&object) && plural != "pods";
        let object = Arc::new(object);
        let all = self.objects.entry(plural.to_owned()).or_default();
        if is_gone {
            all.remove(&key);
            self.note("DELETED", plural, Arc::clone(&object));
        } else {
            all.insert(key, Arc::clone(&object));
            self.note(kind, plural, Arc::clone(&object));
        }
        object
    }

    pub(super) fn create(
        &mut self,
        plural: &str,
        namespace: &str,
        mut object: Value,
        now: Timestamp,
    ) -> Result<Arc<Value>, Refusal> {
        if object.get("metadata").is_none() {
            merge(&mut object, &json!({"metadata": {}}));
        }
        if !namespace.is_empty() {
            Self::set(&mut object, "namespace", namespace.into());
        }
        let key = key_of(&object);
        if self.objects.get(plural).is_some_and(|all| all.contains_key(&key)) {
            return Err(refuse(
                409,
                "AlreadyExists",
                format!("{plural} \"{key}\" already exists"),
            ));
        }
        self.uids += 1;
        // Uids of before a restore do not come back.
        Self::set(&mut object, "uid", format!("uid-{}", self.uids).into());
        Self::set(&mut object, "generation", 1.into());
        Self::set(&mut object, "creationTimestamp", seconds(now));
        Ok(self.store(plural, object, "ADDED"))
    }

    /// Whether a write names another object or another version.
    fn check(known: &Value, wanted: &Value) -> Result<(), Refusal> {
        for field in ["uid", "resourceVersion"] {
            let pointer = format!("/metadata/{field}");
            let (wants, has) = (text(wanted, &pointer), text(known, &pointer));
            if !wants.is_empty() && wants != has {
                let message = format!("the object has been modified: {field} is {has}, not {wants}");
                return Err(refuse(409, "Conflict", message));
            }
        }
        Ok(())
    }

    pub(super) fn replace(&mut self, path: &Path, mut object: Value) -> Result<Arc<Value>, Refusal> {
        let known = self.get(path)?;
        Self::check(&known, &object)?;
        for field in ["uid", "creationTimestamp", "generation", "namespace"] {
            if let Some(value) = known.pointer(&format!("/metadata/{field}")) {
                Self::set(&mut object, field, value.clone());
            }
        }
        Ok(self.store(&path.plural, object, "MODIFIED"))
    }

    pub(super) fn patch(&mut self, path: &Path, patch: &Value, manager: &str) -> Result<Arc<Value>, Refusal> {
        let known = self.get(path)?;
        Self::check(&known, patch)?;
        let mut patch = patch.clone();
        if let Some(fields) = patch.as_object_mut() {
            if path.subresource == "status" {
                fields.retain(|key, _| key == "status");
            } else {
                fields.remove("status");
            }
        }
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !matches!(key.as_str(), "uid" | "resourceVersion"));
        }
        let nominates = patch.pointer("/status/nominatedNodeName").cloned();
        if path.plural == "pods" && nominates.is_some() && !text(&known, "/spec/nodeName").is_empty() {
            return Err(refuse(422, "Invalid", "a pod that is bound cannot be nominated"));
        }
        let mut object = Value::clone(&known);
        merge(&mut object, &patch);
        if path.plural == "pods"
            && let Some(node) = nominates
        {
            let fields = json!([{"manager": manager, "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}]);
            Self::set(
                &mut object,
                "managedFields",
                if node.is_null() { json!([]) } else { fields },
            );
        }
        if object == *known {
            return Ok(known);
        }
        if object.get("spec") != known.get("spec") {
            let generation = known
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or(1);
            Self::set(&mut object, "generation", (generation + 1).into());
        }
        Ok(self.store(&path.plural, object, "MODIFIED"))
    }

    /// Deletes an object; one that is held stays until its holders let go, a pod on a node until its kubelet has ended it.
    pub(super) fn delete(
        &mut self,
        path: &Path,
        options: &Value,
        now: Timestamp,
    ) -> Result<Arc<Value>, Refusal> {
        let known = self.get(path)?;
        let wanted = text(options, "/preconditions/uid");
        if !wanted.is_empty() && wanted != text(&known, "/metadata/uid") {
            return Err(refuse(
                409,
                "Conflict",
                "the uid in the precondition is that of another object",
            ));
        }
        if is_deleting(&known) {
            return Ok(known);
        }
        let mut object = Value::clone(&known);
        Self::set(&mut object, "deletionTimestamp", seconds(now));
        let stays = path.plural == "pods" && !text(&known, "/spec/nodeName").is_empty();
        if path.plural == "pods" && !stays {
            return Ok(self.remove(path).unwrap_or(known));
        }
        Ok(self.store(&path.plural, object, "MODIFIED"))
    }

    /// Removes an object whatever holds it.
    pub(super) fn remove(&mut self, path: &Path) -> Option<Arc<Value>> {
        let known = self.objects.get_mut(&path.plural)?.remove(&path.key())?;
        self.versions += 1;
        let mut last = Value::clone(&known);
        Self::set(&mut last, "resourceVersion", self.versions.to_string().into());
        let last = Arc::new(last);
        self.note("DELETED", &path.plural, Arc::clone(&last));
        Some(last)
    }

    /// What others than the controllers do to an object.
    pub(super) fn edit(&mut self, path: &Path, change: impl FnOnce(&mut Value)) {
        if let Ok(known) = self.get(path) {
            let mut object = Value::clone(&known);
            change(&mut object);
            if object != *known {
                self.store(&path.plural, object, "MODIFIED");
            }
        }
    }

    /// Evicts a pod unless a budget is against it.
    pub(super) fn evict(&mut self, path: &Path, eviction: &Value, now: Timestamp) -> Result<(), Refusal> {
        let pod = self.get(path)?;
        for budget in self.all("poddisruptionbudgets") {
            let app = text(&budget, "/spec/selector/matchLabels/app");
            if app != text(&pod, "/metadata/labels/app") || is_deleting(&pod) {
                continue;
            }
            let allowed = self.disruptions_allowed(&budget);
            if allowed == 0 {
                return Err(refuse(
                    429,
                    "TooManyRequests",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                ));
            }
        }
        let options = eviction.get("deleteOptions").cloned().unwrap_or_default();
        self.delete(path, &options, now).map(drop)
    }

    pub(super) fn disruptions_allowed(&self, budget: &Value) -> u64 {
        let app = text(budget, "/spec/selector/matchLabels/app");
        let pods = self.all("pods");
        let healthy = pods.iter().filter(|pod| {
            text(pod, "/metadata/labels/app") == app
                && !is_deleting(pod)
                && !text(pod, "/spec/nodeName").is_empty()
        });
        let least = budget
            .pointer("/spec/minAvailable")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        (healthy.count() as u64).saturating_sub(least)
    }

    /// A page of a list, and where the next one begins. A page is of the moment at which the first one was made.
    pub(super) fn list(
        &mut self,
        plural: &str,
        limit: usize,
        token: &str,
        field: &str,
    ) -> Result<Value, Refusal> {
        let (version, mut items) = if token.is_empty() {
            let (path, wanted) = field.split_once('=').unwrap_or_default();
            let pointer = format!("/{}", path.replace('.', "/"));
            let mut items = self.all(plural);
            items.retain(|item| path.is_empty() || text(item, &pointer) == wanted);
            (self.versions, items)
        } else {
            let page = self.pages.get(token).cloned();
            page.ok_or_else(|| refuse(410, "Expired", "the provided continue parameter is too old"))?
        };
        let mut next = String::new();
        if items.len() > limit {
            let rest = items.split_off(limit);
            // As in a real API server, a token says all that it stands for.
            next = format!("{}-{version}-{plural}-{field}-{}", self.epoch, rest.len());
            self.pages.insert(next.clone(), (version, rest));
        }
        let items: Vec<&Value> = items.iter().map(AsRef::as_ref).collect();
        Ok(
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string(), "continue": next},
            "items": items}),
        )
    }

    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
    }

    /// The changes of a kind after a version; none if they are not known any more.
    pub(super) fn since(&self, plural: &str, version: u64) -> Option<Vec<Change>> {
        if version < self.compacted || version > self.versions {
            return None;
        }
        let from = self.log.partition_point(|change| change.version <= version);
        let changes = self.log.get(from..).unwrap_or_default().iter();
        Some(
            changes
                .filter(|change| change.plural == plural)
                .cloned()
                .collect(),
        )
    }

    /// Forgets the log: watches that are behind are told that they are too late.
    pub(super) fn compact(&mut self) {
        self.compacted = self.versions;
        self.log.clear();
        self.pages.clear();
    }

    pub(super) fn backup(&self) -> Backup {
        Backup {
            objects: self.objects.clone(),
            versions: self.versions,
        }
    }

    pub(super) fn restore(&mut self, backup: Backup) {
        self.objects = backup.objects;
        self.versions = backup.versions;
        self.compact();
        self.epoch += 1;
    }
}

/// A time as the API server writes it.
pub(super) fn seconds(now: Timestamp) -> Value {
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    whole.to_string().into()
}
