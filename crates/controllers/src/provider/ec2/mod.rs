//! Instances of EC2: what `veneer_aws` does, in the words of [`Provider`], with the cluster's own facts.

mod classes;
mod interruptions;

pub(crate) use interruptions::follow as follow_interruptions;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use veneer_api::{CONDITION_READY, ConditionStatus, EC2NodeClass, NodeClaim, find_condition, labels};
use veneer_aws::{CLAIM_TAG, CLASS_HASH_VERSION, Cluster, Failure, Machine};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::lifecycle::Launched;
use veneer_engine::plan::{Instance, InstanceState, NodeClassHash, Shortage, is_deleting};
use veneer_engine::provision::LaunchOption;

use super::{LaunchError, Provider, TerminateError};
use crate::prices::{Changes, LiveCatalog, LivePrices};
use crate::standalone::{Stores, locked};

/// How often instances are listed: while something moves, and at rest.
const LIST: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// How often unused launch templates are looked for.
const TIDY: Duration = Duration::from_secs(600);
/// How often offerings and spot prices are asked for.
const MARKET: Duration = Duration::from_secs(300);
/// The pause after a failure that stands in the way of everything.
const AGAIN: Duration = Duration::from_secs(5);

/// Where instances are launched.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The region; by default that of the environment.
    pub region: Option<String>,
    /// The name of the cluster, which is in the tags of everything that is made.
    pub cluster_name: String,
    /// The address of the API server, as nodes reach it.
    pub cluster_endpoint: String,
    /// Its certificates, in base64.
    pub ca_bundle: Option<String>,
    /// The addresses of Services; by default as the cluster says.
    pub service_cidr: Option<String>,
    /// The queue with interruptions.
    pub interruption_queue: Option<String>,
    /// What stands for AWS in a simulation.
    pub outside: Option<veneer_aws::Outside>,
}

/// The provider.
#[derive(Debug)]
pub struct Ec2 {
    aws: Arc<veneer_aws::Ec2>,
    stores: Arc<Stores>,
    queue: Option<String>,
    version: String,
    cluster_name: String,
    /// The embedded catalogue.
    catalogue: Arc<Catalogue>,
    prices: Option<LivePrices>,
    /// The catalogue with what EC2 says of the market, until it is taken.
    fresh: Arc<Mutex<Option<Arc<Catalogue>>>>,
}

