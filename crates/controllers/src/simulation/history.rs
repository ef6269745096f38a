//! One history: a cluster, what happens to it, and what becomes of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_world::rng::Rng;

use super::api_server::merge;
use super::replica;
use super::{ApiServer, Bug, Cloud, Faults, Inner, Seat, Sim, actors::Workload, bugs};

/// For how long things go wrong.
pub(super) const RUDE: Duration = Duration::from_secs(5 * 60);
/// How long everything may take to be as it should, with everybody behaving.
const SETTLE: Duration = Duration::from_secs(25 * 60);
/// How long nothing may be written for a cluster to count as calm: longer than the pause between two attempts, and than a watch
/// may be silent before it is begun again.
const CALM: Duration = Duration::from_secs(150);

/// After so long with everybody behaving every watch has begun again.
const RECOVERED: Duration = Duration::from_secs(40);

/// What became of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) steps: u64,
    pub(super) violation: Option<String>,
    pub(super) log: Vec<String>,
}

fn catalogue() -> Arc<Catalogue> {
    static KNOWN: OnceLock<Arc<Catalogue>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let mut catalogue = aws::region("us-east-1").unwrap().catalogue;
        let wanted = ["m5.large", "m5.xlarge", "c5.xlarge", "c5.2xlarge"];
        catalogue.types.retain(|one| wanted.contains(&&*one.name));
        Arc::new(catalogue)
    });
    Arc::clone(known)
}

pub(super) fn pool(name: &str, capacity: &[&str]) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "limits": {"cpu": "100"},
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity}]}},
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "20s",
            "budgets": [{"nodes": "100%"}]}}})
}

/// A pool that fits no type.
pub(super) fn unreadable_pool(name: &str) -> Value {
    let mut pool = pool(name, &["on-demand"]);
    merge(
        &mut pool,
        &json!({"metadata": {"labels": {"unreadable": "true"}}, "spec": {"weight": {"of": "gold"}}}),
    );
    pool
}

impl Sim {
    fn new(seed: u64, keeps_log: bool) -> Self {
        let mut rng = Rng::of(seed, &["cluster"]);
        let catalogue = catalogue();
        let workloads = ["web", "jobs"].map(|app| {
            let workload = Workload {
                replicas: 1 + usize::try_from(rng.below(6)).unwrap(),
                milli_cpu: 400 + 300 * rng.below(4),
            };
            (app.to_owned(), workload)
        });
        let inner = Inner {
            rng: Rng::of(seed, &["servers"]),
            api: ApiServer::default(),
            cloud: Cloud::default(),
            faults: Faults::of(seed, RUDE),
            types: Arc::new(catalogue.types.iter().map(|one| one.name.to_string()).collect()),
            catalogue,
            page: 2 + usize::try_from(rng.below(9)).unwrap(),
            steps: 0,
            log: Vec::new(),
            violation: None,
            sent: BTreeMap::new(),
            written: Duration::ZERO,
            last_write: String::new(),
            tampered: None,
            seats: vec![Seat::default(), Seat::default()],
            backup: None,
            workloads: workloads.into_iter().collect(),
            pods: 0,
        };
        let sim = Self {
            began: Instant::now(),
            inner: Mutex::new(inner),
            changed: Notify::new(),
            violated: Notify::new(),
            keeps_log,
        };
        let spot = rng.chance(0.3);
        sim.furnish(
            if spot {
                &["spot", "on-demand"]
            } else {
                &["on-demand"]
            },
            rng.chance(0.4),
        );
        sim
    }

