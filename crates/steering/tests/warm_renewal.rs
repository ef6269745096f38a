//! How spares are renewed, what schedules and wrong objects do, and spares beside a Karpenter.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/spares.rs"]
mod spares;

use std::collections::BTreeSet;

use cluster::{Cluster, read};
use serde_json::json;
use spares::{count, names, spec};
use veneer_api::NodeClaim;
use veneer_api::labels::{karpenter, veneer};
use veneer_engine::plan::{Action, Target, label};
use veneer_engine::provision::Market;
use veneer_steering::warm::{Memory, Mode, Spares, keep};

#[test]
fn spares_expire_one_at_a_time() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| {
        pool.spec.template.spec.expire_after = "24h".to_owned();
    });
    cluster.overprovisioner("warm", count(3));
    cluster.settle();
    let old: BTreeSet<String> = names(&cluster.spares("warm")).into_iter().collect();
    cluster.pass_time(24 * 3600 - 1);
    cluster.settle();
    assert_eq!(
        names(&cluster.spares("warm"))
            .into_iter()
            .collect::<BTreeSet<_>>(),
        old
    );
    cluster.pass_time(1);
    cluster.joins = false;
    cluster.settle();
    let old_left = |cluster: &Cluster| {
        let left = names(&cluster.spares("warm"));
        left.iter().filter(|one| old.contains(*one)).count()
    };
    assert_eq!(
        old_left(&cluster),
        2,
        "the next one waits until its replacement is ready"
    );
    assert_eq!(cluster.spares("warm").len(), 3);
    cluster.let_join();
    cluster.settle();
    assert_eq!(old_left(&cluster), 0);
    assert_eq!(cluster.spares("warm").len(), 3);
    assert!(cluster.reasons().contains(&"SpareRenewed"));
    let expired = cluster
        .calls
        .iter()
        .filter(|call| *call == "delete expired")
        .count();
    assert_eq!(expired, 3);
}

#[test]
fn hibernated_spares_are_renewed_after_sixty_days_and_drifted_ones_at_once() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "cold",
        spec(json!({"sizing": {"count": 1}, "state": "Hibernated"})),
    );
    cluster.settle();
    let old = names(&cluster.spares("cold"));
    cluster.pass_time(60 * 24 * 3600 - 1);
    cluster.settle();
    assert_eq!(names(&cluster.spares("cold")), old);
    let due = cluster.decide().look_again.unwrap();
    assert!(due.duration_since(cluster.now).as_millis() <= 1000, "{due}");
    cluster.pass_time(1);
    cluster.settle();
    let new = names(&cluster.spares("cold"));
    assert_ne!(new, old);

    // A running one that drifted is left alone until it is used; a stopped one would start as what nobody wants.
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let warm = names(&cluster.spares("warm"));
    cluster.edit_pool("default", |pool| {
        let labels = &mut pool.spec.template.metadata.labels;
        labels.insert("example.com/team".to_owned(), "blue".to_owned());
    });
    cluster.settle();
    assert_ne!(names(&cluster.spares("cold")), new);
    assert_eq!(
        label(&cluster.spares("cold")[0].metadata, "example.com/team"),
        Some("blue")
    );
    assert_eq!(names(&cluster.spares("warm")), warm);
}

#[test]
fn a_scheduled_override_opens_and_closes_on_time() {
    let mut cluster = Cluster::with_pool();
    // The cluster starts on Monday at midnight.
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "scheduledOverrides": [
            {"schedule": "0 9 * * mon-fri", "duration": "8h", "sizing": {"count": 4}}]})),
    );
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    let status = cluster.status("warm");
    assert_eq!(status.active_override, None);
    assert_eq!(
        status.next_override.unwrap().start.0.to_string(),
        "2026-01-05T09:00:00Z"
    );
    cluster.pass_time(9 * 3600 - 1);
    cluster.settle();
    let plan = cluster.decide();
    assert_eq!(plan.look_again.unwrap().to_string(), "2026-01-05T09:00:00Z");
    assert_eq!(cluster.spares("warm").len(), 1);
    cluster.pass_time(1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 4);
    let active = cluster.status("warm").active_override.unwrap();
    assert_eq!((active.index, active.schedule.as_str()), (0, "0 9 * * mon-fri"));
    assert_eq!(active.end.0.to_string(), "2026-01-05T17:00:00Z");
    cluster.pass_time(8 * 3600 - 1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 4);
    cluster.pass_time(1);
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    assert_eq!(cluster.status("warm").active_override, None);
    let overrides: Vec<&str> = cluster
        .reasons()
        .into_iter()
        .filter(|reason| reason.starts_with("Override"))
        .collect();
    assert_eq!(overrides, ["OverrideStarted", "OverrideEnded"]);
}

