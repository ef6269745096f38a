//! Volumes: where they force a pod to be, how many a node can attach, and which claims cannot be used at all.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Volume};
use k8s_openapi::api::storage::v1::StorageClass;

use super::Objects;
use super::PodRecord;
use super::terms::add_expressions;
use crate::labels::HOSTNAME;
use crate::requirements::{Operator, Requirements};
use crate::vocabulary::Vocabulary;

const EBS_DRIVER: &str = "ebs.csi.aws.com";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// A volume that counts against what a node can attach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Attached {
    pub(super) driver: String,
    /// The claim, as `namespace/name`.
    pub(super) claim: String,
}

/// The storage objects by name.
pub(super) struct Storage<'a> {
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
}

impl<'a> Storage<'a> {
    pub(super) fn new(objects: &'a Objects) -> Self {
        let name = |name: &'a Option<String>| name.as_deref().unwrap_or_default();
        let claim = |pvc: &'a PersistentVolumeClaim| {
            (
                (
                    pvc.metadata.namespace.as_deref().unwrap_or("default"),
                    name(&pvc.metadata.name),
                ),
                pvc,
            )
        };
        Self {
            claims: objects.pvcs.iter().map(claim).collect(),
            volumes: objects
                .pvs
                .iter()
                .map(|pv| (name(&pv.metadata.name), pv))
                .collect(),
            classes: objects
                .storage_classes
                .iter()
                .map(|class| (name(&class.metadata.name), class))
                .collect(),
        }
    }

    /// The name of the claim behind `volume`, if it is one of that kind.
    fn claim_name(pod: &PodRecord, volume: &Volume) -> Option<String> {
        match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!(
                "{}-{}",
                pod.metadata.name.as_deref().unwrap_or_default(),
                volume.name
            )),
            (None, None) => None,
        }
    }

    /// The claims behind the pod's volumes: those that exist, and the names of those that do not.
    fn claims(&self, pod: &PodRecord) -> Vec<Result<&'a PersistentVolumeClaim, String>> {
        let namespace = namespace(pod);
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes
            .filter_map(|volume| Self::claim_name(pod, volume))
            .map(|name| self.claims.get(&(namespace, name.as_str())).copied().ok_or(name))
            .collect()
    }

    /// Whether the pod mounts any claim.
    pub(super) fn mounts_claims(pod: &PodRecord) -> bool {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes
            .into_iter()
            .any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
    }

    /// Why the pod's claims keep it from being scheduled, if so.
    pub(super) fn fault(&self, pod: &PodRecord) -> Option<String> {
        self.claims(pod).into_iter().find_map(|claim| match claim {
            Ok(claim) => self.claim_fault(claim),
            Err(name) => Some(format!(
                "PersistentVolumeClaim {}/{name} does not exist; create it or remove the volume",
                namespace(pod)
            )),
        })
    }

    fn claim_fault(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let named = format!(
            "PersistentVolumeClaim {}/{}",
            claim.metadata.namespace.as_deref().unwrap_or("default"),
            text(&claim.metadata.name)
        );
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(format!("{named} is being deleted"));
        }
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Lost") {
            return Some(format!(
                "{named} is bound to a PersistentVolume that does not exist any more"
            ));
        }
        let class_name = class_name(claim);
        if let Some(volume) = volume_name(claim) {
            let Some(found) = self.volumes.get(volume) else {
                return Some(format!(
                    "{named} names PersistentVolume {volume}, which does not exist"
                ));
            };
            if found.metadata.deletion_timestamp.is_some() {
                return Some(format!(
                    "{named} names PersistentVolume {volume}, which is being deleted"
                ));
            }
            let bound = claim
                .metadata
                .annotations
                .iter()
                .flatten()
                .any(|(key, _)| key == BIND_COMPLETED);
            return (!bound).then(|| {
                format!(
                    "{named} is not bound yet: it names a volume but lacks the annotation {BIND_COMPLETED}"
                )
            });
        }
        if class_name.is_empty() {
            return Some(format!("{named} is not bound and names no storage class"));
        }
        match self.classes.get(class_name) {
            None => Some(format!(
                "{named} names StorageClass {class_name}, which does not exist"
            )),
            Some(class) => (class.volume_binding_mode.as_deref() == Some("Immediate")).then(|| {
                format!("{named} is not bound, but its StorageClass {class_name} binds immediately")
            }),
        }
    }

    /// The alternatives of what the pod's volumes demand of a node's labels; none if they demand nothing.
    pub(super) fn requirements(&self, pod: &PodRecord, vocabulary: &mut Vocabulary) -> Vec<Requirements> {
        if self.has_lost_a_claim(pod) {
            return Vec::new();
        }
        let mut alternatives: Vec<Requirements> = Vec::new();
        for claim in self.claims(pod).into_iter().flatten() {
            let of_claim = self.claim_requirements(claim, vocabulary);
            if of_claim.is_empty() {
                continue;
            }
            if alternatives.is_empty() {
                alternatives = of_claim;
                continue;
            }
            let compatible = cross(&alternatives, &of_claim, vocabulary, false);
            // If nothing goes together, the contradiction is kept so that the pod fails for it.
            alternatives = if compatible.is_empty() {
                cross(&alternatives, &of_claim, vocabulary, true)
            } else {
                compatible
            };
        }
        alternatives
    }

    /// Whether a claim of the pod, or what that names, does not exist, as may be for a pod that leaves a node. Then none
    /// of its volumes is considered, and it is counted where it is as well as where it goes, as Karpenter does.
    pub(super) fn has_lost_a_claim(&self, pod: &PodRecord) -> bool {
        self.claims(pod).iter().any(|claim| match claim {
            Ok(claim) => self.has_lost_its_source(claim),
            Err(_) => true,
        })
    }

    /// Whether the volume or the class that a claim names does not exist.
    fn has_lost_its_source(&self, claim: &PersistentVolumeClaim) -> bool {
        match (volume_name(claim), class_name(claim)) {
            (Some(volume), _) => !self.volumes.contains_key(volume),
            (None, class) => !class.is_empty() && !self.classes.contains_key(class),
        }
    }

    fn claim_requirements(
        &self,
        claim: &PersistentVolumeClaim,
        vocabulary: &mut Vocabulary,
    ) -> Vec<Requirements> {
        if let Some(volume) = volume_name(claim) {
            return self
                .volumes
                .get(volume)
                .map_or_else(Vec::new, |pv| volume_requirements(pv, vocabulary));
        }
        let Some(class) = self.classes.get(class_name(claim)) else {
            return Vec::new();
        };
        let topologies = class.allowed_topologies.iter().flatten();
        topologies
            .filter_map(|term| {
                let mut requirements = Requirements::new();
                for expression in term.match_label_expressions.iter().flatten() {
                    requirements.add_selector(
                        &expression.key,
                        Operator::In,
                        &expression.values,
                        None,
                        vocabulary,
                    );
                }
                (!requirements.is_empty()).then_some(requirements)
            })
            .collect()
    }

    /// The volumes of the pod that count against what a node can attach.
    pub(super) fn attached(&self, pod: &PodRecord) -> Vec<Attached> {
        let mut attached: Vec<Attached> = self
            .claims(pod)
            .into_iter()
            .flatten()
            .filter_map(|claim| {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let claim_key = format!("{}/{name}", namespace(pod));
                Some(Attached {
                    driver: self.driver(claim)?,
                    claim: claim_key,
                })
            })
            .collect();
        attached.sort_unstable();
        attached.dedup();
        attached
    }

    fn driver(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        if let Some(volume) = volume_name(claim) {
            let spec = self.volumes.get(volume)?.spec.as_ref()?;
            let in_tree = || {
                spec.aws_elastic_block_store
                    .as_ref()
                    .map(|_| EBS_DRIVER.to_owned())
            };
            return spec.csi.as_ref().map(|csi| csi.driver.clone()).or_else(in_tree);
        }
        let provisioner = &self.classes.get(class_name(claim))?.provisioner;
        Some(csi_name(provisioner).to_owned())
    }
}

