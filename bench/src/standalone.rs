//! Standalone mode beside Karpenter: the same manifests on real clusters, one after the other, with kwok nodes.
//!
//! Both provisioners run when the pods come. Times are those at which a watch shows an object to this program, so they
//! mean the same for both; deciding time is what each says about itself in the same metric.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::Value;
use veneer_api::{NodeClaim, NodeOverlay, NodePool};
use veneer_engine::plan::Snapshot;
use veneer_engine::provision::Market;
use veneer_testbed::workload::{self, Workload};
use veneer_testbed::{Cluster, Options, Part};

use crate::measure::{cpu_seconds_of, memory_of};

/// How long one side may take.
const DEADLINE: Duration = Duration::from_secs(300);
/// How long after the last claim and the last pod a run counts as over.
const QUIET: Duration = Duration::from_secs(3);

/// Claims that are made within so many seconds of the first belong to the same decision.
const FIRST: i64 = 2;

/// One run.
#[derive(Debug)]
struct Run {
    pods_in: f64,
    claims: usize,
    to_last_claim: f64,
    to_last_running: f64,
    deciding: f64,
    prices: Prices,
    idle_memory: f64,
    memory: f64,
    cpu: f64,
}

pub(crate) fn side_by_side(counts: &[usize]) -> Result<()> {
    for count in counts {
        let work = workload::mixed(*count);
        let theirs = karpenter(&work).context("Karpenter")?;
        let ours = veneer(&work).context("Veneer")?;
        print_table(work.pods, &theirs, &ours)?;
    }
    Ok(())
}

/// A number of a run.
type Number = fn(&Run) -> f64;

fn print_table(pods: usize, theirs: &Run, ours: &Run) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n{pods} pods | Karpenter | ours | ours / theirs\n---|---|---|---"
    )?;
    let rows: [(&str, Number); 10] = [
        ("first to last pod created, s", |run| run.pods_in),
        ("last pod created to last claim created, s", |run| {
            run.to_last_claim
        }),
        ("last pod created to last pod running, s", |run| {
            run.to_last_running
        }),
        ("deciding, s", |run| run.deciding),
        ("list price of the first decision, $/h", |run| run.prices.first),
        ("list price of all, $/h", |run| run.prices.list),
        ("price of all after overlays, $/h", |run| run.prices.adjusted),
        ("processor time, s", |run| run.cpu),
        ("memory before the pods, MiB", |run| run.idle_memory),
        ("peak memory, MiB", |run| run.memory),
    ];
    writeln!(out, "NodeClaims | {} | {} |", theirs.claims, ours.claims)?;
    for (what, of) in rows {
        let (theirs, ours) = (of(theirs), of(ours));
        writeln!(out, "{what} | {theirs:.3} | {ours:.3} | {:.3}", ours / theirs)?;
    }
    Ok(())
}

fn karpenter(work: &Workload) -> Result<Run> {
    let cluster = Cluster::start(Options::karpenter())?;
    let processes = cluster.process_ids();
    let process = processes
        .get(&Part::Karpenter)
        .context("Karpenter does not run")?;
    measure(&cluster, *process, cluster.karpenter_metrics_port(), work)
}

