//! Consolidation beside a real API server, scheduler, controller manager and kwok: an overlay moves a pool over and back,
//! one node at a time, no pod is ever without a place and no PodDisruptionBudget is violated; and it lives through
//! being killed.
//!
//! `VENEER_TEST_NODES=50` and `VENEER_TEST_KILLS=100` make these the long versions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail so"
)]

mod bed;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bed::{Bed, expect};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use veneer_api::{NodeClaim, NodeOverlay};

const TYPES: [&str; 2] = ["m6i.xlarge", "r6i.xlarge"];

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A pool of m6i.xlarge or r6i.xlarge, one pod to each node, of which one may be missing at a time.
fn bed(nodes: usize) -> Bed {
    let mut bed = Bed::start();
    bed.deadline = Duration::from_secs(60 + 20 * nodes as u64);
    bed.pool(
        "default",
        json!({"requirements": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": TYPES}]}),
    );
    bed.patch_pool(
        "default",
        json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
            "budgets": [{"nodes": "1"}]}}}),
    );
    let pdbs: Api<PodDisruptionBudget> = Api::default_namespaced(bed.client.clone());
    let pdb = json!({"metadata": {"name": "work"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "work"}}}});
    bed.runtime
        .block_on(pdbs.create(&PostParams::default(), &serde_json::from_value(pdb).unwrap()))
        .unwrap();
    bed.deployment("work", nodes, json!({"cpu": "3"}), json!({}));
    bed
}

fn overlay() -> Value {
    json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "r6i"}, "spec": {
        "priceAdjustment": "-50%",
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r6i.xlarge"]}]}})
}

fn remove_overlay(bed: &Bed) {
    let overlays: Api<NodeOverlay> = Api::all(bed.client.clone());
    bed.runtime
        .block_on(overlays.delete("r6i", &DeleteParams::default()))
        .unwrap();
}

fn types(bed: &Bed) -> Vec<String> {
    let nodes: Vec<Node> = bed.list();
    let mut types: Vec<String> = nodes
        .iter()
        .map(|node| node.labels()["node.kubernetes.io/instance-type"].clone())
        .collect();
    types.sort();
    types
}

fn is_disrupted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints
        .into_iter()
        .any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// What must hold at every moment.
fn in_order(bed: &Bed, nodes: usize) -> Result<(), String> {
    for pdb in bed.try_list::<PodDisruptionBudget>()? {
        let status = pdb.status.unwrap_or_default();
        let (healthy, desired) = (
            status.current_healthy.unwrap_or(0),
            status.desired_healthy.unwrap_or(0),
        );
        assert!(
            healthy >= desired,
            "{healthy} of {desired} healthy: the budget is violated"
        );
    }
    let all: Vec<Node> = bed.try_list()?;
    let going = all
        .iter()
        .filter(|node| is_disrupted(node) || node.metadata.deletion_timestamp.is_some());
    let going = going.count();
    // One that is ending beside the next that begins: the budget counts it until its instance ends.
    assert!(going <= 2, "{going} nodes go at once");
    assert!(all.len() <= nodes + 2, "{} nodes for {nodes} pods", all.len());
    Ok(())
}

/// Waits until all nodes are of one type, looking at every moment.
fn moves_to(bed: &Bed, nodes: usize, wanted: &str) -> Duration {
    bed.eventually(&format!("all nodes become {wanted}"), || {
        in_order(bed, nodes)?;
        expect((types(bed), vec![wanted.to_owned(); nodes]))
    })
}

/// Pods that the scheduler could not place since `began`.
fn refused_since(bed: &Bed, before: &BTreeSet<String>) -> Vec<String> {
    let events: Vec<Event> = bed.list();
    let failed = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("FailedScheduling"));
    failed
        .filter(|event| !before.contains(&event.name_any()))
        .filter_map(|event| event.note)
        .collect()
}

