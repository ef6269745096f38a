//! Carries plans out, and takes what the API server answers into the stores.
//!
//! A write names the version it was decided for; when somebody else was faster the object is read again and the next
//! pass decides anew. An action that fails is left alone for a while that grows with every failure. Launches and ends
//! of instances take long, so they run beside the passes, each at most once at a time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use veneer_api::{NodeClaim, NodePool, Overprovisioner};
use veneer_engine::plan::{Action, ActionId, Announcement, NodeChange, Shortage, Target, name, node_pool_of};

use super::events::Events;
use super::metrics::Meters;
use super::patches::{merge, metadata_patch, uid_only, version};
use super::setbacks::Setbacks;
use super::store::{Shared, Stored, lock};
use super::watch::Stores;
use crate::act::FIELD_MANAGER;
use crate::lease::Fence;
use crate::observe::chain;
use crate::provider::Provider;
use crate::supervise::caught;

/// How many requests are under way at once.
const CONCURRENCY: usize = 32;
/// How long an offering counts as not available after the provider had none of it.
pub(super) const SHORTAGE: Duration = Duration::from_secs(180);

/// When an action that has to wait is tried again, unless something else is decided before.
const NOT_YET: Duration = Duration::from_secs(1);
/// When the end of an instance is asked for again: until then lists of the provider may not show that it was.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// What is known about actions beside the objects.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Launches and ends that are under way.
    running: HashSet<ActionId>,
    setbacks: Setbacks<ActionId>,
    pub(super) shortages: BTreeMap<Shortage, Instant>,
}

/// Writes to one cluster and asks one provider.
pub(crate) struct Executor<P> {
    pub(super) claims: Api<NodeClaim>,
    pools: Api<NodePool>,
    overprovisioners: Api<Overprovisioner>,
    nodes: Api<Node>,
    pub(super) client: Client,
    pub(crate) stores: Arc<Stores>,
    pub(crate) provider: P,
    pub(super) events: Events,
    meters: Meters,
    memory: Mutex<Memory>,
    /// Closed when another replica may act.
    fence: Fence,
}

/// Why an action has not been carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Somebody else was faster; the newest state was read.
    #[error("another writer was faster")]
    Outrun,
    /// It has to wait for something that is under way.
    #[error("not yet")]
    NotYet,
    /// It was asked for, and only the provider's next list shows what came of it.
    #[error("under way")]
    UnderWay,
    /// What is known of the cluster may be old.
    #[error("a watch does not work")]
    Held,
    #[error("{0}")]
    Refused(String),
    /// A person has to do something first.
    #[error("{0}")]
    NeedsAction(String),
}

impl<P: Provider> Executor<P> {
    pub(crate) fn new(client: &Client, stores: Arc<Stores>, provider: P, meters: Meters) -> Self {
        Self {
            claims: Api::all(client.clone()),
            pools: Api::all(client.clone()),
            overprovisioners: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            events: Events::new(client, stores.clock()),
            client: client.clone(),
            stores,
            provider,
            meters,
            memory: Mutex::default(),
            fence: Fence::default(),
        }
    }

