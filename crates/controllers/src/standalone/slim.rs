//! Drops what no decision looks at, as soon as an object arrives.
//!
//! A parsed pod takes several times the memory of its text, most of it for fields that nobody reads; who wrote which field
//! is as large as the rest of a small object; and annotations can have 256 KB each time.

use std::any::Any;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerStatus, EphemeralVolumeSource, Namespace, Node, NodeStatus,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod as ParsedPod, PodCondition,
    PodSpec, PodStatus, PodTemplate, PodTemplateSpec, TopologySpreadConstraint, Volume,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta,
};
use veneer_api::Pod;
use veneer_api::labels::veneer;
use veneer_engine::packing::{LeftOut, cut_demands};

use crate::act::FIELD_MANAGER;

/// Annotations of pods and volumes that decisions look at.
const READ: [&str; 5] = [
    "karpenter.sh/",
    "veneer.io/",
    "controller.kubernetes.io/pod-deletion-cost",
    "pv.kubernetes.io/",
    "volume.",
];
/// No annotation that decisions look at is longer; a longer one says nothing that they understand.
const LONGEST: usize = 1024;
/// A selector of so many labels takes less memory as a list.
const FEW_LABELS: usize = 3;
/// What `kubectl apply` writes down for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Drops what no decision looks at from an object of any kind. Before that, a nomination of ours becomes an annotation.
pub(super) fn slim(object: &mut dyn Any) {
    if let Some(pod) = object.downcast_mut::<Pod>() {
        let mut parsed = ParsedPod::from(std::mem::take(pod));
        slim_pod(&mut parsed);
        *pod = parsed.into();
    } else if let Some(node) = object.downcast_mut::<Node>() {
        node.status = node.status.take().map(slim_node);
    } else if let Some(set) = object.downcast_mut::<DaemonSet>() {
        set.metadata.annotations = None;
        set.status = None;
        set.spec.template.spec = set.spec.template.spec.take().map(slim_spec);
    } else if slim_workload(object) {
        // Only what its pods would ask for is left.
    } else if let Some(claim) = object.downcast_mut::<PersistentVolumeClaim>() {
        keep_read(&mut claim.metadata);
        claim.status = claim.status.take().map(|status| PersistentVolumeClaimStatus {
            phase: status.phase,
            ..PersistentVolumeClaimStatus::default()
        });
    } else if let Some(volume) = object.downcast_mut::<PersistentVolume>() {
        keep_read(&mut volume.metadata);
        volume.status = None;
        if let Some(csi) = volume.spec.as_mut().and_then(|spec| spec.csi.as_mut()) {
            csi.volume_attributes = None;
        }
    } else if let Some(namespace) = object.downcast_mut::<Namespace>() {
        namespace.metadata.annotations = None;
        namespace.status = None;
    } else if let Some(budget) = object.downcast_mut::<PodDisruptionBudget>() {
        budget.metadata.annotations = None;
        if let Some(status) = &mut budget.status {
            status.disrupted_pods = None;
        }
    } else if let Some(attachment) = object.downcast_mut::<VolumeAttachment>() {
        attachment.metadata.annotations = None;
        attachment.status = None;
        attachment.spec.source.inline_volume_spec = None;
    }
}

/// Leaves of a workload what its pods would ask for; says whether it is one.
fn slim_workload(object: &mut dyn Any) -> bool {
    if let Some(deployment) = object.downcast_mut::<Deployment>() {
        deployment.metadata.annotations = None;
        deployment.status = None;
        deployment.spec = DeploymentSpec {
            template: slim_template(std::mem::take(&mut deployment.spec.template)),
            ..DeploymentSpec::default()
        };
    } else if let Some(set) = object.downcast_mut::<StatefulSet>() {
        set.metadata.annotations = None;
        set.status = None;
        set.spec = StatefulSetSpec {
            template: slim_template(std::mem::take(&mut set.spec.template)),
            ..StatefulSetSpec::default()
        };
    } else if let Some(job) = object.downcast_mut::<Job>() {
        job.metadata.annotations = None;
        job.spec = job.spec.take().map(|spec| JobSpec {
            template: slim_template(spec.template),
            ..JobSpec::default()
        });
        job.status = job.status.take().map(|status| JobStatus {
            conditions: status.conditions,
            ..JobStatus::default()
        });
    } else if let Some(template) = object.downcast_mut::<PodTemplate>() {
        template.metadata.annotations = None;
        template.template = template.template.take().map(slim_template);
    } else {
        return false;
    }
    true
}

