//! Remedies for a gap: changes of a NodePool's requirements, each simulated on the user's own pods.
//!
//! The four that the size gap of an architecture calls for (a higher cap, a lower cap, no sizes inside the gap, the
//! architecture alone), and another cap if that is cheaper than all of them. A change is a merge patch.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};
use veneer_api::{NodePool, NodeSelectorRequirementWithMinValues, Operator};

use super::funnel::counted;
use super::gaps::Gap;
use super::plan::{Outcome, Planner};
use super::pool_types::{PoolTypes, cpu_label, size_label, values_of, vcpus};
use crate::instance_type::Catalogue;
use crate::labels;
use crate::packing::Objects;

/// A change and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remedy {
    /// `raiseCpuCap`, `lowerCpuCap`, `excludeSizes`, `forceArchitecture` or `other`.
    pub id: &'static str,
    /// The change in words.
    pub summary: String,
    /// The change as a merge patch of the NodePool.
    pub change: Value,
    /// What it costs beside money.
    pub trade_off: String,
    /// What the simulation found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How much cheaper another change must be to be worth a line.
const WORTHWHILE: f64 = 0.999;
/// How much dearer than the cheapest it may be if it needs fewer nodes.
const HARDLY_MORE: f64 = 1.02;
/// How many times the nodes of today are too many.
const MANY: usize = 8;

/// The remedies for `gap` of the NodePool at `pool`, and what each comes to; `now` is what the pods come to today.
pub(super) fn remedies(
    planner: &Planner<'_>,
    objects: &Objects,
    pool: usize,
    gap: &Gap,
    now: &Outcome,
) -> Vec<Remedy> {
    let Some(manifest) = objects.node_pools.get(pool) else {
        return Vec::new();
    };
    let catalogue = planner.catalogue;
    let mut bench = Bench {
        planner,
        objects: objects.clone(),
        manifest,
        pool,
        now,
    };
    let mut found = Vec::new();
    if let Some(next) = next_size(catalogue, manifest, gap) {
        let change = with_cap(catalogue, manifest, next);
        let summary = format!("raise the cap to {next} vCPU");
        found.push(bench.remedy("raiseCpuCap", summary, change));
    }
    let below = gap.from - 1;
    let change = with_cap(catalogue, manifest, below);
    let summary = format!("lower the cap to {below} vCPU");
    found.push(bench.remedy("lowerCpuCap", summary, change));
    let sizes = sizes_inside(catalogue, manifest, gap);
    if !sizes.is_empty() {
        let change = with(
            manifest,
            requirement(size_label(catalogue), Operator::NotIn, &sizes),
        );
        let summary = format!("exclude the sizes {}", sizes.join(", "));
        found.push(bench.remedy("excludeSizes", summary, change));
    }
    if gap.label == labels::ARCH {
        let change = with(manifest, only_architecture(gap));
        let summary = format!("allow {} alone", gap.value);
        found.push(bench.remedy("forceArchitecture", summary, change));
    }
    if let Some(better) = bench.search(gap, &found) {
        found.push(better);
    }
    found
}

/// Where changes are tried.
struct Bench<'b, 'a> {
    planner: &'b Planner<'a>,
    /// A copy to change.
    objects: Objects,
    manifest: &'b NodePool,
    pool: usize,
    now: &'b Outcome,
}

impl Bench<'_, '_> {
    fn try_out(&mut self, change: &NodePool) -> Outcome {
        if let Some(pool) = self.objects.node_pools.get_mut(self.pool) {
            *pool = change.clone();
        }
        self.planner.plan(&self.objects).outcome(self.planner.catalogue)
    }

    fn remedy(&mut self, id: &'static str, summary: String, change: NodePool) -> Remedy {
        let outcome = self.try_out(&change);
        self.described(id, summary, &change, outcome)
    }

    fn described(&self, id: &'static str, summary: String, change: &NodePool, outcome: Outcome) -> Remedy {
        Remedy {
            id,
            summary,
            change: json!({ "spec": { "template": { "spec": {
                "requirements": change.spec.template.spec.requirements } } } }),
            trade_off: trade_off(self.now, &outcome),
            outcome,
        }
    }

