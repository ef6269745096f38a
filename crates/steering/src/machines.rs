//! The on-demand machines of a cluster: NodeClaims, also those in flight, and Nodes that have no claim.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::instance_type::Catalogue;

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
    /// The types that it may become.
    candidates: Vec<String>,
    is_spot: bool,
    /// The Node that a claim became.
    node: Option<String>,
}

impl SeenMachine {
    /// One with these labels; `required` gives the values of a requirement with the operator In, and `node` is the Node
    /// that a claim became.
    #[must_use]
    pub fn new(
        name: &str,
        created: Option<Timestamp>,
        labels: &BTreeMap<String, String>,
        required: impl Fn(&str) -> Vec<String>,
        node: Option<String>,
    ) -> Self {
        let label = |key: &str| labels.get(key).cloned();
        let capacity_types = match label(karpenter::CAPACITY_TYPE) {
            Some(one) => vec![one],
            None => required(karpenter::CAPACITY_TYPE),
        };
        // One that may become either will become what an overlay makes the cheaper one, so it counts.
        let is_spot = capacity_types == [karpenter::CAPACITY_TYPE_SPOT]
            || label(EKS_CAPACITY_TYPE).is_some_and(|one| one == "SPOT");
        Self {
            name: name.to_owned(),
            created,
            instance_type: label(kubernetes::INSTANCE_TYPE),
            candidates: required(kubernetes::INSTANCE_TYPE),
            is_spot,
            node,
        }
    }
}

impl From<&NodeClaim> for SeenMachine {
    fn from(claim: &NodeClaim) -> Self {
        let none = BTreeMap::new();
        let required = |key: &str| -> Vec<String> {
            let of_key = claim.spec.requirements.iter();
            let of_key = of_key.filter(|one| one.key == key && one.operator.as_str() == "In");
            of_key.flat_map(|one| one.values.iter().cloned()).collect()
        };
        Self::new(
            claim.metadata.name.as_deref().unwrap_or_default(),
            claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
            claim.metadata.labels.as_ref().unwrap_or(&none),
            required,
            claim.status.as_ref().and_then(|status| status.node_name.clone()),
        )
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

    /// The price of a type.
    #[must_use]
    pub fn get(&self, instance_type: &str) -> Option<f64> {
        self.0.get(instance_type).copied()
    }

    fn cheapest<'a>(&self, candidates: &'a [String]) -> Option<&'a String> {
        let price = |name: &&String| self.0.get(*name).copied().unwrap_or(f64::INFINITY);
        candidates
            .iter()
            .min_by(|a, b| price(a).total_cmp(&price(b)).then(a.cmp(b)))
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
    let machine = |seen: &SeenMachine| {
        let instance_type = match &seen.instance_type {
            Some(launched) => launched,
            None => prices.cheapest(&seen.candidates)?,
        };
        Some(Machine {
            name: seen.name.clone(),
            created: seen.created?,
            instance_type: instance_type.clone(),
            // A type that the catalogue does not know costs something, but nobody knows what.
            price: prices.0.get(instance_type).copied().unwrap_or_default(),
        })
    };
    let all = claims.chain(unclaimed).filter(|seen| !seen.is_spot);
    all.filter_map(machine).collect()
}
