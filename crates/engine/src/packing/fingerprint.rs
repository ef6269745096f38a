//! Which pods are alike.
//!
//! Pods of one workload differ in name and uid only. Two pods are alike in *size* if their containers ask for the
//! same, and alike in *demands* if everything else that scheduling looks at is the same. A hash finds candidates,
//! a comparison of the fields decides.

use std::collections::BTreeMap;
use std::hash::Hasher;

use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeSelectorTerm, PodAffinityTerm, PodSpec, PodStatus, ResourceClaim, Toleration,
    TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use veneer_api::Pod;

use super::hash::FastHasher;

/// A hash of what [`same_size`] compares.
pub(super) fn size_hash(spec: &PodSpec) -> u64 {
    let mut hasher = FastHasher::default();
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        hasher.maybe(container.restart_policy.as_deref());
        if let Some(resources) = &container.resources {
            quantities(&mut hasher, resources.requests.as_ref());
            quantities(&mut hasher, resources.limits.as_ref());
        }
    }
    quantities(&mut hasher, spec.overhead.as_ref());
    let whole = spec.resources.as_ref();
    quantities(
        &mut hasher,
        whole.and_then(|resources| resources.requests.as_ref()),
    );
    hasher.finish()
}

/// Whether two pods ask for the same, neither being resized.
pub(super) fn same_size(a: &PodSpec, b: &PodSpec) -> bool {
    let same_containers = |a: &[Container], b: &[Container]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| {
                a.restart_policy == b.restart_policy
                    && match (&a.resources, &b.resources) {
                        (Some(a), Some(b)) => a.requests == b.requests && a.limits == b.limits,
                        (None, None) => true,
                        _ => false,
                    }
            })
    };
    fn init(spec: &PodSpec) -> &[Container] {
        spec.init_containers.as_deref().unwrap_or_default()
    }
    same_containers(&a.containers, &b.containers)
        && same_containers(init(a), init(b))
        && a.overhead == b.overhead
        && a.resources == b.resources
}

/// A number that pods of one workload share: those that ask for the same and demand the same in one namespace. Volumes
/// do not count, since each pod of a StatefulSet has its own.
#[must_use]
pub fn scheduling_class(pod: &Pod) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.maybe(pod.metadata.namespace.as_deref());
    if let Some(spec) = &pod.spec {
        hasher.write_u64(size_hash(spec));
        hasher.write_u64(demands_hash(spec));
    }
    hasher.finish()
}

/// Whether the pod's status says what its containers have, as during a resize.
pub(super) fn has_status_resources(status: &PodStatus) -> bool {
    let containers = status.container_statuses.iter().flatten();
    containers
        .chain(status.init_container_statuses.iter().flatten())
        .any(|status| status.resources.is_some())
}

fn quantities(hasher: &mut FastHasher, list: Option<&BTreeMap<String, Quantity>>) {
    for (name, quantity) in list.into_iter().flatten() {
        hasher.text(name);
        hasher.text(&quantity.0);
    }
    hasher.write_u8(1);
}

/// A hash of what [`same_demands`] compares.
pub(super) fn demands_hash(spec: &PodSpec) -> u64 {
    let mut hasher = FastHasher::default();
    for (key, value) in spec.node_selector.iter().flatten() {
        hasher.text(key);
        hasher.text(value);
    }
    spec.tolerations
        .iter()
        .flatten()
        .for_each(|item| toleration(&mut hasher, item));
    spec.topology_spread_constraints
        .iter()
        .flatten()
        .for_each(|item| spread(&mut hasher, item));
    if let Some(item) = &spec.affinity {
        affinity(&mut hasher, item);
    }
    for port in spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
    {
        hasher.write_u32(port.host_port.unwrap_or(0).unsigned_abs());
    }
    hasher.finish()
}

/// Whether two pods demand the same of a node, their sizes, labels and volumes apart.
pub(super) fn same_demands(a: &PodSpec, b: &PodSpec) -> bool {
    a.node_selector == b.node_selector
        && a.tolerations == b.tolerations
        && a.topology_spread_constraints == b.topology_spread_constraints
        && a.affinity == b.affinity
        && host_ports_alike(a, b)
        && device_claims_alike(a, b)
}

