//! What would have to change for a pod that goes nowhere: for every place, everything that stands in its way.
//!
//! Each constraint is looked at by itself, not after others, so that what stands in the way of one instance type,
//! offering or node is known as a whole. A change that lets the pod go there must undo all of it; so the smallest
//! of these sets is the smallest change, and running the solver with it is the proof.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use super::edit::{Edit, Measure, NANOS, Rule, step};
use super::{Known, Who, places};
use crate::bitset::BitSet;
use crate::packing::Problem;
use crate::packing::amounts::Amount;
use crate::packing::host_ports::conflict;
use crate::packing::ids::{ShapeId, SizeId, StateId};
use crate::packing::model::Model;
use crate::packing::pools::{
    Limits, Pool, absence, limits as limits_of, min_values_unmet, taints as taints_of, template,
};
use crate::packing::solver::Solver;
use crate::packing::states::States;
use crate::packing::topology::{Kind, LabelRule};
use crate::packing::types::{Left, Sizes, Types};
use crate::quantity::Quantity;
use crate::requirements::{Requirement, Requirements};
use crate::resources::ResourceList;
use crate::taints::untolerated;
use crate::vocabulary::Symbol;

/// How many places are kept, the nearest ones.
const KEPT: usize = 48;

/// The changes that would each let the pod go somewhere, smallest first.
pub(super) fn targets(
    solver: &mut Solver<'_, '_>,
    problem: &Problem<'_>,
    who: &Who<'_>,
    shape: ShapeId,
    size: SizeId,
) -> Vec<Vec<Edit>> {
    solver.prepare(shape);
    let mut found: Vec<Vec<Edit>> = Vec::new();
    let host = solver.model.first_claim_host + solver.claims.len();
    let pools = std::mem::take(&mut solver.model.pools);
    for pool in pools.iter() {
        found.extend(of_pool(solver, who, pool, host, shape, size));
    }
    // One that can launch nothing as it is may do so after a change.
    for (position, node_pool) in who.objects.node_pools.iter().enumerate() {
        let name = node_pool.metadata.name.clone().unwrap_or_default();
        if pools.iter().any(|pool| pool.name == name) || absence(node_pool).is_some() {
            continue;
        }
        let pool = Pool {
            template: template(node_pool, &mut solver.model.states),
            taints: solver.model.taints.intern(taints_of(node_pool)),
            types: BitSet::empty(solver.model.types.count()),
            sizes: Arc::new(Sizes::new(problem, position, &solver.model.dimensions)),
            daemons: Vec::new(),
            least_overhead: Vec::new(),
            limits: Limits::new(&limits_of(node_pool), position, problem),
            name,
            position,
        };
        found.extend(of_pool(solver, who, &pool, host, shape, size));
    }
    solver.model.pools = pools;
    found.extend(places::ways(solver, shape, size));
    found.retain(|edits| !edits.is_empty());
    let mut measured: Vec<(Measure, String, Vec<Edit>)> = found
        .into_iter()
        .map(|edits| {
            let text: Vec<String> = edits.iter().map(Edit::describe).collect();
            (Measure::of(&edits), text.join(" and "), edits)
        })
        .collect();
    measured.sort_by(|a, b| a.0.compare(&b.0).then_with(|| a.1.cmp(&b.1)));
    measured.dedup_by(|a, b| a.1 == b.1);
    measured.truncate(KEPT);
    measured.into_iter().map(|(.., edits)| edits).collect()
}

/// The label that a constraint is about and whose it is.
#[derive(Clone, Copy)]
enum Owner {
    Pool,
    Pod,
}

/// A demand on a label, with the types and classes of offerings that agree with it.
struct LabelDemand {
    owner: Owner,
    key: Symbol,
    types: BitSet,
    classes: BitSet,
    /// Whether nothing can satisfy it here, whatever the type.
    never: bool,
}

/// Everything that may stand in the way in a NodePool, numbered.
struct Obstacles<'s> {
    labels: Vec<LabelDemand>,
    taints: Vec<Taint>,
    /// What the pod asks for.
    needed: &'s [Amount],
    names: Vec<String>,
    limits: Vec<(String, Amount, Vec<Amount>)>,
    limits_now: ResourceList,
    requests: ResourceList,
    host_rules: Vec<(Rule, Symbol)>,
    rules: Vec<LabelRule>,
    volumes: Vec<Arc<Left>>,
}

