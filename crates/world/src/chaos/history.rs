//! One history: a small world, its faults, and what becomes of it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use veneer_api::labels::{karpenter, kubernetes};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;

use super::invariants::{self, Watch};
use super::{Bug, Faults, Rates};
use crate::adversary::{self, Kind};
use crate::rng::Rng;
use crate::scenario::{Scenario, ScenarioError};
use crate::world::World;

/// How long the world has to come to rest.
const REST: SignedDuration = SignedDuration::from_mins(25);
/// For how long nothing may move after that.
const CALM: SignedDuration = SignedDuration::from_mins(30);
const REFRESH: i64 = 60;

/// What a history follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The seed.
    pub seed: u64,
    /// For how many minutes faults happen.
    pub minutes: i64,
    /// Kinds of fault that are left out.
    pub without: Vec<&'static str>,
    /// A bug that is put in.
    pub bug: Option<Bug>,
}

/// Kinds of fault that can be left out.
pub const KINDS: [&str; 13] = [
    "crash",
    "refuse",
    "launch",
    "answer",
    "stale",
    "clock",
    "gap",
    "malformed",
    "fleet",
    "message",
    "split",
    "scheduler",
    "tenant",
];

impl History {
    /// The usual history of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            minutes: 24,
            without: Vec::new(),
            bug: None,
        }
    }

    fn has(&self, kind: &str) -> bool {
        !self.without.contains(&kind)
    }

    /// The command that shows this history again.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!(
            "veneer chaos --histories 1 --seed {} --minutes {}",
            self.seed, self.minutes
        );
        if !self.without.is_empty() {
            command.push_str(&format!(" --without {}", self.without.join(",")));
        }
        command
    }
}

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When it was noticed.
    pub at: Timestamp,
    /// What it is.
    pub what: String,
}

/// What became of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Executed actions and events.
    pub steps: u64,
    /// How often the controllers looked.
    pub passes: u64,
    /// What does not hold, if anything.
    pub violation: Option<Violation>,
    /// Everything that happened.
    pub log: String,
}

/// What became of many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many.
    pub histories: u64,
    /// Executed actions and events.
    pub steps: u64,
    /// How often the controllers looked.
    pub passes: u64,
    /// Those that failed, with what does not hold.
    pub failed: Vec<(u64, String)>,
}

impl Report {
    /// Adds another one.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.histories += 1;
        self.steps += outcome.steps;
        self.passes += outcome.passes;
        if let Some(violation) = &outcome.violation {
            self.failed.push((seed, violation.what.clone()));
        }
    }
}

/// Three sizes in two zones, on demand and spot.
fn catalogue() -> Result<Arc<Catalogue>, ScenarioError> {
    let offering = |price: f64, capacity: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
        ]})
    };
    let types = [
        ("m5.large", 2, 0.1),
        ("m5.xlarge", 4, 0.2),
        ("c5.xlarge", 4, 0.19),
        ("c5.2xlarge", 8, 0.38),
    ];
    let types = types.into_iter().map(|(name, cpu, price)| {
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "30"},
        "offerings": [
            offering(price, "on-demand", "zone-a"), offering(price, "on-demand", "zone-b"),
            offering(price * 0.4, "spot", "zone-a"), offering(price * 0.5, "spot", "zone-b"),
        ]})
    });
    kwok::parse(&Value::Array(types.collect()).to_string(), "chaos")
        .map(Arc::new)
        .map_err(|error| ScenarioError(error.to_string()))
}

