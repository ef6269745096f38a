//! Which machines of a cluster commitments may cover, and at which price.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_steering::machines::{Prices, SeenMachine, machines};

fn prices() -> Prices {
    let prices = [("c5.large", 0.085), ("m5.large", 0.096), ("m5.xlarge", 0.192)];
    prices
        .map(|(name, price)| (name.to_owned(), price))
        .into_iter()
        .collect()
}

fn claim(name: &str, labels: Value, requirements: Value, node: Option<&str>) -> SeenMachine {
    let claim: veneer_api::NodeClaim = serde_json::from_value(json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": requirements},
        "status": {"nodeName": node}}))
    .unwrap();
    SeenMachine::from(&claim)
}

fn node(name: &str, labels: &[(&str, &str)]) -> SeenMachine {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let metadata = json!({"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels});
    SeenMachine::of_node(&serde_json::from_value(metadata).unwrap())
}

/// Name, type and price of what may be covered.
fn covered(claims: &[SeenMachine], nodes: &[SeenMachine]) -> Vec<(String, String, f64)> {
    machines(claims.iter(), nodes.iter(), &prices())
        .into_iter()
        .map(|one| (one.name, one.instance_type, one.price))
        .collect()
}

fn one(name: &str, instance_type: &str, price: f64) -> (String, String, f64) {
    (name.to_owned(), instance_type.to_owned(), price)
}

const TYPE: &str = "node.kubernetes.io/instance-type";
const CAPACITY: &str = "karpenter.sh/capacity-type";

#[test]
fn a_claim_in_flight_counts_as_the_cheapest_that_it_may_become() {
    let types = |operator: &str| {
        json!([{"key": TYPE, "operator": operator, "values": ["m5.xlarge", "c5.large", "unknown"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a-zone"]}])
    };
    assert_eq!(
        covered(&[claim("in-flight", json!({}), types("In"), None)], &[]),
        [one("in-flight", "c5.large", 0.085)]
    );
    // What it may not become says nothing about what it becomes.
    assert_eq!(
        covered(&[claim("else", json!({}), types("NotIn"), None)], &[]),
        []
    );
    let launched = claim("launched", json!({TYPE: "m5.large"}), types("In"), None);
    assert_eq!(covered(&[launched], &[]), [one("launched", "m5.large", 0.096)]);
    let unknown = claim("unknown", json!({TYPE: "x9.huge"}), json!([]), None);
    assert_eq!(covered(&[unknown], &[]), [one("unknown", "x9.huge", 0.0)]);
}

#[test]
fn spot_is_covered_by_nothing() {
    let capacity = |values: &[&str]| {
        json!([{"key": CAPACITY, "operator": "In", "values": values},
            {"key": TYPE, "operator": "In", "values": ["m5.large"]}])
    };
    let spot = claim("spot", json!({}), capacity(&["spot"]), None);
    let either = claim("either", json!({}), capacity(&["spot", "on-demand"]), None);
    let launched = claim(
        "launched",
        json!({CAPACITY: "spot"}),
        capacity(&["spot", "on-demand"]),
        None,
    );
    assert_eq!(
        covered(&[spot, either, launched], &[]),
        [one("either", "m5.large", 0.096)]
    );
    let eks = "eks.amazonaws.com/capacityType";
    let nodes = [
        node("group-spot", &[(TYPE, "m5.large"), (eks, "SPOT")]),
        node("group", &[(TYPE, "m5.large"), (eks, "ON_DEMAND")]),
    ];
    assert_eq!(covered(&[], &nodes), [one("group", "m5.large", 0.096)]);
}

#[test]
fn a_node_and_its_claim_are_one_machine() {
    let claims = [claim(
        "claim",
        json!({TYPE: "m5.large"}),
        json!([]),
        Some("node-of-claim"),
    )];
    let nodes = [
        node("node-of-claim", &[(TYPE, "m5.large")]),
        node("other", &[(TYPE, "m5.xlarge")]),
    ];
    assert_eq!(
        covered(&claims, &nodes),
        [one("claim", "m5.large", 0.096), one("other", "m5.xlarge", 0.192)]
    );
}

#[test]
fn prices_are_the_cheapest_on_demand_ones() {
    let offering = |price: f64, capacity: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": CAPACITY, "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a-zone"]}]})
    };
    let it = json!([{"name": "m5.large", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": "2"},
        "offerings": [offering(0.1, "on-demand"), offering(0.09, "on-demand"), offering(0.03, "spot")]}]);
    let prices = Prices::of(&kwok::parse(&it.to_string(), "test").unwrap());
    assert_eq!(prices.get("m5.large"), Some(0.09));
    assert_eq!(prices.get("m5.xlarge"), None);
}