    /// Acts only as long as `fence` is open.
    pub(crate) fn behind(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the provider had none of lately.
    pub(crate) fn shortages(&self) -> Vec<Shortage> {
        let more = self.provider.take_shortages();
        let mut memory = self.memory();
        let now = Instant::now();
        let until = now + SHORTAGE;
        memory.shortages.extend(more.into_iter().map(|one| (one, until)));
        memory.shortages.retain(|_, until| *until > now);
        memory.shortages.keys().cloned().collect()
    }

    /// The claims whose launch is under way.
    pub(crate) fn launching(&self) -> BTreeSet<String> {
        let memory = self.memory();
        let running = memory.running.iter();
        running
            .filter_map(|key| key.launched_claim().map(str::to_owned))
            .collect()
    }

    /// Carries out what can be done now.
    pub(crate) async fn run(self: &Arc<Self>, actions: Vec<Action>) {
        if !self.fence.is_open() {
            warn!(
                actions = actions.len(),
                "not acting: the Lease was not renewed in time"
            );
            return;
        }
        for announcement in self.stores.take_announcements() {
            self.tell(announcement);
        }
        let due: Vec<(ActionId, Action)> = {
            let mut memory = self.memory();
            let now = Instant::now();
            memory.setbacks.forget_old(now);
            let actions = actions.into_iter().map(|action| (action.id(), action));
            actions
                .filter(|(key, _)| memory.setbacks.is_due(key, now))
                .collect()
        };
        futures::stream::iter(due)
            .for_each_concurrent(CONCURRENCY, |(key, action)| async move {
                match action {
                    Action::Launch { claim, options } => {
                        self.beside(
                            key,
                            move |this| async move { this.launch(&claim, &options).await },
                        );
                    }
                    Action::Terminate { provider_id } => {
                        self.beside(key, move |this| async move { this.terminate(&provider_id).await });
                    }
                    Action::Stop {
                        provider_id,
                        hibernate,
                    } => self.beside(key, move |this| async move {
                        this.check_watches()?;
                        let stopped = this.provider.stop(&provider_id, hibernate).await;
                        stopped.map_err(Failure::Refused)
                    }),
                    Action::Start { provider_id } => {
                        self.beside(key, move |this| async move { this.start(&provider_id).await });
                    }
                    Action::ChangeType {
                        provider_id,
                        instance_type,
                    } => self.beside(key, move |this| async move {
                        this.change_type(&provider_id, &instance_type).await
                    }),
                    Action::Announce(announcement) => self.tell(announcement),
                    action => {
                        let result = self.act(action).await;
                        self.note(key, result);
                    }
                }
            })
            .await;
    }

    /// Nobody waits for what people are told.
    fn tell(self: &Arc<Self>, announcement: Announcement) {
        let this = Arc::clone(self);
        tokio::spawn(async move { this.events.write(&announcement).await });
    }

    /// Remembers how an action went.
    fn note(&self, key: ActionId, result: Result<(), Failure>) {
        let mut memory = self.memory();
        let now = Instant::now();
        match result {
            Ok(()) => memory.setbacks.succeeded(&key),
            Err(why @ (Failure::NotYet | Failure::UnderWay)) => {
                debug!(action = %key, %why, "decided again");
                let pause = if matches!(why, Failure::NotYet) {
                    NOT_YET
                } else {
                    UNDER_WAY
                };
                memory.setbacks.rest(&key, now + pause);
            }
            Err(Failure::Held) => debug!(action = %key, "held back: a watch does not work"),
            Err(Failure::Outrun) => {
                self.meters.conflict();
                match memory.setbacks.conflicted(&key, now) {
                    None => debug!(action = %key, "decided again"),
                    Some(delay) => {
                        warn!(action = %key, retry_in = ?delay, "another writer was faster, again");
                    }
                }
            }
            Err(Failure::Refused(_) | Failure::NeedsAction(_)) => {
                let needs_action = matches!(result, Err(Failure::NeedsAction(_)));
                let delay = memory.setbacks.failed(&key, needs_action, now);
                if let Err(error) = &result {
                    warn!(action = %key, %error, retry_in = ?delay, "failed");
                }
                self.meters.failed();
            }
        }
    }

    /// Starts something that takes long, unless it is under way already.
    fn beside<F>(self: &Arc<Self>, key: ActionId, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if !self.memory().running.insert(key.clone()) {
            return;
        }
        let work = work(Arc::clone(self));
        let this = Arc::clone(self);
        tokio::spawn(async move {
            // What panics is tried again like what fails; nobody would ever start it otherwise.
            let result = caught(&key.to_string(), &this.meters, work).await;
            let result = result.unwrap_or_else(|why| Err(Failure::Refused(why)));
            if !(seeded!(LaunchNeverExpires) && result.is_err()) {
                this.memory().running.remove(&key);
            }
            // The watch that works again wakes everybody; until then it would be decided again and again.
            let is_held = matches!(result, Err(Failure::Held));
            this.note(key, result);
            if !is_held {
                this.stores.wake();
            }
        });
    }

    pub(crate) async fn act(&self, action: Action) -> Result<(), Failure> {
        match action {
            Action::CreateClaim(claim) => self.create_claim(*claim).await,
            Action::PatchClaim {
                target,
                labels,
                annotations,
                finalizers,
            } => {
                let is_end = finalizers.as_ref().is_some_and(Vec::is_empty);
                // An instance that is being launched needs its claim.
                if is_end && self.memory().running.contains(&ActionId::launch(&target.name)) {
                    return Err(Failure::NotYet);
                }
                let known = lock(&self.stores.node_claims).get("", &target.name).cloned();
                let patch = metadata_patch(&target, &labels, &annotations, finalizers.as_ref(), json!({}));
                self.patch(&self.claims, &self.stores.node_claims, &target, patch, false)
                    .await?;
                if let Some(known) = known.filter(|_| is_end) {
                    let pool = node_pool_of(&known.metadata);
                    self.meters.claim_terminated(pool);
                    info!(node_claim = target.name, node_pool = pool, "NodeClaim gone");
                }
                Ok(())
            }
            Action::ClaimStatus { target, status } => {
                let patch = json!({"metadata": version(&target), "status": status});
                self.patch(&self.claims, &self.stores.node_claims, &target, patch, true)
                    .await
            }
            Action::DeleteClaim { target, reason } => {
                self.check_disruption(reason)?;
                let known = lock(&self.stores.node_claims).get("", &target.name).cloned();
                self.delete(&self.claims, &self.stores.node_claims, &target)
                    .await?;
                let pool = known
                    .as_deref()
                    .map(|claim| node_pool_of(&claim.metadata))
                    .unwrap_or_default();
                info!(
                    node_claim = target.name,
                    node_pool = pool,
                    reason,
                    "deleting NodeClaim"
                );
                self.meters.claim_disrupted(pool, reason);
                Ok(())
            }
            Action::PatchNode { target, change } => self.patch_node(target, change).await,
            Action::DeleteNode { target } => self.delete(&self.nodes, &self.stores.nodes, &target).await,
            Action::Nominate { pod, node } => self.nominate(&pod, node.as_deref()).await,
            Action::Evict { pod } => self.evict(&pod).await,
            Action::DeletePod { pod, grace_seconds } => {
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
                let params = DeleteParams {
                    grace_period_seconds: u32::try_from(grace_seconds).ok(),
                    ..uid_only(&pod)
                };
                let deleted = pods.delete(&pod.name, &params).await;
                deleted.map(|_| ()).or_else(|error| self.is_gone(&pod, &error))
            }
            Action::PoolStatus { target, status } => {
                let patch = json!({"metadata": version(&target), "status": status});
                self.patch(&self.pools, &self.stores.node_pools, &target, patch, true)
                    .await
            }
            Action::OverprovisionerStatus { target, status } => {
                let mut status = serde_json::to_value(&status).unwrap_or_default();
                // What is not there any more has to be named, or a merge would leave it.
                if let Some(fields) = status.as_object_mut() {
                    for field in ["activeOverride", "nextOverride", "nodePools"] {
                        fields.entry(field).or_insert(Value::Null);
                    }
                }
                let patch = json!({"metadata": version(&target), "status": status});
                let store = &self.stores.overprovisioners;
                self.patch(&self.overprovisioners, store, &target, patch, true)
                    .await
            }
            Action::AnnotatePool { target, annotations } => {
                let patch = metadata_patch(&target, &BTreeMap::new(), &annotations, None, json!({}));
                self.patch(&self.pools, &self.stores.node_pools, &target, patch, false)
                    .await
            }
            Action::Announce(announcement) => {
                self.events.write(&announcement).await;
                Ok(())
            }
            Action::Launch { .. }
            | Action::Terminate { .. }
            | Action::Stop { .. }
            | Action::Start { .. }
            | Action::ChangeType { .. } => Ok(()),
        }
    }

    async fn create_claim(&self, claim: NodeClaim) -> Result<(), Failure> {
        let pool = node_pool_of(&claim.metadata).to_owned();
        let created = match self.claims.create(&PostParams::default(), &claim).await {
            Ok(created) => created,
            // The answer to an earlier attempt was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = self.claims.get(name(&claim.metadata)).await;
                found.map_err(|error| Failure::Refused(chain(&error)))?
            }
            Err(error) => return Err(Failure::Refused(chain(&error))),
        };
        info!(
            node_claim = name(&claim.metadata),
            node_pool = pool,
            "created NodeClaim"
        );
        self.meters.claim_created(&pool);
        lock(&self.stores.node_claims).written(created);
        Ok(())
    }

