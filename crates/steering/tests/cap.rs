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