/// What the API server's audit says about a move of `nodes` pods, each `times` over: every one left by an eviction that
/// was granted, none was deleted by us, and the next was asked to leave only after the one before had a place again.
/// Says how long the longest was without one.
fn audited(bed: &Bed, nodes: usize, times: usize) -> Duration {
    let mut without: Option<Timestamp> = None;
    let mut longest = Duration::ZERO;
    let (mut evicted, mut bound) = (BTreeSet::new(), 0);
    for event in bed.cluster.pod_movements() {
        let (what, pod) = (&event["objectRef"]["subresource"], &event["objectRef"]["name"]);
        let agent = event["userAgent"].as_str().unwrap();
        assert!(
            event["verb"] == "create" || !agent.contains("veneer"),
            "deleted without asking its budget: {event}"
        );
        if event["responseStatus"]["code"] != 201 {
            continue;
        }
        let at: Timestamp = event["stageTimestamp"].as_str().unwrap().parse().unwrap();
        match what.as_str() {
            Some("eviction") => {
                assert!(agent.contains("veneer"), "{event}");
                assert!(evicted.insert(pod.to_string()), "{pod} was evicted twice");
                assert_eq!(without, None, "{pod} was evicted while another had no place");
                without = Some(at);
            }
            Some("binding") => {
                bound += 1;
                if let Some(since) = without.take() {
                    longest = longest.max(at.duration_since(since).unsigned_abs());
                }
            }
            _ => {}
        }
    }
    assert_eq!(evicted.len(), nodes * times, "as many evictions as moves");
    assert_eq!(bound, nodes * (times + 1), "as many places as pods");
    assert_eq!(without, None, "the last one has a place");
    longest
}

fn failures(bed: &Bed) -> BTreeSet<String> {
    let events: Vec<Event> = bed.list();
    let failed = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("FailedScheduling"));
    failed.map(ResourceExt::name_any).collect()
}

#[test]
fn an_overlay_moves_a_pool_over_and_back_one_node_at_a_time() {
    let nodes = number("VENEER_TEST_NODES", 3);
    let bed = bed(nodes);
    let _running = bed.veneer(&[]);
    bed.all_run(nodes);
    bed.eventually("the pool is there and its budget is met", || {
        expect((types(&bed), vec!["m6i.xlarge".to_owned(); nodes]))?;
        let healthy =
            |pdb: &PodDisruptionBudget| pdb.status.as_ref().and_then(|status| status.current_healthy);
        let pdbs: Vec<PodDisruptionBudget> = bed.try_list()?;
        expect((
            pdbs.iter().map(healthy).collect(),
            vec![i32::try_from(nodes).ok()],
        ))
    });
    let before = failures(&bed);
    bed.create(overlay());
    let over = moves_to(&bed, nodes, "r6i.xlarge");
    bed.all_run(nodes);
    bed.consistent();
    remove_overlay(&bed);
    let back = moves_to(&bed, nodes, "m6i.xlarge");
    bed.all_run(nodes);
    bed.consistent();
    assert_eq!(
        refused_since(&bed, &before),
        [""; 0],
        "every pod had a place to go to"
    );
    let longest = audited(&bed, nodes, 2);
    // Nothing moves without a reason.
    let claims = |bed: &Bed| {
        bed.list::<NodeClaim>()
            .iter()
            .map(ResourceExt::name_any)
            .collect::<BTreeSet<_>>()
    };
    let settled = claims(&bed);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(claims(&bed), settled, "it flaps");
        std::thread::sleep(Duration::from_millis(200));
    }
    eprintln!(
        "{nodes} nodes: over in {over:?}, back in {back:?}; the audit of {} evictions: never two pods without a place, \
         none for more than {longest:?}",
        2 * nodes
    );
}

#[test]
fn killing_it_during_consolidation_leaves_nothing_doubled_or_tainted() {
    let kills = number("VENEER_TEST_KILLS", 10);
    let nodes = 3;
    let mut bed = bed(nodes);
    // A kill in the middle of an eviction leaves the pod as evicted in the status of its disruption budget, and Kubernetes
    // allows no other eviction until it has waited two minutes for the pod to go.
    bed.deadline += Duration::from_secs(120);
    let mut seed = 0x5eed_u64;
    let mut is_discounted = false;
    for kill in 0..kills {
        let _running = bed.veneer(&["--kwok-launch-delay", "50ms"]);
        if kill % 3 == 1 {
            if is_discounted {
                remove_overlay(&bed);
            } else {
                bed.create(overlay());
            }
            is_discounted = !is_discounted;
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // The experiment is about when, so this waits by the clock.
        std::thread::sleep(Duration::from_millis(200 + seed % 2300));
    }
    let _running = bed.veneer(&[]);
    bed.all_run(nodes);
    let wanted = if is_discounted { "r6i.xlarge" } else { "m6i.xlarge" };
    bed.eventually("all nodes are of the cheaper type", || {
        expect((types(&bed), vec![wanted.to_owned(); nodes]))
    });
    bed.consistent();
    bed.eventually("no node stays tainted", || {
        let tainted = bed.list::<Node>().into_iter().filter(is_disrupted);
        expect((tainted.count(), 0))
    });
    let pods: Vec<Pod> = bed.list();
    let places: BTreeSet<String> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    assert_eq!(places.len(), nodes, "one pod to each node");
}
