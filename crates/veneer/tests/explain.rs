//! `veneer explain pod`: the waterfall, why-not, the smallest change, messages and exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use serde_json::{Value, json};
use support::{run, veneer, veneer_at};

const CLUSTER: &str = "examples/simulate/cluster";
const SIZE_GAP: &str = "examples/simulate/size-gap";
const CAP_192: &str = "examples/simulate/proposed/cap-192.yaml";

fn explained(code: i32, arguments: &[&str]) -> Value {
    let mut all = vec!["explain", "pod", "-o", "json"];
    all.extend(arguments);
    let said = veneer(&all);
    assert_eq!(said.code, code, "{}", said.err);
    said.json()
}

#[test]
fn tables_of_a_pod_that_goes_somewhere_and_of_one_that_does_not() {
    let said = veneer_at(140, &["explain", "pod", "shop/web-3", "-f", CLUSTER]);
    insta::assert_snapshot!("placed", said.all());
    let said = veneer_at(
        140,
        &["explain", "pod", "research/train-0", "-f", CLUSTER, "-o", "wide"],
    );
    insta::assert_snapshot!("nowhere", said.all());
}

#[test]
fn help_explain_pod() {
    insta::assert_snapshot!("help_explain_pod", veneer(&["explain", "pod", "--help"]).out);
}

#[test]
fn the_json_has_what_the_contract_says() {
    let report = explained(1, &["shop/wrong-zone", "-f", CLUSTER, "--why-not", "m6i.large"]);
    assert_eq!(report["pod"], "shop/wrong-zone");
    assert_eq!(report["outcome"], "unschedulable");
    let pools = report["nodePools"].as_array().unwrap();
    assert_eq!(pools.len(), 2);
    for pool in pools {
        let mut before = 1366;
        for step in pool["waterfall"].as_array().unwrap() {
            assert_eq!(step["before"], before, "{step}");
            before = step["after"].as_u64().unwrap();
            let by = step["byArchitecture"].as_object().unwrap().values();
            assert_eq!(by.map(|count| count.as_u64().unwrap()).sum::<u64>(), before);
        }
        assert_eq!(before, 0);
    }
    let change = &report["smallestChange"];
    assert_eq!(
        change["description"],
        "drop the pod's demand on the label topology.kubernetes.io/zone"
    );
    assert_eq!(change["change"]["measure"]["fields"], 1);
    assert_eq!(report["whyNot"]["stage"], "requirements");
    assert!(
        report["whyNot"]["reason"]
            .as_str()
            .unwrap()
            .contains("spec.nodeSelector")
    );

    // Twice the same, to the byte.
    let ask = || veneer(&["explain", "pod", "shop/wrong-zone", "-f", CLUSTER, "-o", "json"]).out;
    assert_eq!(ask(), ask());
}

#[test]
fn graviton_leaves_at_the_size_of_the_node_and_not_at_the_pod() {
    let pod = "worker-0";
    // The pod alone leaves Graviton; the node of ten pods and 100 vCPU does not.
    let report = explained(0, &[pod, "-f", SIZE_GAP, "--why-not", "c8g.24xlarge"]);
    let steps = report["nodePools"][0]["waterfall"].as_array().unwrap();
    let arm = |step: &Value| step["byArchitecture"]["arm64"].as_u64().unwrap_or(0);
    let gone = steps.iter().find(|step| arm(step) == 0).unwrap();
    assert_eq!(gone["stage"], "resources");
    assert_eq!(gone["constraint"]["object"], "9 other pods on the node");
    assert_eq!(report["whyNot"]["stage"], "resources");
    assert!(
        report["whyNot"]["reason"].as_str().unwrap().contains("cpu 100"),
        "{}",
        report["whyNot"]
    );

    // With the larger cap it is the cheapest.
    let report = explained(
        0,
        &[
            pod,
            "-f",
            SIZE_GAP,
            "--propose",
            CAP_192,
            "--why-not",
            "c8g.48xlarge",
        ],
    );
    assert_eq!(report["placement"]["cheapest"]["instanceType"], "c8g.48xlarge");
    assert_eq!(report["whyNot"]["stage"], Value::Null);
    assert!(
        report["whyNot"]["reason"]
            .as_str()
            .unwrap()
            .contains("the cheapest of")
    );
}

#[test]
fn pods_that_starve_are_reported_with_their_age() {
    let pod = |name: &str, cpu: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        })
    };
    let pool = std::fs::read_to_string(support::root().join(SIZE_GAP).join("nodepool.yaml")).unwrap();
    let input = format!(
        "{pool}\n---\n{}\n---\n{}\n",
        pod("small", "1"),
        pod("huge", "1000")
    );
    let ask = |arguments: &[&str]| run(env!("CARGO_BIN_EXE_veneer"), arguments, Some(140), Some(&input));
    let now = ["--now", "2026-01-01T14:00:00Z"];
    let said = ask(&[&["simulate", "-f", "-", "-o", "json"], &now[..]].concat());
    let starving = &said.json()["starving"];
    assert_eq!(starving[0]["pod"], "default/huge");
    assert_eq!(starving[1]["pod"], "default/small");
    assert_eq!(starving[1]["ageSeconds"], 50_400);
    assert_eq!(starving[1]["behind"], json!(["default/huge"]));
    let said = ask(&[&["explain", "pod", "small", "-f", "-"], &now[..]].concat());
    assert!(
        said.out.contains("It has waited for 14h0m: no scheduler has evaluated it; a run of now would place it; default/huge"),
        "{}",
        said.out
    );
    // Without a time nothing is said about ages.
    let said = ask(&["simulate", "-f", "-", "-o", "json"]);
    assert_eq!(said.json()["starving"], Value::Null);
}

#[test]
fn what_is_not_there_is_named_with_what_is_near() {
    for (arguments, expected) in [
        (
            &["shop/web-O"][..],
            "there is no pod shop/web-O in examples/simulate/cluster; did you mean shop/web-",
        ),
        (
            &["web-0"],
            "there is no pod default/web-0 in examples/simulate/cluster; did you mean shop/web-0?",
        ),
        (
            &["shop/web-0", "--why-not", "m6i.larg"],
            "--why-not: the catalogue has no instance type m6i.larg; did you mean m6i.large?",
        ),
    ] {
        let all = [&["explain", "pod", "-f", CLUSTER], arguments].concat();
        let said = veneer(&all);
        assert_eq!(said.code, 2);
        assert!(said.err.contains(expected), "{}", said.err);
    }
}