fn pool(name: &str, capacity: &[&str], limits: &Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "annotations": {
            "veneer.io/preference.1": "node.kubernetes.io/instance-type=c5.xlarge adjust=-10%"}},
        "spec": {
            "limits": limits,
            "template": {"metadata": {"labels": {"pool": name}}, "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity}]}},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}}})
}

/// Workloads whose pods may not all go to one place, of different importance.
fn constrained(rng: &mut Rng, workload: &dyn Fn(&str, &str, u64, u64) -> Value) -> Vec<Value> {
    let mut workloads = Vec::new();
    for (name, pool, most) in [("zonal", "a", 6), ("hosts", "b", 3), ("apart", "b", 2)] {
        let mut one = workload(name, pool, 1, 1 + rng.below(most));
        let selector = json!({"matchLabels": {"app.kubernetes.io/name": name}});
        let spread = |key: &str| {
            let constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
            ("topologySpreadConstraints", json!([constraint]))
        };
        let (field, value) = match name {
            "zonal" => spread(kubernetes::ZONE),
            "hosts" => spread(kubernetes::HOSTNAME),
            _ => {
                let terms = json!([{"topologyKey": kubernetes::HOSTNAME, "labelSelector": selector}]);
                let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
                ("affinity", json!({"podAntiAffinity": required}))
            }
        };
        if let Some(spec) = one.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
            spec.insert(field.to_owned(), value);
            spec.insert("priority".to_owned(), json!(10 * rng.below(2)));
        }
        if rng.chance(0.7) {
            workloads.push(one);
        }
    }
    workloads
}

/// Tenants whose pods are made to be costly: two kinds, for a while each. They are gone when all is calm again, since
/// nothing has to have room for them.
fn tenants(history: &History) -> (Vec<Value>, Vec<Value>) {
    let mut rng = Rng::of(history.seed, &["tenants"]);
    let (mut workloads, mut events) = (Vec::new(), Vec::new());
    if !history.has("tenant") {
        return (workloads, events);
    }
    for number in 0..2 {
        let at = usize::try_from(rng.below(Kind::ALL.len() as u64)).unwrap_or_default();
        let kind = *Kind::ALL.get(at).unwrap_or(&Kind::Everything);
        let name = format!("tenant-{number}");
        let terms = 10 + usize::try_from(rng.below(40)).unwrap_or_default();
        let parts = adversary::pod(kind, &mut rng, terms, &name);
        workloads.push(json!({"name": name, "namespace": name, "replicas": {"min": 0},
            "template": {"metadata": parts.metadata, "spec": parts.spec}}));
        let half = u64::try_from(history.minutes * 30).unwrap_or(1);
        let (from, lasts) = (rng.below(half), 30 + rng.below(half.saturating_sub(30).max(1)));
        events.push(json!({"at": format!("{from}s"),
            "scale": {"workload": name, "replicas": 1 + rng.below(20), "for": format!("{lasts}s")}}));
    }
    (workloads, events)
}

/// How many nodes the pool may have that limits nothing else; its workload has room on as many at rest.
const FEW: u64 = 4;

