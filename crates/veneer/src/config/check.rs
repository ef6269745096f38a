//! What must fit together although each value by itself is right.

use super::{CommitmentSource, Config, Fault};

pub(super) fn check(config: &Config, faults: &mut Vec<Fault>) {
    let mut fault = |text: String| faults.push(Fault(text));
    let reads = match (config.commitments.source, &config.prometheus_url) {
        (CommitmentSource::Aws, _) => Some("commitments.source is aws"),
        (CommitmentSource::Prometheus, Some(_)) => Some("prometheusUrl is set"),
        (CommitmentSource::Prometheus, None) => None,
    };
    if let Some(why) = reads {
        if config.aws_account_id.is_empty() {
            fault(format!(
                "aws.accountId is \"\"; expected 12 digits, since {why} and only this account's commitments count"
            ));
        }
        if config.aws_region.is_empty() {
            fault(format!(
                "aws.region is \"\"; expected a region such as us-west-2, since {why} and only this region's commitments count"
            ));
        }
    }
    if let (CommitmentSource::Prometheus, Some(file)) =
        (config.commitments.source, &config.commitments.config_file)
    {
        fault(format!(
            "commitments.configFile is {file:?}; expected nothing, since commitments.source is prometheus"
        ));
    }
    let prometheus = &config.prometheus;
    match (&prometheus.username, &prometheus.password_file) {
        (Some(user), None) => fault(format!(
            "prometheus.passwordFile is \"\"; expected the path of a file, since prometheus.username is {user:?}"
        )),
        (None, Some(file)) => fault(format!(
            "prometheus.username is \"\"; expected a user name, since prometheus.passwordFile is {file:?}"
        )),
        _ => {}
    }
    if let (Some(user), Some(file)) = (&prometheus.username, &prometheus.bearer_token_file) {
        fault(format!(
            "prometheus.bearerTokenFile is {file:?} and prometheus.username is {user:?}; expected one of them"
        ));
    }
    let overlays = &config.overlays;
    if overlays.hysteresis >= overlays.utilization_threshold {
        fault(format!(
            "overlays.hysteresis is \"{}\"; expected less than overlays.utilizationThreshold, which is {}",
            overlays.hysteresis, overlays.utilization_threshold
        ));
    }
    let weights = overlays.weights;
    let all = [
        ("reservedInstance", weights.reserved_instance),
        ("ec2InstanceSavingsPlan", weights.ec2_instance_savings_plan),
        ("computeSavingsPlan", weights.compute_savings_plan),
    ];
    for (at, (name, weight)) in all.iter().enumerate() {
        if let Some((other, _)) = all.iter().take(at).find(|(_, other)| other == weight) {
            fault(format!(
                "overlays.weights.{name} is \"{weight}\"; expected another number than overlays.weights.{other}, since overlays of one weight conflict"
            ));
        }
    }
}
