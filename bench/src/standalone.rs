//! Standalone mode beside Karpenter: the same manifests on real clusters, one after the other, with kwok nodes.
//!
//! Both provisioners run when the pods come. Times are those at which a watch shows an object to this program, so they
//! mean the same for both; deciding time is what each says about itself in the same metric.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use veneer_api::NodeClaim;
use veneer_bench::measure::{cpu_seconds_of, median, memory_of};
use veneer_bench::objects;
use veneer_bench::prices::{Prices, prices};
use veneer_bench::sides::{Rates, Running, Side, veneer_beside_this};
use veneer_testbed::workload::{self, Workload};

use crate::trace::Trace;

/// How long one side may take, and how much longer for each pod.
const DEADLINE: Duration = Duration::from_secs(360);
const DEADLINE_PER_POD: Duration = Duration::from_millis(50);
/// How long after the last claim and the last pod a run counts as over.
const QUIET: Duration = Duration::from_secs(3);

/// What is run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many pods; may be given several times
    #[arg(long, default_values_t = [2_000])]
    pods: Vec<usize>,
    /// Which pods
    #[arg(long, value_enum, default_value = "mixed")]
    workload: Kind,
    /// Request rates of kube-scheduler and kube-controller-manager
    #[arg(long, value_enum, default_value = "raised")]
    rates: Rates,
    /// How often each side runs
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Which side runs
    #[arg(long, value_enum, default_value = "both")]
    side: Sides,
    /// Adds a line of JSON for each run of a side to this file
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// Keeps for each run of a side, in this folder, when each pod and NodeClaim was seen (CSV), and our log
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
}

/// Which pods.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Fifteen Deployments of many kinds, with a DaemonSet and a NodeOverlay
    Mixed,
    /// Five Deployments as many clusters have them
    Everyday,
}

/// Which side runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Sides {
    Both,
    Karpenter,
    Veneer,
}

/// One run of one side.
#[derive(Clone, Debug)]
struct Run {
    running: usize,
    pods_in: f64,
    claims: usize,
    evictions: usize,
    to_last_claim: f64,
    to_last_running: f64,
    first_to_last_running: f64,
    deciding: f64,
    prices: Prices,
    idle_memory: f64,
    memory: f64,
    cpu: f64,
}

pub(crate) fn side_by_side(arguments: &Arguments) -> Result<()> {
    let veneer = veneer_beside_this()?;
    for count in &arguments.pods {
        let work = match arguments.workload {
            Kind::Mixed => workload::mixed(*count),
            Kind::Everyday => workload::everyday(*count),
        };
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for number in 1..=arguments.runs {
            for (side, skipped, runs) in [
                (Side::Karpenter, Sides::Veneer, &mut theirs),
                (Side::Veneer, Sides::Karpenter, &mut ours),
            ] {
                if arguments.side == skipped {
                    continue;
                }
                let trace = arguments
                    .trace
                    .as_ref()
                    .map(|folder| folder.join(format!("{side}-{}-{number}", work.pods)));
                let run = measure(side, &veneer, arguments.rates, &work, trace.as_deref())
                    .with_context(|| side.to_string())?;
                if let Some(path) = &arguments.append {
                    append(path, &row(arguments, &work, number, side, &run))?;
                }
                runs.push(run);
            }
            let title = format!("{} pods, run {number}", work.pods);
            let last = |runs: &[Run]| runs.last().cloned().into_iter().collect::<Vec<_>>();
            print_table(&title, &work, &last(&theirs), &last(&ours))?;
        }
        if arguments.runs > 1 {
            let title = format!("{} pods, median of {} runs", work.pods, arguments.runs);
            print_table(&title, &work, &theirs, &ours)?;
        }
    }
    Ok(())
}

/// A number of a run.
type Number = fn(&Run) -> f64;

