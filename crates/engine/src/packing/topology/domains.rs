//! The domains of a label, and the pods and nodes that are counted in them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodAffinityTerm, Toleration};

use super::Subject;
use super::group::{Group, Kind};
use crate::bitset::BitSet;
use crate::packing::hash::FastMap;
use crate::packing::ids::{StateId, TaintsId};
use crate::packing::selector::Selector;
use crate::packing::states::States;
use crate::packing::taints::TaintLists;
use crate::packing::types::Types;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::vocabulary::{Symbol, Vocabulary};

type Labels = BTreeMap<String, String>;

/// What a NodePool adds to the domains of a label.
#[derive(Clone, Debug)]
pub(crate) struct PoolDomains {
    /// Its requirements and the labels of its template.
    pub(crate) requirements: Requirements,
    pub(crate) taints: TaintsId,
}

/// A node, as far as counting goes.
#[derive(Clone, Debug)]
pub(crate) struct ViewedNode<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: &'a Labels,
    /// The labels as requirements.
    pub(crate) state: StateId,
    pub(crate) taints: TaintsId,
    /// The labels it is known by, if pods can go to it.
    pub(crate) open: Option<&'a Labels>,
}

/// Pods on nodes with the same namespace and the same labels that matter.
#[derive(Clone, Debug)]
pub(crate) struct PodCount {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    /// How many are on which node.
    pub(crate) nodes: Vec<(usize, i32)>,
}

/// What there is before anything is placed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterView<'a> {
    pub(crate) pools: Vec<PoolDomains>,
    pub(crate) nodes: Vec<ViewedNode<'a>>,
    pub(crate) pods: Vec<PodCount>,
    /// Where pods with a label and a value are in the list of them.
    labelled: FastMap<String, FastMap<String, Vec<usize>>>,
    /// The labels that some node has.
    node_labels: BTreeSet<&'a str>,
    pub(crate) namespaces: Vec<(String, Labels)>,
}

impl<'a> ClusterView<'a> {
    pub(crate) fn new(
        pools: Vec<PoolDomains>,
        nodes: Vec<ViewedNode<'a>>,
        pods: Vec<PodCount>,
        namespaces: Vec<(String, Labels)>,
    ) -> Self {
        let mut labelled: FastMap<String, FastMap<String, Vec<usize>>> = FastMap::default();
        for (at, pods) in pods.iter().enumerate() {
            for (key, value) in &pods.labels {
                let by_value = match labelled.get_mut(key) {
                    Some(known) => known,
                    None => labelled.entry(key.clone()).or_default(),
                };
                by_value.entry(value.clone()).or_default().push(at);
            }
        }
        let mut node_labels: BTreeSet<&'a str> = BTreeSet::new();
        for node in &nodes {
            let all = node
                .labels
                .keys()
                .chain(node.open.into_iter().flat_map(BTreeMap::keys));
            all.for_each(|key| _ = node_labels.insert(key));
        }
        Self {
            pools,
            nodes,
            pods,
            labelled,
            node_labels,
            namespaces,
        }
    }

    /// The namespaces that an affinity term of a pod in `namespace` is about.
    pub(super) fn namespaces_of(&self, term: &PodAffinityTerm, namespace: &str) -> Vec<String> {
        let mut named: Vec<String> = term.namespaces.iter().flatten().cloned().collect();
        match &term.namespace_selector {
            None if named.is_empty() => vec![namespace.to_owned()],
            None => named,
            Some(selector) => {
                let selector = Selector::new(Some(selector), &[]);
                let selected = self
                    .namespaces
                    .iter()
                    .filter(|(_, labels)| selector.selects(labels));
                named.extend(selected.map(|(name, _)| name.clone()));
                named
            }
        }
    }

