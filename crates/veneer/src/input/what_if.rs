//! Changes that are tried without a manifest: workloads scaled, objects removed, the whole cluster packed anew.

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use veneer_api::labels::karpenter;
use veneer_engine::overlay::nearest;

use super::cluster::{Cluster, Found};
use super::objects::{Named, Objects, Sourced};
use super::workloads::selects;

/// What to try.
#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// Gives a Deployment, StatefulSet or ReplicaSet N pods: [KIND/][NAMESPACE/]NAME=N, a Deployment without KIND
    #[arg(long, value_name = "NAME=N")]
    scale: Vec<String>,

    /// Removes an object: KIND/[NAMESPACE/]NAME of a NodePool, NodeOverlay, Node, workload or Pod; the pods of a node
    /// that goes away need another place
    #[arg(long, value_name = "KIND/NAME")]
    remove: Vec<String>,

    /// Plans the nodes of all NodePools anew, as if the cluster were started now
    #[arg(long)]
    repack: bool,
}

/// An object as the command line names it.
struct Reference {
    kind: String,
    namespace: String,
    name: String,
}

impl Reference {
    fn parse(text: &str, kind: Option<&str>) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match (parts.as_slice(), kind) {
            ([name], Some(kind)) => (kind, "default", *name),
            ([word, name], Some(kind)) if kind_of(word).is_none() => (kind, *word, *name),
            ([kind, name], _) => (*kind, "default", *name),
            ([kind, namespace, name], _) => (*kind, *namespace, *name),
            _ => bail!("{text:?} names no object; write KIND/NAME or KIND/NAMESPACE/NAME"),
        };
        let Some(known) = kind_of(kind) else {
            bail!(
                "{text:?}: {kind:?} is not a kind that can be changed; expected one of {}",
                KINDS.join(", ")
            );
        };
        Ok(Self {
            kind: known.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

const KINDS: [&str; 10] = [
    "nodepool",
    "nodeoverlay",
    "node",
    "nodeclaim",
    "pod",
    "deployment",
    "statefulset",
    "replicaset",
    "daemonset",
    "job",
];

/// The kind that a word means, whatever its case and number.
fn kind_of(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    let word = if word == "overlay" { "nodeoverlay" } else { &word };
    KINDS
        .into_iter()
        .find(|kind| word == *kind || word.strip_suffix('s') == Some(kind))
}

impl WhatIfArgs {
    /// Whether there is nothing to try.
    pub(crate) fn is_empty(&self) -> bool {
        self.scale.is_empty() && self.remove.is_empty() && !self.repack
    }

    /// Carries everything out.
    pub(crate) fn apply(&self, objects: &mut Objects) -> Result<()> {
        for text in &self.remove {
            let reference = Reference::parse(text, None).with_context(|| format!("--remove {text}"))?;
            remove(&reference, objects).with_context(|| format!("--remove {text}"))?;
        }
        for text in &self.scale {
            scale(text, objects).with_context(|| format!("--scale {text}"))?;
        }
        if self.repack {
            let cluster = objects.cluster.get_or_insert_default();
            let names: Vec<String> = managed(&cluster.nodes, None).collect();
            names.iter().for_each(|name| remove_node(cluster, name));
            cluster.node_claims.clear();
        }
        Ok(())
    }
}

/// The nodes of one NodePool, or of all of them.
fn managed<'a>(nodes: &'a [Found<Node>], node_pool: Option<&'a str>) -> impl Iterator<Item = String> {
    let of_pool = move |node: &&Found<Node>| {
        let labels = node.object.metadata.labels.as_ref();
        let pool = labels.and_then(|labels| labels.get(karpenter::NODEPOOL));
        pool.is_some_and(|pool| node_pool.is_none_or(|wanted| wanted == pool))
    };
    nodes
        .iter()
        .filter(of_pool)
        .map(|node| node.object.metadata.name.clone().unwrap_or_default())
}

fn none(reference: &Reference, known: Vec<String>) -> anyhow::Error {
    let near = nearest(&reference.name, known.iter().map(String::as_str));
    let hint = near
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    anyhow::anyhow!("there is no {} {}{hint}", reference.kind, reference.name)
}

fn remove(reference: &Reference, objects: &mut Objects) -> Result<()> {
    fn by_name<T: Named>(list: &mut Vec<Sourced<T>>, reference: &Reference) -> Result<()> {
        let known: Vec<String> = list.iter().map(|object| object.name().to_owned()).collect();
        list.retain(|object| object.name() != reference.name);
        if list.len() == known.len() {
            return Err(none(reference, known));
        }
        Ok(())
    }
    let cluster = objects.cluster.get_or_insert_default();
    match reference.kind.as_str() {
        "nodepool" => {
            by_name(&mut objects.node_pools, reference)?;
            // Its NodeClaims, and with them its nodes, are deleted with it.
            let nodes: Vec<String> = managed(&cluster.nodes, Some(&reference.name)).collect();
            nodes.iter().for_each(|name| remove_node(cluster, name));
            cluster.node_claims.retain(|claim| {
                let labels = claim.object.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(karpenter::NODEPOOL)) != Some(&reference.name)
            });
            Ok(())
        }
        "nodeoverlay" => by_name(&mut objects.node_overlays, reference),
        "node" => {
            let known: Vec<String> = names(&cluster.nodes);
            if !known.contains(&reference.name) {
                return Err(none(reference, known));
            }
            remove_node(cluster, &reference.name);
            Ok(())
        }
        "nodeclaim" => drop_named(&mut cluster.node_claims, reference),
        "pod" => drop_named(&mut cluster.pods, reference),
        kind => {
            let pods = pods_of(cluster, reference);
            let dropped = match kind {
                "deployment" => drop_named(&mut cluster.deployments, reference),
                "statefulset" => drop_named(&mut cluster.stateful_sets, reference),
                "replicaset" => drop_named(&mut cluster.replica_sets, reference),
                "daemonset" => drop_named(&mut cluster.daemon_sets, reference),
                _ => drop_named(&mut cluster.jobs, reference),
            };
            // A live cluster is read without its workloads; their pods say whose they are.
            if pods.is_empty() {
                dropped?;
            }
            drop_positions(&mut cluster.pods, &pods);
            Ok(())
        }
    }
}

fn names<T: kube::Resource<DynamicType = ()>>(list: &[Found<T>]) -> Vec<String> {
    let name = |found: &Found<T>| found.object.meta().name.clone().unwrap_or_default();
    list.iter().map(name).collect()
}

fn is_named<T: kube::Resource<DynamicType = ()>>(found: &Found<T>, reference: &Reference) -> bool {
    let metadata = found.object.meta();
    let namespace = metadata.namespace.as_deref();
    metadata.name.as_deref() == Some(&reference.name)
        && namespace.is_none_or(|namespace| namespace == reference.namespace)
}

fn drop_named<T: kube::Resource<DynamicType = ()>>(
    list: &mut Vec<Found<T>>,
    reference: &Reference,
) -> Result<()> {
    let known = names(list);
    list.retain(|found| !is_named(found, reference));
    if list.len() == known.len() {
        return Err(none(reference, known));
    }
    Ok(())
}

fn drop_positions<T>(list: &mut Vec<T>, positions: &[usize]) {
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        !positions.contains(&(at - 1))
    });
}

