//! `veneer simulate`: the worked examples, tables, JSON, what is read, messages and exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use serde_json::Value;
use support::{root, run, veneer, veneer_at};

const PACKING: &str = "examples/simulate/packing";
const SIZE_GAP: &str = "examples/simulate/size-gap";
const CLUSTER: &str = "examples/simulate/cluster";
const CAP_192: &str = "examples/simulate/proposed/cap-192.yaml";

/// The report of a run that went well.
fn report(arguments: &[&str]) -> Value {
    let mut all = vec!["simulate", "-o", "json"];
    all.extend(arguments);
    let said = veneer(&all);
    assert_eq!(said.code, 0, "{}", said.err);
    said.json()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect()
}

/// The architecture and the number of vCPU of a type of the embedded catalogue.
fn shapes() -> std::collections::HashMap<String, (String, u64)> {
    let said = veneer(&["catalog", "--region", "us-east-1", "-o", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let catalogue = said.json();
    let types = catalogue["instanceTypes"].as_array().unwrap().iter();
    types
        .map(|it| {
            let label = |key: &str| it["labels"][key][0].as_str().unwrap().to_owned();
            let cpu = label("karpenter.k8s.aws/instance-cpu").parse().unwrap();
            (
                it["name"].as_str().unwrap().to_owned(),
                (label("kubernetes.io/arch"), cpu),
            )
        })
        .collect()
}

#[test]
fn ten_pods_of_12_vcpu_go_on_one_node_of_128_or_more() {
    let report = report(&["-f", PACKING]);
    let claims = report["newNodeClaims"].as_array().unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(texts(&claims[0]["pods"]).len(), 10);
    assert_eq!(claims[0]["requests"]["cpu"], "120");
    let shapes = shapes();
    let types = texts(&claims[0]["instanceTypes"]);
    assert!(types.iter().all(|name| shapes[*name].1 >= 128), "{types:?}");
    let has = |arch: &str, cpu: u64| types.iter().any(|name| shapes[*name] == (arch.to_owned(), cpu));
    assert!(has("arm64", 192) && has("amd64", 128) && has("amd64", 192));
}

#[test]
fn a_cap_of_128_vcpu_leaves_no_graviton_for_100_vcpu_whatever_its_price() {
    let report = report(&["-f", SIZE_GAP]);
    let claim = &report["newNodeClaims"][0];
    assert_eq!(report["newNodeClaims"].as_array().unwrap().len(), 1);
    assert_eq!(claim["requests"]["cpu"], "100");
    let shapes = shapes();
    for name in texts(&claim["instanceTypes"]) {
        assert_eq!(shapes[name], ("amd64".to_owned(), 128), "{name}");
    }
    // The discount on Graviton has nothing to act on.
    assert_eq!(report["cost"]["hourly"], report["cost"]["listHourly"]);
}

#[test]
fn a_cap_of_192_vcpu_brings_graviton_and_its_discount_back() {
    let report = report(&["-f", SIZE_GAP, "--propose", CAP_192]);
    let claim = &report["newNodeClaims"][0];
    let types = texts(&claim["instanceTypes"]);
    assert!(
        types.contains(&"c8g.48xlarge") && types.contains(&"c6i.32xlarge"),
        "{types:?}"
    );
    assert_eq!(
        claim["cheapest"]["overlays"],
        serde_json::json!(["prefer-graviton"])
    );
    let price = |field: &str| claim["cheapest"][field].as_f64().unwrap();
    assert_eq!(price("price"), price("listPrice") / 2.0);
    let change = &report["change"];
    assert_eq!(
        (&change["newNodeClaims"], &change["unschedulable"]),
        (&0.into(), &0.into())
    );
    assert!(change["hourly"].as_f64().unwrap() < 0.0, "{change}");
}

#[test]
fn tables_are_readable_at_80_and_200_columns() {
    for (name, columns, more) in [
        ("table_80", 80, &[][..]),
        ("table_200", 200, &[]),
        ("wide_200", 200, &["-o", "wide"]),
        (
            "proposal_80",
            80,
            &["--propose", "crates/veneer/tests/cases/simulate/more.yaml"],
        ),
    ] {
        let mut arguments = vec!["simulate", "-f", CLUSTER];
        arguments.extend(more);
        let said = veneer_at(columns, &arguments);
        assert!(
            said.out
                .lines()
                .all(|line| line.chars().count() <= usize::from(columns)),
            "{}",
            said.out
        );
        insta::assert_snapshot!(name, said.all());
    }
}

#[test]
fn json_and_yaml_have_the_fields_that_programs_rely_on() {
    let arguments = |format| ["simulate", "-f", CLUSTER, "-o", format];
    insta::assert_snapshot!("json", veneer(&arguments("json")).out);
    insta::assert_snapshot!("yaml", veneer(&arguments("yaml")).out);
}

#[test]
fn the_cost_is_the_sum_of_the_cheapest_offerings() {
    let report = report(&["-f", CLUSTER]);
    for (total, field) in [("hourly", "price"), ("listHourly", "listPrice")] {
        let claims = report["newNodeClaims"].as_array().unwrap().iter();
        let sum: f64 = claims
            .map(|claim| claim["cheapest"][field].as_f64().unwrap())
            .sum();
        assert!(
            (report["cost"][total].as_f64().unwrap() - sum).abs() < 1e-8,
            "{report}"
        );
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_and_timing_is_added_on_request() {
    let arguments = ["simulate", "-f", CLUSTER, "-o", "json"];
    let said = veneer(&arguments);
    assert_eq!(said.out, veneer(&arguments).out);
    assert_eq!(said.json().get("timing"), None);
    let timing = &veneer(&["simulate", "-f", CLUSTER, "-o", "json", "--timing"]).json()["timing"];
    for field in ["loadMs", "overlayMs", "solveMs", "peakRssMiB"] {
        assert!(
            timing[field].as_f64().is_some_and(|value| value > 0.0),
            "{timing}"
        );
    }
}

#[test]
fn the_order_of_documents_does_not_matter() {
    let mut documents: Vec<String> = Vec::new();
    for file in ["nodepools", "overlays", "nodes", "workloads"] {
        let text = std::fs::read_to_string(root().join(format!("{CLUSTER}/{file}.yaml"))).unwrap();
        documents.extend(text.split("---\n").map(str::to_owned));
    }
    assert!(documents.len() > 6);
    documents.reverse();
    let arguments = ["simulate", "-f", "-", "-o", "json"];
    let reversed = run(
        env!("CARGO_BIN_EXE_veneer"),
        &arguments,
        None,
        Some(&documents.join("---\n")),
    );
    assert_eq!(
        reversed.out,
        veneer(&["simulate", "-f", CLUSTER, "-o", "json"]).out
    );
}

/// The pods of the packing example as `kubectl get pods -o json` writes them; the last asks for `cpu`.
fn pod_list(cpu: &str) -> String {
    let pod = |at: usize| {
        let cpu = if at == 9 { cpu } else { "12" };
        serde_json::json!({"metadata": {"name": format!("worker-{at}")}, "spec": {"containers": [
            {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "16Gi"}}}]}})
    };
    let pods: Vec<Value> = (0..10).map(pod).collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": pods});
    serde_json::to_string_pretty(&list).unwrap()
}

#[test]
fn a_json_list_is_read_as_its_pods_are_and_names_the_line_of_a_mistake() {
    let ask = |list: &str| {
        let arguments = [
            "simulate",
            "-f",
            "examples/simulate/packing/nodepool.yaml",
            "-f",
            "-",
            "-o",
            "json",
        ];
        run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(list))
    };
    let from_files = veneer(&["simulate", "-f", PACKING, "-o", "json"]);
    assert_eq!(ask(&pod_list("12")).out, from_files.out);

    let list = pod_list("dozen");
    let line = list.lines().position(|line| line.contains("dozen")).unwrap() + 1;
    let said = ask(&list);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains(&format!(
            "<stdin>:{line}: Pod worker-9: spec.containers[0].resources.requests.cpu"
        )),
        "{}",
        said.err
    );
    assert_eq!(said.json()["newNodeClaims"][0]["requests"]["cpu"], "108");
}

