//! The watches behind a snapshot: paged lists, bookmarks, and new attempts with growing pauses (all of it kube's).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{info, warn};
use veneer_api::{
    CONDITION_READY, ConditionStatus, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeOverlay, NodePool,
    Overprovisioner, find_condition,
};
use veneer_engine::plan::{NodeClass, Snapshot, is_daemon_pod, is_deleting, is_spare, is_terminal};

use super::Clock;
use super::store::{Shared, Stored, lock};
use crate::observe::chain;
use crate::provider::ec2;

/// Everything that is watched.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) pods: Shared<Pod>,
    pub(crate) nodes: Shared<Node>,
    pub(crate) node_claims: Shared<NodeClaim>,
    pub(crate) node_pools: Shared<NodePool>,
    pub(crate) overlays: Shared<NodeOverlay>,
    pub(crate) node_classes: Shared<KWOKNodeClass>,
    pub(crate) ec2_node_classes: Shared<EC2NodeClass>,
    pub(crate) overprovisioners: Shared<Overprovisioner>,
    daemon_sets: Shared<DaemonSet>,
    pvcs: Shared<PersistentVolumeClaim>,
    pvs: Shared<PersistentVolume>,
    storage_classes: Shared<StorageClass>,
    csi_nodes: Shared<CSINode>,
    volume_attachments: Shared<VolumeAttachment>,
    namespaces: Shared<Namespace>,
    pdbs: Shared<PodDisruptionBudget>,
    /// When a pod last came to or left a node.
    pod_events: Mutex<BTreeMap<String, Timestamp>>,
    changed: Notify,
    classes_changed: Notify,
    /// What time it is.
    pub(crate) clock: Clock,
}

/// What there is beside the kinds that are always there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    pub(crate) overlays: bool,
    pub(crate) overprovisioners: bool,
    pub(crate) node_classes: NodeClasses,
}

/// Whose node classes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeClasses {
    Kwok,
    Ec2,
    /// Somebody else looks after them.
    None,
}

/// The running watches. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) stores: Arc<Stores>,
    _tasks: JoinSet<()>,
}

impl Watches {
    pub(crate) fn start(client: &Client, kinds: Kinds, clock: &Clock) -> Self {
        let stores = Arc::new(Stores {
            clock: clock.clone(),
            ..Stores::default()
        });
        let mut tasks = JoinSet::new();
        macro_rules! typed {
            ($($field:ident: $kind:ty),* $(,)?) => {$(
                tasks.spawn(follow::<$kind, $kind>(
                    Api::all(client.clone()),
                    Arc::clone(&stores.$field),
                    Arc::clone(&stores),
                    Some,
                ));
            )*};
        }
        typed! {
            nodes: Node, daemon_sets: DaemonSet, pvcs: PersistentVolumeClaim, pvs: PersistentVolume,
            storage_classes: StorageClass, csi_nodes: CSINode, volume_attachments: VolumeAttachment,
            namespaces: Namespace, pdbs: PodDisruptionBudget,
        }
        tasks.spawn(follow_pods(client, &stores));
        // Custom resources are read one by one: one that does not fit its type must not hide the others.
        macro_rules! loose {
            ($($field:ident: $kind:ty),* $(,)?) => {$(
                tasks.spawn(follow::<DynamicObject, $kind>(
                    Api::all_with(client.clone(), &ApiResource::erase::<$kind>(&())),
                    Arc::clone(&stores.$field),
                    Arc::clone(&stores),
                    read::<$kind>,
                ));
            )*};
        }
        loose! {node_claims: NodeClaim, node_pools: NodePool}
        let (kwok, ec2) = match kinds.node_classes {
            NodeClasses::Kwok => (true, false),
            NodeClasses::Ec2 => (false, true),
            NodeClasses::None => (false, false),
        };
        if ec2 {
            loose! {ec2_node_classes: EC2NodeClass}
        } else {
            lock(&stores.ec2_node_classes).synced = true;
        }
        if kwok {
            loose! {node_classes: KWOKNodeClass}
        } else {
            lock(&stores.node_classes).synced = true;
        }
        if kinds.overlays {
            loose! {overlays: NodeOverlay}
        } else {
            lock(&stores.overlays).synced = true;
        }
        if kinds.overprovisioners {
            loose! {overprovisioners: Overprovisioner}
        } else {
            lock(&stores.overprovisioners).synced = true;
        }
        Self {
            stores,
            _tasks: tasks,
        }
    }
}

