//! Carries changes out on objects, as their author would.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use veneer_api::NodePool;
use veneer_api::Operator;

use crate::labels::normalise;
use crate::packing::probe::{Edit, Rule};
use crate::packing::{Objects, PodRecord, requests};
use crate::quantity::Quantity;

/// Carries out `edit`, for the pod at `position`. Says whether it could.
pub fn apply(edit: &Edit, objects: &mut Objects, position: usize) -> bool {
    match edit.node_pool() {
        Some(name) => {
            let mut pools = objects.node_pools.iter_mut();
            let pool = pools.find(|pool| pool.metadata.name.as_deref() == Some(name));
            pool.is_some_and(|pool| change_pool(edit, pool))
        }
        None => objects
            .pods
            .get_mut(position)
            .is_some_and(|pod| change_pod(edit, pod)),
    }
}

fn change_pod(edit: &Edit, pod: &mut PodRecord) -> bool {
    if let Edit::LowerRequest { resource, to, .. } = edit {
        return lower_request(pod, resource, to);
    }
    let Some(spec) = pod.spec.as_mut().map(Arc::make_mut) else {
        return false;
    };
    match edit {
        Edit::Tolerate { taint } => {
            let value = taint.value.clone().filter(|value| !value.is_empty());
            spec.tolerations.get_or_insert_default().push(Toleration {
                key: Some(taint.key.clone()),
                operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
                value,
                effect: Some(taint.effect.clone()),
                toleration_seconds: None,
            });
        }
        Edit::DropLabel { key } => drop_label(spec, key),
        Edit::DropRule { rule, key } => drop_rule(spec, *rule, key),
        Edit::DropHostPorts => {
            let containers = spec.containers.iter_mut();
            containers
                .flat_map(|container| container.ports.iter_mut().flatten())
                .for_each(|port| port.host_port = None);
        }
        Edit::DropGates => spec.scheduling_gates = None,
        Edit::LowerRequest { .. }
        | Edit::Allow { .. }
        | Edit::RaiseLimit { .. }
        | Edit::LowerMinValues { .. } => return false,
    }
    true
}

fn drop_label(spec: &mut PodSpec, key: &str) {
    if let Some(selector) = &mut spec.node_selector {
        selector.retain(|label, _| normalise(label) != key);
    }
    let node_affinity = spec
        .affinity
        .as_mut()
        .and_then(|affinity| affinity.node_affinity.as_mut());
    let Some(affinity) = node_affinity else { return };
    if let Some(required) = &mut affinity.required_during_scheduling_ignored_during_execution {
        for term in &mut required.node_selector_terms {
            if let Some(expressions) = &mut term.match_expressions {
                expressions.retain(|expression| normalise(&expression.key) != key);
            }
        }
    }
}

fn drop_rule(spec: &mut PodSpec, rule: Rule, key: &str) {
    match rule {
        Rule::Spread => {
            if let Some(spreads) = &mut spec.topology_spread_constraints {
                spreads.retain(|spread| spread.topology_key != key);
            }
        }
        Rule::Affinity => {
            let together = spec
                .affinity
                .as_mut()
                .and_then(|affinity| affinity.pod_affinity.as_mut());
            let terms =
                together.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_mut());
            if let Some(terms) = terms {
                terms.retain(|term| term.topology_key != key);
            }
        }
        Rule::AntiAffinity => {
            let apart = spec
                .affinity
                .as_mut()
                .and_then(|affinity| affinity.pod_anti_affinity.as_mut());
            let terms =
                apart.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_mut());
            if let Some(terms) = terms {
                terms.retain(|term| term.topology_key != key);
            }
        }
    }
}

type Requests = BTreeMap<String, Text>;

fn container_requests(container: &mut Container) -> Option<&mut Requests> {
    container.resources.as_mut()?.requests.as_mut()
}

