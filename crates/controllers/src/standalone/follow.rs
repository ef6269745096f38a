//! From what the API server says about one kind to its store.

use std::any::Any;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};
use veneer_api::NodePool;
use veneer_api::Pod;
use veneer_engine::plan::{Announcement, Subject, Target, is_daemon_pod, is_deleting, is_terminal};

use super::store::{Shared, Stored, lock};
use super::watch::{Stores, WHO};
use super::watched::Watched;
use crate::feed::{Feed, Heard, Trouble, number};
use crate::observe::chain;
use crate::supervise::restarted;

/// Follows one kind.
pub(super) struct Follower<T> {
    kind: String,
    api_version: String,
    feed: Feed,
    store: Shared<T>,
    stores: Arc<Stores>,
    is_optional: bool,
}

impl<T> Follower<T>
where
    T: Stored + Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    pub(super) fn new(client: &Client, stores: &Arc<Stores>, store: Shared<T>) -> Self {
        Self {
            kind: T::kind(&()).into_owned(),
            api_version: T::api_version(&()).into_owned(),
            feed: Feed {
                client: client.clone(),
                url: T::url_path(&(), None),
                timing: stores.tools.timing,
            },
            store,
            stores: Arc::clone(stores),
            is_optional: false,
        }
    }

    /// Does without the kind where it cannot be listed.
    pub(super) fn optional(mut self) -> Self {
        self.stores.tools.ages.set_optional(WHO, &self.kind);
        self.is_optional = true;
        self
    }

    /// Follows for ever; a panic begins it again.
    pub(super) async fn follow(self) {
        let panics = self.stores.tools.meters.clone();
        let task = format!("watch {}", self.kind);
        restarted(&task, &panics, || {
            self.feed.follow(self.stores.restarts(), |heard| self.take(heard))
        })
        .await;
    }

    fn take(&self, heard: Heard<Watched<T>>) {
        let ages = &self.stores.tools.ages;
        let mut is_alive = true;
        match heard {
            Heard::ListBegins => {
                lock(&self.store).list_begins();
                return;
            }
            Heard::Listed(object) => {
                let told = unreadable(&object);
                if lock(&self.store).listed(object) {
                    self.tell_unreadable(told);
                }
                return;
            }
            Heard::ListEnds(version) => {
                lock(&self.store).list_ends(version);
                // Whether it can be watched too is not known yet.
                is_alive = false;
            }
            Heard::Applied(object) => self.applied(object),
            Heard::Deleted(Watched::Unreadable(_)) if seeded!(MissesUnreadableDeletes) => return,
            Heard::Deleted(object) => {
                let before = lock(&self.store).deleted(object.metadata());
                self.stores.pod_moved(before.as_deref().and_then(occupied), None);
            }
            Heard::Alive => {
                if ages.works(WHO, &self.kind) {
                    info!(kind = self.kind, "watching again");
                    self.stores.wake();
                }
                return;
            }
            Heard::Regressed(from, to) => {
                self.stores.regressed(&self.kind, from, to);
                is_alive = false;
            }
            Heard::Failed(trouble) => {
                self.failed(&trouble);
                return;
            }
        }
        if is_alive && ages.works(WHO, &self.kind) {
            info!(kind = self.kind, "watching again");
        }
        let unreadable = lock(&self.store).unreadable();
        self.stores.tools.meters.unreadable(&self.kind, unreadable);
        self.stores.wake();
    }

    fn failed(&self, trouble: &Trouble) {
        let ages = &self.stores.tools.ages;
        let error = trouble.to_string();
        let is_news = ages.fails(WHO, &self.kind, &error);
        let is_forbidden = trouble.code() == Some(403);
        if is_news && self.is_optional && is_forbidden {
            warn!(
                kind = self.kind,
                %error,
                fix = format!(
                    "add this rule to the ClusterRole of the controller: apiGroups [{:?}], resources [{}], verbs [list, watch]",
                    T::group(&()),
                    T::plural(&())
                ),
                "cannot watch: spares are made without regard to what these would ask for; everything else goes on"
            );
        } else if is_news {
            warn!(kind = self.kind, %error, "cannot watch; trying again");
        }
        let is_done_without = self.is_optional && !seeded!(NeedsEveryRight);
        if is_done_without && (is_forbidden || ages.is_dead(WHO, &self.kind)) {
            lock(&self.store).leave_out();
            self.stores.wake();
        }
    }

    fn applied(&self, object: Watched<T>) {
        let after = match &object {
            Watched::Readable(object) => occupied(&**object).map(str::to_owned),
            Watched::Unreadable(_) => None,
        };
        let told = unreadable(&object);
        let (before, is_news) = lock(&self.store).applied(object);
        if is_news {
            self.tell_unreadable(told);
        } else if told.is_none() {
            self.stores
                .pod_moved(before.as_deref().and_then(occupied), after.as_deref());
        }
    }

    /// Tells everybody that an object does not fit its type.
    fn tell_unreadable(&self, object: Option<(ObjectMeta, String)>) {
        let Some((metadata, error)) = object else { return };
        let target = Target::from(&metadata);
        warn!(
            kind = self.kind,
            namespace = target.namespace,
            name = target.name,
            %error,
            "left out: the object does not fit its type; correct the field and apply it again"
        );
        self.stores.announce(Announcement {
            subject: Subject {
                api_version: known(&self.api_version),
                kind: known(&self.kind),
                target,
            },
            is_warning: true,
            reason: "Unreadable",
            message: format!(
                "{} is not used, since it does not fit its type: {error}",
                self.kind
            ),
        });
    }
}

