//! Overprovisioners in a real cluster: API server, scheduler, controller manager and kwok, with the controllers of
//! standalone mode.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use support::{Bed, catalogue, eventually};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use veneer_api::{NodeClaim, Overprovisioner, find_condition};
use veneer_controllers::standalone::{self, Clock, Settings};
use veneer_engine::plan::{is_deleting, is_spare, is_spare_taint, is_used_spare, label, name};
use veneer_testbed::Options;

/// A cluster with nodes to come, one pool per name, and running controllers.
struct Warm {
    bed: Bed,
    clock: Clock,
    task: JoinHandle<()>,
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn run(client: Client, clock: &Clock, start_delay: Duration) -> JoinHandle<()> {
    let mut settings = Settings::new(catalogue());
    settings.clock = clock.clone();
    settings.rules.window.idle = SignedDuration::from_millis(300);
    settings.rules.policy.min_drain = SignedDuration::ZERO;
    settings.rules.disruption.validation = SignedDuration::ZERO;
    // The API server has a clock of its own, which is not set ahead.
    settings.rules.policy.launch_timeout = SignedDuration::from_hours(1_000);
    settings.rules.policy.registration_timeout = SignedDuration::from_hours(1_000);
    settings.kwok.start_delay = start_delay;
    tokio::spawn(standalone::run(client, settings, standalone::Shown::default()))
}

impl Warm {
    async fn start(pools: &[&str]) -> Self {
        let bed = Bed::start(Options::nodes()).await;
        bed.install_our_crds();
        let clock = Clock::default();
        let task = run(bed.admin.clone(), &clock, Duration::ZERO);
        let warm = Self { bed, clock, task };
        warm.create(
            json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"}}),
        )
        .await;
        for pool in pools {
            warm.create(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool}, "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s",
                    "budgets": [{"nodes": "100%"}]},
            }}))
            .await;
        }
        warm
    }

    async fn create(&self, object: Value) {
        let api_version = object["apiVersion"].as_str().unwrap().to_owned();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = object["kind"].as_str().unwrap().to_owned();
        let plural = match kind.as_str() {
            "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let kinds = GroupVersionKind::gvk(group, version, &kind);
        let resource = ApiResource::from_gvk_with_plural(&kinds, &plural);
        let client = self.bed.admin.clone();
        let api: Api<DynamicObject> = if kind == "Pod" {
            Api::default_namespaced_with(client, &resource)
        } else {
            Api::all_with(client, &resource)
        };
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn overprovisioner(&self, named: &str, spec: Value) {
        self.create(
            json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner",
            "metadata": {"name": named}, "spec": spec}),
        )
        .await;
    }

    fn overprovisioners(&self) -> Api<Overprovisioner> {
        Api::all(self.bed.admin.clone())
    }

    async fn resize(&self, named: &str, sizing: Value) {
        let patch = Patch::Merge(json!({"spec": {"sizing": sizing}}));
        let api = self.overprovisioners();
        api.patch(named, &PatchParams::default(), &patch).await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.bed.admin.clone())
    }

    /// A pod that fills a node of a pool.
    async fn pod(&self, named: &str, pool: &str) {
        self.create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": named}, "spec": {
            "nodeSelector": {"karpenter.sh/nodepool": pool}, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/main:1",
                "resources": {"requests": {"cpu": "1500m"}}}]}}),
        )
        .await;
    }

    async fn remove_pod(&self, named: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(named, &now).await.unwrap();
    }

    async fn claims(&self) -> Vec<NodeClaim> {
        let api: Api<NodeClaim> = Api::all(self.bed.admin.clone());
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn node_of(&self, pod: &str) -> Option<String> {
        let pod = self.pods().get_opt(pod).await.unwrap()?;
        pod.spec?.node_name
    }

    /// Waits until a status says this many are desired, ready and in use.
    async fn numbers(&self, named: &str, expected: (i32, i32, i32)) {
        let api = self.overprovisioners();
        eventually(
            &format!("{named}: (desired, ready, in use) = {expected:?}"),
            async || {
                let status = api.get(named).await.unwrap().status.unwrap_or_default();
                ((status.desired, status.ready, status.in_use) == expected).then_some(())
            },
        )
        .await;
    }
}

