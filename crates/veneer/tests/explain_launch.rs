//! `veneer explain nodepool` and `nodeclaim`: the size gap from the first pod to the request that EC2 gets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::{Value, json};
use support::{root, run, veneer, veneer_at};

const SIZE_GAP: &str = "examples/simulate/size-gap";
const CAP_192: &str = "examples/simulate/proposed/cap-192.yaml";
const NODE_CLAIM: &str = "examples/explain/nodeclaim.yaml";
const FLEET_X86: &str = "examples/explain/create-fleet-x86.json";
const FLEET_BOTH: &str = "examples/explain/create-fleet-both.json";

/// The JSON of a run that went well.
fn explained(arguments: &[&str]) -> Value {
    let mut all = vec!["explain"];
    all.extend(arguments);
    all.extend(["-o", "json"]);
    let said = veneer(&all);
    assert_eq!(said.code, 0, "{}", said.err);
    said.json()
}

fn stage<'a>(report: &'a Value, name: &str) -> &'a Value {
    let stages = report["funnel"].as_array().unwrap();
    stages.iter().find(|stage| stage["stage"] == name).unwrap()
}

fn file(text: &str, suffix: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn the_gap_is_found_with_the_stage_where_arm64_leaves() {
    let report = explained(&["nodepool", "default", "-f", SIZE_GAP]);
    let gap = &report["gaps"][0];
    assert_eq!(
        (&gap["label"], &gap["value"], &gap["resource"]),
        (&json!("kubernetes.io/arch"), &json!("arm64"), &json!("cpu"))
    );
    assert_eq!((&gap["from"], &gap["to"]), (&json!(97), &json!(128)));
    assert_eq!(gap["affectedClaims"], 1);
    let stages: Vec<&str> = report["funnel"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        stages,
        [
            "podSorting",
            "poolRequirements",
            "binPacking",
            "amiMapping",
            "priceAdjustment",
            "fleet"
        ]
    );
    let arm64 = |name: &str| stage(&report, name)["byArchitecture"]["arm64"].as_u64().unwrap();
    assert!(arm64("poolRequirements") > 0);
    assert_eq!(arm64("binPacking"), 0);
    let sways: Vec<&Value> = report["funnel"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| &stage["overlayCanInfluence"])
        .collect();
    assert_eq!(
        sways,
        [
            &json!(false),
            &json!(false),
            &json!(false),
            &json!(false),
            &json!(true),
            &json!(true)
        ]
    );
}

#[test]
fn every_stage_begins_where_the_one_before_ended_and_its_losses_add_up() {
    for more in [&[][..], &["--propose", CAP_192][..]] {
        let mut arguments = vec!["nodepool", "default", "-f", SIZE_GAP];
        arguments.extend(more);
        let report = explained(&arguments);
        let mut before: Option<u64> = None;
        for stage in report["funnel"].as_array().unwrap() {
            let number = |field: &str| stage[field].as_u64().unwrap();
            assert!(before.is_none_or(|before| before == number("before")), "{stage}");
            let lost: u64 = stage["removedBy"]
                .as_array()
                .unwrap()
                .iter()
                .map(|removal| removal["instanceTypes"].as_u64().unwrap())
                .sum();
            assert_eq!(number("before") - number("after"), lost, "{stage}");
            let by_architecture = stage["byArchitecture"].as_object().unwrap();
            let total: u64 = by_architecture
                .values()
                .map(|count| count.as_u64().unwrap())
                .sum();
            assert_eq!(total, number("after"), "{stage}");
            before = Some(number("after"));
        }
    }
}

#[test]
fn each_remedy_comes_to_what_a_simulation_of_its_patch_comes_to() {
    let report = explained(&["nodepool", "default", "-f", SIZE_GAP]);
    let text = std::fs::read_to_string(root().join(SIZE_GAP).join("nodepool.yaml")).unwrap();
    let pool: Value = serde_saphyr::from_str(&text).unwrap();
    let remedies = report["remedies"].as_array().unwrap();
    let ids: Vec<&str> = remedies
        .iter()
        .map(|remedy| remedy["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            "raiseCpuCap",
            "lowerCpuCap",
            "excludeSizes",
            "forceArchitecture",
            "other"
        ]
    );
    for remedy in remedies {
        let mut patched = pool.clone();
        let requirements = &remedy["change"]["spec"]["template"]["spec"]["requirements"];
        patched["spec"]["template"]["spec"]["requirements"] = requirements.clone();
        let proposed = file(&patched.to_string(), ".json");
        let path = proposed.path().display().to_string();
        let said = veneer(&["simulate", "-f", SIZE_GAP, "--propose", &path, "-o", "json"]);
        let simulated = said.json();
        assert_eq!(
            (remedy["nodes"].as_u64(), &remedy["hourly"], &remedy["listHourly"]),
            (
                Some(simulated["newNodeClaims"].as_array().unwrap().len() as u64),
                &simulated["cost"]["hourly"],
                &simulated["cost"]["listHourly"]
            ),
            "{remedy}"
        );
        assert_eq!(remedy["share"], json!({ "arm64": 1.0 }), "{remedy}");
        assert_eq!(remedy["unschedulable"], 0);
    }
    let hourly = |at: usize| remedies[at]["hourly"].as_f64().unwrap();
    assert!(
        (0..4).all(|at| hourly(4) < hourly(at)),
        "the other one is there because it is cheaper"
    );
    assert_eq!(remedies[0]["largestNode"]["vcpu"], 192);
    assert_eq!(remedies[3]["spotFallback"]["architectures"], 1);
}

#[test]
fn with_the_cap_at_192_there_is_no_gap_and_the_arm64_type_wins_the_request() {
    let report = explained(&["nodepool", "default", "-f", SIZE_GAP, "--propose", CAP_192]);
    let of_arm64 = |gap: &&Value| gap["value"] == "arm64" && gap["resource"] == "cpu";
    assert_eq!(report["gaps"].as_array().unwrap().iter().find(of_arm64), None);
    assert_eq!(report["remedies"], json!([]));
    let fleet = stage(&report, "fleet");
    assert_eq!(fleet["after"], 60);
    let what = fleet["what"].as_str().unwrap();
    assert!(
        what.starts_with("prioritized: ") && what.contains("c8g.48xlarge on-demand at $3.8285/h"),
        "{what}"
    );
}

#[test]
fn a_node_class_without_an_arm64_image_loses_arm64_at_the_image_stage() {
    let class = file(
        "apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
  role: node
status:
  amis:
  - {id: ami-1, requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}
  subnets:
  - {id: subnet-1, zone: us-east-1a}
",
        ".yaml",
    );
    let path = class.path().display().to_string();
    let report = explained(&[
        "nodepool",
        "default",
        "-f",
        SIZE_GAP,
        "-f",
        &path,
        "--propose",
        CAP_192,
    ]);
    assert!(
        stage(&report, "binPacking")["byArchitecture"]["arm64"]
            .as_u64()
            .unwrap()
            > 0
    );
    assert_eq!(stage(&report, "amiMapping")["byArchitecture"]["arm64"], 0);
}

#[test]
fn without_pending_pods_those_on_the_pools_nodes_are_planned_anew() {
    let mut items = vec![json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n", "labels": { "karpenter.sh/nodepool": "default" } },
        "status": { "allocatable": { "cpu": "127", "memory": "240Gi", "pods": "100" } } })];
    for name in 0..10 {
        items.push(
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("pod-{name}") },
            "spec": { "nodeName": "n", "containers": [{ "name": "main", "image": "x",
                "resources": { "requests": { "cpu": "10", "memory": "16Gi" } } }] },
            "status": { "phase": "Running" } }),
        );
    }
    let list = file(
        &json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string(),
        ".json",
    );
    let path = list.path().display().to_string();
    let pool = format!("{SIZE_GAP}/nodepool.yaml");
    let report = explained(&["nodepool", "default", "-f", &pool, "-f", &path]);
    assert_eq!(
        (&report["repacked"], &report["gaps"][0]["affectedPods"]),
        (&json!(true), &json!(10))
    );
}

