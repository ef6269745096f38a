//! Reserved Instances: how many are owned, and how many of those no running instance uses.
//!
//! A zonal reservation covers its type in its zone. A regional one covers any size of its family, by normalised units.
//! Where the metrics do not say which running instances are covered, all that are owned count as unused.

use std::collections::{BTreeMap, BTreeSet};

use super::freshness::{self, Data};
use super::plausible;
use super::samples::{answered, distinct};
use super::{Balance, Book, Doubt, Observation, Sample, Scope, Target, family_of};

/// How many units of size flexibility an instance type counts, if its size is known.
#[must_use]
pub fn size_factor(instance_type: &str) -> Option<f64> {
    let size = instance_type.split_once('.')?.1;
    Some(match size {
        "nano" => 0.25,
        "micro" => 0.5,
        "small" => 1.0,
        "medium" => 2.0,
        "large" => 4.0,
        "xlarge" => 8.0,
        _ => 8.0 * size.strip_suffix("xlarge")?.parse::<u32>().ok().map(f64::from)?,
    })
}

/// Counts by (type, zone); regional ones have no zone.
type Counts<'a> = BTreeMap<(&'a str, &'a str), f64>;

/// What is known about Reserved Instances.
pub(super) fn book(observation: &Observation, scope: &Scope) -> Result<Book, Doubt> {
    let owned = answered(&observation.reserved, "ec2_reserved_instance")?;
    let running = answered(&observation.running, "ec2_instance_hourly_cost")?;
    let data_at = freshness::data_at(observation, scope, Data::Reserved, false, &BTreeSet::new())?;
    let in_scope = |sample: &Sample| {
        sample.label("account_id") == scope.account && sample.label("region") == scope.region
    };

    let mut doubts: BTreeMap<&str, Doubt> = BTreeMap::new();
    let mut owned_counts = Counts::new();
    for (sample, value) in distinct(owned)
        .into_values()
        .filter(|(sample, _)| in_scope(sample))
    {
        let instance_type = sample.label("instance_type");
        let checked = if value.is_finite() {
            plausible::check_count(instance_type, value)
        } else {
            let why = format!("ec2_reserved_instance of {instance_type} is {value}");
            Err(Doubt::Incomplete(why))
        };
        match checked {
            Ok(()) => {
                let place = (instance_type, sample.label("availability_zone"));
                *owned_counts.entry(place).or_default() += value;
            }
            Err(doubt) => drop(doubts.insert(instance_type, doubt)),
        }
    }
    let mut covered = Counts::new();
    for (sample, value) in distinct(running).into_values().filter(|(sample, value)| {
        in_scope(sample) && sample.label("cost_type") == "reserved_instance" && value.is_finite()
    }) {
        *covered
            .entry((sample.label("instance_type"), sample.label("availability_zone")))
            .or_default() += value;
    }

    let regional_left = take_zonal(&owned_counts, &mut covered);
    let types: BTreeSet<&str> = owned_counts
        .keys()
        .map(|(instance_type, _)| *instance_type)
        .collect();
    let balances = types.into_iter().map(|instance_type| {
        let target = Target::reserved(instance_type, &scope.region);
        let of_type = owned_counts.iter().filter(|((one, _), _)| *one == instance_type);
        let owned = of_type.map(|(_, count)| count).sum::<f64>();
        let left = regional_left
            .zonal
            .get(instance_type)
            .copied()
            .unwrap_or_default()
            + regional(instance_type, &owned_counts, &regional_left.covered);
        let balance = Balance {
            owned,
            left,
            utilization: None,
        };
        let balance = match doubts.get(instance_type) {
            Some(doubt) => Err(doubt.clone()),
            None => Ok(balance),
        };
        (target, balance)
    });
    let mut balances: BTreeMap<Target, Result<Balance, Doubt>> = balances.collect();
    for (instance_type, doubt) in &doubts {
        balances
            .entry(Target::reserved(instance_type, &scope.region))
            .or_insert_with(|| Err(doubt.clone()));
    }
    Ok(Book {
        data_at,
        balances,
        unlisted: None,
    })
}

struct AfterZonal<'a> {
    /// Zonal reservations that nothing uses, by type.
    zonal: BTreeMap<&'a str, f64>,
    /// Covered instances that are left for the regional reservations, by type.
    covered: BTreeMap<&'a str, f64>,
}

/// Zonal reservations are used first, each by instances of its type and zone.
fn take_zonal<'a>(owned: &Counts<'a>, covered: &mut Counts<'a>) -> AfterZonal<'a> {
    let mut zonal: BTreeMap<&str, f64> = BTreeMap::new();
    for (&(instance_type, zone), &count) in owned.iter().filter(|((_, zone), _)| !zone.is_empty()) {
        let used = covered.get_mut(&(instance_type, zone));
        let taken = used.map_or(0.0, |used| {
            let taken = used.min(count);
            *used -= taken;
            taken
        });
        *zonal.entry(instance_type).or_default() += count - taken;
    }
    let mut by_type: BTreeMap<&str, f64> = BTreeMap::new();
    for (&(instance_type, _), &count) in covered.iter() {
        *by_type.entry(instance_type).or_default() += count;
    }
    AfterZonal {
        zonal,
        covered: by_type,
    }
}

/// How many regional reservations of the type nothing uses.
fn regional(instance_type: &str, owned: &Counts<'_>, covered: &BTreeMap<&str, f64>) -> f64 {
    let count = owned.get(&(instance_type, "")).copied().unwrap_or_default();
    let Some(factor) = size_factor(instance_type) else {
        // Bare metal: without a size, only instances of the type itself can be counted.
        let used = covered.get(instance_type).copied().unwrap_or_default();
        return (count - used).max(0.0);
    };
    let family = family_of(instance_type);
    let units = |instance_type: &str, count: f64| match size_factor(instance_type) {
        Some(factor) if family_of(instance_type) == family => factor * count,
        _ => 0.0,
    };
    let regional = owned.iter().filter(|((_, zone), _)| zone.is_empty());
    let owned_units: f64 = regional.map(|((one, _), count)| units(one, *count)).sum();
    let used_units: f64 = covered.iter().map(|(one, count)| units(one, *count)).sum();
    let left = ((owned_units - used_units) / factor).max(0.0).floor();
    left.min(count)
}
