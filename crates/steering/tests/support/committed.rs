//! A cluster whose only NodePool may use commitments, and what is left of them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::json;
use veneer_engine::catalogue::aws;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::plan::{NodeClass, Snapshot};
use veneer_steering::commitments::{Balance, Book, Certainty, Doubt, Ledger, Target};
use veneer_steering::overlays::cost_aware;

use crate::support::{REGION, ordered, rendering};

pub(crate) static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(aws::region(REGION).unwrap().catalogue));

/// A plan for m5.
pub(crate) fn m5() -> Target {
    Target::family("m5", REGION)
}

/// What is owned and left of commitments, as of midnight.
pub(crate) fn ledger<const N: usize>(balances: [(Target, f64, Result<f64, Doubt>); N]) -> Ledger {
    let mut books = BTreeMap::new();
    for (target, owned, left) in balances {
        let book = books.entry(target.kind).or_insert_with(|| {
            Ok(Book {
                data_at: "2026-01-01T00:00:00Z".parse().unwrap(),
                balances: BTreeMap::new(),
                unlisted: None,
            })
        });
        let balance = left.map(|left| Balance {
            owned,
            left,
            utilization: Some(50.0),
            certainty: Certainty::Exact,
        });
        let Ok(book) = book else { unreachable!() };
        book.balances.insert(target, balance);
    }
    Ledger { books, age: None }
}

/// A pool of on-demand machines of two families with so many processors, and a discount for what a commitment covers.
pub(crate) fn cluster(target: &Target, processors: &[u32]) -> Snapshot {
    let processors: Vec<String> = processors.iter().map(ToString::to_string).collect();
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "pool", "generation": 1},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["c5", "m5"]},
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": processors}],
            "expireAfter": "Never"}},
            "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}});
    Snapshot {
        node_pools: vec![Arc::new(serde_json::from_value(pool).unwrap())],
        overlays: vec![Arc::new(cost_aware(target, &rendering(ordered())))],
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
