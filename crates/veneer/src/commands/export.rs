//! `veneer export`: what is paid for and by whom, as metrics.

mod collector;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};
use veneer_controllers::Server;
use veneer_controllers::export::{Exported, errors, keep_collecting};
use veneer_inventory::{Account, Inventory, series};

use super::run::start_log;
use crate::config::export::ExportConfig;
use crate::config::{self, LogFormat};
use crate::output;

pub(crate) use collector::collector;

/// Collects Reserved Instances, Savings Plans and running instances of AWS accounts, works out who pays for what, and serves it as
/// metrics
///
/// The metrics have the names and labels of Lumina's, so that dashboards, alerts and `veneer run` read them as they are; a
/// configuration of Lumina's is read as it is. Nothing is changed in any account.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer export --account 123456789012 --region us-west-2 --once
  veneer export --config lumina.yaml
  veneer export --config lumina.yaml --metrics-bind-address :8080

Serves /metrics, /debug/inventory and /debug/bill, and the probes /healthz and /readyz; by default on this machine only.

Exit codes: 0 fine, 1 failed (with --once: something could not be collected), 2 bad usage.")]
pub(crate) struct ExportArgs {
    /// Reads the configuration from FILE (YAML, with Lumina's keys)
    #[arg(
        long,
        value_name = "FILE",
        env = "VENEER_EXPORT_CONFIG",
        required_unless_present = "account"
    )]
    config: Option<PathBuf>,

    /// Collects one account, twelve digits, with the credentials of this process and without a file
    #[arg(long, value_name = "ID", conflicts_with = "config", requires = "region")]
    account: Option<String>,

    /// Region to collect with --account; may be given several times
    #[arg(long, value_name = "REGION", requires = "account")]
    region: Vec<String>,

    /// Collects once, prints the metrics and ends
    #[arg(long)]
    once: bool,

    /// Where /metrics and the debug pages are served; 0 for nowhere [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "VENEER_EXPORT_METRICS_BIND_ADDRESS")]
    metrics_bind_address: Option<String>,

    /// Where the probes are served too; 0 for nowhere else [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", env = "VENEER_EXPORT_HEALTH_PROBE_BIND_ADDRESS")]
    health_probe_bind_address: Option<String>,

    /// Format of the log on standard error: text or json [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_parser = log_format)]
    log_format: Option<LogFormat>,
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" | "pretty" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".to_owned()),
    }
}

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let mut config = configuration(args)?;
    if let Some(address) = &args.metrics_bind_address {
        config.metrics_bind_address.clone_from(address);
    }
    if let Some(address) = &args.health_probe_bind_address {
        config.health_probe_bind_address.clone_from(address);
    }
    start_log(config.log_level, args.log_format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    if args.once {
        runtime.block_on(once(&config))
    } else {
        runtime.block_on(serve(&config))
    }
}

fn configuration(args: &ExportArgs) -> Result<ExportConfig> {
    if let Some(path) = &args.config {
        return read(path);
    }
    let account = args.account.as_deref().unwrap_or_default();
    if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("--account is {account:?}; expected twelve digits such as 123456789012");
    }
    Ok(ExportConfig::of_account(account, &args.region))
}

/// Reads a file, or says everything that is wrong with it.
pub(crate) fn read(path: &std::path::Path) -> Result<ExportConfig> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read the configuration {name}"))?;
    let file = config::File {
        name: &name,
        text: &text,
    };
    ExportConfig::read(&file).map_err(|faults| anyhow!(config::describe(&faults)))
}

/// An inventory of the accounts, with nothing in it.
pub(crate) fn inventory(config: &ExportConfig) -> Inventory {
    let accounts = config.accounts.iter().map(|account| Account {
        id: account.id.clone(),
        name: account.name.clone(),
    });
    let mut inventory = Inventory::new(accounts.collect());
    inventory.discounts = config.discounts.clone();
    inventory
}

/// How often it is looked whether anything is due; what failed is tried again after a minute.
pub(crate) fn pause(config: &ExportConfig) -> Duration {
    let every = &config.reconciliation;
    let shortest = every.ec2.min(every.risp).min(every.pricing);
    shortest
        .min(config.account_validation_interval)
        .min(Duration::from_secs(60))
}

fn now() -> i64 {
    k8s_openapi::jiff::Timestamp::now().as_second()
}

async fn once(config: &ExportConfig) -> Result<ExitCode> {
    let mut inventory = inventory(config);
    collector(config).await?.collect(&mut inventory, now()).await;
    let mut out = output::stdout();
    out.write_all(series::all(&inventory, &config.series, now()).as_bytes())?;
    out.flush()?;
    let failed = errors(&inventory);
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for failed in &failed {
        error!("could not collect {failed}");
    }
    Ok(ExitCode::from(1))
}

async fn serve(config: &ExportConfig) -> Result<ExitCode> {
    let exported = Exported::new(config.series.clone());
    let metrics = Server::exporter(&config.metrics_bind_address, &exported).await?;
    let probes = Server::exporter_probes(&config.health_probe_bind_address, &exported).await?;
    for (what, server) in [("metrics", &metrics), ("probes", &probes)] {
        if let Some(server) = server {
            info!(address = %server.address(), "serving {what}");
        }
    }
    let servers: Vec<_> = metrics
        .into_iter()
        .chain(probes)
        .map(|server| tokio::spawn(server.run()))
        .collect();
    let regions: std::collections::BTreeSet<&String> = config
        .accounts
        .iter()
        .flat_map(|account| config.regions_of(account))
        .collect();
    info!(
        version = env!("CARGO_PKG_VERSION"),
        accounts = config.accounts.len(),
        regions = regions.len(),
        "collecting"
    );
    let collecting = keep_collecting(
        collector(config).await?,
        inventory(config),
        exported,
        pause(config),
    );
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    tokio::select! {
        () = collecting => {}
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    for server in servers {
        server.abort();
    }
    Ok(ExitCode::SUCCESS)
}
