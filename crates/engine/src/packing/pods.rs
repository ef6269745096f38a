//! Which pods are to be placed, and which are refused before anything is tried.

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::PodRecord;
use super::cluster::{ClusterNode, is_daemon, is_owned_by, is_terminal, node_name};
use super::constraints::Constraints;
use super::fingerprint::needs_devices;
use super::ids::{ShapeId, SizeId};
use super::volumes::Attached;
use super::{Objects, PreferencePolicy};
use crate::labels::{self, LabelRules};
use crate::requirements::Operator;
use crate::vocabulary::Vocabulary;

/// A pod to be placed.
#[derive(Clone, Debug)]
pub(super) struct PodEntry {
    /// Its position in [`Objects::pods`].
    pub(super) position: usize,
    pub(super) shape: ShapeId,
    pub(super) size: SizeId,
    /// The volumes that count against what a node can attach.
    pub(super) attached: Vec<Attached>,
}

/// The pods that are to be placed, by position: those on no node, and those on nodes that go away.
pub(super) fn to_be_placed(objects: &Objects, nodes: &[ClusterNode<'_>]) -> Vec<usize> {
    let pending = objects
        .pods
        .iter()
        .enumerate()
        .filter(|(_, pod)| is_pending(pod))
        .map(|(at, _)| at);
    let leaving = nodes
        .iter()
        .filter(|node| node.is_deleting())
        .flat_map(|node| &node.pods)
        .copied();
    let leaving = leaving.filter(|at| objects.pods.get(*at).is_some_and(is_reschedulable));
    pending.chain(leaving).collect()
}

fn is_pending(pod: &PodRecord) -> bool {
    let nominated = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_deref());
    let gated = pod
        .spec
        .iter()
        .flat_map(|spec| spec.scheduling_gates.iter().flatten())
        .next()
        .is_some();
    node_name(pod).is_none()
        && !is_terminal(pod)
        && !gated
        && nominated.is_none_or(str::is_empty)
        && !is_daemon(pod)
        && !is_owned_by(pod, "v1", "Node")
}

fn is_reschedulable(pod: &PodRecord) -> bool {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    (!terminating || is_owned_by(pod, "apps/v1", "StatefulSet"))
        && !pod.metadata.do_not_disrupt
        && !is_daemon(pod)
        && !is_owned_by(pod, "v1", "Node")
}

/// Why a pod that needs devices is not scheduled, pending or not.
pub(super) fn device_fault(pod: &PodRecord) -> Option<String> {
    let needs = pod.spec.as_deref().is_some_and(needs_devices);
    needs.then(|| "needs dynamic resource allocation (resourceClaims), which is not supported".to_owned())
}

/// What in a pending pod's demands makes it impossible to schedule whatever there is. Pods that leave a node are
/// taken as they are: they ran already.
pub(super) fn fault(pod: &PodRecord, rules: &LabelRules) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
    if avoids_node_pools(pod) {
        return Some(format!(
            "demands {} DoesNotExist, so it never goes to nodes of a NodePool",
            labels::NODE_POOL
        ));
    }
    let selector = spec.node_selector.iter().flatten();
    let by_selector = selector.filter_map(|(key, value)| {
        label_fault(key, Operator::In, std::slice::from_ref(value), rules)
            .map(|fault| format!("spec.nodeSelector: {fault}"))
    });
    let by_affinity = terms.iter().filter_map(|term| term_fault(term, rules));
    by_selector.chain(by_affinity).next()
}

fn avoids_node_pools(pod: &PodRecord) -> bool {
    let mut vocabulary = Vocabulary::new();
    let constraints = Constraints::of(pod, PreferencePolicy::Respect);
    let requirements = constraints.read(
        constraints.first_alternative(),
        constraints.preference(0),
        &mut vocabulary,
    );
    let key = vocabulary.get(labels::NODE_POOL);
    key.and_then(|key| requirements.get(key))
        .is_some_and(|requirement| requirement.operator() == Operator::DoesNotExist)
}

fn term_fault(term: &NodeSelectorTerm, rules: &LabelRules) -> Option<String> {
    if term.match_fields.iter().flatten().next().is_some() {
        return Some("node affinity with matchFields is not supported; use matchExpressions".to_owned());
    }
    term.match_expressions.iter().flatten().find_map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        let fault = match expression.operator.parse::<Operator>() {
            Ok(operator) => label_fault(&expression.key, operator, values, rules),
            Err(unknown) => Some(unknown.to_string()),
        };
        fault.map(|fault| format!("node affinity, label {:?}: {fault}", expression.key))
    })
}

fn label_fault(key: &str, operator: Operator, values: &[String], rules: &LabelRules) -> Option<String> {
    let key = labels::normalise(key);
    if rules.is_restricted(key) {
        return Some(format!(
            "label {key:?} is set by the provisioner and cannot be selected"
        ));
    }
    if let Err(error) = labels::check_key(key) {
        return Some(format!("label {key:?} {error}"));
    }
    if let Some((value, error)) = values
        .iter()
        .find_map(|value| Some((value, labels::check_value(value).err()?)))
    {
        return Some(format!("value {value:?} of label {key:?} {error}"));
    }
    let single_integer = match values {
        [value] => value.parse::<i64>().is_ok_and(|value| value >= 0),
        _ => false,
    };
    match operator {
        Operator::In if values.is_empty() => Some("In needs at least one value".to_owned()),
        operator if operator.is_bound() && !single_integer => {
            Some(format!("{operator} needs exactly one integer of 0 or more"))
        }
        _ => None,
    }
}