#[test]
fn overlapping_overrides_are_pointed_out_once() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 1}, "scheduledOverrides": [
            {"schedule": "0 9 * * *", "duration": "8h", "sizing": {"count": 2}},
            {"schedule": "0 16 * * *", "duration": "2h", "sizing": {"count": 3}}]})),
    );
    cluster.settle();
    let expected = "True OverridesOverlap spec.scheduledOverrides[1] and [0] are both in force at 2026-01-05T16:00:00Z; \
                    [0] counts, since it comes first; change their times or their order if that is not wanted";
    assert_eq!(cluster.condition("warm", "SizingValid"), expected);
    cluster.pass_time(24 * 3600);
    cluster.settle();
    assert_eq!(
        cluster.condition("warm", "SizingValid"),
        expected,
        "looked for once"
    );
}

#[test]
fn objects_that_the_door_would_refuse_get_a_condition_all_the_same() {
    let cases = [
        (
            spec(json!({"sizing": {}})),
            "spec.sizing: neither count nor percentage is set; set one of them",
        ),
        (
            spec(json!({"sizing": {"count": 1, "percentage": 1}})),
            "spec.sizing: both count and percentage are set; remove one of them",
        ),
        (
            spec(json!({"sizing": {"count": -1}})),
            "spec.sizing.count: -1 is negative; expected a number of nodes from 0",
        ),
        (
            spec(json!({"sizing": {"percentage": 101}})),
            "spec.sizing.percentage: expected 0 to 100, found 101",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "state": "Sleeping"})),
            "spec.state: unknown state \"Sleeping\"; expected one of Running, Stopped, Hibernated",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "strategy": "KeepFull"})),
            "spec.strategy: unknown strategy \"KeepFull\"; expected one of KeepEmpty, KeepMinimum",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "maxHourlySpend": "much"})),
            "spec.maxHourlySpend: expected dollars per hour, such as \"12.50\", found \"much\"",
        ),
        (
            spec(json!({"sizing": {"count": 1}, "maxHourlySpend": "-1"})),
            "spec.maxHourlySpend: expected dollars per hour, such as \"12.50\", found \"-1\"",
        ),
        (
            json!({"targetNodePools": ["default", "default"], "sizing": {"count": 1}}),
            "spec.targetNodePools: \"default\" is listed twice; remove one of them",
        ),
        (
            json!({"targetNodePools": [], "sizing": {"count": 1}}),
            "spec.targetNodePools: no NodePool is listed; add one",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 31 2 *", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].schedule \"0 9 31 2 *\" never comes: none of its months has such a day; change the day of month or the month",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 * * fri-mon", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].schedule: day of week \"fri-mon\": the range \"fri-mon\" runs backwards; write it as two, such as \"fri-sat,sun-mon\" for \"fri-mon\"",
        ),
        (
            spec(
                json!({"sizing": {"count": 1}, "scheduledOverrides": [{"schedule": "0 9 * * *", "timeZone": "Mars/Base", "duration": "8h", "sizing": {"count": 1}}]}),
            ),
            "spec.scheduledOverrides[0].timeZone \"Mars/Base\" is unknown; expected an IANA name, such as \"UTC\" or \"Europe/Berlin\"",
        ),
    ];
    for (spec, expected) in cases {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner("wrong", spec);
        cluster.settle();
        assert_eq!(
            cluster.condition("wrong", "SizingValid"),
            format!("False Invalid {expected}")
        );
        assert_eq!(
            cluster.condition("wrong", "Ready"),
            format!("False Invalid {expected}")
        );
        assert_eq!(cluster.created.len(), 0, "{expected}");
    }
}

#[test]
fn static_pools_and_spares_do_not_fight() {
    let mut cluster = Cluster::new();
    cluster.pool("default", |pool| pool.spec.replicas = Some(2));
    cluster.overprovisioner("warm", spec(json!({"sizing": {"percentage": 50}})));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 1);
    assert_eq!(cluster.snapshot.nodes.len(), 3);
    cluster.pass_time(600);
    cluster.settle();
    assert_eq!(cluster.created.len(), 3);
}

