//! Stopped and hibernated spares of `veneer run --mode standalone` on a real API server: they leave the cluster, start
//! for pods, join and open, and a process that is killed outright at any of these steps leaves nothing behind that the
//! next one does not finish.
//!
//! `VENEER_TEST_KILLS=100` makes the random part long.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod bed;

use std::collections::BTreeSet;
use std::time::Duration;

use bed::{Bed, Process, expect};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use veneer_api::labels::{karpenter, veneer};
use veneer_api::{ConditionStatus, NodeClaim, Overprovisioner, find_condition};
use veneer_engine::plan::{Power, is_spare, is_to_be_stopped, is_used_spare};

/// A cluster with one pool of one type.
fn bed() -> Bed {
    let mut bed = Bed::start();
    bed.deadline = Duration::from_secs(45);
    bed.pool(
        "default",
        json!({"requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}),
    );
    bed
}

fn overprovisioner(bed: &Bed, state: &str) {
    bed.create(json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner",
        "metadata": {"name": state.to_lowercase()},
        "spec": {"targetNodePools": ["default"], "state": state, "strategy": "KeepMinimum", "sizing": {"count": 2}}}));
}

/// Everything at once, and slow enough to be killed in between.
fn run(bed: &Bed) -> Process {
    bed.veneer(&["--kwok-start-delay", "1s"])
}

fn pod(bed: &Bed, name: &str) {
    bed.create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.example/main:1",
            "resources": {"requests": {"cpu": "1500m"}}}]}}),
    );
}

fn remove(bed: &Bed, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(bed.client.clone());
    let now = DeleteParams::default().grace_period(0);
    bed.runtime.block_on(pods.delete(name, &now)).unwrap();
}

fn names(bed: &Bed) -> BTreeSet<String> {
    bed.list::<NodeClaim>()
        .iter()
        .map(ResourceExt::name_any)
        .collect()
}

fn is_recorded(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find_condition(conditions, "Registered")
        .is_some_and(|one| one.status == ConditionStatus::False && one.reason == "Stopped")
}

/// Waits until this many spares are stopped, the status says so, and no node of a spare is in the cluster.
fn stopped(bed: &Bed, count: usize) {
    bed.eventually("the spares are stopped", || {
        let claims: Vec<NodeClaim> = bed.try_list()?;
        let spares: Vec<&NodeClaim> = claims.iter().filter(|one| is_spare(&one.metadata)).collect();
        let off = spares
            .iter()
            .filter(|one| is_to_be_stopped(one) && is_recorded(one));
        expect((off.count(), count))?;
        expect((spares.len(), count))?;
        let nodes: Vec<Node> = bed.try_list()?;
        let closed = nodes.iter().filter(|node| is_spare(&node.metadata));
        expect((closed.count(), 0))?;
        let objects: Vec<Overprovisioner> = bed.try_list()?;
        let status = objects[0].status.clone().unwrap_or_default();
        let said: i32 = status.node_pools.iter().map(|pool| pool.stopped).sum();
        expect((usize::try_from(said).unwrap_or_default(), count))
    });
}

/// Waits until a claim is as asked for, and gives its name.
fn found(bed: &Bed, what: &str, is: impl Fn(&NodeClaim) -> bool) -> String {
    let mut name = String::new();
    bed.eventually(what, || {
        let claims: Vec<NodeClaim> = bed.try_list()?;
        let one = claims.iter().find(|claim| is(claim)).ok_or("none")?;
        name = one.name_any();
        Ok(())
    });
    name
}

/// Waits until a pod runs, and gives the name of its node.
fn bound(bed: &Bed, pod: &str) -> String {
    let mut node = String::new();
    bed.eventually("the pod runs", || {
        let pods: Vec<Pod> = bed.try_list()?;
        let one = pods.into_iter().find(|one| one.name_any() == pod).ok_or("none")?;
        let phase = one.status.and_then(|status| status.phase).unwrap_or_default();
        node = one.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        expect((phase.as_str(), "Running"))
    });
    node
}

