//! Pods as the scheduler reads them. Pods that differ in nothing that matters to it are of one class, so that what holds for
//! one of them is worked out once, and a node knows its pods as a number for each class.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    NodeSelector, PodAffinityTerm, PodSpec, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use veneer_api::Pod;
use veneer_api::labels::veneer;
use veneer_engine::plan::is_deleting;

use super::resources::{Resources, requests};
use super::selector::{Labels, selects, with_keys};
use crate::objects::node_of;

/// A port of the node that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

/// The address that stands for all addresses of a node.
const ANY_ADDRESS: &str = "0.0.0.0";

impl HostPort {
    /// Whether two pods cannot have these on one node.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let is_any = self.address == ANY_ADDRESS || other.address == ANY_ADDRESS;
        self.port == other.port
            && self.protocol == other.protocol
            && (is_any || self.address == other.address)
    }
}

/// A topology spread constraint, with `matchLabelKeys` as part of the selector.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: i64,
    pub(super) selector: Option<LabelSelector>,
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
}

/// A term of affinity or anti-affinity between pods, with `matchLabelKeys` and `mismatchLabelKeys` as part of the selector.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) key: String,
    namespaces: Vec<String>,
    namespace_selector: Option<LabelSelector>,
    selector: Option<LabelSelector>,
}

impl Term {
    fn new(term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        let selector = term.label_selector.as_ref();
        let selector = with_keys(selector, term.match_label_keys.as_deref(), "In", labels);
        let selector = with_keys(
            selector.as_ref(),
            term.mismatch_label_keys.as_deref(),
            "NotIn",
            labels,
        );
        Self {
            key: term.topology_key.clone(),
            namespaces,
            namespace_selector: term.namespace_selector.clone(),
            selector,
        }
    }

    /// Whether the term means the pods of a class, whose namespace has these labels.
    pub(super) fn means(&self, class: &Class, namespace_labels: &Labels) -> bool {
        let is_namespace = self.namespaces.contains(&class.namespace)
            || selects(self.namespace_selector.as_ref(), namespace_labels);
        is_namespace && selects(self.selector.as_ref(), &class.labels)
    }

    /// Whether a term of the pod that is being scheduled means the pods of a class. kube-scheduler asks its namespace selector
    /// about a namespace without labels too, so `DoesNotExist` and `NotIn` choose every namespace.
    pub(super) fn of_new_pod_means(&self, class: &Class, namespace_labels: &Labels) -> bool {
        let without_labels = Labels::new();
        self.means(class, namespace_labels) || self.means(class, &without_labels)
    }
}

/// Everything about a pod that matters for where it goes, apart from its name and its node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) namespace: String,
    pub(super) labels: Labels,
    pub(super) priority: i32,
    /// Whether it may not take the place of others; then a nomination is kept when it is refused.
    pub(super) never_preempts: bool,
    pub(super) requests: Resources,
    /// The processors and memory that it counts for when nodes are compared.
    pub(super) compared: (i64, i64),
    pub(super) ports: Vec<HostPort>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) node_selector: Labels,
    pub(super) required: Option<NodeSelector>,
    pub(super) preferred: Vec<PreferredSchedulingTerm>,
    pub(super) hard_spread: Vec<Constraint>,
    pub(super) soft_spread: Vec<Constraint>,
    /// Whether the soft constraints are the scheduler's own, not the pod's.
    pub(super) spread_by_default: bool,
    pub(super) affinity: Vec<Term>,
    pub(super) anti_affinity: Vec<Term>,
    /// Preferred terms with their weights; those of anti-affinity are negative.
    pub(super) preferred_terms: Vec<(i64, Term)>,
    /// The world has no PersistentVolumeClaims: a pod that names one waits for it.
    pub(super) waits_for_claim: bool,
}

impl Class {
    fn new(pod: &Pod, owners: &[Owner]) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_deref().unwrap_or(&empty);
        let namespace = namespace_of(pod).to_owned();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let (requests, compared) = requests(spec);
        let affinity = spec.affinity.as_ref();
        let node_affinity = affinity.and_then(|one| one.node_affinity.as_ref());
        let near = affinity.and_then(|one| one.pod_affinity.as_ref());
        let far = affinity.and_then(|one| one.pod_anti_affinity.as_ref());
        let term = |one: &PodAffinityTerm| Term::new(one, &namespace, &labels);
        let required_near =
            near.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let required_far =
            far.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred_near =
            near.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred_far =
            far.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
        let attracts = preferred_near.into_iter().flatten();
        let attracts = attracts.map(|one| (i64::from(one.weight), term(&one.pod_affinity_term)));
        let repels = preferred_far.into_iter().flatten();
        let repels = repels.map(|one| (-i64::from(one.weight), term(&one.pod_affinity_term)));
        let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
        let of_kind = |kind: &str| -> Vec<Constraint> {
            let constraints = constraints.iter().filter(|one| one.when_unsatisfiable == kind);
            constraints.map(|one| constraint(one, &labels)).collect()
        };
        let spread_by_default = constraints.is_empty();
        let soft_spread = if spread_by_default {
            default_spread(pod, owners)
        } else {
            of_kind("ScheduleAnyway")
        };
        Self {
            priority: spec.priority.unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            requests,
            compared,
            ports: ports(spec),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required: node_affinity
                .and_then(|one| one.required_during_scheduling_ignored_during_execution.clone()),
            preferred: node_affinity
                .and_then(|one| one.preferred_during_scheduling_ignored_during_execution.clone())
                .unwrap_or_default(),
            hard_spread: of_kind("DoNotSchedule"),
            soft_spread,
            spread_by_default,
            affinity: required_near.into_iter().flatten().map(term).collect(),
            anti_affinity: required_far.into_iter().flatten().map(term).collect(),
            preferred_terms: attracts.chain(repels).collect(),
            waits_for_claim: spec
                .volumes
                .iter()
                .flatten()
                .any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()),
            namespace,
            labels,
        }
    }
}