impl Stores {
    /// Waits for the next change. A change that came while nobody waited counts.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Tells whoever waits that something is new.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
        self.classes_changed.notify_one();
    }

    /// Waits for the next change that may be one of node classes.
    pub(crate) async fn classes_changed(&self) {
        self.classes_changed.notified().await;
    }

    /// Whether every kind was listed.
    pub(crate) fn synced(&self) -> bool {
        lock(&self.pods).synced
            && lock(&self.nodes).synced
            && lock(&self.node_claims).synced
            && lock(&self.node_pools).synced
            && lock(&self.overlays).synced
            && lock(&self.node_classes).synced
            && lock(&self.ec2_node_classes).synced
            && lock(&self.overprovisioners).synced
            && lock(&self.daemon_sets).synced
            && lock(&self.pvcs).synced
            && lock(&self.pvs).synced
            && lock(&self.storage_classes).synced
            && lock(&self.csi_nodes).synced
            && lock(&self.volume_attachments).synced
            && lock(&self.namespaces).synced
            && lock(&self.pdbs).synced
    }

    /// Changes when something does that may let pods in that were refused before.
    pub(crate) fn world(&self) -> u64 {
        let mut sum = lock(&self.node_pools).objects().fold(0_u64, |sum, pool| {
            sum.wrapping_mul(31)
                .wrapping_add(pool.metadata.generation.unwrap_or_default().unsigned_abs())
        });
        for (count, claim) in lock(&self.node_claims).objects().enumerate() {
            sum = sum
                .wrapping_add(count as u64 + 1)
                .wrapping_add(u64::from(is_deleting(&claim.metadata)) << 32);
        }
        for overlay in lock(&self.overlays).objects() {
            sum = sum
                .wrapping_mul(31)
                .wrapping_add(overlay.metadata.generation.unwrap_or_default().unsigned_abs());
        }
        // A class that becomes usable lets pods in, too.
        for class in lock(&self.ec2_node_classes).objects() {
            sum = sum
                .wrapping_mul(31)
                .wrapping_add(u64::from(ec2::node_class(class).not_ready.is_none()));
        }
        sum.wrapping_mul(31)
            .wrapping_add(lock(&self.node_classes).objects().count() as u64)
    }

    /// Everything as it is now, without what only the provider knows.
    pub(crate) fn snapshot(&self) -> Snapshot {
        fn all<T: Stored>(store: &Shared<T>) -> Vec<Arc<T>> {
            lock(store).objects().cloned().collect()
        }
        Snapshot {
            pods: all(&self.pods),
            nodes: all(&self.nodes),
            node_claims: all(&self.node_claims),
            node_pools: all(&self.node_pools),
            overlays: all(&self.overlays),
            overprovisioners: all(&self.overprovisioners),
            node_classes: {
                let (kwok, ec2_classes) = (lock(&self.node_classes), lock(&self.ec2_node_classes));
                let ec2_classes = ec2_classes.objects().map(|one| ec2::node_class(one));
                kwok.objects()
                    .map(|one| node_class(one))
                    .chain(ec2_classes)
                    .collect()
            },
            daemon_sets: all(&self.daemon_sets),
            pvcs: all(&self.pvcs),
            pvs: all(&self.pvs),
            storage_classes: all(&self.storage_classes),
            csi_nodes: all(&self.csi_nodes),
            volume_attachments: all(&self.volume_attachments),
            namespaces: all(&self.namespaces),
            pdbs: all(&self.pdbs),
            pod_events: self
                .pod_events
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            ..Snapshot::default()
        }
    }

    /// Notes that a pod came to a node, ended there or left it.
    fn pod_moved(&self, before: Option<&str>, after: Option<&str>) {
        if before != after {
            let mut events = self.pod_events.lock().unwrap_or_else(PoisonError::into_inner);
            for node in before.into_iter().chain(after) {
                events.insert(node.to_owned(), self.clock.machine());
            }
        }
    }

    /// Whether any claim is a spare that nobody uses.
    pub(crate) fn has_spares(&self) -> bool {
        let claims = lock(&self.node_claims);
        claims.objects().any(|claim| is_spare(&claim.metadata))
    }

    /// Forgets nodes that are gone.
    pub(crate) fn forget_gone(&self) {
        let nodes = lock(&self.nodes);
        let mut events = self.pod_events.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|node, _| nodes.get("", node).is_some());
    }
}

