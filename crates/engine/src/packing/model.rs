//! The problem, compiled: everything numbered, nothing placed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::PodRecord;
use super::amounts::{Amount, Dimensions};
use super::cluster::{ClusterNode, Labels, cluster_nodes, is_terminal, node_labels, node_name, node_taints};
use super::constraints::Constraints;
use super::daemons::{self, Daemon};
use super::grouping::{self, Grouped, SizeBook};
use super::hash::FastMap;
use super::ids::{NodeId, PoolId, ShapeId, SizeId, StateId, Table};
use super::nodes::{NodeSlot, Rows, remaining, taken};
use super::pods::{self, PodEntry};
use super::pools::{self, Limits, Pool};
use super::shapes::{Shape, Shapes, Size, Subjects, Tables, project};
use super::shares::{hold_back, put_off, told};
use super::states::States;
use super::taints::TaintLists;
use super::topology::{ClusterView, PodCount, PoolDomains, Topology, ViewedNode};
use super::types::{Sizes, Types};
use super::volumes::Storage;
use super::{Objects, Options, PreferencePolicy, Problem, Reason, Unschedulable};
use crate::bitset::BitSet;
use crate::labels::NODE_POOL;
use crate::requirements::Requirements;
use crate::resources::ResourceList;

/// A problem in numbers.
pub(super) struct Model<'a> {
    pub(super) states: States,
    pub(super) types: Types,
    pub(super) taints: TaintLists,
    pub(super) topology: Topology<'a>,
    pub(super) dimensions: Dimensions,
    pub(super) shapes: Shapes,
    pub(super) subjects: Subjects,
    pub(super) sizes: Table<SizeId, Size>,
    /// The pods in the order of the queue.
    pub(super) queue: Vec<PodEntry>,
    /// The namespaces of pods, by number.
    pub(super) namespaces: Vec<Arc<str>>,
    /// Those whose preferences do not count, because they cost too much.
    pub(super) held: BTreeSet<Arc<str>>,
    /// One pod of each kind of which some demands were left out.
    pub(super) told: Vec<(usize, ShapeId)>,
    /// The NodePools that can launch, in the order in which they are tried.
    pub(super) pools: Table<PoolId, Pool>,
    /// Why other NodePools cannot launch.
    pub(super) idle_pools: Vec<(String, String)>,
    pub(super) nodes: Table<NodeId, NodeSlot>,
    pub(super) refused: Vec<Unschedulable>,
    pub(super) tolerate_prefer_no_schedule: bool,
    /// Whether some pod accepts the absence of a label, and so may define one for others.
    pub(super) labels_may_appear: bool,
    /// The number of the first claim's host.
    pub(super) first_claim_host: usize,
}

impl<'a> Model<'a> {
    pub(super) fn new(problem: &Problem<'a>, options: &Options<'_>) -> Self {
        Self::with_movable(problem, options, &[], &BTreeSet::new()).0
    }

