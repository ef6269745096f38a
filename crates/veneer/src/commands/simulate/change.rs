//! What a proposal changes: the cluster before and after, node by node and pod by pod.

use std::collections::BTreeMap;

use serde::Serialize;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels::{ON_DEMAND, ZONE};
use veneer_engine::overlay::Evaluation;
use veneer_engine::packing::Objects;

use super::report::{Cost, Report, dollars};
use crate::money::{is_visible, signed, signed_monthly};
use crate::output::counted;

/// A proposal's numbers less those without it, and both sides of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    pub(super) pods: i64,
    pub(super) new_node_claims: i64,
    pub(super) unschedulable: i64,
    pub(super) hourly: f64,
    pub(super) list_hourly: f64,
    /// One line for people.
    pub(super) verdict: String,
    pub(super) before: Side,
    pub(super) after: Side,
    /// The types whose number changes, by name.
    pub(super) instance_types: Vec<TypeChange>,
    /// Pods that run now and would have to go elsewhere.
    pub(super) pods_evicted: Vec<String>,
    /// Pods that wait now and would go to another place.
    pub(super) pods_moved: Vec<String>,
    /// Pods that would no longer have a place.
    pub(super) pods_lost: Vec<String>,
    /// Pods that would have a place at last.
    pub(super) pods_gained: Vec<String>,
}

/// The nodes of a cluster, those that exist and those to launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Side {
    pub(super) nodes: usize,
    pub(super) unschedulable: usize,
    pub(super) cost: Cost,
    /// Nodes whose type the catalogue does not have, or that name none; they cost nothing here.
    pub(super) unpriced: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypeChange {
    pub(super) instance_type: String,
    pub(super) capacity_type: String,
    pub(super) before: usize,
    pub(super) after: usize,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Runs(String),
    Existing(String),
    New(String, String),
    Nowhere,
}

/// One side of the comparison.
pub(super) struct Picture<'a> {
    pub(super) objects: &'a Objects,
    pub(super) evaluation: &'a Evaluation,
    pub(super) catalogue: &'a Catalogue,
    pub(super) report: &'a Report<'a>,
}

type Kinds = BTreeMap<(String, String), usize>;

impl Picture<'_> {
    /// The nodes that exist and those to launch, by type and capacity type, with what they cost.
    fn side(&self) -> (Side, Kinds) {
        let mut kinds = Kinds::new();
        let mut side = Side {
            nodes: self.report.new_node_claims.len(),
            unschedulable: self.report.unschedulable.len(),
            cost: self.report.cost,
            unpriced: 0,
        };
        for cheapest in self
            .report
            .new_node_claims
            .iter()
            .filter_map(|claim| claim.cheapest.as_ref())
        {
            let key = (cheapest.instance_type.clone(), cheapest.capacity_type.clone());
            *kinds.entry(key).or_default() += 1;
        }
        for node in &self.objects.nodes {
            if node.metadata.deletion_timestamp.is_some() {
                continue;
            }
            side.nodes += 1;
            let labels = node.metadata.labels.as_ref();
            let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
            let instance_type = label(kubernetes::INSTANCE_TYPE).unwrap_or_default();
            let capacity_type = label(karpenter::CAPACITY_TYPE).unwrap_or(ON_DEMAND);
            let pool = label(karpenter::NODEPOOL);
            match self.price(instance_type, capacity_type, label(ZONE), pool) {
                Some((price, list_price)) => {
                    side.cost.hourly += price;
                    side.cost.list_hourly += list_price;
                    let key = (instance_type.to_owned(), capacity_type.to_owned());
                    *kinds.entry(key).or_default() += 1;
                }
                None => side.unpriced += 1,
            }
        }
        side.cost.hourly = dollars(side.cost.hourly);
        side.cost.list_hourly = dollars(side.cost.list_hourly);
        (side, kinds)
    }

    /// The price and the list price of a node that exists.
    fn price(
        &self,
        instance_type: &str,
        capacity_type: &str,
        zone: Option<&str>,
        pool: Option<&str>,
    ) -> Option<(f64, f64)> {
        let vocabulary = &self.catalogue.vocabulary;
        let pool = pool.and_then(|name| self.evaluation.pools().iter().position(|pool| pool.name == name));
        let mut number = 0;
        for it in &self.catalogue.types {
            for (at, offering) in it.offerings.iter().enumerate() {
                let is_it = *it.name == *instance_type
                    && offering.capacity_type(vocabulary) == Some(capacity_type)
                    && zone.is_none_or(|zone| offering.zone(vocabulary) == Some(zone));
                if is_it {
                    let prices = pool.map(|pool| self.evaluation.prices(pool));
                    let price = prices.and_then(|prices| prices.get(number + at)).copied();
                    return Some((price.unwrap_or(offering.price), offering.price));
                }
            }
            number += it.offerings.len();
        }
        None
    }

    fn places(&self) -> BTreeMap<String, Place> {
        let mut places = BTreeMap::new();
        for pod in self.objects.pods.iter() {
            if let Some(node) = &pod.node_name {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                places.insert(format!("{namespace}/{name}"), Place::Runs(node.to_string()));
            }
        }
        for node in &self.report.existing_nodes {
            let pods = node.pods.iter();
            places.extend(pods.map(|pod| (pod.clone(), Place::Existing(node.node.clone()))));
        }
        for claim in &self.report.new_node_claims {
            let cheapest = claim.cheapest.as_ref();
            let kind = cheapest.map(|it| it.instance_type.clone()).unwrap_or_default();
            let place = Place::New(claim.node_pool.clone(), kind);
            places.extend(claim.pods.iter().map(|pod| (pod.clone(), place.clone())));
        }
        let nowhere = self.report.unschedulable.iter();
        places.extend(nowhere.map(|pod| (pod.pod.clone(), Place::Nowhere)));
        places
    }

    /// What is different from `before`.
    pub(super) fn change_from(&self, before: &Self) -> Change {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let ((side, kinds), (side_before, kinds_before)) = (self.side(), before.side());
        let mut types: BTreeMap<&(String, String), (usize, usize)> = BTreeMap::new();
        kinds_before
            .iter()
            .for_each(|(kind, count)| types.entry(kind).or_default().0 = *count);
        kinds
            .iter()
            .for_each(|(kind, count)| types.entry(kind).or_default().1 = *count);
        let instance_types = types
            .into_iter()
            .filter(|(_, (before, after))| before != after)
            .map(|((instance_type, capacity_type), (before, after))| TypeChange {
                instance_type: instance_type.clone(),
                capacity_type: capacity_type.clone(),
                before,
                after,
            })
            .collect();
        let mut change = Change {
            pods: count(self.report.pods()) - count(before.report.pods()),
            new_node_claims: count(self.report.new_node_claims.len())
                - count(before.report.new_node_claims.len()),
            unschedulable: count(self.report.unschedulable.len()) - count(before.report.unschedulable.len()),
            hourly: dollars(side.cost.hourly - side_before.cost.hourly),
            list_hourly: dollars(side.cost.list_hourly - side_before.cost.list_hourly),
            verdict: String::new(),
            before: side_before,
            after: side,
            instance_types,
            pods_evicted: Vec::new(),
            pods_moved: Vec::new(),
            pods_lost: Vec::new(),
            pods_gained: Vec::new(),
        };
        let places_before = before.places();
        for (pod, place) in self.places() {
            let Some(was) = places_before.get(&pod) else {
                continue;
            };
            if *was == place {
                continue;
            }
            match (was, &place) {
                (Place::Runs(_), Place::Nowhere) => {
                    change.pods_evicted.push(pod.clone());
                    change.pods_lost.push(pod);
                }
                (Place::Runs(_), _) => change.pods_evicted.push(pod),
                (Place::Nowhere, _) => change.pods_gained.push(pod),
                (_, Place::Nowhere) => change.pods_lost.push(pod),
                _ => change.pods_moved.push(pod),
            }
        }
        change.verdict = verdict(&change);
        change
    }
}