/// A small deterministic generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// What one pool looks like: nodes that are not spares, empty spares, used spares.
fn census(claims: &[NodeClaim], pool: &str) -> Option<(usize, usize, usize)> {
    let of_pool = || {
        let claims = claims.iter();
        claims.filter(|claim| label(&claim.metadata, "karpenter.sh/nodepool") == Some(pool))
    };
    let is_on_its_way = of_pool().any(|claim| {
        let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let ready = find_condition(conditions, "Ready");
        is_deleting(&claim.metadata) || ready.is_none_or(|one| one.status.as_str() != "True")
    });
    let empty = of_pool().filter(|claim| is_spare(&claim.metadata)).count();
    let used = of_pool().filter(|claim| is_used_spare(&claim.metadata)).count();
    (!is_on_its_way).then_some((of_pool().count() - empty, empty, used))
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_reached_and_kept_while_pods_come_and_go() {
    let steps = number("VENEER_WARM_STEPS", 50);
    let mut random = Random(u64::try_from(number("VENEER_SEED", 0x5eed)).unwrap());
    let warm = Warm::start(&["counted", "shared"]).await;
    let (mut count, mut percent) = (2, 50);
    warm.overprovisioner(
        "counted",
        json!({"targetNodePools": ["counted"], "strategy": "KeepMinimum", "sizing": {"count": count}}),
    )
    .await;
    warm.overprovisioner(
        "shared",
        json!({"targetNodePools": ["shared"], "strategy": "KeepEmpty", "sizing": {"percentage": percent}}),
    )
    .await;
    let mut pods: Vec<String> = Vec::new();
    let mut settled = Vec::new();
    let mut evicted = 0;
    let mut step = 0;
    while settled.len() < steps {
        step += 1;
        let does = match random.below(10) {
            0 => {
                count = random.below(4);
                warm.resize("counted", json!({"count": count})).await;
                format!("count {count}")
            }
            1 => {
                percent = 10 * random.below(11);
                warm.resize("shared", json!({"percentage": percent})).await;
                format!("percentage {percent}")
            }
            2..=4 if !pods.is_empty() => {
                let pod = pods.swap_remove(random.below(pods.len()));
                warm.remove_pod(&pod).await;
                format!("remove {pod}")
            }
            _ if pods.len() < 8 => {
                let pool = ["counted", "shared"][random.below(2)];
                let pod = format!("{pool}-{step}");
                warm.pod(&pod, pool).await;
                pods.push(pod.clone());
                format!("add {pod}")
            }
            _ => continue,
        };
        let began = Instant::now();
        let mut last = String::new();
        let deadline = Duration::from_secs(60);
        loop {
            let claims = warm.claims().await;
            let found = (census(&claims, "counted"), census(&claims, "shared"));
            let mut waiting = 0;
            for pod in &pods {
                if warm.pods().get_opt(pod).await.unwrap().is_none() {
                    // Its node was empty when that was decided, and went: whoever keeps pods would make it anew.
                    warm.pod(pod, pod.split('-').next().unwrap()).await;
                    evicted += 1;
                }
                waiting += usize::from(warm.node_of(pod).await.is_none());
            }
            if let (Some(counted), Some(shared)) = found {
                let wanted = (
                    count.saturating_sub(counted.2),
                    (percent * shared.0).div_ceil(100),
                );
                last = format!("{counted:?} {shared:?}, wanted {wanted:?}, {waiting} pods wait");
                if (counted.1, shared.1, waiting) == (wanted.0, wanted.1, 0) {
                    break;
                }
            }
            assert!(
                began.elapsed() < deadline,
                "step {step} ({does}) does not settle: {last}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        settled.push(began.elapsed());
    }
    // The statuses say the same, once what the last step set off (an emptied node that goes) has ended.
    for pool in ["counted", "shared"] {
        eventually(&format!("{pool}: the status says what is there"), async || {
            let (_, empty, used) = census(&warm.claims().await, pool)?;
            let status = warm.overprovisioners().get(pool).await.unwrap().status?;
            let said = [status.desired, status.ready, status.in_use];
            let there = [empty, empty, used].map(|count| i32::try_from(count).unwrap());
            (said == there).then_some(())
        })
        .await;
    }
    settled.sort_unstable();
    println!(
        "{} random steps settled, {evicted} pods came to a node that was going: median {:?}, slowest {:?}",
        settled.len(),
        settled[settled.len() / 2],
        settled[settled.len() - 1]
    );
}

#[derive(Default)]
struct Seen {
    unschedulable: Option<Instant>,
    opened: BTreeMap<String, Instant>,
    bound: Option<(String, Instant)>,
}

/// Watches one pod and all nodes until the pod is bound; says when both watches have begun.
async fn observe(client: Client, pod: String, begun: oneshot::Sender<()>) -> Seen {
    let only = watcher::Config::default().fields(&format!("metadata.name={pod}"));
    let pods = watcher::watcher(Api::<Pod>::default_namespaced(client.clone()), only);
    let nodes = watcher::watcher(Api::<Node>::all(client), watcher::Config::default());
    let (mut pods, mut nodes) = (std::pin::pin!(pods), std::pin::pin!(nodes));
    let mut seen = Seen::default();
    let mut begun = Some(begun);
    let mut lists = 2;
    loop {
        tokio::select! {
            event = pods.next() => match event.unwrap().unwrap() {
                Event::Apply(pod) => {
                    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
                    if conditions.unwrap_or_default().iter().any(|one| one.reason.as_deref() == Some("Unschedulable")) {
                        seen.unschedulable.get_or_insert_with(Instant::now);
                    }
                    if let Some(node) = pod.spec.and_then(|spec| spec.node_name) {
                        seen.bound.get_or_insert_with(|| (node, Instant::now()));
                    }
                }
                Event::InitDone => lists -= 1,
                _ => {}
            },
            event = nodes.next() => match event.unwrap().unwrap() {
                Event::Apply(node) => {
                    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
                    if is_used_spare(&node.metadata) && !taints.unwrap_or_default().iter().any(is_spare_taint) {
                        seen.opened.entry(name(&node.metadata).to_owned()).or_insert_with(Instant::now);
                    }
                }
                Event::InitDone => lists -= 1,
                _ => {}
            },
        }
        if lists == 0
            && let Some(begun) = begun.take()
        {
            begun.send(()).unwrap();
        }
        let is_done =
            |(node, _): &(String, Instant)| seen.opened.contains_key(node) || !node.starts_with("warm");
        if seen.bound.as_ref().is_some_and(is_done) {
            return seen;
        }
    }
}

/// Creates a pod in a pool and gives what became of it.
async fn watched(warm: &Warm, pod: &str, pool: &str) -> Seen {
    let (begun, begins) = oneshot::channel();
    let watching = tokio::spawn(observe(warm.bed.admin.clone(), pod.to_owned(), begun));
    begins.await.unwrap();
    warm.pod(pod, pool).await;
    tokio::time::timeout(support::DEADLINE, watching)
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_pod_is_bound_to_a_running_spare_at_once_and_no_node_claim_is_made_for_it() {
    let trials = number("VENEER_WARM_TRIALS", 20);
    let warm = Warm::start(&["warm", "cold"]).await;
    warm.overprovisioner(
        "warm",
        json!({"targetNodePools": ["warm"], "sizing": {"count": 2}}),
    )
    .await;
    let (mut opened, mut bound, mut launched) = (Vec::new(), Vec::new(), Vec::new());
    for trial in 0..trials {
        warm.numbers("warm", (2, 2, i32::try_from(trial).unwrap())).await;
        let before: Vec<String> = warm
            .claims()
            .await
            .iter()
            .map(|one| name(&one.metadata).to_owned())
            .collect();
        let pod = format!("hot-{trial}");
        let seen = watched(&warm, &pod, "warm").await;
        let (node, at) = seen.bound.unwrap();
        assert!(
            before.contains(&node),
            "trial {trial}: {node} was made for the pod"
        );
        let pending = seen.unschedulable.unwrap();
        opened.push(seen.opened[&node].saturating_duration_since(pending));
        bound.push(at.saturating_duration_since(pending));
    }
    for trial in 0..trials.min(20) {
        let pod = format!("cold-{trial}");
        let seen = watched(&warm, &pod, "cold").await;
        let (_, at) = seen.bound.unwrap();
        launched.push(at.saturating_duration_since(seen.unschedulable.unwrap()));
    }
    let at = |list: &mut Vec<Duration>, share: usize| {
        list.sort_unstable();
        list[(list.len() * share).div_ceil(100).max(1) - 1]
    };
    println!(
        "{trials} trials: unschedulable to taint off: median {:?}, p99 {:?}; to bound: median {:?}, p99 {:?}; cold launch to bound: median {:?}, p99 {:?}",
        at(&mut opened, 50),
        at(&mut opened, 99),
        at(&mut bound, 50),
        at(&mut bound, 99),
        at(&mut launched, 50),
        at(&mut launched, 99),
    );
    // How long it takes is measured, not tested: this may be a debug build on a busy machine.
    assert!(
        at(&mut bound, 50) < at(&mut launched, 50),
        "a spare is faster than a launch"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_override_opens_and_closes_on_time_and_limits_hold() {
    let warm = Warm::start(&["default"]).await;
    let to = |hour: i64, seconds: i64| {
        let now = Timestamp::now();
        let midnight = now.as_second() - now.as_second() % 86_400;
        let at = midnight + 86_400 + hour * 3600 + seconds;
        SignedDuration::from_secs(at - now.as_second())
    };
    warm.clock.set_ahead(to(8, 0));
    warm.overprovisioner(
        "office",
        json!({"targetNodePools": ["default"], "sizing": {"count": 1}, "scheduledOverrides": [
            {"schedule": "0 9 * * *", "duration": "1h", "sizing": {"count": 3}}]}),
    )
    .await;
    warm.numbers("office", (1, 1, 0)).await;
    let api = warm.overprovisioners();
    let status = api.get("office").await.unwrap().status.unwrap();
    assert!(
        status
            .next_override
            .unwrap()
            .start
            .0
            .to_string()
            .ends_with("T09:00:00Z")
    );
    warm.clock.set_ahead(to(8, 3590));
    warm.resize("office", json!({"count": 2})).await;
    warm.numbers("office", (2, 2, 0)).await;
    // Nobody touches anything: it opens by itself when its time has come.
    warm.numbers("office", (3, 3, 0)).await;
    let status = api.get("office").await.unwrap().status.unwrap();
    assert!(
        status
            .active_override
            .unwrap()
            .end
            .0
            .to_string()
            .ends_with("T10:00:00Z")
    );
    warm.clock.set_ahead(to(10, 0));
    warm.numbers("office", (2, 2, 0)).await;
    assert_eq!(
        api.get("office").await.unwrap().status.unwrap().active_override,
        None
    );

    let limit = Patch::Merge(json!({"spec": {"limits": {"nodes": "4"}}}));
    let pools = warm.bed.pools();
    pools
        .patch("default", &PatchParams::default(), &limit)
        .await
        .unwrap();
    warm.resize("office", json!({"count": 9})).await;
    warm.numbers("office", (9, 4, 0)).await;
    eventually("the limit is reported", async || {
        let status = api.get("office").await.unwrap().status?;
        let found = find_condition(&status.conditions, "SizingValid")?;
        let says = found.message.contains("leave room for 4 of 9 spares");
        (found.reason == "LimitReached" && says).then_some(())
    })
    .await;
    assert_eq!(warm.claims().await.len(), 4);
}
