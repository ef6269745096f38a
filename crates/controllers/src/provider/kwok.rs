//! Instances that are Node objects and nothing else: kwok plays their kubelets.
//!
//! A claim's instance has the claim's name, so asking twice gives the same one. An instance counts as ended as soon as
//! that was asked for, also while its Node is still there to be drained. A stopped instance is remembered as the Node
//! that it will be again; where this process does not remember it, the claim says that its instance was stopped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use tracing::warn;
use veneer_api::labels::{karpenter, kubernetes, veneer};
use veneer_api::{CONDITION_READY, ConditionStatus, KWOKNodeClass, NodeClaim, find_condition};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::{
    Instance, InstanceState, Shortage, api_list, is_to_be_stopped, label, name, parse_duration, provider_id,
};
use veneer_engine::provision::LaunchOption;

use super::{LaunchError, Provider, TerminateError};
use crate::observe::chain;
use crate::prices::{LiveCatalog, LivePrices};
use crate::standalone::{SharedStore, Stores, locked};

const SCHEME: &str = "kwok://";
/// By this kwok knows the nodes that it shall play.
const FAKE: &str = "kwok.x-k8s.io/node";
/// The price, for tools that show it.
const PRICE: &str = "eks-node-viewer/instance-price";

/// What the provider pretends.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long a launch takes.
    pub launch_delay: Duration,
    /// How long a stopped instance takes to join again.
    pub start_delay: Duration,
    /// How long the end of an instance takes.
    pub terminate_delay: Duration,
    /// What cannot be had: `TYPE`, `TYPE:CAPACITY-TYPE` or `TYPE:CAPACITY-TYPE:ZONE`, with `*` for any.
    pub unavailable: Vec<String>,
}

/// The provider.
#[derive(Debug)]
pub struct Kwok {
    nodes: Api<Node>,
    seen: SharedStore<Node>,
    claims: SharedStore<NodeClaim>,
    classes: SharedStore<KWOKNodeClass>,
    catalogue: Arc<Catalogue>,
    live: LiveCatalog,
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Launched, with the Node still to come.
    booting: HashMap<String, Timestamp>,
    ended: BTreeSet<String>,
    /// Stopped, with when they were launched and the Node that joins when they start.
    stopped: HashMap<String, (Timestamp, Node)>,
}

fn locked_state(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kwok {
    pub(crate) fn new(
        client: &Client,
        stores: &Stores,
        catalogue: Arc<Catalogue>,
        prices: Option<LivePrices>,
        settings: Settings,
    ) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            seen: Arc::clone(&stores.nodes),
            claims: Arc::clone(&stores.node_claims),
            classes: Arc::clone(&stores.node_classes),
            live: LiveCatalog::new(Arc::clone(&catalogue), prices),
            catalogue,
            settings,
            state: Arc::default(),
        }
    }

    fn is_short(&self, instance_type: &str, capacity_type: &str, zone: &str) -> bool {
        self.settings.unavailable.iter().any(|pattern| {
            let mut parts = pattern.split(':');
            let mut agrees = |value: &str| parts.next().is_none_or(|part| part == "*" || part == value);
            agrees(instance_type) && agrees(capacity_type) && agrees(zone)
        })
    }

    /// How long the claim's nodes take to join, or why none can be launched.
    fn class_delay(&self, claim: &NodeClaim) -> Result<Duration, LaunchError> {
        let wanted = &claim.spec.node_class_ref.name;
        let classes = locked(&self.classes);
        let class = classes.get("", wanted).ok_or_else(|| {
            LaunchError::NodeClassNotReady(format!("there is no KWOKNodeClass {wanted:?}; create it"))
        })?;
        let conditions = class.status.as_ref().map_or(&[][..], |status| &status.conditions);
        if let Some(ready) =
            find_condition(conditions, CONDITION_READY).filter(|one| one.status == ConditionStatus::False)
        {
            return Err(LaunchError::NodeClassNotReady(ready.message.clone()));
        }
        let spec = class.spec.as_ref();
        let delay = spec.and_then(|spec| parse_duration(spec.node_registration_delay.as_deref()?));
        Ok(delay
            .and_then(|delay| Duration::try_from(delay).ok())
            .unwrap_or_default())
    }

    /// Makes the Node, now or after its delay.
    async fn join(&self, node: Node, delay: Duration) -> Result<Option<Node>, LaunchError> {
        if delay.is_zero() {
            return create(&self.nodes, &node)
                .await
                .map(Some)
                .map_err(LaunchError::Other);
        }
        self.boot(node, delay);
        Ok(None)
    }

    /// Makes the Node after a delay, and tries until it is there or the instance ends.
    fn boot(&self, node: Node, delay: Duration) {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        let id = id.unwrap_or_default();
        locked_state(&self.state)
            .booting
            .insert(id.clone(), Timestamp::now());
        let (nodes, state) = (self.nodes.clone(), Arc::clone(&self.state));
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            while !locked_state(&state).ended.contains(&id) {
                match create(&nodes, &node).await {
                    Ok(_) => break,
                    Err(error) => warn!(provider_id = id, %error, "cannot create the Node; trying again"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            locked_state(&state).booting.remove(&id);
        });
    }

    /// The Node that a claim's instance is, or will be again.
    fn remembered(&self, provider_id: &str) -> Option<(Timestamp, Node)> {
        let name = provider_id.strip_prefix(SCHEME)?;
        let seen = locked(&self.seen).get("", name).cloned();
        if let Some(node) = seen {
            return Some((created(&node.metadata), as_new(&node)));
        }
        let claim = locked(&self.claims).get("", name).cloned()?;
        Some((created(&claim.metadata), rejoining(&claim)?))
    }
}