fn host_ports_alike(a: &PodSpec, b: &PodSpec) -> bool {
    fn ports(spec: &PodSpec) -> impl Iterator<Item = (i32, &Option<String>, &Option<String>)> {
        spec.containers
            .iter()
            .flat_map(|container| container.ports.iter().flatten())
            .filter_map(|port| {
                Some((
                    port.host_port.filter(|port| *port != 0)?,
                    &port.host_ip,
                    &port.protocol,
                ))
            })
    }
    ports(a).eq(ports(b))
}

fn device_claims_alike(a: &PodSpec, b: &PodSpec) -> bool {
    fn claims(spec: &PodSpec) -> impl Iterator<Item = &ResourceClaim> {
        let init = spec.init_containers.iter().flatten();
        let resources = spec
            .containers
            .iter()
            .chain(init)
            .filter_map(|container| container.resources.as_ref());
        resources.flat_map(|resources| resources.claims.iter().flatten())
    }
    a.resource_claims == b.resource_claims && claims(a).eq(claims(b))
}

/// Whether the pod needs dynamic resource allocation.
pub(super) fn needs_devices(spec: &PodSpec) -> bool {
    let claims = |container: &Container| {
        container
            .resources
            .as_ref()
            .is_some_and(|resources| resources.claims.iter().flatten().next().is_some())
    };
    spec.resource_claims.iter().flatten().next().is_some()
        || spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .any(claims)
}

fn toleration(hasher: &mut FastHasher, toleration: &Toleration) {
    hasher.maybe(toleration.key.as_deref());
    hasher.maybe(toleration.operator.as_deref());
    hasher.maybe(toleration.value.as_deref());
    hasher.maybe(toleration.effect.as_deref());
}

fn selector(hasher: &mut FastHasher, selector: Option<&LabelSelector>) {
    let Some(selector) = selector else {
        return hasher.write_u8(0);
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        hasher.text(key);
        hasher.text(value);
    }
    for expression in selector.match_expressions.iter().flatten() {
        hasher.text(&expression.key);
        hasher.text(&expression.operator);
        expression
            .values
            .iter()
            .flatten()
            .for_each(|value| hasher.text(value));
    }
}

fn spread(hasher: &mut FastHasher, spread: &TopologySpreadConstraint) {
    hasher.text(&spread.topology_key);
    hasher.write_u32(spread.max_skew.unsigned_abs());
    hasher.text(&spread.when_unsatisfiable);
    selector(hasher, spread.label_selector.as_ref());
}

fn term(hasher: &mut FastHasher, term: &PodAffinityTerm) {
    hasher.text(&term.topology_key);
    selector(hasher, term.label_selector.as_ref());
}

fn node_term(hasher: &mut FastHasher, term: &NodeSelectorTerm) {
    for expression in term.match_expressions.iter().flatten() {
        hasher.text(&expression.key);
        hasher.text(&expression.operator);
        expression
            .values
            .iter()
            .flatten()
            .for_each(|value| hasher.text(value));
    }
    hasher.write_u8(2);
}

fn affinity(hasher: &mut FastHasher, affinity: &Affinity) {
    if let Some(node) = &affinity.node_affinity {
        let required = node.required_during_scheduling_ignored_during_execution.iter();
        required
            .flat_map(|selector| &selector.node_selector_terms)
            .for_each(|item| node_term(hasher, item));
        for item in node
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
        {
            hasher.write_u32(item.weight.unsigned_abs());
            node_term(hasher, &item.preference);
        }
    }
    let together = affinity.pod_affinity.as_ref();
    let apart = affinity.pod_anti_affinity.as_ref();
    let required = [
        together.and_then(|item| item.required_during_scheduling_ignored_during_execution.as_ref()),
        apart.and_then(|item| item.required_during_scheduling_ignored_during_execution.as_ref()),
    ];
    for list in required {
        hasher.write_u8(3);
        list.into_iter().flatten().for_each(|item| term(hasher, item));
    }
    let preferred = [
        together.and_then(|item| item.preferred_during_scheduling_ignored_during_execution.as_ref()),
        apart.and_then(|item| item.preferred_during_scheduling_ignored_during_execution.as_ref()),
    ];
    for list in preferred {
        hasher.write_u8(4);
        for item in list.into_iter().flatten() {
            hasher.write_u32(item.weight.unsigned_abs());
            term(hasher, &item.pod_affinity_term);
        }
    }
}
