//! What a pod asks for: containers, init containers, sidecars, overhead, pod-level resources and resizes.

use std::collections::BTreeMap;

use super::PodRecord;
use k8s_openapi::api::core::v1::{Container, ContainerStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::quantity::Quantity;
use crate::resources::{CPU, HUGEPAGES_PREFIX, MEMORY, PODS, ResourceList};

/// A quantity that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) resource: String,
    pub(super) text: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} is no quantity; expected a number with an optional unit, such as 500m or 2Gi",
            self.resource, self.text
        )
    }
}

type Texts = BTreeMap<String, Text>;

/// The list that a manifest states.
pub(super) fn resource_list(texts: &Texts) -> Result<ResourceList, Unreadable> {
    texts
        .iter()
        .map(|(name, text)| match text.0.parse::<Quantity>() {
            Ok(quantity) => Ok((name.as_str(), quantity)),
            Err(_) => Err(Unreadable {
                resource: name.clone(),
                text: text.0.clone(),
            }),
        })
        .collect()
}

fn optional(texts: Option<&Texts>) -> Result<ResourceList, Unreadable> {
    texts.map_or_else(|| Ok(ResourceList::new()), resource_list)
}

/// Everything that `pod` needs of a node, itself included (one of `pods`).
pub(super) fn pod_requests(pod: &PodRecord) -> Result<ResourceList, Unreadable> {
    let Some(spec) = &pod.spec else {
        return Ok(one_pod(ResourceList::new()));
    };
    let mut requests = ResourceList::new();
    for container in &spec.containers {
        requests.add(&container_requests(pod, container)?);
    }
    // While the i-th init container runs, the sidecars before it run too.
    let mut sidecars = ResourceList::new();
    let mut at_start = ResourceList::new();
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        if is_sidecar {
            let of_container = container_requests(pod, container)?;
            requests.add(&of_container);
            sidecars.add(&of_container);
            raise(&mut at_start, &sidecars);
        } else {
            let mut needed = spec_requests(container)?;
            needed.add(&sidecars);
            raise(&mut at_start, &needed);
        }
    }
    raise(&mut requests, &at_start);
    if let Some(resources) = &spec.resources {
        for (name, quantity) in optional(resources.requests.as_ref())?.iter() {
            if name == CPU || name == MEMORY || name.starts_with(HUGEPAGES_PREFIX) {
                requests.insert(name, quantity.clone());
            }
        }
    }
    requests.add(&optional(spec.overhead.as_ref())?);
    Ok(one_pod(requests))
}

fn one_pod(mut requests: ResourceList) -> ResourceList {
    requests.insert(PODS, Quantity::from(1));
    requests
}

/// What a container states; a limit without a request counts as one, as the API server writes it.
fn spec_requests(container: &Container) -> Result<ResourceList, Unreadable> {
    let Some(resources) = &container.resources else {
        return Ok(ResourceList::new());
    };
    let limits = optional(resources.limits.as_ref())?;
    Ok(limits.overridden_by(&optional(resources.requests.as_ref())?))
}

/// What a container needs while it is being resized: the largest of what is asked for, allocated and in force.
fn container_requests(pod: &PodRecord, container: &Container) -> Result<ResourceList, Unreadable> {
    let asked = spec_requests(container)?;
    let Some(status) = container_status(pod, &container.name) else {
        return Ok(asked);
    };
    let Some(in_force) = &status.resources else {
        return Ok(asked);
    };
    let mut needed = if resize_is_infeasible(pod) {
        ResourceList::new()
    } else {
        asked
    };
    raise(&mut needed, &optional(in_force.requests.as_ref())?);
    raise(&mut needed, &optional(status.allocated_resources.as_ref())?);
    Ok(needed)
}

fn container_status<'a>(pod: &'a PodRecord, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .find(|status| status.name == name)
}

fn resize_is_infeasible(pod: &PodRecord) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodResizePending")
        .take(1)
        .any(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// Raises every resource to at least what `floor` has.
fn raise(list: &mut ResourceList, floor: &ResourceList) {
    for (name, quantity) in floor.iter() {
        if list.get(name).is_none_or(|current| current < quantity) {
            list.insert(name, quantity.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_summed_as_kubernetes_sums_them() {
        let cpu = |milli: u32| json!({ "requests": { "cpu": format!("{milli}m") } });
        for (what, spec, expected) in [
            (
                "two containers",
                json!({ "containers": [
                { "name": "a", "resources": cpu(100) }, { "name": "b", "resources": cpu(200) }] }),
                300,
            ),
            (
                "a larger init container",
                json!({ "containers": [{ "name": "a", "resources": cpu(100) }],
                "initContainers": [{ "name": "i", "resources": cpu(500) }] }),
                500,
            ),
            (
                "a sidecar before an init container",
                json!({ "containers": [{ "name": "a", "resources": cpu(100) }],
                "initContainers": [{ "name": "s", "restartPolicy": "Always", "resources": cpu(50) },
                                   { "name": "i", "resources": cpu(500) }] }),
                550,
            ),
            (
                "a sidecar after an init container",
                json!({ "containers": [{ "name": "a", "resources": cpu(480) }],
                "initContainers": [{ "name": "i", "resources": cpu(500) },
                                   { "name": "s", "restartPolicy": "Always", "resources": cpu(50) }] }),
                530,
            ),
            (
                "overhead",
                json!({ "containers": [{ "name": "a", "resources": cpu(100) }],
                "overhead": { "cpu": "250m" } }),
                350,
            ),
            (
                "pod-level requests",
                json!({ "containers": [{ "name": "a", "resources": cpu(100) }],
                "resources": { "requests": { "cpu": "2" } }, "overhead": { "cpu": "250m" } }),
                2250,
            ),
            (
                "a limit without a request",
                json!({ "containers": [
                { "name": "a", "resources": { "limits": { "cpu": "3" } } }] }),
                3000,
            ),
        ] {
            let pod: PodRecord = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            let requests = pod_requests(&pod).unwrap();
            assert_eq!(requests.get(CPU), Some(&Quantity::from_milli(expected)), "{what}");
            assert_eq!(requests.get(PODS), Some(&Quantity::from(1)), "{what}");
        }
    }

    #[test]
    fn a_resized_container_needs_the_largest_of_its_sizes() {
        let pod: PodRecord = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "containers": [{ "name": "a", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "containerStatuses": [{ "name": "a", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "resources": { "requests": { "cpu": "3" } }, "allocatedResources": { "cpu": "2" } }] },
        }))
        .unwrap();
        assert_eq!(pod_requests(&pod).unwrap().get(CPU), Some(&Quantity::from(3)));
    }

    #[test]
    fn a_quantity_that_cannot_be_read_is_named() {
        let pod: PodRecord = serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [
            { "name": "a", "resources": { "requests": { "cpu": "lots" } } }] } }))
        .unwrap();
        let expected = Unreadable {
            resource: "cpu".to_owned(),
            text: "lots".to_owned(),
        };
        assert_eq!(pod_requests(&pod), Err(expected));
    }
}
