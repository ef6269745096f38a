//! What was decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claim::Claim;
use super::hash::FastMap;
use super::ids::{NodeId, Table};
use super::pools::{Pool, min_values_unmet};
use super::reasons::explain;
use super::solver::Solver;
use super::types::Types;
use super::{MinValuesPolicy, Problem};
use crate::bitset::BitSet;
use crate::labels::{CAPACITY_TYPE, RESERVED};
use crate::requirements::{Requirement, Requirements};
use crate::resources::ResourceList;
use crate::vocabulary::Vocabulary;

/// Where every pod goes. Pods are named by their position in [`super::Objects::pods`].
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The claims to make, in Karpenter's order.
    pub new_node_claims: Vec<NewNodeClaim>,
    /// The existing nodes and claims in flight that get pods, in the order in which they are tried.
    pub existing_nodes: Vec<ExistingNode>,
    /// The pods that go nowhere, by position.
    pub unschedulable: Vec<Unschedulable>,
    /// What pods should be told although they may have a place, one of each kind.
    pub notices: Vec<Notice>,
    /// The namespaces whose pods took too many steps: others were decided first, and their preferences do not count.
    pub held: Vec<HeldNamespace>,
    /// The steps that were taken; they are the same on every machine.
    pub steps: u64,
    /// Whether the run was stopped before every pod had its turn; those that had none are in neither list.
    pub stopped: bool,
    /// The strings behind the symbols in `requirements`.
    pub vocabulary: Vocabulary,
}

/// A node to launch.
#[derive(Clone, Debug)]
pub struct NewNodeClaim {
    /// The NodePool it comes from.
    pub node_pool: String,
    /// The pods on it, in the order in which they were placed.
    pub pods: Vec<usize>,
    /// What the pods and the daemonsets ask for in total.
    pub requests: ResourceList,
    /// What its labels must be, without the hostname.
    pub requirements: Requirements,
    /// The types that fit, as positions in the catalogue, by adjusted price and then by name. Claims with the same
    /// types share one list.
    pub instance_types: Arc<[usize]>,
    /// Whether `minValues` was lowered to make it.
    pub min_values_relaxed: bool,
}

/// An existing node, or a claim in flight, that gets pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingNode {
    /// The node's name, or the claim's as long as its node has not registered.
    pub name: String,
    /// The new pods on it, in the order in which they were placed.
    pub pods: Vec<usize>,
}

/// A pod that goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// The pod.
    pub pod: usize,
    /// Why, per NodePool in the order in which they are tried.
    pub reasons: Vec<Reason>,
}

/// Something that a pod should be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The pod.
    pub pod: usize,
    /// A sentence for people.
    pub message: String,
}

/// A namespace whose pods took too many steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNamespace {
    /// Its name.
    pub namespace: String,
    /// How many of its pods were not decided about in this run.
    pub undecided: usize,
}

/// Why a pod does not go somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The NodePool that was tried; none where the pod itself is at fault.
    pub node_pool: Option<String>,
    /// What stands in the way, as a sentence for people.
    pub message: String,
}

/// Turns the end of a run into results.
pub(super) fn collect(mut solver: Solver<'_, '_>, problem: &Problem<'_>) -> Results {
    let mut results = Results {
        stopped: solver.stopped,
        held: held(&solver),
        notices: notices(&solver),
        ..Results::default()
    };
    let mut ranking = Ranking::new(problem);
    results.unschedulable = explain(&mut solver);
    results.steps = solver.work.total() + solver.earlier_steps;
    let claims = std::mem::take(&mut solver.claims);
    let order = std::mem::take(&mut solver.order);
    for &id in order.claims() {
        let claim = &claims[id];
        match finish(claim, &mut solver, &mut ranking) {
            Ok(finished) => results.new_node_claims.push(finished),
            Err(reason) => results
                .unschedulable
                .extend(claim.pods.iter().map(|pod| Unschedulable {
                    pod: *pod,
                    reasons: vec![reason.clone()],
                })),
        }
    }
    let nodes: Table<NodeId, _> = std::mem::take(&mut solver.model.nodes);
    let used = nodes.iter().filter(|node| !node.pods.is_empty());
    results.existing_nodes = used
        .map(|node| ExistingNode {
            name: node.name.clone(),
            pods: node.pods.clone(),
        })
        .collect();
    results.unschedulable.append(&mut solver.model.refused);
    results
        .unschedulable
        .sort_by_key(|unschedulable| unschedulable.pod);
    results.vocabulary = solver.model.states.vocabulary;
    results
}

/// The namespaces that were held, in this run or before it, with the pods that had no turn.
fn held(solver: &Solver<'_, '_>) -> Vec<HeldNamespace> {
    let mut held: BTreeMap<Arc<str>, usize> = solver
        .model
        .held
        .iter()
        .map(|name| (Arc::clone(name), 0))
        .collect();
    held.extend(solver.held().into_iter().map(|name| (name, 0)));
    for entry in &solver.left_over {
        let subject = &solver.model.subjects[solver.model.shapes[entry.shape].subject];
        if solver.is_held(entry.shape)
            && let Some(undecided) = held.get_mut(&subject.namespace)
        {
            *undecided += 1;
        }
    }
    held.into_iter()
        .map(|(namespace, undecided)| HeldNamespace {
            namespace: namespace.to_string(),
            undecided,
        })
        .collect()
}

/// What was left out of the demands of pods, told to one pod of each kind.
fn notices(solver: &Solver<'_, '_>) -> Vec<Notice> {
    let told = &solver.model.told;
    told.iter()
        .filter_map(|(pod, shape)| {
            let message = solver.model.shapes[*shape].form.base().left_out.describe()?;
            Some(Notice { pod: *pod, message })
        })
        .collect()
}

