//! How long nodes stay after their pods have gone: standalone mode beside Karpenter, with kwok nodes.
//!
//! The pods of a workload run, then its Deployments are deleted, all at once or one after the other. Times are counted from the
//! first deletion to the moment at which a watch shows that the last node has gone.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use veneer_bench::measure::median;
use veneer_bench::objects;
use veneer_bench::sides::{Rates, Running, Side, veneer_beside_this};
use veneer_testbed::workload::{self, Workload};

/// How long pods may take to run, and nodes to go.
const DEADLINE: Duration = Duration::from_secs(300);
/// How often the number of running pods is asked for before the deletion.
const TICK: Duration = Duration::from_millis(500);

/// What is run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many pods; may be given several times
    #[arg(long, default_values_t = [20, 100])]
    pods: Vec<usize>,
    /// `consolidateAfter` of the NodePools
    #[arg(long, default_value = "5s")]
    consolidate_after: String,
    /// `consolidationPolicy` of the NodePools; may be given several times
    #[arg(long, default_values = ["WhenEmpty", "WhenEmptyOrUnderutilized"])]
    policy: Vec<String>,
    /// Seconds between the deletion of one Deployment and the next; may be given several times
    #[arg(long, default_values_t = [0, 3])]
    apart: Vec<u64>,
    /// How often each case runs
    #[arg(long, default_value_t = 1)]
    runs: usize,
}

/// Seconds from the first deletion.
#[derive(Clone, Copy)]
struct Gone {
    last_pod: f64,
    last_node: f64,
}

pub(crate) fn side_by_side(arguments: &Arguments) -> Result<()> {
    let veneer = veneer_beside_this()?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "pods | policy | s apart | last pod gone, s: Karpenter | ours | last node gone, s: Karpenter | ours | ours / theirs\n---|---|---|---|---|---|---|---"
    )?;
    let mut ratios = Vec::new();
    for pods in &arguments.pods {
        for policy in &arguments.policy {
            for apart in &arguments.apart {
                for _ in 0..arguments.runs {
                    let mut work = workload::everyday(*pods);
                    set_disruption(&mut work, policy, &arguments.consolidate_after);
                    let theirs = measure(Side::Karpenter, &veneer, &work, *apart)?;
                    let ours = measure(Side::Veneer, &veneer, &work, *apart)?;
                    let ratio = ours.last_node / theirs.last_node;
                    ratios.push(ratio);
                    writeln!(
                        out,
                        "{pods} | {policy} | {apart} | {:.1} | {:.1} | {:.1} | {:.1} | {ratio:.2}",
                        theirs.last_pod, ours.last_pod, theirs.last_node, ours.last_node
                    )?;
                    out.flush()?;
                }
            }
        }
    }
    let later = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    if let Some(median) = median(ratios.clone()) {
        writeln!(
            out,
            "\nours later in {later} of {} cases, median {median:.2}",
            ratios.len()
        )?;
    }
    Ok(())
}

fn set_disruption(work: &mut Workload, policy: &str, after: &str) {
    for object in &mut work.setting {
        if let Some(disruption) = object.pointer_mut("/spec/disruption") {
            *disruption = json!({"consolidationPolicy": policy, "consolidateAfter": after, "budgets": [{"nodes": "100%"}]});
        }
    }
}

fn measure(side: Side, veneer: &std::path::Path, work: &Workload, apart: u64) -> Result<Gone> {
    let running = Running::start(side, veneer, |options| Rates::Default.of(options))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = running.client().await?;
        for object in &work.setting {
            objects::create(&client, object).await?;
        }
        objects::node_pools_ready(&client).await?;
        for deployment in &work.deployments {
            objects::create(&client, deployment).await?;
        }
        all_run(&client, side, work.pods).await?;
        watch_them_go(&client, side, work, apart).await
    })
}

async fn all_run(client: &Client, side: Side, pods: usize) -> Result<()> {
    let params = ListParams::default().fields("status.phase=Running");
    let began = Instant::now();
    loop {
        let list = Api::<Pod>::all(client.clone()).list(&params).await?;
        if list.items.len() >= pods {
            return Ok(());
        }
        if began.elapsed() > DEADLINE {
            bail!("{side}: {} of {pods} pods run", list.items.len());
        }
        tokio::time::sleep(TICK).await;
    }
}

async fn watch_them_go(client: &Client, side: Side, work: &Workload, apart: u64) -> Result<Gone> {
    let names: Vec<String> = work.deployments.iter().filter_map(name).collect();
    let began = Instant::now();
    let writer = client.clone();
    let deletion = tokio::spawn(async move {
        let deployments = objects::api(&writer, "apps/v1", "Deployment");
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                tokio::time::sleep(Duration::from_secs(apart)).await;
            }
            deployments.delete(name, &DeleteParams::background()).await?;
        }
        anyhow::Ok(())
    });
    let config = watcher::Config::default;
    let pods = watcher::watcher(Api::<Pod>::all(client.clone()), config());
    let nodes = watcher::watcher(Api::<Node>::all(client.clone()), config());
    let pods = pods.map(|event| event.map(|event| change("pod", event)));
    let nodes = nodes.map(|event| event.map(|event| change("node", event)));
    let mut events = Box::pin(futures::stream::select(pods, nodes));
    let mut there: BTreeSet<(&str, String)> = BTreeSet::new();
    let (mut last_pod, mut last_node, mut has_begun) = (None, None, [false; 2]);
    loop {
        let Ok(event) = tokio::time::timeout(DEADLINE, events.next()).await else {
            bail!("{side}: {there:?} are still there");
        };
        let Some(event) = event.transpose()? else {
            bail!("a watch ended");
        };
        match event {
            Change::Listed("pod") => has_begun[0] = true,
            Change::Listed(_) => has_begun[1] = true,
            Change::Is(kind, name) => {
                there.insert((kind, name));
            }
            Change::Gone(kind, name) => {
                there.remove(&(kind, name));
                let at = began.elapsed().as_secs_f64();
                let last = if kind == "pod" {
                    &mut last_pod
                } else {
                    &mut last_node
                };
                *last = Some(at);
            }
            Change::Nothing => {}
        }
        if has_begun == [true; 2]
            && there.is_empty()
            && deletion.is_finished()
            && let (Some(last_pod), Some(last_node)) = (last_pod, last_node)
        {
            deletion.await??;
            return Ok(Gone { last_pod, last_node });
        }
    }
}

enum Change {
    Is(&'static str, String),
    Gone(&'static str, String),
    Listed(&'static str),
    Nothing,
}

fn change<T: ResourceExt>(kind: &'static str, event: Event<T>) -> Change {
    match event {
        Event::Apply(object) | Event::InitApply(object) => Change::Is(kind, object.name_any()),
        Event::Delete(object) => Change::Gone(kind, object.name_any()),
        Event::InitDone => Change::Listed(kind),
        Event::Init => Change::Nothing,
    }
}

fn name(object: &Value) -> Option<String> {
    Some(object.pointer("/metadata/name")?.as_str()?.to_owned())
}
