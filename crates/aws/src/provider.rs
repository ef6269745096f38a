//! The instances of a cluster: what is known about them, and how they stop, start and change.
//!
//! What is known comes from lists (one request for a thousand instances) and from our own launches, which lists may not
//! show yet. An instance that was asked to end counts until EC2 says that it has.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::launch::Launcher;
use veneer_engine::plan::Shortage;
use veneer_engine::requirements::Requirement;

use crate::client::Client;
use crate::ec2::{Machine, filter};
use crate::error::Error;
use crate::launch::Failure;
use crate::names;
use crate::template::Cluster;
use crate::terminate::Ending;

/// How long lists may leave out an instance that we launched.
const YOUNG: Duration = Duration::from_secs(300);
/// How long an earlier attempt's instance is waited for.
const APPEARS: Duration = Duration::from_secs(45);
/// An end that was asked for is not asked for again within this time.
pub(crate) const ASKED: Duration = Duration::from_secs(30);

/// EC2 for one cluster.
#[derive(Debug)]
pub struct Ec2 {
    /// The way to AWS.
    pub client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) by_name: ByName,
    launcher: Mutex<Launcher>,
    /// Launch templates that are known to be there, with their last use.
    pub(crate) templates: tokio::sync::Mutex<HashMap<String, Instant>>,
    memory: Mutex<Memory>,
    pub(crate) ending: Mutex<Vec<Ending>>,
}

/// Where the types of a name stand in the catalogue.
type ByName = HashMap<Arc<str>, Vec<usize>>;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    listed: BTreeMap<String, Machine>,
    /// Launched by us and not seen in a list yet.
    young: BTreeMap<String, (Machine, Instant)>,
    /// Asked to end, and when.
    pub(crate) ended: HashMap<String, Instant>,
    /// Refused to end, so that they are in nobody else's request.
    pub(crate) refused: HashSet<String>,
    shortages: Vec<Shortage>,
    addresses: HashMap<String, i64>,
}

/// The provider id that a kubelet on EC2 gives its node.
#[must_use]
pub fn provider_id(machine: &Machine) -> String {
    format!("aws:///{}/{}", machine.zone, machine.id)
}

/// The instance in a provider id.
#[must_use]
pub fn instance_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

impl Ec2 {
    /// For one cluster and the types that it may launch.
    #[must_use]
    pub fn new(client: Client, cluster: Cluster, catalogue: Arc<Catalogue>) -> Self {
        let mut by_name = ByName::new();
        for (entry, it) in catalogue.types.iter().enumerate() {
            by_name.entry(Arc::clone(&it.name)).or_default().push(entry);
        }
        let launcher = Launcher::new(catalogue.vocabulary.clone(), &catalogue.rules);
        Self {
            client,
            cluster,
            catalogue,
            by_name,
            launcher: Mutex::new(launcher),
            templates: tokio::sync::Mutex::default(),
            memory: Mutex::default(),
            ending: Mutex::default(),
        }
    }

    pub(crate) fn launcher(&self) -> MutexGuard<'_, Launcher> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists every instance of the cluster.
    pub async fn refresh(&self) -> Result<usize, Error> {
        let mine = vec![
            filter(&format!("tag:{}", names::CLUSTER_TAG), &[&self.cluster.name]),
            filter("tag-key", &[names::CLAIM_TAG]),
        ];
        let found = self.client.machines(mine).await?;
        let mut memory = self.memory();
        memory.listed = found.into_iter().map(|one| (one.id.clone(), one)).collect();
        let Memory {
            listed,
            young,
            ended,
            refused,
            ..
        } = &mut *memory;
        young.retain(|id, (_, since)| !listed.contains_key(id) && since.elapsed() < YOUNG);
        ended.retain(|id, asked| listed.contains_key(id) || asked.elapsed() < ASKED);
        refused.retain(|id| listed.contains_key(id) || young.contains_key(id));
        Ok(listed.len())
    }

