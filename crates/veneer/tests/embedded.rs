//! `veneer run --embedded`, `veneer apply`, `veneer simulate --scenario` and `veneer chaos`, as users run them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use support::{root, run, veneer};

const HUGE_PAGES: &str = "examples/scenarios/hugepages.yaml";
/// No port of the machine that runs the tests is taken.
const PORTS: [&str; 4] = [
    "--metrics-bind-address",
    "127.0.0.1:0",
    "--health-probe-bind-address",
    "127.0.0.1:0",
];

#[test]
fn a_scenario_runs_to_its_end_and_sums_up() {
    let mut arguments = vec![
        "run",
        "--embedded",
        "--speed",
        "max",
        "--scenario",
        HUGE_PAGES,
        "--every",
        "10m",
    ];
    arguments.extend(PORTS);
    let said = veneer(&arguments);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.out.starts_with("Veneer, embedded: scenario hugepages"),
        "{}",
        said.out
    );
    let lines = said.out.lines().filter(|line| line.starts_with("Mon "));
    assert!(lines.count() >= 2, "{}", said.out);
    for part in [
        "hugepages (seed 1), 1h simulated",
        "pods waited",
        "$ list",
        "$ paid",
        "$ saved",
        "spares used",
    ] {
        assert!(said.out.contains(part), "{part} is missing: {}", said.out);
    }
}

struct Live {
    child: Child,
    out: BufReader<ChildStdout>,
    observers: String,
    probes: String,
}

impl Live {
    /// Starts the default scenario and reads where it serves.
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args(["run", "--embedded", "--speed", "600x", "--every", "1m"])
            .args(PORTS)
            .current_dir(root())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut address = || {
            let mut line = String::new();
            while !line.contains("http://") {
                line.clear();
                assert!(out.read_line(&mut line).unwrap() > 0, "it ended before it served");
            }
            let rest = line.split("http://").nth(1).unwrap();
            rest.split('/').next().unwrap().to_owned()
        };
        let (observers, probes) = (address(), address());
        Self {
            child,
            out,
            observers,
            probes,
        }
    }

    fn get(address: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Of a test that failed; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_live_world_answers_takes_changes_and_sums_up_when_it_is_told_to_end() {
    let mut live = Live::start();
    assert!(Live::get(&live.probes, "/healthz").contains("200 OK"));
    assert!(Live::get(&live.probes, "/readyz").contains("HTTP/1.1"));
    // The first nodes need a minute of simulated time.
    let metrics = loop {
        let metrics = Live::get(&live.observers, "/metrics");
        if metrics.contains("karpenter_nodes_created_total{nodepool=\"general\"}") {
            break metrics;
        }
        let mut line = String::new();
        assert!(live.out.read_line(&mut line).unwrap() > 0, "it ended: {metrics}");
    };
    assert!(
        metrics.contains("veneer_savings_plan_utilization_percent"),
        "{metrics}"
    );
    assert!(Live::get(&live.observers, "/debug/decisions").contains("\"decisions\""));

    let server = format!("http://{}", live.observers);
    let overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: mine}\nspec:\n  requirements: []\n  priceAdjustment: \"+1%\"\n";
    let apply = |text: &str| {
        run(
            env!("CARGO_BIN_EXE_veneer"),
            &["apply", "-f", "-", "--server", &server],
            None,
            Some(text),
        )
    };
    assert_eq!(apply(overlay).out, "nodeoverlay/mine created\n");
    assert_eq!(apply(overlay).out, "nodeoverlay/mine unchanged\n");
    let refused = apply(&overlay.replace("\"+1%\"", "\"1%\""));
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .err
            .contains("NodeOverlay mine: spec.priceAdjustment: \"1%\" is not valid"),
        "{}",
        refused.err
    );
    let refused = apply("kind: Deployment\nmetadata: {name: web}\n");
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("Deployment") && refused.err.contains("workloads"),
        "{}",
        refused.err
    );

    let ended = Command::new("kill")
        .args(["-INT", &live.child.id().to_string()])
        .status()
        .unwrap();
    assert!(ended.success());
    let mut rest = String::new();
    live.out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("$ saved") && rest.contains("pods waited"), "{rest}");
    assert!(live.child.wait().unwrap().success());
}

#[test]
fn apply_without_a_world_says_what_to_start() {
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["apply", "-f", "-", "--server", "http://127.0.0.1:1"],
        None,
        Some("kind: x"),
    );
    assert_eq!(said.code, 2);
    assert!(said.err.contains("veneer run --embedded"), "{}", said.err);
}

#[test]
fn a_scenario_is_compared_with_a_change_to_it() {
    let change = root().join("target/compare.yaml");
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec:\n  template:\n    spec:\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}\n      expireAfter: Never\n      requirements:\n        - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}\n";
    std::fs::write(&change, pool).unwrap();
    let change = change.to_str().unwrap();
    let said = veneer(&[
        "simulate",
        "--scenario",
        HUGE_PAGES,
        "--duration",
        "25m",
        "--step",
        "5m",
        "--compare",
        change,
        "-o",
        "json",
    ]);
    assert_eq!(said.code, 0, "{}", said.err);
    let json = said.json();
    let runs = json.as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["points"].as_array().unwrap().len(), 5);
    let paid = |at: usize| runs[at]["summary"]["cost"]["paid"].as_f64().unwrap();
    assert!(paid(1) < paid(0), "spot is cheaper: {} and {}", paid(0), paid(1));
    let table = veneer(&[
        "simulate",
        "--scenario",
        HUGE_PAGES,
        "--duration",
        "10m",
        "--step",
        "5m",
    ]);
    assert!(
        table.out.contains("PAID $/H") && table.out.contains("$ paid"),
        "{}",
        table.out
    );
}

#[test]
fn a_bad_scenario_is_refused_with_file_line_and_fix() {
    let path = root().join("target/bad-scenario.yaml");
    std::fs::write(
        &path,
        "name: bad\nworkloads:\n  - name: web\n    requests: {cpu: \"1\"}\n",
    )
    .unwrap();
    let said = veneer(&["simulate", "--scenario", path.to_str().unwrap()]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("bad-scenario.yaml") && said.err.contains("replicas"),
        "{}",
        said.err
    );
    std::fs::write(&path, "name: bad\nspeed: 3\n").unwrap();
    let said = veneer(&["simulate", "--scenario", path.to_str().unwrap()]);
    assert!(
        said.err.contains("bad-scenario.yaml:2") && said.err.contains("speed"),
        "{}",
        said.err
    );
}

#[test]
fn chaos_counts_histories_and_names_kinds() {
    let said = veneer(&["chaos", "--histories", "2", "--seed", "5", "--minutes", "2"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.starts_with("2 histories, ") && said.out.contains(" 0 broken"),
        "{}",
        said.out
    );
    let said = veneer(&["chaos", "--without", "crashes"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("crashes") && said.err.contains("malformed"),
        "{}",
        said.err
    );
}