/// A claim as it is to be made, unless the types that are kept do not meet `minValues`.
pub(super) fn finish(
    claim: &Claim,
    solver: &mut Solver<'_, '_>,
    ranking: &mut Ranking<'_>,
) -> Result<NewNodeClaim, Reason> {
    let requirements = final_requirements(claim, solver);
    let pool = &solver.model.pools[claim.pool];
    let classes = solver
        .model
        .types
        .compatible_classes(&requirements, &solver.model.states);
    let limit = solver.options.max_instance_types;
    let instance_types = ranking.order(claim, pool, &classes, &solver.model.types, limit);
    if requirements.has_min_values() && solver.options.min_values == MinValuesPolicy::Strict {
        let mut kept = BitSet::empty(solver.model.types.count());
        instance_types.iter().for_each(|entry| kept.insert(*entry));
        if !min_values_unmet(&kept, &requirements, &mut solver.model.types).is_empty() {
            return Err(Reason {
                node_pool: Some(pool.name.clone()),
                message: format!("the {limit} cheapest instance types do not meet minValues"),
            });
        }
    }
    let mut requests = solver.model.dimensions.list(&claim.requests, &claim.named);
    requests.add(&overhead(claim, pool));
    Ok(NewNodeClaim {
        node_pool: pool.name.clone(),
        pods: claim.pods.clone(),
        requests,
        requirements,
        instance_types,
        min_values_relaxed: claim.min_values_relaxed,
    })
}

/// What the claim demands in the end: no hostname, and the reservations that it holds.
fn final_requirements(claim: &Claim, solver: &mut Solver<'_, '_>) -> Requirements {
    let states = &mut solver.model.states;
    let types = &solver.model.types;
    let capacity_type = states.vocabulary.intern(CAPACITY_TYPE);
    let reserved = states.vocabulary.intern(RESERVED);
    let hostname = states.hostname;
    let is_reserved = !claim.reserved.is_empty();
    let mut requirements = Requirements::new();
    for (key, requirement) in states.get(claim.state).iter() {
        if key != hostname && !(is_reserved && key == capacity_type) {
            requirements.add(key, requirement.clone(), &states.vocabulary);
        }
    }
    if is_reserved {
        requirements.add(capacity_type, Requirement::one_of([reserved]), &states.vocabulary);
        let ids = claim
            .reserved
            .iter()
            .filter_map(|at| types.reservations.get(*at))
            .map(|(id, _)| *id);
        if let Some(label) = types.reservation_label {
            requirements.add(label, Requirement::one_of(ids), &states.vocabulary);
        }
    }
    requirements
}

/// The least that DaemonSets take of the types that are left. Types on which none runs do not lower it to nothing,
/// unless they come last: Karpenter takes the groups in random order, here they come as in the catalogue.
fn overhead(claim: &Claim, pool: &Pool) -> ResourceList {
    let mut least = ResourceList::new();
    for group in pool
        .daemons
        .iter()
        .filter(|group| group.types.intersects(&claim.types))
    {
        if least.is_empty() {
            least = group.requests.clone();
            continue;
        }
        let both = least.iter().filter_map(|(name, quantity)| {
            let other = group.requests.get(name)?;
            Some((name, quantity.min(other).clone()))
        });
        least = both.collect();
    }
    least
}

/// Orders types by price; claims that leave the same offerings share the work.
pub(super) struct Ranking<'p> {
    problem: &'p Problem<'p>,
    /// The types of a NodePool by the cheapest offering of some classes, and then by name.
    orders: FastMap<(PoolIndex, BitSet), Arc<[u32]>>,
    lists: FastMap<(PoolIndex, BitSet, BitSet), Arc<[usize]>>,
}

type PoolIndex = usize;

impl<'p> Ranking<'p> {
    pub(super) fn new(problem: &'p Problem<'p>) -> Self {
        Self {
            problem,
            orders: FastMap::default(),
            lists: FastMap::default(),
        }
    }

    /// The `limit` cheapest types of a claim.
    fn order(
        &mut self,
        claim: &Claim,
        pool: &Pool,
        classes: &BitSet,
        types: &Types,
        limit: usize,
    ) -> Arc<[usize]> {
        let key = (pool.position, classes.clone(), claim.types.clone());
        if let Some(known) = self.lists.get(&key) {
            return Arc::clone(known);
        }
        let order = self.of_classes(pool.position, classes, types);
        let chosen = order
            .iter()
            .map(|entry| *entry as usize)
            .filter(|entry| claim.types.contains(*entry));
        let list: Arc<[usize]> = chosen.take(limit).collect();
        self.lists.insert(key, Arc::clone(&list));
        list
    }

    fn of_classes(&mut self, pool: PoolIndex, classes: &BitSet, types: &Types) -> Arc<[u32]> {
        let key = (pool, classes.clone());
        if let Some(known) = self.orders.get(&key) {
            return Arc::clone(known);
        }
        let catalogue = &self.problem.catalogue;
        let prices = self.problem.prices(pool);
        let mut offerings = prices.iter().zip(&types.class_of_offering);
        let mut ranked: Vec<(f64, &str, u32)> = Vec::with_capacity(catalogue.types.len());
        for (entry, it) in (0_u32..).zip(&catalogue.types) {
            let mut cheapest = f64::MAX;
            for offering in &it.offerings {
                if let Some((price, class)) = offerings.next()
                    && offering.available
                    && classes.contains(*class as usize)
                {
                    cheapest = cheapest.min(*price);
                }
            }
            ranked.push((cheapest, &it.name, entry));
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)).then(a.2.cmp(&b.2)));
        let order: Arc<[u32]> = ranked.into_iter().map(|(.., entry)| entry).collect();
        self.orders.insert(key, Arc::clone(&order));
        order
    }
}
