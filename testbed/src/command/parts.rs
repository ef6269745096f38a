//! `testbed parts`: builds the parts.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

/// Build the parts from their Go modules into the cache (about ten minutes the first time, a second afterwards)
///
/// The cache is $VENEER_CACHE, or veneer in $XDG_CACHE_HOME or ~/.cache. Needs Go.
#[derive(Args)]
pub(crate) struct Parts {
    /// Parts to build: etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok, karpenter-kwok, prometheus, helm, moto [default: all]
    names: Vec<String>,
}

impl Parts {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/build");
        let status = Command::new(&script)
            .args(&self.names)
            .status()
            .with_context(|| format!("cannot run {}", script.display()))?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
