//! Consolidation: what we would save in one pass, against what Karpenter's own methods would on the same cluster.
//!
//! Karpenter takes the first command of its multi-node method, or else of its single-node method. Ours has to save at
//! least as much: it may choose other nodes, and it may start several commands at once. Karpenter judges each of ours, too: its
//! pods have to find their places in its simulation, on nodes whose `consolidateAfter` has passed, and Balanced pools have to
//! approve of it.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use veneer_engine::catalogue::kwok;
use veneer_engine::disruption::{self, Command, Memory, Policy};
use veneer_engine::plan::{NodeClass, Snapshot};
use veneer_engine::provision::Market;

use crate::harness::Subject;
use crate::rng::Rng;

/// Prices are compared as sums of floating-point numbers.
const NOTHING: f64 = 1e-9;

/// When all of this happens: within the first hour of a day, which some budgets name.
const NOW: &str = "2026-01-02T00:30:00Z";

/// The subject, with what all cases came to.
#[derive(Default)]
pub struct Disruptions {
    totals: Mutex<Totals>,
}

/// What all cases came to, in dollars per hour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Cases in which Karpenter's multi-node method found something.
    pub multi: usize,
    /// Cases in which its single-node method did.
    pub single: usize,
    /// Cases in which we save more.
    pub more: usize,
    /// What Karpenter's first commands save.
    pub karpenter: f64,
    /// What ours do.
    pub ours: f64,
    /// The commands of ours that Karpenter judged, and those of Balanced pools among them.
    pub judged: usize,
    pub balanced: usize,
    /// Cases in which some node may not take pods that are moved.
    pub closed: usize,
}

/// A cluster whose nodes all have pods.
#[derive(Debug, Serialize)]
pub struct Case {
    objects: Vec<Value>,
    catalog: Value,
    options: Value,
    now: &'static str,
    /// The nodes of our commands, for Karpenter to judge.
    proposed: Vec<Vec<String>>,
}

/// The fields are those of `oracle/internal/schedule/consolidate.go`.
#[derive(Debug, Deserialize)]
pub struct Answer {
    multi: Option<Vec<Found>>,
    single: Option<Vec<Found>>,
    #[serde(default)]
    judged: Vec<String>,
}

/// Nodes that go together.
#[derive(Debug, Deserialize)]
struct Found {
    nodes: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    before: f64,
    after: f64,
}

fn saving(found: Option<&Vec<Found>>) -> f64 {
    found
        .into_iter()
        .flatten()
        .map(|one| one.before - one.after)
        .sum()
}

/// Three families with 2 to 32 processors, in two zones, on demand and spot.
fn catalogue() -> Value {
    let offering = |price: f64, capacity: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    let mut types: Vec<Value> = Vec::new();
    for (family, rate, memory) in [("c", 0.045, 2), ("m", 0.05, 4), ("r", 0.065, 8)] {
        for cpu in [2, 4, 8, 16, 32] {
            let price = rate * f64::from(cpu);
            types.push(json!({"name": format!("{family}.{cpu}"), "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * memory), "pods": "110"},
                "offerings": [
                    offering(price, "on-demand", "zone-a"), offering(price, "on-demand", "zone-b"),
                    offering(price * 0.4, "spot", "zone-a"), offering(price * 0.45, "spot", "zone-b"),
                ]}));
        }
    }
    Value::from(types)
}

