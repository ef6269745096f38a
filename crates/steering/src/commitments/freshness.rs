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
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plans => "Savings Plans",
            Self::Reserved => "Reserved Instances",
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
    let in_scope =
        |sample: &&Sample| data.says(sample) && (shared || sample.label("account_id") == scope.account);
    let samples: Vec<&Sample> = samples.iter().filter(in_scope).collect();
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
    let mut oldest = SignedDuration::ZERO;
    for sample in samples {
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
        let ours = sample.label("account_id") == scope.account;
        (Data::Plans.says(sample) && (ours || scope.shared_plans)) || (Data::Reserved.says(sample) && ours)
    };
    samples.iter().filter(counts).filter_map(age).max()
}