/// The world of a history: what runs in it and what users do follow from the seed.
fn scenario(history: &History) -> Result<Scenario, ScenarioError> {
    let mut rng = Rng::of(history.seed, &["history"]);
    let workload = |name: &str, pool: &str, cpu: u64, replicas: u64| {
        json!({"name": name, "replicas": {"min": replicas},
            "template": {"spec": {"nodeSelector": {"pool": pool}, "containers": [
                {"name": "main", "resources": {"requests": {"cpu": format!("{}m", cpu * 500), "memory": "512Mi"}}}]}}})
    };
    let mut placement = Rng::of(history.seed, &["placement"]);
    let mut workloads = vec![
        workload("web", "a", 1 + rng.below(3), 2 + rng.below(6)),
        workload("jobs", "b", 1 + rng.below(4), rng.below(6)),
    ];
    workloads.extend(constrained(&mut placement, &workload));
    let mut few = Rng::of(history.seed, &["few"]);
    workloads.push(workload("few", "few", 1 + few.below(3), few.below(FEW)));
    let (costly, mut events) = tenants(history);
    for _ in 0..few.below(4) {
        let at = format!("{}s", few.below(u64::try_from(history.minutes * 60).unwrap_or(1)));
        let lasts = format!("{}s", 60 + few.below(240));
        events.push(
            json!({"at": at, "scale": {"workload": "few", "replicas": few.below(3 * FEW), "for": lasts}}),
        );
    }
    workloads.extend(costly);
    for _ in 0..rng.below(12) + 12 {
        let at = format!("{}s", rng.below(u64::try_from(history.minutes * 60).unwrap_or(1)));
        let lasts = format!("{}s", 60 + rng.below(240));
        let event = match rng.below(7) {
            0..=2 => {
                let workload = if rng.chance(0.5) { "web" } else { "jobs" };
                json!({"at": at, "scale": {"workload": workload, "replicas": rng.below(14), "for": lasts}})
            }
            3 => json!({"at": at, "shortage": {"instanceType": "c5", "for": lasts}}),
            4 => json!({"at": at, "interrupt": {"capacityType": "spot"}}),
            5 if history.has("gap") => json!({"at": at, "prometheusGap": lasts}),
            _ if history.has("malformed") => {
                let mut bad = pool(
                    &format!("bad-{}", rng.below(3)),
                    &["on-demand"],
                    &json!({"cpu": "8"}),
                );
                let change = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["!!"]});
                if let Some(spec) = bad.pointer_mut("/spec/template/spec/requirements") {
                    *spec = json!([change]);
                }
                if let Some(annotations) = bad.pointer_mut("/metadata/annotations") {
                    *annotations = json!({"veneer.io/preference.x": "nonsense", "veneer.io/preference.2": "a=b adjust=cheap"});
                }
                json!({"at": at, "apply": [bad]})
            }
            _ => json!({"at": at, "price": {"capacityType": "spot", "factor": 1.5}}),
        };
        events.push(event);
    }
    // When all is calm again there is more to do: whatever fits has to run soon.
    for (name, least, most) in [("zonal", 6, 12), ("hosts", 2, 4)] {
        let replicas = least + placement.below(most - least + 1);
        if workloads.iter().any(|one| one.get("name") == Some(&json!(name))) {
            let at = format!("{}s", history.minutes * 60 + 60);
            events.push(json!({"at": at, "scale": {"workload": name, "replicas": replicas, "for": "3h"}}));
        }
    }
    let scenario = json!({
        "name": "chaos", "seed": history.seed, "region": "test-1", "duration": "1h",
        "loadInterval": "30s",
        "objects": [
            pool("a", &["on-demand"], &json!({"cpu": "24"})),
            pool("b", &["spot", "on-demand"], &json!({"cpu": "24"})),
            pool("few", &["spot", "on-demand"], &json!({"nodes": FEW.to_string()})),
            {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "of-others"},
                "spec": {"requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.2xlarge"]}],
                    "priceAdjustment": "+1%", "weight": 9}},
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": "web"}}}},
        ],
        "workloads": workloads,
        "cloud": {"launch": "2s", "boot": ["10s", "40s"], "ready": format!("{}s", placement.below(10)), "terminate": "10s",
            "spotInterruptionsPerHour": 1.0},
        "scheduler": {"backOff": placement.chance(0.7)},
        "commitments": {"refresh": format!("{REFRESH}s"), "delay": "20s",
            "reservedInstances": [{"instanceType": "m5.large", "count": 1 + rng.below(2)}],
            "savingsPlans": [{"family": "m5", "commitment": 0.15 * (1.0 + rng.unit())}]},
        "steering": {"interval": format!("{REFRESH}s")},
        "events": events,
    });
    serde_json::from_value(scenario).map_err(|error| ScenarioError(error.to_string()))
}

/// A demand that some of the nodes do not meet.
fn without_one_kind(rng: &mut Rng) -> NodeSelector {
    let (key, value) = match rng.below(3) {
        0 => (kubernetes::ZONE, "zone-a"),
        1 => (kubernetes::INSTANCE_TYPE, "c5.xlarge"),
        _ => (karpenter::CAPACITY_TYPE, "spot"),
    };
    let requirement = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![requirement]),
            match_fields: None,
        }],
    }
}