fn node_class(class: &KWOKNodeClass) -> NodeClass {
    let conditions = class.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready = find_condition(conditions, CONDITION_READY);
    let not_ready = ready
        .filter(|one| one.status == ConditionStatus::False)
        .map(|one| one.message.clone());
    NodeClass {
        group: "karpenter.kwok.sh".to_owned(),
        kind: "KWOKNodeClass".to_owned(),
        name: class.metadata.name.clone().unwrap_or_default(),
        not_ready,
        is_deleting: is_deleting(&class.metadata),
    }
}

fn read<T: DeserializeOwned>(object: DynamicObject) -> Option<T> {
    let name = object.name_any();
    let kind = object
        .types
        .as_ref()
        .map(|types| types.kind.clone())
        .unwrap_or_default();
    let read = serde_json::to_value(&object).map_err(|error| error.to_string());
    let read = read.and_then(|value| {
        serde_path_to_error::deserialize(value)
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))
    });
    match read {
        Ok(object) => Some(object),
        Err(error) => {
            warn!(kind, name, %error, "left out: the object does not fit its type; correct the field and apply it again");
            None
        }
    }
}

async fn follow<W, T>(api: Api<W>, store: Shared<T>, stores: Arc<Stores>, read: impl Fn(W) -> Option<T>)
where
    W: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    T: Stored,
{
    let kind = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    let stream = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut failing = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                if std::mem::take(&mut failing) {
                    info!(kind, "watching again");
                }
                let Some(event) = map(event, &read) else { continue };
                let is_partial = matches!(event, Event::Init | Event::InitApply(_));
                lock(&store).apply(event);
                if !is_partial {
                    stores.wake();
                }
            }
            Err(error) => {
                if !failing {
                    warn!(kind, error = %chain(&error), "cannot watch; trying again");
                }
                failing = true;
                if seeded!(WatchEndsOnError) {
                    return;
                }
            }
        }
    }
}

fn map<W, T>(event: Event<W>, read: impl Fn(W) -> Option<T>) -> Option<Event<T>> {
    Some(match event {
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::InitDone => Event::InitDone,
    })
}

/// Pods are many: fields that nobody asks about are not kept, and their coming and going is noted.
fn follow_pods(client: &Client, stores: &Arc<Stores>) -> impl Future<Output = ()> + use<> {
    let api = Api::<Pod>::all(client.clone());
    let stores = Arc::clone(stores);
    async move {
        let stream = watcher::watcher(api, watcher::Config::default()).default_backoff();
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    warn!(kind = "Pod", error = %chain(&error), "cannot watch; trying again");
                    continue;
                }
            };
            let Some(event) = map(event, |pod| Some(slim(pod))) else {
                continue;
            };
            let is_partial = matches!(event, Event::Init | Event::InitApply(_));
            let (after, is_single) = match &event {
                Event::Apply(pod) => (occupied(pod).map(str::to_owned), true),
                Event::Delete(_) => (None, true),
                _ => (None, false),
            };
            let before = lock(&stores.pods).apply(event);
            if is_single {
                stores.pod_moved(before.as_deref().and_then(occupied), after.as_deref());
            }
            if !is_partial {
                stores.wake();
            }
        }
    }
}

/// The node that a pod occupies.
fn occupied(pod: &Pod) -> Option<&str> {
    let counts = !is_terminal(pod) && !is_deleting(&pod.metadata) && !is_daemon_pod(pod);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| counts && !node.is_empty())
}

fn slim(mut pod: Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        for container in spec
            .containers
            .iter_mut()
            .chain(spec.init_containers.iter_mut().flatten())
        {
            container.env = None;
            container.env_from = None;
            container.args = None;
            container.command = None;
            container.volume_mounts = None;
            container.liveness_probe = None;
            container.readiness_probe = None;
            container.startup_probe = None;
        }
    }
    pod
}
