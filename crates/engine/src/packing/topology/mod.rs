//! Spread constraints, pod affinity and anti-affinity.
//!
//! A [`Group`] is one rule with the number of selected pods in each domain (each zone, each host). Many pods share a
//! group. Anti-affinity works both ways, so the required anti-affinity of every pod is also kept as an *inverse*
//! group: there the counts are of the pods that object, and the rule binds the pods that it selects.
//!
//! Before a pod is tried anywhere, [`Topology::checks`] works out which domains each of its rules allows; trying a
//! node is then a matter of combining bit sets. Hosts are counted apart, because every claim is one.

mod checks;
mod directory;
mod domains;
mod forced;
mod group;

pub(super) use checks::{Checks, HostVerdict, LabelRule, Narrowed, Unsatisfied};
pub(super) use domains::{ClusterView, PodCount, PoolDomains, ViewedNode};
pub(super) use forced::ForcedSpread;
pub(super) use group::{Group, Kind};

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, Toleration, TopologySpreadConstraint};
use veneer_api::labels::kubernetes;

use super::forms::Form;
use super::hash::FastMap;
use super::ids::{GroupId, KeyId, StateId, Table, TaintsId};
use super::selector::Selector;
use super::states::{Side, States};
use super::taints::TaintLists;
use super::terms::add_term;
use super::types::Types;
use crate::bitset::BitSet;
use crate::requirements::Requirements;
use crate::vocabulary::Symbol;
use directory::Directory;
use domains::KeyDomains;
use group::{Filter, FilterKey, GroupKey, NodeFilterKey, TolerationLists};

/// A rule that binds a pod, and whether the pod counts in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) group: GroupId,
    pub(super) selects_self: bool,
}

/// Every rule in play.
pub(super) struct Topology<'a> {
    pub(super) view: ClusterView<'a>,
    keys: Table<KeyId, KeyDomains>,
    key_index: FastMap<Symbol, KeyId>,
    groups: Table<GroupId, Group>,
    directory: Directory,
    index: FastMap<GroupKey, GroupId>,
    inverse: Table<GroupId, Group>,
    inverse_directory: Directory,
    inverse_index: FastMap<GroupKey, GroupId>,
    /// The domains of a key that a state allows, with the number of domains known then.
    masks: FastMap<(StateId, KeyId), (usize, BitSet)>,
    filtered: FastMap<(GroupId, StateId, TaintsId), bool>,
    node_filters: FastMap<NodeFilterKey, usize>,
    tolerations: TolerationLists,
    /// What counts were before they changed, in order, while that is written down.
    journal: Vec<Vec<Before>>,
}

/// A count before it changed.
#[derive(Clone, Copy, Debug)]
struct Before {
    is_inverse: bool,
    group: GroupId,
    domain: usize,
    count: i32,
}

/// What a pod is to the rules: its namespace and its labels.
#[derive(Clone, Copy)]
pub(super) struct Subject<'p> {
    pub(super) namespace: &'p str,
    pub(super) labels: &'p BTreeMap<String, String>,
}

impl<'a> Topology<'a> {
    pub(super) fn new(view: ClusterView<'a>) -> Self {
        Self {
            view,
            keys: Table::default(),
            key_index: FastMap::default(),
            groups: Table::default(),
            directory: Directory::default(),
            index: FastMap::default(),
            inverse: Table::default(),
            inverse_directory: Directory::default(),
            inverse_index: FastMap::default(),
            masks: FastMap::default(),
            filtered: FastMap::default(),
            node_filters: FastMap::default(),
            tolerations: TolerationLists::default(),
            journal: Vec::new(),
        }
    }

    /// How many rules there are, and how many inverse ones.
    pub(super) fn rules(&self) -> (usize, usize) {
        (self.groups.len(), self.inverse.len())
    }

    /// The rules that count a pod, among those that came after the first `from`, and how many were asked.
    pub(super) fn selecting(&self, subject: Subject<'_>, from: usize) -> (Vec<GroupId>, usize) {
        self.directory.selecting(&self.groups, subject, from)
    }

    /// The same for the anti-affinities of other pods.
    pub(super) fn inverse_selecting(&self, subject: Subject<'_>, from: usize) -> (Vec<GroupId>, usize) {
        self.inverse_directory.selecting(&self.inverse, subject, from)
    }

