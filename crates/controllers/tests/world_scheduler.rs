//! The scheduler of the embedded world against a real kube-scheduler, on generated clusters: one pod at a time is created, and
//! what becomes of it is compared with what the world's filters and scores say.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "helpers of tests fail the test, and read better so"
)]

#[path = "support/generated_cluster.rs"]
mod generated_cluster;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use generated_cluster::{Rng, node, pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::{Bed, eventually};
use veneer_testbed::{Options, Part};
use veneer_world::scheduler::{Cluster, Decision, Owner, Settings};

/// How many pods each generated cluster gets.
const PODS: u64 = 30;

/// How many clusters; the long run asks for more.
fn cases() -> u64 {
    let asked = std::env::var("VENEER_SCHEDULER_CASES").ok();
    asked.map_or(24, |text| text.parse().unwrap())
}

fn of<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A pod as the world has it: as it was made, with what the API server looks up in other objects.
fn in_world(made: &Value, stored: &Pod) -> veneer_api::Pod {
    let mut pod: Pod = of(made);
    pod.metadata.uid.clone_from(&stored.metadata.uid);
    let (spec, stored_spec) = (pod.spec.as_mut().unwrap(), stored.spec.as_ref().unwrap());
    spec.priority = stored_spec.priority;
    spec.preemption_policy.clone_from(&stored_spec.preemption_policy);
    spec.overhead.clone_from(&stored_spec.overhead);
    spec.node_name.clone_from(&stored_spec.node_name);
    spec.scheduling_gates = None;
    pod.status.clone_from(&stored.status);
    pod.into()
}

struct Real {
    client: Client,
}

impl Real {
    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create<K>(&self, api: Api<K>, value: &Value) -> K
    where
        K: DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        let created = api.create(&PostParams::default(), &of(value)).await;
        created.unwrap_or_else(|error| panic!("{error}: {value}"))
    }

    /// Objects that all cases share.
    async fn prepare(&self) -> (Settings, Vec<Owner>) {
        let mut settings = Settings::default();
        for (name, side) in [("one", Some("left")), ("two", Some("right")), ("three", None)] {
            let labels: BTreeMap<&str, &str> = side.map(|side| ("side", side)).into_iter().collect();
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            self.create(Api::<Namespace>::all(self.client.clone()), &namespace)
                .await;
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            settings.namespaces.insert(name.to_owned(), labels.collect());
        }
        for value in [0, 100, 1000] {
            let class = json!({"metadata": {"name": format!("never-{value}")}, "value": value, "preemptionPolicy": "Never"});
            self.create(Api::<PriorityClass>::all(self.client.clone()), &class)
                .await;
        }
        let class = json!({"metadata": {"name": "heavy"}, "handler": "heavy", "overhead": {"podFixed": {"cpu": "300m", "memory": "200Mi"}}});
        self.create(Api::<RuntimeClass>::all(self.client.clone()), &class)
            .await;
        let mut owners = Vec::new();
        let service = json!({"metadata": {"name": "service"}, "spec": {"selector": {"app": "blue"}, "ports": [{"port": 80}]}});
        self.create(Api::<Service>::namespaced(self.client.clone(), "one"), &service)
            .await;
        owners.push((
            "Service",
            "one",
            "service",
            json!({"matchLabels": {"app": "blue"}}),
        ));
        let set = json!({"matchLabels": {"app": "red"}, "matchExpressions": [{"key": "version", "operator": "Exists"}]});
        for namespace in ["one", "two"] {
            let labels = json!({"app": "red", "version": "1"});
            let object = json!({"metadata": {"name": "set"}, "spec": {"replicas": 0, "selector": set,
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main"}]}}}});
            self.create(
                Api::<ReplicaSet>::namespaced(self.client.clone(), namespace),
                &object,
            )
            .await;
            owners.push(("ReplicaSet", namespace, "set", set.clone()));
        }
        let owners = owners.into_iter().map(|(kind, namespace, name, selector)| Owner {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            selector: of(&selector),
        });
        (settings, owners.collect())
    }

    /// Creates the nodes and waits until the scheduler knows them as they are.
    async fn add_nodes(&self, nodes: &[Value]) {
        let api: Api<Node> = Api::all(self.client.clone());
        for node in nodes {
            self.create(api.clone(), node).await;
            // A new node gets a taint that a controller would take away; the label says that this was done.
            let patch = json!({"metadata": {"labels": {"complete": "yes"}}, "spec": {"taints": node["spec"]["taints"]}});
            let name = node["metadata"]["name"].as_str().unwrap();
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .unwrap();
        }
        let probes = self.pods("default");
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap();
            let probe = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "main"}],
                "nodeSelector": {"complete": "yes"}, "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}});
            self.create(probes.clone(), &probe).await;
            eventually("the scheduler knows the node", async || {
                let pod = probes.get(name).await.unwrap();
                pod.spec.unwrap().node_name
            })
            .await;
            self.remove("default", name).await;
        }
    }

