//! One side of one case: a fresh cluster, the steps at their times, and what a watch shows meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use veneer_api::NodeClaim;

use super::case::{Action, Case};
use super::report::Outcome;
use super::seen::{Changed, Seen, SeenPod};
use crate::measure::{cpu_seconds_of, memory_of};
use crate::objects;
use crate::prices::prices;
use crate::sides::{Rates, Running, Side};

/// How long nothing may change before pods that do not run count as pods that never will.
const STUCK: Duration = Duration::from_secs(30);
/// How long nothing may change after all pods run: where nodes are never removed, and where they may be. Both
/// provisioners look for nodes to remove every ten seconds or so and wait for fifteen before they act.
const QUIET: Duration = Duration::from_secs(10);
const QUIET_IF_CONSOLIDATING: Duration = Duration::from_secs(32);
/// How long after the last step a side may go on.
const DEADLINE: Duration = Duration::from_secs(180);
const TICK: Duration = Duration::from_millis(250);

/// What keeps kwok from turning a node ready again; see the testbed's `kwok.yaml`.
const NOT_READY: &str = "testbed.veneer.io/not-ready";

/// How a side is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Request rates of kube-scheduler and kube-controller-manager.
    pub rates: Rates,
    /// The program `veneer`.
    pub veneer: &'a Path,
    /// Where the logs of a side are kept on which pods are left.
    pub logs: Option<&'a Path>,
    /// Whether to wait until nodes have stopped coming and going after all pods run.
    pub settle: bool,
}

/// Runs one side of a case.
pub fn run(case: &Case, side: Side, setup: Setup<'_>) -> Result<Outcome> {
    let rates = setup.rates;
    let running = Running::start(side, setup.veneer, |options| rates.of(options).audited())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(drive(case, side, setup, &running))?;
    if let Some(logs) = setup.logs.filter(|_| !outcome.pending.is_empty()) {
        keep_log(logs, case, &running, &outcome)?;
    }
    Ok(outcome)
}

fn keep_log(logs: &Path, case: &Case, running: &Running, outcome: &Outcome) -> Result<()> {
    let folder = logs.join(format!("{}-{}-{}", case.seed, outcome.side, outcome.rates));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(folder.join("provisioner.log"), running.log())?;
    let scheduler = running.cluster.log_of(veneer_testbed::Part::Scheduler);
    std::fs::write(folder.join("kube-scheduler.log"), scheduler)?;
    std::fs::write(
        folder.join("outcome.json"),
        serde_json::to_string_pretty(outcome)?,
    )?;
    std::fs::write(folder.join("case.txt"), format!("{case:#?}\n"))?;
    Ok(())
}

async fn drive(case: &Case, side: Side, setup: Setup<'_>, running: &Running) -> Result<Outcome> {
    let client = running.client().await?;
    for object in &case.setting {
        objects::create(&client, object).await?;
    }
    objects::node_pools_ready(&client).await?;
    let cpu = cpu_seconds_of(running.process)?;
    let before = requests(running);
    let seen = watch(case, &client, setup.settle).await?;
    let seconds = |at: Option<Instant>| at.map(|at| at.duration_since(seen.began).as_secs_f64());
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    let (mut pending, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for expected in &case.expected {
        let (runs, wanted) = seen.count(expected);
        counts.insert(expected.app.clone(), runs);
        if runs < wanted {
            pending.insert(expected.app.clone(), wanted - runs);
        }
    }
    let movements = running.cluster.pod_movements();
    let mut asked = requests(running);
    asked.retain(|id, _| !before.contains_key(id));
    let writes = asked
        .values()
        .filter(|verb| !matches!(verb.as_str(), "get" | "list" | "watch"));
    let waits: Vec<f64> = seen.pods.values().filter_map(SeenPod::wait).collect();
    Ok(Outcome {
        seed: case.seed,
        rates: setup.rates,
        side,
        features: case.features.iter().map(ToString::to_string).collect(),
        pods: case.pods(),
        running: counts,
        pending,
        daemon_pods_pending: seen.daemon_pods_pending(),
        pending_reasons: pending_reasons(&client).await?,
        all_running_seconds: seconds(seen.reached),
        last_running_seconds: seconds(seen.last_running),
        mean_wait_seconds: waits.iter().sum::<f64>() / waits.len().max(1) as f64,
        longest_wait_seconds: waits.iter().copied().fold(0.0, f64::max),
        settled: seen.settled,
        cpus_over_limit: cpus_over_limit(case, &seen),
        nodes: nodes.items.len(),
        list_dollars_per_hour: prices(&client).await?.list,
        evictions: movements.iter().filter(|event| is_eviction(event)).count(),
        preemptions: movements.iter().filter(|event| is_preemption(event)).count(),
        processor_seconds: cpu_seconds_of(running.process)? - cpu,
        peak_memory_mib: memory_of(running.process)?,
        requests: asked.len(),
        writes: writes.count(),
    })
}

/// How many CPUs the NodePools had at the worst time beyond their limits.
fn cpus_over_limit(case: &Case, seen: &Seen) -> f64 {
    let over = case.setting.iter().filter_map(|object| {
        let limit: f64 = object.pointer("/spec/limits/cpu")?.as_str()?.parse().ok()?;
        let most = seen.most_cpus.get(object.pointer("/metadata/name")?.as_str()?)?;
        Some((most - limit).max(0.0))
    });
    over.fold(0.0, f64::max)
}

/// The provisioner's requests by their id, with their verbs. A watch is one request.
fn requests(running: &Running) -> BTreeMap<String, String> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let events = running.cluster.provisioner_requests();
    let pairs = events
        .iter()
        .map(|event| (text(event, "auditID"), text(event, "verb")));
    pairs.collect()
}

