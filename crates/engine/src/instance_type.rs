//! Instance types and their offerings.
//!
//! An [`InstanceType`] is a shape (labels, capacity, overhead); an [`Offering`] is one way to buy it (capacity
//! type, zone, reservation) at a price. Labels are interned in the vocabulary of the [`Catalogue`] that holds them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::labels::{self, LabelRules};
use crate::quantity::Quantity;
use crate::requirements::Requirements;
use crate::resources::{HUGEPAGES_PREFIX, MEMORY, ResourceList};
use crate::vocabulary::Vocabulary;

/// Instance types with the vocabulary and the label rules that they are written in.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The strings behind every symbol in `types`.
    pub vocabulary: Vocabulary,
    /// Which labels are well known and which domains are restricted.
    pub rules: LabelRules,
    /// The types, in the order of their source. A name may occur more than once (one entry per operating system).
    pub types: Vec<InstanceType>,
    /// The names of the types that can hibernate, where the source says so.
    pub hibernation: Option<BTreeSet<Arc<str>>>,
}

impl Catalogue {
    /// Whether a type can hibernate, as far as the source of the catalogue says.
    #[must_use]
    pub fn can_hibernate(&self, instance_type: &str) -> Option<bool> {
        Some(self.hibernation.as_ref()?.contains(instance_type))
    }
}

/// A shape that can be launched.
#[derive(Clone, Debug)]
pub struct InstanceType {
    /// The name, e.g. `m5.large`.
    pub name: Arc<str>,
    /// The labels that a node of this type would have, each with the values it may take.
    pub requirements: Requirements,
    /// The ways to buy it.
    pub offerings: Vec<Offering>,
    /// What the machine has.
    pub capacity: ResourceList,
    /// What the system keeps of it.
    pub overhead: Overhead,
}

/// One way to buy an instance type.
#[derive(Clone, Debug)]
pub struct Offering {
    /// Capacity type, zone and, for a reservation, its id.
    pub requirements: Requirements,
    /// List price in dollars per hour.
    pub price: f64,
    /// Whether it can be launched now.
    pub available: bool,
    /// How many instances the reservation still holds; 0 for other offerings.
    pub reservation_capacity: i64,
}

/// What the kubelet and the system keep of a machine's capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// For the Kubernetes daemons.
    pub kube_reserved: ResourceList,
    /// For the operating system's daemons.
    pub system_reserved: ResourceList,
    /// The kubelet evicts pods before less than this is free.
    pub eviction_threshold: ResourceList,
}

impl Overhead {
    /// Everything that is kept.
    #[must_use]
    pub fn total(&self) -> ResourceList {
        let mut total = self.kube_reserved.clone();
        total.add(&self.system_reserved);
        total.add(&self.eviction_threshold);
        total
    }
}

impl InstanceType {
    /// What pods can use of this type.
    #[must_use]
    pub fn allocatable(&self) -> ResourceList {
        allocatable(&self.capacity, &self.overhead)
    }
}

/// What pods can use of `capacity` after `overhead`. Huge pages are cut out of the memory, which never goes below
/// zero by that.
#[must_use]
pub fn allocatable(capacity: &ResourceList, overhead: &Overhead) -> ResourceList {
    let mut allocatable = capacity.minus(&overhead.total());
    let zero = Quantity::default();
    for (_, quantity) in capacity
        .iter()
        .filter(|(name, _)| name.starts_with(HUGEPAGES_PREFIX))
    {
        let memory = allocatable.get(MEMORY).cloned().unwrap_or_default();
        let left = &memory - quantity;
        allocatable.insert(MEMORY, if left < zero { Quantity::default() } else { left });
    }
    allocatable
}

impl Offering {
    /// The capacity type, e.g. `spot`, if the offering names exactly one.
    #[must_use]
    pub fn capacity_type<'a>(&self, vocabulary: &'a Vocabulary) -> Option<&'a str> {
        self.label(labels::CAPACITY_TYPE, vocabulary)
    }

    /// The zone, if the offering names exactly one.
    #[must_use]
    pub fn zone<'a>(&self, vocabulary: &'a Vocabulary) -> Option<&'a str> {
        self.label(labels::ZONE, vocabulary)
    }

    fn label<'a>(&self, key: &str, vocabulary: &'a Vocabulary) -> Option<&'a str> {
        let value = self.requirements.get(vocabulary.get(key)?)?.single_value()?;
        Some(vocabulary.text(value))
    }
}