    fn furnish(&self, capacity: &[&str], has_budget: bool) {
        let now = self.now();
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-1"}], "instanceProfile": "nodes",
                "subnetSelectorTerms": [{"id": "subnet-a"}, {"id": "subnet-b"}],
                "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        self.with(|inner| {
            inner.api.create("namespaces", "", namespace, now).unwrap();
            inner.api.create("ec2nodeclasses", "", class, now).unwrap();
            inner
                .api
                .create("nodepools", "", pool("default", capacity), now)
                .unwrap();
            if has_budget {
                // Of one pod it would never allow an eviction.
                if let Some(web) = inner.workloads.get_mut("web") {
                    web.replicas = web.replicas.max(2);
                }
                inner
                    .api
                    .create("poddisruptionbudgets", "default", budget, now)
                    .unwrap();
            }
        });
    }

    /// What happens, to its end.
    async fn script(self: Arc<Self>, seed: u64, kills: Vec<Arc<Notify>>) {
        let mut rng = Rng::of(seed, &["script"]);
        let mut next = Duration::from_secs(10 + rng.below(20));
        let mut unseen = self.with(|inner| inner.faults.unseen.clone());
        while self.elapsed() < RUDE {
            self.pass(Duration::from_secs(1)).await;
            if self.elapsed() >= next {
                next = self.elapsed() + Duration::from_secs(1 + rng.below(25));
                self.event(&mut rng, &kills);
                if rng.chance(0.15) {
                    self.with(|inner| inner.backup = Some(inner.api.backup()));
                }
            }
            if let Some(scene) = unseen.take_if(|scene| scene.begins <= self.elapsed()) {
                self.move_unseen(scene).await;
            }
        }
        self.with(|inner| {
            inner.faults.on = false;
            inner.cloud.short.clear();
        });
        self.log(|| "everybody behaves".to_owned());
        self.pass(RECOVERED).await;
        if rng.chance(0.4) {
            self.throw_back().await;
            self.pass(RECOVERED).await;
        }
        self.put_right();
        self.pass(Duration::from_secs(10)).await;
        self.restart(&mut rng);
        self.settle("with protected instances").await;
        let is_new = self.with(|inner| {
            let kept = inner
                .cloud
                .instances
                .values_mut()
                .filter(|one| one.is_protected && one.is_up());
            kept.map(|one| one.is_protected = false).count() > 0
        });
        if is_new {
            self.log(|| "nothing is protected any more".to_owned());
            self.settle("without protected instances").await;
        }
        if let Some(wrong) = self.with(|inner| inner.disbelief()) {
            self.violate(wrong);
        }
    }

    /// Some seconds of everybody else.
    pub(super) async fn pass(&self, time: Duration) {
        for _ in 0..time.as_secs() {
            sleep(Duration::from_secs(1)).await;
            self.tick();
        }
    }

    /// Waits until everything is as it should be and nobody writes anything.
    async fn settle(&self, when: &str) {
        let began = self.elapsed();
        loop {
            self.pass(Duration::from_secs(1)).await;
            let at = self.elapsed();
            let left = match self.with(|inner| inner.unsettled()) {
                Err(why) => why,
                Ok(()) => {
                    let (written, what) = self.with(|inner| (inner.written, inner.last_write.clone()));
                    // What is protected is asked to end again and again.
                    let kept = self.with(|inner| {
                        inner
                            .cloud
                            .instances
                            .values()
                            .any(|one| one.is_protected && one.is_up())
                    });
                    if at >= began + CALM && (kept || at >= written + CALM) {
                        return;
                    }
                    format!("{what} is still sent")
                }
            };
            if at > began + SETTLE {
                self.violate(format!("not settled {when}: {left}"));
                return;
            }
        }
    }
}

thread_local! {
    /// What tasks of this thread's history died of.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Hears of panics, also of those in tasks that nobody waits for.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// Plays a history.
pub(super) fn play(seed: u64, bug: Option<Bug>, keeps_log: bool) -> Outcome {
    bugs::put_in(bug);
    listen();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let outcome = runtime.block_on(async {
        let sim = Arc::new(Sim::new(seed, keeps_log));
        let mut rng = Rng::of(seed, &["replicas"]);
        let kills = vec![Arc::new(Notify::new()), Arc::new(Notify::new())];
        let skews = [0, 0, 0, -5, 5, -90, 90];
        let mut tasks = tokio::task::JoinSet::new();
        for (number, killed) in kills.iter().enumerate() {
            let skew = skews
                .get(usize::try_from(rng.below(7)).unwrap())
                .copied()
                .unwrap_or(0);
            let skew = SignedDuration::from_secs(skew);
            tasks.spawn(replica::run(
                Arc::clone(&sim),
                seed,
                number,
                skew,
                Arc::clone(killed),
            ));
        }
        let script = Arc::clone(&sim).script(seed, kills);
        tokio::select! {
            biased;
            () = sim.violated.notified() => {}
            () = script => {}
            Some(ended) = tasks.join_next() => {
                let why = ended.err().map(|error| error.to_string());
                sim.violate(format!("a replica ended: {}", why.unwrap_or_default()));
            }
        }
        if let Some(panic) = PANICS.with_borrow(|panics| panics.first().cloned()) {
            sim.violate(format!("a task panicked: {panic}"));
        }
        sim.with(|inner| Outcome {
            steps: inner.steps,
            violation: inner.violation.clone(),
            log: std::mem::take(&mut inner.log),
        })
    });
    bugs::put_in(None);
    outcome
}