#[test]
fn unschedulable_pods_are_an_answer_unless_they_are_asked_to_be_a_failure() {
    assert_eq!(veneer(&["simulate", "-f", CLUSTER]).code, 0);
    let said = veneer(&["simulate", "-f", CLUSTER, "--fail-on-unschedulable"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.out.contains("3 unschedulable"), "{}", said.out);
    assert_eq!(
        veneer(&["simulate", "-f", PACKING, "--fail-on-unschedulable"]).code,
        0
    );
}

#[test]
fn without_pending_pods_there_is_nothing_to_schedule() {
    let pool = "examples/simulate/packing/nodepool.yaml";
    let said = veneer(&["simulate", "-f", pool]);
    assert_eq!((said.code, said.out.as_str()), (0, "Nothing to schedule.\n"));
    assert!(
        said.err.contains(
            "note: nothing to schedule: there is no pod in examples/simulate/packing/nodepool.yaml"
        ),
        "{}",
        said.err
    );
    let said = veneer(&["simulate", "-f", pool, "-o", "json", "--fail-on-unschedulable"]);
    assert_eq!(said.code, 0);
    assert_eq!(said.json()["newNodeClaims"], serde_json::json!([]));

    let placed = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeName: old, containers: []}\n";
    let arguments = ["simulate", "-f", pool, "-f", "-"];
    let said = run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(placed));
    assert!(
        said.err.contains("nothing to schedule: the one pod in"),
        "{}",
        said.err
    );
}