/// The change in one line: places first, then money, then nodes. Money is what is billed, so prices that overlays adjust to prefer
/// one type to another make a change neither better nor worse.
fn verdict(change: &Change) -> String {
    let nodes = i64::try_from(change.after.nodes).unwrap_or(i64::MAX)
        - i64::try_from(change.before.nodes).unwrap_or(i64::MAX);
    let mut parts = Vec::new();
    if !change.pods_lost.is_empty() {
        parts.push(format!(
            "{} would have no place any more",
            counted(change.pods_lost.len(), "pod")
        ));
    }
    if !change.pods_gained.is_empty() {
        parts.push(format!(
            "{} would have a place at last",
            counted(change.pods_gained.len(), "pod")
        ));
    }
    let (billed, before) = (change.list_hourly, change.before.cost.list_hourly);
    if is_visible(billed) {
        let share = if before > 0.0 {
            format!("{:+.1} %, ", billed / before * 100.0)
        } else {
            String::new()
        };
        parts.push(format!(
            "{}/h ({share}{})",
            signed(billed),
            signed_monthly(billed)
        ));
    }
    if nodes != 0 {
        let direction = if nodes < 0 { "fewer" } else { "more" };
        let noun = if nodes.abs() == 1 { "node" } else { "nodes" };
        parts.push(format!("{} {noun} {direction}", nodes.abs()));
    }
    if !change.pods_evicted.is_empty() {
        parts.push(format!(
            "{} would move",
            counted(change.pods_evicted.len(), "running pod")
        ));
    }
    let word = if !change.pods_lost.is_empty() {
        "Worse"
    } else if !change.pods_gained.is_empty() || (is_visible(billed) && billed < 0.0) {
        "Better"
    } else if is_visible(billed) {
        "Costs more"
    } else if parts.is_empty() && change.instance_types.is_empty() {
        return "No difference.".to_owned();
    } else {
        "Costs the same"
    };
    if parts.is_empty() {
        parts.push("other instance types at the same price".to_owned());
    }
    let mut text = format!("{word}: {}.", parts.join(", "));
    if is_visible(change.hourly) && (change.hourly < 0.0) != (billed < 0.0) {
        let preference = if change.hourly < 0.0 {
            "cheaper"
        } else {
            "more expensive"
        };
        text.push_str(&format!(
            " Overlays make it look {preference} ({}/h); they decide what is launched, not what is billed.",
            signed(change.hourly)
        ));
    }
    text
}