/// A pool, and how many seconds its `consolidateAfter` is; none for never.
fn pool(rng: &mut Rng, name: &str) -> (Value, Option<i64>) {
    let capacity: Value = match rng.below(3) {
        0 => json!(["on-demand", "spot"]),
        _ => json!(["on-demand"]),
    };
    let budgets = [
        json!([{"nodes": "100%"}]),
        json!([{"nodes": "100%"}]),
        json!([{"nodes": "50%"}]),
        json!([{"nodes": "3"}]),
        json!([{"nodes": "1"}]),
        json!([]),
        json!([{"nodes": "0", "reasons": ["Empty", "Drifted"]}, {"nodes": "4"}]),
        json!([{"nodes": "2", "reasons": ["Underutilized"]}]),
        json!([{"nodes": "1", "schedule": "0 0 * * *", "duration": "1h"}, {"nodes": "90%"}]),
        json!([{"nodes": "0", "schedule": "0 12 * * *", "duration": "8h"}]),
        json!([{"nodes": "0", "reasons": ["Underutilized"], "schedule": "@daily", "duration": "2h"}]),
    ];
    let budgets = rng.pick(&budgets);
    let policy = *rng.pick(&[
        "WhenEmptyOrUnderutilized",
        "WhenEmptyOrUnderutilized",
        "WhenEmptyOrUnderutilized",
        "Balanced",
        "Balanced",
        "Balanced",
        "WhenEmpty",
    ]);
    let (after, seconds) = *rng.pick(&[
        ("0s", Some(0)),
        ("0s", Some(0)),
        ("30s", Some(30)),
        ("10m", Some(600)),
        ("1h30m", Some(5400)),
        ("Never", None),
    ]);
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "uid": name}, "spec": {
        "template": {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity}],
            "expireAfter": "Never"}},
        "disruption": {"consolidateAfter": after, "consolidationPolicy": policy, "budgets": budgets}}});
    (pool, seconds)
}

/// When the last pod came or went, if one did, and whether `consolidateAfter` has passed since.
fn quiet(rng: &mut Rng, after: Option<i64>) -> (Option<String>, bool) {
    const INITIALIZED_BEFORE: i64 = 88_200;
    let ago = *rng.pick(&[
        None,
        None,
        Some(5),
        Some(45),
        Some(300),
        Some(1800),
        Some(7200),
        Some(90_000),
    ]);
    let now: Timestamp = NOW.parse().unwrap_or_default();
    let time = ago.and_then(|ago: i64| now.checked_sub(SignedDuration::from_secs(ago)).ok());
    let is_over = after.is_some_and(|after| ago.unwrap_or(INITIALIZED_BEFORE) >= after);
    (time.map(|time| time.to_string()), is_over)
}

fn node(
    name: &str,
    pool: &str,
    it: &str,
    (capacity, zone): (&str, &str),
    (last_pod_event, is_quiet): (Option<String>, bool),
) -> [Value; 2] {
    let (family, cpu) = it.split_once('.').unwrap_or(("c", "2"));
    let cpu: i64 = cpu.parse().unwrap_or(2);
    let per_cpu = match family {
        "c" => 2,
        "m" => 4,
        _ => 8,
    };
    let amounts = json!({"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * per_cpu), "pods": "110"});
    let labels = json!({"karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "karpenter.sh/capacity-type": capacity, "topology.kubernetes.io/zone": zone,
        "node.kubernetes.io/instance-type": it, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name, "karpenter.kwok.sh/kwoknodeclass": "default"});
    let condition = |of: &str| {
        json!({"type": of, "status": "True", "reason": of, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let all = ["Launched", "Registered", "Initialized", "Consolidatable", "Ready"];
    let all = all.iter().filter(|of| is_quiet || **of != "Consolidatable");
    let conditions: Vec<Value> = all.map(|of| condition(of)).collect();
    let mut status = json!({"providerID": format!("test://{name}"), "nodeName": name, "capacity": amounts,
        "allocatable": amounts, "conditions": conditions});
    if let Some(time) = last_pod_event {
        status["lastPodEventTime"] = json!(time);
    }
    [
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": format!("claim-{name}"),
            "uid": format!("claim-{name}"), "labels": labels, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [], "expireAfter": "Never"},
            "status": status}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": format!("test://{name}")},
            "status": {"capacity": amounts, "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}]}}),
    ]
}

fn pod(rng: &mut Rng, name: &str, node: &str, zone: &str, cpu: i64) -> Value {
    let app = *rng.pick(&["web", "api", "db", "batch"]);
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name,
        "labels": {"app": app}, "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x",
            "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi")}}}]},
        "status": {"phase": "Running"}});
    match rng.below(30) {
        0 => pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"}),
        1 | 2 => pod["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": zone}),
        3 => {
            pod["metadata"]["labels"]["app"] = json!("apart");
            pod["spec"]["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "apart"}}}]}});
        }
        4 => pod["status"]["phase"] = json!("Pending"),
        5 => {
            let cost = *rng.pick(&["100000000", "2000000000", "-134217728", "-2000000000"]);
            pod["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
        }
        6 => pod["spec"]["priority"] = json!(rng.pick(&[1000, 100_000_000, -50_000_000])),
        _ => {}
    }
    pod
}