    /// Housekeeping between two pods or cases: one that has gone already is as good. (The client sends a request again that a busy
    /// API server answers with 429, 503 or 504, and the first one may have done its work.)
    async fn remove(&self, namespace: &str, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        match self.pods(namespace).delete(name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap()),
        }
    }

    async fn patch_status(&self, namespace: &str, name: &str, status: Value) -> Pod {
        let patch = Patch::Merge(json!({"status": status}));
        let manager = PatchParams::apply("somebody-else");
        let params = PatchParams {
            field_manager: manager.field_manager,
            ..PatchParams::default()
        };
        self.pods(namespace)
            .patch_status(name, &params, &patch)
            .await
            .unwrap()
    }

    /// Whether a refused pod is still nominated; the scheduler may write that after its verdict.
    async fn nomination(&self, namespace: &str, name: &str, expected: bool) -> bool {
        let pods = self.pods(namespace);
        let began = std::time::Instant::now();
        loop {
            let status = pods.get(name).await.unwrap().status.unwrap();
            let is_nominated = status.nominated_node_name.is_some();
            if is_nominated == expected || began.elapsed() > std::time::Duration::from_secs(5) {
                return is_nominated;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// The pod once the scheduler has decided about it.
    async fn outcome(&self, namespace: &str, name: &str) -> Pod {
        let pods = self.pods(namespace);
        eventually("the scheduler decides", async || {
            let pod = pods.get(name).await.unwrap();
            let is_bound = pod.spec.as_ref().unwrap().node_name.is_some();
            let conditions = pod
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_deref());
            let is_refused = conditions.unwrap_or_default().iter().any(|one| {
                one.type_ == "PodScheduled"
                    && one.status == "False"
                    && one.reason.as_deref() == Some("Unschedulable")
            });
            (is_bound || is_refused).then_some(pod)
        })
        .await
    }
}

/// What was compared.
#[derive(Debug, Default)]
struct Seen {
    bound: u64,
    refused: u64,
    /// Bound where more than one node was possible.
    chosen: u64,
    nominated: u64,
    taken: u64,
    beside_nominated: u64,
}

fn check(made: &Value, decision: &Decision, stored: &Pod, seen: &mut Seen) -> Result<(), String> {
    let node = stored.spec.as_ref().unwrap().node_name.clone();
    let conditions = stored
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone());
    let message = conditions
        .unwrap_or_default()
        .into_iter()
        .find_map(|one| one.message);
    let found = match &node {
        None if !decision.feasible.is_empty() => Some("refused"),
        Some(node) if !decision.feasible.contains(node) => Some("put on a node that does not fit"),
        Some(node) if !decision.best.contains(node) => Some("put on a node that is not the best"),
        _ => None,
    };
    seen.bound += u64::from(node.is_some());
    seen.refused += u64::from(node.is_none());
    seen.chosen += u64::from(decision.feasible.len() > 1);
    match found {
        Some(found) => Err(format!(
            "{found}: {node:?} {message:?}\nthe world: {decision:?}\n{made}"
        )),
        None => Ok(()),
    }
}

