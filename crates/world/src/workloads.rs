//! What runs: Deployments that follow the day, Jobs that arrive, a pod of every DaemonSet on every node.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, Node, PodStatus, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use veneer_api::Pod;
use veneer_engine::plan::is_deleting;
use veneer_engine::taints::is_of_start;

use crate::rng::Rng;
use crate::scenario::{Jobs, Replicas, Workload};
use crate::scheduler::Owner;

/// The label by which a pod names its workload.
pub(crate) const WORKLOAD: &str = "app.kubernetes.io/name";

/// How many pods a Deployment wants at a moment.
#[must_use]
pub(crate) fn wanted(
    replicas: &Replicas,
    workload: &str,
    seed: u64,
    (start, now): (Timestamp, Timestamp),
) -> u32 {
    if !replicas.trace.is_empty() {
        let passed = now.duration_since(start);
        let mut known = replicas.trace.iter().rev();
        return known
            .find(|(after, _)| after.0 <= passed)
            .map_or(0, |(_, count)| *count);
    }
    let max = f64::from(replicas.max.unwrap_or(replicas.min));
    let min = f64::from(replicas.min);
    let hour = hour_of_day(now);
    let shape = 0.5 * (1.0 + (std::f64::consts::TAU * (hour - replicas.peak_hour) / 24.0).cos());
    // The epoch was a Thursday.
    let weekday = (now.as_second().div_euclid(86_400) + 3).rem_euclid(7);
    let share = if weekday >= 5 { replicas.weekend } else { 1.0 };
    let stray = 2.0 * Rng::of(seed, &["load", workload, &now.as_second().to_string()]).unit() - 1.0;
    let count = (min + (max - min) * shape * share) * (1.0 + replicas.noise * stray);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let count = count.round().clamp(0.0, 1_000_000.0) as u32;
    count
}

/// The jobs that arrive in an interval: when, and how long each runs.
#[must_use]
pub(crate) fn arrivals(
    jobs: &Jobs,
    workload: &str,
    seed: u64,
    from: Timestamp,
    interval: SignedDuration,
) -> Vec<(SignedDuration, SignedDuration)> {
    let hour = hour_of_day(from);
    let is_open = jobs.between.is_none_or(|(begin, end)| {
        if begin <= end {
            (begin..end).contains(&hour)
        } else {
            hour >= begin || hour < end
        }
    });
    if !is_open {
        return Vec::new();
    }
    let mut rng = Rng::of(seed, &["jobs", workload, &from.as_second().to_string()]);
    let mean = jobs.per_hour * interval.as_secs_f64() / 3600.0;
    let (shortest, longest) = (jobs.runs.0.0, jobs.runs.1.0);
    let spread = u64::try_from((longest - shortest).as_secs()).unwrap_or_default() + 1;
    let width = u64::try_from(interval.as_secs()).unwrap_or(1);
    let mut arrivals: Vec<(SignedDuration, SignedDuration)> = (0..rng.poisson(mean))
        .map(|_| {
            // Arrivals come to a grid of half a minute, so that those of one moment are decided together.
            let after = seconds(rng.below(width) / 30 * 30);
            (after, shortest + seconds(rng.below(spread)))
        })
        .collect();
    arrivals.sort_unstable();
    arrivals
}

fn seconds(count: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(count).unwrap_or(i64::MAX))
}

fn hour_of_day(now: Timestamp) -> f64 {
    let second = u32::try_from(now.as_second().rem_euclid(86_400)).unwrap_or_default();
    f64::from(second) / 3600.0
}

/// A pod of a workload.
#[must_use]
pub(crate) fn pod(workload: &Workload, number: u64) -> Pod {
    let template = workload.template.clone().unwrap_or_default();
    let kind = if workload.jobs.is_some() {
        ("batch/v1", "Job")
    } else {
        ("apps/v1", "ReplicaSet")
    };
    let mut pod = of_template(template, kind, &workload.name, &workload.namespace);
    pod.metadata.name = Some(format!("{}-{number}", workload.name));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels
        .entry(WORKLOAD.to_owned())
        .or_insert_with(|| workload.name.clone());
    let spec = pod.spec.get_or_insert_default();
    if spec.containers.is_empty() {
        spec.containers.push(Container {
            name: "main".to_owned(),
            ..Container::default()
        });
    }
    if let Some(first) = spec.containers.first_mut()
        && !workload.requests.is_empty()
    {
        let requests = workload.requests.iter();
        let requests: BTreeMap<String, Quantity> = requests
            .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
            .collect();
        first.resources = Some(ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        });
    }
    pod
}

/// The Deployment behind a workload that has replicas.
#[must_use]
pub(crate) fn deployment(workload: &Workload) -> Option<Deployment> {
    workload.replicas.as_ref()?;
    let pod = pod(workload, 0);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: pod.metadata.labels,
            annotations: pod.metadata.annotations,
            ..ObjectMeta::default()
        }),
        spec: pod.spec.map(Into::into),
    };
    Some(Deployment {
        metadata: ObjectMeta {
            name: Some(workload.name.clone()),
            namespace: Some(workload.namespace.clone()),
            uid: Some(format!("uid-deployment-{}", workload.name)),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: DeploymentSpec {
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    })
}

/// Whether the pods of DaemonSets start on a node.
#[must_use]
pub(crate) fn takes_daemons(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let is_ready = conditions
        .unwrap_or_default()
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True");
    is_ready && !is_deleting(&node.metadata) && !taints.unwrap_or_default().iter().any(is_of_start)
}

/// What spreads the pods of a Deployment although they do not ask for it: the selector of its ReplicaSet.
#[must_use]
pub(crate) fn owner(workload: &Workload) -> Option<Owner> {
    workload.replicas.as_ref()?;
    let metadata = workload.template.as_ref().and_then(|one| one.metadata.as_ref());
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
    let value = labels.and_then(|labels| labels.get(WORKLOAD));
    let value = value.unwrap_or(&workload.name).clone();
    Some(Owner {
        kind: "ReplicaSet".to_owned(),
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        selector: LabelSelector {
            match_labels: Some(BTreeMap::from([(WORKLOAD.to_owned(), value)])),
            match_expressions: None,
        },
    })
}

/// The pod of a DaemonSet on a node, if the node's labels let it there.
#[must_use]
pub(crate) fn daemon(set: &DaemonSet, node: &Node) -> Option<Pod> {
    let template = set.spec.template.clone();
    let selector = template.spec.as_ref().and_then(|spec| spec.node_selector.clone());
    let labels = node.metadata.labels.as_ref();
    let fits = selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if !fits {
        return None;
    }
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let node_name = node.metadata.name.as_deref().unwrap_or_default();
    let namespace = set.metadata.namespace.as_deref().unwrap_or("default");
    let mut pod = of_template(template, ("apps/v1", "DaemonSet"), set_name, namespace);
    pod.metadata.name = Some(format!("{set_name}-{node_name}"));
    pod.spec.get_or_insert_default().node_name = Some(node_name.to_owned());
    pod.status.get_or_insert_default().phase = Some("Running".to_owned());
    Some(pod)
}

fn of_template(
    template: PodTemplateSpec,
    (version, kind): (&str, &str),
    owner: &str,
    namespace: &str,
) -> Pod {
    let metadata = template.metadata.unwrap_or_default();
    let pending = PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    };
    Pod {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: Some(vec![OwnerReference {
                api_version: version.to_owned(),
                kind: kind.to_owned(),
                name: owner.to_owned(),
                uid: format!("uid-{owner}"),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.unwrap_or_default().into()),
        status: Some(pending.into()),
    }
}