    fn key(&mut self, key: &str, states: &mut States, types: &mut Types) -> KeyId {
        let symbol = states.vocabulary.intern(key);
        if let Some(known) = self.key_index.get(&symbol) {
            return *known;
        }
        let domains = KeyDomains::new(symbol, &self.view, states, types);
        let id = self.keys.push(domains);
        self.key_index.insert(symbol, id);
        id
    }

    /// The rules that `constraints` bind a pod to; new ones start from what is on the nodes now.
    pub(super) fn owned(
        &mut self,
        form: &Form,
        subject: Subject<'_>,
        states: &mut States,
        types: &mut Types,
        taints: &TaintLists,
    ) -> Vec<Owned> {
        let mut owned = Vec::new();
        let spreads = form.spreads();
        if !spreads.is_empty() {
            // All spreads of a form look at the same nodes, but for their policies.
            let nodes = self.node_filter(form, states);
            for spread in spreads {
                let group = self.spread_group(spread, &nodes, form, subject, states, types, taints);
                owned.push(group);
            }
        }
        let tolerations = form.tolerations();
        let together = form.base().together().iter();
        for term in together.chain(form.rather_together()) {
            let group = self.term_group(Kind::Affinity, term, tolerations, subject, states, types, taints);
            owned.push(group);
        }
        let apart = form.base().apart().iter();
        for term in apart.chain(form.rather_apart()) {
            let kind = Kind::AntiAffinity;
            owned.push(self.term_group(kind, term, tolerations, subject, states, types, taints));
        }
        let groups = &self.groups;
        owned.sort_unstable();
        owned.dedup();
        owned
            .into_iter()
            .map(|group| Owned {
                group,
                selects_self: groups[group].selects(subject),
            })
            .collect()
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the tables that a new rule is made from"
    )]
    fn spread_group(
        &mut self,
        spread: &TopologySpreadConstraint,
        nodes: &NodeFilter,
        form: &Form,
        subject: Subject<'_>,
        states: &mut States,
        types: &mut Types,
        taints: &TaintLists,
    ) -> GroupId {
        let more: Vec<(&str, &str)> = spread
            .match_label_keys
            .iter()
            .flatten()
            .filter_map(|key| Some((key.as_str(), subject.labels.get(key)?.as_str())))
            .collect();
        let selector = Selector::new(spread.label_selector.as_ref(), &more);
        let filter = nodes.of(spread, form);
        let key = GroupKey::new(
            Kind::Spread,
            &spread.topology_key,
            vec![subject.namespace.to_owned()],
            spread.max_skew,
            Some(FilterKey {
                honor_affinity: filter.honor_affinity,
                honor_taints: filter.honor_taints,
                nodes: nodes.number,
            }),
            selector,
            states,
        );
        if let Some(known) = self.index.get(&key) {
            return *known;
        }
        let mut group = self.new_group(&key, filter, states, types);
        group.min_domains = spread.min_domains;
        self.insert(key, group, form.tolerations(), states, taints)
    }

    /// Which nodes take part in the spreads of a form.
    fn node_filter(&mut self, form: &Form, states: &mut States) -> NodeFilter {
        let selector = form.base().selector_requirements(&mut states.vocabulary);
        let terms = match form.required() {
            None => vec![selector],
            Some(terms) => terms
                .iter()
                .map(|term| {
                    let mut requirements = selector.clone();
                    add_term(&mut requirements, term, &mut states.vocabulary);
                    requirements
                })
                .collect(),
        };
        let any_labels = terms.is_empty() || terms.iter().any(Requirements::is_empty);
        let terms: Arc<[StateId]> = terms
            .into_iter()
            .map(|requirements| states.intern(requirements))
            .collect();
        let tolerations = self.tolerations.number(form.tolerations());
        let key = NodeFilterKey::new(&terms, tolerations, states);
        let next = self.node_filters.len();
        let number = *self.node_filters.entry(key).or_insert(next);
        NodeFilter {
            number,
            any_labels,
            terms,
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the tables that a new rule is made from"
    )]
    fn term_group(
        &mut self,
        kind: Kind,
        term: &PodAffinityTerm,
        tolerations: &[Toleration],
        subject: Subject<'_>,
        states: &mut States,
        types: &mut Types,
        taints: &TaintLists,
    ) -> GroupId {
        let key = self.term_key(kind, term, subject.namespace, states);
        if let Some(known) = self.index.get(&key) {
            return *known;
        }
        let group = self.new_group(&key, Filter::everything(), states, types);
        self.insert(key, group, tolerations, states, taints)
    }

    fn term_key(&self, kind: Kind, term: &PodAffinityTerm, namespace: &str, states: &mut States) -> GroupKey {
        let namespaces = self.view.namespaces_of(term, namespace);
        let selector = Selector::new(term.label_selector.as_ref(), &[]);
        GroupKey::new(
            kind,
            &term.topology_key,
            namespaces,
            i32::MAX,
            None,
            selector,
            states,
        )
    }

    fn new_group(&mut self, key: &GroupKey, filter: Filter, states: &mut States, types: &mut Types) -> Group {
        let text = states.vocabulary.text(key.topology_key()).to_owned();
        let key_id = self.key(&text, states, types);
        Group::new(key, key_id, self.keys[key_id].is_hostname(), filter)
    }

    /// Adds a rule with the domains that exist and the pods that are on nodes.
    fn insert(
        &mut self,
        key: GroupKey,
        mut group: Group,
        tolerations: &[Toleration],
        states: &mut States,
        taints: &TaintLists,
    ) -> GroupId {
        let domains = &mut self.keys[group.key];
        domains.register(&mut group, tolerations, taints);
        self.view.count(&mut group, domains, states, taints);
        let id = self.directory.push(&mut self.groups, group);
        self.index.insert(key, id);
        id
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the tables that a new rule is made from"
    )]
    /// The inverse rules of a pod's required anti-affinity. `node` is where the pod is, if it is on a node.
    pub(super) fn inverse_owned(
        &mut self,
        apart: &[PodAffinityTerm],
        tolerations: &[Toleration],
        namespace: &str,
        node: Option<&ViewedNode<'_>>,
        states: &mut States,
        types: &mut Types,
        taints: &TaintLists,
    ) -> Vec<GroupId> {
        let mut owned = Vec::with_capacity(apart.len());
        for term in apart {
            let key = self.term_key(Kind::AntiAffinity, term, namespace, states);
            let id = match self.inverse_index.get(&key) {
                Some(known) => *known,
                None => {
                    let mut group = self.new_group(&key, Filter::everything(), states, types);
                    self.keys[group.key].register(&mut group, tolerations, taints);
                    let id = self.inverse_directory.push(&mut self.inverse, group);
                    self.inverse_index.insert(key, id);
                    id
                }
            };
            if let Some(value) = node.and_then(|node| node.labels.get(&term.topology_key)) {
                let value = states.vocabulary.intern(value);
                let domain = self.keys[self.inverse[id].key].number(value);
                self.inverse[id].record(domain, 1);
            }
            owned.push(id);
        }
        owned.sort_unstable();
        owned.dedup();
        owned
    }

    /// The host number of a node's name.
    pub(super) fn host_of_node(&mut self, name: Symbol, states: &mut States, types: &mut Types) -> usize {
        let key = self.key(crate::labels::HOSTNAME, states, types);
        self.keys[key].number(name)
    }

    /// The host number of the claim at `position`; call only after every node has its number.
    pub(super) fn host_of_claim(&mut self, position: usize, states: &mut States, types: &mut Types) -> usize {
        let key = self.key(crate::labels::HOSTNAME, states, types);
        self.keys[key].len() + position
    }

    /// The domains of `key` that `state` allows.
    fn mask(&mut self, state: StateId, key: KeyId, states: &States) -> &BitSet {
        let domains = &self.keys[key];
        let entry = self
            .masks
            .entry((state, key))
            .or_insert_with(|| (usize::MAX, BitSet::default()));
        if entry.0 != domains.len() {
            let requirement = states.get(state).get(domains.symbol());
            *entry = (domains.len(), domains.allowed_by(requirement, &states.vocabulary));
        }
        &entry.1
    }

    /// Notes that a pod of `subject` went to `host`, a node with `taints` that is now in `state`.
    pub(super) fn record(
        &mut self,
        selected: &[GroupId],
        inverse_owned: &[GroupId],
        placed: Placed,
        states: &States,
        taints: &TaintLists,
    ) {
        for &id in selected {
            if !self.filter_matches(id, placed.state, placed.taints, states, taints) {
                continue;
            }
            let group = &self.groups[id];
            let domains = &mut self.keys[group.key];
            if domains.is_hostname() {
                self.change(false, id, placed.host, 1);
                continue;
            }
            let Some(requirement) = states.get(placed.state).get(domains.symbol()) else {
                continue;
            };
            if group.kind == Kind::AntiAffinity {
                // Every domain that the pod might land in is taken.
                for value in requirement.values() {
                    let domain = self.keys[self.groups[id].key].number(*value);
                    self.change(false, id, domain, 1);
                }
            } else if let Some(value) = requirement.single_value() {
                let domain = domains.number(value);
                self.change(false, id, domain, 1);
            }
        }
        for &id in inverse_owned {
            let group = &self.inverse[id];
            let domains = &self.keys[group.key];
            if domains.is_hostname() {
                self.change(true, id, placed.host, 1);
                continue;
            }
            let Some(requirement) = states.get(placed.state).get(domains.symbol()) else {
                continue;
            };
            for value in requirement.values() {
                let domain = self.keys[self.inverse[id].key].number(*value);
                self.change(true, id, domain, 1);
            }
        }
    }

    fn change(&mut self, is_inverse: bool, group: GroupId, domain: usize, pods: i32) {
        let table = if is_inverse {
            &mut self.inverse
        } else {
            &mut self.groups
        };
        let count = table[group].change(domain, pods);
        if let Some(journal) = self.journal.last_mut() {
            journal.push(Before {
                is_inverse,
                group,
                domain,
                count,
            });
        }
    }

    /// Notes that a pod left the node at `position` of the view, where it was counted from the start.
    pub(super) fn forget(
        &mut self,
        selected: &[GroupId],
        inverse_owned: &[GroupId],
        position: usize,
        states: &States,
        taints: &TaintLists,
    ) {
        let Some(node) = self.view.nodes.get(position) else {
            return;
        };
        let (labels, state, node_taints) = (node.labels, node.state, node.taints);
        for (is_inverse, ids) in [(false, selected), (true, inverse_owned)] {
            for &id in ids {
                if !is_inverse && !self.filter_matches(id, state, node_taints, states, taints) {
                    continue;
                }
                let table = if is_inverse { &self.inverse } else { &self.groups };
                let domains = &self.keys[table[id].key];
                // Only a label counts against those who keep away, the name of a node does not.
                if is_inverse && domains.is_hostname() && !labels.contains_key(kubernetes::HOSTNAME) {
                    continue;
                }
                if let Some(domain) = domains.counted(position) {
                    self.change(is_inverse, id, domain, -1);
                }
            }
        }
    }

    /// From now on changes of counts are written down.
    pub(super) fn begin(&mut self) {
        self.journal.push(Vec::new());
    }

    /// Keeps or takes back what has changed since [`Topology::begin`].
    pub(super) fn end(&mut self, keep: bool) {
        let journal = self.journal.pop().unwrap_or_default();
        if keep {
            self.journal
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|outer| outer.extend(&journal));
            return;
        }
        for before in journal.into_iter().rev() {
            let table = if before.is_inverse {
                &mut self.inverse
            } else {
                &mut self.groups
            };
            table[before.group].restore(before.domain, before.count);
        }
    }

    fn filter_matches(
        &mut self,
        group: GroupId,
        state: StateId,
        node_taints: TaintsId,
        states: &States,
        taints: &TaintLists,
    ) -> bool {
        let filter = &self.groups[group].filter;
        if filter.is_everything() {
            return true;
        }
        *self
            .filtered
            .entry((group, state, node_taints))
            .or_insert_with(|| filter.matches(state, node_taints, states, taints))
    }
}

