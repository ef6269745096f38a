//! `veneer run --mode standalone --provider kwok` as a process, beside a real API server, scheduler, controller manager
//! and kwok: pending pods run on what was predicted, within limits, and nodes go when they are empty.
//!
//! `VENEER_TEST_PODS=2000` makes this the long version.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod bed;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bed::{Bed, expect};
use futures::StreamExt;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use support::veneer;
use veneer_api::{NodeClaim, NodePool};
use veneer_engine::quantity::Quantity;
use veneer_testbed::{Part, workload};

/// What `veneer simulate` would launch for the cluster as it is: pool, type, capacity type and zone.
fn predicted(bed: &Bed) -> BTreeMap<String, usize> {
    let catalogue = veneer_testbed::karpenter_instance_types().unwrap();
    let kubeconfig = bed.cluster.kubeconfig_path();
    let (kubeconfig, catalogue) = (kubeconfig.to_str().unwrap(), catalogue.to_str().unwrap());
    let said = veneer(&[
        "simulate",
        "--kubeconfig",
        kubeconfig,
        "--catalog",
        catalogue,
        "-o",
        "json",
    ]);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for claim in said.json()["newNodeClaims"].as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let cheapest = &claim["cheapest"];
        let what = format!(
            "{} {} {} {}",
            text(&claim["nodePool"]),
            text(&cheapest["instanceType"]),
            text(&cheapest["capacityType"]),
            text(&cheapest["zone"])
        );
        *expected.entry(what).or_default() += 1;
    }
    expected
}

