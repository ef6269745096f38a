//! What is left of limits and commitments is counted by one rule, whoever asks, and spent only by what happens.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

#[path = "support/committed.rs"]
mod committed;

use std::collections::BTreeMap;
use std::sync::Arc;

use committed::{CATALOGUE, cluster, ledger, m5};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::REGION;
use veneer_api::{NodeClaim, NodePool};
use veneer_engine::cluster::LimitHeadroom;
use veneer_engine::plan::{Action, Plan, Snapshot, api_list};
use veneer_engine::provision::Market;
use veneer_steering::cap;
use veneer_steering::commitments::Ledger;
use veneer_steering::cycle::{Cycle, Rules};
use veneer_steering::decisions::{Machine, cover};
use veneer_steering::machines::{Prices, SeenMachine, machines};

const TYPE: &str = "node.kubernetes.io/instance-type";
const CAPACITY: &str = "karpenter.sh/capacity-type";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A plan for m5 with so much left, in dollars per hour.
fn plan_of(left: f64) -> Ledger {
    ledger([(m5(), 0.055, Ok(left))])
}

/// How a claim's instance is bought and what it does.
#[derive(Clone, Copy)]
enum Kind {
    Running(&'static str),
    Spare(&'static str),
    StoppedSpare,
    StoppingSpare,
    SpareInFlight(&'static str),
    Deleting,
}

/// The claim of an m5.xlarge, made after the data was taken.
fn claim(name: &str, kind: Kind) -> Arc<NodeClaim> {
    let mut claim = json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:30Z",
            "labels": {"karpenter.sh/nodepool": "default", TYPE: "m5.xlarge", CAPACITY: "on-demand"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": []},
        "status": {"providerID": format!("aws:///{name}"), "nodeName": format!("node-{name}")}});
    let bought = |claim: &mut Value, option: &str| {
        claim["metadata"]["labels"][CAPACITY] = json!("overprovisioned");
        claim["metadata"]["labels"]["veneer.io/overprovisioned"] = json!("true");
        claim["metadata"]["labels"]["veneer.io/purchase-option"] = json!(option);
    };
    match kind {
        Kind::Running(option) => claim["metadata"]["labels"][CAPACITY] = json!(option),
        Kind::Spare(option) => bought(&mut claim, option),
        Kind::StoppedSpare | Kind::StoppingSpare => {
            bought(&mut claim, "on-demand");
            claim["metadata"]["annotations"] = json!({"veneer.io/power": "stop"});
            if matches!(kind, Kind::StoppedSpare) {
                claim["status"]["nodeName"] = Value::Null;
                claim["status"]["conditions"] = json!([{"type": "Registered", "status": "False", "reason": "Stopped",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:40Z"}]);
            }
        }
        Kind::SpareInFlight(option) => {
            bought(&mut claim, option);
            let labels = claim["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove("veneer.io/purchase-option");
            labels.remove(TYPE);
            claim["spec"]["requirements"] = json!([
                {"key": CAPACITY, "operator": "In", "values": [option]},
                {"key": TYPE, "operator": "In", "values": ["m5.xlarge"]}]);
            claim["status"] = json!({});
        }
        Kind::Deleting => claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:50Z"),
    }
    read(claim)
}

/// Every kind of claim, with whether it uses commitments.
const KINDS: [(&str, Kind, bool); 9] = [
    ("running", Kind::Running("on-demand"), true),
    ("spot", Kind::Running("spot"), false),
    ("spare", Kind::Spare("on-demand"), true),
    ("spot-spare", Kind::Spare("spot"), false),
    ("stopped-spare", Kind::StoppedSpare, false),
    ("stopping-spare", Kind::StoppingSpare, true),
    ("spare-in-flight", Kind::SpareInFlight("on-demand"), true),
    ("spot-spare-in-flight", Kind::SpareInFlight("spot"), false),
    ("deleting", Kind::Deleting, false),
];

#[test]
fn steering_charges_what_runs_on_demand_to_commitments_spare_or_not() {
    let prices = Prices::of(&CATALOGUE);
    for (name, kind, uses) in KINDS {
        let claim = claim(name, kind);
        let seen = [SeenMachine::from(&*claim)];
        // The node of a claim is the same machine, also when the claim does not count.
        let node = claim.status.as_ref().and_then(|status| status.node_name.as_ref());
        let node = node.map(|node| {
            let metadata = json!({"name": node, "creationTimestamp": "2026-01-01T00:00:35Z",
                "labels": {TYPE: "m5.xlarge", CAPACITY: "on-demand"}});
            SeenMachine::of_node(&serde_json::from_value(metadata).unwrap())
        });
        let found = machines(seen.iter(), node.iter(), &prices);
        let found: Vec<&str> = found.iter().map(|one| one.instance_type.as_str()).collect();
        let expected: &[&str] = if uses { &["m5.xlarge"] } else { &[] };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn launches_see_what_spares_leave_of_a_commitment() {
    for (name, kind, uses) in KINDS {
        let mut snapshot = cluster(&m5(), &[4]);
        let mut market = Market::new(Arc::clone(&CATALOGUE));
        market.update(&snapshot);
        let requirements = &snapshot.node_pools[0].spec.template.spec.requirements;
        let wanted: Arc<NodeClaim> = read(json!({
            "metadata": {"name": "wanted", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements}}));
        let mut plan = Plan::default();
        let options = market.options(&wanted, 60);
        plan.push(Action::Launch {
            claim: Arc::clone(&wanted),
            options,
        });
        snapshot.node_claims = vec![wanted, claim(name, kind)];
        cap::apply(&mut plan, &snapshot, &plan_of(0.2), &market);
        let Some(Action::Launch { options, .. }) = plan.actions.first() else {
            unreachable!()
        };
        // An m5.xlarge costs 0.192 dollars an hour: the plan covers one.
        let expected = if uses { "c5.xlarge" } else { "m5.xlarge" };
        assert_eq!(options[0].instance_type, expected, "{name}");
    }
}

#[test]
fn consolidation_sees_which_spares_a_commitment_pays_for() {
    for (name, kind, uses) in KINDS {
        let market = Market::new(Arc::clone(&CATALOGUE));
        // The plan covers 28 % of one m5.xlarge, and the oldest comes first.
        let snapshot = Snapshot {
            node_claims: vec![claim(name, kind), claim("z-later", Kind::Running("on-demand"))],
            ..Snapshot::default()
        };
        let paid = cap::paid_for(&cap::charged(&snapshot, &market), &plan_of(0.0));
        let paid: Vec<&str> = paid.iter().map(String::as_str).collect();
        let expected = if uses { [name] } else { ["z-later"] };
        assert!(paid.contains(&expected[0]), "{name}: {paid:?}");
        assert_eq!(paid.contains(&name), uses, "{name}: {paid:?}");
    }
}

#[test]
fn what_is_made_in_the_second_of_the_data_is_not_in_the_data_yet() {
    let machine = |created: &str| Machine {
        name: "one".to_owned(),
        created: created.parse().unwrap(),
        instance_type: "m5.xlarge".to_owned(),
        zones: Vec::new(),
        price: 0.192,
    };
    let mut ledger = plan_of(1.0);
    let Some(Ok(book)) = ledger.books.values_mut().next() else {
        unreachable!()
    };
    // Kubernetes cuts times to whole seconds: a claim made at 10.9 s says that it was made at 10 s.
    book.data_at = "2026-01-01T00:00:10.5Z".parse().unwrap();
    let taken = |created: &str| {
        cover(&ledger, &[machine(created)])
            .get(&m5())
            .map_or(0, |used| used.machines)
    };
    assert_eq!(taken("2026-01-01T00:00:11Z"), 1);
    assert_eq!(taken("2026-01-01T00:00:10Z"), 1);
    assert_eq!(taken("2026-01-01T00:00:09Z"), 0);
}

/// Adds a ready node with one pod on it.
fn add_node(snapshot: &mut Snapshot, name: &str, instance_type: &str, processors: u32, annotations: &Value) {
    let mut types = CATALOGUE.types.iter();
    let it = types.find(|it| *it.name == *instance_type).unwrap();
    let (capacity, allocatable) = (api_list(&it.capacity), api_list(&it.allocatable()));
    let labels = json!({
        "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        CAPACITY: "on-demand", "topology.kubernetes.io/zone": format!("{REGION}a"), TYPE: instance_type,
        "karpenter.k8s.aws/instance-family": instance_type.split('.').next(),
        "karpenter.k8s.aws/instance-cpu": processors.to_string(),
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
    let condition = |of: &str| json!({"type": of, "status": "True", "reason": of, "message": "", "lastTransitionTime": "2025-12-01T00:00:00Z"});
    let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Consolidatable", "Ready"]
        .map(condition)
        .to_vec();
    snapshot.node_claims.push(read(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels,
            "creationTimestamp": "2025-12-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"},
        "status": {"providerID": format!("aws:///{name}"), "nodeName": name, "capacity": capacity,
            "allocatable": allocatable, "conditions": conditions}})));
    snapshot.nodes.push(read(json!({
        "metadata": {"name": name, "uid": format!("node-{name}"), "labels": labels, "resourceVersion": "1"},
        "spec": {"providerID": format!("aws:///{name}")},
        "status": {"capacity": capacity, "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}]}})));
    snapshot.pods.push(read(json!({
        "metadata": {"name": format!("pod-{name}"), "namespace": "default", "uid": format!("pod-{name}"),
            "annotations": annotations, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": true}]},
        "spec": {"nodeName": name, "containers": [
            {"name": "main", "resources": {"requests": {"cpu": format!("{}", processors - 1)}}}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:30Z"}})));
}

/// What a pass decides at one minute past midnight, with so much left of the plan.
fn decided(snapshot: &mut Snapshot, left: f64) -> (Plan, Timestamp) {
    let mut rules = Rules::default();
    rules.disruption.validation = SignedDuration::ZERO;
    let mut cycle = Cycle::new(Arc::clone(&CATALOGUE), rules);
    cycle.learn(Some(Arc::new(plan_of(left))));
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    // What is written first holds the rest up once.
    let _ = cycle.pass(snapshot, 1, now);
    (cycle.pass(snapshot, 1, now).plan, now)
}

/// The claims that are replaced.
fn replaced(plan: &Plan) -> Vec<String> {
    let claims = plan.actions.iter().filter_map(|action| match action {
        Action::CreateClaim(claim) => claim.metadata.annotations.as_ref()?.get("veneer.io/replaces"),
        _ => None,
    });
    claims.map(|text| text.replace("underutilized 1 ", "")).collect()
}

#[test]
fn a_replacement_that_is_refused_for_want_of_commitment_spends_nothing() {
    let mut snapshot = cluster(&m5(), &[4, 8]);
    add_node(&mut snapshot, "big", "c5.2xlarge", 8, &json!({}));
    add_node(&mut snapshot, "small", "c5.xlarge", 4, &json!({}));
    assert_eq!(replaced(&decided(&mut snapshot.clone(), 1.0).0), ["big", "small"]);
    // An m5.2xlarge costs 0.384 and an m5.xlarge 0.192 dollars an hour.
    assert_eq!(replaced(&decided(&mut snapshot.clone(), 0.2).0), ["small"]);
    assert_eq!(replaced(&decided(&mut snapshot, 0.1).0), [""; 0]);
}

#[test]
fn a_refused_replacement_leaves_the_other_timers_alone() {
    let mut snapshot = cluster(&m5(), &[4]);
    add_node(&mut snapshot, "refused", "c5.xlarge", 4, &json!({}));
    let protected = json!({"karpenter.sh/do-not-disrupt": "90s"});
    add_node(&mut snapshot, "protected", "c5.xlarge", 4, &protected);
    let (plan, now) = decided(&mut snapshot, 0.1);
    assert_eq!(replaced(&plan), [""; 0]);
    // Its pod started half a minute ago.
    let until = now + SignedDuration::from_secs(60);
    assert_eq!(plan.look_again, Some(until));
}

/// How many more nodes of four processors spares may have in a pool with these limits.
fn room(limits: &[(&str, &str)], replicas: Option<i64>, claims: &[Arc<NodeClaim>]) -> usize {
    let snapshot = Snapshot {
        node_claims: claims.to_vec(),
        ..cluster(&m5(), &[4])
    };
    let mut market = Market::new(Arc::clone(&CATALOGUE));
    market.update(&snapshot);
    let mut pool = NodePool::clone(&snapshot.node_pools[0]);
    pool.spec.replicas = replicas;
    let limits = limits.iter();
    pool.spec.limits = limits
        .map(|(resource, most)| ((*resource).to_owned(), Quantity((*most).to_owned())))
        .collect();
    let capacity = BTreeMap::from([("cpu".to_owned(), Quantity("4".to_owned()))]);
    LimitHeadroom::of_pool(&pool, &snapshot, &mut market).room_for(&pool, &capacity)
}

#[test]
fn what_is_on_its_way_out_leaves_its_room_to_spares() {
    let with_capacity = |name: &str, kind: Kind| {
        let mut one = NodeClaim::clone(&claim(name, kind));
        let status = one.status.get_or_insert_default();
        status.capacity.insert("cpu".to_owned(), Quantity("4".to_owned()));
        Arc::new(one)
    };
    let running = with_capacity("running", Kind::Running("on-demand"));
    let deleting = with_capacity("deleting", Kind::Deleting);
    let limits = [("cpu", "8")];
    assert_eq!(room(&limits, None, std::slice::from_ref(&running)), 1);
    assert_eq!(room(&limits, None, &[running.clone(), deleting.clone()]), 1);
    // In a pool of a fixed size they count until they are gone.
    let limits = [("nodes", "2")];
    assert_eq!(room(&limits, Some(1), std::slice::from_ref(&running)), 1);
    assert_eq!(room(&limits, Some(1), &[running, deleting]), 0);
}
