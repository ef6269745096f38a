//! Pods by what they demand (shape) and by what they ask for (size).
//!
//! A shape is compiled once: its requirements are a numbered set, its rules are groups, its relaxed forms are shapes
//! of their own, made when they are first needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::PodRecord;
use super::amounts::Amount;
use super::forms::Form;
use super::host_ports::HostPort;
use super::ids::{GroupId, ShapeId, StateId, SubjectId, Table};
use super::selector::Selector;
use super::states::States;
use super::taints::{TaintLists, Tolerated};
use super::topology::{Owned, Subject, Topology};
use super::types::Types;
use crate::bitset::BitSet;

type Labels = BTreeMap<String, String>;

/// A growing set of positions.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    words: Vec<u64>,
    count: usize,
}

impl Marks {
    pub(super) fn contains(&self, position: usize) -> bool {
        self.words
            .get(position / 64)
            .is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, position: usize) {
        let at = position / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            self.count += usize::from(*word >> (position % 64) & 1 == 0);
            *word |= 1 << (position % 64);
        }
    }

    /// Takes the mark off a position.
    pub(super) fn remove(&mut self, position: usize) {
        if self.contains(position)
            && let Some(word) = self.words.get_mut(position / 64)
        {
            *word &= !(1 << (position % 64));
            self.count -= 1;
        }
    }

    /// Takes all marks off.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.count = 0;
    }

    /// How many positions are marked.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first position from `from` on and below `end` that is marked neither here nor in `other`.
    pub(super) fn next_unmarked(&self, other: &Self, from: usize, end: usize) -> Option<usize> {
        let word = |marks: &Self, at: usize| marks.words.get(at / 64).copied().unwrap_or(0);
        let mut at = from;
        while at < end {
            let free = !((word(self, at) | word(other, at)) >> (at % 64));
            if free == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            let found = at + free.trailing_zeros() as usize;
            if found / 64 == at / 64 {
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

/// Whether the relaxed form of a shape is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relaxed {
    Unknown,
    Nothing,
    To(ShapeId),
}

/// What pods of one kind demand, compiled.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) form: Form,
    /// Whether it was not compiled, since its namespace demands too much: pods like it are not tried.
    pub(super) is_deferred: bool,
    /// What it is to the rules; shared by all forms.
    pub(super) subject: SubjectId,
    pub(super) ports: Arc<[HostPort]>,
    /// The alternatives that the volumes leave; none if they demand nothing.
    pub(super) volumes: Arc<[StateId]>,
    pub(super) requirements: StateId,
    pub(super) strict: StateId,
    pub(super) owned: Vec<Owned>,
    pub(super) inverse_owned: Vec<GroupId>,
    pub(super) relaxed: Relaxed,
    /// The rule that last left no place at all.
    pub(super) stuck: usize,
    pub(super) tolerated: Tolerated,
    /// The claims and nodes that will never take these pods.
    pub(super) dead_claims: Marks,
    pub(super) dead_nodes: Marks,
}

/// The tables that shapes are compiled into.
pub(super) struct Tables<'t, 'a> {
    pub(super) states: &'t mut States,
    pub(super) types: &'t mut Types,
    pub(super) taints: &'t TaintLists,
    pub(super) topology: &'t mut Topology<'a>,
}

/// What of a pod goes into its shape.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) form: Form,
    pub(super) is_deferred: bool,
    pub(super) subject: SubjectId,
    pub(super) ports: Arc<[HostPort]>,
    pub(super) volumes: Arc<[StateId]>,
}

impl Shape {
    /// Compiles a shape; its rules come into being here.
    pub(super) fn compile(source: Source, subjects: &Subjects, tables: &mut Tables<'_, '_>) -> Self {
        let Tables {
            states,
            types,
            taints,
            topology,
        } = tables;
        let Source {
            form,
            is_deferred,
            subject,
            ports,
            volumes,
        } = source;
        let rules = subjects[subject].of_rules();
        let apart = form.base().apart();
        let inverse_owned = topology.inverse_owned(
            apart,
            form.tolerations(),
            rules.namespace,
            None,
            states,
            types,
            taints,
        );
        let owned = topology.owned(&form, rules, states, types, taints);
        let requirements = form.requirements(&mut states.vocabulary);
        let requirements = states.intern(requirements);
        let strict = if form.has_preference() {
            let strict = form.strict_requirements(&mut states.vocabulary);
            states.intern(strict)
        } else {
            requirements
        };
        Self {
            form,
            is_deferred,
            subject,
            ports,
            volumes,
            requirements,
            strict,
            owned,
            inverse_owned,
            relaxed: Relaxed::Unknown,
            stuck: 0,
            tolerated: Tolerated::default(),
            dead_claims: Marks::default(),
            dead_nodes: Marks::default(),
        }
    }

