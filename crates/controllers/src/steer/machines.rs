//! NodeClaims and Nodes as the watches bring them, as machines that commitments may cover.

use kube::api::DynamicObject;
use serde_json::Value;
use veneer_api::Condition;
use veneer_engine::cluster::is_off;
use veneer_steering::machines::SeenMachine;

pub(crate) fn seen_machine(object: &DynamicObject) -> SeenMachine {
    let requirements = object
        .data
        .pointer("/spec/requirements")
        .and_then(Value::as_array);
    let required = |key: &str| -> Vec<(String, Vec<String>)> {
        let of_key = requirements.into_iter().flatten();
        let of_key = of_key.filter(|one| one.get("key").and_then(Value::as_str) == Some(key));
        of_key
            .map(|one| {
                let operator = one.get("operator").and_then(Value::as_str).unwrap_or_default();
                let values = one.get("values").and_then(Value::as_array).into_iter().flatten();
                let values = values.filter_map(|value| Some(value.as_str()?.to_owned()));
                (operator.to_owned(), values.collect())
            })
            .collect()
    };
    // A Node has conditions of another kind, and none of these.
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten();
    let conditions: Vec<Condition> = conditions
        .filter_map(|one| serde_json::from_value(one.clone()).ok())
        .collect();
    let node = object.data.pointer("/status/nodeName").and_then(Value::as_str);
    SeenMachine::new(
        &object.metadata,
        required,
        node.map(str::to_owned),
        is_off(&object.metadata, &conditions),
    )
}

#[cfg(test)]
mod tests {
    use kube::api::ApiResource;
    use serde_json::json;
    use veneer_api::NodeClaim;
    use veneer_steering::machines::{Prices, machines};

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
        let prices = Prices::from_iter([("m5.large".to_owned(), 0.1), ("c5.large".to_owned(), 0.09)]);
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
                &[(it, "c5.large"), ("eks.amazonaws.com/capacityType", "SPOT")],
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
