//! The watches behind a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use veneer_api::{
    CONDITION_READY, ConditionStatus, EC2NodeClass, KWOKNodeClass, NodeClaim, NodeOverlay, NodePool,
    Overprovisioner, Pod, find_condition,
};
use veneer_engine::plan::{Announcement, NodeClass, Snapshot, is_deleting, is_spare};

use super::Clock;
use super::follow::{Follower, follow_versions};
use super::metrics::Meters;
use super::store::{Shared, Stored, lock};
use crate::feed::Timing;
use crate::provider::ec2;
use crate::watch_ages::{DeadWatch, WatchAges};

/// Whose watches these are, in metrics.
pub(super) const WHO: &str = "provisioning";
/// Within this time all watches have noticed that versions went back.
const LISTING: Duration = Duration::from_secs(10);

/// How many announcements wait for somebody to take them.
const MOST_ANNOUNCEMENTS: usize = 1_000;

/// Everything that is watched.
#[derive(Debug)]
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
    deployments: Shared<Deployment>,
    stateful_sets: Shared<StatefulSet>,
    jobs: Shared<Job>,
    pod_templates: Shared<PodTemplate>,
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
    kinds: Kinds,
    pub(super) tools: Tools,
    /// Counts how often everything had to be listed again.
    restarts: Arc<Notify>,
    listed_again: Mutex<Option<Instant>>,
    /// What people shall be told about objects.
    announcements: Mutex<Vec<Announcement>>,
}

/// What watches tell how they are, and how long they take.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) meters: Meters,
    pub(crate) ages: WatchAges,
    pub(crate) timing: Timing,
    /// How often it is asked whether versions went back.
    pub(crate) check_versions: Duration,
    /// What time it is.
    pub(crate) clock: Clock,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            meters: Meters::default(),
            ages: WatchAges::default(),
            timing: Timing::default(),
            check_versions: Duration::from_secs(60),
            clock: Clock::default(),
        }
    }
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
    pub(crate) fn start(client: &Client, kinds: Kinds, tools: Tools) -> Self {
        let stores = Arc::new(Stores::new(kinds, tools));
        let mut tasks = JoinSet::new();
        macro_rules! follow {
            ($($field:ident: $kind:ty),* $(,)?) => {$(
                tasks.spawn(Follower::<$kind>::new(client, &stores, Arc::clone(&stores.$field)).follow());
            )*};
        }
        macro_rules! follow_if_allowed {
            ($($field:ident: $kind:ty),* $(,)?) => {$(
                let follower = Follower::<$kind>::new(client, &stores, Arc::clone(&stores.$field));
                tasks.spawn(follower.optional().follow());
            )*};
        }
        follow! {
            pods: Pod, nodes: Node, daemon_sets: DaemonSet, pvcs: PersistentVolumeClaim, pvs: PersistentVolume,
            storage_classes: StorageClass, csi_nodes: CSINode, volume_attachments: VolumeAttachment,
            namespaces: Namespace, pdbs: PodDisruptionBudget, node_claims: NodeClaim, node_pools: NodePool,
        }
        let (kwok, ec2) = match kinds.node_classes {
            NodeClasses::Kwok => (true, false),
            NodeClasses::Ec2 => (false, true),
            NodeClasses::None => (false, false),
        };
        if ec2 {
            follow! {ec2_node_classes: EC2NodeClass}
        } else {
            lock(&stores.ec2_node_classes).synced = true;
        }
        if kwok {
            follow! {node_classes: KWOKNodeClass}
        } else {
            lock(&stores.node_classes).synced = true;
        }
        if kinds.overlays {
            follow! {overlays: NodeOverlay}
        } else {
            lock(&stores.overlays).synced = true;
        }
        if kinds.overprovisioners {
            follow! {overprovisioners: Overprovisioner}
            // Spares are made for the pods that workloads would have; who may not watch these provisions all the same.
            follow_if_allowed! {
                deployments: Deployment, stateful_sets: StatefulSet, jobs: Job, pod_templates: PodTemplate,
            }
        } else {
            lock(&stores.overprovisioners).synced = true;
            lock(&stores.deployments).synced = true;
            lock(&stores.stateful_sets).synced = true;
            lock(&stores.jobs).synced = true;
            lock(&stores.pod_templates).synced = true;
        }
        tasks.spawn(follow_versions(client.clone(), Arc::clone(&stores)));
        Self {
            stores,
            _tasks: tasks,
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.stores.tools.ages.forget(WHO);
    }
}

impl Stores {
    fn new(kinds: Kinds, tools: Tools) -> Self {
        Self {
            kinds,
            pods: Shared::default(),
            nodes: Shared::default(),
            node_claims: Shared::default(),
            node_pools: Shared::default(),
            overlays: Shared::default(),
            node_classes: Shared::default(),
            ec2_node_classes: Shared::default(),
            overprovisioners: Shared::default(),
            daemon_sets: Shared::default(),
            deployments: Shared::default(),
            stateful_sets: Shared::default(),
            jobs: Shared::default(),
            pod_templates: Shared::default(),
            pvcs: Shared::default(),
            pvs: Shared::default(),
            storage_classes: Shared::default(),
            csi_nodes: Shared::default(),
            volume_attachments: Shared::default(),
            namespaces: Shared::default(),
            pdbs: Shared::default(),
            pod_events: Mutex::default(),
            changed: Notify::new(),
            classes_changed: Notify::new(),
            tools,
            restarts: Arc::default(),
            listed_again: Mutex::default(),
            announcements: Mutex::default(),
        }
    }