impl Ec2 {
    /// Finds out where we are, and lists what runs. Tries until it works: nothing may be decided before.
    pub(crate) async fn start(
        client: &Client,
        stores: &Arc<Stores>,
        catalogue: &Arc<Catalogue>,
        prices: Option<&LivePrices>,
        settings: &Settings,
    ) -> Self {
        let aws = loop {
            if let Some(outside) = &settings.outside {
                break veneer_aws::Client::within(outside);
            }
            match veneer_aws::Client::load(settings.region.as_deref()).await {
                Ok(aws) => break aws,
                Err(error) => warn!(%error, "cannot reach AWS; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let version = loop {
            match client.apiserver_version().await {
                Ok(version) => break format!("{}.{}", version.major, version.minor.trim_end_matches('+')),
                Err(error) => warn!(%error, "cannot ask for the version of Kubernetes; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let cluster = Cluster {
            name: settings.cluster_name.clone(),
            version: version.clone(),
            endpoint: settings.cluster_endpoint.clone(),
            ca_bundle: settings.ca_bundle.clone(),
            service_cidr: match &settings.service_cidr {
                Some(cidr) => Some(cidr.clone()),
                None => service_cidr(client).await,
            },
            dns: name_server(client).await,
        };
        let aws = veneer_aws::Ec2::new(aws, cluster, Arc::clone(catalogue));
        loop {
            match aws.refresh().await {
                Ok(instances) => {
                    info!(
                        instances,
                        region = aws.client.region(),
                        "listed the instances of the cluster"
                    );
                    break;
                }
                Err(error) => warn!(%error, "cannot list instances; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
        Self {
            aws: Arc::new(aws),
            stores: Arc::clone(stores),
            queue: settings.interruption_queue.clone(),
            version,
            cluster_name: settings.cluster_name.clone(),
            catalogue: Arc::clone(catalogue),
            prices: prices.cloned(),
            fresh: Arc::default(),
        }
    }

    /// What goes on beside the passes: lists, node classes, unused launch templates. Never ends.
    pub(crate) fn background(&self, client: &Client) -> impl Future<Output = ()> + Send + use<> {
        let aws = Arc::clone(&self.aws);
        let stores = Arc::clone(&self.stores);
        let lists = async move {
            let mut known = aws.machines();
            loop {
                let pause = if aws.is_moving() { LIST.0 } else { LIST.1 };
                tokio::time::sleep(pause).await;
                if let Err(error) = aws.refresh().await {
                    warn!(%error, "cannot list instances; what was known still counts");
                    continue;
                }
                let now = aws.machines();
                if now != known {
                    known = now;
                    stores.wake();
                }
            }
        };
        let aws = Arc::clone(&self.aws);
        let tidy = async move {
            loop {
                tokio::time::sleep(TIDY).await;
                match aws.tidy().await {
                    Ok(0) => {}
                    Ok(deleted) => info!(deleted, "deleted unused launch templates"),
                    Err(error) => warn!(%error, "cannot delete unused launch templates; trying again later"),
                }
            }
        };
        let market = watch_market(
            Arc::clone(&self.aws),
            Arc::clone(&self.stores),
            LiveCatalog::new(Arc::clone(&self.catalogue), self.prices.clone()),
            Changes::of(self.prices.as_ref()),
            Arc::clone(&self.fresh),
        );
        let site = veneer_aws::node_class::Site {
            cluster_name: self.cluster_name.clone(),
            kubernetes_version: self.version.clone(),
        };
        let classes = classes::control(
            client.clone(),
            Arc::clone(&self.stores),
            Arc::clone(&self.aws),
            site,
        );
        async move {
            tokio::join!(lists, tidy, market, classes);
        }
    }

    fn class_of(&self, claim: &NodeClaim) -> Result<Arc<EC2NodeClass>, LaunchError> {
        let wanted = &claim.spec.node_class_ref.name;
        let classes = locked(&self.stores.ec2_node_classes);
        let class = classes.get("", wanted).cloned().ok_or_else(|| {
            LaunchError::NodeClassNotReady(format!("there is no EC2NodeClass {wanted:?}; create it"))
        })?;
        let conditions = class.status.as_ref().map_or(&[][..], |status| &status.conditions);
        match find_condition(conditions, CONDITION_READY) {
            Some(ready) if ready.status == ConditionStatus::True => Ok(class),
            Some(ready) if ready.status == ConditionStatus::False => Err(LaunchError::NodeClassNotReady(
                format!("EC2NodeClass {wanted}: {}", ready.message),
            )),
            _ => Err(LaunchError::Other(format!(
                "EC2NodeClass {wanted} is being looked up"
            ))),
        }
    }
}

/// Keeps the catalogue up to date with the market and with today's prices; what cannot be asked stays as it was.
async fn watch_market(
    aws: Arc<veneer_aws::Ec2>,
    stores: Arc<Stores>,
    catalogue: LiveCatalog,
    mut collected: Changes,
    fresh: Arc<Mutex<Option<Arc<Catalogue>>>>,
) {
    let mut told = veneer_aws::Market::default();
    let mut ask_at = Instant::now();
    loop {
        if Instant::now() >= ask_at {
            match aws.market(stores.clock().machine()).await {
                Ok(market) => told = market,
                Err(error) => {
                    warn!(%error, "cannot ask for offerings and spot prices; what was known still counts");
                }
            }
            ask_at = Instant::now() + MARKET;
        }
        if let Some(catalogue) = catalogue.take_with(&told) {
            *fresh.lock().unwrap_or_else(PoisonError::into_inner) = Some(catalogue);
            stores.wake();
        }
        tokio::select! {
            () = sleep_until(ask_at) => {}
            () = collected.next() => {}
        }
    }
}

/// The addresses of Services, as the cluster itself says.
async fn service_cidr(client: &Client) -> Option<String> {
    let kind = kube::core::GroupVersionKind::gvk("networking.k8s.io", "v1", "ServiceCIDR");
    let found: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let found = found.get_opt("kubernetes").await.ok().flatten()?;
    let first = found.data.pointer("/spec/cidrs/0")?.as_str()?;
    Some(first.to_owned())
}

/// The address of the cluster's name server.
async fn name_server(client: &Client) -> Option<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let service = services.get_opt("kube-dns").await.ok().flatten()?;
    service.spec?.cluster_ip.filter(|address| address != "None")
}

impl From<Failure> for LaunchError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::InsufficientCapacity(shortages) => Self::InsufficientCapacity(shortages),
            Failure::NodeClassNotReady(why) => Self::NodeClassNotReady(why),
            Failure::Other(why) => Self::Other(why),
        }
    }
}

impl Provider for Ec2 {
    async fn launch(&self, claim: &NodeClaim, options: &[LaunchOption]) -> Result<Launched, LaunchError> {
        let class = self.class_of(claim)?;
        Ok(self.aws.launch(claim, &class, options).await?)
    }

    async fn terminate(&self, provider_id: &str) -> Result<(), TerminateError> {
        let ended = self.aws.terminate(provider_id).await;
        ended.map_err(|error| match error.remedy() {
            Some(remedy) => {
                let id = veneer_aws::instance_id(provider_id);
                TerminateError::NeedsAction(format!("instance {id} cannot be ended: {remedy}. {error}"))
            }
            None => TerminateError::Other(error.to_string()),
        })
    }

    async fn stop(&self, provider_id: &str, hibernate: bool) -> Result<(), String> {
        self.aws.stop(provider_id, hibernate).await
    }

    async fn start(&self, provider_id: &str) -> Result<(), LaunchError> {
        Ok(self.aws.start(provider_id).await?)
    }

    async fn change_type(&self, provider_id: &str, instance_type: &str) -> Result<(), String> {
        self.aws.change_type(provider_id, instance_type).await
    }

    fn instances(&self) -> Vec<Instance> {
        self.aws.machines().iter().map(instance).collect()
    }

    fn take_shortages(&self) -> Vec<Shortage> {
        self.aws.take_shortages()
    }

    fn take_catalogue(&self) -> Option<Arc<Catalogue>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn node_class_hashes(&self) -> Vec<NodeClassHash> {
        let classes = locked(&self.stores.ec2_node_classes);
        let hash = |class: &Arc<EC2NodeClass>| NodeClassHash {
            group: labels::aws::GROUP.to_owned(),
            kind: "EC2NodeClass".to_owned(),
            name: class.metadata.name.clone().unwrap_or_default(),
            key: labels::aws::NODE_CLASS_HASH.to_owned(),
            hash: self.aws.class_hash(class),
            version_key: labels::aws::NODE_CLASS_HASH_VERSION.to_owned(),
            version: CLASS_HASH_VERSION.to_owned(),
        };
        classes.objects().map(hash).collect()
    }

    fn drifted(&self) -> BTreeMap<String, &'static str> {
        let classes: Vec<Arc<EC2NodeClass>> = {
            let classes = locked(&self.stores.ec2_node_classes);
            classes.objects().cloned().collect()
        };
        self.aws.drifted(classes.iter().map(AsRef::as_ref))
    }

    fn resume(&self, _: &[Arc<NodeClaim>]) {
        // Instances boot without our help.
    }
}

fn instance(machine: &Machine) -> Instance {
    Instance {
        provider_id: veneer_aws::provider_id(machine),
        claim: machine.tags.get(CLAIM_TAG).cloned().unwrap_or_default(),
        launched: machine.launched,
        state: match machine.state.as_str() {
            "pending" => InstanceState::Pending,
            "stopping" => InstanceState::Stopping,
            "stopped" => InstanceState::Stopped,
            "shutting-down" => InstanceState::ShuttingDown,
            _ => InstanceState::Running,
        },
    }
}

/// A class, as far as pools depend on it.
pub(crate) fn node_class(class: &EC2NodeClass) -> veneer_engine::plan::NodeClass {
    let conditions = class.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let not_ready = match find_condition(conditions, CONDITION_READY) {
        Some(ready) if ready.status == ConditionStatus::True => None,
        Some(ready) => Some(ready.message.clone()),
        None => Some("its subnets, security groups and images are being looked up".to_owned()),
    };
    veneer_engine::plan::NodeClass {
        group: veneer_api::labels::aws::GROUP.to_owned(),
        kind: "EC2NodeClass".to_owned(),
        name: class.metadata.name.clone().unwrap_or_default(),
        not_ready,
        is_deleting: is_deleting(&class.metadata),
    }
}