#[test]
fn a_claim_of_one_architecture_says_at_which_stage_the_other_left_and_by_how_much() {
    let claim = explained(&["nodeclaim", "default-x2x7q", "-f", SIZE_GAP, "-f", NODE_CLAIM]);
    let recorded = explained(&["nodeclaim", "--create-fleet", FLEET_X86, "-f", SIZE_GAP]);
    for report in [&claim, &recorded] {
        assert_eq!(report["stage"], "binPacking");
        let missing = report["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0]["architecture"], "arm64");
        let reason = missing[0]["reason"].as_str().unwrap();
        assert!(reason.contains("c8g.24xlarge with 96 vCPU"), "{reason}");
        assert_eq!(report["launched"], "c6a.32xlarge");
        assert_eq!(report["nodePool"], "default");
    }
    assert_eq!(recorded["launchTemplates"], 1);
    assert_eq!(claim["expected"]["instanceType"], "c6a.32xlarge");
}

#[test]
fn a_request_of_two_architectures_is_one_that_overlays_decide() {
    let arguments = [
        "nodeclaim",
        "--create-fleet",
        FLEET_BOTH,
        "-f",
        SIZE_GAP,
        "--propose",
        CAP_192,
    ];
    let report = explained(&arguments);
    assert_eq!(report["overlayCouldInfluence"], true);
    assert_eq!(
        (&report["stage"], &report["strategy"]),
        (&json!("fleet"), &json!("prioritized"))
    );
    assert_eq!(report["expected"]["instanceType"], report["launched"]);
    let names: BTreeSet<&str> = report["architectures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["architecture"].as_str().unwrap())
        .collect();
    assert_eq!(names, BTreeSet::from(["amd64", "arm64"]));
}

#[test]
fn tables_fit_into_80_columns_and_use_200() {
    let nodepool = ["explain", "nodepool", "default", "-f", SIZE_GAP];
    let nodeclaim = [
        "explain",
        "nodeclaim",
        "--create-fleet",
        FLEET_X86,
        "-f",
        SIZE_GAP,
    ];
    for columns in [80, 200] {
        for (name, arguments) in [("nodepool", &nodepool[..]), ("nodeclaim", &nodeclaim[..])] {
            let said = veneer_at(columns, arguments);
            let widest = said.out.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{widest}: {}", said.out);
            insta::assert_snapshot!(format!("{name}_{columns}"), said.all());
        }
    }
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    for (arguments, expected) in [
        (
            &["nodepool", "defalt"][..],
            "there is no NodePool defalt in examples/simulate/size-gap; did you mean default?",
        ),
        (
            &["nodeclaim", "x"],
            "there is no NodeClaim x in examples/simulate/size-gap; there is none",
        ),
        (
            &["nodeclaim", "--create-fleet", NODE_CLAIM],
            "examples/explain/nodeclaim.yaml is not JSON",
        ),
        (
            &["nodeclaim", "--create-fleet", "nowhere.json"],
            "cannot read nowhere.json",
        ),
    ] {
        let mut all = vec!["explain"];
        all.extend(arguments);
        all.extend(["-f", SIZE_GAP]);
        let said = veneer(&all);
        assert_eq!(said.code, 2);
        assert!(said.err.contains(expected), "{}", said.err);
    }
    let empty = run(
        env!("CARGO_BIN_EXE_veneer"),
        &[
            "explain",
            "nodeclaim",
            "--create-fleet",
            "/dev/stdin",
            "-f",
            SIZE_GAP,
        ],
        None,
        Some("{\"Records\": []}"),
    );
    assert!(
        empty.err.contains("has no LaunchTemplateConfigs"),
        "{}",
        empty.err
    );
}

#[test]
fn help_says_what_is_explained() {
    for subject in ["node", "nodepool", "nodeclaim", "overprovisioner"] {
        let said = veneer_at(100, &["explain", subject, "--help"]);
        insta::assert_snapshot!(format!("help_explain_{subject}"), said.out);
    }
}

#[test]
fn an_overprovisioner_is_explained_at_any_time_and_names_what_is_wrong() {
    let at = |time: &str, name: &str, more: &[&str]| {
        let base = [
            "explain",
            "overprovisioner",
            name,
            "-f",
            "examples/overprovisioner",
            "--at",
            time,
            "-o",
            "json",
        ];
        let said = veneer(&[&base[..], more].concat());
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    // Monday in Berlin: before, in and after office hours.
    for (time, wanted) in [
        ("2026-01-05T06:59:59Z", 2),
        ("2026-01-05T07:00:00Z", 5),
        ("2026-01-05T16:59:59Z", 5),
        ("2026-01-05T17:00:00Z", 2),
    ] {
        let office = at(time, "office", &[]);
        assert_eq!(office["nodePools"][0]["desired"], wanted, "{time}");
        let launching = office["next"][0].as_str().unwrap();
        assert!(
            launching.contains(&format!("launching {wanted} Running spares")),
            "{launching}"
        );
    }
    // A share of no nodes is nothing, and stopped ones are not for companions.
    let cold = at("2026-01-05T00:00:00Z", "event-cold", &[]);
    assert_eq!(
        (
            &cold["nodePools"][0]["desired"],
            cold["next"].as_array().unwrap().len()
        ),
        (&0.into(), 0)
    );
    let cold = at("2026-01-05T00:00:00Z", "event-cold", &["--companion"]);
    assert!(
        cold["status"]["conditions"]
            .to_string()
            .contains("run Veneer with --mode standalone")
    );
    let wrong = veneer(&[
        "explain",
        "overprovisioner",
        "ofice",
        "-f",
        "examples/overprovisioner",
    ]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("did you mean office?"), "{}", wrong.err);
}
