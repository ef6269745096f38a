//! kwok's Nodes and Pods: what our Stage objects make of them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use veneer_testbed::{Cluster, Options, Part};

mod support;
use support::{client, condition, eventually, object};

fn node(name: &str, status: &serde_json::Value) -> Node {
    object(json!({
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": status,
    }))
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "initContainers": [
                {"name": "once", "image": "once"},
                {"name": "beside", "image": "beside", "restartPolicy": "Always"},
            ],
            "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
    }))
}

#[tokio::test]
async fn a_node_turns_ready_and_a_pod_is_bound_runs_and_is_deleted() {
    let cluster = Cluster::start(Options::nodes()).unwrap();
    let client = client(&cluster).await;
    let nodes = Api::<Node>::all(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());

    nodes
        .create(&PostParams::default(), &node("fake", &json!({})))
        .await
        .unwrap();
    let ready = eventually("the Node is Ready", async || {
        let node = nodes.get("fake").await.unwrap();
        (condition(&node, "Ready")? == "True").then_some(node)
    })
    .await;
    let status = ready.status.unwrap();
    assert_eq!(status.capacity.unwrap()["cpu"].0, "32");
    assert_eq!(status.allocatable.unwrap()["memory"].0, "128Gi");

    pods.create(&PostParams::default(), &pod("web")).await.unwrap();
    let running = eventually("the Pod runs", async || {
        let pod = pods.get("web").await.unwrap();
        (condition(&pod, "Ready")? == "True").then_some(pod)
    })
    .await;
    assert_eq!(running.spec.as_ref().unwrap().node_name.as_deref(), Some("fake"));
    assert_eq!(
        condition(&running, "PodScheduled").as_deref(),
        Some("True"),
        "the scheduler's condition stays"
    );
    let status = running.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.pod_ip.is_some() && status.host_ip.is_some());
    let init = status.init_container_statuses.unwrap();
    assert!(
        init[0].state.as_ref().unwrap().terminated.is_some(),
        "an init container has ended"
    );
    assert!(
        init[1].state.as_ref().unwrap().running.is_some(),
        "a sidecar runs on"
    );

    pods.delete("web", &DeleteParams::default()).await.unwrap();
    eventually("the Pod is gone", async || {
        pods.get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_keeps_the_shape_and_the_conditions_it_was_created_with() {
    let cluster = Cluster::start(Options::nodes()).unwrap();
    let nodes = Api::<Node>::all(client(&cluster).await);
    let created = node(
        "shaped",
        &json!({
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "2"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
            "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux", "kubeletVersion": "v1.36.0",
                "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "k", "osImage": "o",
                "containerRuntimeVersion": "c", "kubeProxyVersion": "p"},
            "conditions": [{"type": "example.com/Own", "status": "True"}],
        }),
    );

    nodes.create(&PostParams::default(), &created).await.unwrap();
    let ready = eventually("the Node is Ready", async || {
        let node = nodes.get("shaped").await.unwrap();
        (condition(&node, "Ready")? == "True").then_some(node)
    })
    .await;

    assert_eq!(condition(&ready, "example.com/Own").as_deref(), Some("True"));
    let (given, kept) = (created.status.unwrap(), ready.status.unwrap());
    assert_eq!(kept.capacity, given.capacity);
    assert_eq!(
        kept.allocatable, given.capacity,
        "all of the capacity can be used when nothing else is said"
    );
    assert_eq!(kept.addresses, given.addresses);
    assert_eq!(kept.node_info, given.node_info);
}

#[tokio::test]
async fn a_job_completes_and_a_node_that_is_not_kwoks_is_left_alone() {
    let cluster = Cluster::start(Options::nodes()).unwrap();
    let client = client(&cluster).await;
    let nodes = Api::<Node>::all(client.clone());
    let jobs = Api::<Job>::default_namespaced(client);
    let foreign: Node = object(json!({"metadata": {"name": "foreign"}}));
    let job: Job = object(json!({
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "main"}],
        }}},
    }));

    nodes.create(&PostParams::default(), &foreign).await.unwrap();
    nodes
        .create(&PostParams::default(), &node("fake", &json!({})))
        .await
        .unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
    eventually("the Job is Complete", async || {
        (condition(&jobs.get("once").await.unwrap(), "Complete")? == "True").then_some(())
    })
    .await;

    assert_ne!(
        condition(&nodes.get("foreign").await.unwrap(), "Ready").as_deref(),
        Some("True")
    );
}