#[test]
fn bad_input_is_exit_code_2_and_says_what_to_do() {
    for (arguments, message) in [
        (
            &["simulate", "-f", "examples/simulate/packing/pods.yaml"][..],
            "there is no NodePool in examples/simulate/packing/pods.yaml; new nodes come from NodePools",
        ),
        (&["simulate", "-f", PACKING, "--region", "mars-1"], "mars-1"),
        (
            &["simulate", "-f", PACKING, "--catalog", "nowhere.json"],
            "cannot read the catalogue nowhere.json",
        ),
        (&["simulate", "-f", "no/such/file"], "no/such/file"),
        (
            &["simulate", "-f", PACKING, "--packing", "luck"],
            "[possible values: ffd, cost]",
        ),
        (&["simulate"], "give files with -f PATH"),
    ] {
        let said = veneer(arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}");
        assert!(said.err.contains(message), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_scheduled() {
    let said = veneer(&[
        "simulate",
        "-f",
        PACKING,
        "-f",
        "crates/veneer/tests/cases/simulate/broken.yaml",
    ]);
    insta::assert_snapshot!("broken", said.all());
}

#[test]
fn help_says_what_is_read_and_what_the_exit_codes_mean() {
    insta::assert_snapshot!("help_simulate", veneer_at(100, &["simulate", "--help"]).out);
}

#[test]
fn a_capacity_overlay_makes_room_for_pods_that_ask_for_it() {
    let pod = "apiVersion: v1
kind: Pod
metadata: {name: device}
spec: {containers: [{name: main, resources: {requests: {cpu: 1, example.com/device: 2}}}]}
";
    let overlay = "---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: devices}
spec: {requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [m6i]}], capacity: {example.com/device: 4}}
";
    let pool = "examples/simulate/packing/nodepool.yaml";
    let ask = |text: &str| {
        let arguments = ["simulate", "-f", pool, "-f", "-", "-o", "json"];
        run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(text)).json()
    };
    let without = ask(pod);
    assert_eq!(without["unschedulable"][0]["pod"], "default/device");
    assert!(texts(&without["unschedulable"][0]["reasons"])[0].starts_with("NodePool default: "));
    let with = ask(&format!("{pod}{overlay}"));
    assert_eq!(with["unschedulable"], serde_json::json!([]));
    assert_eq!(
        with["newNodeClaims"][0]["cheapest"]["overlays"],
        serde_json::json!(["devices"])
    );
    let types = texts(&with["newNodeClaims"][0]["instanceTypes"]);
    assert!(
        !types.is_empty() && types.iter().all(|name| name.starts_with("m6i.")),
        "{types:?}"
    );
}

#[test]
fn the_catalogue_of_the_kwok_provider_is_taken_from_its_file() {
    let pod = "apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {nodeSelector: {kubernetes.io/arch: x86_64}, containers: [{name: main, resources: {requests: {cpu: 1}}}]}
";
    let folder = "crates/veneer/tests/cases/kwok";
    let (pool, catalog) = (format!("{folder}/pool.yaml"), format!("{folder}/catalog.json"));
    let arguments = [
        "simulate",
        "-f",
        &pool,
        "-f",
        "-",
        "--catalog",
        &catalog,
        "-o",
        "json",
    ];
    let report = run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(pod)).json();
    let listed = std::fs::read_to_string(root().join(&catalog)).unwrap();
    let types = texts(&report["newNodeClaims"][0]["instanceTypes"]);
    assert!(!types.is_empty(), "{report}");
    assert!(
        types.iter().all(|name| listed.contains(&format!("\"{name}\""))),
        "{types:?}"
    );
}