fn was_done(event: &Value) -> bool {
    let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
    code.is_some_and(|code| (200..300).contains(&code))
}

fn is_eviction(event: &Value) -> bool {
    event.pointer("/objectRef/subresource").and_then(Value::as_str) == Some("eviction") && was_done(event)
}

fn is_preemption(event: &Value) -> bool {
    let agent = event["userAgent"].as_str().unwrap_or_default();
    event["verb"] == "delete" && agent.starts_with("kube-scheduler/") && was_done(event)
}

/// What kube-scheduler says about the pods that wait, each text once with how many pods it is about.
async fn pending_reasons(client: &Client) -> Result<BTreeMap<String, usize>> {
    let pods = Api::<Pod>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    let mut reasons = BTreeMap::new();
    for pod in pods.items {
        let status = pod.status.unwrap_or_default();
        if status.phase.as_deref() != Some("Pending") || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let conditions = status.conditions.unwrap_or_default();
        let scheduled = conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled");
        let message = scheduled.and_then(|condition| condition.message);
        *reasons
            .entry(message.unwrap_or_else(|| "no word from kube-scheduler".to_owned()))
            .or_default() += 1;
    }
    Ok(reasons)
}

/// Carries the steps out and watches until everything has settled, or until all pods run.
async fn watch(case: &Case, client: &Client, settle: bool) -> Result<Seen> {
    let config = watcher::Config::default;
    let pods = watcher::watcher(Api::<Pod>::all(client.clone()), config());
    let nodes = watcher::watcher(Api::<Node>::all(client.clone()), config());
    let claims = watcher::watcher(Api::<NodeClaim>::all(client.clone()), config());
    let pods = pods.map(|event| {
        event.map(|event| match event {
            Event::Delete(pod) => Some(Changed::PodGone(pod.uid().unwrap_or_default())),
            event => applied(event).map(|pod| Changed::Pod(Box::new(pod))),
        })
    });
    let nodes = nodes.map(|event| {
        event.map(|event| match event {
            Event::Delete(node) => Some(Changed::NodeGone(node.name_any())),
            event => applied(event).map(|node| Changed::Node(Box::new(node))),
        })
    });
    let claims = claims.map(|event| {
        event.map(|event| match event {
            Event::Delete(claim) => Some(Changed::ClaimGone(claim.name_any())),
            event => applied(event).map(|claim| Changed::Claim(Box::new(claim))),
        })
    });
    let objects = futures::stream::select(nodes, claims);
    let mut events = Box::pin(futures::stream::select(pods, objects));
    let began = Instant::now();
    let (steps, writer) = (case.steps.clone(), client.clone());
    let mut stepping = Some(tokio::spawn(async move {
        for step in steps {
            tokio::time::sleep_until((began + step.at).into()).await;
            act(&writer, &step.action).await?;
        }
        anyhow::Ok(())
    }));
    let mut seen = Seen::new(began);
    let quiet = if case.consolidates {
        QUIET_IF_CONSOLIDATING
    } else {
        QUIET
    };
    let mut last_change = began;
    let mut last_step = began;
    loop {
        if let Some(handle) = stepping.take_if(|handle| handle.is_finished()) {
            handle.await??;
            last_step = Instant::now();
            last_change = last_step;
        }
        match tokio::time::timeout(TICK, events.next()).await {
            Ok(Some(event)) => {
                if event?.is_some_and(|event| seen.take(event)) {
                    last_change = Instant::now();
                }
            }
            Ok(None) => bail!("a watch ended"),
            Err(_) => {}
        }
        if stepping.is_some() {
            continue;
        }
        let all_run = seen.all_run(case);
        if all_run && seen.reached.is_none() {
            seen.reached = seen.last_running.or(Some(began));
        }
        if all_run && !settle {
            return Ok(seen);
        }
        let enough = if all_run { quiet } else { quiet.max(STUCK) };
        seen.settled = last_change.elapsed() > enough;
        if seen.settled || last_step.elapsed() > DEADLINE {
            return Ok(seen);
        }
    }
}

fn applied<T>(event: Event<T>) -> Option<T> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => Some(object),
        _ => None,
    }
}

async fn act(client: &Client, action: &Action) -> Result<()> {
    match action {
        Action::Create(object) => objects::create(client, object).await,
        Action::Patch { kind, name, patch } => {
            let api = objects::api(client, "apps/v1", kind);
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("cannot patch {kind} {name}"))?;
            Ok(())
        }
        Action::NodeNotReady { app } => {
            let params = ListParams::default().labels(&format!("app={app}"));
            let mut pods = Api::<Pod>::default_namespaced(client.clone())
                .list(&params)
                .await?
                .items;
            pods.sort_by_key(ResourceExt::name_any);
            let node = pods
                .iter()
                .find_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
            match node {
                Some(node) => not_ready(client, node).await,
                None => Ok(()),
            }
        }
        Action::NodesReady => {
            let nodes = Api::<Node>::all(client.clone());
            let patch = json!({"metadata": {"annotations": {NOT_READY: null}}});
            for node in nodes.list(&ListParams::default()).await?.items {
                if node.annotations().contains_key(NOT_READY) {
                    nodes
                        .patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                        .await?;
                }
            }
            Ok(())
        }
    }
}

async fn not_ready(client: &Client, node: &str) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let params = PatchParams::default();
    let mark = json!({"metadata": {"annotations": {NOT_READY: "true"}}});
    nodes.patch(node, &params, &Patch::Merge(&mark)).await?;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}});
    nodes
        .patch_status(node, &params, &Patch::Strategic(&status))
        .await?;
    Ok(())
}
