//! The commands as processes that run beside a test: what they log, what they serve, and what they write into a cluster.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "every test file uses some of it, and helpers fail as tests do"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::runtime::Runtime;
use veneer_api::NodeOverlay;
use veneer_testbed::Cluster;

const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(
                began.elapsed() < DEADLINE,
                "not within {DEADLINE:?}: {what}: {why}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A command that is killed at the end.
pub(crate) struct Running {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (log, err) = (Arc::default(), child.stderr.take().unwrap());
        let lines: Arc<Mutex<Vec<String>>> = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log }
    }

    /// All that it logged.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// The lines of its log with this message.
    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        let lines = log
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Where it serves something.
    pub(crate) fn address(&self, what: &str) -> String {
        eventually(what, || {
            let lines = self.lines(what).into_iter();
            let mut served = lines.filter_map(|line| Some(line["address"].as_str()?.to_owned()));
            served.next().ok_or_else(|| self.log())
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of a page.
pub(crate) fn get(address: &str, path: &str) -> Result<(u16, String), String> {
    let mut stream = std::net::TcpStream::connect(address).map_err(|error| error.to_string())?;
    let question = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream
        .write_all(question.as_bytes())
        .map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or("no status")?, body.to_owned()))
}

/// The objects of a cluster.
pub(crate) struct Objects {
    runtime: Runtime,
    client: Client,
}

impl Objects {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            Client::try_from(config.unwrap()).unwrap()
        });
        Self { runtime, client }
    }

    /// Creates an object; one that has a namespace, in `default`.
    pub(crate) fn create(&self, object: Value) {
        let text = |key: &str| object[key].as_str().unwrap();
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        let kind = text("kind");
        let plural = match kind {
            "KWOKNodeClass" => "kwoknodeclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        let api: Api<DynamicObject> = match kind {
            "Pod" => Api::default_namespaced_with(self.client.clone(), &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        };
        let object = serde_json::from_value(object).unwrap();
        self.runtime
            .block_on(api.create(&PostParams::default(), &object))
            .unwrap();
    }

    /// All objects of a kind that has no namespace.
    pub(crate) fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Vec<DynamicObject> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()));
        let found = self.runtime.block_on(api.list(&ListParams::default()));
        found.unwrap().items
    }

    /// The names of all overlays.
    pub(crate) fn overlays(&self) -> Vec<String> {
        let all = self.all::<NodeOverlay>();
        all.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits until these overlays exist and no others, by name.
    pub(crate) fn wait_for_overlays(&self, running: &Running, expected: &[&str]) {
        eventually("overlays", || {
            let found = self.overlays();
            match found == expected {
                true => Ok(()),
                false => Err(format!("{found:?}\n{}", running.log())),
            }
        });
    }
}
