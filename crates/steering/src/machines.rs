//! The machines of a cluster that commitments may pay for: NodeClaims, also those in flight, and Nodes that have no claim.
//!
//! Steering, launches and consolidation all count these, so none of them sees more left of a commitment than another.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::cluster::purchase::may_be_committed;
use veneer_engine::cluster::uses_commitments;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{Snapshot, is_deleting, label, name};

use crate::decisions::Machine;

/// The label of EKS' managed node groups.
const EKS_CAPACITY_TYPE: &str = "eks.amazonaws.com/capacityType";

/// A NodeClaim or a Node, as far as its price is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenMachine {
    name: String,
    created: Option<Timestamp>,
    /// The type, if it has been launched.
    instance_type: Option<String>,
    /// The types that it may become, until it has been launched.
    candidates: Vec<String>,
    /// The zone that it is in, or those that it may come to; none if that is every one.
    zones: Vec<String>,
    /// Whether it runs, or will, and is not spot.
    uses_commitments: bool,
    /// The Node that a claim became.
    node: Option<String>,
}

impl SeenMachine {
    /// One with these metadata. `required` gives the operators and values of the requirements for a label, `node` is the Node that a
    /// claim became, and `is_off` says that nothing runs, or not for long.
    #[must_use]
    pub fn new(
        metadata: &ObjectMeta,
        required: impl Fn(&str) -> Vec<(String, Vec<String>)>,
        node: Option<String>,
        is_off: bool,
    ) -> Self {
        let capacity_types = required(karpenter::CAPACITY_TYPE);
        let capacity_types = capacity_types.iter();
        let capacity_types = capacity_types.map(|(operator, values)| (operator.as_str(), values.as_slice()));
        let none = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        let is_spot = label(metadata, EKS_CAPACITY_TYPE) == Some("SPOT");
        let possible = |key: &str| {
            let required = required(key).into_iter();
            let listed = required.filter(|(operator, _)| operator == "In");
            listed.flat_map(|(_, values)| values).collect::<Vec<String>>()
        };
        let zone = label(metadata, kubernetes::ZONE);
        Self {
            name: name(metadata).to_owned(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            instance_type: label(metadata, kubernetes::INSTANCE_TYPE).map(str::to_owned),
            candidates: possible(kubernetes::INSTANCE_TYPE),
            zones: zone.map_or_else(|| possible(kubernetes::ZONE), |zone| vec![zone.to_owned()]),
            uses_commitments: !is_off && !is_spot && may_be_committed(labels, capacity_types),
            node,
        }
    }

    /// The Node of a machine.
    #[must_use]
    pub fn of_node(metadata: &ObjectMeta) -> Self {
        Self::new(metadata, |_| Vec::new(), None, is_deleting(metadata))
    }
}

impl From<&NodeClaim> for SeenMachine {
    fn from(claim: &NodeClaim) -> Self {
        let instance_type = label(&claim.metadata, kubernetes::INSTANCE_TYPE).map(str::to_owned);
        let uses_commitments = uses_commitments(claim);
        let possible = |key: &str| {
            let listed = claim.spec.requirements.iter();
            let listed = listed.filter(|one| one.key == key && one.operator.as_str() == "In");
            listed
                .flat_map(|one| one.values.iter().cloned())
                .collect::<Vec<String>>()
        };
        let zone = label(&claim.metadata, kubernetes::ZONE);
        Self {
            name: name(&claim.metadata).to_owned(),
            created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
            candidates: match &instance_type {
                None if uses_commitments => possible(kubernetes::INSTANCE_TYPE),
                _ => Vec::new(),
            },
            zones: match zone {
                Some(zone) => vec![zone.to_owned()],
                None if uses_commitments => possible(kubernetes::ZONE),
                None => Vec::new(),
            },
            uses_commitments,
            node: claim.status.as_ref().and_then(|status| status.node_name.clone()),
            instance_type,
        }
    }
}

/// List prices of on-demand instances, by type.
#[derive(Clone, Debug, Default)]
pub struct Prices(BTreeMap<String, f64>);

impl FromIterator<(String, f64)> for Prices {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(prices: I) -> Self {
        Self(prices.into_iter().collect())
    }
}

impl Prices {
    /// Those of a catalogue.
    #[must_use]
    pub fn of(catalogue: &Catalogue) -> Self {
        let mut prices: BTreeMap<String, f64> = BTreeMap::new();
        for instance_type in &catalogue.types {
            for offering in &instance_type.offerings {
                if offering.capacity_type(&catalogue.vocabulary) == Some(karpenter::CAPACITY_TYPE_ON_DEMAND) {
                    let price = prices
                        .entry(instance_type.name.to_string())
                        .or_insert(f64::INFINITY);
                    *price = price.min(offering.price);
                }
            }
        }
        Self(prices)
    }

    /// The same, with those that are known better, such as today's.
    #[must_use]
    pub fn with(mut self, known: impl IntoIterator<Item = (String, f64)>) -> Self {
        self.0.extend(known);
        self
    }

    /// The price of a type.
    #[must_use]
    pub fn get(&self, instance_type: &str) -> Option<f64> {
        self.0.get(instance_type).copied()
    }
}

/// The cheapest of some types; of those without a price the first by name.
fn cheapest<'a>(candidates: &'a [String], price: &impl Fn(&str) -> Option<f64>) -> Option<&'a String> {
    let order = |name: &str| price(name).unwrap_or(f64::INFINITY);
    candidates
        .iter()
        .min_by(|a, b| order(a).total_cmp(&order(b)).then(a.cmp(b)))
}

impl SeenMachine {
    /// What commitments may be charged with; one that is not launched yet, as the cheapest that it may become.
    fn charged(&self, price: &impl Fn(&str) -> Option<f64>) -> Option<Machine> {
        let instance_type = match &self.instance_type {
            Some(launched) => launched,
            None => cheapest(&self.candidates, price)?,
        };
        Some(Machine {
            name: self.name.clone(),
            created: self.created?,
            instance_type: instance_type.clone(),
            zones: self.zones.clone(),
            // A type that the catalogue does not know costs something, but nobody knows what.
            price: price(instance_type).unwrap_or_default(),
        })
    }
}

/// The machines that commitments may cover.
pub fn machines<'a>(
    claims: impl Iterator<Item = &'a SeenMachine> + Clone,
    nodes: impl Iterator<Item = &'a SeenMachine>,
    prices: &Prices,
) -> Vec<Machine> {
    let claimed: BTreeSet<&str> = claims.clone().filter_map(|claim| claim.node.as_deref()).collect();
    let unclaimed = nodes.filter(|node| !claimed.contains(node.name.as_str()));
    let all = claims.chain(unclaimed).filter(|seen| seen.uses_commitments);
    all.filter_map(|seen| seen.charged(&|name| prices.get(name)))
        .collect()
}

/// Those of the claims of a snapshot that `counts` lets through.
pub fn of_claims(
    snapshot: &Snapshot,
    price: impl Fn(&str) -> Option<f64>,
    counts: impl Fn(&NodeClaim) -> bool,
) -> Vec<Machine> {
    let claims = snapshot.node_claims.iter();
    let claims = claims.filter(|claim| counts(claim) && uses_commitments(claim));
    claims
        .filter_map(|claim| SeenMachine::from(&**claim).charged(&price))
        .collect()
}
