//! Starts the real parts that the tests run against: etcd, the Kubernetes control plane, kwok, and Karpenter
//! with its KWOK provider, Prometheus, and moto in the role of AWS.
//!
//! ```no_run
//! let cluster = veneer_testbed::Cluster::start(veneer_testbed::Options::nodes())?;
//! std::process::Command::new("kubectl").args(["get", "nodes"]).envs(cluster.env()).status()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - A [`Cluster`] is ready when `start` returns: every part has answered on its own readiness endpoint.
//! - No part outlives its cluster, nor the process that started it, however that process ends.
//! - Clusters share nothing: folder, ports, certificates and tokens are their own.
//! - A panic keeps the logs of the clusters that it takes down, in `logs` of the cache.
//! - Nothing here builds a part. A missing one is an error that names the command to run.

mod aws;
pub mod aws_double;
mod certs;
mod cluster;
mod error;
mod folder;
mod http;
mod launch;
mod options;
mod part;
mod ports;
mod process;
pub mod workload;

pub use aws::{Aws, Prepared};
pub use certs::KUBECONFIG_MARK;
pub use cluster::Cluster;
pub use error::Error;
pub use options::Options;
pub use part::{Part, helm, karpenter_crds, karpenter_instance_types};