/// What a used spare looks like: open, and bought as it was.
fn is_open(bed: &Bed, name: &str) {
    bed.eventually("the used spare is a node like any other", || {
        let nodes: Vec<Node> = bed.try_list()?;
        let node = nodes.iter().find(|node| node.name_any() == name).ok_or("none")?;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let taints: Vec<String> = taints
            .unwrap_or_default()
            .into_iter()
            .map(|one| one.key)
            .collect();
        expect((taints, Vec::new()))?;
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        expect((label(karpenter::CAPACITY_TYPE).as_str(), "on-demand"))?;
        expect((label(veneer::OVERPROVISIONED).as_str(), "used"))
    });
}

#[test]
fn stopped_and_hibernated_spares_live_through_kills_between_stop_and_record_and_between_start_and_join() {
    let bed = bed();
    for (state, power) in [("Stopped", Power::Stop), ("Hibernated", Power::Hibernate)] {
        overprovisioner(&bed, state);
        let running = run(&bed);
        // Killed when a claim says that its instance shall stop, and nothing says yet that it did.
        found(&bed, "a spare is to be stopped", |claim| {
            Power::of(claim) == power
        });
        drop(running);
        let made = names(&bed);
        let running = run(&bed);
        stopped(&bed, 2);
        assert_eq!(names(&bed), made, "{state}: the same spares");
        // The process that knew them is gone; the next one starts one of them for a pod, and is killed before it joins.
        drop(running);
        let running = run(&bed);
        pod(&bed, "first");
        let started = found(&bed, "a spare starts", |claim| is_used_spare(&claim.metadata));
        let nodes = bed.list::<Node>().len();
        drop(running);
        assert_eq!(nodes, 0, "{state}: killed before the join");
        let running = run(&bed);
        assert_eq!(
            bound(&bed, "first"),
            started,
            "{state}: the one that was started for it"
        );
        is_open(&bed, &started);
        stopped(&bed, 1);
        assert_eq!(names(&bed), made, "{state}: nothing was launched for the pod");
        // Without a kill in between.
        pod(&bed, "second");
        let second = bound(&bed, "second");
        assert!(made.contains(&second) && second != started, "{state}: {second}");
        is_open(&bed, &second);
        // Their nodes go like any other, and the stock fills up.
        remove(&bed, "first");
        remove(&bed, "second");
        bed.eventually("the used nodes go", || {
            let left = names(&bed);
            expect((left.intersection(&made).count(), 0))
        });
        stopped(&bed, 2);
        // Nobody wants them any more.
        let objects: Api<Overprovisioner> = Api::all(bed.client.clone());
        let (name, params) = (state.to_lowercase(), DeleteParams::default());
        bed.runtime.block_on(objects.delete(&name, &params)).unwrap();
        bed.empty();
        drop(running);
    }
}

#[test]
fn kills_at_random_points_neither_lose_nor_double_stopped_spares() {
    let kills: u64 = std::env::var("VENEER_TEST_KILLS").map_or(6, |text| text.parse().unwrap());
    let mut seed: u64 = std::env::var("VENEER_TEST_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    let bed = bed();
    overprovisioner(&bed, "Stopped");
    for kill in 0..kills {
        let running = run(&bed);
        match kill % 4 {
            1 | 2 => pod(&bed, &format!("pod-{kill}")),
            3 => {
                remove(&bed, &format!("pod-{}", kill - 1));
                remove(&bed, &format!("pod-{}", kill - 2));
            }
            _ => {}
        }
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // The experiment is about when, so this waits by the clock.
        std::thread::sleep(Duration::from_millis(300 + seed % 2_500));
        drop(running);
    }
    let running = run(&bed);
    for pod in bed.list::<Pod>() {
        bound(&bed, &pod.name_any());
    }
    let pods = bed.list::<Pod>().len();
    let mut used = 0;
    bed.eventually("only nodes with pods are in use", || {
        let claims: Vec<NodeClaim> = bed.try_list()?;
        let (spares, others): (Vec<_>, Vec<_>) = claims.iter().partition(|one| is_spare(&one.metadata));
        used = others.iter().filter(|one| is_used_spare(&one.metadata)).count();
        expect((others.len(), pods))?;
        expect((spares.len(), 2_usize.saturating_sub(used)))
    });
    stopped(&bed, 2_usize.saturating_sub(used));
    println!("{kills} kills: {pods} pods, {used} of their nodes were spares");
    drop(running);
}