#[test]
fn min_values_and_preferences_follow_their_policies() {
    let case = "crates/veneer/tests/cases/simulate/policies.yaml";
    let strict = report(&["-f", case]);
    assert_eq!(strict["unschedulable"].as_array().unwrap().len(), 1, "{strict}");
    let best_effort = report(&["-f", case, "--min-values-policy", "best-effort"]);
    assert_eq!(best_effort["unschedulable"], serde_json::json!([]));
    let relaxed = |claim: &&Value| claim["minValuesRelaxed"] == true;
    let claims = best_effort["newNodeClaims"].as_array().unwrap();
    assert_eq!(claims.iter().filter(relaxed).count(), 1, "{best_effort}");

    let zone = |report: &Value| {
        let claims = report["newNodeClaims"].as_array().unwrap();
        let of = claims.iter().find(|claim| claim["nodePool"] == "zones").unwrap();
        of["cheapest"]["zone"].as_str().unwrap().to_owned()
    };
    assert_eq!(zone(&strict), "us-east-1c");
    assert_eq!(
        zone(&report(&["-f", case, "--preference-policy", "ignore"])),
        "us-east-1a"
    );
}

#[test]
fn packing_for_cost_is_never_dearer_and_says_how_much_is_left() {
    let ffd = report(&["-f", CLUSTER]);
    let cost = report(&["-f", CLUSTER, "--packing", "cost"]);
    let hourly = |report: &Value| report["cost"]["hourly"].as_f64().unwrap();
    assert!(hourly(&cost) < hourly(&ffd));
    assert_eq!(cost["packing"]["ffdHourly"].as_f64().unwrap(), hourly(&ffd));
    assert!(cost["packing"]["lowerBound"].as_f64().unwrap() <= hourly(&cost));
    assert_eq!(cost["unschedulable"], ffd["unschedulable"]);
    assert_eq!(ffd.get("packing"), None);
}

#[test]
fn a_workload_whose_pods_are_there_makes_no_more_of_them() {
    let pod = "apiVersion: v1
kind: Pod
metadata: {name: worker-5d8f7-x2x9k, labels: {app: worker}}
spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}
";
    let arguments = ["simulate", "-f", SIZE_GAP, "-f", "-", "-o", "json"];
    let report = run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(pod)).json();
    let claims = report["newNodeClaims"].as_array().unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(texts(&claims[0]["pods"]), ["default/worker-5d8f7-x2x9k"]);
}

