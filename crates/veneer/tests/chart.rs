//! The Helm chart: it lints, the API server takes what it renders, and the binary works with exactly its rights.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::root;
use veneer_api::{NodeOverlay, NodePool};
use veneer_testbed::{Cluster, Options, Part, workload};

const DEADLINE: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "veneer-system";

fn helm(arguments: &[&str]) -> String {
    let said = Command::new(veneer_testbed::helm().unwrap())
        .args(arguments)
        .arg(root().join("charts/veneer"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr),
    );
    assert!(said.status.success(), "helm {arguments:?}: {out}{err}");
    out.into_owned()
}

/// The rendered objects.
fn render(values: &[&str]) -> Vec<Value> {
    let sets: Vec<&str> = values.iter().flat_map(|value| ["--set-string", *value]).collect();
    let base = [
        "template",
        "veneer",
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.36.3",
    ];
    // `helm template NAME CHART`: the chart comes last.
    let text = helm(&[&base[..2], &base[2..], &sets].concat());
    text.split("\n---")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .filter(|object| !object.is_null())
        .collect()
}

const PROMETHEUS: [&str; 3] = [
    "config.prometheusUrl=http://127.0.0.1:1",
    "config.aws.accountId=123456789012",
    "config.aws.region=us-west-2",
];

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Whether the API server would take an object.
async fn dry_run(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text("kind")));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let mut params = PatchParams::apply("chart-test");
    params.dry_run = true;
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &params, &Patch::Apply(object)).await
}

async fn namespace(client: &Client) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
}

