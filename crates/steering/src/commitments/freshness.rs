//! How old the data is, judged for plans and for Reserved Instances separately.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::samples::answered;
use super::{Doubt, Observation, Sample, Scope};

/// Which data is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Plans,
    Reserved,
    /// What runs, and what pays for it.
    Instances,
}

impl Data {
    fn says(self, sample: &Sample) -> bool {
        let name: String = sample
            .label("data_type")
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_lowercase();
        name.starts_with(match self {
            Self::Plans => "savingsplan",
            Self::Reserved => "reservedinstance",
            Self::Instances => "ec2instance",
        })
    }

    /// Whether the sample is about data that counts. Plans belong to an account, Reserved Instances and instances to an account and
    /// a region; an exporter that names no region speaks of all of them.
    fn is_about(self, sample: &Sample, scope: &Scope, shared: bool) -> bool {
        let region = sample.label("region");
        let is_here = match self {
            Self::Plans => true,
            Self::Reserved | Self::Instances => region.is_empty() || region == scope.region,
        };
        is_here && (shared || sample.label("account_id") == scope.account)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plans => "Savings Plans",
            Self::Reserved => "Reserved Instances",
            Self::Instances => "instances",
        }
    }
}

/// When the data was true, if it is fresh. `accounts` are those whose data counts; `None` is all of them, and then
/// each of `seen` must have said how old its data is.
pub(super) fn data_at(
    observation: &Observation,
    scope: &Scope,
    data: Data,
    shared: bool,
    seen: &BTreeSet<&str>,
) -> Result<Timestamp, Doubt> {
    let samples = answered(&observation.freshness, "freshness")?;
    let in_scope = |sample: &&Sample| data.says(sample) && data.is_about(sample, scope, shared);
    let all = samples;
    let samples: Vec<&Sample> = all.iter().filter(in_scope).collect();
    let account_told = |account: &&&str| !samples.iter().any(|one| one.label("account_id") == **account);
    let whose = match seen.iter().find(account_told) {
        _ if samples.is_empty() => Some(scope.account.as_str()),
        Some(account) => Some(*account),
        None => None,
    };
    if let Some(account) = whose {
        return Err(Doubt::NoFreshness(format!(
            "no series lumina_data_freshness_seconds says how old the {} of account {account} are",
            data.name()
        )));
    }
    // Which Reserved Instances are in use, the running instances say; not every exporter tells how old those are.
    let instances = all.iter().filter(|sample| {
        data == Data::Reserved
            && Data::Instances.says(sample)
            && Data::Instances.is_about(sample, scope, shared)
    });
    let mut oldest = SignedDuration::ZERO;
    for sample in samples.into_iter().chain(instances) {
        let age = age(sample).ok_or_else(|| {
            Doubt::NoFreshness(format!(
                "the age of the {} of account {} is {}",
                data.name(),
                sample.label("account_id"),
                sample.value
            ))
        })?;
        oldest = oldest.max(age);
    }
    if oldest > scope.freshness_limit {
        return Err(Doubt::Stale {
            age: oldest,
            limit: scope.freshness_limit,
        });
    }
    Ok(observation.at.saturating_sub(oldest).unwrap_or(Timestamp::MIN))
}

/// A clock that is a little ahead makes data from the future; that is fresh.
fn age(sample: &Sample) -> Option<SignedDuration> {
    sample
        .value
        .is_finite()
        .then(|| SignedDuration::try_from_secs_f64(sample.value.max(0.0)).unwrap_or(SignedDuration::MAX))
}

/// The age of the oldest data in scope.
pub(super) fn oldest(observation: &Observation, scope: &Scope) -> Option<SignedDuration> {
    let samples = observation.freshness.as_ref().ok()?;
    let counts = |sample: &&Sample| {
        [(Data::Plans, scope.shared_plans), (Data::Reserved, false)]
            .into_iter()
            .any(|(data, shared)| data.says(sample) && data.is_about(sample, scope, shared))
    };
    samples.iter().filter(counts).filter_map(age).max()
}