    /// The pods that a selector can count, in their order; the whole selector has to be asked about each.
    fn selectable(&self, selector: &Selector) -> Vec<&PodCount> {
        let Some((key, values)) = selector.demanded_values() else {
            return self.pods.iter().collect();
        };
        let by_value = self.labelled.get(key);
        let positions = values.iter().filter_map(|value| by_value?.get(value));
        let mut positions: Vec<usize> = positions.flatten().copied().collect();
        positions.sort_unstable();
        positions.into_iter().filter_map(|at| self.pods.get(at)).collect()
    }

    /// Counts what is on the nodes into a new rule.
    pub(super) fn count(
        &self,
        group: &mut Group,
        domains: &KeyDomains,
        states: &States,
        taints: &TaintLists,
    ) {
        let everything = group.filter.is_everything();
        let mut takes_part: Vec<Option<bool>> = if everything {
            Vec::new()
        } else {
            vec![None; self.nodes.len()]
        };
        let mut matches = |group: &Group, at: usize, node: &ViewedNode<'_>| {
            everything
                || takes_part.get_mut(at).is_some_and(|known| {
                    *known
                        .get_or_insert_with(|| group.filter.matches(node.state, node.taints, states, taints))
                })
        };
        if everything {
            domains.open.iter().for_each(|domain| group.register(*domain));
        } else if !domains.is_hostname {
            for (at, (node, of_node)) in self.nodes.iter().zip(&domains.of_nodes).enumerate() {
                if let Some(domain) = of_node.open
                    && matches(group, at, node)
                {
                    group.register(domain);
                }
            }
        }
        for pods in self.selectable(group.selector()) {
            if !group.counts_pod(Subject {
                namespace: &pods.namespace,
                labels: &pods.labels,
            }) {
                continue;
            }
            for &(at, count) in &pods.nodes {
                if let (Some(domain), Some(node)) = (domains.counted(at), self.nodes.get(at))
                    && matches(group, at, node)
                {
                    group.record(domain, count);
                }
            }
        }
    }
}

/// The domains of one label, numbered alphabetically as far as they are known at the start.
#[derive(Clone, Debug)]
pub(super) struct KeyDomains {
    symbol: Symbol,
    is_hostname: bool,
    domains: Vec<Symbol>,
    index: FastMap<Symbol, usize>,
    /// The domains that NodePools can launch into, with the taints under which they can.
    launchable: Vec<(usize, Vec<TaintsId>)>,
    /// The domains of the viewed nodes, in their order; empty where no node has any.
    of_nodes: Vec<OfNode>,
    /// The domains of all nodes that pods can go to. Hosts are left out: nobody asks which ones a rule knows.
    open: Vec<usize>,
}

/// The domains of one node.
#[derive(Clone, Copy, Debug)]
struct OfNode {
    /// Where its pods are counted; the name of a node stands for a host that no label names.
    counted: Option<usize>,
    /// Where pods can go.
    open: Option<usize>,
}

