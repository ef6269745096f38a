//! One rule and its counts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;

use super::Subject;
use crate::packing::hash::FastMap;
use crate::packing::ids::{KeyId, StateId};
use crate::packing::selector::Selector;
use crate::packing::states::States;
use crate::vocabulary::Symbol;

/// What a rule demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Domains may differ by at most the skew.
    Spread,
    /// Only domains that have such a pod.
    Affinity,
    /// Only domains that have no such pod.
    AntiAffinity,
}

impl Kind {
    /// What people call it.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Spread => "topology spread",
            Self::Affinity => "pod affinity",
            Self::AntiAffinity => "pod anti-affinity",
        }
    }
}

/// Which nodes take part in a spread.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// OR-ed.
    pub(super) terms: Arc<[StateId]>,
    /// Whether one of the terms demands nothing.
    pub(super) any_labels: bool,
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
    pub(super) tolerations: Arc<[Toleration]>,
}

impl Filter {
    /// Every node takes part.
    pub(super) fn everything() -> Self {
        Self {
            terms: Arc::default(),
            any_labels: true,
            honor_affinity: false,
            honor_taints: false,
            tolerations: Arc::default(),
        }
    }

    pub(super) fn is_everything(&self) -> bool {
        (!self.honor_affinity || self.any_labels) && !self.honor_taints
    }
}

/// What makes two rules the same.
///
/// Karpenter compares a hash that leaves out the values of the node filter, counts its terms and tolerations as sets
/// in which pairs of equals vanish, and does not look at `minDomains`. So pods whose filters differ in values only
/// share the rule of the first one. That is kept, because it decides what is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    kind: Kind,
    topology_key: Symbol,
    namespaces: Vec<String>,
    max_skew: i32,
    filter: Option<FilterKey>,
    selector: Selector,
}

/// What of a filter tells rules apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FilterKey {
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
    /// The number of the [`NodeFilterKey`].
    pub(super) nodes: usize,
}

/// What a filter looks at, as far as Karpenter tells filters apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeFilterKey {
    terms: Vec<Vec<Symbol>>,
    /// The number of the list of tolerations.
    tolerations: usize,
}

impl NodeFilterKey {
    pub(super) fn new(terms: &[StateId], tolerations: usize, states: &States) -> Self {
        let keys = |term: &StateId| states.get(*term).iter().map(|(key, _)| key).collect();
        Self {
            terms: without_pairs(terms.iter().map(keys).collect()),
            tolerations,
        }
    }
}

/// Lists of tolerations by number; those that Karpenter does not tell apart have the same.
#[derive(Clone, Debug, Default)]
pub(super) struct TolerationLists {
    numbers: FastMap<Vec<[String; 5]>, usize>,
    /// By address: forms of one pod share their list. The lists are kept, so that no other gets their address.
    known: FastMap<usize, (Arc<[Toleration]>, usize)>,
}

impl TolerationLists {
    pub(super) fn number(&mut self, list: &Arc<[Toleration]>) -> usize {
        let address = list.as_ptr().addr();
        if let Some((_, number)) = self
            .known
            .get(&address)
            .filter(|(known, _)| Arc::ptr_eq(known, list))
        {
            return *number;
        }
        let next = self.numbers.len();
        let fingerprints = without_pairs(list.iter().map(fingerprint).collect());
        let number = *self.numbers.entry(fingerprints).or_insert(next);
        self.known.insert(address, (Arc::clone(list), number));
        number
    }
}

impl GroupKey {
    pub(super) fn new(
        kind: Kind,
        topology_key: &str,
        mut namespaces: Vec<String>,
        max_skew: i32,
        filter: Option<FilterKey>,
        selector: Selector,
        states: &mut States,
    ) -> Self {
        namespaces.sort_unstable();
        namespaces.dedup();
        let topology_key = states.vocabulary.intern(topology_key);
        Self {
            kind,
            topology_key,
            namespaces,
            max_skew,
            filter,
            selector,
        }
    }

    pub(super) fn topology_key(&self) -> Symbol {
        self.topology_key
    }
}

fn fingerprint(toleration: &Toleration) -> [String; 5] {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    [
        text(&toleration.key),
        text(&toleration.operator),
        text(&toleration.value),
        text(&toleration.effect),
        toleration
            .toleration_seconds
            .map(|seconds| seconds.to_string())
            .unwrap_or_default(),
    ]
}

/// The items that occur an odd number of times, sorted.
fn without_pairs<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    let mut kept: Vec<T> = Vec::with_capacity(items.len());
    for item in items {
        if kept.last() == Some(&item) {
            kept.pop();
        } else {
            kept.push(item);
        }
    }
    kept
}

/// A rule with the number of selected pods in each domain.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(super) key: KeyId,
    pub(super) max_skew: i32,
    pub(super) min_domains: Option<i32>,
    namespaces: Vec<String>,
    selector: Selector,
    pub(super) filter: Filter,
    counts: Counts,
    /// How many domains have a pod.
    occupied: usize,
}

const UNKNOWN: i32 = -1;

/// The number of pods per domain; negative for a domain that is not known to the rule. Most rules know few domains, and
/// hosts have high numbers.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Sorted by domain; empty once there are more than [`FEW`].
    few: Vec<(usize, i32)>,
    many: Vec<i32>,
}

