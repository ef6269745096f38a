//! Watches: a mirror of each kind, kept up to date, read as a whole.
//!
//! Objects are read loosely: one that does not fit its type (left by an older CRD, or written by a newer release)
//! must not hide the others, so it is kept together with what is wrong with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::{info, warn};
use veneer_api::{
    Condition, EC2NodeClass, NodeClaim, NodeOverlay, NodeOverlaySpec, NodePool,
    NodeSelectorRequirementWithMinValues,
};
pub(crate) use veneer_aws::chain;
use veneer_engine::labels::LabelRules;
use veneer_engine::overlay::{Overlay, Pool, Problem};
use veneer_steering::machines::SeenMachine;
use veneer_steering::overlays::Existing;

use crate::feed::{Feed, Heard, Timing, Trouble};
use crate::run::Provider;
use crate::standalone::Meters;
use crate::steer::seen_machine;
use crate::supervise::restarted;
use crate::watch_ages::WatchAges;

/// Whose watches these are, in metrics.
const WHO: &str = "overlays";

/// A NodeOverlay as it was last seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenOverlay {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) conditions: Vec<Condition>,
    /// What it says, or its name and what is wrong with it.
    pub(crate) overlay: Result<Overlay, (String, Vec<Problem>)>,
    /// Whose it is and how it is written.
    pub(crate) existing: Existing,
}

/// A NodePool as it was last seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenPool {
    pub(crate) uid: String,
    pub(crate) pool: Pool,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) requirements: Vec<NodeSelectorRequirementWithMinValues>,
    pub(crate) node_class_group: String,
    pub(crate) deleting: bool,
    node_class: String,
}

/// Everything that was last seen, by name.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) overlays: Vec<Arc<SeenOverlay>>,
    pub(crate) pools: Vec<Arc<SeenPool>>,
}

/// Everything that steering looks at, by name. Unlike in a [`Snapshot`] every NodePool counts.
#[derive(Debug)]
pub(crate) struct SteeringSnapshot {
    pub(crate) overlays: Vec<Arc<SeenOverlay>>,
    pub(crate) pools: Vec<Arc<SeenPool>>,
    pub(crate) claims: Vec<Arc<SeenMachine>>,
    pub(crate) nodes: Vec<Arc<SeenMachine>>,
}

/// The two who wait for changes.
#[derive(Debug, Default)]
struct Changes {
    verdicts: Notify,
    steering: Notify,
}

impl Changes {
    fn notify(&self) {
        self.verdicts.notify_one();
        self.steering.notify_one();
    }
}

/// The state of one watch.
#[derive(Debug)]
struct Mirror<T> {
    objects: BTreeMap<String, Arc<T>>,
    /// What the running list has brought so far.
    listed: BTreeMap<String, Arc<T>>,
    synced: bool,
    error: Option<String>,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
            synced: false,
            error: None,
        }
    }
}

impl<T: PartialEq> Mirror<T> {
    /// Takes an event in, and says whether anything that counts is new: a Node's heartbeat, for instance, is not.
    fn apply(&mut self, heard: Heard<DynamicObject>, read: impl Fn(&DynamicObject) -> T) -> bool {
        match heard {
            Heard::Applied(object) => {
                let new = Arc::new(read(&object));
                let old = self.objects.insert(object.name_any(), Arc::clone(&new));
                old.is_none_or(|old| old != new)
            }
            Heard::Deleted(object) => self.objects.remove(&object.name_any()).is_some(),
            Heard::ListBegins => {
                self.listed.clear();
                false
            }
            Heard::Listed(object) => {
                self.listed.insert(object.name_any(), Arc::new(read(&object)));
                false
            }
            Heard::ListEnds(_) => {
                self.objects = std::mem::take(&mut self.listed);
                self.synced = true;
                true
            }
            Heard::Alive | Heard::Regressed(..) | Heard::Failed(_) => false,
        }
    }
}

type Shared<T> = Arc<Mutex<Mirror<T>>>;

