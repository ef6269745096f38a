//! Explanations of small clusters: one constraint each, the smallest change by hand, and pods that starve.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking, like the tests"
)]

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use veneer_engine::explain::{self, Placement, PodExplanation, Seen, Stage};
use veneer_engine::packing::{Objects, Options, Problem, solve};

#[path = "support/scenarios.rs"]
mod scenarios;
use scenarios::*;

fn explained(objects: &Objects, pod: usize) -> PodExplanation {
    let catalogue = catalogue();
    explain::pod(
        &Problem::from_objects(objects, &catalogue),
        &Options::default(),
        pod,
    )
}

/// The description of the smallest change.
fn change(objects: &Objects, pod: usize) -> String {
    let change = explained(objects, pod).smallest_change.unwrap();
    let texts: Vec<String> = change.edits.iter().map(explain::Edit::describe).collect();
    texts.join(" and ")
}

fn stages(explanation: &PodExplanation) -> Vec<(Stage, usize, usize)> {
    let steps = explanation.waterfalls[0].steps.iter();
    steps
        .map(|step| (step.stage, step.before.total, step.after.total))
        .collect()
}

#[test]
fn a_pod_that_is_placed_has_no_change_and_every_stage_is_looked_at() {
    let objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &json!({})));
    let explanation = explained(&objects, 0);
    assert!(matches!(explanation.placement, Some(Placement::New(_))));
    assert!(explanation.smallest_change.is_none());
    let looked_at: Vec<Stage> = stages(&explanation)
        .into_iter()
        .map(|(stage, ..)| stage)
        .collect();
    for stage in [Stage::Requirements, Stage::Resources, Stage::Offerings] {
        assert!(looked_at.contains(&stage), "{looked_at:?}");
    }
}

#[test]
fn other_pods_on_the_node_remove_types_too() {
    let objects = objects(vec![default_pool()], pods(3, "1", "1Gi", &json!({})));
    let explanation = explained(&objects, 0);
    let Some(Placement::New(claim)) = &explanation.placement else {
        panic!("it has no new node")
    };
    assert_eq!(claim.pods.len(), 3);
    let last = explanation.waterfalls[0].steps.last().unwrap();
    let constraint = last.constraint.as_ref().unwrap();
    assert_eq!(constraint.object, "2 other pods on the node");
    assert_eq!(last.after.total, claim.instance_types.len());
}

#[test]
fn a_host_port_that_a_daemon_set_takes_leaves_no_type() {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let mut objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &json!({})));
    let container = json!({ "name": "main", "ports": ports, "resources": { "requests": { "cpu": "1" } } });
    let pod: Value = json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": { "containers": [container] } });
    objects.pods =
        std::iter::once(serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod).unwrap()).collect();
    let daemon = json!({
        "metadata": { "name": "proxy", "namespace": "default" },
        "spec": { "selector": {}, "template": { "spec": { "containers": [
            { "name": "main", "ports": ports, "resources": { "requests": { "cpu": "100m" } } }] } } },
    });
    objects.daemon_sets = vec![serde_json::from_value(daemon).unwrap()];
    let explanation = explained(&objects, 0);
    assert!(explanation.placement.is_none());
    let last = explanation.waterfalls[0]
        .steps
        .iter()
        .rev()
        .find(|step| step.constraint.is_some())
        .unwrap();
    assert_eq!((last.stage, last.after.total), (Stage::HostPorts, 0));
    assert_eq!(change(&objects, 0), "drop the pod's host ports");
}

#[test]
fn the_smallest_change_is_the_one_that_a_person_would_name() {
    let zone = json!({ "nodeSelector": { ZONE: "elsewhere" } });
    let objects_of = |pool: Value, cpu: &str, spec: &Value| objects(vec![pool], pods(1, cpu, "1Gi", spec));
    let expected = format!("drop the pod's demand on the label {ZONE}");
    assert_eq!(change(&objects_of(default_pool(), "1", &zone), 0), expected);

    let taints = json!({ "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }] });
    let tainted = pool("default", taints, json!({}));
    assert_eq!(
        change(&objects_of(tainted.clone(), "1", &json!({})), 0),
        "let the pod tolerate dedicated=db:NoSchedule"
    );
    let both = change(&objects_of(tainted, "1", &zone), 0);
    assert_eq!(
        both,
        format!("{expected} and let the pod tolerate dedicated=db:NoSchedule")
    );

    let limited = pool("default", json!({}), json!({ "limits": { "cpu": "1" } }));
    let raised = change(&objects_of(limited, "1500m", &json!({})), 0);
    assert!(
        raised.starts_with("lower what the pod asks for") || raised.starts_with("raise the limit"),
        "{raised}"
    );

    let large = change(&objects_of(default_pool(), "1000", &json!({})), 0);
    assert!(
        large.starts_with("lower what the pod asks for from cpu 1k to"),
        "{large}"
    );
}

#[test]
fn a_gated_pod_is_told_to_lose_its_gate() {
    let spec = json!({ "schedulingGates": [{ "name": "example.com/wait" }] });
    let objects = objects(vec![default_pool()], pods(1, "1", "1Gi", &spec));
    let explanation = explained(&objects, 0);
    assert!(explanation.reasons[0].message.contains("example.com/wait"));
    assert_eq!(change(&objects, 0), "remove the pod's scheduling gates");
}

#[test]
fn pods_that_nobody_evaluated_or_that_could_be_placed_starve() {
    let mut all = pods(3, "1", "1Gi", &json!({}));
    all.extend(pods(1, "1000", "1Gi", &json!({})));
    let objects = objects(vec![default_pool()], all);
    let catalogue = catalogue();
    let results = solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    let time = |text: &str| -> Timestamp { text.parse().unwrap() };
    let now = time("2026-01-02T14:00:00Z");
    let created = Some(time("2026-01-02T00:00:00Z"));
    let seen = [
        // Judged and could be placed; never judged; young; judged and goes nowhere.
        Seen {
            created,
            judged: created,
            ..Seen::default()
        },
        Seen {
            created,
            judged: None,
            ..Seen::default()
        },
        Seen {
            created: Some(time("2026-01-02T13:55:00Z")),
            judged: None,
            ..Seen::default()
        },
        Seen {
            created,
            judged: created,
            ..Seen::default()
        },
    ];
    let found = explain::starving(&objects, &results, &seen, now, 600);
    let told: Vec<_> = found
        .iter()
        .map(|pod| {
            (
                pod.pod,
                pod.age_seconds,
                pod.evaluated,
                pod.would_be_placed,
                pod.behind.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (0, 14 * 3_600, true, true, &[3][..]),
            (1, 14 * 3_600, false, true, &[3]),
        ]
    );
}