/// A pod that costs something to evict: a node on which none does is empty to Karpenter, and not to us.
fn ordinary(mut pod: Value) -> Value {
    pod["metadata"]["annotations"] = json!({});
    pod["spec"]["priority"] = Value::Null;
    pod
}

impl Disruptions {
    /// What all cases so far came to.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What we would do with the cluster of a case.
fn ours(case: &Case) -> anyhow::Result<Vec<Command>> {
    let mut snapshot = Snapshot {
        node_classes: vec![NodeClass {
            group: "karpenter.kwok.sh".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            name: "default".to_owned(),
            not_ready: None,
            is_deleting: false,
        }],
        ..Snapshot::default()
    };
    for object in &case.objects {
        let value = object.clone();
        match object["kind"].as_str().unwrap_or_default() {
            "NodePool" => snapshot.node_pools.push(Arc::new(serde_json::from_value(value)?)),
            "NodeClaim" => snapshot
                .node_claims
                .push(Arc::new(serde_json::from_value(value)?)),
            "NodeOverlay" => snapshot.overlays.push(Arc::new(serde_json::from_value(value)?)),
            "Node" => snapshot.nodes.push(Arc::new(serde_json::from_value(value)?)),
            "Pod" => snapshot.pods.push(Arc::new(serde_json::from_value(value)?)),
            "PodDisruptionBudget" => snapshot.pdbs.push(Arc::new(serde_json::from_value(value)?)),
            other => anyhow::bail!("a case has no {other}"),
        }
    }
    let mut market = Market::new(Arc::new(kwok::parse(&case.catalog.to_string(), "case")?));
    market.update(&snapshot);
    let policy = Policy {
        validation: SignedDuration::ZERO,
        least_saving: 0.0,
        ..Policy::default()
    };
    let now: Timestamp = case.now.parse()?;
    Ok(disruption::decide(&snapshot, &mut market, &policy, &mut Memory::default(), now).started)
}

/// Whether a node of a command is of a Balanced pool.
fn is_balanced(case: &Case, command: &Command) -> bool {
    let of_kind = |kind: &'static str| case.objects.iter().filter(move |object| object["kind"] == kind);
    let mut nodes = of_kind("Node").filter(|node| {
        command
            .nodes
            .iter()
            .any(|name| node["metadata"]["name"] == **name)
    });
    nodes.any(|node| {
        of_kind("NodePool").any(|pool| {
            node["metadata"]["labels"]["karpenter.sh/nodepool"] == pool["metadata"]["name"]
                && pool["spec"]["disruption"]["consolidationPolicy"] == "Balanced"
        })
    })
}

/// Whether an object is the claim of a node that pods came to or left lately.
fn is_under_consolidate_after(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    object["kind"] == "NodeClaim"
        && !conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Consolidatable")
}

impl Subject for Disruptions {
    type Case = Case;
    type Answer = Answer;

    fn arguments(&self) -> Vec<String> {
        vec!["consolidate".to_owned()]
    }

