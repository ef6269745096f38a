//! What the tests share: a cluster with the rights that the guide lists, and a controller that runs in it. Each test
//! file compiles its own copy and uses a part of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and read better so"
)]

pub(crate) mod fake_api;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use veneer_api::{Condition, NodeOverlay, NodePool};
use veneer_controllers::{Error, Mode, Output, Provider, Server, Settings, run};
use veneer_engine::catalogue::kwok;
use veneer_engine::instance_type::Catalogue;
use veneer_testbed::{Cluster, Options};

/// The user that the controllers run as.
pub(crate) const USER: &str = "veneer-under-test";
/// How long anything may take before the test fails. Nothing waits for it to pass: it is generous for machines with other work.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A cluster, and clients for it.
pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    /// With all rights, for what the test itself does.
    pub(crate) admin: Client,
    /// With the rights that the guide lists, for the controllers.
    pub(crate) veneer: Client,
}

impl Bed {
    /// A cluster with an API server and our own CRDs.
    pub(crate) async fn standalone() -> Self {
        let bed = Self::start(Options::api_server()).await;
        bed.install_our_crds();
        bed
    }

    pub(crate) async fn start(options: Options) -> Self {
        let cluster = tokio::task::spawn_blocking(|| Cluster::start(options))
            .await
            .unwrap()
            .unwrap();
        let admin = client(&cluster, None).await;
        let veneer = client(&cluster, Some(USER)).await;
        grant(&admin).await;
        Self {
            cluster,
            admin,
            veneer,
        }
    }

    pub(crate) fn install_our_crds(&self) {
        let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
        let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
        self.cluster.install_crds(&crds).unwrap();
    }