fn slim_template(template: PodTemplateSpec) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: template.metadata.map(|metadata| ObjectMeta {
            labels: metadata.labels,
            ..ObjectMeta::default()
        }),
        spec: template.spec.map(|mut spec| {
            cut_demands(&mut spec);
            slim_spec(spec)
        }),
    }
}

/// Drops from any metadata who wrote which field.
pub(super) fn slim_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

fn slim_pod(pod: &mut ParsedPod) {
    mark_nomination(pod);
    keep_read(&mut pod.metadata);
    pod.metadata.generate_name = None;
    keep_bounded(pod);
    pod.spec = pod.spec.take().map(slim_spec);
    let spec = pod.spec.as_ref();
    pod.status = pod.status.take().map(|status| slim_status(status, spec));
    pod.metadata.owner_references = shrunk(pod.metadata.owner_references.take());
}

/// Drops demands that are beyond what counts, and keeps how many there were, so that the pod is told.
fn keep_bounded(pod: &mut ParsedPod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(veneer::LEFT_OUT);
    }
    let left_out = pod.spec.as_mut().map(cut_demands).unwrap_or_default();
    if left_out != LeftOut::default() {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::LEFT_OUT.to_owned(), left_out.write());
    }
}

fn keep_read(metadata: &mut ObjectMeta) {
    let is_read = |key: &str| READ.iter().any(|read| key.starts_with(read));
    let annotations = metadata.annotations.take().map(|annotations| {
        let read = annotations
            .into_iter()
            .filter(|(key, value)| is_read(key) && value.len() <= LONGEST);
        read.collect::<BTreeMap<_, _>>()
    });
    metadata.annotations = annotations.filter(|annotations| !annotations.is_empty());
}

fn shrunk<T>(list: Option<Vec<T>>) -> Option<Vec<T>> {
    let mut list = list.filter(|list| !list.is_empty())?;
    list.shrink_to_fit();
    Some(list)
}

/// The fields that decide where a pod can go, what it takes there, and how it leaves.
fn slim_spec(spec: PodSpec) -> PodSpec {
    let containers = |containers: Vec<Container>| {
        let slim = containers.into_iter().map(slim_container);
        // Collected anew: in place, the larger list would stay.
        let mut list = Vec::with_capacity(slim.len());
        list.extend(slim);
        list
    };
    let volumes = spec.volumes.map(|volumes| {
        let claimed =
            |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        volumes.into_iter().filter(claimed).map(slim_volume).collect()
    });
    PodSpec {
        affinity: spec.affinity.map(compact_affinity),
        containers: containers(spec.containers),
        init_containers: shrunk(spec.init_containers).map(containers),
        node_name: spec.node_name,
        node_selector: spec.node_selector,
        overhead: spec.overhead,
        preemption_policy: spec.preemption_policy.filter(|policy| policy == "Never"),
        priority: spec.priority,
        priority_class_name: spec.priority_class_name,
        resource_claims: spec.resource_claims,
        resources: spec.resources,
        scheduling_gates: shrunk(spec.scheduling_gates),
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        tolerations: shrunk(spec.tolerations),
        topology_spread_constraints: shrunk(spec.topology_spread_constraints).map(compact_spreads),
        volumes: shrunk(volumes),
        ..PodSpec::default()
    }
}