/// So many domains are kept as a list.
const FEW: usize = 8;

impl Counts {
    fn get(&self, domain: usize) -> i32 {
        if self.many.is_empty() {
            let found = self.few.iter().find(|(known, _)| *known == domain);
            return found.map_or(UNKNOWN, |(_, count)| *count);
        }
        self.many.get(domain).copied().unwrap_or(UNKNOWN)
    }

    fn slot(&mut self, domain: usize) -> Option<&mut i32> {
        if self.many.is_empty() {
            let at = self.few.partition_point(|(known, _)| *known < domain);
            if self.few.get(at).is_some_and(|(known, _)| *known == domain) || self.few.len() < FEW {
                if self.few.get(at).is_none_or(|(known, _)| *known != domain) {
                    self.few.insert(at, (domain, UNKNOWN));
                }
                return self.few.get_mut(at).map(|(_, count)| count);
            }
            for (known, count) in std::mem::take(&mut self.few) {
                self.many.resize(known + 1, UNKNOWN);
                if let Some(slot) = self.many.get_mut(known) {
                    *slot = count;
                }
            }
        }
        if self.many.len() <= domain {
            self.many.resize(domain + 1, UNKNOWN);
        }
        self.many.get_mut(domain)
    }

    /// The domains that are known, with their counts.
    fn iter(&self) -> impl Iterator<Item = (usize, i32)> {
        let many = self.many.iter().copied().enumerate();
        let all = self.few.iter().copied().chain(many);
        all.filter(|(_, count)| *count >= 0)
    }
}

impl Group {
    pub(super) fn new(key: &GroupKey, key_id: KeyId, _hostname: bool, filter: Filter) -> Self {
        Self {
            kind: key.kind,
            key: key_id,
            max_skew: key.max_skew,
            min_domains: None,
            namespaces: key.namespaces.clone(),
            selector: key.selector.clone(),
            filter,
            counts: Counts::default(),
            occupied: 0,
        }
    }

    /// The namespaces that it is about.
    pub(super) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    pub(super) fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Whether a pod to be placed counts in this rule, wherever it goes.
    pub(crate) fn selects(&self, subject: Subject<'_>) -> bool {
        self.is_in_namespace(subject.namespace) && self.selector.selects(subject.labels)
    }

    /// Whether a pod on a node counts in this rule.
    pub(super) fn counts_pod(&self, subject: Subject<'_>) -> bool {
        self.is_in_namespace(subject.namespace) && self.selector.counts(subject.labels)
    }

    fn is_in_namespace(&self, namespace: &str) -> bool {
        self.namespaces
            .binary_search_by(|known| known.as_str().cmp(namespace))
            .is_ok()
    }

    /// Makes the rule know a domain.
    pub(super) fn register(&mut self, domain: usize) {
        if let Some(count) = self.slot(domain) {
            *count = (*count).max(0);
        }
    }

    /// Counts `pods` more in a domain.
    pub(super) fn record(&mut self, domain: usize, pods: i32) {
        let Some(count) = self.slot(domain) else { return };
        let before = (*count).max(0);
        *count = before.saturating_add(pods);
        let now_occupied = before == 0 && *count > 0;
        self.occupied += usize::from(now_occupied);
    }

    /// Counts `pods` more, or fewer, in a domain; says what was there before (negative for a domain not known).
    pub(super) fn change(&mut self, domain: usize, pods: i32) -> i32 {
        let before = self.slot(domain).map_or(UNKNOWN, |count| *count);
        let after = before.max(0).saturating_add(pods).max(0);
        self.restore(domain, after);
        before
    }

    /// Sets the number of pods in a domain.
    pub(super) fn restore(&mut self, domain: usize, count: i32) {
        let Some(slot) = self.slot(domain) else { return };
        let was_occupied = *slot > 0;
        *slot = count;
        match (was_occupied, count > 0) {
            (false, true) => self.occupied += 1,
            (true, false) => self.occupied = self.occupied.saturating_sub(1),
            _ => {}
        }
    }

    fn slot(&mut self, domain: usize) -> Option<&mut i32> {
        self.counts.slot(domain)
    }

    /// The number of pods in a domain; 0 for one that the rule does not know.
    pub(super) fn count(&self, domain: usize) -> i32 {
        self.counts.get(domain).max(0)
    }

    /// The domains that the rule knows, with their numbers of pods.
    pub(super) fn domains(&self) -> impl Iterator<Item = (usize, i32)> {
        self.counts.iter()
    }

    /// Whether no domain has a pod.
    pub(super) fn is_unoccupied(&self) -> bool {
        self.occupied == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_same_as_a_list_and_as_a_table() {
        let mut counts = Counts::default();
        let mut expected: Vec<(usize, i32)> = Vec::new();
        for (number, domain) in [900, 3, 70, 3, 5_000, 1, 2, 64, 65, 66, 4_999, 3]
            .into_iter()
            .enumerate()
        {
            let count = i32::try_from(number).unwrap();
            *counts.slot(domain).unwrap() = count;
            expected.retain(|(known, _)| *known != domain);
            expected.push((domain, count));
            expected.sort_unstable();
            assert_eq!(counts.iter().collect::<Vec<_>>(), expected);
            assert_eq!((counts.get(domain), counts.get(6)), (count, UNKNOWN));
        }
        assert!(counts.few.is_empty());
    }
}