/// A Service, ReplicaSet or StatefulSet: its pods are spread although they do not ask for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// `Service`, `ReplicaSet` or `StatefulSet`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its pods.
    pub selector: LabelSelector,
}

/// kube-scheduler's own constraints, for pods that a Service selects or a controller owns.
fn default_spread(pod: &Pod, owners: &[Owner]) -> Vec<Constraint> {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let controller = pod.metadata.owner_references.iter().flatten();
    let controller = controller.into_iter().find(|one| one.controller == Some(true));
    let mut together = LabelSelector::default();
    for owner in owners.iter().filter(|one| one.namespace == namespace_of(pod)) {
        let is_its = if owner.kind == "Service" {
            selects(Some(&owner.selector), &labels)
        } else {
            controller.is_some_and(|one| one.kind == owner.kind && one.name == owner.name)
        };
        if !is_its {
            continue;
        }
        let equal = owner.selector.match_labels.iter().flatten();
        let expressions = together.match_expressions.get_or_insert_default();
        if owner.kind == "Service" {
            let equal = equal.map(|(key, value)| (key.clone(), value.clone()));
            together.match_labels.get_or_insert_default().extend(equal);
        } else {
            // What a controller selects is demanded as well, even if no pod can have both.
            expressions.extend(equal.map(|(key, value)| LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            }));
        }
        expressions.extend(owner.selector.match_expressions.iter().flatten().cloned());
    }
    if super::selector::is_empty(&together) {
        return Vec::new();
    }
    let keys = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];
    keys.map(|(key, max_skew)| Constraint {
        key: key.to_owned(),
        max_skew,
        min_domains: 1,
        selector: Some(together.clone()),
        honors_affinity: true,
        honors_taints: false,
    })
    .into()
}

fn constraint(one: &TopologySpreadConstraint, labels: &Labels) -> Constraint {
    let selector = one.label_selector.as_ref();
    Constraint {
        key: one.topology_key.clone(),
        max_skew: i64::from(one.max_skew),
        min_domains: i64::from(one.min_domains.unwrap_or(1)),
        selector: with_keys(selector, one.match_label_keys.as_deref(), "In", labels),
        honors_affinity: one.node_affinity_policy.as_deref().unwrap_or("Honor") == "Honor",
        honors_taints: one.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// The host ports of everything that runs as long as the pod does.
fn ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars
        .chain(&spec.containers)
        .flat_map(|one| one.ports.iter().flatten());
    let text = |field: &Option<String>, default: &str| {
        let text = field.as_deref().filter(|text| !text.is_empty());
        text.unwrap_or(default).to_owned()
    };
    ports
        .filter(|one| one.host_port.is_some_and(|port| port > 0))
        .map(|one| HostPort {
            address: text(&one.host_ip, ANY_ADDRESS),
            protocol: text(&one.protocol, "TCP"),
            port: one.host_port.unwrap_or_default(),
        })
        .collect()
}

/// The namespace of a pod.
pub(super) fn namespace_of(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The node that a pod is nominated for.
pub(super) fn nominated_node(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    let annotated = annotations.and_then(|list| list.get(veneer::NOMINATED));
    let status = pod.status.as_ref();
    let node = annotated.or_else(|| status.and_then(|status| status.nominated_node_name.as_ref()));
    node.map(String::as_str).filter(|node| !node.is_empty())
}

/// Whether a pod may not be scheduled yet.
pub(super) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// Number of a class.
pub(super) type ClassId = usize;

/// The classes that were met, and the class of each pod that was.
#[derive(Debug, Default)]
pub(super) struct Classes {
    classes: Vec<Arc<Class>>,
    /// By `namespace/name`. The pod is kept, so that a changed one is another one in memory.
    known: BTreeMap<String, (Arc<Pod>, ClassId)>,
    owners: Vec<Owner>,
}

impl Classes {
    pub(super) fn new(owners: Vec<Owner>) -> Self {
        Self {
            owners,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, id: ClassId) -> Option<&Arc<Class>> {
        self.classes.get(id)
    }

    pub(super) fn all(&self) -> &[Arc<Class>] {
        &self.classes
    }

    /// The class of a pod.
    pub(super) fn of(&mut self, key: &str, pod: &Arc<Pod>) -> ClassId {
        if let Some((known, id)) = self.known.get_mut(key) {
            if Arc::ptr_eq(known, pod) {
                return *id;
            }
            // What a pod asks for does not change when it gets a node, a condition or a nomination.
            if known.metadata.uid == pod.metadata.uid
                && pod.metadata.uid.is_some()
                && known.metadata.labels == pod.metadata.labels
            {
                *known = Arc::clone(pod);
                return *id;
            }
        }
        let class = Class::new(pod, &self.owners);
        let id = self.classes.iter().position(|known| **known == class);
        let id = id.unwrap_or_else(|| {
            self.classes.push(Arc::new(class));
            self.classes.len() - 1
        });
        self.known.insert(key.to_owned(), (Arc::clone(pod), id));
        id
    }

    /// Forgets pods that are no more, if they have become many beside those that are there.
    pub(super) fn forget(&mut self, there: usize, exists: impl Fn(&str) -> bool) {
        if self.known.len() > 2 * there + 100 {
            self.known.retain(|key, _| exists(key));
        }
    }
}

/// Whether a pod waits for the scheduler.
pub(super) fn waits(pod: &Pod) -> bool {
    node_of(pod).is_none()
        && !is_deleting(&pod.metadata)
        && !veneer_engine::plan::is_terminal(pod)
        && !is_gated(pod)
}
