//! The cap inside a run: launches of one pass share what is left of a commitment.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use support::REGION;
use veneer_api::NodePool;
use veneer_engine::catalogue::aws;
use veneer_engine::plan::{Action, NodeClass, Snapshot};
use veneer_engine::provision::Market;
use veneer_steering::cap;
use veneer_steering::commitments::{Balance, Book, Doubt, Kind, Ledger, Target};
use veneer_steering::cycle::{Cycle, Rules};
use veneer_steering::overlays::{Naming, Pricing, Rendering, Weights, cost_aware};

/// A pool of machines with four processors of two families, and three pods that need one each.
fn snapshot() -> Snapshot {
    let rendering = Rendering {
        weights: Weights::default(),
        naming: Naming::default(),
        pricing: Pricing::Ordered {
            adjustment: "-95%".to_owned(),
        },
        disabled: false,
        family_label: "karpenter.k8s.aws/instance-family".to_owned(),
        only_pools: None,
    };
    let pool: NodePool = serde_json::from_value(
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "uid": "pool"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["c5", "m5"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["4"]}],
                "expireAfter": "Never"}}}}),
    )
    .unwrap();
    let pods = ["a", "b", "c"].map(|name| {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
        .unwrap();
        Arc::new(pod)
    });
    Snapshot {
        pods: pods.to_vec(),
        node_pools: vec![Arc::new(pool)],
        overlays: vec![Arc::new(cost_aware(&Target::family("m5", REGION), &rendering))],
        node_classes: vec![NodeClass {
            group: "karpenter.k8s.aws".to_owned(),
            kind: "EC2NodeClass".to_owned(),
            name: "default".to_owned(),
            not_ready: None,
            is_deleting: false,
        }],
        ..Snapshot::default()
    }
}

fn ledger(left: Result<f64, Doubt>) -> Ledger {
    let balance = left.map(|left| Balance {
        owned: 10.0,
        left,
        utilization: Some(50.0),
    });
    let book = Book {
        data_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        balances: BTreeMap::from([(Target::family("m5", REGION), balance)]),
        unlisted: None,
    };
    Ledger {
        books: BTreeMap::from([(Kind::Ec2InstanceSavingsPlan, Ok(book))]),
        age: None,
    }
}

/// The first choice of each launch, when `left` dollars per hour of a plan for m5 are left.
fn launched(left: Result<f64, Doubt>) -> Vec<String> {
    let catalogue = Arc::new(aws::region(REGION).unwrap().catalogue);
    let mut cycle = Cycle::new(catalogue, Rules::default());
    cycle.learn(Some(Arc::new(ledger(left))));
    let mut snapshot = snapshot();
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
    let market = Market::new(Arc::new(aws::region(REGION).unwrap().catalogue));
    let snapshot = running(machines);
    cap::paid_for(&snapshot, ledger, &market).into_iter().collect()
}

#[test]
fn a_plan_that_is_used_up_still_pays_for_what_it_covers() {
    let mut known = ledger(Ok(0.0));
    let Some(Ok(book)) = known.books.get_mut(&Kind::Ec2InstanceSavingsPlan) else {
        unreachable!()
    };
    // An m5.xlarge takes at least 28 % of its $0.192/h: two are covered, and a little of a third.
    book.balances.insert(
        Target::family("m5", REGION),
        Ok(Balance {
            owned: 0.11,
            left: 0.0,
            utilization: Some(100.0),
        }),
    );
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
    let book = Book {
        data_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        balances: BTreeMap::from([(
            Target::reserved("m5.large", REGION),
            Ok(Balance {
                owned: 1.0,
                left: 0.0,
                utilization: None,
            }),
        )]),
        unlisted: None,
    };
    let known = Ledger {
        books: BTreeMap::from([(Kind::ReservedInstance, Ok(book))]),
        age: None,
    };
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
        paid_for(&ledger(Err(doubt())), &machines),
        ["a"],
        "about one plan"
    );
    let silent = Ledger {
        books: BTreeMap::from([(Kind::ComputeSavingsPlan, Err(doubt()))]),
        age: None,
    };
    assert_eq!(paid_for(&silent, &machines), ["a", "b"], "about everything");
}