/// The words of this process that a text is one of.
fn known(text: &str) -> &'static str {
    const WORDS: [&str; 30] = [
        "v1",
        "apps/v1",
        "batch/v1",
        "policy/v1",
        "storage.k8s.io/v1",
        "karpenter.sh/v1",
        "karpenter.sh/v1alpha1",
        "karpenter.sh/v1beta1",
        "karpenter.k8s.aws/v1",
        "karpenter.kwok.sh/v1alpha1",
        "Pod",
        "Node",
        "DaemonSet",
        "Deployment",
        "StatefulSet",
        "Job",
        "PodTemplate",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "VolumeAttachment",
        "Namespace",
        "PodDisruptionBudget",
        "NodeClaim",
        "NodePool",
        "NodeOverlay",
        "Overprovisioner",
        "KWOKNodeClass",
        "EC2NodeClass",
    ];
    let mut words = WORDS.into_iter();
    words.find(|word| *word == text).unwrap_or_default()
}

fn unreadable<T>(object: &Watched<T>) -> Option<(ObjectMeta, String)> {
    match object {
        Watched::Readable(_) => None,
        Watched::Unreadable(object) => Some((object.metadata.clone(), object.error.clone())),
    }
}

/// The node that a pod occupies.
fn occupied<T: Stored>(object: &T) -> Option<&str> {
    let pod = (object as &dyn Any).downcast_ref::<Pod>()?;
    let counts = !is_terminal(pod) && !is_deleting(&pod.metadata) && !is_daemon_pod(pod);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| counts && !node.is_empty())
}

impl Stores {
    /// Versions went back: etcd was restored, and everything that is known may never have been.
    fn regressed(&self, kind: &str, from: u64, to: u64) {
        self.tools.meters.regressed();
        warn!(
            kind,
            from,
            to,
            "resource versions went back: etcd was restored from a backup; listing everything again"
        );
        self.list_all_again();
    }
}

/// Asks now and then which version the cluster has: after a restore a watch may be silent for long, waiting for a version
/// that is far away.
pub(super) async fn follow_versions(client: Client, stores: Arc<Stores>) {
    let url = Api::<NodePool>::all(client.clone()).resource_url().to_owned();
    let mut newest = 0;
    loop {
        let began = Instant::now();
        sleep(stores.tools.check_versions).await;
        let Ok(request) = Request::new(&url).list_metadata(&ListParams::default().limit(1)) else {
            continue;
        };
        let found: Value = match client.request(request).await {
            Ok(found) => found,
            Err(error) => {
                debug!(error = %chain(&error), "cannot ask for the version of the cluster");
                continue;
            }
        };
        let version = found.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let now = number(version.unwrap_or_default());
        if now == 0 {
            continue;
        }
        if now < newest {
            debug!(took = ?began.elapsed(), "the version of the cluster went back");
            stores.regressed("NodePool", newest, now);
        }
        newest = now;
    }
}