    /// A cap at another size of the value, if that is cheaper than all that was found: the largest one that costs
    /// hardly more than the cheapest, because smaller nodes are more nodes.
    fn search(&mut self, gap: &Gap, found: &[Remedy]) -> Option<Remedy> {
        let fewest = found.iter().map(|remedy| remedy.outcome.unschedulable).min();
        let fewest = fewest.unwrap_or(usize::MAX).min(self.now.unschedulable);
        let known = found.iter().map(|remedy| &remedy.outcome).chain([self.now]);
        let known = known.filter(|outcome| outcome.unschedulable == fewest);
        let to_beat = known.map(|outcome| outcome.hourly).fold(f64::MAX, f64::min);
        let mut cheaper: Vec<(i64, NodePool, Outcome)> = Vec::new();
        for cap in caps(self.planner.catalogue, self.manifest, gap).into_iter().rev() {
            let change = with_cap(self.planner.catalogue, self.manifest, cap);
            let outcome = self.try_out(&change);
            // Even smaller nodes hold even fewer pods, or are too many to run.
            if outcome.unschedulable > fewest || outcome.nodes > MANY * self.now.nodes.max(1) {
                break;
            }
            if outcome.hourly < to_beat * WORTHWHILE {
                cheaper.push((cap, change, outcome));
            }
        }
        let cheapest = cheaper
            .iter()
            .map(|(.., outcome)| outcome.hourly)
            .reduce(f64::min)?;
        let (cap, change, outcome) = cheaper
            .into_iter()
            .find(|(.., outcome)| outcome.hourly <= cheapest * HARDLY_MORE)?;
        Some(self.described("other", format!("lower the cap to {cap} vCPU"), &change, outcome))
    }
}

/// What gets worse and, after that, what gets better.
fn trade_off(now: &Outcome, then: &Outcome) -> String {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    if then.unschedulable > now.unschedulable {
        let more = then.unschedulable - now.unschedulable;
        let verb = if more == 1 { "goes" } else { "go" };
        worse.push(format!("{} {verb} nowhere", counted(more, "more pod")));
    }
    if then.nodes > now.nodes {
        worse.push(format!(
            "{} instead of {}",
            counted(then.nodes, "node"),
            now.nodes
        ));
    }
    let dearer = then.list_hourly - now.list_hourly;
    if dearer > 0.00005 {
        worse.push(format!("${dearer:.4}/h more at list prices"));
    }
    if let (Some(was), Some(is)) = (&now.largest_node, &then.largest_node) {
        let lost = format!("{} lost with it instead of {}", counted(is.pods, "pod"), was.pods);
        let size = format!("a largest node of {} vCPU instead of {}", is.vcpu, was.vcpu);
        for (text, is, was) in [(size, is.vcpu, was.vcpu), (lost, is.pods as i64, was.pods as i64)] {
            match is.cmp(&was) {
                Ordering::Greater => worse.push(text),
                Ordering::Less => better.push(text),
                Ordering::Equal => {}
            }
        }
    }
    if let (Some(was), Some(is)) = (&now.spot_fallback, &then.spot_fallback) {
        if is.architectures > was.architectures {
            better.push(format!("{} architectures to fall back to", is.architectures));
        } else if is.architectures == 1 {
            let only = then.share.keys().next().map_or("that one", String::as_str);
            worse.push(format!("nothing but {only} if its capacity runs out"));
        }
        let types = format!(
            "{} types to choose from instead of {}",
            is.instance_types, was.instance_types
        );
        match is.instance_types.cmp(&was.instance_types) {
            Ordering::Less => worse.push(types),
            Ordering::Greater => better.push(types),
            Ordering::Equal => {}
        }
    }
    let mut text = if worse.is_empty() {
        "nothing gets worse with these pods".to_owned()
    } else {
        worse.join(", ")
    };
    if !better.is_empty() {
        text.push_str("; in return ");
        text.push_str(&better.join(", "));
    }
    text
}

