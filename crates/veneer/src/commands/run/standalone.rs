//! What `veneer run` does more in standalone mode: it provisions.

use std::time::Duration;

use clap::Args;
use tracing::warn;
use veneer_controllers::provider::kwok;
use veneer_controllers::standalone::Settings as Provisioning;
use veneer_controllers::{Mode, Provider, Settings};
use veneer_engine::plan::parse_duration;

use super::RunArgs;

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

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| {
        format!("{text:?} is no duration; expected numbers with units such as 500ms, 10s or 1m30s")
    })
}

/// How to provision; none in companion mode, for a single pass and for a dry run.
pub(super) fn settings(all: &RunArgs, settings: &Settings) -> Option<Provisioning> {
    if settings.mode != Mode::Standalone || all.once || all.dry_run {
        return None;
    }
    if settings.provider != Provider::Kwok {
        warn!(
            "standalone mode launches nodes with --provider kwok only so far; conditions of NodeOverlays are written"
        );
        return None;
    }
    let args = &all.standalone;
    let mut provisioning = Provisioning::new(std::sync::Arc::clone(&settings.catalogue));
    provisioning.node_overlay_gate = settings.node_overlay_gate;
    provisioning.meters = settings.metrics.provisioning.clone();
    let signed = |duration: Duration| duration.try_into().unwrap_or_default();
    provisioning.rules.window.idle = signed(args.batch_idle_duration);
    provisioning.rules.window.max = signed(args.batch_max_duration);
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