/// A node goes away: its pods need another place, except those that come and go with it.
fn remove_node(cluster: &mut Cluster, name: &str) {
    let provider = |spec: Option<&String>| spec.cloned();
    let node = cluster
        .nodes
        .iter()
        .find(|node| node.object.metadata.name.as_deref() == Some(name));
    let id = node.and_then(|node| provider(node.object.spec.as_ref()?.provider_id.as_ref()));
    cluster
        .nodes
        .retain(|node| node.object.metadata.name.as_deref() != Some(name));
    cluster.node_claims.retain(|claim| {
        let status = claim.object.status.as_ref();
        let of_node = status.and_then(|status| status.provider_id.clone());
        id.is_none() || of_node != id
    });
    cluster
        .pods
        .retain(|pod| !(on_node(&pod.object, name) && goes_with_node(&pod.object)));
    for pod in cluster.pods.iter_mut().filter(|pod| on_node(&pod.object, name)) {
        release(&mut pod.object);
    }
}

fn on_node(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name)
}

fn goes_with_node(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    owners
        .into_iter()
        .any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"))
        || matches!(phase, Some("Succeeded" | "Failed"))
}

fn release(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    pod.status = None;
}

/// The pods of a workload, by position.
fn pods_of(cluster: &Cluster, reference: &Reference) -> Vec<usize> {
    let selector = match reference.kind.as_str() {
        "deployment" => find(&cluster.deployments, reference).map(|found| &found.spec.selector),
        "statefulset" => find(&cluster.stateful_sets, reference).map(|found| &found.spec.selector),
        "replicaset" => find(&cluster.replica_sets, reference).map(|found| &found.spec.selector),
        "daemonset" => find(&cluster.daemon_sets, reference).map(|found| &found.spec.selector),
        _ => None,
    };
    let is_owned = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| match reference.kind.as_str() {
            // A Deployment's ReplicaSets have its name and a hash.
            "deployment" => {
                let hash = owner
                    .name
                    .strip_prefix(&*reference.name)
                    .and_then(|rest| rest.strip_prefix('-'));
                owner.kind == "ReplicaSet" && hash.is_some_and(|hash| !hash.contains('-'))
            }
            kind => owner.kind.to_lowercase() == kind && owner.name == reference.name,
        })
    };
    let pods = cluster.pods.iter().enumerate();
    pods.filter(|(_, pod)| {
        let metadata = &pod.object.metadata;
        metadata.namespace.as_deref().unwrap_or("default") == reference.namespace
            && match selector {
                Some(selector) => selects(selector, metadata.labels.as_ref()),
                None => is_owned(&pod.object),
            }
    })
    .map(|(at, _)| at)
    .collect()
}