/// One way in: what is in the way, as bits, and how far off amounts are.
struct Way {
    mask: u128,
    edits: Vec<Edit>,
    distance: f64,
    entry: usize,
}

fn class_agrees(class: &Requirements, key: Symbol, wanted: &Requirement, states: &States) -> bool {
    class
        .get(key)
        .is_none_or(|offered| wanted.has_intersection(offered, &states.vocabulary))
}

fn demand(
    owner: Owner,
    key: Symbol,
    wanted: &Requirement,
    never: bool,
    types: &mut Types,
    states: &States,
) -> LabelDemand {
    let mut classes = BitSet::empty(types.classes.len());
    for (at, class) in types.classes.iter().enumerate() {
        if class_agrees(&class.requirements, key, wanted, states) {
            classes.insert(at);
        }
    }
    LabelDemand {
        owner,
        key,
        types: types.agreeing(key, wanted, &states.vocabulary).clone(),
        classes,
        never,
    }
}

pub(super) fn kind(kind: Kind) -> Rule {
    match kind {
        Kind::Spread => Rule::Spread,
        Kind::Affinity => Rule::Affinity,
        Kind::AntiAffinity => Rule::AntiAffinity,
    }
}

/// The demands on labels of a NodePool and of the pod.
fn label_demands(template: StateId, pod: StateId, types: &mut Types, states: &States) -> Vec<LabelDemand> {
    let mut labels = Vec::new();
    let (template, pod) = (states.get(template), states.get(pod));
    for (key, wanted) in template.iter().filter(|(key, _)| *key != states.hostname) {
        labels.push(demand(Owner::Pool, key, wanted, false, types, states));
    }
    for (key, wanted) in pod.iter() {
        let never = match template.get(key) {
            None => !states.is_well_known(key) && !wanted.accepts_absence(),
            // Where types have a value of their own, it shows which of the two is in the way.
            Some(existing) => {
                let both_absent = existing.accepts_absence() && wanted.accepts_absence();
                let apart = !existing.has_intersection(wanted, &states.vocabulary) && !both_absent;
                apart
                    && types.shapes(key).is_empty()
                    && types
                        .classes
                        .iter()
                        .all(|class| !class.requirements.contains(key))
            }
        };
        labels.push(demand(Owner::Pod, key, wanted, never, types, states));
    }
    labels
}