/// Lets a history happen.
pub fn run(history: &History) -> Result<Outcome, ScenarioError> {
    let scenario = scenario(history)?;
    let start = scenario.start;
    let mut world = World::new(Arc::new(scenario), catalogue()?, history.seed)?;
    world.history = Some(String::new());
    let node = serde_json::from_value(json!({
        "metadata": {"name": "of-others", "labels": {"kubernetes.io/hostname": "of-others"}},
        "spec": {"taints": [{"key": "others", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]}}));
    world
        .objects
        .add_node(node.map_err(|error| ScenarioError(error.to_string()))?, start);
    let mut rng = Rng::of(history.seed, &["rates"]);
    let mut rate = |kind: &str, most: f64| if history.has(kind) { most * rng.unit() } else { 0.0 };
    let rates = Rates {
        crash: rate("crash", 0.06),
        refuse: rate("refuse", 0.15),
        launch: rate("launch", 0.2),
        answer: rate("answer", 0.1),
        stale: rate("stale", 0.4),
        fleet: rate("fleet", 0.3),
        message: rate("message", 0.8),
    };
    world.faults = Some(Box::new(Faults::new(history.seed, rates, history.bug)));
    let foreign = world.objects.nodes.get("of-others").cloned().unwrap_or_default();
    let overlay = world.objects.overlays.get("of-others").cloned();
    let overlay = overlay.ok_or_else(|| ScenarioError("the overlay of others is missing".to_owned()))?;
    let mut watch = Watch::new(foreign, overlay, SignedDuration::from_secs(REFRESH * 3 + 30));
    let faults_end = start + SignedDuration::from_mins(history.minutes);
    let end = faults_end + REST + CALM;
    let mut violation = None;
    let mut moved = (start, 0);
    let mut refusals = Rng::of(history.seed, &["scheduler"]);
    let mut refuses_until: Option<Timestamp> = None;
    while world.next() <= end && violation.is_none() {
        let is_over = world.next() > faults_end;
        if let Some(faults) = &mut world.faults {
            if is_over && !faults.calm {
                faults.calm = true;
                faults.rates = Rates::default();
                faults.skew = SignedDuration::ZERO;
            } else if !is_over && history.has("clock") && rng.chance(0.01) {
                let seconds = i64::try_from(rng.below(120)).unwrap_or_default() - 60;
                faults.skew = SignedDuration::from_secs(seconds);
            }
        }
        if !is_over && history.has("split") && rng.chance(0.01) {
            let seconds = 5 + i64::try_from(rng.below(60)).unwrap_or_default();
            world.split(SignedDuration::from_secs(seconds));
        }
        // The scheduler refuses nodes for reasons that nobody else knows.
        if !is_over && history.has("scheduler") && refuses_until.is_none() && refusals.chance(0.005) {
            let seconds = 20 + i64::try_from(refusals.below(120)).unwrap_or_default();
            refuses_until = Some(world.now + SignedDuration::from_secs(seconds));
            world.set_added_affinity(Some(without_one_kind(&mut refusals)));
        } else if refuses_until.is_some_and(|until| is_over || until <= world.now) {
            refuses_until = None;
            world.set_added_affinity(None);
        }
        // Users delete nodes too, with pods on them.
        if !is_over && rng.chance(0.02) {
            let count = u64::try_from(world.objects.claims.len()).unwrap_or_default();
            let at = usize::try_from(rng.below(count)).unwrap_or_default();
            if let Some(claim) = world.objects.claims.keys().nth(at).cloned() {
                world.delete(&format!("nodeclaim/{claim}"))?;
            }
        }
        world.step();
        let movements = world.statistics.claims + world.statistics.deleted.values().sum::<u64>();
        if movements != moved.1 {
            moved = (world.now, movements);
        }
        let what = watch.check(&world);
        violation = what.map(|what| Violation { at: world.now, what });
    }
    if violation.is_none() {
        let flaps = moved.0 > faults_end + REST;
        let what = invariants::at_rest(&world)
            .or_else(|| flaps.then(|| format!("nodes still come and go at {} under a steady load", moved.0)));
        violation = what.map(|what| Violation { at: world.now, what });
    }
    Ok(Outcome {
        steps: world.statistics.steps,
        passes: world.statistics.passes,
        violation,
        log: world.history.take().unwrap_or_default(),
    })
}

/// A history that fails in the same way with less in it.
pub fn shrink(history: &History) -> Result<History, ScenarioError> {
    let mut smallest = history.clone();
    for kind in KINDS.into_iter().filter(|kind| history.has(kind)) {
        let mut smaller = smallest.clone();
        smaller.without.push(kind);
        if run(&smaller)?.violation.is_some() {
            smallest = smaller;
        }
    }
    while smallest.minutes > 1 {
        let smaller = History {
            minutes: smallest.minutes / 2,
            ..smallest.clone()
        };
        if run(&smaller)?.violation.is_none() {
            break;
        }
        smallest = smaller;
    }
    Ok(smallest)
}