    async fn patch_node(&self, target: Target, change: NodeChange) -> Result<(), Failure> {
        let is_end = change.finalizers.as_ref().is_some_and(Vec::is_empty);
        let is_start = change.labels.contains_key("karpenter.sh/registered");
        let pool = lock(&self.stores.nodes)
            .get("", &target.name)
            .map(|node| node_pool_of(&node.metadata).to_owned());
        let mut rest = json!({});
        if let Some(taints) = &change.taints {
            rest = json!({"spec": {"taints": taints}});
        }
        let mut patch = metadata_patch(
            &target,
            &change.labels,
            &change.annotations,
            change.finalizers.as_ref(),
            rest,
        );
        if let (Some(owners), Some(metadata)) = (&change.owner_references, patch.get_mut("metadata")) {
            merge(metadata, &json!({"ownerReferences": owners}));
        }
        self.patch(&self.nodes, &self.stores.nodes, &target, patch, false)
            .await?;
        let pool = pool.unwrap_or_default();
        if is_end {
            self.meters.node_terminated(&pool);
        } else if is_start {
            info!(node = target.name, node_pool = pool, "registered");
            self.meters.node_created(&pool);
        }
        Ok(())
    }

    /// What comes of it the watch will say; the answer is not read, since nominations are many.
    async fn nominate(&self, pod: &Target, node: Option<&str>) -> Result<(), Failure> {
        let path = Pod::url_path(&(), Some(&pod.namespace));
        let metadata = match node {
            Some(_) => json!({"uid": pod.uid}),
            // Only the nomination that was seen: the scheduler may have made one of its own since.
            None => json!({"uid": pod.uid, "resourceVersion": pod.resource_version}),
        };
        let patch = json!({"metadata": metadata, "status": {"nominatedNodeName": node}});
        let params = PatchParams::apply(FIELD_MANAGER);
        let request = kube::core::Request::new(path).patch_subresource(
            "status",
            &pod.name,
            &params,
            &Patch::Merge(patch),
        );
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        match self.client.request::<IgnoredAny>(request).await {
            // A pod that is on a node already is nominated no more, and one that has changed is looked at again.
            Err(kube::Error::Api(status)) if status.code == 422 || (status.code == 409 && node.is_none()) => {
                Ok(())
            }
            Err(error) => gone_is_fine(&error),
            Ok(_) => Ok(()),
        }
    }

