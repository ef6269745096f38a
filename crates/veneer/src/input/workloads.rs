//! Pods that a cluster does not have yet: those that Deployments, ReplicaSets, StatefulSets and Jobs in files would make.
//!
//! A workload that has pods among the objects is left alone: they were read from a cluster, and are its pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::cluster::Cluster;

/// A workload, as far as its pods are concerned.
struct Workload<'a> {
    kind: &'static str,
    metadata: &'a ObjectMeta,
    selector: Option<&'a LabelSelector>,
    template: &'a PodTemplateSpec,
    count: i32,
}

/// The pods that the workloads of `cluster` would make, and in words where they come from.
pub(crate) fn pods(cluster: &Cluster) -> (Vec<Pod>, Option<String>) {
    let mut existing: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in cluster.pods.iter().map(|pod| &pod.object) {
        existing.entry(namespace(&pod.metadata)).or_default().push(pod);
    }
    let mut pods = Vec::new();
    let mut sources = Vec::new();
    for workload in workloads(cluster) {
        let is_owned = workload
            .metadata
            .owner_references
            .as_ref()
            .is_some_and(|owners| !owners.is_empty());
        let beside = existing
            .get(namespace(workload.metadata))
            .map_or(&[][..], Vec::as_slice);
        if workload.count < 1 || is_owned || beside.iter().any(|pod| workload.has(pod)) {
            continue;
        }
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        sources.push(format!("{} {name} {}", workload.kind, workload.count));
        pods.extend((0..workload.count).map(|at| workload.pod(name, at)));
    }
    let note = (!pods.is_empty()).then(|| {
        let verb = if pods.len() == 1 { "pod is" } else { "pods are" };
        format!(
            "{} {verb} not there yet, but workloads would make them ({})",
            pods.len(),
            shown(&sources)
        )
    });
    (pods, note)
}

fn namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

/// The first few, and how many more there are.
fn shown(sources: &[String]) -> String {
    const FEW: usize = 5;
    let few: Vec<&str> = sources.iter().take(FEW).map(String::as_str).collect();
    match sources.len().saturating_sub(FEW) {
        0 => few.join(", "),
        more => format!("{} and {more} more", few.join(", ")),
    }
}

fn workloads(cluster: &Cluster) -> Vec<Workload<'_>> {
    let deployments = cluster.deployments.iter().map(|found| Workload {
        kind: "Deployment",
        metadata: &found.object.metadata,
        selector: Some(&found.object.spec.selector),
        template: &found.object.spec.template,
        count: found.object.spec.replicas.unwrap_or(1),
    });
    let replica_sets = cluster.replica_sets.iter().filter_map(|found| {
        Some(Workload {
            kind: "ReplicaSet",
            metadata: &found.object.metadata,
            selector: Some(&found.object.spec.selector),
            template: found.object.spec.template.as_ref()?,
            count: found.object.spec.replicas.unwrap_or(1),
        })
    });
    let stateful_sets = cluster.stateful_sets.iter().map(|found| Workload {
        kind: "StatefulSet",
        metadata: &found.object.metadata,
        selector: Some(&found.object.spec.selector),
        template: &found.object.spec.template,
        count: found.object.spec.replicas.unwrap_or(1),
    });
    let jobs = cluster.jobs.iter().filter_map(|found| {
        let spec = found.object.spec.as_ref()?;
        let status = found.object.status.as_ref();
        let is_over = status.is_some_and(|status| status.completion_time.is_some());
        let parallel = spec.parallelism.unwrap_or(1);
        let count = spec
            .completions
            .map_or(parallel, |completions| parallel.min(completions));
        Some(Workload {
            kind: "Job",
            metadata: &found.object.metadata,
            selector: spec.selector.as_ref(),
            template: &spec.template,
            count: if is_over || spec.suspend == Some(true) {
                0
            } else {
                count
            },
        })
    });
    deployments
        .chain(replica_sets)
        .chain(stateful_sets)
        .chain(jobs)
        .collect()
}

impl Workload<'_> {
    fn pod(&self, name: &str, at: i32) -> Pod {
        let template = self.template.metadata.clone().unwrap_or_default();
        Pod {
            metadata: ObjectMeta {
                name: Some(format!("{name}-{at}")),
                namespace: self.metadata.namespace.clone(),
                labels: template.labels,
                annotations: template.annotations,
                ..ObjectMeta::default()
            },
            spec: self.template.spec.clone(),
            status: None,
        }
    }

    /// Whether `pod` of its namespace is one of its pods.
    fn has(&self, pod: &Pod) -> bool {
        match self.selector {
            Some(selector) => selects(selector, pod.metadata.labels.as_ref()),
            None => {
                let owners = pod.metadata.owner_references.iter().flatten();
                let mut owners = owners.filter(|owner| owner.kind == self.kind);
                owners.any(|owner| Some(&owner.name) == self.metadata.name.as_ref())
            }
        }
    }
}

pub(super) fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &String| labels.and_then(|labels| labels.get(key));
    let mut wanted = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    wanted.all(|(key, wanted)| value(key) == Some(wanted))
        && expressions.all(|expression| {
            let value = value(&expression.key);
            let listed =
                value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match expression.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