fn created(metadata: &ObjectMeta) -> Timestamp {
    let created = metadata.creation_timestamp.as_ref();
    created.map_or_else(Timestamp::now, |time| time.0)
}

/// The Node of a claim that was launched by another process.
fn rejoining(claim: &NodeClaim) -> Option<Node> {
    let status = claim.status.as_ref()?;
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    node_of(claim, &labels, &status.capacity, &status.allocatable).ok()
}

/// Creates a Node, or finds the one that is there already.
async fn create(nodes: &Api<Node>, node: &Node) -> Result<Node, String> {
    match nodes.create(&PostParams::default(), node).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.code == 409 => nodes
            .get(name(&node.metadata))
            .await
            .map_err(|error| chain(&error)),
        Err(error) => Err(chain(&error)),
    }
}

fn node_of(
    claim: &NodeClaim,
    labels: &BTreeMap<String, String>,
    capacity: &veneer_api::ResourceList,
    allocatable: &veneer_api::ResourceList,
) -> Result<Node, String> {
    let claim_name = name(&claim.metadata);
    let mut all = labels.clone();
    // The capacity type of a spare says that it is one; how it was bought is kept beside it.
    let of_claim = label(&claim.metadata, karpenter::CAPACITY_TYPE);
    if let Some(bought) = labels.get(karpenter::CAPACITY_TYPE)
        && of_claim == Some(karpenter::CAPACITY_TYPE_OVERPROVISIONED)
    {
        all.entry(veneer::PURCHASE_OPTION.to_owned())
            .or_insert_with(|| bought.clone());
    }
    all.extend(claim.metadata.labels.clone().unwrap_or_default());
    for one in &claim.spec.requirements {
        if let ("In", [value]) = (one.operator.as_str(), one.values.as_slice()) {
            all.entry(one.key.clone()).or_insert_with(|| value.clone());
        }
    }
    all.insert(kubernetes::HOSTNAME.to_owned(), claim_name.to_owned());
    all.insert(FAKE.to_owned(), "fake".to_owned());
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(FAKE.to_owned(), "fake".to_owned());
    let node = json!({
        "metadata": {"name": claim_name, "labels": all, "annotations": annotations},
        "spec": {
            "providerID": format!("{SCHEME}{claim_name}"),
            "taints": [{"key": karpenter::UNREGISTERED_TAINT, "effect": "NoExecute"}],
        },
        "status": {"capacity": capacity, "allocatable": allocatable, "phase": "Pending"},
    });
    serde_json::from_value(node).map_err(|error| error.to_string())
}

