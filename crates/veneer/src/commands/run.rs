//! `veneer run`: the controllers, until a signal ends them.

pub(crate) mod embedded;
mod standalone;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use kube::config::KubeConfigOptions;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{Level, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};
use veneer_controllers::export::{Exported, keep_collecting};
use veneer_controllers::{
    Election, LivePrices, Mode, Output, PrometheusSettings, Provider, Server, Settings, SteeringSettings,
};
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_steering::commitments::Scope;
use veneer_steering::overlays::Pricing;
use veneer_steering::steer;

use embedded::EmbeddedArgs;
use standalone::StandaloneArgs;

use super::export;
use crate::config::export::ExportConfig;
use crate::config::{self, CommitmentSource, Config, ConfigArgs, LogFormat, PricingMode};

/// Runs the controllers in a cluster: writes the NodeOverlays that preferences and commitments ask for, evaluates all of
/// them, reports what became of each, and serves metrics
///
/// In companion mode Karpenter provisions nodes: Veneer turns preferences of NodePools and what is left of Savings Plans
/// and Reserved Instances into NodeOverlays, and compares the conditions that Karpenter writes with its own verdicts. In
/// standalone mode Veneer writes the conditions. With --embedded everything runs on a cluster in memory. Every key of the configuration is a flag, a variable VENEER_… and a key of
/// the file given by --config; a flag wins over a variable, and a variable over the file.
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

    /// Region of the embedded AWS catalogue [default: the one of --aws-region, else us-east-1]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,

    #[command(flatten)]
    standalone: StandaloneArgs,

    #[command(flatten)]
    embedded: EmbeddedArgs,

    /// Makes one pass over the cluster and ends
    #[arg(long)]
    once: bool,

    /// Prints the changes that would be written, and writes nothing
    #[arg(long)]
    dry_run: bool,

    /// Companion: keeps the spare nodes of Overprovisioners, as NodeClaims that Karpenter launches
    #[arg(long, env = "VENEER_OVERPROVISIONERS")]
    overprovisioners: bool,

    /// Features to turn on or off: NodeOverlay=true|false, SpotToSpotConsolidation=true|false
    #[arg(
        long,
        value_name = "GATES",
        default_value = "NodeOverlay=true",
        value_parser = Gates::parse,
        env = "VENEER_FEATURE_GATES"
    )]
    feature_gates: Gates,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Reads the configuration from FILE (YAML)
    #[arg(long, value_name = "FILE", env = "VENEER_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: ConfigArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ModeArg {
    Companion,
    Standalone,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum ProviderArg {
    Ec2,
    Kwok,
}

/// Features that can be turned off.
#[derive(Clone, Copy, Debug)]
struct Gates {
    node_overlay: bool,
    spot_to_spot: bool,
}

impl Gates {
    fn parse(text: &str) -> Result<Self, String> {
        let mut gates = Self {
            node_overlay: true,
            spot_to_spot: false,
        };
        for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
            let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
            let slot = match name {
                "NodeOverlay" => &mut gates.node_overlay,
                "SpotToSpotConsolidation" => &mut gates.spot_to_spot,
                _ => {
                    return Err(format!(
                        "unknown feature gate {gate:?}; expected NodeOverlay=true|false or SpotToSpotConsolidation=true|false"
                    ));
                }
            };
            *slot = value
                .parse()
                .map_err(|_| format!("{name} is {value:?}; expected true or false"))?;
        }
        Ok(gates)
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let config = configuration(args)?;
    if args.embedded.embedded {
        embedded::check(args)?;
        embedded::run(args, &config)?;
        return Ok(ExitCode::SUCCESS);
    }
    standalone::check_cluster_name(args, &config)?;
    let catalogue = Arc::new(catalogue(args, &config)?);
    start_log(config.log_level, config.log_format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(serve(args, &config, catalogue))?;
    Ok(ExitCode::SUCCESS)
}

/// Flags, environment and file, or everything that is wrong with them.
fn configuration(args: &RunArgs) -> Result<Config> {
    let text = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let name = path.display().to_string();
            let text = text.with_context(|| format!("cannot read the configuration {name} (--config)"))?;
            Some((name, text))
        }
        None => None,
    };
    let file = text.as_ref().map(|(name, text)| config::File { name, text });
    let environment = |name: &str| std::env::var(name).ok();
    config::resolve(&args.settings.0, environment, file.as_ref())
        .map_err(|faults| anyhow!(config::describe(&faults)))
}