const NUMBERS: [(&str, Number); 13] = [
    ("NodeClaims", |run| run.claims as f64),
    ("pods that ran and went", |run| run.evictions as f64),
    ("first to last pod created, s", |run| run.pods_in),
    ("last pod created to last claim created, s", |run| {
        run.to_last_claim
    }),
    ("last pod created to last pod running, s", |run| {
        run.to_last_running
    }),
    ("first pod created to last pod running, s", |run| {
        run.first_to_last_running
    }),
    ("deciding, s", |run| run.deciding),
    ("list price of the first decision, $/h", |run| run.prices.first),
    ("list price of all, $/h", |run| run.prices.list),
    ("price of all after overlays, $/h", |run| run.prices.adjusted),
    ("processor time, s", |run| run.cpu),
    ("memory before the pods, MiB", |run| run.idle_memory),
    ("peak memory, MiB", |run| run.memory),
];

/// The medians of some runs of each side, and the median of their ratios.
fn print_table(title: &str, work: &Workload, theirs: &[Run], ours: &[Run]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n{title} | Karpenter | ours | ours / theirs\n---|---|---|---"
    )?;
    let finished = |runs: &[Run]| {
        let least = runs.iter().map(|run| run.running).min();
        least.map_or_else(|| "-".to_owned(), |least| format!("{least} of {}", work.pods))
    };
    writeln!(out, "pods that run | {} | {} |", finished(theirs), finished(ours))?;
    for (what, of) in NUMBERS {
        let number = |runs: &[Run]| median(runs.iter().map(of).collect());
        let ratios = theirs
            .iter()
            .zip(ours)
            .map(|(theirs, ours)| of(ours) / of(theirs));
        let cell = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
        writeln!(
            out,
            "{what} | {} | {} | {}",
            cell(number(theirs)),
            cell(number(ours)),
            cell(median(ratios.collect()))
        )?;
    }
    Ok(())
}

fn row(arguments: &Arguments, work: &Workload, number: usize, side: Side, run: &Run) -> Value {
    json!({
        "workload": format!("{:?}", arguments.workload).to_lowercase(),
        "rates": arguments.rates, "pods": work.pods, "run": number, "side": side,
        "podsRunning": run.running, "nodeClaims": run.claims, "evictions": run.evictions,
        "firstToLastCreatedSeconds": run.pods_in, "lastCreatedToLastClaimSeconds": run.to_last_claim,
        "lastCreatedToLastRunningSeconds": run.to_last_running,
        "firstCreatedToLastRunningSeconds": run.first_to_last_running,
        "decidingSeconds": run.deciding, "firstDecisionDollarsPerHour": run.prices.first,
        "listDollarsPerHour": run.prices.list, "adjustedDollarsPerHour": run.prices.adjusted,
        "processorSeconds": run.cpu, "idleMemoryMiB": run.idle_memory, "peakMemoryMiB": run.memory,
    })
}

/// Adds a line to a file.
fn append(path: &Path, row: &Value) -> Result<()> {
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    writeln!(file, "{row}").with_context(|| format!("cannot write {}", path.display()))
}

fn measure(side: Side, veneer: &Path, rates: Rates, work: &Workload, trace: Option<&Path>) -> Result<Run> {
    let running = Running::start(side, veneer, |options| rates.of(options))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = running.client().await?;
        for object in &work.setting {
            objects::create(&client, object).await?;
        }
        objects::node_pools_ready(&client).await?;
        let process = running.process;
        let (cpu, idle_memory) = (cpu_seconds_of(process)?, memory_of(process)?);
        let deciding = running.deciding()?;
        let seen = watch(&client, side, work).await?;
        if let Some(trace) = trace {
            seen.trace.write(&trace.with_extension("csv"))?;
            let log = running.cluster.folder().join("veneer.log");
            if log.exists() {
                std::fs::copy(log, trace.with_extension("log"))?;
            }
        }
        let prices = prices(&client).await?;
        Ok(Run {
            running: seen.running,
            pods_in: seen.between(seen.first_pod, seen.last_pod),
            claims: seen.claims,
            evictions: seen.evictions,
            to_last_claim: seen.between(seen.last_pod, seen.last_claim),
            to_last_running: seen.between(seen.last_pod, seen.last_running),
            first_to_last_running: seen.between(seen.first_pod, seen.last_running),
            deciding: running.deciding()? - deciding,
            prices,
            idle_memory,
            memory: memory_of(process)?,
            cpu: cpu_seconds_of(process)? - cpu,
        })
    })
}