/// A node as it joins for the first time.
fn as_new(node: &Node) -> Node {
    let mut new = node.clone();
    new.metadata = ObjectMeta {
        name: node.metadata.name.clone(),
        labels: node.metadata.labels.clone(),
        annotations: node.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let labels = new.metadata.labels.get_or_insert_default();
    labels.remove(karpenter::REGISTERED);
    labels.remove(karpenter::INITIALIZED);
    let spec = new.spec.get_or_insert_default();
    spec.unschedulable = None;
    spec.taints = Some(vec![Taint {
        key: karpenter::UNREGISTERED_TAINT.to_owned(),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    }]);
    new.status = node.status.as_ref().map(|status| NodeStatus {
        capacity: status.capacity.clone(),
        allocatable: status.allocatable.clone(),
        ..NodeStatus::default()
    });
    new
}

fn launched(node: &Node) -> Launched {
    let spec = node.spec.as_ref();
    let status = node.status.clone().unwrap_or_default();
    // What only the Node says about itself is none of the claim's business.
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    labels.remove(karpenter::REGISTERED);
    labels.remove(karpenter::INITIALIZED);
    if let Some(bought) = labels.get(veneer::PURCHASE_OPTION).cloned() {
        labels.insert(karpenter::CAPACITY_TYPE.to_owned(), bought);
    }
    Launched {
        provider_id: spec.and_then(|spec| spec.provider_id.clone()).unwrap_or_default(),
        labels,
        capacity: status.capacity.unwrap_or_default(),
        allocatable: status.allocatable.unwrap_or_default(),
        image_id: None,
        annotations: Default::default(),
    }
}

impl Provider for Kwok {
    async fn launch(&self, claim: &NodeClaim, options: &[LaunchOption]) -> Result<Launched, LaunchError> {
        let delay = self.class_delay(claim)?;
        // The instance of an earlier attempt is the instance, whatever would be chosen now.
        let existing = self.nodes.get_opt(name(&claim.metadata)).await;
        let existing = existing.map_err(|error| LaunchError::Other(chain(&error)))?;
        if let Some(node) = existing {
            return Ok(launched(&node));
        }
        tokio::time::sleep(self.settings.launch_delay).await;
        let Some(option) = options
            .iter()
            .find(|option| !self.is_short(&option.instance_type, &option.capacity_type, &option.zone))
        else {
            let shortages = options.iter().map(|option| Shortage {
                instance_type: option.instance_type.clone(),
                capacity_type: option.capacity_type.clone(),
                zone: option.zone.clone(),
            });
            return Err(LaunchError::InsufficientCapacity(shortages.collect()));
        };
        let mut labels = BTreeMap::clone(&option.labels);
        labels.insert(PRICE.to_owned(), format!("{:.6}", option.list_price));
        let node =
            node_of(claim, &labels, &option.capacity, &option.allocatable).map_err(LaunchError::Other)?;
        let made = self.join(node.clone(), delay).await?;
        Ok(launched(&made.unwrap_or(node)))
    }

    async fn terminate(&self, provider_id: &str) -> Result<(), TerminateError> {
        tokio::time::sleep(self.settings.terminate_delay).await;
        {
            let mut state = locked_state(&self.state);
            state.ended.insert(provider_id.to_owned());
            state.stopped.remove(provider_id);
        }
        let node = provider_id.strip_prefix(SCHEME).unwrap_or(provider_id);
        match self.nodes.delete(node, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(TerminateError::Other(chain(&error))),
        }
    }

    async fn stop(&self, provider_id: &str, _hibernate: bool) -> Result<(), String> {
        let Some(remembered) = self.remembered(provider_id) else {
            return Ok(());
        };
        let mut state = locked_state(&self.state);
        if !state.ended.contains(provider_id) {
            state.stopped.entry(provider_id.to_owned()).or_insert(remembered);
        }
        Ok(())
    }

    async fn start(&self, provider_id: &str) -> Result<(), LaunchError> {
        let stopped = locked_state(&self.state).stopped.get(provider_id).cloned();
        let Some((_, node)) = stopped else { return Ok(()) };
        let label = |key: &str| label(&node.metadata, key).unwrap_or_default();
        let shortage = Shortage {
            instance_type: label(kubernetes::INSTANCE_TYPE).to_owned(),
            capacity_type: match label(veneer::PURCHASE_OPTION) {
                "" => label(karpenter::CAPACITY_TYPE).to_owned(),
                bought => bought.to_owned(),
            },
            zone: label(kubernetes::ZONE).to_owned(),
        };
        if self.is_short(&shortage.instance_type, &shortage.capacity_type, &shortage.zone) {
            return Err(LaunchError::InsufficientCapacity(vec![shortage]));
        }
        self.join(node, self.settings.start_delay).await?;
        locked_state(&self.state).stopped.remove(provider_id);
        Ok(())
    }

    async fn change_type(&self, provider_id: &str, instance_type: &str) -> Result<(), String> {
        let known = self
            .catalogue
            .types
            .iter()
            .find(|one| &*one.name == instance_type);
        let known = known.ok_or_else(|| format!("there is no instance type {instance_type:?}"))?;
        let mut state = locked_state(&self.state);
        let (_, node) = state
            .stopped
            .get_mut(provider_id)
            .ok_or_else(|| format!("instance {provider_id} is not stopped, so its type cannot be changed"))?;
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(kubernetes::INSTANCE_TYPE.to_owned(), instance_type.to_owned());
        let status = node.status.get_or_insert_default();
        status.capacity = Some(api_list(&known.capacity));
        status.allocatable = Some(api_list(&known.allocatable()));
        Ok(())
    }

    fn instances(&self) -> Vec<Instance> {
        let seen = locked(&self.seen);
        let claims = locked(&self.claims);
        let mut state = locked_state(&self.state);
        let mut instances = Vec::new();
        let mut present: BTreeSet<&str> = BTreeSet::new();
        for node in seen.objects() {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            let Some((id, claim)) = id.and_then(|id| Some((id, id.strip_prefix(SCHEME)?))) else {
                continue;
            };
            present.insert(id);
            if !state.ended.contains(id) && !state.stopped.contains_key(id) {
                instances.push(Instance {
                    provider_id: id.to_owned(),
                    claim: claim.to_owned(),
                    launched: created(&node.metadata),
                    state: InstanceState::Running,
                });
            }
        }
        let State {
            booting,
            ended,
            stopped,
        } = &mut *state;
        // A process before this one stopped them, and their Nodes have left.
        for claim in claims.objects().filter(|claim| is_to_be_stopped(claim)) {
            if let Some(id) = provider_id(claim).filter(|id| !present.contains(id) && !ended.contains(*id))
                && !stopped.contains_key(id)
                && let Some(node) = rejoining(claim)
            {
                stopped.insert(id.to_owned(), (created(&claim.metadata), node));
            }
        }
        for (id, (launched, _)) in stopped.iter() {
            instances.push(Instance {
                provider_id: id.clone(),
                claim: id.strip_prefix(SCHEME).unwrap_or_default().to_owned(),
                launched: *launched,
                state: InstanceState::Stopped,
            });
        }
        for (id, since) in booting.iter() {
            if !present.contains(id.as_str()) && !ended.contains(id) && !stopped.contains_key(id) {
                instances.push(Instance {
                    provider_id: id.clone(),
                    claim: id.strip_prefix(SCHEME).unwrap_or_default().to_owned(),
                    launched: *since,
                    state: InstanceState::Pending,
                });
            }
        }
        ended.retain(|id| present.contains(id.as_str()) || booting.contains_key(id));
        instances
    }

    fn take_catalogue(&self) -> Option<Arc<Catalogue>> {
        self.live.take()
    }

    fn resume(&self, claims: &[Arc<NodeClaim>]) {
        for claim in claims {
            if let Some(node) = rejoining(claim).filter(|_| !is_to_be_stopped(claim)) {
                self.boot(node, Duration::ZERO);
            }
        }
    }
}