fn catalogue(args: &RunArgs, config: &Config) -> Result<Catalogue> {
    let Some(path) = &args.catalog else {
        // In standalone mode nobody else has instance types that ours would have to agree with.
        if args.provider == ProviderArg::Kwok && args.mode == ModeArg::Companion {
            bail!(
                "--provider kwok needs --catalog FILE: the instance types that the KWOK provider launches (its instance_types.json)"
            );
        }
        let configured = (!config.aws_region.is_empty()).then_some(config.aws_region.as_str());
        let region = args.region.as_deref().or(configured).unwrap_or("us-east-1");
        return Ok(aws::region(region).context("--region")?.catalogue);
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
pub(super) fn start_log(level: Level, format: Option<LogFormat>) {
    let ours = Targets::new()
        .with_default(Level::WARN.min(level))
        .with_target("veneer", level)
        .with_target("veneer_aws", level)
        .with_target("veneer_controllers", level);
    let terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal {
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

async fn serve(args: &RunArgs, config: &Config, catalogue: Arc<Catalogue>) -> Result<()> {
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
        let metrics = Server::metrics(
            &config.metrics_bind_address,
            &settings.metrics,
            &settings.decisions,
            &settings.pending,
        )
        .await?;
        let probes = Server::probes(&config.health_probe_bind_address, &settings.health).await?;
        for (what, server) in [("metrics", &metrics), ("probes", &probes)] {
            if let Some(server) = server {
                info!(address = %server.address(), "serving {what}");
            }
        }
        settings.servers = metrics.into_iter().chain(probes).collect();
    }
    let mut cluster = cluster(args).await?;
    // The controllers try again by themselves. The client would hold a whole pass up for minutes where a
    // PodDisruptionBudget refuses an eviction, which is answered with 429.
    cluster.default_retry = false;
    // Audit logs name who asked.
    let agent = HeaderValue::from_static(concat!("veneer/", env!("CARGO_PKG_VERSION")));
    cluster.headers.push((USER_AGENT, agent));
    let mut steering = steering(config)?;
    if config.commitments.source == CommitmentSource::Aws {
        let exported = collect(config).await?;
        settings.prices = live_prices(args, config, &exported);
        steering.inventory = Some(exported);
    }
    settings.steering = Some(steering);
    if config.leader_election.enabled && !args.once && !args.dry_run {
        settings.election = Some(election(config, &cluster));
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = ?mode,
        provider = ?provider,
        instance_types = settings.catalogue.types.len(),
        cluster = %cluster.cluster_url,
        dry_run = args.dry_run,
        "starting"
    );
    let ec2 = standalone::ec2(config, &cluster);
    let client = Client::try_from(cluster).context("cannot use the kubeconfig")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    settings.provisioning = standalone::settings(args, &settings, ec2);
    settings.look_for_karpenter_every = args.standalone.look_for_karpenter_every;
    settings.spares_beside = args.overprovisioners && mode == Mode::Companion && !args.once && !args.dry_run;
    if settings.provisioning.is_some() {
        // An API server that does not answer is waited for later, when the probes are served.
        match veneer_controllers::standalone::check(&client).await {
            Err(error @ standalone::ProvisioningError::Rival(_)) => return Err(error.into()),
            Err(error) => warn!(%error, "trying again"),
            Ok(()) => {}
        }
    }
    veneer_controllers::run(client, settings, shutdown).await?;
    Ok(())
}

/// Where today's prices are read; instance types of a file keep the prices that it says.
fn live_prices(args: &RunArgs, config: &Config, exported: &Exported) -> Option<LivePrices> {
    let region = args.region.as_ref().unwrap_or(&config.aws_region);
    args.catalog.is_none().then(|| LivePrices {
        inventory: exported.clone(),
        account: config.aws_account_id.clone(),
        region: region.clone(),
    })
}

/// Begins to collect the accounts, beside everything else.
async fn collect(config: &Config) -> Result<Exported> {
    let accounts = match &config.commitments.config_file {
        Some(path) => {
            let accounts = export::read(Path::new(path)).context("commitments.configFile")?;
            if accounts
                .accounts
                .iter()
                .all(|account| account.id != config.aws_account_id)
            {
                bail!(
                    "{path} (commitments.configFile) has no account {} (aws.accountId)",
                    config.aws_account_id
                );
            }
            accounts
        }
        None => ExportConfig::of_account(&config.aws_account_id, std::slice::from_ref(&config.aws_region)),
    };
    let exported = Exported::new(accounts.series.clone());
    let collector = export::collector(&accounts).await?;
    let inventory = export::inventory(&accounts);
    tokio::spawn(keep_collecting(
        collector,
        inventory,
        exported.clone(),
        export::pause(&accounts),
    ));
    Ok(exported)
}

/// What the configuration says about overlays to write.
fn steering(config: &Config) -> Result<SteeringSettings> {
    let overlays = &config.overlays;
    Ok(SteeringSettings {
        prometheus: match &config.prometheus_url {
            Some(url) => Some(prometheus(url, &config.prometheus)?),
            None => None,
        },
        inventory: None,
        scope: Scope {
            account: config.aws_account_id.clone(),
            region: config.aws_region.clone(),
            shared_plans: config.aws_shared_plans,
            freshness_limit: config.freshness_limit.try_into().context("freshnessLimit")?,
        },
        interval: config.reconcile_interval,
        overlays: steer::Settings {
            threshold: overlays.utilization_threshold,
            hysteresis: overlays.hysteresis,
            disabled: overlays.disabled,
            weights: overlays.weights,
            naming: overlays.naming.clone(),
            pricing: match overlays.pricing {
                PricingMode::Ordered => Pricing::Ordered {
                    adjustment: format!("-{}%", overlays.discount_percent),
                },
                PricingMode::Zero => Pricing::Zero,
            },
            family_label: overlays.instance_family_label.clone(),
            mixed_pools: overlays.mixed_pools,
            preferences: config.preferences_enabled,
        },
    })
}

fn prometheus(url: &str, config: &config::Prometheus) -> Result<PrometheusSettings> {
    let readable = |key: &str, path: &Option<String>| match path {
        Some(path) => std::fs::read_to_string(path)
            .map(Some)
            .with_context(|| format!("cannot read {path} ({key})")),
        None => Ok(None),
    };
    readable("prometheus.bearerTokenFile", &config.bearer_token_file)?;
    readable("prometheus.caFile", &config.ca_file)?;
    let password = readable("prometheus.passwordFile", &config.password_file)?;
    let password = password.map(|password| password.trim_end_matches(['\r', '\n']).to_owned());
    Ok(PrometheusSettings {
        url: url.to_owned(),
        timeout: config.timeout,
        retries: config.retries,
        bearer_token_file: config.bearer_token_file.clone(),
        basic: config.username.clone().zip(password),
        ca_file: config.ca_file.clone(),
        headers: config.headers.clone(),
        matcher: config.matcher.clone(),
    })
}

fn election(config: &Config, cluster: &kube::Config) -> Election {
    let election = &config.leader_election;
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "veneer".to_owned());
    // A Pod that starts again is another candidate: what the old one began must not count as its own.
    let started = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    Election {
        namespace: election
            .namespace
            .clone()
            .unwrap_or_else(|| cluster.default_namespace.clone()),
        name: election.lease_name.clone(),
        identity: format!("{host}_{}_{started:x}", std::process::id()),
        duration: election.lease_duration,
        cluster: Some(cluster.clone()),
    }
}

async fn cluster(args: &RunArgs) -> Result<kube::Config> {
    let cluster = match &args.context {
        Some(context) => {
            let options = KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            };
            kube::Config::from_kubeconfig(&options)
                .await
                .map_err(anyhow::Error::new)
        }
        None => kube::Config::infer().await.map_err(anyhow::Error::new),
    };
    cluster.context("found no cluster; set KUBECONFIG, or run in a Pod with a service account")
}