    /// The same, with pods on nodes that stay where they are for now; they are counted there, and their entries are
    /// given in the order of the queue. The preferences of pods in the namespaces that are `held` do not count, and
    /// these pods come last.
    pub(super) fn with_movable(
        problem: &Problem<'a>,
        options: &Options<'_>,
        movable: &[usize],
        held: &BTreeSet<Arc<str>>,
    ) -> (Self, Vec<PodEntry>) {
        let objects = problem.objects;
        let catalogue = &problem.catalogue;
        let mut states = States::new(catalogue.vocabulary.clone(), catalogue.rules.well_known());
        let mut types = Types::new(catalogue, &states.vocabulary);
        let mut taints = TaintLists::default();
        let storage = Storage::new(objects);
        let cluster = cluster_nodes(objects);
        let positions = pods::to_be_placed(objects, &cluster);
        let nowhere = pools::in_order(&objects.node_pools).is_empty();

        let mut book = SizeBook::default();
        let is_uncounted = |at: &usize| {
            let pod = objects.pods.get(*at);
            pod.is_some_and(|pod| !Storage::mounts_claims(pod) || !storage.has_lost_a_claim(pod))
        };
        let uncounted: Vec<usize> = positions.iter().copied().filter(is_uncounted).collect();
        let apart = pods_apart(objects, &uncounted);
        let Grouped {
            entries,
            mut sources,
            subjects,
            namespaces,
            mut refused,
            relevant,
        } = grouping::group(
            objects,
            &[&positions, movable].concat(),
            apart.iter().copied(),
            options.preferences,
            &mut book,
            (&storage, &catalogue.rules, &mut states),
        );
        let mut held = hold_back(&mut sources, &subjects, &namespaces, held);
        held.extend(put_off(&mut sources, &subjects, &namespaces));
        let mut daemons = daemons::daemons(objects);
        let mut dimensions = Dimensions::default();
        book.lists.iter().for_each(|list| dimensions.include(list));
        daemons
            .iter()
            .for_each(|daemon| dimensions.include(&daemon.requests));
        let sizes = book
            .lists
            .iter()
            .map(|list| Size {
                amounts: dimensions.row(list),
                named: dimensions.named(list),
                ..Size::default()
            })
            .collect();
        let is_placed = marked(objects, movable);
        let (movable, mut queue): (Vec<_>, Vec<_>) = grouping::sort(entries, objects, &book.lists)
            .into_iter()
            .partition(|entry| is_placed.contains(entry.position));
        if !held.is_empty() {
            let is_held = |entry: &PodEntry| {
                let subject = &subjects[sources[entry.shape].subject];
                held.contains(&subject.namespace)
            };
            queue.sort_by_key(is_held);
        }
        let told = told(&queue, &sources);
        if nowhere {
            refused.extend(queue.drain(..).map(|entry| without_pools(entry.position)));
        }

        let view = cluster_view(objects, &cluster, &uncounted, &relevant, &mut states, &mut taints);
        let mut topology = Topology::new(view);
        let viewed: FastMap<&str, usize> = topology
            .view
            .nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name, at))
            .collect();
        for pod in apart {
            let constraints = Constraints::of(pod, PreferencePolicy::Ignore);
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
            let name = node_name(pod).unwrap_or_default();
            // A pod that its node has left behind keeps nobody away.
            let node = viewed.get(name).and_then(|at| topology.view.nodes.get(*at));
            let Some(node) = node.cloned() else {
                continue;
            };
            topology.inverse_owned(
                constraints.apart(),
                &constraints.tolerations,
                namespace,
                Some(&node),
                &mut states,
                &mut types,
                &taints,
            );
        }
        let mut shapes = Shapes::default();
        let labels_may_appear = sources.iter().any(|source| accepts_absence(source.form.base()));
        for source in sources.iter() {
            let tables = &mut Tables {
                states: &mut states,
                types: &mut types,
                taints: &taints,
                topology: &mut topology,
            };
            shapes.push(Shape::compile(source.clone(), &subjects, tables));
        }

        let mut model = Self {
            states,
            types,
            taints,
            topology,
            dimensions,
            shapes,
            subjects,
            sizes,
            queue,
            namespaces,
            held,
            told,
            pools: Table::default(),
            idle_pools: Vec::new(),
            nodes: Table::default(),
            refused,
            tolerate_prefer_no_schedule: false,
            labels_may_appear,
            first_claim_host: 0,
        };
        let mut limits = model.add_pools(problem, options, &mut daemons);
        model.add_nodes(objects, &cluster, &daemons, &storage, &mut book, &mut limits);
        for (pool, limits) in model.pools.ids().zip(limits) {
            model.pools[pool].limits = limits;
        }
        model.first_claim_host = model
            .topology
            .host_of_claim(0, &mut model.states, &mut model.types);
        (model, movable)
    }

    fn add_pools(
        &mut self,
        problem: &Problem<'a>,
        options: &Options<'_>,
        daemons: &mut [Daemon],
    ) -> Vec<Limits> {
        let mut shared: Option<Arc<Sizes>> = None;
        let mut limits = Vec::new();
        let dimensions = &self.dimensions;
        for (position, node_pool) in pools::in_order(&problem.objects.node_pools) {
            let name = node_pool.metadata.name.clone().unwrap_or_default();
            let pool_taints = pools::taints(node_pool);
            self.tolerate_prefer_no_schedule |=
                pool_taints.iter().any(|taint| taint.effect == "PreferNoSchedule");
            let taints = self.taints.intern(pool_taints);
            let sizes = || Arc::new(Sizes::new(problem, position, dimensions));
            let is_plain = (0..self.types.count()).all(|entry| problem.is_plain(position, entry));
            let sizes = if is_plain {
                Arc::clone(shared.get_or_insert_with(sizes))
            } else {
                sizes()
            };
            let template = pools::template(node_pool, &mut self.states);
            let types = pools::template_types(
                template,
                &sizes,
                options.min_values,
                &mut self.types,
                &self.states,
            );
            if types.is_empty() {
                let why = "its requirements leave no instance type".to_owned();
                self.idle_pools.push((name, why));
                continue;
            }
            let groups = daemons::groups(
                daemons,
                template,
                taints,
                &types,
                dimensions,
                (&mut self.states, &mut self.types, &self.taints),
            );
            limits.push(Limits::new(&pools::limits(node_pool), position, problem));
            self.pools.push(Pool {
                name,
                position,
                template,
                taints,
                types,
                sizes,
                least_overhead: pools::least_overhead(&groups, dimensions),
                daemons: groups,
                limits: Limits::default(),
            });
        }
        limits
    }

    fn add_nodes(
        &mut self,
        objects: &'a Objects,
        cluster: &[ClusterNode<'a>],
        daemons: &[Daemon],
        storage: &Storage<'_>,
        book: &mut SizeBook<'a>,
        limits: &mut [Limits],
    ) {
        let csi_nodes: FastMap<&str, _> = objects
            .csi_nodes
            .iter()
            .map(|csi_node| (csi_node.metadata.name.as_deref().unwrap_or_default(), csi_node))
            .collect();
        let pool_of: FastMap<String, usize> = self
            .pools
            .iter()
            .enumerate()
            .map(|(at, pool)| (pool.name.clone(), at))
            .collect();
        // Rows of nodes begin like those of claims; what only nodes have follows and is looked at once.
        let mut dimensions = self.dimensions.clone();
        let active = cluster.iter().filter(|node| !node.is_deleting());
        let active: Vec<(&ClusterNode<'a>, ResourceList)> =
            active.map(|node| (node, node.allocatable())).collect();
        active
            .iter()
            .for_each(|(_, allocatable)| dimensions.include(allocatable));
        let mut rows = Rows::default();
        let mut slots: Vec<NodeSlot> = Vec::with_capacity(active.len());
        let viewed = self.topology.view.nodes.iter();
        let viewed: FastMap<usize, StateId> = viewed
            .map(|node| (std::ptr::from_ref(node.labels).addr(), node.state))
            .collect();
        for (node, allocatable) in active {
            // Most have been read for the view.
            let known = viewed.get(&std::ptr::from_ref(node.labels()).addr());
            let label_state = known.copied().unwrap_or_else(|| {
                let labels = label_requirements(node.labels(), &mut self.states);
                self.states.intern(labels)
            });
            let host_name = self.states.vocabulary.intern(node.host_name());
            let state = self
                .states
                .narrow(label_state, self.states.hostname, &[host_name]);
            let taints = self.taints.intern(&node.taints());
            let running: Vec<&Daemon> = daemons
                .iter()
                .filter(|daemon| daemon.runs_on(taints, label_state, &mut self.states, &self.taints))
                .collect();
            let left = remaining(
                node,
                &allocatable,
                objects,
                &running,
                &dimensions,
                book,
                &mut rows,
            );
            let csi_name = node
                .node
                .and_then(|node| node.metadata.name.as_deref())
                .unwrap_or_default();
            let (ports, volumes) = taken(node, objects, storage, csi_nodes.get(csi_name).copied());
            let pool = node.labels().get(NODE_POOL).and_then(|name| pool_of.get(name));
            if let Some(limits) = pool.and_then(|at| limits.get_mut(*at)) {
                limits.take_node(|| node.capacity());
            }
            slots.push(NodeSlot {
                name: node.name().to_owned(),
                is_initialized: node.is_initialized(),
                state,
                taints,
                host: self
                    .topology
                    .host_of_node(host_name, &mut self.states, &mut self.types),
                host_name,
                is_overdrawn: left.iter().any(|amount: &Amount| *amount < 0)
                    || objects.closed_nodes.contains(node.name()),
                remaining: left,
                ports,
                volumes,
                pods: Vec::new(),
            });
        }
        slots.sort_by(|a, b| (!a.is_initialized, &a.name).cmp(&(!b.is_initialized, &b.name)));
        self.nodes = slots.into_iter().collect();
    }
}

/// Karpenter does not schedule at all, not even to existing nodes, where no NodePool can launch.
fn without_pools(pod: usize) -> Unschedulable {
    let message = "there is no NodePool that can launch nodes (one that is ready, has no replicas and is not being deleted), so nothing is scheduled".to_owned();
    Unschedulable {
        pod,
        reasons: vec![Reason {
            node_pool: None,
            message,
        }],
    }
}

/// The positions as a set.
fn marked(objects: &Objects, positions: &[usize]) -> BitSet {
    let mut set = BitSet::empty(objects.pods.len());
    positions.iter().for_each(|position| set.insert(*position));
    set
}

/// The pods on nodes whose required anti-affinity binds others.
fn pods_apart<'a>(objects: &'a Objects, positions: &[usize]) -> Vec<&'a PodRecord> {
    let excluded = marked(objects, positions);
    let on_nodes = objects
        .pods
        .iter()
        .enumerate()
        .filter(|(at, _)| !excluded.contains(*at))
        .map(|(_, pod)| pod);
    on_nodes
        .filter(|pod| node_name(pod).is_some() && !is_terminal(pod) && keeps_apart(pod))
        .collect()
}