#[test]
fn mixed_deployments_run_on_what_was_predicted_and_their_nodes_go_when_they_are_empty() {
    let wanted: usize = std::env::var("VENEER_TEST_PODS").map_or(100, |text| text.parse().unwrap());
    let mut bed = Bed::bare();
    bed.deadline += Duration::from_millis(200) * u32::try_from(wanted).unwrap();
    let work = workload::mixed(wanted);
    let after = SignedDuration::from_secs(4);
    for mut object in work.setting {
        if object["kind"] == "NodePool" {
            object["spec"]["disruption"]["consolidateAfter"] = json!("4s");
        }
        bed.create(object);
    }
    for object in &work.deployments {
        bed.create(object.clone());
    }
    bed.deployment("strange", 1, json!({"example.com/unknown": "1"}), json!({}));
    bed.all_refused(work.pods + 1);
    let predicted = predicted(&bed);

    // That these launch nothing is the controller's own finding.
    bed.pool(
        "lost",
        json!({"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gone"}}),
    );
    bed.pool(
        "impossible",
        json!({"requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["no-such-type"]}]}),
    );
    let running = bed.veneer(&[]);
    let took = bed.all_run(work.pods);
    bed.consistent();
    let (launched, at_first) = (bed.launched(), bed.launched_at_first());
    println!(
        "{} pods ran on {} nodes ({} of them at first) {took:?} after the start",
        work.pods,
        launched.values().sum::<usize>(),
        at_first.values().sum::<usize>()
    );
    assert_eq!(at_first, predicted, "what was launched is what was predicted");

    // Bad objects say what is wrong.
    assert_eq!(bed.pool_condition("default", "Ready"), "True Ready: ");
    let lost = bed.pool_condition("lost", "NodeClassReady");
    assert!(
        lost.starts_with("False NodeClassNotFound") && lost.contains("create it"),
        "{lost}"
    );
    for (name, reason, what) in [
        ("impossible", "NoCompatibleInstanceTypes", "widen"),
        ("lost", "NodeClassNotReady", "create it"),
        ("strange", "FailedScheduling", "example.com/unknown"),
    ] {
        let said = bed.said(name, reason);
        assert!(
            said.iter().any(|note| note.contains(what)),
            "{name}: {reason}: {said:?}"
        );
    }

    let began = Timestamp::now();
    for object in &work.deployments {
        bed.scale(object["metadata"]["name"].as_str().unwrap(), 0);
    }
    bed.scale("strange", 0);
    let mut first_deletion: Option<Timestamp> = None;
    let took = bed.eventually("empty nodes go", || {
        let claims: Vec<NodeClaim> = bed.try_list()?;
        let deleted = claims
            .iter()
            .filter_map(|claim| Some(claim.metadata.deletion_timestamp.as_ref()?.0));
        first_deletion = first_deletion.into_iter().chain(deleted).min();
        expect((claims.len(), 0))
    });
    bed.empty();
    println!("the nodes were gone {took:?} after the pods were deleted");
    // Deletions are written down in whole seconds.
    let waited = first_deletion.unwrap().duration_since(began) + SignedDuration::from_secs(1);
    assert!(waited >= after, "the first node went after {waited:?}");
    drop(running);
}

/// What the nodes of a pool have in total, at the most, over everything that a watch of NodeClaims shows.
struct Most(Arc<Mutex<(usize, Quantity)>>);

impl Most {
    fn follow(bed: &Bed) -> Self {
        let most = Arc::new(Mutex::new((0, Quantity::default())));
        let (noted, kubeconfig) = (Arc::clone(&most), bed.cluster.kubeconfig_path());
        std::thread::spawn(move || {
            bed::runtime().block_on(async move {
                let client = bed::connect(&kubeconfig).await;
                let mut seen: BTreeMap<String, Quantity> = BTreeMap::new();
                let watch = watcher::watcher(Api::<NodeClaim>::all(client), watcher::Config::default());
                let mut watch = std::pin::pin!(watch);
                while let Some(event) = watch.next().await {
                    match event {
                        Ok(Event::Apply(claim) | Event::InitApply(claim)) => {
                            let name = claim.metadata.name.clone().unwrap();
                            let cpu = claim
                                .status
                                .as_ref()
                                .and_then(|status| status.capacity.get("cpu"));
                            seen.insert(
                                name,
                                cpu.map_or_else(Quantity::default, |text| text.0.parse().unwrap()),
                            );
                        }
                        Ok(Event::Delete(claim)) => {
                            seen.remove(claim.metadata.name.as_deref().unwrap());
                        }
                        _ => {}
                    }
                    let total = seen.values().fold(Quantity::default(), |sum, one| &sum + one);
                    let mut noted = noted.lock().unwrap();
                    noted.0 += 1;
                    if total > noted.1 {
                        noted.1 = total;
                    }
                }
            });
        });
        Self(most)
    }

    fn so_far(&self) -> (usize, Quantity) {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn limits_hold_while_batches_overlap_and_the_cheapest_is_not_to_be_had() {
    let bed = Bed::start();
    bed.pool(
        "default",
        json!({"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4", "8", "16"]}]}),
    );
    bed.patch_pool("default", json!({"spec": {"limits": {"cpu": "48"}}}));
    bed.deployment("work", 0, json!({"cpu": "1500m"}), json!({}));
    let most = Most::follow(&bed);
    // Launches take longer than batches, so every batch meets claims without an instance; and the first choice fails.
    let running = bed.veneer(&[
        "--batch-idle-duration",
        "100ms",
        "--kwok-launch-delay",
        "900ms",
        "--kwok-unavailable",
        "*:spot",
    ]);
    let mut claims = 0;
    for wave in 1..=6 {
        bed.scale("work", wave * 8);
        let began = Instant::now();
        bed.eventually("a batch is decided", || {
            let now = bed.list::<NodeClaim>().len();
            let is_full = began.elapsed() > Duration::from_secs(2);
            let news = now > claims || is_full;
            claims = now;
            expect((news, true))
        });
    }
    // 48 CPUs in nodes of 4 to 16 hold at least 24 such pods.
    bed.eventually("the pool is full", || {
        let running = bed.running()?;
        expect((running >= 24, true)).map_err(|_| format!("{running} run"))
    });
    bed.eventually("the others are told why they wait", || {
        let said = bed.said("work", "FailedScheduling");
        expect((said.iter().any(|note| note.contains("limit")), true)).map_err(|_| format!("{said:?}"))
    });
    bed.consistent();
    let (looks, cpus) = most.so_far();
    println!("{cpus} CPUs at the most, over {looks} observations");
    // Each wave was seen.
    assert!(looks > 6, "{looks}");
    assert!(cpus <= "48".parse().unwrap(), "{cpus} CPUs");

    bed.patch_pool("default", json!({"spec": {"limits": {"cpu": "400"}}}));
    bed.all_run(48);
    drop(running);
}

