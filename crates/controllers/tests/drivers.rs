//! Watches, stores and the executor against a cluster that is rude: an etcd that was restored, a watch that is dead, objects
//! that cannot be read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::{Bed, catalogue, eventually, get, sample};
use tokio::task::JoinHandle;
use veneer_api::{NodeClaim, NodePool, Overprovisioner};
use veneer_controllers::standalone::{self, Settings, Shown};
use veneer_controllers::{Metrics, Server};
use veneer_testbed::{Options, Part};

fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn add(client: &Client, object: Value) {
    let api = api_of(client, &object);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object.get("status").cloned();
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

fn node_class() -> Value {
    json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}})
}

fn pool(name: &str, weight: u32) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "weight": weight,
        "template": {"spec": {"expireAfter": "Never", "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}},
        "disruption": {"consolidateAfter": "Never"}}})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    match node {
        Some(node) => pod["spec"]["nodeName"] = json!(node),
        None => {
            pod["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/0 nodes are available"}]});
        }
    }
    pod
}

fn settings() -> Settings {
    let mut settings = Settings::new(catalogue());
    settings.rules.window.idle = SignedDuration::from_millis(100);
    settings.rules.policy.min_drain = SignedDuration::ZERO;
    settings
}

fn run(client: &Client, settings: Settings, shown: Shown) -> JoinHandle<()> {
    tokio::spawn(standalone::run(client.clone(), settings, shown))
}

/// The pool of the first claim that is made.
async fn first_claim(client: &Client) -> NodeClaim {
    let claims: Api<NodeClaim> = Api::all(client.clone());
    eventually("a NodeClaim is made", async || {
        let found = claims.list(&Default::default()).await.unwrap();
        found.items.into_iter().next()
    })
    .await
}

fn pool_of(claim: &NodeClaim) -> &str {
    &claim.labels()["karpenter.sh/nodepool"]
}

