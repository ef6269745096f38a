//! Overlays: Karpenter's NodeOverlay controller and `ApplyAll` beside our evaluator.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_agreement::{Rng, karpenter_module, oracle};
use veneer_api::{NodeOverlay, NodePool};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::{Evaluator, Overlay, Pool, PriceChange, Problem, TieBreak, Verdict};

use veneer_bench::measure::{median_ms, peak_rss_mib};

const POOLS: usize = 10;
const CATALOGUE: &str = "kwok/examples/aws_instance_types.json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Theirs {
    reconcile_ms: f64,
    apply_ms: f64,
    peak_rss_mib: f64,
    overlays: Vec<TheirVerdict>,
}

#[derive(Deserialize)]
struct TheirVerdict {
    ready: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ours {
    from_scratch_ms: f64,
    one_changed_ms: f64,
    peak_rss_mib: f64,
    ready: usize,
}

/// Runs both sides for each number of overlays and prints the ratios.
pub(crate) fn side_by_side(counts: &[usize]) -> Result<()> {
    let oracle = oracle()?;
    let catalogue = karpenter_module()?.join(CATALOGUE);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{POOLS} pools × Karpenter's AWS catalogue; times in ms, memory in MiB\n"
    )?;
    writeln!(
        out,
        "| overlays | Karpenter reconcile | apply | ours from scratch | ratio | ours, one changed | ratio | Karpenter memory | ours | ratio |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for &count in counts {
        let case = case(count);
        let file = std::env::temp_dir().join(format!("veneer-bench-{}-{count}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_string(&case)?)?;
        let theirs: Theirs = run(
            Command::new(&oracle)
                .arg("overlay")
                .arg("-catalog")
                .arg(&catalogue),
            &case,
        )?;
        let ours: Ours = run(
            Command::new(std::env::current_exe()?)
                .arg("overlay-ours")
                .arg(&file),
            &case,
        )?;
        std::fs::remove_file(&file)?;
        let ready = theirs
            .overlays
            .iter()
            .filter(|overlay| overlay.ready == "True")
            .count();
        ensure!(
            ready == ours.ready,
            "Karpenter accepts {ready} overlays and we accept {}",
            ours.ready
        );
        let total = theirs.reconcile_ms + theirs.apply_ms;
        writeln!(
            out,
            "| {count} | {:.0} | {:.0} | {:.2} | {:.0}× | {:.3} | {:.0}× | {:.0} | {:.0} | 1/{:.1} |",
            theirs.reconcile_ms,
            theirs.apply_ms,
            ours.from_scratch_ms,
            total / ours.from_scratch_ms,
            ours.one_changed_ms,
            total / ours.one_changed_ms,
            theirs.peak_rss_mib,
            ours.peak_rss_mib,
            theirs.peak_rss_mib / ours.peak_rss_mib,
        )?;
        out.flush()?;
    }
    Ok(())
}

fn run<T: serde::de::DeserializeOwned>(command: &mut Command, case: &Value) -> Result<T> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    // A side that reads the case from a file may end before it is written here.
    let _ = writeln!(input, "{case}");
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Our half: the same objects through our evaluator.
pub(crate) fn ours(file: &Path) -> Result<()> {
    let case: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let input = Input::new(case)?;
    let scratch = || Evaluator::new(Arc::clone(&input.catalogue), TieBreak::default());
    let from_scratch_ms = median_ms(|| scratch().evaluate(&input.pools, &input.overlays()));
    let mut evaluator = scratch();
    let mut overlays = input.overlays();
    let evaluation = evaluator.evaluate(&input.pools, &overlays);
    let mut changes = 0;
    let one_changed_ms = median_ms(|| {
        changes += 1;
        change_one(&mut overlays, changes);
        evaluator.evaluate(&input.pools, &overlays)
    });
    let ready = evaluation
        .verdicts()
        .iter()
        .filter(|verdict| **verdict == Verdict::Ready)
        .count();
    let ours = Ours {
        from_scratch_ms,
        one_changed_ms,
        peak_rss_mib: peak_rss_mib()?,
        ready,
    };
    writeln!(std::io::stdout().lock(), "{}", serde_json::to_string(&ours)?)?;
    Ok(())
}

/// Evaluating `count` overlays from scratch, and ten times with one changed, for callgrind to count.
pub(crate) fn workload(count: usize) -> Result<impl FnMut()> {
    let input = Input::new(case(count))?;
    Ok(move || {
        let mut evaluator = Evaluator::new(Arc::clone(&input.catalogue), TieBreak::default());
        let mut overlays = input.overlays();
        std::hint::black_box(evaluator.evaluate(&input.pools, &overlays));
        for change in 0..10 {
            change_one(&mut overlays, change);
            std::hint::black_box(evaluator.evaluate(&input.pools, &overlays));
        }
    })
}

/// What our evaluator works on.
struct Input {
    catalogue: Arc<Catalogue>,
    pools: Vec<Pool>,
    manifests: Vec<NodeOverlay>,
}

impl Input {
    fn new(mut case: Value) -> Result<Self> {
        let path = karpenter_module()?.join(CATALOGUE);
        let text = std::fs::read_to_string(&path)?;
        let pools: Vec<NodePool> = serde_json::from_value(case["nodePools"].take())?;
        Ok(Self {
            catalogue: Arc::new(kwok::parse(&text, &path.display().to_string())?),
            pools: pools.iter().map(Pool::from).collect(),
            manifests: serde_json::from_value(case["overlays"].take())?,
        })
    }

    fn overlays(&self) -> Vec<Read> {
        let read = |manifest| Overlay::read(manifest, &self.catalogue.rules);
        self.manifests.iter().map(read).collect()
    }
}

/// An overlay as read, or its faults.
type Read = Result<Overlay, (String, Vec<Problem>)>;

fn change_one(overlays: &mut [Read], change: usize) {
    let at = change * 7 % overlays.len();
    if let Some(Ok(overlay)) = overlays.get_mut(at) {
        overlay.price = PriceChange::adjustment(&format!("+{}.5", change % 90)).ok();
    }
}

/// Overlays as a large installation has them: most on families, sizes and types, some on whole architectures, weights
/// that differ but for a few.
fn case(overlays: usize) -> Value {
    let rng = &mut Rng::new(7, overlays as u64);
    let families = [
        "m5", "m6i", "m6g", "m7g", "c5", "c6i", "c6g", "r5", "r6g", "t3", "i3", "g4dn",
    ];
    let sizes = [
        "large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "24xlarge",
    ];
    let pools: Vec<Value> = (0..POOLS)
        .map(|at| {
            json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": format!("pool-{at}")},
                "spec": {"template": {
                    "metadata": {"labels": {"example.com/team": format!("team-{}", at % 3)}},
                    "spec": {
                        "requirements": [],
                        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    },
                }},
            })
        })
        .collect();
    let requirement = |key: &str, operator: &str, value: String| json!({"key": key, "operator": operator, "values": [value]});
    let overlays: Vec<Value> = (0..overlays)
        .map(|at| {
            let family = rng.pick(&families).to_string();
            let mut requirements = match rng.below(10) {
                0..=3 => vec![requirement("karpenter.kwok.sh/instance-family", "In", family)],
                4..=5 => vec![requirement("node.kubernetes.io/instance-type", "In", format!("{family}.{}", rng.pick(&sizes)))],
                6 => vec![requirement("kubernetes.io/arch", "In", (*rng.pick(&["arm64", "x86_64"])).to_owned())],
                7 => vec![requirement("karpenter.kwok.sh/instance-cpu", "Gt", rng.below(96).to_string())],
                8 => vec![requirement("example.com/team", "In", format!("team-{}", rng.below(4)))],
                _ => vec![requirement("karpenter.sh/nodepool", "In", format!("pool-{}", rng.below(POOLS)))],
            };
            if rng.chance(60) {
                let capacity_type = (*rng.pick(&["spot", "on-demand"])).to_owned();
                requirements.push(requirement("karpenter.sh/capacity-type", "In", capacity_type));
            }
            let mut spec = json!({"requirements": requirements, "weight": 1 + at});
            if rng.chance(85) {
                spec["priceAdjustment"] = json!(format!("-{}%", 1 + rng.below(90)));
            } else {
                spec["capacity"] = json!({format!("example.com/device-{}", rng.below(5)): "1"});
            }
            json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": format!("overlay-{at}")}, "spec": spec})
        })
        .collect();
    json!({"nodePools": pools, "overlays": overlays})
}
