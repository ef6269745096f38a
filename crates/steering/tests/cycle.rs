//! One pass of standalone mode: what is decided together, what waits for what, and for how long anything is believed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/cluster.rs"]
mod cluster;

use std::sync::Arc;

use cluster::{Cluster, catalogue};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;
use veneer_engine::plan::{Action, Plan, is_spare, name};

fn ordered(plan: &Plan, what: impl Fn(&Action) -> bool) -> usize {
    plan.actions.iter().filter(|action| what(action)).count()
}

fn creates(plan: &Plan) -> usize {
    ordered(plan, |action| matches!(action, Action::CreateClaim(_)))
}

/// The reasons for which claims are deleted.
fn deletes(plan: &Plan) -> Vec<&'static str> {
    let reasons = plan.actions.iter().filter_map(|action| match action {
        Action::DeleteClaim { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}

/// A node that ran a pod and is empty for long enough to go.
fn with_an_empty_node() -> Cluster {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    cluster.settle();
    cluster.remove_pod("one");
    cluster.settle();
    cluster.pass_time(40);
    // Consolidatable is written first; what goes follows from that.
    let plan = cluster.decide();
    assert_eq!(deletes(&plan), [""; 0]);
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    cluster
}

#[test]
fn places_that_pods_were_sent_to_count_for_twenty_seconds() {
    let mut cluster = Cluster::with_pool();
    cluster.joins = false;
    cluster.pod("one", "1");
    let plan = cluster.decide();
    assert_eq!(creates(&plan), 1);
    let until = cluster.now + SignedDuration::from_secs(20);
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    // The claim is launched, and then there is nothing to do.
    for _ in 0..3 {
        let plan = cluster.decide();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    let claim = cluster.created[0].clone();
    assert_eq!(
        cluster.snapshot.nominations,
        [(claim.clone(), until)].into(),
        "and the pod is not decided about again meanwhile"
    );
    // It is decided about again then, and the claim on its way is still the place.
    cluster.pass_time(21);
    let plan = cluster.decide();
    assert_eq!(creates(&plan), 0);
    assert!(cluster.snapshot.nominations[&claim] > until);
}

#[test]
fn nodes_that_nobody_is_sent_to_are_named_nowhere() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("one", "1");
    cluster.settle();
    cluster.pass_time(1);
    cluster.decide();
    assert!(cluster.snapshot.nominations.is_empty(), "the pod has come");
}

#[test]
fn what_goes_waits_for_what_was_ordered_anew() {
    let mut cluster = with_an_empty_node();
    // The new pool has no status: that is written first.
    cluster.pool("other-1", |_| {});
    let plan = cluster.decide();
    assert!(!plan.actions.is_empty());
    assert_eq!((deletes(&plan), plan.look_again), (vec![], Some(cluster.now)));
    // The same again holds nothing up.
    let plan = cluster.decide();
    assert!(!plan.actions.is_empty());
    assert_eq!(deletes(&plan), ["empty"]);
}

#[test]
fn events_hold_nothing_up() {
    let mut cluster = with_an_empty_node();
    // Nothing can be launched for it, and that is told.
    cluster.pod("huge", "9000");
    let plan = cluster.decide();
    let tells = ordered(&plan, |action| matches!(action, Action::Announce(_)));
    assert!(tells > 0, "{:?}", plan.actions);
    assert_eq!(deletes(&plan), ["empty"]);
}

#[test]
fn what_goes_waits_five_seconds_at_most() {
    let mut cluster = with_an_empty_node();
    let mut waited = Vec::new();
    for number in 0..8 {
        cluster.pool(&format!("other-{number}"), |_| {});
        waited.push(deletes(&cluster.decide()).is_empty());
        cluster.pass_time(1);
    }
    // Five seconds after the first it is decided, and then the time begins anew.
    assert_eq!(waited, [true, true, true, true, true, false, true, true]);
}

#[test]
fn nothing_goes_while_something_new_is_made() {
    let mut cluster = with_an_empty_node();
    cluster.pod_with("big", "7", json!({}));
    let plan = cluster.decide();
    assert_eq!((creates(&plan), deletes(&plan)), (1, vec![]));
    assert_eq!(plan.look_again, Some(cluster.now));
}

#[test]
fn pods_come_before_spares() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "spare",
        json!({"targetNodePools": ["default"], "sizing": {"count": 1}}),
    );
    cluster.pod("one", "1");
    let plan = cluster.decide();
    let made: Vec<bool> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(is_spare(&claim.metadata)),
            _ => None,
        })
        .collect();
    assert_eq!(made, [false], "both would count the same room below a limit");
    let told = ordered(
        &plan,
        |action| matches!(action, Action::Announce(one) if one.reason == "SpareLaunched"),
    );
    assert_eq!(told, 0);
    assert_eq!(plan.look_again, Some(cluster.now));
    plan.actions.into_iter().for_each(|action| cluster.act(action));
    let plan = cluster.decide();
    assert_eq!(creates(&plan), 1, "now the spare");
}

#[test]
fn a_spare_in_use_without_pods_is_kept_for_twenty_seconds() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "spare",
        json!({"targetNodePools": ["default"], "sizing": {"count": 1}}),
    );
    cluster.settle();
    let spare = name(&cluster.spares("spare")[0].metadata).to_owned();
    cluster.pod("one", "1");
    // The pod is given the spare; the process ends before the pod comes.
    for _ in 0..2 {
        let plan = cluster.decide();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    assert_eq!(cluster.used("spare").len(), 1);
    let expected = |cluster: &mut Cluster| -> Vec<String> {
        let plan = cluster.decide();
        drop(plan);
        let places = cluster.snapshot.nominations.iter();
        places
            .filter(|(_, until)| **until > cluster.now)
            .map(|(place, _)| place.clone())
            .collect()
    };
    assert!(expected(&mut cluster).contains(&spare));
    cluster.remove_pod("one");
    cluster.pass_time(10);
    assert!(
        expected(&mut cluster).contains(&spare),
        "whoever it was for may still come"
    );
    cluster.pass_time(11);
    assert!(!expected(&mut cluster).contains(&spare));
}

#[test]
fn another_catalogue_is_traded_with() {
    let mut cluster = Cluster::with_pool();
    let other = catalogue();
    cluster.cycle.trade(Arc::clone(&other));
    assert!(Arc::ptr_eq(cluster.cycle.market().catalogue(), &other));
}

#[test]
fn why_pods_wait_is_known_until_they_do_not() {
    let mut cluster = Cluster::with_pool();
    cluster.pod("huge", "9000");
    cluster.decide();
    let waiting: Vec<&String> = cluster.cycle.pending().keys().collect();
    assert_eq!(waiting, ["default/huge"]);
    cluster.remove_pod("huge");
    cluster.decide();
    assert!(cluster.cycle.pending().is_empty());
}

#[test]
fn an_open_batch_says_when_to_look_again() {
    let mut cluster = Cluster::with_pool();
    cluster.wait_for_pods();
    // Until the pool has its status.
    for _ in 0..3 {
        let plan = cluster.decide();
        plan.actions.into_iter().for_each(|action| cluster.act(action));
    }
    cluster.pod("one", "1");
    let began: Timestamp = cluster.now + SignedDuration::from_millis(1);
    let plan = cluster.decide();
    assert_eq!(creates(&plan), 0);
    assert_eq!(plan.look_again, Some(began + SignedDuration::from_secs(1)));
    cluster.pass_time(1);
    assert_eq!(creates(&cluster.decide()), 1);
}
