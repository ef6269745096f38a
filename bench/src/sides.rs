//! The two provisioners that are compared, each alone in a fresh cluster with kwok nodes.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use veneer_testbed::{Cluster, Options, Part};

/// How long a provisioner may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A provisioner.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Karpenter with its KWOK provider.
    Karpenter,
    /// `veneer run --mode standalone --provider kwok`.
    Veneer,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Side::Karpenter => "Karpenter",
            Side::Veneer => "Veneer",
        })
    }
}

/// How many requests kube-scheduler and kube-controller-manager may send.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Rates {
    /// As in a real cluster: 50 and 20 a second.
    Default,
    /// 1,000 a second each, so that only the provisioner is measured.
    Raised,
}

impl fmt::Display for Rates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Rates::Default => "default",
            Rates::Raised => "raised",
        })
    }
}

impl Rates {
    /// The options with these rates.
    #[must_use]
    pub fn of(self, options: Options) -> Options {
        match self {
            Rates::Default => options.default_rates(),
            Rates::Raised => options,
        }
    }
}

/// A provisioner that runs, and its cluster.
#[derive(Debug)]
pub struct Running {
    // The program ends before its cluster.
    child: Option<Process>,
    /// Where it runs.
    pub cluster: Cluster,
    /// The id of its process.
    pub process: u32,
    /// The port on which it answers `/metrics`.
    pub metrics: u16,
}

/// A process that ends with this.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a cluster with a provisioner. `adjust` adds to the options of the cluster; `veneer` is the program to run
    /// for [`Side::Veneer`].
    pub fn start(side: Side, veneer: &Path, adjust: impl FnOnce(Options) -> Options) -> Result<Self> {
        match side {
            Side::Karpenter => {
                let cluster = Cluster::start(adjust(Options::karpenter()))?;
                let processes = cluster.process_ids();
                let process = processes.get(&Part::Karpenter);
                Ok(Running {
                    child: None,
                    process: *process.context("Karpenter does not run")?,
                    metrics: cluster.karpenter_metrics_port(),
                    cluster,
                })
            }
            Side::Veneer => Self::start_veneer(veneer, adjust(Options::nodes())),
        }
    }

    fn start_veneer(binary: &Path, options: Options) -> Result<Self> {
        let cluster = Cluster::start(options)?;
        cluster.install_crds(&veneer_testbed::karpenter_crds()?)?;
        let (metrics, probes) = (free_port()?, free_port()?);
        let log = File::create(cluster.folder().join("veneer.log"))?;
        let child = Command::new(binary)
            .args(["run", "--mode", "standalone", "--provider", "kwok", "--catalog"])
            .arg(veneer_testbed::karpenter_instance_types()?)
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probes}"))
            .arg("--leader-election-enabled=false")
            .env("KUBECONFIG", cluster.provisioner_kubeconfig_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let child = Process(child);
        let process = child.0.id();
        let began = Instant::now();
        while !get(probes, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.0 200")) {
            if began.elapsed() > READY_WITHIN {
                bail!("{} did not become ready", binary.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Running {
            child: Some(child),
            cluster,
            process,
            metrics,
        })
    }

    /// A client of the cluster, with all rights.
    pub async fn client(&self) -> Result<Client> {
        let config = Kubeconfig::read_from(self.cluster.kubeconfig_path())?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// What the provisioner has logged.
    #[must_use]
    pub fn log(&self) -> String {
        match self.child {
            Some(_) => std::fs::read_to_string(self.cluster.folder().join("veneer.log")).unwrap_or_default(),
            None => self.cluster.log_of(Part::Karpenter),
        }
    }

    /// How long the provisioner says that it has thought about pods, in seconds.
    pub fn deciding(&self) -> Result<f64> {
        let text = get(self.metrics, "/metrics")?;
        let sums = text
            .lines()
            .filter(|line| line.starts_with("karpenter_scheduler_scheduling_duration_seconds_sum"));
        // Karpenter also tries out what it could consolidate.
        let sums =
            sums.filter(|line| !line.contains("controller=") || line.contains("controller=\"provisioner\""));
        Ok(sums
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }
}

/// `veneer` beside the program that runs.
pub fn veneer_beside_this() -> Result<std::path::PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("veneer"))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The whole answer of a server on this machine.
fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
