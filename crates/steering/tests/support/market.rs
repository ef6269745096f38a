//! What can be bought in the cluster in memory.

use std::sync::Arc;

use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_engine::quantity::Quantity;

pub(crate) fn catalogue() -> Arc<veneer_engine::instance_type::Catalogue> {
    let offering = |price: f64, capacity: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    let types: Vec<Value> = [
        ("small", 2, 8, 0.1),
        ("medium", 4, 16, 0.2),
        ("large", 8, 32, 0.4),
        ("giant", 64, 256, 3.2),
    ]
    .into_iter()
    .map(|(name, cpu, memory, price)| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": cpu.to_string(), "memory": format!("{memory}Gi"), "pods": "30"},
        "offerings": [
            offering(price, "on-demand", "zone-a"), offering(price, "on-demand", "zone-b"),
            offering(price * 0.4, "spot", "zone-a"), offering(price * 0.5, "spot", "zone-b"),
        ]})
    })
    .collect();
    Arc::new(kwok::parse(&Value::from(types).to_string(), "test").unwrap())
}

/// An amount in billionths.
pub(crate) fn nanos(text: &str) -> i128 {
    text.parse::<Quantity>().unwrap().nanos().unwrap()
}
