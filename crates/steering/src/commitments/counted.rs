//! Reserved Instances as `veneer export` counts them: how many there are of each type and zone, and how many of those nothing uses by the
//! rules of AWS. Then nothing has to be concluded from presence and costs.
//!
//! Only what covers nodes counts: Linux on shared hardware.

use std::collections::BTreeMap;

use super::plausible;
use super::samples::{answered, distinct};
use super::{Balance, Balances, Certainty, Doubt, Observation, Sample, Scope, Target};

const OWNED: &str = "veneer_reserved_instances";
const UNUSED: &str = "veneer_reserved_instances_unused";
/// What tells these series apart; all else says who told it.
const PLACE: [&str; 6] = [
    "account_id",
    "region",
    "instance_type",
    "availability_zone",
    "platform",
    "tenancy",
];

/// What is left by type and zone; nothing where no exporter counts.
pub(super) fn balances(observation: &Observation, scope: &Scope) -> Result<Option<Balances>, Doubt> {
    let owned = answered(&observation.counted, OWNED)?;
    let in_scope = |sample: &Sample| {
        sample.label("account_id") == scope.account && sample.label("region") == scope.region
    };
    if !owned.iter().any(in_scope) {
        return Ok(None);
    }
    // Of two exporters that differ, the one that saw more in use.
    let mut unused: BTreeMap<[&str; 6], f64> = BTreeMap::new();
    for sample in answered(&observation.unused, UNUSED)? {
        let left = unused
            .entry(PLACE.map(|name| sample.label(name)))
            .or_insert(sample.value);
        *left = if left.is_nan() {
            *left
        } else {
            left.min(sample.value)
        };
    }
    let is_for_nodes = |sample: &Sample| {
        in_scope(sample) && sample.label("platform") == "Linux/UNIX" && sample.label("tenancy") == "default"
    };
    let counted = distinct(owned, &PLACE).into_iter();
    let counted = counted.filter(|(_, (sample, _))| is_for_nodes(sample));
    let balances = counted.map(|(place, (sample, owned))| {
        let instance_type = sample.label("instance_type");
        let zone = sample.label("availability_zone");
        let target = Target::reserved_in(instance_type, &scope.region, zone);
        let left = unused.get(&place).copied();
        (target, balance(instance_type, zone, owned, left))
    });
    Ok(Some(balances.collect()))
}

fn balance(instance_type: &str, zone: &str, owned: f64, left: Option<f64>) -> Result<Balance, Doubt> {
    let left = left.unwrap_or(f64::NAN);
    if !owned.is_finite() || !left.is_finite() {
        return Err(Doubt::Incomplete(format!(
            "{OWNED} of {instance_type} is {owned}, {UNUSED} is {left}"
        )));
    }
    plausible::check_count(OWNED, instance_type, owned)?;
    plausible::check_zone(instance_type, zone)?;
    plausible::check_unused(instance_type, left, owned)?;
    Ok(Balance {
        owned,
        // A part of an instance covers no further one of this size.
        left: (left + 1e-9).floor(),
        utilization: None,
        certainty: Certainty::Exact,
    })
}
