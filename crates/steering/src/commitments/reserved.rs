//! Reserved Instances: how many are owned, and how many of those no running instance uses.
//!
//! A zonal reservation covers its type in its zone, and is a target of its own. A regional one covers any size of its family where AWS has size
//! flexibility, else its own size. Where the metrics do not say which running instances are covered, all that are owned count as unused.
//!
//! Lumina's `ec2_reserved_instance` is 1 whatever the number, which stands in `ec2_reserved_instance_count` by family. So the number
//! of a type is known where it is the only one of its family. Of several, each is at least what is in use (and one), and what the
//! family has beyond that may be any of them: it counts as available for each, and is said to be assumed.

use std::collections::{BTreeMap, BTreeSet};

use super::freshness::{self, Data};
use super::samples::{answered, distinct};
use super::{
    Balance, Book, Certainty, Doubt, Observation, Sample, Scope, Target, exchange, family_of,
    is_size_flexible,
};
use super::{counted, plausible};

/// What tells Reserved Instances, their numbers and running instances apart; all else says who told it.
const PLACE: [&str; 6] = [
    "account_id",
    "region",
    "instance_type",
    "availability_zone",
    // Of exporters that tell each purchase by itself.
    "reservation_id",
    "reserved_instance_id",
];
const FAMILY: [&str; 3] = ["account_id", "region", "instance_family"];
const RUNNING: [&str; 5] = [
    "account_id",
    "region",
    "instance_type",
    "availability_zone",
    "cost_type",
];

/// Counts by (type, zone); regional ones have no zone.
type Counts<'a> = BTreeMap<(&'a str, &'a str), f64>;

/// What is known about Reserved Instances.
pub(super) fn book(observation: &Observation, scope: &Scope) -> Result<Book, Doubt> {
    let present = answered(&observation.reserved, "ec2_reserved_instance")?;
    let counts = answered(&observation.reserved_counts, "ec2_reserved_instance_count")?;
    let running = answered(&observation.running, "ec2_instance_hourly_cost")?;
    let data_at = freshness::data_at(observation, scope, Data::Reserved, false, &BTreeSet::new())?;
    if let Some(balances) = counted::balances(observation, scope)? {
        return Ok(Book {
            data_at,
            balances,
            unlisted: None,
        });
    }
    let in_scope = |sample: &Sample| {
        sample.label("account_id") == scope.account && sample.label("region") == scope.region
    };

    // A series that cannot be believed is a doubt about every one of its type: which instances are covered by which is not known then.
    let mut doubts: BTreeMap<&str, Doubt> = BTreeMap::new();
    let mut places: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut told = Counts::new();
    for (sample, value) in distinct(present, &PLACE)
        .into_values()
        .filter(|(sample, _)| in_scope(sample))
    {
        let instance_type = sample.label("instance_type");
        let place = (instance_type, sample.label("availability_zone"));
        places.insert(place);
        let is_plausible = checked("ec2_reserved_instance", instance_type, value)
            .and_then(|()| plausible::check_zone(instance_type, place.1));
        match is_plausible {
            Ok(()) => *told.entry(place).or_default() += value,
            Err(doubt) => drop(doubts.insert(instance_type, doubt)),
        }
    }
    let mut of_family: BTreeMap<&str, Result<f64, Doubt>> = BTreeMap::new();
    for (sample, value) in distinct(counts, &FAMILY)
        .into_values()
        .filter(|(sample, _)| in_scope(sample))
    {
        let family = sample.label("instance_family");
        let checked = checked("ec2_reserved_instance_count", family, value).map(|()| value);
        of_family.insert(family, checked);
    }
    let mut covered = Counts::new();
    for (sample, value) in distinct(running, &RUNNING)
        .into_values()
        .filter(|(sample, value)| {
            in_scope(sample) && sample.label("cost_type") == "reserved_instance" && value.is_finite()
        })
    {
        *covered
            .entry((sample.label("instance_type"), sample.label("availability_zone")))
            .or_default() += value;
    }
    for (instance_type, _) in told.keys() {
        if let Some(Err(doubt)) = of_family.get(family_of(instance_type)) {
            doubts.entry(instance_type).or_insert_with(|| doubt.clone());
        }
    }
    let counted = of_family
        .into_iter()
        .filter_map(|(family, count)| Some((family, count.ok()?)));
    let (owned, assumed) = owned(&told, &covered, &counted.collect());

    let after_zonal = take_zonal(&owned, &mut covered);
    let balances = places.into_iter().map(|place| {
        let (instance_type, zone) = place;
        let target = Target::reserved_in(instance_type, &scope.region, zone);
        if let Some(doubt) = doubts.get(instance_type) {
            return (target, Err(doubt.clone()));
        }
        let left = match after_zonal.zonal.get(&place) {
            Some(unused) => *unused,
            None => regional(instance_type, &owned, &after_zonal.covered),
        };
        let is_flexible = zone.is_empty() && is_size_flexible(family_of(instance_type));
        let is_assumed = assumed.contains(&place);
        let balance = Balance {
            owned: owned.get(&place).copied().unwrap_or_default(),
            // A number that nobody knows is not nothing.
            left: if is_assumed { left.max(1.0) } else { left },
            utilization: None,
            certainty: match is_assumed {
                true => Certainty::Assumed,
                false if is_flexible => Certainty::AtMost,
                false => Certainty::Exact,
            },
        };
        (target, Ok(balance))
    });
    Ok(Book {
        data_at,
        balances: balances.collect(),
        unlisted: None,
    })
}