    /// What relaxing once leaves, to be compiled.
    pub(super) fn relaxed_source(&self, tolerate_prefer_no_schedule: bool) -> Option<Source> {
        Some(Source {
            form: self.form.relaxed(tolerate_prefer_no_schedule)?,
            is_deferred: self.is_deferred,
            subject: self.subject,
            ports: Arc::clone(&self.ports),
            volumes: Arc::clone(&self.volumes),
        })
    }
}

/// What pods of one namespace with the same labels are to the rules.
#[derive(Clone, Debug)]
pub(super) struct SubjectRules {
    pub(super) namespace: Arc<str>,
    /// The namespace's number among those that work is counted for.
    pub(super) namespace_number: usize,
    /// The labels that some rule looks at.
    pub(super) labels: Labels,
    /// The rules that count these pods, among those looked at so far.
    pub(super) selected: Vec<GroupId>,
    selected_of: usize,
    /// The anti-affinities of other pods that are about these, among those looked at so far.
    pub(super) inverse_selected: Vec<GroupId>,
    inverse_selected_of: usize,
}

impl SubjectRules {
    pub(super) fn new(namespace: Arc<str>, namespace_number: usize, labels: Labels) -> Self {
        Self {
            namespace,
            namespace_number,
            labels,
            selected: Vec::new(),
            selected_of: 0,
            inverse_selected: Vec::new(),
            inverse_selected_of: 0,
        }
    }

    /// The namespace and the labels.
    pub(super) fn of_rules(&self) -> Subject<'_> {
        Subject {
            namespace: &self.namespace,
            labels: &self.labels,
        }
    }

    /// Looks at the rules that have come into being since the last look; says how many steps that took.
    pub(super) fn refresh(&mut self, topology: &Topology<'_>) -> u64 {
        let rules = topology.rules();
        if rules == (self.selected_of, self.inverse_selected_of) {
            return 0;
        }
        let subject = Subject {
            namespace: &self.namespace,
            labels: &self.labels,
        };
        let (selected, asked) = topology.selecting(subject, self.selected_of);
        self.selected.extend(selected);
        let (selected, asked_inverse) = topology.inverse_selecting(subject, self.inverse_selected_of);
        self.inverse_selected.extend(selected);
        (self.selected_of, self.inverse_selected_of) = rules;
        8 * (1 + asked + asked_inverse) as u64
    }
}

/// What pods of one size ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Size {
    pub(super) amounts: Vec<Amount>,
    /// The resources that it names, of whatever amount.
    pub(super) named: BitSet,
    /// The claims and nodes that will never have room for it.
    pub(super) full_claims: Marks,
    pub(super) full_nodes: Marks,
}

/// The labels that the rules of `pods` look at.
pub(super) fn relevant_labels<'p>(pods: impl Iterator<Item = &'p PodRecord>) -> BTreeSet<&'p str> {
    let mut keys = BTreeSet::new();
    for pod in pods {
        let Some(spec) = &pod.spec else { continue };
        for spread in spec.topology_spread_constraints.iter().flatten() {
            keys.extend(Selector::keys(spread.label_selector.as_ref()));
            keys.extend(spread.match_label_keys.iter().flatten().map(String::as_str));
        }
        let Some(affinity) = &spec.affinity else { continue };
        let mut term = |term: &'p PodAffinityTerm| keys.extend(Selector::keys(term.label_selector.as_ref()));
        if let Some(together) = &affinity.pod_affinity {
            together
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
                .for_each(&mut term);
            let preferred = together
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten();
            preferred.for_each(|preference| term(&preference.pod_affinity_term));
        }
        if let Some(apart) = &affinity.pod_anti_affinity {
            apart
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
                .for_each(&mut term);
            let preferred = apart
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten();
            preferred.for_each(|preference| term(&preference.pod_affinity_term));
        }
    }
    keys
}

/// The labels of `pod` among `keys`.
pub(super) fn project(pod: &PodRecord, keys: &BTreeSet<&str>) -> Labels {
    let labels = pod.metadata.labels.as_deref().into_iter().flatten();
    labels
        .filter(|(key, _)| keys.contains(key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Every shape in play.
pub(super) type Shapes = Table<ShapeId, Shape>;
/// Every subject in play.
pub(super) type Subjects = Table<SubjectId, SubjectRules>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_unmarked_position_is_found_across_words() {
        let mut marks = Marks::default();
        for position in (0..130).filter(|position| *position != 63 && *position != 128) {
            marks.insert(position);
        }
        assert_eq!(marks.count(), 128);
        let mut other = Marks::default();
        assert_eq!(marks.next_unmarked(&other, 0, 200), Some(63));
        assert_eq!(marks.next_unmarked(&other, 64, 200), Some(128));
        assert_eq!(marks.next_unmarked(&other, 129, 200), Some(130));
        assert_eq!(marks.next_unmarked(&other, 129, 130), None);
        other.insert(63);
        assert_eq!(marks.next_unmarked(&other, 0, 200), Some(128));
        assert!(marks.contains(64) && !marks.contains(63) && !marks.contains(500));
    }
}
