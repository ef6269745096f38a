//! `testbed up`: one cluster, for as long as the command runs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use veneer_testbed::{Cluster, Error, KUBECONFIG_MARK, Options, Part};

/// Start a cluster and keep it until Ctrl-C
///
/// Starts etcd, the API server, the scheduler and the controller manager, and prints one line per part with the
/// time it took to become ready. Ctrl-C, SIGTERM or SIGHUP ends every part and removes all data.
#[derive(Args)]
pub(crate) struct Up {
    /// Also start kwok: Nodes annotated `kwok.x-k8s.io/node: fake` turn Ready and run the Pods bound to them
    #[arg(long)]
    kwok: bool,

    /// Also start kwok and Karpenter with its KWOK provider, its CRDs and the NodeOverlay feature gate
    #[arg(long)]
    karpenter: bool,

    /// Write the kubeconfig here, and remove it at the end [default: a file in the cluster's own folder]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
}

impl Up {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.kubeconfig {
            refuse_foreign(path)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
        }
        let mut options = Options::api_server()
            .with(Part::Scheduler)
            .with(Part::ControllerManager)
            .stop_on(Arc::clone(&stop));
        if self.kwok || self.karpenter {
            options = options.with(Part::Kwok);
        }
        if self.karpenter {
            options = options.with(Part::Karpenter);
        }

        let began = Instant::now();
        let mut out = io::stdout();
        let started = Cluster::start_and_tell(options, |part, took| {
            // A reader that went away does not end the cluster.
            let _ = writeln!(
                out,
                "{:<24} ready after {:>5.1} s",
                part.name(),
                took.as_secs_f64()
            );
        });
        let mut cluster = match started {
            Err(Error::Stopped(_)) => return Ok(ExitCode::SUCCESS),
            other => other?,
        };
        let copy = self
            .kubeconfig
            .as_deref()
            .map(|path| Copied::to(path, &cluster))
            .transpose()?;
        let kubeconfig = copy
            .as_ref()
            .map_or_else(|| cluster.kubeconfig_path(), |copy| copy.0.clone());
        let _ = writeln!(
            io::stdout(),
            "all ready after {:.1} s at {}; logs in {}; Ctrl-C ends it\nexport KUBECONFIG={}",
            began.elapsed().as_secs_f64(),
            cluster.url(),
            cluster.folder().display(),
            kubeconfig.display()
        );
        while !stop.load(Ordering::Relaxed) {
            cluster.check().context("the cluster broke")?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A kubeconfig outside the cluster's folder, removed on drop because it is worth nothing without the cluster.
struct Copied(PathBuf);

impl Copied {
    fn to(path: &Path, cluster: &Cluster) -> anyhow::Result<Self> {
        let write = || {
            let content = fs::read(cluster.kubeconfig_path())?;
            if path.exists() {
                fs::remove_file(path)?;
            }
            // Only its owner may read a file that carries a token.
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?
                .write_all(&content)?;
            std::path::absolute(path)
        };
        write()
            .map(Copied)
            .with_context(|| format!("cannot write the kubeconfig {}", path.display()))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A kubeconfig that a user has collected over years must not be lost to a throw-away cluster.
fn refuse_foreign(path: &Path) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(content) if !content.starts_with(KUBECONFIG_MARK) => bail!(
            "--kubeconfig {}: the file exists and was not written by testbed; name another file or remove it",
            path.display()
        ),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("--kubeconfig {}: cannot read the file", path.display()))
        }
        _ => Ok(()),
    }
}
