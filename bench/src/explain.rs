//! Explanations and what-if on a large cluster, as a user runs them: whole processes, from a snapshot on disk to JSON.
//!
//! Karpenter schedules the same pending pods once in the same run, without the nodes, which its benchmark has no way to
//! take in; what it is given is the easier half.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use veneer_agreement::{Rng, oracle};

use crate::schedule::{Mix, Theirs, Types, case, catalogue, run};

/// How often a command is run; the best time counts, as what disturbs only ever adds.
const RUNS: usize = 5;

/// Measures the commands and one run of Karpenter's scheduler.
pub(crate) fn side_by_side(pods: usize, nodes: usize, mix: Mix) -> Result<()> {
    let veneer = std::env::current_exe()?.with_file_name("veneer");
    ensure!(
        veneer.exists(),
        "{} is missing: cargo build --release -p veneer",
        veneer.display()
    );
    let folder = std::env::temp_dir().join(format!("veneer-explain-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let catalogue = catalogue(Types::Aws, &folder)?;
    let mut objects = case(pods, mix);
    objects.push(nowhere());
    let input = folder.join("case.json");
    std::fs::write(&input, format!("{}\n", json!({"objects": objects})))?;
    let snapshot = folder.join("cluster.yaml");
    write_snapshot(&snapshot, objects, nodes)?;
    let proposal = folder.join("proposal.yaml");
    std::fs::write(&proposal, smaller_pool().to_string())?;

    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{pods} pending pods ({mix:?}), {nodes} nodes with a pod each, 1,724 types × 8 offerings. Times in ms; ours: the best of \
         {RUNS} whole processes, reading included.\n"
    )?;
    let theirs: Theirs = run(
        Command::new(oracle()?)
            .arg("schedule-bench")
            .arg("-catalog")
            .arg(&catalogue),
        &input,
    )?;
    let solve = theirs.prepare_ms + theirs.solve_ms;
    writeln!(
        out,
        "| command | process | of that, deciding | one Karpenter Solve | ratio |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    let place = |file: &Path| file.display().to_string();
    let (file, types, proposed) = (place(&snapshot), place(&catalogue), place(&proposal));
    let common = ["-f", &file, "--catalog", &types, "-o", "json", "--timing"];
    for (name, own) in [
        ("explain pod (placed)", &["explain", "pod", "pod-0"][..]),
        ("explain pod (goes nowhere)", &["explain", "pod", "nowhere"]),
        (
            "explain pod --why-not",
            &["explain", "pod", "pod-0", "--why-not", "m5.large"],
        ),
        ("explain nodepool", &["explain", "nodepool", "default"]),
        ("simulate --propose", &["simulate", "--propose", &proposed]),
        ("simulate --repack", &["simulate", "--repack"]),
    ] {
        let (process, deciding) = best(&veneer, own, &common)?;
        writeln!(
            out,
            "| {name} | {process:.0} | {deciding:.0} | {solve:.0} | {:.0}× |",
            solve / process
        )?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The best time of a command, and what of it the scheduler took.
fn best(veneer: &Path, own: &[&str], common: &[&str]) -> Result<(f64, f64)> {
    let mut best = (f64::MAX, 0.0);
    for _ in 0..RUNS {
        let started = Instant::now();
        let output = Command::new(veneer)
            .args(own)
            .args(common)
            .stderr(Stdio::inherit())
            .output()?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        // A pod that goes nowhere is an answer too.
        ensure!(matches!(output.status.code(), Some(0 | 1)), "{own:?} failed");
        let said: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        let deciding = said
            .pointer("/timing/solveMs")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        if took < best.0 {
            best = (took, deciding);
        }
    }
    Ok(best)
}

/// A pod that no zone, taint or type suits at once: a change of several fields.
fn nowhere() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "nowhere", "namespace": "default", "uid": "ffffffff-0000-4000-8000-000000000000"},
        "spec": {
            "nodeSelector": {"topology.kubernetes.io/zone": "eu-west-1a"},
            "containers": [{"name": "main", "image": "example.com/app", "resources": {
                "requests": {"cpu": "2", "memory": "4Gi"},
            }}],
        },
    })
}

/// The pool of the case with fewer sizes.
fn smaller_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": [{"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["65"]}],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        }}},
    })
}

/// Writes the objects with nodes as `veneer snapshot` would.
fn write_snapshot(path: &Path, objects: Vec<Value>, nodes: usize) -> Result<()> {
    let rng = &mut Rng::new(7, nodes as u64);
    let (mut pods, mut rest): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| object.pointer("/kind").and_then(Value::as_str) == Some("Pod"));
    let mut machines = Vec::with_capacity(nodes);
    for number in 0..nodes {
        let name = format!("node-{number}");
        let zone = *rng.pick(&["us-west-2a", "us-west-2b", "us-west-2c"]);
        let room = json!({"cpu": "7910m", "memory": "30Gi", "pods": "58"});
        machines.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "m5.2xlarge", "karpenter.sh/capacity-type": "on-demand",
                "topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": "default",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            }},
            "spec": {"providerID": format!("kwok://{name}")},
            "status": {"capacity": room, "allocatable": room},
        }));
        let cpu = *rng.pick(&[6_000, 7_000, 7_500, 7_900]);
        pods.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("running-{number}"), "namespace": "default", "uid": format!("running-{number}")},
            "spec": {"nodeName": name, "containers": [{"name": "main", "resources": {
                "requests": {"cpu": format!("{cpu}m"), "memory": "8Gi"},
            }}]},
            "status": {"phase": "Running"},
        }));
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for list in [std::mem::take(&mut rest), machines, pods] {
        let lines: Vec<String> = list.iter().map(Value::to_string).collect();
        writeln!(
            file,
            "---\n{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{}\n]}}",
            lines.join(",\n")
        )?;
    }
    file.flush()?;
    Ok(())
}