/// Waits until provisioning has seen a pool, and so has written something about it.
async fn seen(client: &Client, name: &str) {
    let pools: Api<NodePool> = Api::all(client.clone());
    eventually("the pool was seen", async || {
        let pool = pools.get_opt(name).await.ok().flatten()?;
        let conditions = pool.status?.conditions;
        (!conditions.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_became_unreadable_and_was_deleted_launches_nothing() {
    let bed = Bed::start(Options::api_server()).await;
    // The CRD of another release, which lets more through.
    let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
    let crds: Vec<String> = crds
        .iter()
        .map(|crd| {
            let mut crd = serde_json::to_value(crd).unwrap();
            if crd["spec"]["names"]["kind"] == "NodePool" {
                for version in crd["spec"]["versions"].as_array_mut().unwrap() {
                    version["schema"]["openAPIV3Schema"] =
                        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
                }
            }
            crd.to_string()
        })
        .collect();
    bed.cluster.install_crds(&crds).unwrap();
    add(&bed.admin, node_class()).await;
    add(&bed.admin, pool("gone", 100)).await;
    add(&bed.admin, pool("other", 1)).await;
    let metrics = Metrics::new();
    let mut settings = settings();
    settings.meters = metrics.provisioning.clone();
    let running = run(&bed.admin, settings, Shown::default());
    seen(&bed.admin, "gone").await;

    let patch = Patch::Merge(json!({"spec": {"template": "not what it was"}}));
    let pools = bed.pools();
    pools
        .patch("gone", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let unreadable = |count: f64| {
        let text = metrics.text().unwrap();
        let found = sample(&text, r#"veneer_unreadable_objects{kind="NodePool"}"#);
        (found == Some(count)).then_some(())
    };
    eventually("it is marked", async || unreadable(1.0)).await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(bed.admin.clone(), "default");
    eventually("an event says so", async || {
        let events = events.list(&Default::default()).await.unwrap();
        let mut notes = events.into_iter().filter_map(|event| event.note);
        notes.find(|note| note.contains("does not fit its type") && note.contains("spec.template"))
    })
    .await;
    pools.delete("gone", &Default::default()).await.unwrap();
    eventually("it is forgotten", async || unreadable(0.0)).await;
    add(&bed.admin, pod("a", None)).await;
    assert_eq!(pool_of(&first_claim(&bed.admin).await), "other");
    running.abort();
}

/// A client of the user whose requests the audit log tells from all others.
async fn provisioner(bed: &Bed) -> Client {
    let kubeconfig = Kubeconfig::read_from(bed.cluster.provisioner_kubeconfig_path()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_believed_and_not_fought_with() {
    let mut bed = Bed::start(Options::api_server().audited()).await;
    bed.install_our_crds();
    add(&bed.admin, node_class()).await;
    add(&bed.admin, pool("default", 1)).await;
    // The backup.
    let data = bed.cluster.folder().join("etcd");
    let backup = bed.cluster.folder().join("etcd.backup");
    bed.cluster.stop_part(Part::Etcd);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&data, &backup])
        .status();
    assert!(copied.unwrap().success());
    bed.cluster.start_part(Part::Etcd).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(bed.admin.clone(), "default");
    eventually("the API server goes on", async || {
        maps.list(&Default::default()).await.ok()
    })
    .await;

    let metrics = Metrics::new();
    let mut settings = settings();
    settings.meters = metrics.provisioning.clone();
    settings.check_versions_every = Duration::from_millis(500);
    let running = run(&provisioner(&bed).await, settings, Shown::default());
    seen(&bed.admin, "default").await;
    // What the backup does not have, and versions that are far ahead of it.
    add(&bed.admin, pool("later", 100)).await;
    seen(&bed.admin, "later").await;
    for round in 0..300 {
        let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "rounds"}, "data": {"round": round.to_string()}}));
        let params = PatchParams::apply("test").force();
        maps.patch("rounds", &params, &patch).await.unwrap();
    }
    let patch = Patch::Merge(json!({"metadata": {"labels": {"round": "last"}}}));
    let pools = bed.pools();
    pools
        .patch("default", &PatchParams::default(), &patch)
        .await
        .unwrap();

    bed.cluster.stop_part(Part::ApiServer);
    bed.cluster.stop_part(Part::Etcd);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&backup, &data).unwrap();
    let before = bed.cluster.provisioner_requests().len();
    bed.cluster.start_part(Part::Etcd).unwrap();
    bed.cluster.start_part(Part::ApiServer).unwrap();

    add(&bed.admin, pod("a", None)).await;
    assert_eq!(pool_of(&first_claim(&bed.admin).await), "default");
    let text = metrics.text().unwrap();
    let regressions = sample(&text, "veneer_watch_version_regressions_total").unwrap();
    assert!(regressions >= 1.0, "{text}");
    // A new limit counts at once.
    let patch = Patch::Merge(json!({"spec": {"limits": {"cpu": "0"}}}));
    pools
        .patch("default", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let limit = r#"karpenter_nodepools_limit{nodepool="default",resource_type="cpu"}"#;
    eventually("the new limit is seen", async || {
        (sample(&metrics.text().unwrap(), limit) == Some(0.0)).then_some(())
    })
    .await;
    seen(&bed.admin, "default").await;
    let requests = bed.cluster.provisioner_requests();
    let is_status = |request: &&Value| {
        request["verb"] == "patch"
            && request["objectRef"]["resource"] == "nodepools"
            && request["objectRef"]["subresource"] == "status"
    };
    let patches = requests.iter().skip(before).filter(is_status).count();
    assert!(patches <= 12, "{patches} patches of the status of a NodePool");
    running.abort();
}

/// What provisioning with KWOK cannot do without, in two roles: pods are in the second one. Jobs and PodTemplates, which only shape
/// spares, are in neither.
async fn grant_without_pods(admin: &Client, user: &str) {
    let all = ["*"];
    let rules = json!([
        {"apiGroups": ["karpenter.sh", "karpenter.kwok.sh", "apps", "policy", "storage.k8s.io", "events.k8s.io"],
            "resources": all, "verbs": all},
        {"apiGroups": [""], "resources": ["nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims", "pods/eviction"],
            "verbs": all}]);
    let pods = json!([{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": all}]);
    for (name, rules) in [("all-but-pods", rules), ("pods", pods)] {
        let role: ClusterRole =
            serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        let roles: Api<ClusterRole> = Api::all(admin.clone());
        roles.create(&PostParams::default(), &role).await.unwrap();
        bind(admin, name, user).await;
    }
}

async fn bind(admin: &Client, role: &str, user: &str) {
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}))
    .unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_ends_while_pods_cannot_be_watched_and_an_unseen_pod_is_evicted() {
    let mut bed = Bed::standalone().await;
    grant_without_pods(&bed.admin, support::USER).await;
    add(&bed.admin, node_class()).await;
    add(&bed.admin, pool("default", 1)).await;
    let metrics = Metrics::new();
    let shown = Shown::default();
    let probes = Server::probes("127.0.0.1:0", &shown.health)
        .await
        .unwrap()
        .unwrap();
    let address = probes.address();
    let serving = tokio::spawn(probes.run());
    let mut settings = settings();
    settings.meters = metrics.provisioning.clone();
    settings.dead_watch_after = Duration::from_secs(1);
    let running = run(&bed.veneer, settings, shown.clone());
    add(&bed.admin, pod("first", None)).await;
    let claim = first_claim(&bed.admin).await.name_any();
    let nodes: Api<Node> = Api::all(bed.admin.clone());
    eventually("the node is registered", async || {
        let node = nodes.get_opt(&claim).await.unwrap()?;
        node.labels()
            .contains_key("karpenter.sh/registered")
            .then_some(())
    })
    .await;

    // The right is taken away, and the watch ends, as it does every few minutes.
    let bindings: Api<ClusterRoleBinding> = Api::all(bed.admin.clone());
    bindings.delete("pods", &DeleteParams::default()).await.unwrap();
    bed.cluster.stop_part(Part::ApiServer);
    bed.cluster.start_part(Part::ApiServer).unwrap();
    let held_back = || sample(&metrics.text().unwrap(), "veneer_provisioning_held_back");
    eventually("nodes are held back", async || {
        (held_back() == Some(1.0)).then_some(())
    })
    .await;
    // The probe has more patience.
    let said = eventually("the probe names the watch", async || {
        let (status, body) = get(address, "/readyz").await;
        (status == 503 && body.contains("the watch of Pod has failed")).then_some(body)
    })
    .await;
    assert!(said.contains("forbidden"), "{said}");

    // A pod that nobody can see, and a node that shall go.
    add(&bed.admin, pod("unseen", Some(&claim))).await;
    let claims: Api<NodeClaim> = Api::all(bed.admin.clone());
    claims.delete(&claim, &DeleteParams::default()).await.unwrap();
    eventually("the end of the instance is decided", async || {
        let claim = claims.get_opt(&claim).await.unwrap()?;
        let conditions = claim.status?.conditions;
        conditions
            .iter()
            .any(|one| one.type_ == "InstanceTerminating")
            .then_some(())
    })
    .await;
    assert!(nodes.get_opt(&claim).await.unwrap().is_some());
    bind(&bed.admin, "pods", support::USER).await;
    let pods: Api<Pod> = Api::namespaced(bed.admin.clone(), "default");
    eventually("the pod is evicted", async || {
        let pod = pods.get("unseen").await.unwrap();
        pod.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    assert!(nodes.get_opt(&claim).await.unwrap().is_some());
    // As its kubelet would say.
    let now = DeleteParams::default().grace_period(0);
    pods.delete("unseen", &now).await.unwrap();
    eventually("the node ends", async || {
        nodes.get_opt(&claim).await.unwrap().is_none().then_some(())
    })
    .await;
    running.abort();
    serving.abort();
}

/// The role of a chart of before spares were shaped by workloads: DaemonSets alone can be watched, and Deployments listed.
#[tokio::test(flavor = "multi_thread")]
async fn without_rights_on_workloads_everything_but_the_shape_of_spares_goes_on() {
    let bed = Bed::standalone().await;
    let all = ["*"];
    let rules = json!([
        {"apiGroups": ["karpenter.sh", "karpenter.kwok.sh", "policy", "storage.k8s.io", "events.k8s.io"],
            "resources": all, "verbs": all},
        {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims", "pods", "pods/status",
            "pods/eviction"], "verbs": all}]);
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": "older"}, "rules": rules})).unwrap();
    let roles: Api<ClusterRole> = Api::all(bed.admin.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    bind(&bed.admin, "older", support::USER).await;
    add(&bed.admin, node_class()).await;
    add(&bed.admin, pool("default", 1)).await;
    add(
        &bed.admin,
        json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "Overprovisioner", "metadata": {"name": "warm"}, "spec": {
            "targetNodePools": ["default"], "sizing": {"count": 1},
            "nodeShape": {"scalableRef": {"kind": "StatefulSet", "namespace": "shop", "name": "web"}}}}),
    )
    .await;
    let metrics = Metrics::new();
    let shown = Shown {
        health: metrics.health(),
        ..Shown::default()
    };
    let probes = Server::probes("127.0.0.1:0", &shown.health)
        .await
        .unwrap()
        .unwrap();
    let address = probes.address();
    let serving = tokio::spawn(probes.run());
    let mut settings = settings();
    settings.meters = metrics.provisioning.clone();
    settings.dead_watch_after = Duration::from_secs(1);
    let running = run(&bed.veneer, settings, shown.clone());
    add(&bed.admin, pod("first", None)).await;
    let claim = first_claim(&bed.admin).await.name_any();

    // Longer than a watch may fail that cannot be done without.
    for kind in ["Deployment", "StatefulSet", "Job", "PodTemplate"] {
        let series = format!("veneer_watch_failing_seconds{{controller=\"provisioning\",kind=\"{kind}\"}}");
        eventually("the metric shows the watch", async || {
            sample(&metrics.text().unwrap(), &series).filter(|seconds| *seconds > 1.0)
        })
        .await;
    }
    let (_, body) = get(address, "/readyz").await;
    assert!(!body.contains("the watch of"), "{body}");
    let claims: Api<NodeClaim> = Api::all(bed.admin.clone());
    claims.delete(&claim, &DeleteParams::default()).await.unwrap();
    eventually("the node ends", async || {
        claims.get_opt(&claim).await.unwrap().is_none().then_some(())
    })
    .await;
    let held_back = sample(&metrics.text().unwrap(), "veneer_provisioning_held_back");
    assert_eq!(held_back, Some(0.0));
    let overprovisioners: Api<Overprovisioner> = Api::all(bed.admin.clone());
    eventually("the condition names the missing right", async || {
        let conditions = overprovisioners.get("warm").await.unwrap().status?.conditions;
        let mut messages = conditions.into_iter().map(|condition| condition.message);
        messages.find(|message| message.contains("does not allow to list and watch StatefulSet objects"))
    })
    .await;
    running.abort();
    serving.abort();
}
