//! Scheduling: Karpenter's scheduler beside ours on the pods of Karpenter's own benchmark.
//!
//! Both sides are measured from parsed objects to claims whose candidates are ordered by price. Karpenter's side is set
//! up as its benchmark sets itself up (five workers, an API server that holds nothing).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_agreement::schedule::Ours as Engine;
use veneer_agreement::{Rng, karpenter_module, oracle};
use veneer_engine::catalogue::kwok;
use veneer_engine::packing::{Objects, Options, Problem, solve};

use veneer_bench::measure::{cpu_ms, median_ms, peak_rss_mib};

const CATALOGUE: &str = "kwok/examples/aws_instance_types.json";

/// Which pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mix {
    /// Without constraints
    Generic,
    /// A fifth each: generic, zone spread, hostname spread, zone affinity, hostname anti-affinity
    Diverse,
}

/// Which instance types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Types {
    /// The 400 of Karpenter's benchmark
    Fake,
    /// The 1,724 of its KWOK provider's AWS catalogue
    Aws,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Theirs {
    pub(crate) prepare_ms: f64,
    pub(crate) solve_ms: f64,
    order_ms: f64,
    cpu_ms: f64,
    claims: usize,
    unschedulable: usize,
    hourly: f64,
    peak_rss_mib: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ours {
    ms: f64,
    cpu_ms: f64,
    claims: usize,
    unschedulable: usize,
    hourly: f64,
    peak_rss_mib: f64,
}

/// Runs both sides for every combination and prints the ratios.
pub(crate) fn side_by_side(pods: &[usize], mixes: &[Mix], types: &[Types]) -> Result<()> {
    let oracle = oracle()?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Times in ms from parsed objects to claims with ordered candidates (Karpenter, one run: preparing + Solve + ordering;\n\
         ours: the median of several runs) and processor time of the same; whole processes in s; memory in MiB.\n"
    )?;
    writeln!(
        out,
        "| types | pods | mix | Karpenter | ours | ratio | processor | ours | ratio | pods/s | ours | nodes | ours | unplaced | ours | $/h | ours | process | ours | memory | ours | ratio |"
    )?;
    writeln!(
        out,
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    let folder = std::env::temp_dir().join(format!("veneer-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for &kind in types {
        let catalogue = catalogue(kind, &folder)?;
        for &mix in mixes {
            for &count in pods {
                let row = one(&oracle, &catalogue, &folder, count, mix)?;
                writeln!(out, "| {kind:?} | {count} | {mix:?} {row}")?;
                out.flush()?;
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn one(oracle: &Path, catalogue: &Path, folder: &Path, count: usize, mix: Mix) -> Result<String> {
    let file = folder.join("case.json");
    let lines = folder.join("case.jsonl");
    let objects = case(count, mix);
    std::fs::write(&file, format!("{}\n", json!({"objects": objects})))?;
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    std::fs::write(&lines, texts.join("\n"))?;
    drop((objects, texts));
    let started = Instant::now();
    let theirs: Theirs = run(
        Command::new(oracle)
            .arg("schedule-bench")
            .arg("-catalog")
            .arg(catalogue),
        &file,
    )?;
    let their_process = started.elapsed().as_secs_f64();
    let exe = std::env::current_exe()?;
    // Once to measure time, which takes many runs, and once to measure the process.
    let ours: Ours = run(
        Command::new(&exe).arg("schedule-ours").arg(&lines).arg(catalogue),
        &file,
    )?;
    let started = Instant::now();
    let single: Ours = run(
        Command::new(&exe)
            .arg("schedule-ours")
            .arg("--once")
            .arg(&lines)
            .arg(catalogue),
        &file,
    )?;
    let our_process = started.elapsed().as_secs_f64();
    // Which zone a spread or an affinity starts in follows Go's map order, so Karpenter's own number changes a little from
    // run to run.
    let apart = theirs.unschedulable.abs_diff(ours.unschedulable) as f64;
    ensure!(
        apart <= 0.02 * theirs.unschedulable as f64,
        "Karpenter leaves {} pods without a place and we leave {}",
        theirs.unschedulable,
        ours.unschedulable
    );
    let total = theirs.prepare_ms + theirs.solve_ms + theirs.order_ms;
    Ok(format!(
        "| {:.0} + {:.0} + {:.0} | {:.2} | {:.0}× | {:.0} | {:.2} | {:.0}× | {:.0} | {:.0} | {} | {} | {} | {} | {:.2} | {:.2} | {:.1} | {:.2} | {:.0} | {:.0} | 1/{:.1} |",
        theirs.prepare_ms,
        theirs.solve_ms,
        theirs.order_ms,
        ours.ms,
        total / ours.ms,
        theirs.cpu_ms,
        ours.cpu_ms,
        theirs.cpu_ms / ours.cpu_ms,
        count as f64 / total * 1e3,
        count as f64 / ours.ms * 1e3,
        theirs.claims,
        ours.claims,
        theirs.unschedulable,
        ours.unschedulable,
        theirs.hourly,
        ours.hourly,
        their_process,
        our_process,
        theirs.peak_rss_mib,
        single.peak_rss_mib,
        theirs.peak_rss_mib / single.peak_rss_mib,
    ))
}

pub(crate) fn run<T: serde::de::DeserializeOwned>(command: &mut Command, input: &Path) -> Result<T> {
    let output = command
        .stdin(std::fs::File::open(input)?)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("{command:?} says {text}"))
}

/// Our half, in a process of its own so that its memory can be measured. The case has one object a line.
pub(crate) fn ours(case: &Path, catalogue: &Path, once: bool) -> Result<()> {
    let text = std::fs::read_to_string(catalogue)?;
    let catalogue = Arc::new(kwok::parse(&text, &catalogue.display().to_string())?);
    drop(text);
    let mut objects = Objects::default();
    let mut records = Duration::ZERO;
    for line in BufReader::new(std::fs::File::open(case)?).lines() {
        let line = line?;
        if line.contains(r#""kind":"NodePool""#) {
            objects.node_pools.push(serde_json::from_str(&line)?);
        } else {
            let pod = serde_json::from_str(&line)?;
            let started = Instant::now();
            objects.pods.push(pod);
            records += started.elapsed();
        }
    }
    // Making records of parsed pods is part of the work.
    let records_ms = records.as_secs_f64() * 1e3;
    let work = || solve(&Problem::from_objects(&objects, &catalogue), &Options::default());
    let started = Instant::now();
    let results = work();
    let first_ms = started.elapsed().as_secs_f64() * 1e3;
    // Before the prices are looked up, which is not part of the work.
    let peak_rss_mib = peak_rss_mib()?;
    let (ms, cpu_ms) = if once {
        (first_ms, first_ms)
    } else {
        repeated(work)?
    };
    let answer = Engine::describe(&objects, &catalogue, &results)?;
    let ours = Ours {
        ms: ms + records_ms,
        cpu_ms: cpu_ms + records_ms,
        claims: results.new_node_claims.len(),
        unschedulable: results.unschedulable.len(),
        hourly: answer.cost(),
        peak_rss_mib,
    };
    writeln!(std::io::stdout().lock(), "{}", serde_json::to_string(&ours)?)?;
    Ok(())
}

/// Scheduling `count` pods with Karpenter's AWS catalogue, for callgrind to count.
pub(crate) fn workload(count: usize, mix: Mix) -> Result<impl FnMut()> {
    let file = karpenter_module()?.join(CATALOGUE);
    let catalogue = Arc::new(kwok::parse(
        &std::fs::read_to_string(&file)?,
        &file.display().to_string(),
    )?);
    let mut objects = Objects::default();
    for object in case(count, mix) {
        if object["kind"] == "NodePool" {
            objects.node_pools.push(serde_json::from_value(object)?);
        } else {
            objects.pods.push(serde_json::from_value(object)?);
        }
    }
    Ok(move || {
        std::hint::black_box(solve(
            &Problem::from_objects(&objects, &catalogue),
            &Options::default(),
        ));
    })
}

/// The median time and the mean processor time of a run.
fn repeated<T>(mut work: impl FnMut() -> T) -> Result<(f64, f64)> {
    let mut runs = 0.0;
    let before = cpu_ms()?;
    let median = median_ms(|| {
        runs += 1.0;
        work()
    });
    Ok((median, (cpu_ms()? - before) / runs))
}

/// The file with the instance types.
pub(crate) fn catalogue(types: Types, folder: &Path) -> Result<PathBuf> {
    if types == Types::Aws {
        return Ok(karpenter_module()?.join(CATALOGUE));
    }
    let entries: Vec<Value> = (1..=400)
        .map(|size| {
            let memory = size * 2;
            let price = 0.1 * f64::from(size) + 0.1 * f64::from(memory) * f64::from(1 << 30) / 1e9;
            let offering = |capacity_type: &str, zone: usize| {
                json!({"Price": price, "Available": true, "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("test-zone-{zone}")]},
                ]})
            };
            json!({
                "name": format!("fake-it-{}", size - 1), "architecture": "amd64",
                "operatingSystems": ["linux", "windows", "darwin"],
                "resources": {"cpu": size.to_string(), "memory": format!("{memory}Gi"), "pods": (size * 10).to_string()},
                "offerings": [
                    offering("spot", 1), offering("spot", 2),
                    offering("on-demand", 1), offering("on-demand", 2), offering("on-demand", 3),
                ],
            })
        })
        .collect();
    let file = folder.join("fake.json");
    std::fs::write(&file, serde_json::to_string(&entries)?)?;
    Ok(file)
}

/// One pool and the pods of Karpenter's benchmark.
pub(crate) fn case(count: usize, mix: Mix) -> Vec<Value> {
    let rng = &mut Rng::new(42, count as u64);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "limits": {"cpu": "10000000", "memory": "10000000Gi"},
            "template": {"spec": {
                "requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
        },
    });
    let mut objects = vec![pool];
    for number in 0..count {
        let fifth = if mix == Mix::Diverse {
            number * 5 / count
        } else {
            0
        };
        objects.push(pod(number, fifth, rng));
    }
    objects
}

fn pod(number: usize, fifth: usize, rng: &mut Rng) -> Value {
    let letter = |rng: &mut Rng| *rng.pick(&["a", "b", "c", "d", "e", "f", "g"]);
    let cpu = *rng.pick(&[100, 250, 500, 1000, 1500]);
    let memory = *rng.pick(&[100, 256, 512, 1024, 2048, 4096]);
    let mut labels = json!({"my-label": letter(rng)});
    let mut spec = json!({"containers": [{"name": "main", "image": "example.com/app", "resources": {
        "requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")},
    }}]});
    let spread = |key: &str, rng: &mut Rng| {
        json!([{
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"my-label": letter(rng)}},
        }])
    };
    let term = |key: &str, labels: &Value| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": {"matchLabels": labels}},
        ]})
    };
    match fifth {
        1 => spec["topologySpreadConstraints"] = spread("topology.kubernetes.io/zone", rng),
        2 => spec["topologySpreadConstraints"] = spread("kubernetes.io/hostname", rng),
        3 => {
            labels = json!({"my-affinity": letter(rng)});
            spec["affinity"] = json!({"podAffinity": term("topology.kubernetes.io/zone", &labels)});
        }
        4 => {
            labels = json!({"app": "nginx"});
            spec["affinity"] = json!({"podAntiAffinity": term("kubernetes.io/hostname", &labels)});
        }
        _ => {}
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number}"), "namespace": "default", "labels": labels,
            "uid": format!("{:08x}-0000-4000-8000-{number:012x}", rng.next() >> 32),
        },
        "spec": spec,
    })
}