/// A panic elsewhere leaves a mirror that is still whole: every change to it is one assignment.
fn lock<T>(mirror: &Mutex<Mirror<T>>) -> MutexGuard<'_, Mirror<T>> {
    mirror.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running watches. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Watches {
    overlays: Shared<SeenOverlay>,
    pools: Shared<SeenPool>,
    /// `None` where Karpenter does not look at the node class.
    node_classes: Option<Shared<ObjectMeta>>,
    /// NodeClaims and Nodes; `None` where nobody counts them.
    machines: Option<[Shared<SeenMachine>; 2]>,
    changed: Arc<Changes>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Watches {
    /// Starts them; NodeClaims and Nodes only if somebody counts machines.
    pub(crate) fn start(
        client: &Client,
        provider: Provider,
        rules: Arc<LabelRules>,
        counts_machines: bool,
        (meters, ages): (&Meters, &WatchAges),
    ) -> Self {
        let mut tasks = tokio::task::JoinSet::new();
        let changed = Arc::new(Changes::default());
        let follower = |resource: &ApiResource, kind, absent| Follower {
            feed: feed(client, resource),
            kind,
            absent,
            changed: Arc::clone(&changed),
            meters: meters.clone(),
            ages: ages.clone(),
        };
        let overlays = Shared::default();
        let pools = Shared::default();
        let overlays_follower = follower(
            &ApiResource::erase::<NodeOverlay>(&()),
            "NodeOverlay",
            Absent::IsAnError,
        );
        tasks.spawn(
            overlays_follower.follow(Arc::clone(&overlays), move |object| seen_overlay(object, &rules)),
        );
        let pools_follower = follower(
            &ApiResource::erase::<NodePool>(&()),
            "NodePool",
            Absent::IsAnError,
        );
        tasks.spawn(pools_follower.follow(Arc::clone(&pools), seen_pool));
        let node_classes = (provider == Provider::Ec2).then(|| {
            let node_classes = Shared::default();
            let follower = follower(
                &ApiResource::erase::<EC2NodeClass>(&()),
                "EC2NodeClass",
                Absent::IsEmpty,
            );
            let metadata = |object: &DynamicObject| object.metadata.clone();
            tasks.spawn(follower.follow(Arc::clone(&node_classes), metadata));
            node_classes
        });
        let machines = counts_machines.then(|| {
            let kinds = [
                (ApiResource::erase::<NodeClaim>(&()), "NodeClaim"),
                (ApiResource::erase::<Node>(&()), "Node"),
            ];
            kinds.map(|(resource, kind)| {
                let mirror = Shared::default();
                let follower = follower(&resource, kind, Absent::IsEmpty);
                tasks.spawn(follower.follow(Arc::clone(&mirror), seen_machine));
                mirror
            })
        });
        Self {
            overlays,
            pools,
            node_classes,
            machines,
            changed,
            _tasks: tasks,
        }
    }

    /// Waits for the next change. A change that came while nobody waited counts.
    pub(crate) async fn changed(&self) {
        self.changed.verdicts.notified().await;
    }

    /// The same for steering.
    pub(crate) async fn changed_for_steering(&self) {
        self.changed.steering.notified().await;
    }

    /// Whether every watch has listed its objects.
    pub(crate) fn synced(&self) -> bool {
        lock(&self.overlays).synced
            && lock(&self.pools).synced
            && self
                .node_classes
                .as_ref()
                .is_none_or(|classes| lock(classes).synced)
            && self
                .machines
                .iter()
                .flatten()
                .all(|machines| lock(machines).synced)
    }

    /// Why a watch does not work at the moment, if one does not.
    pub(crate) fn error(&self) -> Option<String> {
        let overlays = lock(&self.overlays).error.clone();
        let pools = || lock(&self.pools).error.clone();
        let classes = || {
            self.node_classes
                .as_ref()
                .and_then(|classes| lock(classes).error.clone())
        };
        let mut machines = self.machines.iter().flatten();
        let machines = || machines.find_map(|machines| lock(machines).error.clone());
        overlays.or_else(pools).or_else(classes).or_else(machines)
    }

    pub(crate) fn steering_snapshot(&self) -> SteeringSnapshot {
        let mut machines = self.machines.iter().flatten();
        let mut next = || {
            let mirror = machines.next();
            mirror.map_or_else(Vec::new, |mirror| {
                lock(mirror).objects.values().cloned().collect()
            })
        };
        SteeringSnapshot {
            overlays: lock(&self.overlays).objects.values().cloned().collect(),
            pools: lock(&self.pools).objects.values().cloned().collect(),
            claims: next(),
            nodes: next(),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let pools = lock(&self.pools).objects.values().cloned().collect::<Vec<_>>();
        let pools = match &self.node_classes {
            None => pools,
            Some(classes) => {
                let classes = lock(classes);
                let usable = |pool: &Arc<SeenPool>| {
                    let class = classes.objects.get(&pool.node_class);
                    class.is_some_and(|class| class.deletion_timestamp.is_none())
                };
                pools.into_iter().filter(usable).collect()
            }
        };
        Snapshot {
            overlays: lock(&self.overlays).objects.values().cloned().collect(),
            pools,
        }
    }
}

fn feed(client: &Client, kind: &ApiResource) -> Feed {
    let api = Api::<DynamicObject>::all_with(client.clone(), kind);
    Feed {
        client: client.clone(),
        url: api.resource_url().to_owned(),
        timing: Timing::default(),
    }
}

/// What it means that the API server does not serve a kind.
#[derive(Clone, Copy, PartialEq)]
enum Absent {
    IsAnError,
    IsEmpty,
}

/// Follows one kind.
struct Follower {
    feed: Feed,
    kind: &'static str,
    absent: Absent,
    changed: Arc<Changes>,
    meters: Meters,
    ages: WatchAges,
}

impl Follower {
    async fn follow<T: PartialEq>(self, mirror: Shared<T>, read: impl Fn(&DynamicObject) -> T) {
        let task = format!("watch {}", self.kind);
        restarted(&task, &self.meters, || {
            self.feed.follow(Arc::default(), |heard| {
                if self.take(heard, &mirror, &read) {
                    self.changed.notify();
                }
            })
        })
        .await;
    }

    /// Takes in what was heard, and says whether anything that counts is new.
    fn take<T: PartialEq>(
        &self,
        heard: Heard<DynamicObject>,
        mirror: &Shared<T>,
        read: impl Fn(&DynamicObject) -> T,
    ) -> bool {
        let mut mirror = lock(mirror);
        match heard {
            Heard::Failed(trouble) if self.absent == Absent::IsEmpty && trouble.code() == Some(404) => {
                self.ages.works(WHO, self.kind);
                let known = mirror.synced && mirror.objects.is_empty();
                mirror.objects.clear();
                mirror.synced = true;
                !known
            }
            Heard::Failed(trouble) => {
                let text = explain(self.kind, &trouble);
                if self.ages.fails(WHO, self.kind, &text) {
                    warn!(kind = self.kind, error = %text, "cannot watch; trying again");
                }
                mirror.error = Some(text);
                true
            }
            heard => {
                let is_list = matches!(heard, Heard::ListBegins | Heard::Listed(_) | Heard::ListEnds(_));
                if let Heard::Regressed(from, to) = heard {
                    self.meters.regressed();
                    warn!(
                        kind = self.kind,
                        from, to, "resource versions went back: etcd was restored from a backup"
                    );
                }
                if !is_list && self.ages.works(WHO, self.kind) {
                    info!(kind = self.kind, "watching again");
                }
                let had_error = !is_list && mirror.error.take().is_some();
                mirror.apply(heard, read) || had_error
            }
        }
    }
}

fn explain(kind: &str, trouble: &Trouble) -> String {
    match trouble {
        Trouble::Kube(kube::Error::Api(status)) if status.code == 404 => format!(
            "the cluster does not serve {kind}; beside Karpenter, install the CRDs of its chart, and in standalone mode those of `veneer crds --mode standalone | kubectl apply --server-side -f -`"
        ),
        Trouble::Kube(kube::Error::Api(status)) if status.is_forbidden() => {
            format!("not allowed to list and watch {kind}: {}", status.message)
        }
        other => format!("{kind}: {other}"),
    }
}

/// Reads an overlay; public to the crate because a writer that lost a race reads it again.
pub(crate) fn seen_overlay(object: &DynamicObject, rules: &LabelRules) -> SeenOverlay {
    let name = object.name_any();
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten();
    SeenOverlay {
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        // A condition that cannot be read is one that nobody can compare; writing puts a good one in its place.
        conditions: conditions
            .filter_map(|one| serde_json::from_value(one.clone()).ok())
            .collect(),
        overlay: read_overlay(object)
            .map_err(|problem| (name, vec![problem]))
            .and_then(|manifest| Overlay::read(&manifest, rules)),
        existing: Existing {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            labels: object.labels().clone(),
            owners: object.owner_references().to_vec(),
            spec: object.data.get("spec").cloned().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
        },
    }
}

fn read_overlay(object: &DynamicObject) -> Result<NodeOverlay, Problem> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: NodeOverlaySpec = serde_path_to_error::deserialize(spec).map_err(|error| Problem {
        field: format!("spec.{}", error.path()),
        message: error.inner().to_string(),
    })?;
    // Without its selector an overlay would match everything.
    let drafts = [
        ("selector", spec.selector.is_some()),
        ("pricePercent", spec.price_percent.is_some()),
    ];
    if let Some((field, _)) = drafts.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Problem {
            field: format!("spec.{field}"),
            message: "belongs to an earlier draft of NodeOverlay; rewrite the manifest with `veneer convert` and apply it again"
                .to_owned(),
        });
    }
    Ok(NodeOverlay {
        metadata: object.metadata.clone(),
        spec,
        status: None,
    })
}

