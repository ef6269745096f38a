//! What a metrics server answered.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

/// One sample of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value, which may be no number.
    pub value: f64,
}

impl Sample {
    /// A sample with these labels.
    #[must_use]
    pub fn new(labels: &[(&str, &str)], value: f64) -> Self {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            labels: labels.collect(),
            value,
        }
    }

    /// The value of a label; absent is empty, as Prometheus has it.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// The samples, or why there are none.
pub type Answer = Result<Vec<Sample>, String>;

/// The answers of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// When the questions were asked.
    pub at: Timestamp,
    /// `savings_plan_hourly_commitment`
    pub commitment: Answer,
    /// `savings_plan_remaining_capacity`
    pub remaining: Answer,
    /// `savings_plan_utilization_percent`
    pub utilization: Answer,
    /// `ec2_reserved_instance`: from Lumina presence (always 1), from others the number.
    pub reserved: Answer,
    /// `ec2_reserved_instance_count`: the number by account, region and family.
    pub reserved_counts: Answer,
    /// `veneer_reserved_instances`: from `veneer export`, the number by account, region, type, zone, platform and tenancy.
    pub counted: Answer,
    /// `veneer_reserved_instances_unused`: how many of those nothing uses.
    pub unused: Answer,
    /// The number of running instances by account, region, zone, type and `cost_type`.
    pub running: Answer,
    /// The age of the data in seconds, by account, region and `data_type`.
    pub freshness: Answer,
}

/// One value for each combination of the labels that tell series apart, where two exporters (or two servers) tell the same: the larger one.
pub(super) fn distinct<'a, const N: usize>(
    samples: &'a [Sample],
    identity: &[&str; N],
) -> BTreeMap<[&'a str; N], (&'a Sample, f64)> {
    let mut distinct: BTreeMap<[&str; N], (&Sample, f64)> = BTreeMap::new();
    for sample in samples {
        let about = identity.map(|name| sample.label(name));
        let entry = distinct.entry(about).or_insert((sample, sample.value));
        // What is no number stays so: it must not be hidden by the other one.
        entry.1 = if entry.1.is_nan() || sample.value.is_nan() {
            f64::NAN
        } else {
            entry.1.max(sample.value)
        };
    }
    distinct
}

/// The answer, or the doubt that it is missing.
pub(super) fn answered<'a>(answer: &'a Answer, query: &str) -> Result<&'a [Sample], super::Doubt> {
    match answer {
        Ok(samples) => Ok(samples),
        Err(why) => Err(super::Doubt::QueryFailed(format!("{query}: {why}"))),
    }
}