/// Which nodes take part in the spreads of a form.
struct NodeFilter {
    /// Filters with the same number are the same to Karpenter.
    number: usize,
    any_labels: bool,
    terms: Arc<[StateId]>,
}

impl NodeFilter {
    /// The filter of one of the spreads.
    fn of(&self, spread: &TopologySpreadConstraint, form: &Form) -> Filter {
        Filter {
            any_labels: self.any_labels,
            terms: Arc::clone(&self.terms),
            honor_affinity: spread.node_affinity_policy.as_deref().unwrap_or("Honor") == "Honor",
            honor_taints: spread.node_taints_policy.as_deref().unwrap_or("Ignore") == "Honor",
            tolerations: Arc::clone(form.tolerations()),
        }
    }
}

/// Where a pod went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) host: usize,
    pub(super) taints: TaintsId,
    pub(super) state: StateId,
}

impl Filter {
    /// Whether nodes in `state` with `node_taints` take part.
    fn matches(&self, state: StateId, node_taints: TaintsId, states: &States, taints: &TaintLists) -> bool {
        let by_labels = !self.honor_affinity
            || self.any_labels
            || self
                .terms
                .iter()
                .any(|term| states.conflict(state, *term, Side::Node).is_none());
        by_labels && (!self.honor_taints || taints.tolerated(node_taints, &self.tolerations))
    }
}
