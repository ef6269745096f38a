//! The on-demand machines of the cluster: NodeClaims, also those in flight, and Nodes that have no claim.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::instance_type::Catalogue;
use veneer_steering::decisions::Machine;

/// A NodeClaim or a Node, as far as its price is concerned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenMachine {
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

/// The label of EKS' managed node groups.
const EKS_CAPACITY_TYPE: &str = "eks.amazonaws.com/capacityType";

pub(crate) fn seen_machine(object: &DynamicObject) -> SeenMachine {
    let labels = object.labels();
    let label = |key: &str| labels.get(key).cloned();
    let requirements = object
        .data
        .pointer("/spec/requirements")
        .and_then(Value::as_array);
    let required = |key: &str| -> Vec<String> {
        let of_key = requirements.into_iter().flatten().filter(|one| {
            one.get("key").and_then(Value::as_str) == Some(key)
                && one.get("operator").and_then(Value::as_str) == Some("In")
        });
        let values = of_key.filter_map(|one| one.get("values")?.as_array()).flatten();
        values
            .filter_map(|value| Some(value.as_str()?.to_owned()))
            .collect()
    };
    let capacity_types = match label(karpenter::CAPACITY_TYPE) {
        Some(one) => vec![one],
        None => required(karpenter::CAPACITY_TYPE),
    };
    // One that may become either will become what an overlay makes the cheaper one, so it counts.
    let is_spot = capacity_types == [karpenter::CAPACITY_TYPE_SPOT]
        || label(EKS_CAPACITY_TYPE).is_some_and(|one| one == "SPOT");
    SeenMachine {
        name: object.name_any(),
        created: object.creation_timestamp().map(|time| time.0),
        instance_type: label(kubernetes::INSTANCE_TYPE),
        candidates: required(kubernetes::INSTANCE_TYPE),
        is_spot,
        node: object
            .data
            .pointer("/status/nodeName")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

/// List prices of on-demand instances, by type.
#[derive(Debug)]
pub(crate) struct Prices(BTreeMap<String, f64>);

impl Prices {
    pub(crate) fn of(catalogue: &Catalogue) -> Self {
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

    fn cheapest<'a>(&self, candidates: &'a [String]) -> Option<&'a String> {
        let price = |name: &&String| self.0.get(*name).copied().unwrap_or(f64::INFINITY);
        candidates
            .iter()
            .min_by(|a, b| price(a).total_cmp(&price(b)).then(a.cmp(b)))
    }
}

/// The machines that commitments may cover.
pub(crate) fn machines<'a>(
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

#[cfg(test)]
mod tests {
    use kube::api::ApiResource;
    use serde_json::json;
    use veneer_api::NodeClaim;

    use super::*;

    fn object(name: &str, labels: &[(&str, &str)], data: Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &ApiResource::erase::<NodeClaim>(&()));
        object.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        object.metadata.labels = Some(labels.collect());
        object.data = data;
        object
    }

    fn found(claims: &[DynamicObject], nodes: &[DynamicObject]) -> Vec<String> {
        let prices = Prices(BTreeMap::from([
            ("m5.large".to_owned(), 0.1),
            ("c5.large".to_owned(), 0.09),
        ]));
        let claims: Vec<SeenMachine> = claims.iter().map(seen_machine).collect();
        let nodes: Vec<SeenMachine> = nodes.iter().map(seen_machine).collect();
        machines(claims.iter(), nodes.iter(), &prices)
            .iter()
            .map(|one| format!("{} {} {}", one.name, one.instance_type, one.price))
            .collect()
    }

    #[test]
    fn claims_in_flight_count_with_their_cheapest_candidate_and_spot_does_not() {
        let it = "node.kubernetes.io/instance-type";
        let capacity = "karpenter.sh/capacity-type";
        let candidates = |types: &[&str], capacity_types: &[&str]| {
            json!({"spec": {"requirements": [
                {"key": it, "operator": "In", "values": types},
                {"key": capacity, "operator": "In", "values": capacity_types},
            ]}})
        };
        let claims = [
            object(
                "launched",
                &[(it, "m5.large"), (capacity, "on-demand")],
                json!({"status": {"nodeName": "n1"}}),
            ),
            object("spot", &[(it, "m5.large"), (capacity, "spot")], json!({})),
            object(
                "in-flight",
                &[],
                candidates(&["m5.large", "c5.large"], &["on-demand"]),
            ),
            object("either", &[], candidates(&["m5.large"], &["spot", "on-demand"])),
            object("spot-to-be", &[], candidates(&["m5.large"], &["spot"])),
            object("unknown", &[], json!({})),
        ];
        let nodes = [
            object("n1", &[(it, "m5.large")], json!({})),
            object("managed", &[(it, "c5.large")], json!({})),
            object(
                "managed-spot",
                &[(it, "c5.large"), (EKS_CAPACITY_TYPE, "SPOT")],
                json!({}),
            ),
            object("priceless", &[(it, "x9.large")], json!({})),
        ];
        assert_eq!(
            found(&claims, &nodes),
            [
                "launched m5.large 0.1",
                "in-flight c5.large 0.09",
                "either m5.large 0.1",
                "managed c5.large 0.09",
                "priceless x9.large 0"
            ]
        );
    }
}
