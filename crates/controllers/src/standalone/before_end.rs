//! What is looked at once more before a node goes: whether what is known of the cluster is new, and which pods the API
//! server itself says are on it.

use std::collections::BTreeSet;

use kube::Resource;
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use tracing::{info, warn};
use veneer_api::Pod;
use veneer_engine::plan::name;

use super::execute::{Executor, Failure};
use super::store::lock;
use super::watched::Watched;
use crate::observe::chain;
use crate::provider::Provider;

/// Why claims are deleted that have no node, or whose instance ends whatever we do.
const FORCED: [&str; 9] = [
    "insufficient_capacity",
    "nodeclass_not_ready",
    "launch_timeout",
    "registration_timeout",
    "node_deleted",
    "spot_interrupted",
    "scheduled_change",
    "instance_stopped",
    "instance_terminated",
];

impl<P: Provider> Executor<P> {
    /// No instance ends while what is known of the cluster may be old.
    pub(super) fn check_watches(&self) -> Result<(), Failure> {
        if self.stores.dead_watches().is_empty() {
            Ok(())
        } else {
            Err(Failure::Held)
        }
    }

    /// Nor is a claim deleted, unless that is forced.
    pub(super) fn check_disruption(&self, reason: &str) -> Result<(), Failure> {
        if FORCED.contains(&reason) {
            return Ok(());
        }
        self.check_watches()
    }

    /// Asks the API server which pods are on the node of an instance before it ends. One that was not seen before is taken
    /// in, so that the next pass drains it as any other.
    pub(super) async fn check_pods(&self, id: &str) -> Result<(), Failure> {
        let node = lock(&self.stores.nodes)
            .objects()
            .find(|node| {
                let of_node = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                of_node == Some(id)
            })
            .map(|node| name(&node.metadata).to_owned());
        let Some(node) = node.filter(|_| !seeded!(TrustsPodWatch)) else {
            return Ok(());
        };
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let request = Request::new(Pod::url_path(&(), None)).list(&params);
        let request = request.map_err(|error| Failure::Refused(error.to_string()))?;
        let found = self.client.request::<ObjectList<Watched<Pod>>>(request).await;
        let found = found.map_err(|error| {
            Failure::Refused(format!("cannot list the pods of node {node}: {}", chain(&error)))
        })?;
        let mut pods = lock(&self.stores.pods);
        let mut there = BTreeSet::new();
        let mut is_new = false;
        for pod in found.items {
            let pod = match pod {
                Watched::Readable(pod) => pod,
                Watched::Unreadable(pod) => {
                    let why = format!(
                        "pod {}/{} on node {node} cannot be read: {}",
                        pod.metadata.namespace.as_deref().unwrap_or_default(),
                        name(&pod.metadata),
                        pod.error
                    );
                    return Err(Failure::Refused(why));
                }
            };
            there.extend(pod.metadata.uid.clone());
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let known = pods.get(&namespace, name(&pod.metadata));
            if known.is_some_and(|known| known.metadata.uid == pod.metadata.uid && is_on(known, &node)) {
                continue;
            }
            is_new = true;
            warn!(
                node,
                namespace,
                pod = name(&pod.metadata),
                "a pod that the watch has not brought is on a node that was to be terminated; it is drained first"
            );
            pods.read_again(*pod, "");
        }
        let gone: Vec<_> = pods
            .objects()
            .filter(|pod| is_on(pod, &node))
            .filter(|pod| pod.metadata.uid.as_ref().is_none_or(|uid| !there.contains(uid)))
            .map(|pod| pod.metadata.clone())
            .collect();
        for pod in gone {
            info!(node, pod = name(&pod), "a pod is gone that the watch still shows");
            let namespace = pod.namespace.as_deref().unwrap_or_default();
            pods.lost(namespace, name(&pod), pod.uid.as_deref().unwrap_or_default());
        }
        if is_new { Err(Failure::NotYet) } else { Ok(()) }
    }
}

fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}