fn of_pool(
    solver: &mut Solver<'_, '_>,
    who: &Who<'_>,
    pool: &Pool,
    host: usize,
    shape: ShapeId,
    size: SizeId,
) -> Vec<Vec<Edit>> {
    let Model {
        shapes,
        sizes,
        states,
        types,
        taints,
        topology,
        dimensions,
        ..
    } = &mut solver.model;
    let (shape, size) = (&shapes[shape], &sizes[size]);
    let host_rules = topology.unsatisfied_hosts(&solver.checks, host);
    if host_rules.iter().any(|rule| rule.of_other_pod) {
        return Vec::new();
    }
    let node_pool = who
        .objects
        .node_pools
        .iter()
        .find(|node_pool| node_pool.metadata.name.as_deref() == Some(&pool.name));
    let obstacles = Obstacles {
        labels: label_demands(pool.template, shape.requirements, types, states),
        taints: untolerated(taints.get(pool.taints), shape.form.tolerations())
            .into_iter()
            .cloned()
            .collect(),
        needed: &size.amounts,
        names: dimensions.names().iter().map(ToString::to_string).collect(),
        limits: pool.limits.rows(),
        limits_now: node_pool.map(limits_of).unwrap_or_default(),
        requests: dimensions.list(&size.amounts, &size.named),
        host_rules: host_rules
            .iter()
            .map(|rule| (kind(rule.kind), rule.key))
            .collect(),
        rules: topology.label_rules(&solver.checks),
        volumes: shape
            .volumes
            .iter()
            .map(|volumes| types.left(*volumes, states))
            .collect(),
    };
    let mut best: Known<u128, Way> = Known::default();
    let mut entries: Known<u128, BitSet> = Known::default();
    let mut offering = 0_usize;
    let catalogue = Arc::clone(&types.catalogue);
    for (entry, it) in catalogue.types.iter().enumerate() {
        let mut seen: Vec<u32> = Vec::with_capacity(it.offerings.len());
        for one in &it.offerings {
            let class = types.class_of_offering.get(offering).copied().unwrap_or(0);
            offering += 1;
            if !one.available || seen.contains(&class) {
                continue;
            }
            seen.push(class);
            let Some(way) = obstacles.way(pool, entry, class as usize, &shape.ports, types, states) else {
                continue;
            };
            entries
                .entry(way.mask)
                .or_insert_with(|| BitSet::empty(catalogue.types.len()))
                .insert(entry);
            let is_better = best
                .get(&way.mask)
                .is_none_or(|known| (way.distance, way.entry) < (known.distance, known.entry));
            if is_better {
                best.insert(way.mask, way);
            }
        }
    }
    let mut ways: Vec<Way> = best.into_values().collect();
    ways.sort_by_key(|way| way.mask);
    ways.into_iter()
        .map(|mut way| {
            let mut left = BitSet::empty(catalogue.types.len());
            entries
                .iter()
                .filter(|(mask, _)| *mask & !way.mask == 0)
                .for_each(|(_, set)| left.union_with(set));
            for (key, found) in min_values_unmet(&left, states.get(pool.template), types) {
                let from = states
                    .get(pool.template)
                    .get(key)
                    .and_then(Requirement::min_values);
                way.edits.push(Edit::LowerMinValues {
                    node_pool: pool.name.clone(),
                    key: states.vocabulary.text(key).to_owned(),
                    from: from.unwrap_or(found),
                    to: found,
                });
            }
            way.edits
        })
        .filter(|edits| !edits.is_empty())
        .collect()
}

impl Obstacles<'_> {
    /// What is in the way of one offering of a type; none if no edit would help.
    fn way(
        &self,
        pool: &Pool,
        entry: usize,
        class: usize,
        ports: &[crate::packing::host_ports::HostPort],
        types: &Types,
        states: &States,
    ) -> Option<Way> {
        let mut way = Way {
            mask: 0,
            edits: Vec::new(),
            distance: 0.0,
            entry,
        };
        let mut bit = 0_u32;
        let mut hinder = |way: &mut Way, edit: Option<Edit>| {
            if let Some(edit) = edit {
                way.mask |= 1_u128.checked_shl(bit).unwrap_or(0);
                way.distance += edit.distance();
                way.edits.push(edit);
            }
            bit += 1;
        };
        for label in &self.labels {
            let agrees = !label.never && label.types.contains(entry) && label.classes.contains(class);
            let edit = (!agrees).then(|| label.edit(pool, entry, class, types, states));
            if let Some(None) = edit {
                return None;
            }
            hinder(&mut way, edit.flatten());
        }
        for taint in &self.taints {
            hinder(&mut way, Some(Edit::Tolerate { taint: taint.clone() }));
        }
        for (rule, key) in &self.host_rules {
            let key = states.vocabulary.text(*key).to_owned();
            hinder(&mut way, Some(Edit::DropRule { rule: *rule, key }));
        }
        for rule in &self.rules {
            let value = value_of(rule.key, entry, class, types);
            let allowed = value.is_some_and(|value| rule.allowed.contains(&value));
            if !allowed && rule.of_other_pod {
                return None;
            }
            let edit = (!allowed).then(|| Edit::DropRule {
                rule: kind(rule.kind),
                key: states.vocabulary.text(rule.key).to_owned(),
            });
            hinder(&mut way, edit);
        }
        let in_reach = |left: &Arc<Left>| left.types.contains(entry) && left.classes.contains(class);
        if !self.volumes.is_empty() && !self.volumes.iter().any(in_reach) {
            return None;
        }
        let group = pool.daemons.iter().find(|group| group.types.contains(entry));
        let group = group.or_else(|| {
            pool.daemons
                .iter()
                .max_by_key(|group| group.overhead.iter().sum::<Amount>())
        });
        let mut only = BitSet::empty(types.count());
        only.insert(entry);
        pool.sizes.keep_fitting(&mut only, &[]);
        if only.is_empty() {
            return None;
        }
        for (at, (needed, has)) in self.needed.iter().zip(pool.sizes.of_type(entry)).enumerate() {
            let overhead = group
                .and_then(|group| group.overhead.get(at))
                .copied()
                .unwrap_or(0);
            let edit = if needed + overhead > has {
                Some(self.lower(at, has - overhead)?)
            } else {
                None
            };
            hinder(&mut way, edit);
        }
        for (name, left, row) in &self.limits {
            let takes = row.get(entry).copied().unwrap_or(0);
            let is_nodes = name == crate::packing::cluster::NODES;
            let takes = if is_nodes { takes.max(NANOS) } else { takes };
            let edit = (takes > *left).then(|| self.raise(pool, name, takes - left));
            hinder(&mut way, edit);
        }
        let taken = group.is_some_and(|group| conflict(ports, &group.ports).is_some());
        hinder(&mut way, taken.then_some(Edit::DropHostPorts));
        Some(way)
    }

    /// The pod asks for at most `left` of a resource.
    fn lower(&self, at: usize, left: Amount) -> Option<Edit> {
        let resource = self.names.get(at)?;
        lower(resource, self.requests.get(resource)?, left)
    }

    fn raise(&self, pool: &Pool, resource: &str, by: Amount) -> Edit {
        let from = self.limits_now.get(resource).cloned().unwrap_or_default();
        let nanos = from.nanos().unwrap_or(0).saturating_add(by);
        let step = step(resource);
        let nanos = nanos
            .saturating_add(step - 1)
            .div_euclid(step)
            .saturating_mul(step);
        Edit::RaiseLimit {
            node_pool: pool.name.clone(),
            resource: resource.to_owned(),
            to: Quantity::from_nanos(nanos).with_format(from.format()),
            from,
        }
    }
}

