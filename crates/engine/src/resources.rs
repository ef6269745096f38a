//! Resource lists: cpu, memory, pods, extended resources, each with a [`Quantity`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quantity::Quantity;

/// Processor time.
pub const CPU: &str = "cpu";
/// Memory.
pub const MEMORY: &str = "memory";
/// Local storage.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// How many pods fit.
pub const PODS: &str = "pods";
/// What the names of huge page resources begin with.
pub const HUGEPAGES_PREFIX: &str = "hugepages-";

/// The resources that every instance type states by itself and no overlay may change.
pub const WELL_KNOWN: [&str; 4] = [CPU, MEMORY, EPHEMERAL_STORAGE, PODS];

/// Resources by name, iterated alphabetically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList(BTreeMap<Arc<str>, Quantity>);

impl ResourceList {
    /// The empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The quantity of `name`, if it is listed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    /// Sets `name`, replacing what was there.
    pub fn insert(&mut self, name: impl Into<Arc<str>>, quantity: Quantity) {
        self.0.insert(name.into(), quantity);
    }

    /// Whether `name` is listed.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Every resource, alphabetically.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Quantity)> {
        self.0.iter().map(|(name, quantity)| (&**name, quantity))
    }

    /// How many resources are listed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `other`, resource by resource.
    pub fn add(&mut self, other: &Self) {
        for (name, quantity) in &other.0 {
            let sum = self
                .0
                .get(name)
                .map_or_else(|| quantity.clone(), |current| current + quantity);
            self.0.insert(Arc::clone(name), sum);
        }
    }

    /// What is left of the listed resources after `other` is taken away; may be negative. Resources that are not
    /// listed here are not invented.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let left = |(name, quantity): (&Arc<str>, &Quantity)| {
            let rest = other
                .0
                .get(name)
                .map_or_else(|| quantity.clone(), |taken| quantity - taken);
            (Arc::clone(name), rest)
        };
        Self(self.0.iter().map(left).collect())
    }

    /// These resources with those of `overrides` put in their place or added.
    #[must_use]
    pub fn overridden_by(&self, overrides: &Self) -> Self {
        let mut result = self.clone();
        result.0.extend(
            overrides
                .0
                .iter()
                .map(|(name, quantity)| (Arc::clone(name), quantity.clone())),
        );
        result
    }

    /// Whether these requests fit into `total`. Nothing fits into a total with a negative resource.
    #[must_use]
    pub fn fits_into(&self, total: &Self) -> bool {
        let zero = Quantity::default();
        total.0.values().all(|quantity| *quantity >= zero)
            && self
                .0
                .iter()
                .all(|(name, quantity)| *quantity <= *total.0.get(name).unwrap_or(&zero))
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(entries: I) -> Self {
        Self(
            entries
                .into_iter()
                .map(|(name, quantity)| (name.into(), quantity))
                .collect(),
        )
    }
}