#[test]
fn a_pool_that_is_deleted_while_it_launches_takes_its_claims_along_and_others_take_over() {
    let bed = Bed::start();
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let family =
        |name: &str| json!({"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [name]});
    let mut first = workload::node_pool("first", json!({"requirements": [linux, family("m5")]}));
    first["spec"]["weight"] = json!(10);
    bed.create(first);
    bed.pool("second", json!({"requirements": [linux, family("c5")]}));
    bed.deployment("work", 12, json!({"cpu": "3"}), json!({}));
    let running = bed.veneer(&["--kwok-launch-delay", "5s"]);
    bed.eventually("claims of the first pool are being launched", || {
        expect((bed.list::<NodeClaim>().is_empty(), false))
    });
    let pools: Api<NodePool> = Api::all(bed.client.clone());
    let params = DeleteParams::default();
    bed.runtime.block_on(pools.delete("first", &params)).unwrap();
    bed.all_run(12);
    bed.consistent();
    let launched = bed.launched();
    assert!(
        launched.keys().all(|what| what.starts_with("second ")),
        "{launched:?}"
    );
    let said = bed.said("first", "NodePoolDeleted");
    assert!(
        said.iter().any(|note| note.contains("scheduled again")),
        "{said:?}"
    );
    drop(running);
}

/// A Deployment that looks like Karpenter, and the right that makes it one.
fn karpenter(bed: &Bed) {
    let labels = json!({"app.kubernetes.io/name": "karpenter"});
    bed.create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "karpenter"},
        "rules": [{"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": ["create"]}]}));
    bed.create(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "karpenter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "karpenter"},
        "subjects": [{"kind": "ServiceAccount", "name": "karpenter", "namespace": "default"}]}),
    );
    bed.create(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "karpenter", "labels": labels}, "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"serviceAccountName": "karpenter", "containers": [
                {"name": "controller", "image": "registry.example/karpenter:1"}]}}}}));
}

fn started(bed: &Bed, running: &mut bed::Process) {
    bed.eventually("it starts", || {
        assert!(running.0.try_wait().unwrap().is_none(), "{}", bed.log());
        let started = bed.log().contains("everything was listed");
        expect((started, true))
    });
}

#[test]
fn it_does_not_start_beside_a_running_karpenter() {
    let bed = Bed::start();
    karpenter(&bed);
    let mut refused = bed.veneer(&[]);
    let status = refused.0.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    let log = bed.log();
    assert!(log.contains("scale deployment karpenter --replicas=0"), "{log}");

    bed.scale("karpenter", 0);
    let mut running = bed.veneer(&[]);
    started(&bed, &mut running);
}

#[test]
fn it_waits_for_an_api_server_and_ends_when_a_karpenter_comes() {
    let mut bed = Bed::start();
    // Anybody can make one that looks like it.
    let labels = json!({"app.kubernetes.io/name": "karpenter"});
    bed.create(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "decoy", "labels": labels}, "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "controller", "image": "registry.example/decoy:1"}]}}}}));
    bed.cluster.stop_part(Part::ApiServer);
    let mut running = bed.veneer(&["--look-for-karpenter-every", "200ms"]);
    bed.eventually("it says what it waits for", || {
        assert!(running.0.try_wait().unwrap().is_none(), "{}", bed.log());
        expect((bed.log().contains("cannot watch; trying again"), true))
    });
    bed.cluster.start_part(Part::ApiServer).unwrap();
    started(&bed, &mut running);

    karpenter(&bed);
    let status = running.0.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    let log = bed.log();
    assert!(log.contains("scale deployment karpenter --replicas=0"), "{log}");
}
