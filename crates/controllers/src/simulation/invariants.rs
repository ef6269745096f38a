//! What must hold: while things go wrong, and once everybody behaves again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::api_server::{is_deleting, text};
use super::events::is_unreadable;
use super::{Inner, Sim};
use crate::standalone::{SharedStore, locked};

/// For how long the objects may contradict what was done before them, after a restore.
const CONFUSED: Duration = Duration::from_secs(20);

impl Sim {
    /// An instance is to end: nobody may live on it who was not asked to leave.
    pub(super) fn check_end(&self, form: &BTreeMap<String, String>) {
        let at = self.elapsed();
        let wrong = self.with(|inner| {
            if inner.tampered.is_some_and(|when| at < when + CONFUSED) {
                return None;
            }
            let ids = (1..).map_while(|number| form.get(&format!("InstanceId.{number}")));
            let ending: Vec<&String> = ids
                .filter(|id| {
                    inner
                        .cloud
                        .instances
                        .get(*id)
                        .is_some_and(|one| one.is_up() && !one.is_protected)
                })
                .collect();
            let nodes = inner.api.all("nodes");
            let nodes = nodes.iter().filter(|node| {
                let id = text(node, "/spec/providerID")
                    .rsplit('/')
                    .next()
                    .unwrap_or_default();
                ending.iter().any(|ending| *ending == id)
            });
            for node in nodes {
                let name = text(node, "/metadata/name");
                let pods = inner.api.all("pods");
                let mut left = pods
                    .iter()
                    .filter(|pod| text(pod, "/spec/nodeName") == name && !is_deleting(pod));
                if let Some(pod) = left.next() {
                    let pod = text(pod, "/metadata/name");
                    return Some(format!("{name} is ended with {pod} on it, which was not evicted"));
                }
            }
            None
        });
        if let Some(wrong) = wrong {
            self.violate(wrong);
        }
    }
}

impl Inner {
    /// What is not as it should be in a calm cluster.
    pub(super) fn unsettled(&self) -> Result<(), String> {
        let claims = self.api.all("nodeclaims");
        let nodes = self.api.all("nodes");
        let is_kept = |id: &str| {
            let id = id.rsplit('/').next().unwrap_or_default();
            self.cloud.instances.get(id).is_some_and(|one| one.is_protected)
        };
        for (app, workload) in &self.workloads {
            let pods = self.api.all("pods");
            let running = pods.iter().filter(|pod| {
                text(pod, "/metadata/labels/app") == app
                    && !is_deleting(pod)
                    && !text(pod, "/spec/nodeName").is_empty()
            });
            let running = running.count();
            if running != workload.replicas {
                return Err(format!("{running} of {} pods of {app} run", workload.replicas));
            }
        }
        let mut of_claims = BTreeSet::new();
        for claim in &claims {
            let (name, id) = (text(claim, "/metadata/name"), text(claim, "/status/providerID"));
            let uid = text(claim, "/metadata/uid");
            of_claims.insert(id.to_owned());
            // A claim whose instance nobody could write down ends with it all the same.
            let mut instances = self.cloud.instances.values();
            let is_held = instances.any(|one| one.claim == name && one.is_protected && one.is_up());
            if is_kept(id) || is_held {
                continue;
            }
            if is_deleting(claim) {
                return Err(format!("NodeClaim {name} ({uid}) does not go"));
            }
            if !self.cloud.is_running(id) {
                return Err(format!("NodeClaim {name} has no instance (provider id {id:?})"));
            }
        }
        for instance in self
            .cloud
            .instances
            .values()
            .filter(|one| one.is_up() && !one.is_protected)
        {
            let id = instance.provider_id();
            if !of_claims.contains(&id) {
                return Err(format!("instance {id} of {} has no NodeClaim", instance.claim));
            }
            if !nodes.iter().any(|node| text(node, "/spec/providerID") == id) {
                return Err(format!("instance {id} has no Node"));
            }
        }
        for node in &nodes {
            let id = text(node, "/spec/providerID");
            if !self.cloud.is_running(id) || is_deleting(node) && !is_kept(id) {
                return Err(format!("Node {} does not go", text(node, "/metadata/name")));
            }
        }
        Ok(())
    }

    /// Where what the leader believes differs from what the API server has.
    pub(super) fn disbelief(&self) -> Option<String> {
        let Some(stores) = self.seats.iter().find_map(|seat| seat.stores.clone()) else {
            return Some("nobody provisions".to_owned());
        };
        let mut server: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut unreadable = BTreeMap::new();
        for plural in ["pods", "nodes", "nodeclaims", "nodepools", "ec2nodeclasses"] {
            for object in self.api.all(plural) {
                let is_unreadable = is_unreadable(&object);
                *unreadable.entry(plural).or_insert(0) += usize::from(is_unreadable);
                // What fits no type cannot be believed, but for pods that keep a node.
                if !is_unreadable || !text(&object, "/spec/nodeName").is_empty() {
                    server.insert((plural.to_owned(), key(&object)), identity(&object));
                }
            }
        }
        let mut believed = BTreeMap::new();
        let mut left_out = BTreeMap::new();
        believes("pods", &stores.pods, &mut believed, &mut left_out);
        believes("nodes", &stores.nodes, &mut believed, &mut left_out);
        believes("nodeclaims", &stores.node_claims, &mut believed, &mut left_out);
        believes("nodepools", &stores.node_pools, &mut believed, &mut left_out);
        let classes = &stores.ec2_node_classes;
        believes("ec2nodeclasses", classes, &mut believed, &mut left_out);
        for (plural, left_out) in left_out {
            let unreadable = unreadable.get(plural).copied().unwrap_or_default();
            if left_out != unreadable {
                return Some(format!(
                    "{left_out} {plural} count as unreadable, and {unreadable} are"
                ));
            }
        }
        let all: BTreeSet<_> = server.keys().chain(believed.keys()).collect();
        let differs = all
            .into_iter()
            .find(|key| server.get(*key) != believed.get(*key))?;
        Some(format!(
            "{} {}: the server has {:?}, the store {:?}",
            differs.0,
            differs.1,
            server.get(differs),
            believed.get(differs)
        ))
    }
}

fn key(object: &Value) -> String {
    format!(
        "{}/{}",
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    )
}

fn identity(object: &Value) -> String {
    format!(
        "{} at {}",
        text(object, "/metadata/uid"),
        text(object, "/metadata/resourceVersion")
    )
}

/// Notes what a store believes, and how much of a kind it leaves out.
fn believes<T: kube::Resource + Clone + Send + Sync + 'static>(
    plural: &'static str,
    store: &SharedStore<T>,
    believed: &mut BTreeMap<(String, String), String>,
    left_out: &mut BTreeMap<&'static str, usize>,
) {
    let store = locked(store);
    believed.extend(store.objects().map(|object: &Arc<T>| {
        let metadata = object.meta();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = format!("{}/{}", text(&metadata.namespace), text(&metadata.name));
        let identity = format!("{} at {}", text(&metadata.uid), text(&metadata.resource_version));
        ((plural.to_owned(), key), identity)
    }));
    left_out.insert(plural, store.unreadable());
}
