//! Savings Plans: three series joined by the plan's name, scoped, and added up.

use std::collections::{BTreeMap, BTreeSet};

use super::freshness::{self, Data};
use super::plausible;
use super::samples::answered;
use super::{Balance, Book, Certainty, Doubt, Kind, Observation, Sample, Scope, Target};

/// One plan, as far as the series tell.
#[derive(Default)]
struct Plan<'a> {
    commitment: Option<(&'a Sample, f64)>,
    remaining: Option<f64>,
    utilization: Option<f64>,
}

/// What is known about plans of one kind.
pub(super) fn book(observation: &Observation, scope: &Scope, kind: Kind) -> Result<Book, Doubt> {
    let commitment = answered(&observation.commitment, "savings_plan_hourly_commitment")?;
    let remaining = answered(&observation.remaining, "savings_plan_remaining_capacity")?;
    let utilization = answered(&observation.utilization, "savings_plan_utilization_percent")?;
    let shared = kind == Kind::ComputeSavingsPlan && scope.shared_plans;
    let counts = |sample: &&Sample| {
        kind_of(sample) == Some(kind) && (shared || sample.label("account_id") == scope.account)
    };

    // Two exporters may tell the same series; the less hopeful value counts, and what is no number stays so.
    let mut plans: BTreeMap<&str, Plan<'_>> = BTreeMap::new();
    let worse = |old: Option<f64>, new: f64, pick: fn(f64, f64) -> f64| match old {
        Some(old) if old.is_nan() || new.is_nan() => Some(f64::NAN),
        Some(old) => Some(pick(old, new)),
        None => Some(new),
    };
    for sample in commitment.iter().filter(counts) {
        let plan = plans.entry(sample.label("savings_plan_arn")).or_default();
        let value = worse(plan.commitment.map(|(_, value)| value), sample.value, f64::max);
        plan.commitment = value.map(|value| (sample, value));
    }
    for sample in remaining.iter().filter(counts) {
        let plan = plans.entry(sample.label("savings_plan_arn")).or_default();
        plan.remaining = worse(plan.remaining, sample.value, f64::min);
    }
    for sample in utilization.iter().filter(counts) {
        let plan = plans.entry(sample.label("savings_plan_arn")).or_default();
        plan.utilization = worse(plan.utilization, sample.value, f64::max);
    }

    let all = [commitment, remaining, utilization];
    let accounts: BTreeSet<&str> = all
        .into_iter()
        .flatten()
        .filter(counts)
        .map(|sample| sample.label("account_id"))
        .collect();
    let data_at = freshness::data_at(observation, scope, Data::Plans, shared, &accounts)?;

    let mut unlisted = None;
    let mut sums: BTreeMap<Target, Result<Sum, Doubt>> = BTreeMap::new();
    for (arn, plan) in &plans {
        let target = match (kind, plan.commitment) {
            (Kind::ComputeSavingsPlan, _) => Target::compute(),
            (_, Some((sample, _))) if sample.label("region") != scope.region => continue,
            (_, Some((sample, _))) => Target::family(sample.label("instance_family"), &scope.region),
            // Which family it is for, only the commitment series would say: it may be any.
            (_, None) => {
                unlisted = Some(Doubt::Incomplete(format!(
                    "plan {arn} has no series savings_plan_hourly_commitment"
                )));
                continue;
            }
        };
        let sum = sums.entry(target).or_insert_with(|| Ok(Sum::default()));
        match (read(arn, plan), &mut *sum) {
            (Ok(one), Ok(sum)) => sum.add(one),
            (Err(doubt), sum) => *sum = Err(doubt),
            (Ok(_), Err(_)) => {}
        }
    }
    let balances = sums
        .into_iter()
        .map(|(target, sum)| (target, sum.map(|sum| sum.balance(kind))));
    Ok(Book {
        data_at,
        balances: balances.collect(),
        unlisted,
    })
}

fn kind_of(sample: &Sample) -> Option<Kind> {
    match sample.label("type") {
        "compute" | "Compute" => Some(Kind::ComputeSavingsPlan),
        "ec2_instance" | "EC2Instance" => Some(Kind::Ec2InstanceSavingsPlan),
        _ => None,
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    owned: f64,
    left: f64,
    /// Percent times dollars.
    used: f64,
}

impl Sum {
    fn add(&mut self, one: Self) {
        self.owned += one.owned;
        self.left += one.left;
        self.used += one.used;
    }

    fn balance(self, kind: Kind) -> Balance {
        // A commitment of nothing is used up.
        let utilization = if self.owned > 0.0 {
            self.used / self.owned
        } else {
            100.0
        };
        Balance {
            owned: self.owned,
            left: self.left,
            utilization: Some(utilization),
            certainty: match kind {
                // It also pays for Fargate, Lambda and other accounts, of which exporters that look at EC2 see nothing.
                Kind::ComputeSavingsPlan => Certainty::AtMost,
                _ => Certainty::Exact,
            },
        }
    }
}

fn read(arn: &str, plan: &Plan<'_>) -> Result<Sum, Doubt> {
    let series = [
        (
            "savings_plan_hourly_commitment",
            plan.commitment.map(|(_, value)| value),
        ),
        ("savings_plan_remaining_capacity", plan.remaining),
        ("savings_plan_utilization_percent", plan.utilization),
    ];
    for (name, value) in series {
        match value {
            None => return Err(Doubt::Incomplete(format!("plan {arn} has no series {name}"))),
            Some(value) if !value.is_finite() => {
                return Err(Doubt::Incomplete(format!("{name} of plan {arn} is {value}")));
            }
            Some(_) => {}
        }
    }
    let told = |at: Option<f64>| at.unwrap_or_default();
    plausible::check_plan(
        arn,
        told(plan.commitment.map(|(_, value)| value)),
        told(plan.remaining),
        told(plan.utilization),
    )?;
    let value = |at: Option<f64>| told(at).max(0.0);
    let owned = value(plan.commitment.map(|(_, value)| value));
    Ok(Sum {
        owned,
        left: value(plan.remaining),
        used: value(plan.utilization) * owned,
    })
}