fn compact_affinity(mut affinity: Affinity) -> Affinity {
    let together = affinity.pod_affinity.as_mut().map(|one| {
        let required = &mut one.required_during_scheduling_ignored_during_execution;
        (
            required,
            &mut one.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let apart = affinity.pod_anti_affinity.as_mut().map(|one| {
        let required = &mut one.required_during_scheduling_ignored_during_execution;
        (
            required,
            &mut one.preferred_during_scheduling_ignored_during_execution,
        )
    });
    for (required, preferred) in together.into_iter().chain(apart) {
        let preferred = preferred.iter_mut().flatten();
        let preferred = preferred.map(|one| &mut one.pod_affinity_term);
        for term in required.iter_mut().flatten().chain(preferred) {
            compact_selector(&mut term.label_selector);
        }
    }
    affinity
}

fn compact_spreads(mut spreads: Vec<TopologySpreadConstraint>) -> Vec<TopologySpreadConstraint> {
    for spread in &mut spreads {
        compact_selector(&mut spread.label_selector);
    }
    spreads
}

/// Says the same in less memory: a map of one label takes room for eleven.
fn compact_selector(selector: &mut Option<LabelSelector>) {
    let Some(selector) = selector else { return };
    let Some(labels) = selector.match_labels.take_if(|labels| labels.len() <= FEW_LABELS) else {
        return;
    };
    let known = selector.match_expressions.take().unwrap_or_default();
    let mut expressions = Vec::with_capacity(labels.len() + known.len());
    expressions.extend(labels.into_iter().map(|(key, value)| LabelSelectorRequirement {
        key,
        operator: "In".to_owned(),
        values: Some(vec![value]),
    }));
    expressions.extend(known);
    selector.match_expressions = shrunk(Some(expressions));
}

fn slim_container(container: Container) -> Container {
    let ports = container.ports.map(|mut ports| {
        ports.retain(|port| port.host_port.is_some_and(|port| port != 0));
        ports
    });
    // A limit counts only where there is no request.
    let resources = container.resources.map(|mut resources| {
        resources.limits = resources.limits.filter(|limits| {
            let asked = resources.requests.as_ref();
            !limits
                .keys()
                .all(|resource| asked.is_some_and(|asked| asked.contains_key(resource)))
        });
        resources
    });
    Container {
        name: container.name,
        ports: shrunk(ports),
        resources,
        restart_policy: container.restart_policy,
        ..Container::default()
    }
}

fn slim_volume(volume: Volume) -> Volume {
    Volume {
        name: volume.name,
        persistent_volume_claim: volume.persistent_volume_claim,
        ephemeral: volume.ephemeral.map(|_| EphemeralVolumeSource::default()),
        ..Volume::default()
    }
}

/// Whether a container has what it asks for, so that its status says nothing more about that.
fn has_what_it_asks_for(status: &ContainerStatus, spec: Option<&PodSpec>) -> bool {
    let containers = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    });
    let mut same = containers.filter(|container| container.name == status.name);
    let asked = same.next().and_then(|container| container.resources.as_ref());
    let asked = asked.and_then(|resources| resources.requests.as_ref());
    let in_force = status.resources.as_ref();
    let in_force = in_force.and_then(|resources| resources.requests.as_ref());
    let allocated = status.allocated_resources.as_ref();
    asked == in_force && allocated.is_none_or(|allocated| Some(allocated) == asked)
}

fn slim_status(status: PodStatus, spec: Option<&PodSpec>) -> PodStatus {
    let is_resizing = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "PodResizePending");
    let conditions = status.conditions.map(|conditions| {
        let is_bound = spec.is_some_and(|spec| spec.node_name.is_some());
        // Whether the scheduler has given up, whether the pod is unhealthy, and whether its size is about to change.
        let read = |condition: &PodCondition| match condition.type_.as_str() {
            "PodScheduled" => !is_bound,
            "Ready" => condition.status == "False",
            type_ => type_ == "PodResizePending",
        };
        let slim = conditions.into_iter().filter(read).map(|condition| PodCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: condition.status,
            type_: condition.type_,
            ..PodCondition::default()
        });
        slim.collect()
    });
    // What is in force differs from what is asked for while a container is being resized.
    let containers = |containers: Vec<ContainerStatus>| {
        let resized = containers
            .into_iter()
            .filter(|one| one.resources.is_some() && (is_resizing || !has_what_it_asks_for(one, spec)));
        let slim = resized.map(|one| ContainerStatus {
            name: one.name,
            resources: one.resources,
            allocated_resources: one.allocated_resources,
            ..ContainerStatus::default()
        });
        slim.collect()
    };
    PodStatus {
        phase: status.phase,
        start_time: status.start_time,
        nominated_node_name: status.nominated_node_name,
        conditions: shrunk(conditions),
        container_statuses: shrunk(status.container_statuses.map(containers)),
        init_container_statuses: shrunk(status.init_container_statuses.map(containers)),
        ..PodStatus::default()
    }
}

fn slim_node(status: NodeStatus) -> NodeStatus {
    let conditions = status.conditions.map(|mut conditions| {
        for condition in &mut conditions {
            condition.message = None;
            condition.last_heartbeat_time = None;
        }
        conditions
    });
    NodeStatus {
        allocatable: status.allocatable,
        capacity: status.capacity,
        conditions,
        phase: status.phase,
        ..NodeStatus::default()
    }
}