async fn start(options: Options) -> Cluster {
    tokio::task::spawn_blocking(|| Cluster::start(options))
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn the_chart_lints_and_the_api_server_takes_all_of_it() {
    helm(&["lint", "--strict"]);
    let cluster = start(Options::api_server()).await;
    let client = client(&cluster.kubeconfig_path()).await;
    namespace(&client).await;
    for values in [&[][..], &PROMETHEUS, &["dashboard.enabled=true"]] {
        // The schema wants a boolean where the command line gives text.
        let values: Vec<&str> = values
            .iter()
            .copied()
            .filter(|value| !value.contains("=true"))
            .collect();
        let objects = render(&values);
        assert!(objects.len() >= 8, "{}", objects.len());
        for object in &objects {
            let taken = dry_run(&client, object).await;
            assert!(taken.is_ok(), "{object:#}: {taken:?}");
        }
    }
    let deployment = render(&[])
        .into_iter()
        .find(|one| one["kind"] == "Deployment")
        .unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"],
        true
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
}

#[test]
fn bad_values_are_refused() {
    for value in [
        "config.overlays.pricing=free",
        "config.aws.accountId=1",
        "config.prometheusUrl=prometheus:9090",
        "config.unknown=1",
        "replicaCount=none",
    ] {
        let said = Command::new(veneer_testbed::helm().unwrap())
            .args(["template", "veneer"])
            .arg(root().join("charts/veneer"))
            .args(["--set-string", value])
            .output()
            .unwrap();
        assert!(!said.status.success(), "{value} was taken");
        let err = String::from_utf8_lossy(&said.stderr);
        assert!(
            err.contains("values don't meet the specifications"),
            "{value}: {err}"
        );
    }
}

#[tokio::test]
async fn prometheus_understands_the_alerts_and_the_dashboard() {
    let cluster = start(Options::api_server().with(Part::Prometheus)).await;
    let folder = root().join("charts/veneer");
    let rules = std::fs::read_to_string(folder.join("alerts/veneer.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let dashboard = std::fs::read_to_string(folder.join("dashboards/veneer.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let alerts = rules["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["expr"]);
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| &target["expr"]);
    let expressions: Vec<String> = alerts
        .chain(targets)
        .map(|expr| expr.as_str().unwrap().replace("$__rate_interval", "5m"))
        .collect();
    assert!(expressions.len() >= 20);
    let config = kube::Config::new(cluster.prometheus_url().parse().unwrap());
    let prometheus = Client::try_from(config).unwrap();
    for expression in expressions {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let request = http::Request::get(format!("/api/v1/query?query={escaped}"))
            .body(Vec::new())
            .unwrap();
        let answer = prometheus.request_text(request).await;
        assert!(answer.is_ok(), "{expression}: {answer:?}");
    }
}

/// `veneer run` as the chart's Deployment would run it, and its log.
struct Running {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(installed: &Installed) -> Self {
        let folder = installed.folder.path();
        let config = folder.join("veneer.yaml");
        let container = &installed.one("Deployment")["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap());
        let arguments = arguments.map(|one| match one {
            "--config=/etc/veneer/veneer.yaml" => format!("--config={}", config.display()),
            other => other.to_owned(),
        });
        let mut child = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args(arguments)
            .args(["--leader-election-lease-duration=1s", "--log-format=json"])
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("VENEER_METRICS_BIND_ADDRESS", "0")
            .env("VENEER_HEALTH_PROBE_BIND_ADDRESS", "0")
            .env("VENEER_LEADER_ELECTION_NAMESPACE", NAMESPACE)
            .env("VENEER_PROMETHEUS_RETRIES", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, err) = (Arc::clone(&log), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log }
    }

    async fn eventually<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(
                began.elapsed() < DEADLINE,
                "{what}: {:#?}",
                self.log.lock().unwrap()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The chart in a cluster, and what its Pods would get.
struct Installed {
    /// The rendered objects.
    objects: Vec<Value>,
    folder: tempfile::TempDir,
}

impl Installed {
    /// Installs the chart with Veneer's own CRDs; also gives its notes.
    async fn start(cluster: &Cluster, admin: &Client, values: &[&str]) -> (Self, String) {
        let crds = veneer_api::crds(veneer_api::Mode::Standalone, None);
        let crds: Vec<String> = crds.iter().map(|crd| veneer_api::to_yaml(crd).unwrap()).collect();
        cluster.install_crds(&crds).unwrap();
        let objects = render(values);
        let kubeconfig = cluster.kubeconfig_path().display().to_string();
        let sets = values.iter().flat_map(|value| ["--set-string", *value]);
        let install = [
            "install",
            "veneer",
            "--create-namespace",
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            &kubeconfig,
        ];
        let notes = helm(&install.into_iter().chain(sets).collect::<Vec<_>>());
        // A kubeconfig with a token of the service account, and nothing else.
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request("veneer", &PostParams::default(), &request)
            .await
            .unwrap();
        let text = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
        let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token.status.unwrap().token});
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let installed = Self { objects, folder };
        let config = installed.one("ConfigMap")["data"]["veneer.yaml"].clone();
        std::fs::write(
            installed.folder.path().join("veneer.yaml"),
            config.as_str().unwrap(),
        )
        .unwrap();
        (installed, notes)
    }

    fn one(&self, kind: &str) -> &Value {
        self.objects.iter().find(|one| one["kind"] == kind).unwrap()
    }

    /// Every right as `verb resource.group`.
    fn rights(&self) -> BTreeSet<String> {
        let mut rights = BTreeSet::new();
        for rule in ["ClusterRole", "Role"]
            .iter()
            .flat_map(|kind| self.one(kind)["rules"].as_array().unwrap())
        {
            let list = |key: &str| {
                rule[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| one.as_str().unwrap())
            };
            for group in list("apiGroups") {
                for resource in list("resources") {
                    rights.extend(list("verbs").map(|verb| format!("{verb} {resource}.{group}")));
                }
            }
        }
        rights
    }
}

#[tokio::test]
async fn the_binary_works_with_exactly_the_rights_of_the_chart() {
    let cluster = start(Options::api_server()).await;
    let admin = client(&cluster.kubeconfig_path()).await;
    let (installed, notes) = Installed::start(&cluster, &admin, &PROMETHEUS).await;
    assert!(
        notes.contains("Veneer runs beside Karpenter in namespace veneer-system"),
        "{notes}"
    );

    let running = Running::start(&installed);
    // Everything that it watches changes while it runs, so that every right is used.
    let pools: Api<DynamicObject> = Api::all_with(admin.clone(), &ApiResource::erase::<NodePool>(&()));
    let overlays: Api<DynamicObject> = Api::all_with(admin.clone(), &ApiResource::erase::<NodeOverlay>(&()));
    running
        .eventually("it leads", async || {
            let log = running.log.lock().unwrap();
            log.iter()
                .any(|line| line.contains("this replica leads"))
                .then_some(())
        })
        .await;
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "web", "annotations": {
            "veneer.io/preference.1": "kubernetes.io/arch=arm64 adjust=-20%",
            "veneer.io/preference.2": "kubernetes.io/arch=arm64 adjust=20%",
        }},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [], "expireAfter": "Never"}}, "disruption": {"consolidateAfter": "Never"}}});
    pools
        .create(&PostParams::default(), &serde_json::from_value(pool).unwrap())
        .await
        .unwrap();
    running
        .eventually("the overlay is created", async || {
            overlays.get_opt("pref-web-1").await.unwrap()
        })
        .await;
    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    running
        .eventually("the warning is written", async || {
            let all = events.list(&Default::default()).await.unwrap();
            all.into_iter()
                .find(|event| event.reason.as_deref() == Some("InvalidPreference"))
        })
        .await;
    let change = json!({"metadata": {"annotations": {"veneer.io/preference.1": "kubernetes.io/arch=arm64 adjust=-30%"}}});
    pools
        .patch("web", &PatchParams::default(), &Patch::Merge(change))
        .await
        .unwrap();
    running
        .eventually("the overlay is updated", async || {
            let overlay = overlays.get("pref-web-1").await.unwrap();
            (overlay.data["spec"]["priceAdjustment"] == "-30%").then_some(())
        })
        .await;
    let change = json!({"metadata": {"annotations": {"veneer.io/preference.1": null}}});
    pools
        .patch("web", &PatchParams::default(), &Patch::Merge(change))
        .await
        .unwrap();
    running
        .eventually("the overlay is deleted", async || {
            overlays
                .get_opt("pref-web-1")
                .await
                .unwrap()
                .is_none()
                .then_some(())
        })
        .await;
    // A watch that is not allowed, or a Lease that cannot be renewed, would have been told by now.
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let renewed = async || leases.get("veneer").await.unwrap().spec.unwrap().renew_time;
    let before = renewed().await;
    running
        .eventually("the Lease is renewed", async || {
            (renewed().await != before).then_some(())
        })
        .await;
    let log = running.log.lock().unwrap().join("\n");
    for trouble in ["forbidden", "not allowed", "cannot watch", "cannot write"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
    drop(running);
    assert!(leases.get("veneer").await.unwrap().name_any() == "veneer");
}