#[test]
fn a_change_is_told_before_and_after() {
    let report = report(&["-f", SIZE_GAP, "--propose", CAP_192]);
    let change = &report["change"];
    let verdict = change["verdict"].as_str().unwrap();
    let (bill, overlays) = verdict.split_once(". ").unwrap();
    assert_eq!(bill, "Costs more: +$2.7610/h (+56.4 %, about +$2,016 a month)");
    assert!(
        overlays.starts_with("Overlays make it look cheaper (-$1.0675/h)"),
        "{verdict}"
    );
    assert_eq!(change["before"]["nodes"], 1);
    assert_eq!(change["before"]["cost"]["hourly"], 4.896);
    assert_eq!(change["after"]["cost"]["hourly"], report["cost"]["hourly"]);
    let types: Vec<&str> = change["instanceTypes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["instanceType"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["c6a.32xlarge", "c8g.48xlarge"]);
    assert_eq!(texts(&change["podsMoved"]).len(), 10);
    assert_eq!(texts(&change["podsLost"]).len(), 0);
}

#[test]
fn workloads_are_scaled_and_objects_removed_without_a_manifest() {
    let plain = report(&["-f", CLUSTER]);
    let scaled = report(&[
        "-f",
        CLUSTER,
        "--scale",
        "shop/web=4",
        "--scale",
        "statefulset/shop/cache=0",
    ]);
    assert_eq!(scaled["change"]["pods"], -10);
    assert!(scaled["cost"]["hourly"].as_f64() < plain["cost"]["hourly"].as_f64());

    let removed = report(&["-f", CLUSTER, "--remove", "nodepool/general"]);
    assert!(!texts(&removed["change"]["podsLost"]).is_empty());
    let verdict = removed["change"]["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("Worse: "), "{verdict}");

    let without_overlays = report(&["-f", CLUSTER, "--remove", "overlay/savings-plan-m6i"]);
    assert!(without_overlays["change"]["hourly"].as_f64().unwrap() >= 0.0);
}

#[test]
fn repacking_moves_what_runs_and_counts_the_nodes_that_are_there() {
    let report = report(&["-f", CLUSTER, "--repack"]);
    let change = &report["change"];
    assert_eq!(report["existingNodes"].as_array().unwrap().len(), 0);
    let (before, after) = (&change["before"], &change["after"]);
    assert!(before["nodes"].as_u64() >= after["nodes"].as_u64());
    assert!(before["cost"]["hourly"].as_f64() >= after["cost"]["hourly"].as_f64());
}

#[test]
fn a_change_as_a_comment_on_a_pull_request() {
    let said = veneer(&[
        "simulate",
        "-f",
        CLUSTER,
        "--scale",
        "shop/web=20",
        "-o",
        "markdown",
    ]);
    insta::assert_snapshot!("markdown", said.out);
}

#[test]
fn what_cannot_be_tried_is_named_with_what_can() {
    for (arguments, expected) in [
        (
            ["--remove", "nodepool/genral"],
            "--remove nodepool/genral: there is no nodepool genral; did you mean general?",
        ),
        (
            ["--remove", "secret/keys"],
            "\"secret\" is not a kind that can be changed; expected one of nodepool, nodeoverlay",
        ),
        (
            ["--scale", "shop/web"],
            "--scale shop/web: expected NAME=N, such as web=20",
        ),
        (["--scale", "shop/web=many"], "\"many\" is no number of pods"),
        (
            ["--scale", "shop/wep=3"],
            "there is no deployment wep; did you mean web?",
        ),
    ] {
        let said = veneer(&[&["simulate", "-f", CLUSTER], &arguments[..]].concat());
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(expected), "{}", said.err);
    }
}

#[test]
fn a_buffer_frontier_names_its_sources_and_refuses_what_it_cannot_read() {
    let said = veneer(&[
        "simulate",
        "-f",
        "examples/buffer",
        "--buffer-frontier",
        "-o",
        "json",
    ]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&report["nodePool"], &report["arrivals"]),
        (&"burst".into(), &"generated".into())
    );
    assert_eq!(report["podsPerNode"], 2, "3.92 CPUs take two pods of 1500m");
    let mixes = report["mixes"].as_array().unwrap();
    let best: Vec<_> = mixes.iter().filter(|one| one["best"] == true).collect();
    assert!(best.len() > 2 && best.len() < mixes.len());
    let p99 = |one: &serde_json::Value| one["p99"].as_f64().unwrap();
    assert!(
        p99(best[0]) >= 35.0 && p99(best[best.len() - 1]) <= 1.0,
        "{best:?}"
    );
    let given = veneer(&[
        "simulate",
        "-f",
        "examples/buffer",
        "--buffer-frontier",
        "-o",
        "json",
        "--latency",
        "cold=2m,stopped=20s",
        "--arrivals",
        "hourly=0,burst=1,every=1h,life=1m",
    ]);
    let report: serde_json::Value = serde_json::from_str(&given.out).unwrap();
    assert_eq!(report["pods"], 24);
    assert_eq!(report["latencies"][2]["seconds"], 120.0);
    assert_eq!(report["latencies"][2]["source"], "given");
    assert_eq!(report["latencies"][0]["source"], "assumed");
    assert_eq!(report["mixes"][0]["p50"], 120.0);
    for (arguments, says) in [
        (["--arrivals", "burst=many"], "burst: expected 0 to 10000"),
        (["--latency", "warm=3s"], "expected running, stopped or cold"),
        (["--latency", "cold"], "is no KEY=VALUE"),
        (["--pool", "other"], "there is no NodePool other"),
    ] {
        let said = veneer(
            &[
                &["simulate", "-f", "examples/buffer", "--buffer-frontier"],
                &arguments[..],
            ]
            .concat(),
        );
        assert!(
            said.code == 2 && said.err.contains(says),
            "{arguments:?}: {}",
            said.err
        );
    }
}
