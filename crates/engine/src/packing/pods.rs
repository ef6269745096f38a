//! Which pods are to be placed, in which order, and which are refused before anything is tried.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use veneer_api::labels::karpenter;

use super::cluster::{ClusterNode, is_daemon, is_owned_by, is_terminal, node_name};
use super::constraints::Constraints;
use super::fingerprint::{demands_hash, needs_devices, same_demands, same_size, size_hash};
use super::hash::FastMap;
use super::host_ports::{HostPort, host_ports};
use super::ids::{Id, ShapeId, SizeId, StateId, Table};
use super::pod_requests::pod_requests;
use super::shapes::{Source, project, relevant_labels};
use super::states::States;
use super::volumes::{Attached, Storage};
use super::{Objects, PreferencePolicy, Reason, Unschedulable};
use crate::labels::{self, LabelRules};
use crate::quantity::Quantity;
use crate::requirements::Operator;
use crate::resources::{CPU, MEMORY, ResourceList};

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

fn is_pending(pod: &Pod) -> bool {
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

fn is_reschedulable(pod: &Pod) -> bool {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let protected = pod
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(key, value)| key == karpenter::DO_NOT_DISRUPT && value == "true");
    (!terminating || is_owned_by(pod, "apps/v1", "StatefulSet"))
        && !protected
        && !is_daemon(pod)
        && !is_owned_by(pod, "v1", "Node")
}

/// What in the pod's demands makes it impossible to schedule whatever there is.
fn fault(pod: &Pod, rules: &LabelRules) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if needs_devices(spec) {
        return Some("needs dynamic resource allocation (resourceClaims), which is not supported".to_owned());
    }
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

