//! What `veneer run` does more in standalone mode: it provisions.

use std::time::Duration;

use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use veneer_controllers::provider::{ec2, kwok};
pub(super) use veneer_controllers::standalone::Error as ProvisioningError;
use veneer_controllers::standalone::Settings as Provisioning;
use veneer_controllers::{Mode, Provider, Settings};
use veneer_engine::plan::parse_duration;

use super::{ModeArg, ProviderArg, RunArgs};
use crate::config::Config;

/// Options of provisioning.
#[derive(Debug, Args)]
pub(super) struct StandaloneArgs {
    /// Standalone: how long to wait for more pending pods after the last one
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration, env = "VENEER_BATCH_IDLE_DURATION")]
    batch_idle_duration: Duration,

    /// Standalone: how long to wait for more pending pods after the first one
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, env = "VENEER_BATCH_MAX_DURATION")]
    batch_max_duration: Duration,

    /// Standalone: how long a decision to remove nodes waits for a second look before it is carried out
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration, env = "VENEER_DISRUPTION_VALIDATION")]
    disruption_validation: Duration,

    /// Standalone: the percentage of its price that replacing a node has to save at least
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=99), env = "VENEER_LEAST_SAVING")]
    least_saving: u8,

    /// Standalone: how often to look whether a Karpenter has come
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration, hide = true)]
    pub(super) look_for_karpenter_every: Duration,

    /// Standalone with kwok: how long the launch of an instance takes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    kwok_launch_delay: Duration,

    /// Standalone with kwok: how long a stopped instance takes to join again
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    kwok_start_delay: Duration,

    /// Standalone with kwok: how long the end of an instance takes
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    kwok_terminate_delay: Duration,

    /// Standalone with kwok: an offering that cannot be had, as TYPE, TYPE:CAPACITY-TYPE or TYPE:CAPACITY-TYPE:ZONE, with
    /// * for any; may be given several times
    #[arg(long, value_name = "OFFERING")]
    kwok_unavailable: Vec<String>,
}

/// Nothing here is worth waiting for longer.
const LONGEST: Duration = Duration::from_secs(1_000 * 3600);

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).and_then(|duration| Duration::try_from(duration).ok());
    let duration = duration.filter(|duration| *duration <= LONGEST);
    duration.ok_or_else(|| {
        format!(
            "{text:?} is no duration up to 1000h; expected numbers with units such as 500ms, 10s or 1m30s"
        )
    })
}

/// Where EC2 nodes are launched: as configured, and as the kubeconfig says.
pub(super) fn ec2(config: &Config, cluster: &kube::Config) -> ec2::Settings {
    let endpoint = config.aws_cluster_endpoint.clone();
    let pem = cluster
        .root_cert
        .iter()
        .flatten()
        .map(|der| pem(der))
        .collect::<String>();
    ec2::Settings {
        region: Some(config.aws_region.clone()).filter(|region| !region.is_empty()),
        cluster_name: config.aws_cluster_name.clone(),
        cluster_endpoint: endpoint
            .unwrap_or_else(|| cluster.cluster_url.to_string().trim_end_matches('/').to_owned()),
        ca_bundle: (!pem.is_empty()).then(|| STANDARD.encode(pem)),
        service_cidr: config.aws_service_cidr.clone(),
        interruption_queue: config.aws_interruption_queue.clone(),
        outside: None,
    }
}

/// A certificate as text.
fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Refuses to launch instances that nothing would mark as this cluster's.
pub(super) fn check_cluster_name(all: &RunArgs, config: &Config) -> Result<()> {
    let launches = all.mode == ModeArg::Standalone && !all.once && !all.dry_run;
    if launches && all.provider == ProviderArg::Ec2 && config.aws_cluster_name.is_empty() {
        bail!(
            "aws.clusterName is not set, and standalone mode tags everything that it makes on EC2 with it; give the name of the cluster \
             with --aws-cluster-name, VENEER_AWS_CLUSTER_NAME or aws.clusterName in the file of --config"
        );
    }
    Ok(())
}

/// How to provision; none in companion mode, for a single pass and for a dry run.
pub(super) fn settings(all: &RunArgs, settings: &Settings, ec2: ec2::Settings) -> Option<Provisioning> {
    if settings.mode != Mode::Standalone || all.once || all.dry_run {
        return None;
    }
    let args = &all.standalone;
    let mut provisioning = Provisioning::new(std::sync::Arc::clone(&settings.catalogue));
    provisioning.prices.clone_from(&settings.prices);
    provisioning.node_overlay_gate = settings.node_overlay_gate;
    provisioning.meters = settings.metrics.provisioning.clone();
    let signed = |duration: Duration| duration.try_into().unwrap_or_default();
    provisioning.rules.window.idle = signed(args.batch_idle_duration);
    provisioning.rules.window.max = signed(args.batch_max_duration);
    if settings.provider == Provider::Ec2 {
        // A fleet request has up to sixty types, each in every zone and way to buy it.
        provisioning.rules.policy.launch_options = 600;
        provisioning.ec2 = Some(ec2);
    }
    provisioning.rules.disruption.validation = signed(args.disruption_validation);
    provisioning.rules.disruption.spot_to_spot = all.feature_gates.spot_to_spot;
    provisioning.rules.disruption.least_saving = f64::from(args.least_saving) / 100.0;
    provisioning.kwok = kwok::Settings {
        launch_delay: args.kwok_launch_delay,
        start_delay: args.kwok_start_delay,
        terminate_delay: args.kwok_terminate_delay,
        unavailable: args.kwok_unavailable.clone(),
    };
    Some(provisioning)
}