#[tokio::test]
async fn the_scheduler_adds_an_affinity_to_every_pod_at_the_rates_of_a_real_cluster() {
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "usable", "operator": "Exists"}]}]}});
    let options = Options::nodes().default_rates().added_affinity(affinity);
    let cluster = Cluster::start(options).unwrap();
    let client = client(&cluster).await;
    let nodes = Api::<Node>::all(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let arguments = |part| {
        let process = cluster.process_ids()[&part];
        std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap()
    };
    assert!(!arguments(Part::Scheduler).contains("--kube-api-qps"));
    assert!(!arguments(Part::ControllerManager).contains("--kube-api-qps"));

    let mut usable = node("usable", &json!({}));
    usable.metadata.labels = Some([("usable".to_owned(), String::new())].into());
    for node in [node("other", &json!({})), usable] {
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        pods.create(&PostParams::default(), &pod(name)).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        let running = eventually("the Pod runs", async || {
            let pod = pods.get(name).await.unwrap();
            (condition(&pod, "Ready")? == "True").then_some(pod)
        })
        .await;
        assert_eq!(running.spec.unwrap().node_name.as_deref(), Some("usable"));
    }
}

#[tokio::test]
async fn annotations_keep_a_node_not_ready_and_a_job_running() {
    let cluster = Cluster::start(Options::nodes()).unwrap();
    let client = client(&cluster).await;
    let nodes = Api::<Node>::all(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let jobs = Api::<Job>::default_namespaced(client);
    let job: Job = object(json!({
        "metadata": {"name": "long"},
        "spec": {"template": {
            "metadata": {"annotations": {"testbed.veneer.io/runs-for": "600s"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]},
        }},
    }));
    let create = PostParams::default();
    nodes.create(&create, &node("fake", &json!({}))).await.unwrap();
    jobs.create(&create, &job).await.unwrap();
    pods.create(&create, &pod("web")).await.unwrap();
    eventually("both Pods run", async || {
        let running = pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .filter(|pod| condition(pod, "Ready").as_deref() == Some("True"));
        (running.count() == 2).then_some(())
    })
    .await;

    let params = PatchParams::default();
    let mark = |value| json!({"metadata": {"annotations": {"testbed.veneer.io/not-ready": value}}});
    nodes
        .patch("fake", &params, &Patch::Merge(mark(json!("true"))))
        .await
        .unwrap();
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    nodes
        .patch_status("fake", &params, &Patch::Strategic(&status))
        .await
        .unwrap();
    pods.patch_status("web", &params, &Patch::Strategic(&status))
        .await
        .unwrap();
    // The controller manager has seen it, so kwok has had its time too.
    eventually("the Node is tainted", async || {
        let taints = nodes.get("fake").await.unwrap().spec?.taints?;
        let mut taints = taints.iter();
        taints
            .any(|taint| taint.key == "node.kubernetes.io/not-ready")
            .then_some(())
    })
    .await;
    let ready = condition(&nodes.get("fake").await.unwrap(), "Ready");
    assert_eq!(ready.as_deref(), Some("False"));

    nodes
        .patch("fake", &params, &Patch::Merge(mark(json!(null))))
        .await
        .unwrap();
    eventually("the Node is Ready again", async || {
        (condition(&nodes.get("fake").await.unwrap(), "Ready")? == "True").then_some(())
    })
    .await;
    eventually("the Pod is Ready again", async || {
        (condition(&pods.get("web").await.unwrap(), "Ready")? == "True").then_some(())
    })
    .await;
    let job = jobs.get("long").await.unwrap();
    assert_eq!(job.status.unwrap().active, Some(1), "it runs on");
}