/// When things were seen.
#[derive(Debug, Default)]
struct Seen {
    first_pod: Option<Instant>,
    last_pod: Option<Instant>,
    last_claim: Option<Instant>,
    last_running: Option<Instant>,
    claims: usize,
    /// How many pods run at the end.
    running: usize,
    /// How many pods ran and were gone before the end; nothing scales down, so each was evicted or preempted.
    evictions: usize,
    trace: Trace,
}

impl Seen {
    fn between(&self, from: Option<Instant>, to: Option<Instant>) -> f64 {
        from.zip(to).map_or(f64::NAN, |(from, to)| {
            to.saturating_duration_since(from).as_secs_f64()
        })
    }
}

/// Creates the Deployments and watches until all of their pods run, or until the deadline.
async fn watch(client: &Client, side: Side, work: &Workload) -> Result<Seen> {
    let pods = watcher::watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let claims = watcher::watcher(Api::<NodeClaim>::all(client.clone()), watcher::Config::default());
    let pods = pods.map(|event| {
        event.map(|event| match event {
            Event::Delete(pod) => Some(Object::Gone(pod.uid().unwrap_or_default())),
            event => applied(event).map(|pod| Object::Pod(Box::new(pod))),
        })
    });
    let claims =
        claims.map(|event| event.map(|event| applied(event).map(|claim| Object::Claim(Box::new(claim)))));
    let nodes = watcher::watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let nodes = nodes.map(|event| event.map(|event| applied(event).map(|node| Object::Node(Box::new(node)))));
    let objects = futures::stream::select(pods, claims);
    let mut events = Box::pin(futures::stream::select(objects, nodes));
    let (deployments, writer) = (work.deployments.clone(), client.clone());
    let creation = tokio::spawn(async move {
        for deployment in &deployments {
            objects::create(&writer, deployment).await?;
        }
        anyhow::Ok(())
    });
    let deadline = DEADLINE + DEADLINE_PER_POD * u32::try_from(work.pods)?;
    let began = Instant::now();
    let mut reported = began;
    let mut seen = Seen::default();
    let (mut known, mut running): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    seen.trace.began = Some(began);
    loop {
        // Pods of the DaemonSet that found no room are tried again and again, so silence is not waited for.
        let last = seen.last_running.max(seen.last_claim);
        if running.len() == work.pods && last.is_some_and(|at| at.elapsed() > QUIET) {
            break;
        }
        let is_late = began.elapsed() > deadline;
        if is_late || reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            writeln!(
                std::io::stderr().lock(),
                "{side}: {} of {} pods run, {} NodeClaims after {:.0} s",
                running.len(),
                work.pods,
                seen.claims,
                began.elapsed().as_secs_f64()
            )?;
        }
        if is_late {
            break;
        }
        let event = match tokio::time::timeout(QUIET, events.next()).await {
            Ok(Some(event)) => event?,
            Ok(None) => bail!("a watch ended"),
            Err(_) => continue,
        };
        let now = Some(Instant::now());
        match event {
            Some(Object::Pod(pod)) => {
                let mut owners = pod.owner_references().iter();
                let uid = pod.uid().unwrap_or_default();
                if owners.any(|owner| owner.kind == "DaemonSet") {
                    continue;
                }
                seen.trace.pod(&pod);
                if known.insert(uid.clone()) {
                    seen.first_pod = seen.first_pod.or(now);
                    seen.last_pod = now;
                }
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Running") && running.insert(uid) {
                    seen.last_running = now;
                }
            }
            Some(Object::Gone(uid)) if running.remove(&uid) => seen.evictions += 1,
            Some(Object::Claim(claim)) if known.insert(claim.uid().unwrap_or_default()) => {
                seen.trace.note("claim", &claim.name_any(), "created", "");
                seen.last_claim = now;
                seen.claims += 1;
            }
            Some(Object::Node(node)) => seen.trace.node(&node),
            _ => {}
        }
    }
    creation.await??;
    seen.running = running.len();
    Ok(seen)
}

enum Object {
    Pod(Box<Pod>),
    /// A pod that is no more, by its uid.
    Gone(String),
    Claim(Box<NodeClaim>),
    Node(Box<Node>),
}

fn applied<T>(event: Event<T>) -> Option<T> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => Some(object),
        _ => None,
    }
}
