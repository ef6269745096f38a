//! DaemonSets: what they take of every node that they run on.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;

use super::PodRecord;
use super::amounts::{Amount, Dimensions, add};
use super::constraints::{Constraints, with_prefer_no_schedule};
use super::fingerprint::needs_devices;
use super::host_ports::{HostPort, host_ports};
use super::ids::{StateId, TaintsId};
use super::pod_requests::pod_requests;
use super::states::{Side, States};
use super::taints::TaintLists;
use super::types::Types;
use super::{Objects, PreferencePolicy};
use crate::bitset::BitSet;
use crate::resources::ResourceList;

/// One DaemonSet's pod.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    /// Its demands. OR-ed node affinity terms that did not fit a type are gone for all later ones: Karpenter drops
    /// them from the pod that it keeps.
    constraints: Constraints,
    pub(super) requests: ResourceList,
    ports: Vec<HostPort>,
}

/// The pods of all DaemonSets: the newest existing one of each, or one made from its template.
pub(super) fn daemons(objects: &Objects) -> Vec<Daemon> {
    objects
        .daemon_sets
        .iter()
        .filter_map(|daemon_set| daemon(daemon_set, objects))
        .collect()
}

/// The pod of one DaemonSet, unless it needs dynamic resource allocation.
fn daemon(daemon_set: &DaemonSet, objects: &Objects) -> Option<Daemon> {
    let template = daemon_set.spec.template.spec.as_ref();
    let made = || PodRecord {
        spec: template.cloned().map(Arc::new),
        ..PodRecord::default()
    };
    let mut pod = newest_pod(daemon_set, objects).cloned().unwrap_or_else(made);
    // The controller replaces the required node affinity of its pods by one for a single node.
    let required = template
        .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .clone()
        });
    if let (Some(required), Some(spec)) = (required, &mut pod.spec) {
        let affinity = Arc::make_mut(spec)
            .affinity
            .get_or_insert_default()
            .node_affinity
            .get_or_insert_default();
        affinity.required_during_scheduling_ignored_during_execution = Some(required);
    }
    if pod.spec.as_deref().is_some_and(needs_devices) {
        return None;
    }
    let mut constraints = Constraints::of(&pod, PreferencePolicy::Ignore);
    if let Some(tolerations) = with_prefer_no_schedule(&constraints.tolerations) {
        constraints.tolerations = tolerations;
    }
    Some(Daemon {
        constraints,
        requests: pod_requests(&pod).unwrap_or_default(),
        ports: host_ports(&pod),
    })
}

fn newest_pod<'a>(daemon_set: &DaemonSet, objects: &'a Objects) -> Option<&'a PodRecord> {
    let uid = daemon_set.metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    let controlled = objects.pods.iter().filter(|pod| {
        pod.metadata.namespace.as_deref() == daemon_set.metadata.namespace.as_deref()
            && pod
                .metadata
                .owner_references
                .as_deref()
                .into_iter()
                .flatten()
                .any(|owner| owner.controller == Some(true) && owner.uid == uid)
    });
    // Of several pods of the same age the first one counts.
    controlled.reduce(|newest, pod| {
        let created = |pod: &PodRecord| pod.metadata.creation_timestamp.clone();
        if created(pod) > created(newest) {
            pod
        } else {
            newest
        }
    })
}

/// The types of a NodePool on which the same DaemonSets run, and what those take.
#[derive(Clone, Debug)]
pub(super) struct DaemonGroup {
    pub(super) types: BitSet,
    pub(super) overhead: Vec<Amount>,
    pub(super) ports: Vec<HostPort>,
    /// The same as `overhead`, with the names.
    pub(super) requests: ResourceList,
}

/// Groups the types of a NodePool by the DaemonSets that run on them, in the order in which the groups first occur.
pub(super) fn groups(
    daemons: &mut [Daemon],
    template: StateId,
    template_taints: TaintsId,
    types_of_pool: &BitSet,
    dimensions: &Dimensions,
    (states, types, taints): (&mut States, &mut Types, &TaintLists),
) -> Vec<DaemonGroup> {
    let per_daemon: Vec<BitSet> = daemons
        .iter_mut()
        .map(|daemon| {
            if taints.tolerated(template_taints, &daemon.constraints.tolerations) {
                daemon.compatible_types(template, types_of_pool, states, types)
            } else {
                BitSet::empty(types.count())
            }
        })
        .collect();
    let mut signatures: Vec<Vec<bool>> = Vec::new();
    let mut groups: Vec<DaemonGroup> = Vec::new();
    for entry in types_of_pool.iter() {
        let signature: Vec<bool> = per_daemon.iter().map(|set| set.contains(entry)).collect();
        let at = signatures
            .iter()
            .position(|known| *known == signature)
            .unwrap_or_else(|| {
                let running = daemons
                    .iter()
                    .zip(&signature)
                    .filter(|(_, runs)| **runs)
                    .map(|(daemon, _)| daemon);
                groups.push(group(running, dimensions, types.count()));
                signatures.push(signature);
                groups.len() - 1
            });
        if let Some(group) = groups.get_mut(at) {
            group.types.insert(entry);
        }
    }
    groups
}

fn group<'d>(
    running: impl Iterator<Item = &'d Daemon>,
    dimensions: &Dimensions,
    count: usize,
) -> DaemonGroup {
    let mut group = DaemonGroup {
        types: BitSet::empty(count),
        overhead: vec![0; dimensions.names().len()],
        ports: Vec::new(),
        requests: ResourceList::new(),
    };
    for daemon in running {
        add(&mut group.overhead, &dimensions.row(&daemon.requests));
        group.ports.extend(daemon.ports.iter().cloned());
        group.requests.add(&daemon.requests);
    }
    group
}

impl Daemon {
    /// The types of `types_of_pool` on which the daemon runs. Where a type does not agree with the current term of
    /// an OR-ed node affinity, the term is dropped for good and the next one tried.
    fn compatible_types(
        &mut self,
        template: StateId,
        types_of_pool: &BitSet,
        states: &mut States,
        types: &mut Types,
    ) -> BitSet {
        let mut runs = BitSet::empty(types.count());
        let mut current = self.types_of_term(template, states, types);
        for entry in types_of_pool.iter() {
            while !current.contains(entry) && self.constraints.drop_required_term() {
                current = self.types_of_term(template, states, types);
            }
            if current.contains(entry) {
                runs.insert(entry);
            }
        }
        runs
    }

    fn types_of_term(&self, template: StateId, states: &mut States, types: &mut Types) -> BitSet {
        let requirements =
            self.constraints
                .read(self.constraints.first_alternative(), None, &mut states.vocabulary);
        let wanted = states.intern(requirements.clone());
        if states.conflict(template, wanted, Side::Claim).is_some() {
            return BitSet::empty(types.count());
        }
        types.compatible(&requirements, &states.vocabulary)
    }

    /// Whether the daemon runs on a node with these taints and labels.
    pub(super) fn runs_on(
        &self,
        node_taints: TaintsId,
        labels: StateId,
        states: &mut States,
        taints: &TaintLists,
    ) -> bool {
        if !taints.tolerated(node_taints, &self.constraints.tolerations) {
            return false;
        }
        let requirements =
            self.constraints
                .read(self.constraints.first_alternative(), None, &mut states.vocabulary);
        let wanted = states.intern(requirements);
        states.conflict(labels, wanted, Side::Node).is_none()
    }
}