#[tokio::test]
async fn standalone_mode_works_with_the_rights_of_the_chart_and_uses_them() {
    let cluster = start(Options::nodes().audited()).await;
    let admin = client(&cluster.kubeconfig_path()).await;
    let (installed, notes) = Installed::start(&cluster, &admin, &["mode=standalone", "provider=kwok"]).await;
    assert!(notes.contains("Veneer provisions nodes"), "{notes}");
    // Its Pods would want nodes as well; this test is what runs in their place.
    let charted: Api<Deployment> = Api::namespaced(admin.clone(), NAMESPACE);
    charted.delete("veneer", &Default::default()).await.unwrap();
    let running = Running::start(&installed);
    let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "dear"},
        "spec": {"priceAdjustment": "+10%", "requirements": requirements}});
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "default"}});
    let mut pool = workload::node_pool("default", json!({"requirements": requirements}));
    pool["metadata"]["annotations"] =
        json!({"veneer.io/preference.1": "kubernetes.io/arch=arm64 adjust=-20%"});
    for (object, kind) in [
        (class, ApiResource::erase::<veneer_api::KWOKNodeClass>(&())),
        (overlay, ApiResource::erase::<NodeOverlay>(&())),
        (pool, ApiResource::erase::<NodePool>(&())),
        (
            workload::deployment("work", 1, &json!({"cpu": "1"}), json!({})),
            ApiResource::erase::<Deployment>(&()),
        ),
    ] {
        let api: Api<DynamicObject> = match kind.kind.as_str() {
            "Deployment" => Api::default_namespaced_with(admin.clone(), &kind),
            _ => Api::all_with(admin.clone(), &kind),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap();
    }
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::all(admin.clone()), Api::all(admin.clone()));
    let is_running = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod.status.as_ref().unwrap().phase.as_deref() == Some("Running")
    };
    let runs_on = async || {
        let pods = pods.list(&Default::default()).await.unwrap();
        let pod = pods.items.into_iter().find(is_running)?;
        pod.spec.unwrap().node_name
    };
    let first = running.eventually("the pod runs", runs_on).await;
    // Its node is taken away: the pod is evicted, and another node comes.
    nodes.delete(&first, &Default::default()).await.unwrap();
    running
        .eventually("the pod runs elsewhere", async || {
            runs_on().await.filter(|node| *node != first)
        })
        .await;
    // A preference is another one, and then none.
    let (pools, overlays): (Api<NodePool>, Api<NodeOverlay>) =
        (Api::all(admin.clone()), Api::all(admin.clone()));
    for (preference, adjustment) in [
        (json!("kubernetes.io/arch=arm64 adjust=-30%"), Some("-30%")),
        (json!(null), None),
    ] {
        let change =
            Patch::Merge(json!({"metadata": {"annotations": {"veneer.io/preference.1": preference}}}));
        pools
            .patch("default", &PatchParams::default(), &change)
            .await
            .unwrap();
        running
            .eventually("the overlay follows", async || {
                let overlay = overlays.get_opt("pref-default-1").await.unwrap();
                let found = overlay.and_then(|one| one.spec.price_adjustment);
                (found.as_deref() == adjustment).then_some(())
            })
            .await;
    }
    let deployments: Api<Deployment> = Api::default_namespaced(admin.clone());
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments
        .patch("work", &PatchParams::default(), &none)
        .await
        .unwrap();
    running
        .eventually("all nodes go", async || {
            let nodes = nodes.list(&Default::default()).await.unwrap();
            nodes.items.is_empty().then_some(())
        })
        .await;

    let mut used = BTreeSet::new();
    for request in cluster.requests() {
        let of = &request["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if request["user"]["username"] != format!("system:serviceaccount:{NAMESPACE}:veneer") || of.is_null()
        {
            continue;
        }
        assert_ne!(request["responseStatus"]["code"], 403, "{request:#}");
        let mut resource = text(&of["resource"]);
        if let Some(part) = of["subresource"].as_str() {
            resource = format!("{resource}/{part}");
        }
        used.insert(format!(
            "{} {resource}.{}",
            text(&request["verb"]),
            text(&of["apiGroup"])
        ));
    }
    let rights = installed.rights();
    // An object is read after a conflict only, a pod is deleted when its node's time is up, and there are no spares here.
    // Overlays are made by patches (server-side apply), for which the API server asks for the right to create too.
    // Reviews are asked for only where something looks like a Karpenter.
    let rare = [
        "create nodeoverlays.karpenter.sh",
        "create subjectaccessreviews.authorization.k8s.io",
        "delete pods.",
        "get nodeclaims.karpenter.sh",
        "get nodepools.karpenter.sh",
        "get overprovisioners.karpenter.sh",
        "patch overprovisioners/status.karpenter.sh",
    ];
    let unused: Vec<&String> = rights
        .difference(&used)
        .filter(|right| !rare.contains(&right.as_str()))
        .collect();
    assert!(unused.is_empty(), "{unused:?} is not used");
}
