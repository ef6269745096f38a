//! What a NodePool can launch: its types, and which labels of them matter for an explanation.

use std::collections::BTreeMap;

use veneer_api::NodePool;

use crate::instance_type::{Catalogue, InstanceType};
use crate::labels;
use crate::overlay::launchable;
use crate::quantity::Quantity;
use crate::requirements::Requirement;
use crate::resources::CPU;

const FAMILY: [&str; 2] = [
    "karpenter.k8s.aws/instance-family",
    "karpenter.kwok.sh/instance-family",
];
const SIZE: [&str; 2] = [labels::INSTANCE_SIZE, "karpenter.kwok.sh/instance-size"];
const CPU_LABEL: [&str; 2] = ["karpenter.k8s.aws/instance-cpu", "karpenter.kwok.sh/instance-cpu"];
const MEMORY_LABEL: &str = "karpenter.k8s.aws/instance-memory";

/// The one of a provider's labels that the catalogue uses.
fn used(catalogue: &Catalogue, keys: [&'static str; 2]) -> &'static str {
    let [first, second] = keys;
    let known = |key: &str| catalogue.rules.well_known().any(|known| known == key);
    if known(second) { second } else { first }
}

/// The label of a type's family.
pub(super) fn family_label(catalogue: &Catalogue) -> &'static str {
    used(catalogue, FAMILY)
}

/// The label of a type's size.
pub(super) fn size_label(catalogue: &Catalogue) -> &'static str {
    used(catalogue, SIZE)
}

/// The label of a type's number of processors.
pub(super) fn cpu_label(catalogue: &Catalogue) -> &'static str {
    used(catalogue, CPU_LABEL)
}

/// The types that a NodePool can launch.
#[derive(Clone, Debug)]
pub(super) struct PoolTypes<'a> {
    pub(super) catalogue: &'a Catalogue,
    /// Positions in the catalogue, each with the positions of the offerings that are allowed.
    pub(super) types: BTreeMap<usize, Vec<usize>>,
}

impl<'a> PoolTypes<'a> {
    pub(super) fn new(catalogue: &'a Catalogue, pool: &NodePool) -> Self {
        let allowed = launchable(catalogue, pool);
        let mut types: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut number = 0;
        for (entry, it) in catalogue.types.iter().enumerate() {
            for at in 0..it.offerings.len() {
                if allowed.contains(number) {
                    types.entry(entry).or_default().push(at);
                }
                number += 1;
            }
        }
        Self { catalogue, types }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &'a InstanceType)> {
        let catalogue = self.catalogue;
        self.types
            .keys()
            .filter_map(move |entry| Some((*entry, catalogue.types.get(*entry)?)))
    }

    /// The values that a type has of a label; for the capacity type, those of its allowed offerings.
    pub(super) fn values(&self, entry: usize, label: &str) -> Vec<&'a str> {
        let vocabulary = &self.catalogue.vocabulary;
        let Some(it) = self.catalogue.types.get(entry) else {
            return Vec::new();
        };
        if label == labels::CAPACITY_TYPE {
            let allowed = self.types.get(&entry).map_or(&[][..], Vec::as_slice);
            let offerings = allowed.iter().filter_map(|at| it.offerings.get(*at));
            let mut values: Vec<&str> = offerings.filter_map(|o| o.capacity_type(vocabulary)).collect();
            values.sort_unstable();
            values.dedup();
            return values;
        }
        values_of(it, label, self.catalogue)
    }
}

/// The values that a type itself has of a label.
pub(super) fn values_of<'a>(it: &InstanceType, label: &str, catalogue: &'a Catalogue) -> Vec<&'a str> {
    let vocabulary = &catalogue.vocabulary;
    let requirement = vocabulary.get(label).and_then(|key| it.requirements.get(key));
    let values = requirement.map_or(&[][..], Requirement::values);
    vocabulary.sorted_texts(values)
}

/// The architecture of a type.
pub(super) fn architecture<'a>(it: &InstanceType, catalogue: &'a Catalogue) -> &'a str {
    values_of(it, labels::ARCH, catalogue)
        .first()
        .copied()
        .unwrap_or("unknown")
}

/// The number of processors of a type.
pub(super) fn vcpus(it: &InstanceType) -> i64 {
    it.capacity.get(CPU).map_or(0, Quantity::value)
}

/// The memory that a type is sold with, in GiB; none where the catalogue does not say.
pub(super) fn memory_gib(it: &InstanceType, catalogue: &Catalogue) -> Option<i64> {
    let mib: i64 = values_of(it, MEMORY_LABEL, catalogue).first()?.parse().ok()?;
    Some(mib / 1024)
}

/// How many types there are of each architecture, every architecture of the catalogue named.
pub(super) fn by_architecture<'a>(
    types: impl Iterator<Item = &'a InstanceType>,
    catalogue: &Catalogue,
) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for it in &catalogue.types {
        counts.entry(architecture(it, catalogue).to_owned()).or_default();
    }
    for it in types {
        *counts.entry(architecture(it, catalogue).to_owned()).or_default() += 1;
    }
    counts
}
