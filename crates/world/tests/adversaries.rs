//! Tenants that make everything costly: others are decided about in the same pass, and a pass takes a bounded number of
//! steps. Steps are counted, so nothing here depends on the machine.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

#[path = "support/crowd.rs"]
mod crowd;

use std::sync::Arc;

use crowd::{Size, admit, announcements, catalogue, cycle, nominated_in_shop, snapshot, start};
use veneer_engine::cluster::Index;
use veneer_engine::plan::Snapshot;
use veneer_engine::provision::demand;
use veneer_steering::cycle::Pass;
use veneer_world::adversary::{Kind, Scale, Tenant, tenant};

/// A step takes a few nanoseconds: that is well below a second.
const MOST_STEPS: u64 = 120_000_000;

const SIZE: Size = Size {
    nodes: 60,
    pods_per_node: 11,
    pending: 40,
};

fn of_kind(kind: Kind, scale: Scale) -> Tenant {
    let number = Kind::ALL.iter().position(|one| *one == kind).unwrap();
    tenant(1, number, scale)
}

/// One pass over a cluster, and whether the same cluster gives the same.
fn pass(snapshot: &Snapshot) -> Pass {
    let catalogue = catalogue();
    let look = || {
        let mut seen = snapshot.clone();
        cycle(&catalogue).pass(&mut seen, 1, start())
    };
    let (one, other) = (look(), look());
    assert_eq!(one.steps, other.steps);
    assert_eq!(format!("{:?}", one.plan), format!("{:?}", other.plan));
    one
}

#[test]
fn pods_of_other_namespaces_are_decided_about_in_the_first_pass() {
    for distinct in [false, true] {
        let mut snapshot = snapshot(&catalogue(), SIZE);
        let scale = Scale {
            pods: 2_000,
            terms: 50,
            distinct,
        };
        admit(&mut snapshot, &of_kind(Kind::PreferredAntiAffinity, scale), false);
        let pass = pass(&snapshot);
        let held: Vec<&String> = pass.held.iter().collect();
        println!("distinct {distinct}: {} steps, held {held:?}", pass.steps);
        assert_eq!(nominated_in_shop(&pass), SIZE.pending, "distinct {distinct}");
        assert!(pass.steps < MOST_STEPS, "distinct {distinct}: {}", pass.steps);
        if distinct {
            assert_eq!(held, ["tenant-3"]);
            let said: Vec<_> = announcements(&pass)
                .filter(|event| event.reason == "NamespaceHeldBack")
                .collect();
            assert_eq!(said.len(), 1);
            assert_eq!(
                (said[0].subject.kind, said[0].subject.target.name.as_str()),
                ("Namespace", "tenant-3")
            );
        }
    }
}

/// What cannot be dropped is left for later where it costs too much.
#[test]
fn demands_that_cannot_be_dropped_do_not_hold_up_others_either() {
    let mut snapshot = snapshot(&catalogue(), SIZE);
    let scale = Scale {
        pods: 2_000,
        terms: 60,
        distinct: true,
    };
    admit(&mut snapshot, &of_kind(Kind::StrangeTopology, scale), false);
    admit(&mut snapshot, &of_kind(Kind::Exclusions, scale), false);
    let pass = pass(&snapshot);
    println!("{} steps, held {:?}", pass.steps, pass.held);
    assert_eq!(nominated_in_shop(&pass), SIZE.pending);
    assert!(pass.steps < MOST_STEPS, "{}", pass.steps);
}

#[test]
fn two_hundred_tenants_take_a_bounded_number_of_steps() {
    let mut snapshot = snapshot(&catalogue(), SIZE);
    for number in 0..200 {
        let scale = Scale {
            pods: 4,
            terms: 60 + number,
            distinct: number % 3 == 0,
        };
        admit(&mut snapshot, &tenant(11, number, scale), number % 10 == 0);
    }
    let pass = pass(&snapshot);
    println!("{} steps, held {:?}", pass.steps, pass.held);
    assert_eq!(nominated_in_shop(&pass), SIZE.pending);
    assert!(pass.steps < MOST_STEPS, "{}", pass.steps);
}

/// Nodes with pods of such a tenant cost a bounded number of steps too, when it is asked whether they can go.
#[test]
fn consolidation_takes_a_bounded_number_of_steps() {
    let mut snapshot = snapshot(
        &catalogue(),
        Size {
            pending: 0,
            pods_per_node: 3,
            ..SIZE
        },
    );
    let scale = Scale {
        pods: 600,
        terms: 50,
        distinct: true,
    };
    let tenant = of_kind(Kind::PreferredAntiAffinity, scale);
    let before = snapshot.pods.len();
    admit(&mut snapshot, &tenant, false);
    for (at, pod) in snapshot.pods.iter_mut().skip(before).enumerate() {
        let pod = Arc::make_mut(pod);
        pod.spec.as_mut().unwrap().node_name = Some(format!("node-{}", at % SIZE.nodes));
        pod.status.as_mut().unwrap().phase = Some("Running".to_owned());
        let owner = serde_json::json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
    }
    assert!(demand(&snapshot, &Index::new(&snapshot)).is_empty());
    let catalogue = catalogue();
    let mut cycle = cycle(&catalogue);
    let mut most = 0;
    for second in 0..20 {
        let now = start() + k8s_openapi::jiff::SignedDuration::from_secs(second);
        let pass = cycle.pass(&mut snapshot, 1, now);
        most = most.max(pass.steps);
    }
    println!("{most} steps");
    assert!(most > 0, "nothing was tried");
    assert!(most < MOST_STEPS, "{most}");
}