/// Makes a nomination of ours an annotation.
fn mark_nomination(pod: &mut ParsedPod) {
    if !pod.metadata.managed_fields.iter().flatten().any(is_nomination) {
        return;
    }
    let status = pod.status.as_mut();
    if let Some(node) = status.and_then(|status| status.nominated_node_name.take()) {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(veneer::NOMINATED.to_owned(), node);
    }
}

/// Whether fields of a pod that one writer has set are a nomination of ours.
fn is_nomination(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry
        .fields_v1
        .as_ref()
        .and_then(|fields| fields.0.get("f:status"));
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && fields.is_some_and(|status| status.get("f:nominatedNodeName").is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nominations_of_ours_leave_a_pod_waiting_and_those_of_others_do_not() {
        let nominated = |manager: &str, field: &str| {
            let mut pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "managedFields": [
                    {"manager": "kubelet", "operation": "Update", "subresource": "status"},
                    {"manager": manager, "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:status": {field: {}}}}]},
                "status": {"nominatedNodeName": "node"}}))
            .unwrap();
            slim(&mut pod);
            slim_metadata(&mut pod.metadata);
            assert_eq!(pod.metadata.managed_fields, None);
            let annotations = pod.metadata.annotations.unwrap_or_default();
            let ours = annotations.get(veneer::NOMINATED).cloned();
            (ours, pod.status.unwrap().nominated_node_name.clone())
        };
        let node = Some("node".to_owned());
        assert_eq!(nominated("veneer", "f:nominatedNodeName"), (node.clone(), None));
        assert_eq!(
            nominated("kube-scheduler", "f:nominatedNodeName"),
            (None, node.clone())
        );
        assert_eq!(nominated("veneer", "f:phase"), (None, node));
    }

    #[test]
    fn what_decisions_look_at_stays_and_the_rest_goes() {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "b", "uid": "1", "labels": {"app": "x"}, "annotations": {
                "karpenter.sh/do-not-disrupt": "true", "controller.kubernetes.io/pod-deletion-cost": "7",
                "example.com/notes": "…", "veneer.io/large": "x".repeat(2_000)}},
            "spec": {"nodeName": "n", "priorityClassName": "system-node-critical", "terminationGracePeriodSeconds": 5,
                "serviceAccountName": "default", "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "token", "projected": {"sources": []}}],
                "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "B"}],
                    "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
                    {"name": "other", "resources": {"limits": {"cpu": "2"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z", "conditions": [
                {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
                "containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}]}}))
        .unwrap();
        slim(&mut pod);
        let left = serde_json::to_value(&pod).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "b", "uid": "1", "labels": {"app": "x"}, "annotations": {
                "karpenter.sh/do-not-disrupt": "true", "controller.kubernetes.io/pod-deletion-cost": "7"}},
            "spec": {"nodeName": "n", "priorityClassName": "system-node-critical", "terminationGracePeriodSeconds": 5,
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [{"name": "main", "ports": [{"containerPort": 81, "hostPort": 81}],
                    "resources": {"requests": {"cpu": "1"}}}, {"name": "other", "resources": {"limits": {"cpu": "2"}}}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "False"}]}});
        assert_eq!(left, expected);
    }

    #[test]
    fn selectors_say_the_same_in_less_memory() {
        let compact = |selector: serde_json::Value| {
            let mut selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
            compact_selector(&mut selector);
            serde_json::to_value(selector).unwrap()
        };
        assert_eq!(
            compact(
                json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]})
            ),
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}, {"key": "tier", "operator": "Exists"}]})
        );
        let many = json!({"matchLabels": {"a": "1", "b": "2", "c": "3", "d": "4"}});
        assert_eq!(compact(many.clone()), many);
        // Everything, and nothing.
        assert_eq!(compact(json!({"matchLabels": {}})), json!({}));
        assert_eq!(compact(json!(null)), json!(null));
    }

    #[test]
    fn what_a_container_has_is_kept_while_it_asks_for_something_else() {
        let kept = |allocated: &str, condition: &str| {
            let mut pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"conditions": [{"type": condition, "status": "True"}],
                    "containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                        "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": "1"}}}]}}))
            .unwrap();
            slim(&mut pod);
            pod.status.unwrap().container_statuses.is_some()
        };
        assert!(!kept("1", "Ready"));
        assert!(kept("2", "Ready"));
        assert!(kept("1", "PodResizePending"));
    }
}