fn keeps_apart(pod: &PodRecord) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_some_and(|terms| !terms.is_empty())
}

fn accepts_absence(constraints: &Constraints) -> bool {
    let required = constraints.required().unwrap_or_default().iter();
    let preferred = constraints.preferred().map(|term| &term.preference);
    let expressions = required
        .chain(preferred)
        .flat_map(|term| term.match_expressions.iter().flatten());
    expressions
        .into_iter()
        .any(|expression| matches!(expression.operator.as_str(), "NotIn" | "DoesNotExist"))
}

fn label_requirements(labels: &Labels, states: &mut States) -> Requirements {
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Requirements::from_labels(labels, &mut states.vocabulary)
}

/// What rules count before anything is placed.
fn cluster_view<'a>(
    objects: &'a Objects,
    cluster: &[ClusterNode<'a>],
    positions: &[usize],
    relevant: &BTreeSet<&str>,
    states: &mut States,
    taints: &mut TaintLists,
) -> ClusterView<'a> {
    let open: FastMap<&str, &Labels> = cluster
        .iter()
        .filter(|node| !node.is_deleting())
        .filter_map(|node| Some((node.node?.metadata.name.as_deref()?, node.labels())))
        .collect();
    let mut number: FastMap<&str, usize> = FastMap::default();
    let mut nodes = Vec::with_capacity(objects.nodes.len());
    for node in &objects.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        number.insert(name, nodes.len());
        let labels = node_labels(node);
        let requirements = label_requirements(labels, states);
        nodes.push(ViewedNode {
            name,
            labels,
            state: states.intern(requirements),
            taints: taints.intern(node_taints(node)),
            open: open.get(name).copied(),
        });
    }
    let pools = pools::in_order(&objects.node_pools)
        .into_iter()
        .map(|(_, pool)| PoolDomains {
            requirements: pools::own_requirements(pool, &mut states.vocabulary),
            taints: taints.intern(pools::taints(pool)),
        })
        .collect();
    let pods = pod_counts(objects, positions, relevant, &number);
    ClusterView::new(pools, nodes, pods, namespaces(objects))
}