fn checked(series: &str, of: &str, value: f64) -> Result<(), Doubt> {
    if value.is_finite() {
        plausible::check_count(series, of, value)
    } else {
        Err(Doubt::Incomplete(format!("{series} of {of} is {value}")))
    }
}

/// How many are owned, at most where the family has several, and the series of which that is not known.
fn owned<'a>(
    told: &Counts<'a>,
    covered: &Counts<'a>,
    of_family: &BTreeMap<&str, f64>,
) -> (Counts<'a>, BTreeSet<(&'a str, &'a str)>) {
    let mut owned = told.clone();
    let mut assumed = BTreeSet::new();
    let families: BTreeSet<&str> = told.keys().map(|(one, _)| family_of(one)).collect();
    for family in families {
        let of_this = || told.iter().filter(|((one, _), _)| family_of(one) == family);
        // Whoever tells more than one counts; Lumina says 1 whatever the number.
        let present: Vec<(&'a str, &'a str)> = of_this()
            .filter(|(_, count)| **count == 1.0)
            .map(|(place, _)| *place)
            .collect();
        let counted: f64 = of_this()
            .map(|(_, count)| *count)
            .filter(|count| *count > 1.0)
            .sum();
        let used = |place: &(&str, &str)| used_at(place, told, covered).max(1.0);
        match of_family.get(family) {
            Some(count) => {
                let least: f64 = present.iter().map(used).sum();
                let beyond = (count - counted - least).max(0.0);
                for place in &present {
                    owned.insert(*place, used(place) + beyond);
                }
                if present.len() > 1 && beyond > 0.0 {
                    assumed.extend(present.iter().copied());
                }
            }
            // One, or any number.
            None => assumed.extend(
                present
                    .iter()
                    .filter(|place| used_at(place, told, covered) >= 1.0)
                    .copied(),
            ),
        }
    }
    (owned, assumed)
}

/// How many instances use the reservations of one series: those of its zone, or those of its type in zones without a
/// reservation of their own.
fn used_at(place: &(&str, &str), told: &Counts<'_>, covered: &Counts<'_>) -> f64 {
    let (instance_type, zone) = *place;
    let uses = |(one, at): &(&str, &str)| {
        *one == instance_type && (*at == zone || (zone.is_empty() && !told.contains_key(&(*one, *at))))
    };
    let used = covered.iter().filter(|(place, _)| uses(place));
    used.map(|(_, count)| *count).sum()
}

struct AfterZonal<'a> {
    /// Zonal reservations that nothing uses.
    zonal: Counts<'a>,
    /// Covered instances that are left for the regional reservations, by type.
    covered: BTreeMap<&'a str, f64>,
}

/// Zonal reservations are used first, each by instances of its type and zone.
fn take_zonal<'a>(owned: &Counts<'a>, covered: &mut Counts<'a>) -> AfterZonal<'a> {
    let mut zonal = Counts::new();
    for (&(instance_type, zone), &count) in owned.iter().filter(|((_, zone), _)| !zone.is_empty()) {
        let used = covered.get_mut(&(instance_type, zone));
        let taken = used.map_or(0.0, |used| {
            let taken = used.min(count);
            *used -= taken;
            taken
        });
        zonal.insert((instance_type, zone), count - taken);
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
    // In units of this type.
    let units = |other: &str, count: f64| {
        let rate = exchange(instance_type, other);
        rate.map_or(0.0, |(own, others)| count * others as f64 / own as f64)
    };
    let regional = owned.iter().filter(|((_, zone), _)| zone.is_empty());
    let owned_units: f64 = regional.map(|((one, _), count)| units(one, *count)).sum();
    let used_units: f64 = covered.iter().map(|(one, count)| units(one, *count)).sum();
    let left = (owned_units - used_units).max(0.0).floor();
    left.min(count)
}
