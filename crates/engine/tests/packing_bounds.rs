//! What one pod and one namespace may cost, and what they are told beyond that.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/scenarios.rs"]
mod scenarios;

use scenarios::{HOSTNAME, ZONE, default_pool, node, objects, pod, pods, read_shared, reason, run, run_with};
use serde_json::{Value, json};
use veneer_engine::packing::{Objects, Options, Results};

fn term(key: &str) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": ["x"] }] })
}

/// A pod with so many preferences that nothing has.
fn preferring(count: usize, more: &Value) -> Value {
    let terms: Vec<Value> = (0..count)
        .map(|at| json!({ "weight": 1 + at % 100, "preference": term(&format!("example.com/{at}")) }))
        .collect();
    let mut spec = json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } } });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pod("hostile", "1", "1Gi", spec)
}

#[test]
fn a_pod_with_too_many_preferences_gets_its_node_and_is_told() {
    let many = run(&objects(
        vec![default_pool()],
        vec![preferring(2_000, &json!({}))],
    ));
    assert_eq!(many.new_node_claims.len(), 1);
    let [notice] = many.notices.as_slice() else {
        panic!("{:?}", many.notices)
    };
    assert!(
        notice
            .message
            .starts_with("1750 of the pod's preferences are ignored"),
        "{}",
        notice.message
    );
    let bounded = run(&objects(vec![default_pool()], vec![preferring(250, &json!({}))]));
    assert!(bounded.notices.is_empty());
    assert!(
        many.steps <= bounded.steps,
        "{} and {}",
        many.steps,
        bounded.steps
    );
}

#[test]
fn a_pod_that_goes_nowhere_is_told_too() {
    let selector = json!({ "nodeSelector": { "example.com/none": "x" } });
    let results = run(&objects(vec![default_pool()], vec![preferring(300, &selector)]));
    let reason = reason(&results);
    assert!(
        reason.starts_with("50 of the pod's preferences are ignored") && reason.contains("example.com/none"),
        "{reason}"
    );
}

#[test]
fn alternatives_beyond_the_bound_are_not_considered() {
    let alternatives = |count: usize| {
        let mut terms: Vec<Value> = (0..count).map(|at| term(&format!("example.com/{at}"))).collect();
        terms.push(json!({ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": ["b"] }] }));
        let required = json!({ "nodeSelectorTerms": terms });
        let spec = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } });
        run(&objects(vec![default_pool()], vec![pod("a", "1", "1Gi", spec)]))
    };
    assert_eq!(
        alternatives(499).new_node_claims.len(),
        1,
        "the last one is the 500th"
    );
    let beyond = alternatives(6_000);
    assert!(beyond.new_node_claims.is_empty());
    let reason = reason(&beyond);
    assert!(
        reason.starts_with("the last 5501 terms of the pod's required node affinity are not considered"),
        "{reason}"
    );
}

/// Pods of which each prefers to keep away from others of its own, by labels that no other pod has.
fn hostile(count: usize, terms: usize) -> Vec<Value> {
    let one = |at: usize| {
        let weighted = |number: usize| {
            let selector = json!({ "matchLabels": { "app": format!("hostile-{at}") } });
            let key = if number.is_multiple_of(2) { ZONE } else { HOSTNAME };
            let namespaces = json!(["hostile", format!("other-{number}")]);
            json!({ "weight": 1, "podAffinityTerm": { "topologyKey": key, "labelSelector": selector, "namespaces": namespaces } })
        };
        let preferred: Vec<Value> = (0..terms).map(weighted).collect();
        let mut pod = pod(
            &format!("h{at:04}"),
            "3",
            "1Gi",
            json!({ "affinity": {
            "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } },
            "nodeSelector": { "example.com/none": "x" } }),
        );
        pod["metadata"]["namespace"] = json!("hostile");
        pod["metadata"]["labels"] = json!({ "app": format!("hostile-{at}") });
        pod
    };
    (0..count).map(one).collect()
}

fn with_nodes(pods: Vec<Value>, nodes: usize) -> Objects {
    let list = (0..nodes).map(|at| node(&format!("node-{at}"), "4", json!({}), json!([])));
    Objects {
        nodes: read_shared(list.collect()),
        ..objects(vec![default_pool()], pods)
    }
}

/// Where the pods of the namespace `default` go, by name.
fn placed(results: &Results, objects: &Objects) -> Vec<(String, String)> {
    let name = |at: &usize| objects.pods[*at].metadata.name.clone().unwrap();
    let is_other = |at: &&usize| objects.pods[**at].metadata.namespace.as_deref() == Some("default");
    let mut placed = Vec::new();
    for node in &results.existing_nodes {
        let pods = node.pods.iter().filter(is_other);
        placed.extend(pods.map(|at| (name(at), node.name.clone())));
    }
    for (number, claim) in results.new_node_claims.iter().enumerate() {
        let pods = claim.pods.iter().filter(is_other);
        placed.extend(pods.map(|at| (name(at), format!("new {number}"))));
    }
    placed.sort_unstable();
    placed
}

#[test]
fn a_namespace_that_takes_too_many_steps_waits_for_the_others() {
    let quiet = with_nodes(pods(30, "1", "1Gi", &json!({})), 5);
    let alone = run(&quiet);
    let mut all = hostile(100, 30);
    all.extend(pods(30, "1", "1Gi", &json!({})));
    let both = with_nodes(all, 5);
    let unbounded = run_with(
        &both,
        &Options {
            free_steps: u64::MAX,
            ..Options::default()
        },
    );
    assert!(unbounded.held.is_empty());
    let bounded = Options {
        free_steps: 20_000,
        ..Options::default()
    };
    let results = run_with(&both, &bounded);
    let [held] = results.held.as_slice() else {
        panic!("{:?}", results.held)
    };
    assert_eq!(held.namespace, "hostile");
    assert_eq!(placed(&results, &both), placed(&alone, &quiet));
    assert_eq!(placed(&results, &both).len(), 30);
    assert!(
        results.steps < unbounded.steps,
        "{} and {}",
        results.steps,
        unbounded.steps
    );
    assert_eq!(results.steps, run_with(&both, &bounded).steps);
    // Nothing changes for those who stay within what they are granted.
    let granted = run_with(&quiet, &bounded);
    assert!(granted.held.is_empty());
    assert_eq!(placed(&granted, &quiet), placed(&alone, &quiet));
}

#[test]
fn every_form_of_a_pod_is_tried_before_it_is_given_up() {
    // The last preference but one is the one that holds: both zones beside it are excluded.
    let apart = |key: &str, weight: u32| {
        json!({ "weight": weight, "podAffinityTerm": { "topologyKey": key,
            "labelSelector": { "matchLabels": { "app": "web" } } } })
    };
    let terms = json!([
        apart(ZONE, 9),
        apart(ZONE, 5),
        apart(HOSTNAME, 7),
        apart(HOSTNAME, 1),
        apart(ZONE, 3)
    ]);
    let spec = json!({ "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } } });
    let results = run(&objects(vec![default_pool()], pods(6, "1", "1Gi", &spec)));
    assert_eq!(
        scenarios::counts(&results),
        [1, 1, 1, 1, 1, 1],
        "hosts stay apart when zones cannot"
    );
}