fn seen_pool(object: &DynamicObject) -> SeenPool {
    let labels = object
        .data
        .pointer("/spec/template/metadata/labels")
        .and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let node_class = object.data.pointer("/spec/template/spec/nodeClassRef");
    let of_class = |field: &str| {
        let text = node_class.and_then(|class| class.get(field)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let requirements = object
        .data
        .pointer("/spec/template/spec/requirements")
        .and_then(Value::as_array);
    SeenPool {
        uid: object.uid().unwrap_or_default(),
        pool: Pool {
            name: object.name_any(),
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        },
        annotations: object.annotations().clone(),
        requirements: requirements
            .into_iter()
            .flatten()
            .filter_map(|one| serde_json::from_value(one.clone()).ok())
            .collect(),
        node_class_group: of_class("group"),
        deleting: object.metadata.deletion_timestamp.is_some(),
        node_class: of_class("name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> DynamicObject {
        DynamicObject::new(name, &ApiResource::erase::<NodePool>(&()))
    }

    fn names(mirror: &Mirror<SeenPool>) -> Vec<&str> {
        mirror.objects.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_new_list_replaces_the_old_one_at_its_end_and_not_before() {
        let mut mirror = Mirror::default();
        let mut apply = |heard| {
            mirror.apply(heard, seen_pool);
            (mirror.synced, names(&mirror).join(" "))
        };
        assert_eq!(apply(Heard::ListBegins), (false, String::new()));
        apply(Heard::Listed(object("a")));
        assert_eq!(apply(Heard::Listed(object("b"))), (false, String::new()));
        assert_eq!(apply(Heard::ListEnds(1)), (true, "a b".to_owned()));
        assert_eq!(apply(Heard::Applied(object("c"))), (true, "a b c".to_owned()));
        assert_eq!(apply(Heard::Deleted(object("a"))), (true, "b c".to_owned()));

        // The watch broke, b was deleted meanwhile, and the list that follows is broken off once.
        apply(Heard::ListBegins);
        assert_eq!(apply(Heard::Listed(object("b"))), (true, "b c".to_owned()));
        apply(Heard::ListBegins);
        assert_eq!(apply(Heard::Listed(object("c"))), (true, "b c".to_owned()));
        assert_eq!(apply(Heard::ListEnds(1)), (true, "c".to_owned()));
    }

    #[test]
    fn only_what_counts_is_a_change() {
        let mut mirror = Mirror::default();
        let mut apply = |heard| mirror.apply(heard, seen_pool);
        assert!(!apply(Heard::ListBegins));
        assert!(!apply(Heard::Listed(object("a"))));
        assert!(apply(Heard::ListEnds(1)));
        let mut same = object("a");
        same.data = serde_json::json!({"status": {"nodes": 3}});
        assert!(!apply(Heard::Applied(same)));
        let mut other = object("a");
        other
            .annotations_mut()
            .insert("veneer.io/preference.1".to_owned(), "x".to_owned());
        assert!(apply(Heard::Applied(other)));
        assert!(!apply(Heard::Deleted(object("b"))));
        assert!(apply(Heard::Deleted(object("a"))));
    }

    #[test]
    fn a_pool_is_read_whatever_else_it_holds() {
        let mut pool = object("a");
        assert_eq!(seen_pool(&pool).pool.labels, []);
        pool.data = serde_json::json!({"spec": {"replicas": "many", "template": {
            "metadata": {"labels": {"team": "x", "odd": 7}}, "spec": {"nodeClassRef": {"name": "default"}},
        }}});
        let seen = seen_pool(&pool);
        assert_eq!(seen.pool.labels, [("team".to_owned(), "x".to_owned())]);
        assert_eq!(seen.node_class, "default");
    }
}
