//! A real API server with a set of CRDs, and its verdicts.

use std::time::{Duration, Instant};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use veneer_testbed::{Cluster, Options};

/// An API server.
pub(crate) struct Server {
    client: Client,
    cluster: Cluster,
}

/// What the API server thinks of an object.
#[derive(Debug)]
pub(crate) enum Verdict {
    Accepted(Value),
    Refused(String),
}

impl Verdict {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self, Verdict::Accepted(_))
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Server {
    pub(crate) async fn start() -> Self {
        let cluster = tokio::task::spawn_blocking(|| Cluster::start(Options::api_server()).unwrap())
            .await
            .unwrap();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Self {
            client: Client::try_from(config).unwrap(),
            cluster,
        }
    }

    /// Installs CRDs in place of those that are there, and waits until every one of them is served.
    pub(crate) async fn replace_crds(&self, texts: &[String]) {
        self.send("DELETE", CRDS, "application/json", String::new())
            .await
            .unwrap();
        self.eventually("the former CRDs are gone", CRDS, |list| {
            list["items"] == Value::Array(Vec::new())
        })
        .await;
        self.cluster.install_crds(texts).unwrap();
        let crds: Value =
            serde_json::from_str(&self.send("GET", CRDS, "", String::new()).await.unwrap()).unwrap();
        let crds = crds["items"].as_array().unwrap();
        assert_eq!(crds.len(), texts.len());
        for crd in crds {
            let spec = &crd["spec"];
            let path = format!(
                "/apis/{}/{}/{}",
                spec["group"].as_str().unwrap(),
                spec["versions"][0]["name"].as_str().unwrap(),
                spec["names"]["plural"].as_str().unwrap()
            );
            self.eventually("the CRD is served", &path, |list| list["items"].is_array())
                .await;
        }
    }

    /// Asks whether a new object would be accepted, as kubectl does: with strict field validation.
    pub(crate) async fn create(&self, object: &Value) -> Verdict {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
        self.verdict("POST", &path, "application/json", object.to_string())
            .await
    }

    /// The same for the text of a manifest, which the API server reads itself.
    pub(crate) async fn create_from_yaml(&self, collection: &str, yaml: &str) -> Verdict {
        let path = format!("{collection}?dryRun=All&fieldValidation=Strict");
        self.verdict("POST", &path, "application/yaml", yaml.to_owned())
            .await
    }

    /// Asks whether an object that exists could become another one. Leaves nothing behind.
    pub(crate) async fn update(&self, from: &Value, to: &Value) -> Verdict {
        self.apply(from, "", "").await;
        let verdict = self.apply(to, "", "&dryRun=All").await;
        self.delete(from).await;
        verdict
    }

    /// Asks whether an object could have this status. Leaves nothing behind.
    pub(crate) async fn status(&self, object: &Value) -> Verdict {
        let mut without_status = object.clone();
        without_status.as_object_mut().unwrap().remove("status");
        let created = self.apply(&without_status, "", "").await;
        assert!(created.is_accepted(), "{created:?}");
        let verdict = self.apply(object, "/status", "&dryRun=All").await;
        self.delete(object).await;
        verdict
    }

    /// Stores an object and returns it as the API server keeps it.
    pub(crate) async fn store(&self, object: &Value) -> Value {
        match self.apply(object, "", "").await {
            Verdict::Accepted(stored) => stored,
            Verdict::Refused(message) => panic!("{object}: {message}"),
        }
    }

    pub(crate) async fn delete(&self, object: &Value) {
        self.send("DELETE", &path_of(object), "", String::new())
            .await
            .unwrap();
    }

    async fn apply(&self, object: &Value, subresource: &str, options: &str) -> Verdict {
        let path = format!(
            "{}{subresource}?fieldManager=test&force=true&fieldValidation=Strict{options}",
            path_of(object)
        );
        self.verdict("PATCH", &path, "application/apply-patch+yaml", object.to_string())
            .await
    }

    async fn verdict(&self, method: &str, path: &str, content_type: &str, body: String) -> Verdict {
        match self.send(method, path, content_type, body).await {
            Ok(answer) => Verdict::Accepted(serde_json::from_str(&answer).unwrap()),
            Err(kube::Error::Api(status)) => Verdict::Refused(status.message),
            Err(other) => panic!("{method} {path}: {other}"),
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<String, kube::Error> {
        let mut request = http::Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        self.client
            .request_text(request.body(body.into_bytes()).unwrap())
            .await
    }

    async fn eventually(&self, what: &str, path: &str, holds: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(answer) = self.send("GET", path, "", String::new()).await
                && holds(&serde_json::from_str(&answer).unwrap_or_default())
            {
                return;
            }
            assert!(Instant::now() < deadline, "not within a minute: {what} ({path})");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The path under which objects of a kind stand.
pub(crate) fn collection(object: &Value) -> String {
    let plural = match object["kind"].as_str().unwrap() {
        "NodeOverlay" => "nodeoverlays",
        "NodePool" => "nodepools",
        "NodeClaim" => "nodeclaims",
        "Overprovisioner" => "overprovisioners",
        "KWOKNodeClass" => "kwoknodeclasses",
        "EC2NodeClass" => "ec2nodeclasses",
        kind => panic!("unknown kind {kind}"),
    };
    format!("/apis/{}/{plural}", object["apiVersion"].as_str().unwrap())
}

fn path_of(object: &Value) -> String {
    format!(
        "{}/{}",
        collection(object),
        object["metadata"]["name"].as_str().unwrap()
    )
}
