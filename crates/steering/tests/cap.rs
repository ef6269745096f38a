//! The cap inside a run: launches of one pass share what is left of a commitment.
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
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use support::REGION;
use veneer_api::{NodeClaim, Pod};
use veneer_engine::cluster::CommitmentHeadroom;
use veneer_engine::plan::{Action, Plan, Snapshot, name};
use veneer_engine::provision::Market;
use veneer_steering::cap::{self, CommitmentBalances};
use veneer_steering::commitments::{Doubt, Kind, Ledger, Target};
use veneer_steering::cycle::{Cycle, Rules};

/// A pool of machines with four processors of two families, and three pods that need one each.
fn snapshot(target: &Target) -> Snapshot {
    let pods = ["a", "b", "c"].map(|name| {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
        .unwrap();
        Arc::new(pod)
    });
    Snapshot {
        pods: pods.to_vec(),
        ..cluster(target, &[4])
    }
}

/// Ten are owned of a commitment, and so much is left.
fn ten_of(target: &Target, left: Result<f64, Doubt>) -> Ledger {
    ledger([(target.clone(), 10.0, left)])
}

/// The first choice of each launch, when `left` of a commitment is left.
fn launched_with(target: &Target, left: Result<f64, Doubt>) -> Vec<String> {
    let catalogue = Arc::clone(&CATALOGUE);
    let mut cycle = Cycle::new(catalogue, Rules::default());
    cycle.learn(Some(Arc::new(ten_of(target, left))));
    let mut snapshot = snapshot(target);
    let mut now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let _ = cycle.pass(&mut snapshot, 1, now);
    now += SignedDuration::from_secs(2);
    for action in cycle.pass(&mut snapshot, 1, now).plan.actions {
        if let Action::CreateClaim(mut claim) = action {
            claim.metadata.uid.clone_from(&claim.metadata.name);
            snapshot.node_claims.push(Arc::from(claim));
        }
    }
    assert_eq!(snapshot.node_claims.len(), 3);
    let actions = cycle.pass(&mut snapshot, 1, now).plan.actions;
    let first = actions.into_iter().filter_map(|action| match action {
        Action::Launch { options, .. } => Some(options[0].instance_type.clone()),
        _ => None,
    });
    let mut first: Vec<String> = first.collect();
    first.sort();
    first
}

/// The same for a plan for m5, in dollars per hour.
fn launched(left: Result<f64, Doubt>) -> Vec<String> {
    launched_with(&m5(), left)
}

#[test]
fn only_as_many_launches_as_the_plan_covers_are_drawn_to_it() {
    // An m5.xlarge costs 0.192 and a c5.xlarge 0.17 dollars an hour.
    assert_eq!(launched(Ok(10.0)), ["m5.xlarge", "m5.xlarge", "m5.xlarge"]);
    assert_eq!(launched(Ok(0.2)), ["c5.xlarge", "c5.xlarge", "m5.xlarge"]);
    assert_eq!(launched(Ok(0.4)), ["c5.xlarge", "m5.xlarge", "m5.xlarge"]);
    assert_eq!(launched(Ok(0.0)), ["c5.xlarge", "c5.xlarge", "c5.xlarge"]);
    let doubt = Doubt::Incomplete("nobody knows".to_owned());
    assert_eq!(
        launched(Err(doubt)),
        ["m5.xlarge", "m5.xlarge", "m5.xlarge"],
        "doubt changes nothing"
    );
}

#[test]
fn only_as_many_launches_as_there_are_reservations_are_drawn_to_them() {
    let launched = |left| launched_with(&Target::reserved("m5.xlarge", REGION), Ok(left));
    assert_eq!(launched(3.0), ["m5.xlarge", "m5.xlarge", "m5.xlarge"]);
    assert_eq!(launched(2.0), ["c5.xlarge", "m5.xlarge", "m5.xlarge"]);
    assert_eq!(launched(0.9), ["c5.xlarge", "c5.xlarge", "c5.xlarge"]);
}

/// What a search may draw for replacements of m5.xlarge at its price with the overlay: how many there is enough for.
fn covered(target: &Target, left: Result<f64, Doubt>) -> Option<usize> {
    let mut market = Market::new(Arc::clone(&CATALOGUE));
    let snapshot = snapshot(target);
    market.update(&snapshot);
    let known = CommitmentBalances::new(
        &cap::charged(&snapshot, &market),
        &snapshot,
        &ten_of(target, left),
    );
    let mut headroom = CommitmentHeadroom::new(Some(&known));
    let overlay = name(&snapshot.overlays[0].metadata);
    assert_eq!(headroom.need("another", 0.192), None);
    let need = headroom.need(overlay, 0.192)?;
    let mut count = 0;
    while headroom.has(need) {
        headroom.take(need);
        count += 1;
    }
    Some(count)
}