    fn generate(&self, rng: &mut Rng) -> Case {
        let pools = [pool(rng, "a"), pool(rng, "b")];
        let mut objects: Vec<Value> = pools.iter().map(|(pool, _)| pool.clone()).collect();
        let types = ["c.4", "m.4", "r.4", "c.8", "m.8", "r.8", "c.16", "m.16"];
        for number in 0..2 + rng.below(14) {
            let name = format!("n{number:02}");
            let it = *rng.pick(&types);
            let capacity = if rng.chance(20) { "spot" } else { "on-demand" };
            let zone = *rng.pick(&["zone-a", "zone-b"]);
            let pool = *rng.pick(&["a", "a", "b"]);
            let after = pools.get(usize::from(pool == "b")).and_then(|(_, after)| *after);
            let quiet = quiet(rng, after);
            objects.extend(node(&name, pool, it, (capacity, zone), quiet));
            let size = it.split_once('.').and_then(|(_, cpu)| cpu.parse::<i64>().ok());
            let room = size.unwrap_or(2) * 1000;
            let fill = room * rng.between(10, 100) / 100;
            let mut used = 0;
            for at in 0..25 {
                let cpu = 250 * rng.between(1, 8);
                if at > 0 && used + cpu > fill {
                    break;
                }
                used += cpu;
                let pod = pod(rng, &format!("p{number:02}-{at:02}"), &name, zone, cpu);
                objects.push(if at == 0 { ordinary(pod) } else { pod });
            }
        }
        if rng.chance(25) {
            let app = *rng.pick(&["web", "api", "db", "batch"]);
            let allowed = rng.below(2);
            objects.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "some", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 5, "desiredHealthy": 5, "expectedPods": 5}}));
        }
        if rng.chance(30) {
            let family = *rng.pick(&["c", "m", "r"]);
            let values: Vec<String> = [4, 8, 16].iter().map(|cpu| format!("{family}.{cpu}")).collect();
            let adjustment = *rng.pick(&["-40%", "+30%", "-5%"]);
            objects.push(
                json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
                "metadata": {"name": "adjusted", "generation": 1},
                "spec": {"priceAdjustment": adjustment, "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": values}]}}),
            );
        }
        let mut case = Case {
            objects,
            catalog: catalogue(),
            options: json!({"nodeOverlay": true}),
            now: NOW,
            proposed: Vec::new(),
        };
        let commands = ours(&case).unwrap_or_default();
        case.proposed = commands.into_iter().map(|command| command.nodes).collect();
        case
    }

    fn differences(&self, case: &Case, answer: &Answer) -> Vec<String> {
        let commands = match ours(case) {
            Ok(commands) => commands,
            Err(error) => return vec![format!("{error:#}")],
        };
        let our_saving: f64 = commands.iter().map(|command| command.saving).sum();
        let (multi, single) = (saving(answer.multi.as_ref()), saving(answer.single.as_ref()));
        let best = multi.max(single);
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.multi += usize::from(multi > NOTHING);
        totals.single += usize::from(single > NOTHING);
        totals.more += usize::from(our_saving > best + NOTHING);
        totals.karpenter += best;
        totals.ours += our_saving;
        totals.judged += answer.judged.len();
        totals.balanced += commands
            .iter()
            .filter(|command| is_balanced(case, command))
            .count();
        totals.closed += usize::from(case.objects.iter().any(is_under_consolidate_after));
        let refused = commands
            .iter()
            .zip(&answer.judged)
            .filter(|(_, why)| !why.is_empty());
        let refused: Vec<String> = refused
            .map(|(command, why)| format!("Karpenter would not: {why}: {command:?}"))
            .collect();
        if answer.judged.len() != commands.len() {
            return vec!["not all commands were judged".to_owned()];
        }
        if our_saving + NOTHING >= best {
            return refused;
        }
        let theirs = |method: &str, found: Option<&Vec<Found>>| {
            let found: Vec<String> = found
                .into_iter()
                .flatten()
                .map(|one| format!("{:?} → {:?}", one.nodes, one.types.first()))
                .collect();
            format!("{method}: {}", found.join("; "))
        };
        let mut differences = refused;
        differences.extend([
            format!("Karpenter saves {best:.4}, we save {our_saving:.4}: {commands:?}"),
            theirs("multi", answer.multi.as_ref()),
            theirs("single", answer.single.as_ref()),
        ]);
        differences
    }
}
