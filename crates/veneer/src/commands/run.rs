//! `veneer run`: the controllers, until a signal ends them.

mod standalone;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{Level, info};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};
use veneer_controllers::{Mode, Output, Provider, Server, Settings};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;

use standalone::StandaloneArgs;

/// Runs the controllers in a cluster: evaluates NodeOverlays, reports what became of each, and serves metrics
///
/// In companion mode Karpenter owns the conditions of NodeOverlays; they are compared with Veneer's verdicts and
/// never written. In standalone mode Veneer writes them.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Who provisions nodes: Karpenter (companion) or Veneer (standalone)
    #[arg(long, value_enum, default_value = "companion", env = "VENEER_MODE")]
    mode: ModeArg,

    /// Where nodes come from
    #[arg(long, value_enum, default_value = "ec2", env = "VENEER_PROVIDER")]
    provider: ProviderArg,

    /// Reads instance types from FILE (the JSON of Karpenter's KWOK provider)
    #[arg(long, value_name = "FILE", conflicts_with = "region")]
    catalog: Option<PathBuf>,

    /// Region of the embedded AWS catalogue
    #[arg(long, default_value = "us-east-1", value_name = "REGION")]
    region: String,

    #[command(flatten)]
    standalone: StandaloneArgs,

    /// Makes one pass over the cluster and ends
    #[arg(long)]
    once: bool,

    /// Prints the changes that would be written, and writes nothing
    #[arg(long)]
    dry_run: bool,

    /// Features to turn on or off: NodeOverlay=true|false
    #[arg(
        long,
        value_name = "GATES",
        default_value = "NodeOverlay=true",
        value_parser = Gates::parse,
        env = "VENEER_FEATURE_GATES"
    )]
    feature_gates: Gates,

    /// Where /metrics is served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":8080",
        env = "VENEER_METRICS_BIND_ADDRESS"
    )]
    metrics_bind_address: String,

    /// Where /healthz and /readyz are served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":8081",
        env = "VENEER_HEALTH_PROBE_BIND_ADDRESS"
    )]
    health_probe_bind_address: String,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Format of the log on standard error; by default text on a terminal, else json
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,

    /// What is logged: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "VENEER_LOG_LEVEL")]
    log_level: Level,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    Companion,
    Standalone,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ProviderArg {
    Ec2,
    Kwok,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Features that can be turned off.
#[derive(Clone, Copy, Debug)]
struct Gates {
    node_overlay: bool,
}

impl Gates {
    fn parse(text: &str) -> Result<Self, String> {
        let mut gates = Self { node_overlay: true };
        for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
            match gate.split_once('=') {
                Some(("NodeOverlay", value)) => {
                    gates.node_overlay = value
                        .parse()
                        .map_err(|_| format!("NodeOverlay is {value:?}; expected true or false"))?;
                }
                _ => {
                    return Err(format!(
                        "{gate:?} is no gate; expected NodeOverlay=true or NodeOverlay=false"
                    ));
                }
            }
        }
        Ok(gates)
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let catalogue = Arc::new(catalogue(args)?);
    start_log(args);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .context("cannot start the runtime")?
        .block_on(serve(args, catalogue))?;
    Ok(ExitCode::SUCCESS)
}

fn catalogue(args: &RunArgs) -> Result<Catalogue> {
    let Some(path) = &args.catalog else {
        if args.provider == ProviderArg::Kwok {
            bail!(
                "--provider kwok needs --catalog FILE: the instance types that the KWOK provider launches (its instance_types.json)"
            );
        }
        return Ok(aws::region(&args.region).context("--region")?.catalogue);
    };
    let origin = path.display().to_string();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the catalogue {origin}"))?;
    let catalogue = kwok::parse(&text, &origin)?;
    if catalogue.types.is_empty() {
        bail!("the catalogue {origin} has no instance types, so there is nothing to evaluate");
    }
    Ok(catalogue)
}

/// The log goes to standard error; the client's own chatter only when it is about trouble.
fn start_log(args: &RunArgs) {
    let ours = Targets::new()
        .with_default(Level::WARN.min(args.log_level))
        .with_target("veneer", args.log_level)
        .with_target("veneer_controllers", args.log_level);
    let terminal = io::stderr().is_terminal();
    let format = args.log_format.unwrap_or(if terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    });
    let layer = fmt::layer().with_writer(io::stderr);
    let layer = match format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text => {
            let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            layer.with_ansi(colour).with_target(false).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(ours))
        .init();
}

async fn serve(args: &RunArgs, catalogue: Arc<Catalogue>) -> Result<()> {
    let mode = match args.mode {
        ModeArg::Companion => Mode::Companion,
        ModeArg::Standalone => Mode::Standalone,
    };
    let provider = match args.provider {
        ProviderArg::Ec2 => Provider::Ec2,
        ProviderArg::Kwok => Provider::Kwok,
    };
    let mut settings = Settings::new(mode, provider, catalogue);
    settings.once = args.once;
    settings.node_overlay_gate = args.feature_gates.node_overlay;
    if args.dry_run {
        settings.output = Output::Text(Box::new(io::stdout()));
    }
    // A single pass is over before anybody could ask.
    if !args.once {
        let metrics = Server::metrics(&args.metrics_bind_address, &settings.metrics).await?;
        let probes = Server::probes(&args.health_probe_bind_address, &settings.health).await?;
        for (what, server) in [("metrics", &metrics), ("probes", &probes)] {
            if let Some(server) = server {
                info!(address = %server.address(), "serving {what}");
            }
        }
        settings.servers = metrics.into_iter().chain(probes).collect();
    }
    let config = config(args).await?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = ?mode,
        provider = ?provider,
        instance_types = settings.catalogue.types.len(),
        cluster = %config.cluster_url,
        dry_run = args.dry_run,
        "starting"
    );
    let client = Client::try_from(config).context("cannot use the kubeconfig")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    let provisioning = standalone::settings(args, &settings);
    standalone::run(client, settings, provisioning, shutdown).await
}

async fn config(args: &RunArgs) -> Result<Config> {
    let config = match &args.context {
        Some(context) => {
            let options = KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            };
            Config::from_kubeconfig(&options)
                .await
                .map_err(anyhow::Error::new)
        }
        None => Config::infer().await.map_err(anyhow::Error::new),
    };
    config.context("found no cluster; set KUBECONFIG, or run in a Pod with a service account")
}