pub(super) fn lower(resource: &str, from: &Quantity, left: Amount) -> Option<Edit> {
    // A pod always takes one of the pods that a node may have; and what it asks for may become less, but not nothing.
    let step = step(resource);
    if resource == "pods" || left < step {
        return None;
    }
    let nanos = left.div_euclid(step).saturating_mul(step);
    Some(Edit::LowerRequest {
        resource: resource.to_owned(),
        to: Quantity::from_nanos(nanos).with_format(from.format()),
        from: from.clone(),
    })
}

/// The value of a label that an offering of a type has.
fn value_of(key: Symbol, entry: usize, class: usize, types: &Types) -> Option<Symbol> {
    let of_class = types
        .classes
        .get(class)
        .and_then(|class| class.requirements.get(key));
    let of_type = types
        .catalogue
        .types
        .get(entry)
        .and_then(|it| it.requirements.get(key));
    of_class.or(of_type)?.values().first().copied()
}

impl LabelDemand {
    /// What undoes the demand for an offering of a type.
    fn edit(&self, pool: &Pool, entry: usize, class: usize, types: &Types, states: &States) -> Option<Edit> {
        let key = states.vocabulary.text(self.key).to_owned();
        match self.owner {
            Owner::Pod => Some(Edit::DropLabel { key }),
            Owner::Pool => {
                let value = value_of(self.key, entry, class, types)?;
                let value = states.vocabulary.text(value).to_owned();
                let wanted = states.get(pool.template).get(self.key)?;
                let bounds = wanted.bounds();
                let distance = match value.parse::<i64>() {
                    Ok(number) if bounds.lte.is_some_and(|most| number > most) => {
                        away(bounds.lte.unwrap_or(number), number)
                    }
                    Ok(number) if bounds.gte.is_some_and(|least| number < least) => {
                        away(bounds.gte.unwrap_or(number), number)
                    }
                    _ => 1.0,
                };
                Some(Edit::Allow {
                    node_pool: pool.name.clone(),
                    key,
                    value,
                    distance,
                })
            }
        }
    }
}

fn away(bound: i64, value: i64) -> f64 {
    let (small, large) = (bound.min(value).max(1) as f64, bound.max(value) as f64);
    large / small - 1.0
}