    async fn evict(&self, pod: &Target) -> Result<(), Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        // Written here: kube's own request names the options `delete_options`, which an API server does not read, and so
        // another pod of the same name would go.
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}}});
        let params = PostParams::default();
        let evicted = pods.create_subresource::<Value, Value>("eviction", &pod.name, &params, &eviction);
        match evicted.await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => Err(Failure::Refused(format!(
                "a PodDisruptionBudget does not allow it now: {}",
                status.message
            ))),
            Err(error) => self.is_gone(pod, &error),
        }
    }

    /// Takes in that a pod is gone, if that is why a request failed: the watch may be late, and would have it asked for again.
    fn is_gone(&self, pod: &Target, error: &kube::Error) -> Result<(), Failure> {
        gone_is_fine(error)?;
        lock(&self.stores.pods).lost(&pod.namespace, &pod.name, &pod.uid);
        Ok(())
    }

    async fn patch<T>(
        &self,
        api: &Api<T>,
        store: &Shared<T>,
        target: &Target,
        patch: Value,
        is_status: bool,
    ) -> Result<(), Failure>
    where
        T: Stored + Resource + Clone + Debug + DeserializeOwned + Serialize,
    {
        let params = PatchParams::apply(FIELD_MANAGER);
        let patch = Patch::Merge(patch);
        let written = if is_status {
            api.patch_status(&target.name, &params, &patch).await
        } else {
            api.patch(&target.name, &params, &patch).await
        };
        match written {
            Ok(object) => {
                lock(store).written(object);
                Ok(())
            }
            Err(error) => self.look_again(api, store, target, error).await,
        }
    }

    async fn delete<T>(&self, api: &Api<T>, store: &Shared<T>, target: &Target) -> Result<(), Failure>
    where
        T: Stored + Resource + Clone + Debug + DeserializeOwned + Serialize,
    {
        match api.delete(&target.name, &uid_only(target)).await {
            Ok(deleted) => {
                match deleted.left() {
                    Some(object) => lock(store).written(object),
                    None => lock(store).lost(&target.namespace, &target.name, &target.uid),
                }
                Ok(())
            }
            Err(error) => self.look_again(api, store, target, error).await,
        }
    }

    /// What a refused write means: the object is gone, or another one, or newer; or something is wrong.
    async fn look_again<T>(
        &self,
        api: &Api<T>,
        store: &Shared<T>,
        target: &Target,
        error: kube::Error,
    ) -> Result<(), Failure>
    where
        T: Stored + Resource + Clone + Debug + DeserializeOwned,
    {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                lock(store).lost(&target.namespace, &target.name, &target.uid);
                Ok(())
            }
            kube::Error::Api(status) if status.code == 409 && seeded!(ConflictNotRead) => {
                self.stores.wake();
                Ok(())
            }
            kube::Error::Api(status) if status.code == 409 => {
                match api.get_opt(&target.name).await {
                    Ok(Some(object)) if object.meta().uid.as_deref() == Some(&target.uid) => {
                        lock(store).read_again(object, &target.resource_version);
                    }
                    Ok(_) => lock(store).lost(&target.namespace, &target.name, &target.uid),
                    Err(error) => return Err(Failure::Refused(chain(&error))),
                }
                self.stores.wake();
                Err(Failure::Outrun)
            }
            error => Err(Failure::Refused(chain(&error))),
        }
    }
}

fn gone_is_fine(error: &kube::Error) -> Result<(), Failure> {
    match error {
        // A conflict means that another pod has the name now.
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
        error => Err(Failure::Refused(chain(error))),
    }
}