/// The pods on nodes, counted by namespace and the labels that matter.
fn pod_counts(
    objects: &Objects,
    positions: &[usize],
    relevant: &BTreeSet<&str>,
    number: &FastMap<&str, usize>,
) -> Vec<PodCount> {
    let excluded = marked(objects, positions);
    let mut counts: BTreeMap<(&str, Labels), usize> = BTreeMap::new();
    // Pods of one workload share their labels, so most are known by where those are.
    let mut known: FastMap<(usize, usize), usize> = FastMap::default();
    let mut on_nodes: Vec<BTreeMap<usize, i32>> = Vec::new();
    for (at, pod) in objects.pods.iter().enumerate() {
        let Some(node) = node_name(pod).and_then(|name| number.get(name)) else {
            continue;
        };
        if is_terminal(pod) || pod.metadata.deletion_timestamp.is_some() || excluded.contains(at) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let labels = pod
            .metadata
            .labels
            .as_ref()
            .map_or(0, |labels| Arc::as_ptr(labels).addr());
        let group = *known
            .entry((namespace.as_ptr().addr(), labels))
            .or_insert_with(|| {
                let next = counts.len();
                let group = *counts.entry((namespace, project(pod, relevant))).or_insert(next);
                on_nodes.resize_with(counts.len(), BTreeMap::new);
                group
            });
        if let Some(nodes) = on_nodes.get_mut(group) {
            *nodes.entry(*node).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|((namespace, labels), group)| PodCount {
            namespace: namespace.to_owned(),
            labels,
            nodes: on_nodes
                .get_mut(group)
                .map(std::mem::take)
                .into_iter()
                .flatten()
                .collect(),
        })
        .collect()
}

/// The namespaces with their labels; one that only pods name has the label that every namespace has.
fn namespaces(objects: &Objects) -> Vec<(String, Labels)> {
    let named = |name: &str| [("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into();
    let mut namespaces: BTreeMap<String, Labels> = objects
        .pods
        .iter()
        .map(|pod| pod.metadata.namespace.as_deref().unwrap_or("default"))
        .collect::<BTreeSet<&str>>()
        .into_iter()
        .map(|name| (name.to_owned(), named(name)))
        .collect();
    for namespace in &objects.namespaces {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let mut labels: Labels = named(&name);
        labels.extend(namespace.metadata.labels.clone().unwrap_or_default());
        namespaces.insert(name, labels);
    }
    namespaces.into_iter().collect()
}
