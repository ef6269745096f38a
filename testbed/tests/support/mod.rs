//! What the tests of the testbed share. Each test file compiles its own copy and uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use veneer_testbed::Cluster;

/// A client from the kubeconfig that the cluster wrote.
pub(crate) async fn client(cluster: &Cluster) -> Client {
    client_from(&cluster.kubeconfig_path()).await
}

/// A client from a kubeconfig file.
pub(crate) async fn client_from(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Waits until `look` finds something, and fails with `what` after two minutes.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within two minutes: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(name: &str, pid: u32) {
    assert!(
        Command::new("kill")
            .args(["-s", name, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Whether a process exists that still runs (a zombie has ended).
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

/// An object from its JSON.
pub(crate) fn object<K: DeserializeOwned>(json: serde_json::Value) -> K {
    serde_json::from_value(json).unwrap()
}

/// The status of one of an object's conditions.
pub(crate) fn condition(object: &impl Serialize, kind: &str) -> Option<String> {
    let object = serde_json::to_value(object).unwrap();
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let one = conditions.iter().find(|condition| condition["type"] == kind)?;
    one["status"].as_str().map(str::to_owned)
}

/// The folder of the built parts and of what the testbed keeps.
pub(crate) fn cache() -> PathBuf {
    let folder = |variable| {
        std::env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("VENEER_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("veneer")))
        .unwrap_or_else(|| folder("HOME").unwrap().join(".cache/veneer"))
}