fn namespace(pod: &PodRecord) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim
        .spec
        .as_ref()?
        .volume_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn class_name(claim: &PersistentVolumeClaim) -> &str {
    claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Every pair of alternatives; with `all`, contradictory ones too.
fn cross(
    left: &[Requirements],
    right: &[Requirements],
    vocabulary: &Vocabulary,
    all: bool,
) -> Vec<Requirements> {
    let pairs = left
        .iter()
        .flat_map(|one| right.iter().map(move |other| (one, other)));
    pairs
        .filter(|(one, other)| all || one.intersects(other, vocabulary).is_ok())
        .map(|(one, other)| {
            let mut merged = one.clone();
            merged.extend(other, vocabulary);
            merged
        })
        .collect()
}

fn volume_requirements(pv: &PersistentVolume, vocabulary: &mut Vocabulary) -> Vec<Requirements> {
    let Some(spec) = &pv.spec else { return Vec::new() };
    let required = spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    let terms = required.iter().flat_map(|selector| &selector.node_selector_terms);
    // A pod whose local volume is on a node that goes away gets a new one, so that node's name does not count.
    let moves = spec.local.is_some() || spec.host_path.is_some();
    terms
        .filter_map(|term: &NodeSelectorTerm| {
            let given = term.match_expressions.as_deref().unwrap_or_default();
            let kept = given
                .iter()
                .filter(|expression| !(moves && expression.key == HOSTNAME));
            let mut requirements = Requirements::new();
            add_expressions(&mut requirements, kept, vocabulary);
            let only_hostname = moves && !given.is_empty();
            (!requirements.is_empty() || only_hostname).then_some(requirements)
        })
        .collect()
}

/// What an in-tree plugin is called since it is served by a CSI driver.
fn csi_name(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => EBS_DRIVER,
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        other => other,
    }
}
