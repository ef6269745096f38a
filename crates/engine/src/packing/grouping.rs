//! Pods put into groups: which are alike, and in which order they are placed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;

use super::cluster::node_name;
use super::constraints::Constraints;
use super::fingerprint::{demands_hash, has_status_resources, same_demands, same_size, size_hash};
use super::forms::Form;
use super::hash::{FastHasher, FastMap};
use super::host_ports::{HostPort, host_ports};
use super::ids::{Id, ShapeId, SizeId, StateId, SubjectId, Table};
use super::pod_requests::pod_requests;
use super::pods::{PodEntry, device_fault, fault};
use super::shapes::{Source, SubjectRules, Subjects, project, relevant_labels};
use super::states::States;
use super::volumes::Storage;
use super::{Objects, PreferencePolicy, Reason, Unschedulable};
use super::{PodMetadata, PodRecord};
use crate::labels::LabelRules;
use crate::quantity::Quantity;
use crate::resources::{CPU, MEMORY, ResourceList};

/// One pod of each kind that was met, by hash.
#[derive(Default)]
struct Book<'a> {
    by_hash: FastMap<u64, Vec<(&'a PodRecord, usize)>>,
    /// By the address of what pods share: the same object needs no comparison.
    by_address: FastMap<usize, usize>,
    kinds: Vec<&'a PodRecord>,
}

impl<'a> Book<'a> {
    /// The number of the pod's kind; pods with the same hash are told apart by `same`.
    fn number(
        &mut self,
        pod: &'a PodRecord,
        hash: u64,
        same: impl Fn(&PodRecord, &PodRecord) -> bool,
    ) -> usize {
        let alike = self.by_hash.entry(hash).or_default();
        if let Some((_, known)) = alike.iter().find(|(other, _)| same(other, pod)) {
            return *known;
        }
        alike.push((pod, self.kinds.len()));
        self.kinds.push(pod);
        self.kinds.len() - 1
    }

    /// The number of a kind that the spec alone decides.
    fn number_by_spec(
        &mut self,
        pod: &'a PodRecord,
        hash: impl Fn(&PodSpec) -> u64,
        same: impl Fn(&PodRecord, &PodRecord) -> bool,
    ) -> usize {
        let address = pod.spec.as_ref().map_or(0, |spec| Arc::as_ptr(spec).addr());
        if let Some(known) = self.by_address.get(&address) {
            return *known;
        }
        let number = self.number(pod, pod.spec.as_deref().map_or(0, hash), same);
        self.by_address.insert(address, number);
        number
    }
}

/// Holds two specs against each other; pods without one are alike.
fn specs(a: &PodRecord, b: &PodRecord, same: impl Fn(&PodSpec, &PodSpec) -> bool) -> bool {
    match (&a.spec, &b.spec) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || same(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// The sizes of pods, each kept once.
#[derive(Default)]
pub(super) struct SizeBook<'a> {
    book: Book<'a>,
    pub(super) lists: Table<SizeId, ResourceList>,
    faults: FastMap<SizeId, String>,
}

impl<'a> SizeBook<'a> {
    pub(super) fn size(&mut self, pod: &'a PodRecord) -> SizeId {
        let resized = |pod: &PodRecord| pod.status.as_deref().is_some_and(has_status_resources);
        let number = if resized(pod) {
            // What its containers have counts too.
            let hash = !pod.spec.as_deref().map_or(0, size_hash);
            let same = |a: &PodSpec, b: &PodSpec| a.containers == b.containers && same_size(a, b);
            self.book
                .number(pod, hash, |a, b| a.status == b.status && specs(a, b, same))
        } else {
            self.book
                .number_by_spec(pod, size_hash, |a, b| !resized(a) && specs(a, b, same_size))
        };
        let id = SizeId::new(number);
        if id.index() == self.lists.len() {
            let list = pod_requests(pod).unwrap_or_else(|unreadable| {
                self.faults.insert(id, unreadable.to_string());
                ResourceList::new()
            });
            self.lists.push(list);
        }
        id
    }

    /// The pod's size, or why it cannot be read.
    fn readable_size(&mut self, pod: &'a PodRecord) -> Result<SizeId, String> {
        let id = self.size(pod);
        self.faults.get(&id).map_or(Ok(id), |fault| Err(fault.clone()))
    }
}

fn namespace(pod: &PodRecord) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The labels that matter. Rules may look at far more labels than a pod has.
fn labels<'p>(
    pod: &'p PodRecord,
    relevant: &BTreeSet<&str>,
) -> impl Iterator<Item = (&'p String, &'p String)> {
    let labels = pod.metadata.labels.as_deref().into_iter().flatten();
    labels.filter(|(key, _)| relevant.contains(key.as_str()))
}

/// A hash of the namespace and the labels that matter.
fn label_hash(pod: &PodRecord, relevant: &BTreeSet<&str>) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.text(namespace(pod));
    for (key, value) in labels(pod, relevant) {
        hasher.text(key);
        hasher.text(value);
    }
    hasher.finish()
}