async fn play(real: &Real, case: u64, (settings, owners): &(Settings, Vec<Owner>), seen: &mut Seen) {
    let mut rng = Rng(case.wrapping_mul(0x1234_5678_9abc_def1));
    let nodes: Vec<Value> = (0..3 + rng.below(5))
        .map(|number| node(&mut rng, case, number))
        .collect();
    real.add_nodes(&nodes).await;
    let mut world = Cluster::new(settings.clone(), owners.clone());
    for node in &nodes {
        world.put_node(of(node));
    }
    let any_node = |rng: &mut Rng| {
        let at = usize::try_from(rng.below(nodes.len() as u64)).unwrap();
        nodes[at]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let mut there: Vec<(String, String)> = Vec::new();
    let mut expected = 0;
    for number in 0..PODS {
        let mut made = pod(&mut rng, case, number);
        let namespace = made["metadata"]["namespace"].as_str().unwrap().to_owned();
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        let pods = real.pods(&namespace);
        if rng.percent(12) {
            // One that is expected on a node and never comes: kube-scheduler keeps such nominations of pods that never preempt.
            made["spec"]["priorityClassName"] = json!(rng.pick(&["never-0", "never-100", "never-1000"]));
            made["spec"]["nodeSelector"] = json!({"no": "node"});
            real.create(pods.clone(), &made).await;
            real.outcome(&namespace, &name).await;
            let nominated = json!({"nominatedNodeName": any_node(&mut rng)});
            let stored = real.patch_status(&namespace, &name, nominated).await;
            world.put_pod(in_world(&made, &stored));
            there.push((namespace, name));
            expected += 1;
            continue;
        }
        let nominated = rng.percent(25).then(|| any_node(&mut rng));
        if nominated.is_some() {
            made["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
        }
        let mut stored = real.create(pods.clone(), &made).await;
        if let Some(node) = &nominated {
            stored = real
                .patch_status(&namespace, &name, json!({"nominatedNodeName": node}))
                .await;
            let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
            pods.patch(&name, &PatchParams::default(), &open).await.unwrap();
        }
        let decision = world.decide(&Arc::new(in_world(&made, &stored)));
        let stored = real.outcome(&namespace, &name).await;
        if let Err(why) = check(&made, &decision, &stored, seen) {
            for node in &nodes {
                println!("{node}");
            }
            panic!("case {case}, pod {number} (nominated for {nominated:?}) was {why}");
        }
        seen.beside_nominated += u64::from(expected > 0);
        let is_bound = stored.spec.as_ref().unwrap().node_name.is_some();
        if let Some(node) = &nominated {
            seen.nominated += 1;
            seen.taken += u64::from(stored.spec.as_ref().unwrap().node_name.as_ref() == Some(node));
            if !is_bound {
                let kept = real
                    .nomination(&namespace, &name, decision.keeps_nomination)
                    .await;
                assert!(
                    kept == decision.keeps_nomination,
                    "case {case}, pod {number}: still nominated: {kept}\n{decision:?}\n{made}"
                );
            }
        }
        if is_bound {
            let mut pod = in_world(&made, &stored);
            if rng.percent(10) {
                // Without a kubelet it never comes to its end.
                let ends = DeleteParams::default().grace_period(3600);
                let ending = pods.delete(&name, &ends).await.unwrap();
                let ending = ending.left().unwrap();
                pod.metadata.deletion_timestamp = ending.metadata.deletion_timestamp;
                assert!(pod.metadata.deletion_timestamp.is_some());
            }
            world.put_pod(pod);
            there.push((namespace, name));
        } else {
            real.remove(&namespace, &name).await;
        }
    }
    for (namespace, name) in there {
        real.remove(&namespace, &name).await;
    }
    let api: Api<Node> = Api::all(real.client.clone());
    for node in api.list(&Default::default()).await.unwrap() {
        api.delete(&node.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_world_schedules_as_kube_scheduler_does() {
    let bed = Bed::start(Options::api_server().with(Part::Scheduler)).await;
    let real = Real {
        client: bed.admin.clone(),
    };
    let shared = real.prepare().await;
    let mut seen = Seen::default();
    let start = std::time::Instant::now();
    for case in 1..=cases() {
        play(&real, case, &shared, &mut seen).await;
    }
    println!(
        "{} clusters in {:.1} s: {seen:?}",
        cases(),
        start.elapsed().as_secs_f64()
    );
    assert!(
        seen.refused * 10 > seen.bound && seen.bound > seen.refused,
        "{seen:?}"
    );
    assert!(
        seen.chosen > 0 && seen.taken > 0 && seen.beside_nominated > 0,
        "{seen:?}"
    );
}