#[test]
fn as_many_replacements_are_covered_as_something_is_left_for() {
    assert_eq!(covered(&m5(), Ok(0.5)), Some(2));
    // An m5.xlarge costs $0.192/h.
    assert_eq!(covered(&m5(), Ok(0.2)), Some(1));
    assert_eq!(covered(&m5(), Ok(0.1)), Some(0));
    let doubt = Doubt::Incomplete("nobody knows".to_owned());
    assert_eq!(covered(&m5(), Err(doubt)), None, "doubt changes nothing");
    let reservation = |left| covered(&Target::reserved("m5.xlarge", REGION), Ok(left));
    assert_eq!(reservation(2.0), Some(2));
    assert_eq!(reservation(1.0), Some(1));
    assert_eq!(reservation(0.0), Some(0));
}

/// Claims of running machines, oldest first.
fn running(machines: &[(&str, &str, &str)]) -> Snapshot {
    let claims = machines.iter().enumerate().map(|(at, (name, instance_type, capacity_type))| {
        let claim = json!({"metadata": {"name": name, "creationTimestamp": format!("2025-12-01T00:00:{at:02}Z"),
            "labels": {"node.kubernetes.io/instance-type": instance_type, "karpenter.sh/capacity-type": capacity_type}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": []}});
        Arc::new(serde_json::from_value(claim).unwrap())
    });
    Snapshot {
        node_claims: claims.collect(),
        ..Snapshot::default()
    }
}

fn paid_for(ledger: &Ledger, machines: &[(&str, &str, &str)]) -> Vec<String> {
    let market = Market::new(Arc::clone(&CATALOGUE));
    let snapshot = running(machines);
    let machines = cap::charged(&snapshot, &market);
    cap::paid_for(&machines, ledger).into_iter().collect()
}

#[test]
fn a_plan_that_is_used_up_still_pays_for_what_it_covers() {
    // An m5.xlarge takes at least 28 % of its $0.192/h: two are covered, and a little of a third.
    let known = ledger([(m5(), 0.11, Ok(0.0))]);
    let (m5, on_demand) = ("m5.xlarge", "on-demand");
    let machines = [
        ("a", m5, on_demand),
        ("b", "c5.xlarge", on_demand),
        ("c", m5, "spot"),
        ("d", m5, on_demand),
        ("e", m5, on_demand),
        ("f", m5, on_demand),
    ];
    assert_eq!(paid_for(&known, &machines), ["a", "d", "e"]);
}

#[test]
fn a_reservation_pays_for_as_many_as_it_has() {
    let known = ledger([(Target::reserved("m5.large", REGION), 1.0, Ok(0.0))]);
    let machines = [
        ("a", "m5.xlarge", "on-demand"),
        ("b", "m5.large", "on-demand"),
        ("c", "m5.large", "on-demand"),
    ];
    assert_eq!(paid_for(&known, &machines), ["b"]);
}

#[test]
fn doubt_counts_as_paid_for() {
    let doubt = || Doubt::QueryFailed("no answer".to_owned());
    let machines = [
        ("a", "m5.xlarge", "on-demand"),
        ("b", "c5.xlarge", "on-demand"),
        ("c", "m5.xlarge", "spot"),
    ];
    assert_eq!(
        paid_for(&ten_of(&m5(), Err(doubt())), &machines),
        ["a"],
        "about one plan"
    );
    let silent = Ledger {
        books: BTreeMap::from([(Kind::ComputeSavingsPlan, Err(doubt()))]),
        age: None,
    };
    assert_eq!(paid_for(&silent, &machines), ["a", "b"], "about everything");
}

#[test]
fn kinds_of_commitments_are_used_one_after_the_other() {
    let known = ledger([
        (Target::reserved("m5.xlarge", REGION), 1.5, Ok(0.0)),
        (Target::compute(), 0.06, Ok(0.0)),
    ]);
    // The reservation pays for all of `a`, so the plan is left for `b`, and a little of it for `c`: half a reservation is none.
    let machines = [
        ("a", "m5.xlarge", "on-demand"),
        ("b", "c5.xlarge", "on-demand"),
        ("c", "m5.xlarge", "on-demand"),
        ("d", "m5.xlarge", "on-demand"),
    ];
    assert_eq!(paid_for(&known, &machines), ["a", "b", "c"]);
}

#[test]
fn what_a_list_leaves_out_counts_as_paid_for() {
    let mut known = ten_of(&m5(), Ok(0.0));
    let machines = [("a", "c5.xlarge", "on-demand")];
    assert!(paid_for(&known, &machines).is_empty());
    let Some(Ok(book)) = known.books.get_mut(&Kind::Ec2InstanceSavingsPlan) else {
        unreachable!()
    };
    book.unlisted = Some(Doubt::Incomplete("a plan without a family".to_owned()));
    assert_eq!(paid_for(&known, &machines), ["a"]);
}

/// What is launched for a claim of the pool, beside other claims, with so much left of a plan for m5.
fn first_choice(left: f64, launching: &[serde_json::Value], others: &[serde_json::Value]) -> String {
    let mut market = Market::new(Arc::clone(&CATALOGUE));
    let mut snapshot = snapshot(&m5());
    market.update(&snapshot);
    let read = |claim: &serde_json::Value| -> Arc<NodeClaim> {
        let mut claim = claim.clone();
        claim["metadata"]["labels"]["karpenter.sh/nodepool"] = json!("default");
        claim["spec"]["nodeClassRef"] =
            json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        Arc::new(serde_json::from_value(claim).unwrap())
    };
    let requirements = &snapshot.node_pools[0].spec.template.spec.requirements;
    let wanted =
        json!({"metadata": {"name": "wanted", "labels": {}}, "spec": {"requirements": requirements}});
    let mut plan = Plan::default();
    for claim in launching.iter().chain([&wanted]).map(read) {
        snapshot.node_claims.push(Arc::clone(&claim));
        let options = market.options(&claim, 60);
        assert!(options.len() > 1 || name(&claim.metadata) != "wanted");
        plan.push(Action::Launch { claim, options });
    }
    snapshot.node_claims.extend(others.iter().map(read));
    cap::apply(&mut plan, &snapshot, &ten_of(&m5(), Ok(left)), &market);
    match plan.actions.last() {
        Some(Action::Launch { options, .. }) => options[0].instance_type.clone(),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_plan_that_covers_a_part_makes_that_part_cheaper() {
    // At five per cent of its list price, an m5.xlarge is as dear as a c5.xlarge when about $0.0232/h of it are covered.
    assert_eq!(first_choice(0.0225, &[], &[]), "c5.xlarge");
    assert_eq!(first_choice(0.0235, &[], &[]), "m5.xlarge");
}

#[test]
fn what_runs_or_comes_already_uses_a_plan_up() {
    let claim = |name: &str, labels: serde_json::Value, requirements: serde_json::Value| {
        json!({"metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": {"requirements": requirements}})
    };
    let of = |capacity_type: &str| {
        let labels = json!({"node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": capacity_type});
        claim("other", labels, json!([]))
    };
    let requires = |capacity: &str, types: &str| {
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": capacity, "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": types, "values": ["m5.2xlarge", "m5.xlarge"]}]);
        claim("other", json!({}), requirements)
    };
    let with = |others: &[serde_json::Value]| first_choice(0.2, &[], others);
    assert_eq!(with(&[]), "m5.xlarge");
    assert_eq!(with(&[of("on-demand")]), "c5.xlarge");
    assert_eq!(with(&[of("spot")]), "m5.xlarge");
    let mut going = of("on-demand");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:40Z");
    assert_eq!(with(&[going]), "m5.xlarge", "it gives its part back");
    assert_eq!(
        with(&[requires("In", "In")]),
        "c5.xlarge",
        "as what it may become"
    );
    assert_eq!(with(&[requires("NotIn", "In")]), "m5.xlarge");
    assert_eq!(
        with(&[requires("In", "NotIn")]),
        "m5.xlarge",
        "nobody knows what it becomes"
    );
    // What is launched in the same plan is charged as such, not as something that is there, too.
    let first = requires("In", "In");
    assert_eq!(first_choice(0.4, std::slice::from_ref(&first), &[]), "m5.xlarge");
    assert_eq!(first_choice(0.2, &[first], &[]), "c5.xlarge");
}