impl KeyDomains {
    pub(super) fn new(
        symbol: Symbol,
        view: &ClusterView<'_>,
        states: &mut States,
        types: &mut Types,
    ) -> Self {
        let is_hostname = symbol == states.hostname;
        let mut launchable: BTreeMap<Symbol, BTreeSet<TaintsId>> = BTreeMap::new();
        for pool in &view.pools {
            let own = pool.requirements.get(symbol);
            let mut add = |requirement: &Requirement| {
                for value in requirement.values() {
                    launchable.entry(*value).or_default().insert(pool.taints);
                }
            };
            for (shape, _) in types.shapes(symbol) {
                match own {
                    Some(own) => add(&shape.intersection(own, &states.vocabulary)),
                    None => add(shape),
                }
            }
            // A NodePool's exclusions count as domains where no type knows the label: Karpenter takes the listed
            // values whatever the operator.
            let everywhere = types.any_without(symbol);
            if let Some(own) = own.filter(|own| everywhere || own.operator() == Operator::In) {
                add(own);
            }
        }
        let key = states.vocabulary.text(symbol).to_owned();
        let mut known: BTreeSet<Symbol> = launchable.keys().copied().collect();
        let mut values: Vec<(Option<Symbol>, Option<Symbol>)> = Vec::new();
        // Pods may name any label, and most are on no node.
        let is_on_nodes = is_hostname || view.node_labels.contains(key.as_str());
        for node in view.nodes.iter().filter(|_| is_on_nodes) {
            let value = |labels: &'_ Labels| labels.get(&key).cloned();
            let name = || is_hostname.then(|| node.name.to_owned());
            let mut symbol = |value: Option<String>| value.map(|value| states.vocabulary.intern(&value));
            let counted = symbol(value(node.labels).or_else(name));
            let open = symbol(node.open.and_then(value));
            let by_name = symbol(node.open.and_then(|_| name()));
            known.extend([counted, open.or(by_name)].into_iter().flatten());
            values.push((counted, open));
        }
        let mut domains: Vec<Symbol> = known.into_iter().collect();
        domains.sort_by(|a, b| states.vocabulary.text(*a).cmp(states.vocabulary.text(*b)));
        let index: FastMap<Symbol, usize> = domains
            .iter()
            .enumerate()
            .map(|(at, value)| (*value, at))
            .collect();
        let launchable = launchable
            .into_iter()
            .filter_map(|(value, taints)| Some((*index.get(&value)?, taints.into_iter().collect())))
            .collect();
        let number = |value: Option<Symbol>| value.and_then(|value| index.get(&value).copied());
        let of_nodes: Vec<OfNode> = values
            .into_iter()
            .map(|(counted, open)| OfNode {
                counted: number(counted),
                open: number(open),
            })
            .collect();
        let open: BTreeSet<usize> = of_nodes
            .iter()
            .filter(|_| !is_hostname)
            .filter_map(|node| node.open)
            .collect();
        Self {
            symbol,
            is_hostname,
            domains,
            index,
            launchable,
            of_nodes,
            open: open.into_iter().collect(),
        }
    }

    pub(super) fn symbol(&self) -> Symbol {
        self.symbol
    }

    pub(super) fn is_hostname(&self) -> bool {
        self.is_hostname
    }

    /// Where the pods of the node at `position` of the view are counted.
    pub(super) fn counted(&self, position: usize) -> Option<usize> {
        self.of_nodes.get(position)?.counted
    }

    pub(super) fn len(&self) -> usize {
        self.domains.len()
    }

    /// The value behind a number.
    pub(super) fn value(&self, domain: usize) -> Option<Symbol> {
        self.domains.get(domain).copied()
    }

    /// The number of a value, made if it is new.
    pub(super) fn number(&mut self, value: Symbol) -> usize {
        *self.index.entry(value).or_insert_with(|| {
            self.domains.push(value);
            self.domains.len() - 1
        })
    }

    /// Makes a new rule know the domains that can be launched into by a pod with `tolerations`. Spreads ignore
    /// taints unless they say otherwise; affinities never do.
    pub(super) fn register(&self, group: &mut Group, tolerations: &[Toleration], taints: &TaintLists) {
        if self.is_hostname {
            return;
        }
        let ignore_taints = group.kind == Kind::Spread && !group.filter.honor_taints;
        for (domain, lists) in &self.launchable {
            if ignore_taints || lists.iter().any(|list| taints.tolerated(*list, tolerations)) {
                group.register(*domain);
            }
        }
    }

    /// The domains that a requirement allows; all of them without one.
    pub(super) fn allowed_by(&self, requirement: Option<&Requirement>, vocabulary: &Vocabulary) -> BitSet {
        let Some(requirement) = requirement else {
            return BitSet::full(self.domains.len());
        };
        let mut set = BitSet::empty(self.domains.len());
        for (at, value) in self.domains.iter().enumerate() {
            if requirement.has(*value, vocabulary) {
                set.insert(at);
            }
        }
        set
    }
}