/// Lowers what the pod as a whole asks for to at most `to`: from its containers in their order, and from each init
/// container what is above it.
fn lower_request(pod: &mut PodRecord, resource: &str, to: &Quantity) -> bool {
    let asked = |pod: &PodRecord| requests(pod).and_then(|list| list.get(resource).and_then(Quantity::nanos));
    let (Some(now), Some(most)) = (asked(pod), to.nanos()) else {
        return false;
    };
    let mut excess = now - most;
    let write = |nanos: i128| Text(Quantity::from_nanos(nanos).with_format(to.format()).to_string());
    let read = |text: &Text| {
        text.0
            .parse::<Quantity>()
            .ok()
            .and_then(|quantity| quantity.nanos())
    };
    if let Some(spec) = pod.spec.as_mut().map(Arc::make_mut) {
        let of_pod = spec
            .resources
            .as_mut()
            .and_then(|resources| resources.requests.as_mut());
        if let Some(whole) = of_pod.and_then(|requests| requests.get_mut(resource)) {
            *whole = write(most.max(0));
        }
        let containers = spec.containers.iter_mut();
        let init = spec.init_containers.iter_mut().flatten();
        for (container, is_init) in containers
            .map(|one| (one, false))
            .chain(init.map(|one| (one, true)))
        {
            let Some(text) = container_requests(container).and_then(|requests| requests.get_mut(resource))
            else {
                continue;
            };
            let Some(own) = read(text) else { return false };
            let left = if is_init {
                own.min(most)
            } else {
                (own - excess).max(0)
            };
            if !is_init {
                excess = (excess - own).max(0);
            }
            *text = write(left);
        }
    }
    asked(pod).is_none_or(|now| now <= most)
}

fn change_pool(edit: &Edit, pool: &mut NodePool) -> bool {
    match edit {
        Edit::Allow { key, value, .. } => allow(pool, key, value),
        Edit::RaiseLimit { resource, to, .. } => {
            let text = Text(to.to_string());
            pool.spec.limits.insert(resource.clone(), text);
            true
        }
        Edit::LowerMinValues { key, to, .. } => {
            let requirements = pool.spec.template.spec.requirements.iter_mut();
            requirements
                .filter(|requirement| normalise(&requirement.key) == key)
                .for_each(|requirement| {
                    requirement.min_values = requirement.min_values.map(|now| now.min(*to));
                });
            true
        }
        _ => false,
    }
}

/// Lets a NodePool have `value`; one that a label of its template fixes stays as it is.
fn allow(pool: &mut NodePool, key: &str, value: &str) -> bool {
    let labels = &pool.spec.template.metadata.labels;
    if labels
        .iter()
        .any(|(label, fixed)| normalise(label) == key && fixed != value)
    {
        return false;
    }
    let number: Option<i64> = value.parse().ok();
    let requirements = &mut pool.spec.template.spec.requirements;
    for requirement in requirements.iter_mut().filter(|one| normalise(&one.key) == key) {
        let bound = requirement
            .values
            .first()
            .and_then(|text| text.parse::<i64>().ok());
        let moved = match (requirement.operator.clone(), number, bound) {
            (Operator::In, ..) => {
                if !requirement.values.iter().any(|known| known == value) {
                    requirement.values.push(value.to_owned());
                }
                None
            }
            (Operator::NotIn, ..) => {
                requirement.values.retain(|known| known != value);
                None
            }
            (Operator::Gt, Some(number), Some(bound)) if number <= bound => Some(number - 1),
            (Operator::Lt, Some(number), Some(bound)) if number >= bound => Some(number + 1),
            (Operator::Gte, Some(number), Some(bound)) if number < bound => Some(number),
            (Operator::Lte, Some(number), Some(bound)) if number > bound => Some(number),
            _ => None,
        };
        if let Some(moved) = moved {
            requirement.values = vec![moved.to_string()];
        }
    }
    requirements.retain(|one| {
        normalise(&one.key) != key
            || !(one.operator == Operator::DoesNotExist
                || (one.operator == Operator::NotIn && one.values.is_empty()))
    });
    true
}