fn find<'a, T: kube::Resource<DynamicType = ()>>(
    list: &'a [Found<T>],
    reference: &Reference,
) -> Option<&'a T> {
    list.iter()
        .find(|found| is_named(found, reference))
        .map(|found| &found.object)
}

fn scale(text: &str, objects: &mut Objects) -> Result<()> {
    let (name, count) = text.split_once('=').context("expected NAME=N, such as web=20")?;
    let count: usize = count
        .parse()
        .ok()
        .with_context(|| format!("{count:?} is no number of pods"))?;
    let reference = Reference::parse(name, Some("deployment"))?;
    let cluster = objects.cluster.get_or_insert_default();
    let replicas = i32::try_from(count).context("too many pods")?;
    let mut known = Vec::new();
    let mut is_there = false;
    macro_rules! set {
        ($list:expr) => {
            known.extend(names(&$list));
            for found in $list.iter_mut().filter(|found| is_named(found, &reference)) {
                found.object.spec.replicas = Some(replicas);
                is_there = true;
            }
        };
    }
    match reference.kind.as_str() {
        "deployment" => {
            set!(cluster.deployments);
        }
        "statefulset" => {
            set!(cluster.stateful_sets);
        }
        "replicaset" => {
            set!(cluster.replica_sets);
        }
        kind => bail!("a {kind} cannot be scaled; expected a deployment, statefulset or replicaset"),
    }
    let mut pods = pods_of(cluster, &reference);
    if pods.is_empty() {
        return if is_there {
            Ok(())
        } else {
            Err(none(&reference, known))
        };
    }
    // Pods that wait go first, then those with the last names.
    let key = |at: &usize| {
        let pod = cluster.pods.get(*at).map(|pod| &pod.object);
        let waits = pod.is_some_and(|pod| pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()));
        (waits, pod.and_then(|pod| pod.metadata.name.clone()))
    };
    pods.sort_by_key(key);
    if count < pods.len() {
        let gone = pods.split_off(count);
        drop_positions(&mut cluster.pods, &gone);
        return Ok(());
    }
    let Some(sample) = pods.first().and_then(|at| cluster.pods.get(*at)).cloned() else {
        return Ok(());
    };
    for number in 0..count - pods.len() {
        let mut pod = sample.clone();
        release(&mut pod.object);
        pod.object.metadata.name = Some(format!("{}-more-{number}", reference.name));
        pod.object.metadata.uid = None;
        cluster.pods.push(pod);
    }
    Ok(())
}