    /// Every instance, as far as it is known now.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        let memory = self.memory();
        let young = memory
            .young
            .values()
            .filter(|(one, _)| !memory.ended.contains_key(&one.id));
        let mut all: Vec<Machine> = memory.listed.values().cloned().collect();
        all.extend(young.map(|(one, _)| one.clone()));
        all
    }

    /// Whether something is on its way, so that the next list should come soon.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        let memory = self.memory();
        let moves = |one: &Machine| matches!(one.state.as_str(), "pending" | "stopping" | "shutting-down");
        !memory.ended.is_empty() || !memory.young.is_empty() || memory.listed.values().any(moves)
    }

    /// What EC2 had none of since the last time this was asked.
    #[must_use]
    pub fn take_shortages(&self) -> Vec<Shortage> {
        std::mem::take(&mut self.memory().shortages)
    }

    /// Remembers that EC2 had none of something.
    pub fn note_shortages(&self, short: Vec<Shortage>) {
        self.memory().shortages.extend(short);
    }

    /// Remembers how many addresses subnets have left.
    pub fn set_free_addresses(&self, subnet: &str, free: i64) {
        self.memory().addresses.insert(subnet.to_owned(), free);
    }

    pub(crate) fn free_addresses(&self, subnet: &str) -> i64 {
        self.memory().addresses.get(subnet).copied().unwrap_or_default()
    }

    /// The instance that was launched for a claim, if one is known that is not ending.
    pub(crate) fn machine_of(&self, claim: &str) -> Option<Machine> {
        let memory = self.memory();
        let young = memory.young.values().map(|(one, _)| one);
        let mut all = memory.listed.values().chain(young);
        let found = all.find(|one| {
            one.tags.get(names::CLAIM_TAG).is_some_and(|of| of == claim)
                && !matches!(one.state.as_str(), "shutting-down" | "terminated")
                && !memory.ended.contains_key(&one.id)
        });
        found.cloned()
    }

    pub(crate) fn remember(&self, machine: Machine) {
        self.memory()
            .young
            .insert(machine.id.clone(), (machine, Instant::now()));
    }

    /// Waits for an instance that an earlier attempt may have made.
    pub(crate) async fn appears(&self, claim: &str) -> Result<Option<Machine>, Failure> {
        let began = Instant::now();
        loop {
            self.refresh().await?;
            if let Some(machine) = self.machine_of(claim) {
                return Ok(Some(machine));
            }
            if began.elapsed() > APPEARS {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    async fn look(&self, provider_id: &str) -> Result<Machine, String> {
        let id = instance_id(provider_id);
        let found = self.client.machines(vec![filter("instance-id", &[id])]).await;
        let found = found.map_err(|error| error.to_string())?.into_iter().next();
        found.ok_or_else(|| format!("instance {id} does not exist (any more)"))
    }

    /// Stops an instance, with its memory kept if `hibernate`. One that is stopping or stopped is fine.
    pub async fn stop(&self, provider_id: &str, hibernate: bool) -> Result<(), String> {
        let machine = self.look(provider_id).await?;
        let id = &machine.id;
        match machine.state.as_str() {
            "stopping" | "stopped" => return Ok(()),
            "running" => {}
            state => {
                return Err(format!(
                    "instance {id} is {state}; only a running one can be stopped"
                ));
            }
        }
        if machine.is_spot {
            return Err(format!(
                "instance {id} is a spot instance; only on-demand ones can be stopped and started again"
            ));
        }
        if hibernate && !machine.can_hibernate {
            return Err(format!(
                "instance {id} was not launched for hibernation; stop it without, or launch another"
            ));
        }
        let stopped = self.client.stop(id, hibernate).await;
        stopped.map_err(|error| error.to_string())?;
        self.moves(id, "stopping");
        Ok(())
    }

    /// Remembers that an instance is on its way, so that the next list comes soon.
    fn moves(&self, id: &str, state: &str) {
        if let Some(machine) = self.memory().listed.get_mut(id) {
            state.clone_into(&mut machine.state);
        }
    }

    /// Starts a stopped instance. One that is starting or running is fine.
    pub async fn start(&self, provider_id: &str) -> Result<(), Failure> {
        let machine = self.look(provider_id).await.map_err(Failure::Other)?;
        match machine.state.as_str() {
            "pending" | "running" => return Ok(()),
            "stopped" => {}
            state => {
                let id = &machine.id;
                return Err(Failure::Other(format!(
                    "instance {id} is {state}; only a stopped one can be started"
                )));
            }
        }
        let started = self.client.start(&machine.id).await;
        if started.is_ok() {
            self.moves(&machine.id, "pending");
        }
        started.map_err(|error| {
            if error.code() == "InsufficientInstanceCapacity" {
                return Failure::InsufficientCapacity(vec![Shortage {
                    instance_type: machine.instance_type.clone(),
                    capacity_type: veneer_engine::labels::ON_DEMAND.to_owned(),
                    zone: machine.zone.clone(),
                }]);
            }
            error.into()
        })
    }

    /// Makes a stopped instance one of another type.
    pub async fn change_type(&self, provider_id: &str, instance_type: &str) -> Result<(), String> {
        let machine = self.look(provider_id).await?;
        let id = &machine.id;
        if machine.instance_type == instance_type {
            return Ok(());
        }
        if machine.state != "stopped" {
            return Err(format!(
                "instance {id} is {}; only a stopped one can change its type",
                machine.state
            ));
        }
        if machine.is_hibernated {
            return Err(format!(
                "instance {id} is hibernated; its memory fits {} only",
                machine.instance_type
            ));
        }
        let (from, to) = (
            self.architecture(&machine.instance_type),
            self.architecture(instance_type),
        );
        if to.is_none() {
            return Err(format!("{instance_type} is no instance type of the catalogue"));
        }
        if from != to {
            return Err(format!(
                "instance {id} is {} ({}); its image does not boot on {instance_type} ({})",
                machine.instance_type,
                from.unwrap_or_default(),
                to.unwrap_or_default()
            ));
        }
        let changed = self.client.change_type(id, instance_type).await;
        changed.map_err(|error| error.to_string())
    }

    fn architecture(&self, instance_type: &str) -> Option<&str> {
        let entry = self.by_name.get(instance_type)?.first()?;
        let vocabulary = &self.catalogue.vocabulary;
        let arch = vocabulary.get(veneer_engine::labels::ARCH)?;
        let value = self.catalogue.types.get(*entry)?.requirements.get(arch);
        value
            .and_then(Requirement::single_value)
            .map(|value| vocabulary.text(value))
    }
}