#[test]
fn daemons_on_a_spare_do_not_make_it_used() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let node = names(&cluster.spares("warm"))[0].clone();
    cluster.snapshot.pods.push(read(json!({
        "metadata": {"name": "agent", "namespace": "default", "uid": "uid-agent",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d"}]},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    })));
    cluster.settle();
    assert_eq!(cluster.used("warm").len(), 0);
    cluster.overprovisioner("warm", count(0));
    cluster.settle();
    assert_eq!(cluster.spares("warm").len(), 0);
}

#[test]
fn what_a_crash_left_half_done_is_finished() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner(
        "warm",
        spec(json!({"sizing": {"count": 2}, "strategy": "KeepMinimum"})),
    );
    cluster.settle();
    // The node was opened, and the claim was not written.
    cluster.pod("a", "1500m");
    let plan = cluster.decide();
    let first = plan.actions.into_iter().next().unwrap();
    assert!(matches!(first, Action::PatchNode { .. }));
    cluster.act(first);
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (1, 1));
    // The claim was written, and the node was not opened.
    cluster.pod("b", "1500m");
    let plan = cluster.decide();
    let second = plan
        .actions
        .into_iter()
        .find(|action| matches!(action, Action::PatchClaim { .. }));
    cluster.act(second.unwrap());
    cluster.settle();
    assert_eq!((cluster.spares("warm").len(), cluster.used("warm").len()), (0, 2));
    assert!(cluster.node_of("b").is_some());
    assert_eq!(cluster.created.len(), 2);
}

/// What is decided beside a Karpenter, for the cluster as it is.
fn beside_karpenter(cluster: &Cluster) -> Vec<Action> {
    let mut market = Market::new(cluster::catalogue());
    market.update(&cluster.snapshot);
    let mut spares = Spares::of(&cluster.snapshot);
    keep(
        &cluster.snapshot,
        &mut spares,
        &mut market,
        &mut Memory::default(),
        Mode::Companion,
        cluster.now,
    )
    .actions
}

#[test]
fn beside_a_karpenter_spares_keep_their_capacity_type_and_are_protected() {
    let mut cluster = Cluster::with_pool();
    cluster.overprovisioner("warm", count(2));
    let actions = beside_karpenter(&cluster);
    let claims: Vec<&NodeClaim> = actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateClaim(claim) => Some(&**claim),
            _ => None,
        })
        .collect();
    assert_eq!(claims.len(), 2);
    for claim in &claims {
        assert_eq!(label(&claim.metadata, karpenter::CAPACITY_TYPE), None);
        assert_eq!(label(&claim.metadata, veneer::OVERPROVISIONED), Some("true"));
        let annotations = claim.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[karpenter::DO_NOT_DISRUPT], "true");
        assert_eq!(claim.spec.taints[0].key, "karpenter.sh/overprovisioned");
    }
    // Once it has joined and a pod needs it, the protection goes with the taint.
    let claim = claims[0].clone();
    cluster.act(Action::CreateClaim(Box::new(claim)));
    cluster.snapshot.overprovisioners.clear();
    cluster.overprovisioner("warm", count(1));
    cluster.settle();
    let node = names(&cluster.spares("warm"))[0].clone();
    let remove_option = |labels: &mut Option<std::collections::BTreeMap<String, String>>| {
        labels.as_mut().unwrap().remove(veneer::PURCHASE_OPTION);
    };
    let target = Target {
        name: node.clone(),
        ..Target::default()
    };
    cluster.edit_claim(&target, |claim| remove_option(&mut claim.metadata.labels));
    cluster.edit_node(&target, |node| remove_option(&mut node.metadata.labels));
    cluster.pod("a", "1");
    cluster.settle();
    assert_eq!(cluster.node_of("a"), Some(node.clone()));
    for metadata in [&cluster.used("warm")[0].metadata, &cluster.node(&node).metadata] {
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[karpenter::DO_NOT_DISRUPT], "false");
    }
}

#[test]
fn beside_a_karpenter_stopped_spares_are_refused_with_what_to_use_instead() {
    for state in ["Stopped", "Hibernated"] {
        let mut cluster = Cluster::with_pool();
        cluster.overprovisioner("cold", spec(json!({"sizing": {"count": 1}, "state": state})));
        for action in beside_karpenter(&cluster) {
            assert!(!matches!(action, Action::CreateClaim(_)), "{action}");
            cluster.act(action);
        }
        assert_eq!(
            cluster.condition("cold", "Ready"),
            format!(
                "False Invalid spec.state: {state} spares need Veneer to launch instances itself, and here Karpenter does; \
                 use state Running, or run Veneer with --mode standalone"
            )
        );
    }
}