    /// What time it is.
    pub(crate) fn clock(&self) -> &Clock {
        &self.tools.clock
    }

    /// The watches that do not work, so that what is known may be old.
    pub(crate) fn dead_watches(&self) -> Vec<DeadWatch> {
        self.tools.ages.dead(Some(WHO))
    }

    /// Lets every watch begin again with a list, unless that was just done.
    pub(super) fn list_all_again(&self) {
        let mut listed = self.listed_again.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if listed.is_none_or(|at| now.duration_since(at) > LISTING) {
            *listed = Some(now);
            // Nothing is decided from what may never have been.
            self.forget_lists();
            self.restarts.notify_waiters();
        }
    }

    fn forget_lists(&self) {
        fn forget<T>(store: &Shared<T>, is_watched: bool) {
            if is_watched {
                lock(store).synced = false;
            }
        }
        let kinds = self.kinds;
        forget(&self.pods, true);
        forget(&self.nodes, true);
        forget(&self.node_claims, true);
        forget(&self.node_pools, true);
        forget(&self.overlays, kinds.overlays);
        forget(&self.node_classes, kinds.node_classes == NodeClasses::Kwok);
        forget(&self.ec2_node_classes, kinds.node_classes == NodeClasses::Ec2);
        forget(&self.overprovisioners, kinds.overprovisioners);
        forget(&self.deployments, kinds.overprovisioners);
        forget(&self.stateful_sets, kinds.overprovisioners);
        forget(&self.jobs, kinds.overprovisioners);
        forget(&self.pod_templates, kinds.overprovisioners);
        forget(&self.daemon_sets, true);
        forget(&self.pvcs, true);
        forget(&self.pvs, true);
        forget(&self.storage_classes, true);
        forget(&self.csi_nodes, true);
        forget(&self.volume_attachments, true);
        forget(&self.namespaces, true);
        forget(&self.pdbs, true);
    }

    /// Waits until every kind was listed.
    pub(crate) async fn listed(&self) {
        while !self.synced() {
            self.changed().await;
        }
    }

    /// Changes when every watch shall begin again.
    pub(super) fn restarts(&self) -> Arc<Notify> {
        Arc::clone(&self.restarts)
    }

    pub(super) fn announce(&self, announcement: Announcement) {
        let mut announcements = self.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody takes them while another replica leads.
        if announcements.len() < MOST_ANNOUNCEMENTS {
            announcements.push(announcement);
        }
    }

    /// What people shall be told about objects since the last time this was asked.
    pub(super) fn take_announcements(&self) -> Vec<Announcement> {
        let mut announcements = self.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut announcements)
    }

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
            && lock(&self.deployments).synced
            && lock(&self.stateful_sets).synced
            && lock(&self.jobs).synced
            && lock(&self.pod_templates).synced
            && lock(&self.pvcs).synced
            && lock(&self.pvs).synced
            && lock(&self.storage_classes).synced
            && lock(&self.csi_nodes).synced
            && lock(&self.volume_attachments).synced
            && lock(&self.namespaces).synced
            && lock(&self.pdbs).synced
    }

    /// Everything as it is now, without what only the provider knows.
    pub(crate) fn snapshot(&self) -> Snapshot {
        fn all<T: Stored + Clone>(store: &Shared<T>) -> Vec<Arc<T>> {
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
            deployments: all(&self.deployments),
            stateful_sets: all(&self.stateful_sets),
            jobs: all(&self.jobs),
            pod_templates: all(&self.pod_templates),
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
            unseen_kinds: self.left_out(),
            ..Snapshot::default()
        }
    }

    /// The kinds that cannot be listed and are done without.
    fn left_out(&self) -> BTreeSet<&'static str> {
        let kinds = [
            ("Deployment", lock(&self.deployments).is_left_out()),
            ("StatefulSet", lock(&self.stateful_sets).is_left_out()),
            ("Job", lock(&self.jobs).is_left_out()),
            ("PodTemplate", lock(&self.pod_templates).is_left_out()),
        ];
        let left_out = kinds.into_iter().filter(|(_, is_left_out)| *is_left_out);
        left_out.map(|(kind, _)| kind).collect()
    }

    /// Notes that a pod came to a node, ended there or left it.
    pub(super) fn pod_moved(&self, before: Option<&str>, after: Option<&str>) {
        if before != after {
            let mut events = self.pod_events.lock().unwrap_or_else(PoisonError::into_inner);
            for node in before.into_iter().chain(after) {
                events.insert(node.to_owned(), self.clock().machine());
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
