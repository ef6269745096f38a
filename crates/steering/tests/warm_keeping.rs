//! How the number of spares is kept, pass by pass: what is told, what may be spent on several pools, what moves from a colder
//! tier to a hotter one, and what a Karpenter beside it says about pools.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;

use cluster::{Cluster, catalogue};
use serde_json::{Value, json};
use veneer_api::labels::veneer;
use veneer_engine::plan::{Action, Plan, label, name, node_pool_of};
use veneer_steering::warm::Beside;

fn spec(pools: &[&str], more: Value) -> Value {
    let mut spec = json!({"targetNodePools": pools});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

/// How many claims a plan makes, by Overprovisioner and pool.
fn made(plan: &Plan) -> BTreeMap<(String, String), usize> {
    let mut made = BTreeMap::new();
    for action in &plan.actions {
        if let Action::CreateClaim(claim) = action {
            let owner = label(&claim.metadata, veneer::OVERPROVISIONER).unwrap_or_default();
            let key = (owner.to_owned(), node_pool_of(&claim.metadata).to_owned());
            *made.entry(key).or_default() += 1;
        }
    }
    made
}

fn with_two_pools() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool("a", |_| {});
    cluster.pool("b", |_| {});
    cluster
}

/// How many spares each pool has.
fn in_pools(cluster: &Cluster, owner: &str) -> [usize; 2] {
    let spares = cluster.spares(owner);
    ["a", "b"].map(|pool| {
        let of_pool = spares
            .iter()
            .filter(|claim| node_pool_of(&claim.metadata) == pool);
        of_pool.count()
    })
}

#[test]
fn only_what_is_removed_is_told_as_removed() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", spec(&["default"], json!({"sizing": {"count": 2}})));
    cluster.settle();
    cluster.settle();
    assert!(!cluster.reasons().contains(&"SpareRemoved"));
    cluster.overprovisioner("warm", spec(&["default"], json!({"sizing": {"count": 1}})));
    cluster.settle();
    let told: Vec<&String> = cluster
        .events
        .iter()
        .filter(|event| event.reason == "SpareRemoved")
        .map(|event| &event.message)
        .collect();
    let kept = name(&cluster.spares("warm")[0].metadata).to_owned();
    let gone = cluster.created.iter().find(|claim| **claim != kept).unwrap();
    assert_eq!(
        told,
        [&format!("NodePool default: one spare too many each: {gone}")]
    );
}

#[test]
fn what_may_be_spent_is_for_all_pools_together() {
    let mut cluster = with_two_pools();
    // A small spot node costs 0.04 an hour in zone-a and 0.05 in zone-b, and there are as many in both.
    let wish = |count: usize, spend: &str| {
        spec(
            &["a", "b"],
            json!({"sizing": {"count": count}, "maxHourlySpend": spend}),
        )
    };
    cluster.overprovisioner("warm", wish(2, "0.13"));
    let plan = cluster.decide();
    let of = |pool: &str| ("warm".to_owned(), pool.to_owned());
    assert_eq!(made(&plan), [(of("a"), 2), (of("b"), 1)].into(), "in one pass");
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    cluster.settle();
    assert_eq!(in_pools(&cluster, "warm"), [2, 1]);
    assert_eq!(
        cluster.condition("warm", "SizingValid").split(':').next(),
        Some("False SpendLimitReached NodePool b")
    );
    // What was spent on the first pool is not there for the second one.
    cluster.overprovisioner("warm", wish(2, "0.09"));
    cluster.settle();
    assert_eq!(in_pools(&cluster, "warm"), [2, 0]);
    cluster.overprovisioner("warm", wish(2, "0.18"));
    cluster.settle();
    assert_eq!(in_pools(&cluster, "warm"), [2, 2]);
    assert_eq!(
        cluster.condition("warm", "SizingValid"),
        "True SizingValid ",
        "exactly enough is enough"
    );
}

#[test]
fn fewer_spares_for_less_money_are_no_fault() {
    let mut cluster = Cluster::with_pool();
    let wish = |count: usize, spend: &str| {
        spec(
            &["default"],
            json!({"sizing": {"count": count}, "maxHourlySpend": spend}),
        )
    };
    cluster.overprovisioner("warm", wish(3, "1"));
    cluster.settle();
    // Two are wanted and two can be paid; the third goes because nobody wants it.
    cluster.overprovisioner("warm", wish(2, "0.08"));
    let plan = cluster.decide();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert!(cluster.condition("warm", "SizingValid").starts_with("True"));
    // Now one of those that are wanted has to go.
    cluster.overprovisioner("warm", wish(2, "0.04"));
    let plan = cluster.decide();
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    assert!(
        cluster
            .condition("warm", "SizingValid")
            .starts_with("False SpendLimitReached")
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
}

#[test]
fn what_a_hotter_tier_takes_is_replaced_in_the_colder_one_at_once() {
    let mut cluster = with_two_pools();
    cluster.overprovisioner(
        "cold",
        spec(&["a", "b"], json!({"sizing": {"count": 2}, "state": "Stopped"})),
    );
    cluster.settle();
    assert_eq!(in_pools(&cluster, "cold"), [2, 2]);
    let before: Vec<String> = cluster
        .spares("cold")
        .iter()
        .map(|claim| name(&claim.metadata).to_owned())
        .collect();
    cluster.overprovisioner("hot", spec(&["a"], json!({"sizing": {"count": 1}})));
    let plan = cluster.decide();
    assert_eq!(
        made(&plan),
        [(("cold".to_owned(), "a".to_owned()), 1)].into(),
        "one, for the one that starts; none for the hotter tier or the other pool"
    );
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    let hot = &cluster.status("hot").node_pools[0];
    assert_eq!(
        (hot.desired, hot.ready, hot.warming, hot.stopped),
        (1, 0, 1, 0),
        "it is on its way"
    );
    cluster.settle();
    assert_eq!(in_pools(&cluster, "hot"), [1, 0]);
    assert_eq!(in_pools(&cluster, "cold"), [2, 2]);
    assert!(before.contains(&name(&cluster.spares("hot")[0].metadata).to_owned()));
    let kept = cluster
        .spares("cold")
        .iter()
        .filter(|claim| {
            let known = before.iter().any(|one| one == name(&claim.metadata));
            known && node_pool_of(&claim.metadata) == "b"
        })
        .count();
    assert_eq!(kept, 2, "the other pool's are the same");
}

#[test]
fn beside_a_karpenter_its_word_about_a_pool_counts() {
    let mut cluster = Cluster::with_pool();
    cluster.snapshot.node_classes.clear();
    cluster.overprovisioner("warm", spec(&["default"], json!({"sizing": {"count": 2}})));
    let says = |cluster: &mut Cluster, status: &str| {
        let condition = json!({"type": "Ready", "status": status, "reason": "Because",
            "message": "the class is broken", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        cluster.edit_pool("default", |pool| {
            pool.status = Some(serde_json::from_value(json!({"conditions": [condition]})).unwrap());
        });
    };
    for (status, count) in [("False", 0), ("True", 2), ("Unknown", 2)] {
        says(&mut cluster, status);
        let mut snapshot = cluster.snapshot.clone();
        let plan = Beside::new(catalogue()).pass(&mut snapshot, cluster.now);
        assert_eq!(made(&plan).values().sum::<usize>(), count, "Ready={status}");
    }
}
