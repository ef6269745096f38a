//! A kube-scheduler that refuses nodes for a reason that no object names (`addedAffinity` of its configuration): pods get
//! a node that it accepts, and one that accepts none costs one node at a time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod bed;

use std::time::Duration;

use bed::{Bed, expect};
use serde_json::json;
use veneer_api::NodeClaim;
use veneer_testbed::Options;

/// A cluster whose scheduler accepts only nodes with the label `accepted`, at the request rates of a real cluster. It has a
/// node without that label and with room for everything.
fn bed() -> Bed {
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "accepted", "operator": "Exists"}]}]}});
    let mut bed = Bed::with(Options::nodes().default_rates().added_affinity(affinity));
    bed.deadline = Duration::from_secs(180);
    bed.node_class();
    bed.create(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "old", "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": "old", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}}));
    bed
}

/// Claims that are not on their way out.
fn claims(bed: &Bed) -> Result<Vec<NodeClaim>, String> {
    let mut claims: Vec<NodeClaim> = bed.try_list()?;
    claims.retain(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(claims)
}

#[test]
fn pods_run_on_new_nodes_where_the_scheduler_refuses_the_old_ones() {
    let bed = bed();
    bed.pool("default", json!({}));
    bed.patch_pool(
        "default",
        json!({"spec": {"template": {"metadata": {"labels": {"accepted": "yes"}}}}}),
    );
    let _veneer = bed.veneer(&[]);
    bed.deployment("web", 6, json!({"cpu": "500m", "memory": "256Mi"}), json!({}));
    let took = bed.all_run(6);
    println!("6 pods run after {:.1} s", took.as_secs_f64());
    let said = bed.said("web", "SchedulerDisagrees");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("node old"), "{said:?}");
    assert!(
        said[0].contains("didn't match scheduler-enforced node affinity"),
        "{said:?}"
    );
}

#[test]
fn a_scheduler_that_refuses_every_node_costs_one_at_a_time() {
    let bed = bed();
    bed.pool("default", json!({}));
    let _veneer = bed.veneer(&[]);
    bed.deployment("web", 6, json!({"cpu": "500m", "memory": "256Mi"}), json!({}));
    let mut most = 0;
    let created = || bed.log().matches("created NodeClaim").count();
    // Until the second one: it comes 20 s after the first has not helped.
    let took = bed.eventually("a second node is tried", || {
        most = most.max(claims(&bed)?.len());
        expect((created(), 2))
    });
    assert!(most <= 1, "{most} nodes at a time");
    assert!(took > Duration::from_secs(35), "the second after {took:?}");
    assert_eq!(bed.running().unwrap(), 0);
}