/// A process that ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn veneer(work: &Workload) -> Result<Run> {
    let cluster = Cluster::start(Options::nodes())?;
    cluster.install_crds(&veneer_testbed::karpenter_crds()?)?;
    let binary = std::env::current_exe()?.with_file_name("veneer");
    let (metrics, probes) = (free_port()?, free_port()?);
    let log = File::create(cluster.folder().join("veneer.log"))?;
    let child = Command::new(&binary)
        .args(["run", "--mode", "standalone", "--provider", "kwok", "--catalog"])
        .arg(veneer_testbed::karpenter_instance_types()?)
        .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
        .arg(format!("--health-probe-bind-address=127.0.0.1:{probes}"))
        .arg("--leader-election-enabled=false")
        .envs(cluster.env())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let process = Process(child);
    let began = Instant::now();
    while !get(probes, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
        if began.elapsed() > DEADLINE {
            bail!("{} did not become ready", binary.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    measure(&cluster, process.0.id(), metrics, work)
}

fn measure(cluster: &Cluster, process: u32, metrics: u16, work: &Workload) -> Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = Kubeconfig::read_from(cluster.kubeconfig_path())?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        for object in &work.setting {
            create(&client, object).await?;
        }
        let pools: Api<NodePool> = Api::all(client.clone());
        let began = Instant::now();
        loop {
            let list = pools.list(&ListParams::default()).await?;
            let is_ready = |pool: &NodePool| {
                let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
                veneer_api::find_condition(conditions, "Ready")
                    .is_some_and(|one| one.status.as_str() == "True")
            };
            if list.items.iter().all(is_ready) {
                break;
            }
            if began.elapsed() > DEADLINE {
                bail!("the NodePools did not become ready");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (cpu, idle_memory) = (cpu_seconds_of(process)?, memory_of(process)?);
        let deciding = deciding(metrics)?;
        let seen = watch(&client, work).await?;
        let prices = prices(&client).await?;
        Ok(Run {
            pods_in: seen.between(seen.first_pod, seen.last_pod),
            claims: seen.claims,
            to_last_claim: seen.between(seen.last_pod, seen.last_claim),
            to_last_running: seen.between(seen.last_pod, seen.last_running),
            deciding: self::deciding(metrics)? - deciding,
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
}

impl Seen {
    fn between(&self, from: Option<Instant>, to: Option<Instant>) -> f64 {
        from.zip(to).map_or(f64::NAN, |(from, to)| {
            to.saturating_duration_since(from).as_secs_f64()
        })
    }
}

/// Creates the Deployments and watches until all of their pods run.
async fn watch(client: &Client, work: &Workload) -> Result<Seen> {
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
    let mut events = Box::pin(futures::stream::select(pods, claims));
    let (deployments, writer) = (work.deployments.clone(), client.clone());
    let creation = tokio::spawn(async move {
        for deployment in &deployments {
            create(&writer, deployment).await?;
        }
        anyhow::Ok(())
    });
    let began = Instant::now();
    let mut told = began;
    let mut seen = Seen::default();
    let (mut known, mut running): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    loop {
        // Pods of the DaemonSet that found no room are tried again and again, so silence is not waited for.
        let last = seen.last_running.max(seen.last_claim);
        if running.len() == work.pods && last.is_some_and(|at| at.elapsed() > QUIET) {
            break;
        }
        if began.elapsed() > DEADLINE {
            bail!("{} of {} pods run after {DEADLINE:?}", running.len(), work.pods);
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let mut err = std::io::stderr().lock();
            writeln!(
                err,
                "{} of {} pods run, {} NodeClaims",
                running.len(),
                work.pods,
                seen.claims
            )?;
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
                if known.insert(uid.clone()) {
                    seen.first_pod = seen.first_pod.or(now);
                    seen.last_pod = now;
                }
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Running") && running.insert(uid) {
                    seen.last_running = now;
                }
            }
            Some(Object::Gone(uid)) => {
                running.remove(&uid);
            }
            Some(Object::Claim(claim)) if known.insert(claim.uid().unwrap_or_default()) => {
                seen.last_claim = now;
                seen.claims += 1;
            }
            _ => {}
        }
    }
    creation.await??;
    Ok(seen)
}

enum Object {
    Pod(Box<Pod>),
    /// A pod that is no more, by its uid.
    Gone(String),
    Claim(Box<NodeClaim>),
}

fn applied<T>(event: Event<T>) -> Option<T> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => Some(object),
        _ => None,
    }
}

async fn create(client: &Client, object: &Value) -> Result<()> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let kind = text("kind");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", "v1"));
    let plural = match kind {
        "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    let api: Api<DynamicObject> = match kind {
        "Deployment" | "DaemonSet" => Api::default_namespaced_with(client.clone(), &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let object = serde_json::from_value(object.clone())?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// What nodes cost in an hour.
#[derive(Clone, Copy, Debug, Default)]
struct Prices {
    /// By the list, those of the first decision: what comes later is for pods that kube-scheduler, which fills nodes in
    /// its own order while they come, found no room for.
    first: f64,
    list: f64,
    /// After overlays.
    adjusted: f64,
}

/// What the nodes that there are cost.
async fn prices(client: &Client) -> Result<Prices> {
    fn all<T>(list: kube::core::ObjectList<T>) -> Vec<Arc<T>>
    where
        T: Clone,
    {
        list.items.into_iter().map(Arc::new).collect()
    }
    let path = veneer_testbed::karpenter_instance_types()?;
    let text = std::fs::read_to_string(&path)?;
    let catalogue = veneer_engine::catalogue::kwok::parse(&text, &path.display().to_string())?;
    let mut market = Market::new(Arc::new(catalogue));
    let params = ListParams::default();
    let snapshot = Snapshot {
        node_pools: all(Api::<NodePool>::all(client.clone()).list(&params).await?),
        overlays: all(Api::<NodeOverlay>::all(client.clone()).list(&params).await?),
        ..Snapshot::default()
    };
    market.update(&snapshot);
    let mut prices = Prices::default();
    let claims = Api::<NodeClaim>::all(client.clone()).list(&params).await?.items;
    let created = |claim: &NodeClaim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let began = claims.iter().filter_map(created).min();
    for claim in claims {
        let label = |key: &str| claim.labels().get(key).map(String::as_str).unwrap_or_default();
        let options = market.options(&claim, usize::MAX);
        let bought = options.iter().find(|option| {
            option.instance_type == label("node.kubernetes.io/instance-type")
                && option.capacity_type == label("karpenter.sh/capacity-type")
                && option.zone == label("topology.kubernetes.io/zone")
        });
        let bought = bought.with_context(|| format!("{} is nothing that it may be", claim.name_any()))?;
        prices.list += bought.list_price;
        prices.adjusted += bought.price;
        let age = created(&claim)
            .zip(began)
            .map(|(at, began)| at.duration_since(began));
        if age.is_some_and(|age| age.as_secs() <= FIRST) {
            prices.first += bought.list_price;
        }
    }
    Ok(prices)
}

/// How long the provisioner says that it has thought about pods, in seconds.
fn deciding(metrics: u16) -> Result<f64> {
    let text = get(metrics, "/metrics")?;
    let sums = text
        .lines()
        .filter(|line| line.starts_with("karpenter_scheduler_scheduling_duration_seconds_sum"));
    // Karpenter also tries out what it could consolidate.
    let sums =
        sums.filter(|line| !line.contains("controller=") || line.contains("controller=\"provisioner\""));
    Ok(sums
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The whole answer of a server on this machine.
fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