fn requirement(key: &str, operator: Operator, values: &[String]) -> NodeSelectorRequirementWithMinValues {
    NodeSelectorRequirementWithMinValues {
        key: key.to_owned(),
        operator,
        values: values.to_vec(),
        min_values: None,
        extra: Default::default(),
    }
}

fn only_architecture(gap: &Gap) -> NodeSelectorRequirementWithMinValues {
    requirement(labels::ARCH, Operator::In, std::slice::from_ref(&gap.value))
}

/// The NodePool with one requirement more; it replaces an `In` or `NotIn` on the same label.
fn with(pool: &NodePool, one: NodeSelectorRequirementWithMinValues) -> NodePool {
    let mut pool = pool.clone();
    let all = &mut pool.spec.template.spec.requirements;
    if one.operator == Operator::In {
        all.retain(|each| !(labels::normalise(&each.key) == one.key && each.operator == Operator::In));
    }
    all.push(one);
    pool
}

fn is_upper_bound(one: &NodeSelectorRequirementWithMinValues, key: &str) -> bool {
    one.key == key && (one.operator == Operator::Lt || one.operator == Operator::Lte)
}

/// The NodePool without an upper bound on processors.
fn uncapped(catalogue: &Catalogue, pool: &NodePool) -> NodePool {
    let key = cpu_label(catalogue);
    let mut pool = pool.clone();
    let all = &mut pool.spec.template.spec.requirements;
    all.retain(|one| !is_upper_bound(one, key));
    pool
}

/// The NodePool with this upper bound on processors in place of its own.
fn with_cap(catalogue: &Catalogue, pool: &NodePool, cap: i64) -> NodePool {
    let key = cpu_label(catalogue);
    let mut pool = pool.clone();
    let all = &mut pool.spec.template.spec.requirements;
    let bound = requirement(key, Operator::Lt, &[(cap + 1).to_string()]);
    match all.iter().position(|one| is_upper_bound(one, key)) {
        Some(at) => {
            let mut number = 0;
            all.retain(|one| {
                number += 1;
                number - 1 == at || !is_upper_bound(one, key)
            });
            if let Some(one) = all.get_mut(at) {
                *one = bound;
            }
        }
        None => all.push(bound),
    }
    pool
}

/// The smallest size of the value at or above the end of the gap that the pool would have without its cap.
fn next_size(catalogue: &Catalogue, pool: &NodePool, gap: &Gap) -> Option<i64> {
    let pool = uncapped(catalogue, pool);
    let types = PoolTypes::new(catalogue, &pool);
    let with_value = types
        .iter()
        .filter(|(entry, _)| types.values(*entry, &gap.label).contains(&gap.value.as_str()));
    with_value
        .map(|(_, it)| vcpus(it))
        .filter(|vcpu| *vcpu >= gap.to)
        .min()
}

/// The sizes inside the gap. One that other types have too is left alone, unless it is bare metal: `metal` says
/// nothing about the size, and the one inside the gap would be taken as the last resort.
fn sizes_inside(catalogue: &Catalogue, pool: &NodePool, gap: &Gap) -> Vec<String> {
    let types = PoolTypes::new(catalogue, pool);
    let label = size_label(catalogue);
    let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
    for (_, it) in types.iter() {
        let side = if (gap.from..=gap.to).contains(&vcpus(it)) {
            &mut inside
        } else {
            &mut outside
        };
        side.extend(values_of(it, label, catalogue));
    }
    let excluded = inside
        .iter()
        .filter(|size| size.contains("metal") || !outside.contains(*size));
    excluded.map(|size| (*size).to_owned()).collect()
}

/// The caps worth trying: the sizes that the value has below its largest, ascending.
fn caps(catalogue: &Catalogue, pool: &NodePool, gap: &Gap) -> BTreeSet<i64> {
    let types = PoolTypes::new(catalogue, pool);
    let with_value = types
        .iter()
        .filter(|(entry, _)| types.values(*entry, &gap.label).contains(&gap.value.as_str()));
    let sizes = with_value.map(|(_, it)| vcpus(it));
    sizes.filter(|vcpu| *vcpu < gap.from - 1).collect()
}