fn same_labels(a: &PodRecord, b: &PodRecord, relevant: &BTreeSet<&str>) -> bool {
    namespace(a) == namespace(b) && labels(a, relevant).eq(labels(b, relevant))
}

/// The pods to be placed, grouped; shapes are still to be compiled.
pub(super) struct Grouped<'a> {
    pub(super) entries: Vec<PodEntry>,
    pub(super) sources: Table<ShapeId, Source>,
    pub(super) subjects: Subjects,
    /// The namespaces of pods, by number.
    pub(super) namespaces: Vec<Arc<str>>,
    pub(super) refused: Vec<Unschedulable>,
    /// The labels that rules look at; pods that differ in others only are alike.
    pub(super) relevant: BTreeSet<&'a str>,
}

/// What the pods of one list of demands have in common.
struct Demands {
    /// Why none of them that is pending can be scheduled, if so.
    fault: Option<String>,
    device_fault: Option<String>,
    form: Form,
    ports: Arc<[HostPort]>,
}

/// Groups the pods at `positions`, in their order. `on_nodes` are the pods whose anti-affinity counts too.
pub(super) fn group<'a>(
    objects: &'a Objects,
    positions: &[usize],
    on_nodes: impl Iterator<Item = &'a PodRecord>,
    policy: PreferencePolicy,
    sizes: &mut SizeBook<'a>,
    (storage, rules, states): (&Storage<'_>, &LabelRules, &mut States),
) -> Grouped<'a> {
    let mut book = Book::default();
    let pods: Vec<(usize, &PodRecord, usize)> = positions
        .iter()
        .filter_map(|&position| {
            let pod = objects.pods.get(position)?;
            Some((
                position,
                pod,
                book.number_by_spec(pod, demands_hash, |a, b| specs(a, b, same_demands)),
            ))
        })
        .collect();
    let relevant = relevant_labels(book.kinds.iter().copied().chain(on_nodes));
    let demands: Vec<Demands> = book
        .kinds
        .iter()
        .map(|pod| Demands {
            fault: fault(pod, rules),
            device_fault: device_fault(pod),
            form: Form::new(Arc::new(Constraints::of(pod, policy))),
            ports: host_ports(pod).into(),
        })
        .collect();
    let mut label_book = Book::default();
    let mut namespace_numbers: FastMap<&str, usize> = FastMap::default();
    // What tells shapes apart: the demands, the namespace and labels, and what the volumes demand.
    let mut shape_of: FastMap<(usize, usize, Vec<StateId>), ShapeId> = FastMap::default();
    let mut grouped = Grouped {
        entries: Vec::with_capacity(pods.len()),
        sources: Table::default(),
        subjects: Table::default(),
        namespaces: Vec::new(),
        refused: Vec::new(),
        relevant,
    };
    for (position, pod, number) in pods {
        let Some(of_pod) = demands.get(number) else {
            continue;
        };
        let mounts = Storage::mounts_claims(pod);
        let while_pending = || {
            let by_volumes = || if mounts { storage.fault(pod) } else { None };
            match node_name(pod) {
                None => of_pod.fault.clone().or_else(by_volumes),
                Some(_) => None,
            }
        };
        let fault = of_pod.device_fault.clone().or_else(while_pending);
        let size = match fault.map_or_else(|| sizes.readable_size(pod), Err) {
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
        let mut volumes: Vec<StateId> = Vec::new();
        let mut attached = Vec::new();
        if mounts {
            let alternatives = storage.requirements(pod, &mut states.vocabulary);
            volumes.extend(
                alternatives
                    .into_iter()
                    .map(|requirements| states.intern(requirements)),
            );
            attached = storage.attached(pod);
        }
        let hash = label_hash(pod, &grouped.relevant);
        let label_number = label_book.number(pod, hash, |a, b| same_labels(a, b, &grouped.relevant));
        if label_number == grouped.subjects.len() {
            let number = *namespace_numbers.entry(namespace(pod)).or_insert_with(|| {
                grouped.namespaces.push(namespace(pod).into());
                grouped.namespaces.len() - 1
            });
            if let Some(namespace) = grouped.namespaces.get(number) {
                let labels = project(pod, &grouped.relevant);
                let subject = SubjectRules::new(Arc::clone(namespace), number, labels);
                grouped.subjects.push(subject);
            }
        }
        let subject = SubjectId::new(label_number);
        let shape = *shape_of
            .entry((number, label_number, volumes))
            .or_insert_with_key(|(.., volumes)| {
                grouped.sources.push(Source {
                    form: of_pod.form.clone(),
                    is_deferred: false,
                    subject,
                    ports: Arc::clone(&of_pod.ports),
                    volumes: volumes.as_slice().into(),
                })
            });
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
fn identity(metadata: &PodMetadata) -> Cow<'_, str> {
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