    pub(crate) fn overlays(&self) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), &ApiResource::erase::<NodeOverlay>(&()))
    }

    pub(crate) fn pools(&self) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), &ApiResource::erase::<NodePool>(&()))
    }

    pub(crate) async fn create_overlay(&self, name: &str, spec: Value) -> DynamicObject {
        let object = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": name}, "spec": spec});
        let object = serde_json::from_value(object).unwrap();
        self.overlays()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    pub(crate) async fn patch_overlay(&self, name: &str, patch: Value) -> DynamicObject {
        let patch = Patch::Merge(patch);
        self.overlays()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap()
    }

    pub(crate) async fn delete_overlay(&self, name: &str) {
        self.overlays().delete(name, &Default::default()).await.unwrap();
    }

    pub(crate) async fn create_pool(&self, name: &str, class_kind: &str, class_group: &str) {
        let object = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
            "template": {"metadata": {"labels": {"team": name}}, "spec": {
                "nodeClassRef": {"group": class_group, "kind": class_kind, "name": "default"},
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
        }});
        let object = serde_json::from_value(object).unwrap();
        self.pools()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    pub(crate) async fn create_kwok_pool(&self, name: &str) {
        self.create_pool(name, "KWOKNodeClass", "karpenter.kwok.sh").await;
    }

    /// Resource versions of all overlays: equal ones mean that nobody wrote.
    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        let all = self.overlays().list(&Default::default()).await.unwrap();
        all.into_iter()
            .map(|one| (one.name_any(), one.resource_version().unwrap()))
            .collect()
    }

    /// Waits until the condition of the overlay's present generation is `status reason`, and gives it back.
    pub(crate) async fn condition(&self, name: &str, type_: &str, expected: &str) -> Condition {
        let overlays = self.overlays();
        let mut last = String::new();
        let began = Instant::now();
        while began.elapsed() < DEADLINE {
            if let Some(object) = overlays.get_opt(name).await.unwrap() {
                let found = condition_of(&object, type_);
                last = found.as_ref().map(words).unwrap_or_default();
                match found {
                    Some(one)
                        if last == expected && one.observed_generation == object.metadata.generation =>
                    {
                        return one;
                    }
                    _ => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{type_} of NodeOverlay {name} is {last:?} after {DEADLINE:?}, expected {expected:?}");
    }

    pub(crate) async fn ready(&self, name: &str) {
        self.condition(name, "Ready", "True Ready").await;
    }

    /// Starts the controllers with the rights of the guide.
    pub(crate) fn run(&self, settings: Settings) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let client = self.veneer.clone();
        let task = tokio::spawn(run(client, settings, async {
            let _ = stopped.await;
        }));
        Running { task, stop }
    }

    /// One pass, to its end.
    pub(crate) async fn run_once(&self, mut settings: Settings) -> Result<(), Error> {
        settings.once = true;
        run(self.veneer.clone(), settings, std::future::pending()).await
    }
}

/// Controllers that run.
pub(crate) struct Running {
    task: JoinHandle<Result<(), Error>>,
    stop: oneshot::Sender<()>,
}

impl Running {
    /// Ends them as a signal would.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends them as a crash would.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn client(cluster: &Cluster, user: Option<&str>) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    // As `veneer run` has it.
    config.default_retry = false;
    config.headers.extend(user.map(|user| {
        let name = HeaderName::from_static("impersonate-user");
        (name, HeaderValue::from_str(user).unwrap())
    }));
    Client::try_from(config).unwrap()
}

/// Gives the user exactly the role that the guide shows.
async fn grant(admin: &Client) {
    let guide = include_str!("../../../../docs/src/run.md");
    let role = guide
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let role: ClusterRole = serde_saphyr::from_str(role).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "veneer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any()},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }))
    .unwrap();
    Api::all(admin.clone())
        .create(&PostParams::default(), &role)
        .await
        .unwrap();
    Api::all(admin.clone())
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
}

/// The catalogue of the testbed's Karpenter: 853 types of AWS.
pub(crate) fn catalogue() -> Arc<Catalogue> {
    let path = veneer_testbed::karpenter_instance_types().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    Arc::new(kwok::parse(&text, "instance-types.json").unwrap())
}

pub(crate) fn standalone() -> Settings {
    Settings::new(Mode::Standalone, Provider::Kwok, catalogue())
}

pub(crate) fn companion() -> Settings {
    Settings::new(Mode::Companion, Provider::Kwok, catalogue())
}

pub(crate) fn condition_of(object: &DynamicObject, type_: &str) -> Option<Condition> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let one = conditions.iter().find(|condition| condition["type"] == type_)?;
    serde_json::from_value(one.clone()).unwrap()
}

pub(crate) fn words(condition: &Condition) -> String {
    format!("{} {}", condition.status, condition.reason)
}

/// Requirements on one label.
pub(crate) fn when(key: &str, values: &[&str], mut spec: Value) -> Value {
    spec["requirements"] = json!([{"key": key, "operator": "In", "values": values}]);
    spec
}

pub(crate) fn family(name: &str, spec: Value) -> Value {
    when("karpenter.kwok.sh/instance-family", &[name], spec)
}

/// Waits until `look` finds something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a server of ours answers: status and body.
pub(crate) async fn get(server: std::net::SocketAddr, path: &str) -> (u16, String) {
    let url = format!("http://{server}{path}");
    let answer = tokio::task::spawn_blocking(move || {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut answer = agent.get(&url).call().unwrap();
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    });
    answer.await.unwrap()
}

/// Adds a server of `/metrics` to the settings, and says where it is.
pub(crate) async fn with_metrics(settings: &mut Settings) -> std::net::SocketAddr {
    let server = Server::metrics(
        "127.0.0.1:0",
        &settings.metrics,
        &settings.decisions,
        &settings.pending,
    )
    .await
    .unwrap()
    .unwrap();
    let address = server.address();
    settings.servers.push(server);
    address
}

/// The value of one series, if it is there.
pub(crate) fn sample(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

/// A text that grows while somebody reads it.
#[derive(Clone, Default)]
pub(crate) struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    pub(crate) fn output(&self) -> Output {
        Output::Text(Box::new(self.clone()))
    }

    pub(crate) fn read(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
