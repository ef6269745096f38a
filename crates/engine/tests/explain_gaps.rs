//! Gaps are computed from sizes alone: whichever architecture lacks them, and whatever they are.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_engine::explain::Planner;
use veneer_engine::explain::nodepool::{self, Explanation};
use veneer_engine::overlay::{Evaluator, TieBreak};
use veneer_engine::packing::{Objects, Options};

/// Types of these sizes for two architectures.
fn explain(amd64: &[u32], arm64: &[u32], cap: u32, pod: Option<u32>) -> Explanation {
    let requirement = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let one = |architecture: &str, cpu: u32| {
        json!({
            "name": format!("{architecture}.{cpu}"), "architecture": architecture, "operatingSystems": ["linux"],
            "resources": { "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "200" },
            "offerings": [{ "Price": f64::from(cpu), "Available": true, "Requirements": [
                requirement("karpenter.sh/capacity-type", "on-demand"),
                requirement("topology.kubernetes.io/zone", "a")] }],
        })
    };
    let types: Vec<Value> = amd64
        .iter()
        .map(|cpu| one("amd64", *cpu))
        .chain(arm64.iter().map(|cpu| one("arm64", *cpu)))
        .collect();
    let catalogue = Arc::new(kwok::parse(&Value::Array(types).to_string(), "test").unwrap());
    let pool = json!({ "metadata": { "name": "default" }, "spec": { "template": { "spec": {
        "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        "requirements": [{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lte", "values": [cap.to_string()] }],
    } } } });
    let pods: Vec<Value> = pod
        .map(|cpu| {
            json!({ "metadata": { "name": "pod" }, "spec": { "containers": [
                { "name": "main", "resources": { "requests": { "cpu": cpu.to_string() } } }] } })
        })
        .into_iter()
        .collect();
    let objects = Objects {
        pods: serde_json::from_value::<Vec<Pod>>(Value::Array(pods))
            .unwrap()
            .into_iter()
            .collect(),
        node_pools: serde_json::from_value(json!([pool])).unwrap(),
        ..Objects::default()
    };
    let pools = [veneer_engine::overlay::Pool::from(&objects.node_pools[0])];
    let evaluation = Evaluator::new(Arc::clone(&catalogue), TieBreak::default()).evaluate(&pools, &[]);
    let planner = Planner {
        catalogue: &catalogue,
        evaluation: Arc::new(evaluation),
        node_classes: &[],
        options: Options::default(),
    };
    nodepool::explain(&planner, &objects, 0).unwrap()
}

/// Architecture, from, to and the claims inside.
fn gaps(explanation: &Explanation) -> Vec<(&str, i64, i64, usize)> {
    explanation
        .gaps
        .iter()
        .filter(|gap| gap.label == "kubernetes.io/arch" && gap.resource == "cpu")
        .map(|gap| (gap.value.as_str(), gap.from, gap.to, gap.affected_claims))
        .collect()
}

#[test]
fn the_architecture_with_the_smaller_largest_size_drops_out_above_it() {
    let explanation = explain(&[4, 48], &[4, 24, 96], 48, Some(30));
    assert_eq!(gaps(&explanation), [("arm64", 25, 48, 1)]);
    let explanation = explain(&[4, 24], &[4, 24, 40], 48, Some(30));
    assert_eq!(gaps(&explanation), [("amd64", 25, 40, 1)]);
    assert!(gaps(&explain(&[4, 32], &[4, 32], 48, Some(30))).is_empty());
    assert!(
        gaps(&explain(&[4, 48], &[4, 24, 96], 96, Some(30)))
            .iter()
            .all(|gap| gap.0 == "amd64")
    );
}

#[test]
fn a_claim_below_the_gap_does_not_fall_into_it() {
    assert_eq!(
        gaps(&explain(&[4, 48], &[4, 24, 96], 48, Some(20))),
        [("arm64", 25, 48, 0)]
    );
}

#[test]
fn the_cap_is_raised_to_the_next_size_there_is_and_only_if_there_is_one() {
    let ids = |explanation: &Explanation| -> Vec<&'static str> {
        explanation.remedies.iter().map(|remedy| remedy.id).collect()
    };
    let with_next = explain(&[4, 48], &[4, 24, 96], 48, Some(30));
    assert_eq!(with_next.remedies[0].summary, "raise the cap to 96 vCPU");
    let without = explain(&[4, 48], &[4, 24], 48, Some(30));
    assert!(!ids(&without).contains(&"raiseCpuCap"));
    // A pod of 30 fits on no node of 24: the remedies that forbid larger ones leave it pending, and say so.
    let lowered = without
        .remedies
        .iter()
        .find(|remedy| remedy.id == "lowerCpuCap")
        .unwrap();
    assert_eq!(lowered.outcome.unschedulable, 1);
    assert!(
        lowered.trade_off.contains("1 more pod goes nowhere"),
        "{}",
        lowered.trade_off
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_gap_holds_exactly_the_sizes_that_others_have_and_the_value_has_not(
        amd64 in prop::collection::btree_set(2_u32..64, 1..6),
        arm64 in prop::collection::btree_set(2_u32..64, 1..6),
        cap in 2_u32..64,
    ) {
        let lists = [("amd64", &amd64), ("arm64", &arm64)];
        let (amd, arm): (Vec<u32>, Vec<u32>) = (amd64.iter().copied().collect(), arm64.iter().copied().collect());
        let explanation = explain(&amd, &arm, cap, None);
        let found = gaps(&explanation);
        let fits = |sizes: &std::collections::BTreeSet<u32>, size: u32| sizes.iter().any(|has| *has >= size && *has <= cap);
        for (name, sizes) in lists {
            let is_allowed = fits(sizes, 0);
            for size in 1..=64_u32 {
                let others = lists.iter().any(|(_, sizes)| fits(sizes, size));
                let expected = is_allowed && others && !fits(sizes, size);
                let inside = found.iter().any(|(value, from, to, _)| {
                    *value == name && (*from..=*to).contains(&i64::from(size))
                });
                prop_assert_eq!(inside, expected, "{} at {}: {:?}", name, size, found);
            }
        }
    }
}