fn avoids_node_pools(pod: &Pod) -> bool {
    let mut vocabulary = crate::vocabulary::Vocabulary::new();
    let constraints = Constraints::of(pod, PreferencePolicy::Respect);
    let requirements = constraints.requirements(&mut vocabulary);
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

/// The sizes of pods, each kept once.
#[derive(Default)]
pub(super) struct SizeBook<'a> {
    by_hash: FastMap<u64, Vec<(&'a Pod, SizeId)>>,
    pub(super) lists: Table<SizeId, ResourceList>,
    faults: FastMap<SizeId, String>,
}

impl<'a> SizeBook<'a> {
    pub(super) fn size(&mut self, pod: &'a Pod) -> SizeId {
        let bucket = self.by_hash.entry(size_hash(pod)).or_default();
        if let Some((_, known)) = bucket.iter().find(|(other, _)| same_size(other, pod)) {
            return *known;
        }
        let (list, fault) = match pod_requests(pod) {
            Ok(list) => (list, None),
            Err(unreadable) => (ResourceList::new(), Some(unreadable.to_string())),
        };
        let id = self.lists.push(list);
        bucket.push((pod, id));
        if let Some(fault) = fault {
            self.faults.insert(id, fault);
        }
        id
    }

    /// The pod's size, or why it cannot be read.
    fn readable_size(&mut self, pod: &'a Pod) -> Result<SizeId, String> {
        let id = self.size(pod);
        self.faults.get(&id).map_or(Ok(id), |fault| Err(fault.clone()))
    }
}

/// The demands of pods, each kept once.
#[derive(Default)]
struct DemandBook<'a> {
    by_hash: FastMap<u64, Vec<(&'a Pod, usize)>>,
    /// A pod of each kind, and what makes it impossible to schedule.
    demands: Vec<(&'a Pod, Option<String>)>,
}

impl<'a> DemandBook<'a> {
    /// The number of the pod's demands; `fault` is only asked about new ones.
    fn number(&mut self, pod: &'a Pod, fault: impl FnOnce() -> Option<String>) -> usize {
        let bucket = self.by_hash.entry(demands_hash(pod)).or_default();
        if let Some((_, known)) = bucket.iter().find(|(other, _)| same_demands(other, pod)) {
            return *known;
        }
        let number = self.demands.len();
        self.demands.push((pod, fault()));
        bucket.push((pod, number));
        number
    }
}

/// The pods to be placed, grouped; shapes are still to be compiled.
pub(super) struct Grouped<'a> {
    pub(super) entries: Vec<PodEntry>,
    pub(super) sources: Table<ShapeId, Source>,
    pub(super) refused: Vec<Unschedulable>,
    /// The labels that rules look at; pods that differ in others only are alike.
    pub(super) relevant: BTreeSet<&'a str>,
}

/// What tells shapes apart: the demands, the namespace, the labels that matter and what the volumes demand.
type ShapeKey = (usize, Arc<str>, BTreeMap<String, String>, Vec<StateId>);

/// Groups the pods at `positions`, in their order. `on_nodes` are the pods whose anti-affinity counts too.
pub(super) fn group<'a>(
    objects: &'a Objects,
    positions: &[usize],
    on_nodes: impl Iterator<Item = &'a Pod>,
    policy: PreferencePolicy,
    sizes: &mut SizeBook<'a>,
    (storage, rules, states): (&Storage<'_>, &LabelRules, &mut States),
) -> Grouped<'a> {
    let mut book = DemandBook::default();
    let pods: Vec<(usize, &Pod, usize)> = positions
        .iter()
        .filter_map(|&position| {
            let pod = objects.pods.get(position)?;
            Some((position, pod, book.number(pod, || fault(pod, rules))))
        })
        .collect();
    let relevant = relevant_labels(book.demands.iter().map(|(pod, _)| *pod).chain(on_nodes));
    let compiled: Vec<(Arc<Constraints>, Arc<[HostPort]>)> = book
        .demands
        .iter()
        .map(|(pod, _)| (Arc::new(Constraints::of(pod, policy)), host_ports(pod).into()))
        .collect();
    let mut grouped = Grouped {
        entries: Vec::with_capacity(pods.len()),
        sources: Table::default(),
        refused: Vec::new(),
        relevant,
    };
    let mut shape_of: FastMap<ShapeKey, ShapeId> = FastMap::default();
    let mut namespaces: FastMap<&str, Arc<str>> = FastMap::default();
    for (position, pod, number) in pods {
        let mounts = Storage::mounts_claims(pod);
        let by_demands = book.demands.get(number).and_then(|(_, fault)| fault.clone());
        let by_volumes = || if mounts { storage.fault(pod) } else { None };
        let size = match by_demands
            .or_else(by_volumes)
            .map_or_else(|| sizes.readable_size(pod), Err)
        {
            Ok(size) => size,
            Err(message) => {
                let reasons = vec![Reason {
                    node_pool: None,
                    message,
                }];
                grouped.refused.push(Unschedulable {
                    pod: position,
                    reasons,
                });
                continue;
            }
        };
        let volumes: Vec<StateId> = if mounts {
            let alternatives = storage.requirements(pod, &mut states.vocabulary);
            alternatives
                .into_iter()
                .map(|requirements| states.intern(requirements))
                .collect()
        } else {
            Vec::new()
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let namespace = namespaces
            .entry(namespace)
            .or_insert_with(|| Arc::from(namespace));
        let key: ShapeKey = (
            number,
            Arc::clone(namespace),
            project(pod, &grouped.relevant),
            volumes,
        );
        let shape = match (shape_of.get(&key), compiled.get(number)) {
            (Some(known), _) => *known,
            (None, None) => continue,
            (None, Some((constraints, ports))) => {
                let id = grouped.sources.push(Source {
                    constraints: Arc::clone(constraints),
                    namespace: Arc::clone(&key.1),
                    labels: Arc::new(key.2.clone()),
                    ports: Arc::clone(ports),
                    volumes: key.3.clone().into(),
                });
                shape_of.insert(key, id);
                id
            }
        };
        let attached = if mounts { storage.attached(pod) } else { Vec::new() };
        grouped.entries.push(PodEntry {
            position,
            shape,
            size,
            attached,
        });
    }
    grouped
}

/// Sorts pods as the queue does: by cpu, then memory, largest first, then by age, then by uid.
pub(super) fn sort(
    entries: Vec<PodEntry>,
    objects: &Objects,
    lists: &Table<SizeId, ResourceList>,
) -> Vec<PodEntry> {
    let mut by_size: Vec<(SizeId, Quantity, Quantity)> = lists
        .ids()
        .map(|size| {
            let request = |resource| lists[size].get(resource).cloned().unwrap_or_default();
            (size, request(CPU), request(MEMORY))
        })
        .collect();
    by_size.sort_by(|a, b| (&b.1, &b.2).cmp(&(&a.1, &a.2)));
    let mut ranks = vec![0_usize; by_size.len()];
    for (rank, alike) in by_size.chunk_by(|a, b| (&a.1, &a.2) == (&b.1, &b.2)).enumerate() {
        for (size, ..) in alike {
            if let Some(slot) = ranks.get_mut(size.index()) {
                *slot = rank;
            }
        }
    }
    let mut keyed: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            let metadata = objects.pods.get(entry.position).map(|pod| &pod.metadata);
            let rank = ranks.get(entry.size.index()).copied().unwrap_or(0);
            let created = metadata.and_then(|metadata| metadata.creation_timestamp.as_ref());
            (rank, created, metadata.map(identity).unwrap_or_default(), entry)
        })
        .collect();
    keyed.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    keyed.into_iter().map(|(.., entry)| entry).collect()
}

/// The uid, or what stands for it in a file that has none.
fn identity(metadata: &ObjectMeta) -> Cow<'_, str> {
    match metadata.uid.as_deref() {
        Some(uid) if !uid.is_empty() => Cow::Borrowed(uid),
        _ => {
            let namespace = metadata.namespace.as_deref().unwrap_or("default");
            Cow::Owned(format!(
                "{namespace}/{}",
                metadata.name.as_deref().unwrap_or_default()
            ))
        }
    }
}
