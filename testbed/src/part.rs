//! The parts a cluster is made of, and where their binaries are.
//!
//! `testbed/parts/build` puts the binaries into a cache outside the repository; this module only looks there. With
//! `VENEER_KUBERNETES` in the environment, as in `VENEER_KUBERNETES=1.30`, the Kubernetes parts are those of that version.

use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::Error;

/// A program that a cluster can run. The order is the order in which parts start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-scheduler.
    Scheduler,
    /// kube-controller-manager.
    ControllerManager,
    /// kwok, which plays the kubelet of every Node annotated `kwok.x-k8s.io/node: fake`.
    Kwok,
    /// Karpenter with its KWOK provider and the NodeOverlay feature gate on.
    Karpenter,
    /// Prometheus, which scrapes what listens on [`crate::Cluster::exporter_port`] several times a second.
    Prometheus,
    /// moto, which plays AWS: EC2, IAM, SSM and SQS, with faults on request (`testbed/parts/moto/launcher.py`).
    Moto,
}

impl Part {
    /// The name of the binary, which is also the name of the part in messages and logs.
    pub fn name(self) -> &'static str {
        match self {
            Part::Etcd => "etcd",
            Part::ApiServer => "kube-apiserver",
            Part::Scheduler => "kube-scheduler",
            Part::ControllerManager => "kube-controller-manager",
            Part::Kwok => "kwok",
            Part::Karpenter => "karpenter-kwok",
            Part::Prometheus => "prometheus",
            Part::Moto => "moto",
        }
    }

    /// The binary of this part, or an error that says how to build it.
    pub(crate) fn binary(self) -> Result<PathBuf, Error> {
        match (self, kubernetes_version()) {
            (Part::ApiServer | Part::Scheduler | Part::ControllerManager, Some(version)) => {
                built_in(&format!("kubernetes-{version}"), self.name())
            }
            _ => built(self.name()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The version of Kubernetes that was asked for instead of the newest.
fn kubernetes_version() -> Option<String> {
    env::var("VENEER_KUBERNETES")
        .ok()
        .filter(|version| !version.is_empty())
}

/// Whether the Kubernetes parts are not of the newest version.
pub(crate) fn has_older_kubernetes() -> bool {
    kubernetes_version().is_some()
}

/// The texts of Karpenter's own CustomResourceDefinitions (its core ones and its KWOK provider's), in the version
/// that [`Part::Karpenter`] runs, ordered by file name.
pub fn karpenter_crds() -> Result<Vec<String>, Error> {
    let folder = built("karpenter-kwok.files")?.join("crds");
    let mut paths = std::fs::read_dir(&folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| Error::io("read the CRDs in", &folder, error))?
        .into_iter()
        .map(|entry| entry.path())
        .collect::<Vec<_>>();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error)))
        .collect()
}

/// The catalogue that Karpenter's KWOK provider launches from.
pub fn karpenter_instance_types() -> Result<PathBuf, Error> {
    Ok(built("karpenter-kwok.files")?.join("instance-types.json"))
}

/// The program `helm`.
pub fn helm() -> Result<PathBuf, Error> {
    built("helm")
}

/// The folder that outlives clusters; the same rule as in `testbed/parts/build`.
pub(crate) fn cache() -> Result<PathBuf, Error> {
    let folder = |variable| {
        env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("VENEER_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("veneer")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/veneer")))
        .ok_or(Error::NoCache)
}

fn built(name: &'static str) -> Result<PathBuf, Error> {
    built_in("", name)
}

fn built_in(folder: &str, name: &'static str) -> Result<PathBuf, Error> {
    let path = cache()?.join("parts/bin").join(folder).join(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(Error::NotBuilt { name, path })
    }
}
