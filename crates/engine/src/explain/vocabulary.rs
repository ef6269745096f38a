//! The fields whose change may schedule a pod, each changed as far as it goes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use veneer_api::NodePool;

use crate::labels::normalise;
use crate::packing::probe::{Edit, Rule, step};
use crate::packing::{Objects, PodRecord, requests};
use crate::quantity::Quantity;
use crate::taints::untolerated;

/// What may change for the pod at `position`, apart from the values that a NodePool allows.
pub(super) fn vocabulary(objects: &Objects, position: usize) -> Vec<Edit> {
    let Some(pod) = objects.pods.get(position) else {
        return Vec::new();
    };
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let mut edits: Vec<Edit> = taints(objects, pod)
        .into_iter()
        .map(|taint| Edit::Tolerate { taint })
        .collect();
    edits.extend(label_keys(pod).into_iter().map(|key| Edit::DropLabel { key }));
    edits.extend(rules(pod));
    let mut ports = spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    if ports.any(|port| port.host_port.is_some_and(|port| port != 0)) {
        edits.push(Edit::DropHostPorts);
    }
    if spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|gates| !gates.is_empty())
    {
        edits.push(Edit::DropGates);
    }
    for (resource, from) in requests(pod).unwrap_or_default().iter() {
        let least = Quantity::from_nanos(step(resource)).with_format(from.format());
        if resource != "pods" && *from > least {
            edits.push(Edit::LowerRequest {
                resource: resource.to_owned(),
                from: from.clone(),
                to: least,
            });
        }
    }
    objects
        .node_pools
        .iter()
        .for_each(|pool| of_pool(pool, &mut edits));
    edits
}

fn of_pool(pool: &NodePool, edits: &mut Vec<Edit>) {
    let node_pool = pool.metadata.name.clone().unwrap_or_default();
    for (resource, text) in &pool.spec.limits {
        let Ok(from) = text.0.parse::<Quantity>() else {
            continue;
        };
        // More than any cluster has, and still a number that can be halved a few dozen times.
        let to = from
            .nanos()
            .unwrap_or(0)
            .saturating_mul(1024)
            .saturating_add(1_000_000_000 << 44);
        edits.push(Edit::RaiseLimit {
            node_pool: node_pool.clone(),
            resource: resource.clone(),
            to: Quantity::from_nanos(to).with_format(from.format()),
            from,
        });
    }
    for requirement in &pool.spec.template.spec.requirements {
        if let Some(from) = requirement.min_values.filter(|minimum| *minimum > 1) {
            edits.push(Edit::LowerMinValues {
                node_pool: node_pool.clone(),
                key: normalise(&requirement.key).to_owned(),
                from,
                to: 1,
            });
        }
    }
}

/// The taints of NodePools and nodes that a pod does not tolerate.
fn taints(objects: &Objects, pod: &PodRecord) -> Vec<Taint> {
    let of_pools = objects
        .node_pools
        .iter()
        .map(|pool| pool.spec.template.spec.taints.as_slice());
    let of_nodes = objects.nodes.iter().map(|node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        taints.unwrap_or_default()
    });
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    let mut seen: BTreeSet<(String, Option<String>, String)> = BTreeSet::new();
    let mut taints = Vec::new();
    for list in of_pools.chain(of_nodes) {
        for taint in untolerated(list, tolerations.unwrap_or_default()) {
            if seen.insert((taint.key.clone(), taint.value.clone(), taint.effect.clone())) {
                taints.push(taint.clone());
            }
        }
    }
    taints
}

/// The labels that a pod demands something of.
fn label_keys(pod: &PodRecord) -> BTreeSet<String> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let selector = spec.node_selector.iter().flatten().map(|(key, _)| key);
    let terms = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .map_or(&[][..], |required| &required.node_selector_terms);
    let expressions = terms
        .iter()
        .flat_map(|term| term.match_expressions.iter().flatten());
    selector
        .chain(expressions.map(|expression| &expression.key))
        .map(|key| normalise(key).to_owned())
        .collect()
}

/// The changes that give up each of a pod's rules about other pods.
fn rules(pod: &PodRecord) -> Vec<Edit> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let mut found: BTreeSet<(Rule, String)> = BTreeSet::new();
    for spread in spec.topology_spread_constraints.iter().flatten() {
        if spread.when_unsatisfiable == "DoNotSchedule" {
            found.insert((Rule::Spread, spread.topology_key.clone()));
        }
    }
    if let Some(affinity) = &spec.affinity {
        let together = affinity.pod_affinity.iter();
        let together = together.flat_map(|rules| {
            rules
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
        });
        found.extend(together.map(|term| (Rule::Affinity, term.topology_key.clone())));
        let apart = affinity.pod_anti_affinity.iter();
        let apart = apart.flat_map(|rules| {
            rules
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
        });
        found.extend(apart.map(|term| (Rule::AntiAffinity, term.topology_key.clone())));
    }
    found
        .into_iter()
        .map(|(rule, key)| Edit::DropRule { rule, key })
        .collect()
}
