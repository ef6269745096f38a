//! The parts of making an organization ready: one of each commitment, equal usage merged, and the order of plans and prices.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::allocator::{Bucket, Class, Pool, PoolKey, Source, can_be_reserved, regional_key};
use crate::exact::{Exact, gcd};
use crate::organization::{
    HOUR, Instance, Interval, Machine, Organization, PlanKind, Priced, Purchase, ReservedInstances,
    SavingsPlan, UsageLine,
};
use crate::problem::Problem;
use crate::sizes::family_of;

/// One of each id, by (end, id).
fn distinct<'a, T: Ord>(
    all: &'a [T],
    key: impl Fn(&'a T) -> (i64, &'a str),
    problems: &mut BTreeSet<Problem>,
) -> Vec<&'a T> {
    let mut by_id: BTreeMap<&str, &T> = BTreeMap::new();
    for one in all {
        let id = key(one).1;
        let kept = by_id.entry(id).or_insert(one);
        if *kept != one {
            problems.insert(Problem::Contradiction { id: id.to_owned() });
            *kept = (*kept).min(one);
        }
    }
    let mut distinct: Vec<&T> = by_id.into_values().collect();
    distinct.sort_by_key(|one| key(one));
    distinct
}

pub(crate) fn reserved<'a>(
    organization: &'a Organization,
    problems: &mut BTreeSet<Problem>,
) -> Vec<&'a ReservedInstances> {
    let mut all = distinct(
        &organization.reserved_instances,
        |one| (one.term.end, one.id.as_str()),
        problems,
    );
    all.retain(|one| {
        let is_negative = one.upfront.is_negative() || one.hourly.is_negative();
        if is_negative {
            problems.insert(Problem::Negative { what: one.id.clone() });
        }
        one.state.counts() && !is_negative
    });
    all
}

pub(crate) fn plans<'a>(
    organization: &'a Organization,
    problems: &mut BTreeSet<Problem>,
) -> Vec<&'a SavingsPlan> {
    let mut all = distinct(
        &organization.savings_plans,
        |one| (one.term.end, one.id.as_str()),
        problems,
    );
    all.retain(|one| {
        if one.commitment.is_negative() {
            problems.insert(Problem::Negative { what: one.id.clone() });
        }
        one.state.counts() && !one.commitment.is_negative()
    });
    all
}

pub(crate) fn pools<'a>(
    reserved: &[&'a ReservedInstances],
    problems: &mut BTreeSet<Problem>,
) -> (Vec<Pool>, HashMap<PoolKey<'a>, usize>) {
    let (mut pools, mut numbers) = (Vec::<Pool>::new(), HashMap::new());
    for (number, one) in reserved.iter().enumerate() {
        if !can_be_reserved(&one.machine) {
            problems.insert(Problem::NoSuchReservedInstance { id: one.id.clone() });
            continue;
        }
        let key = match &one.zone {
            Some(zone) => PoolKey::Zonal(zone, &one.machine),
            None => regional_key(&one.machine),
        };
        let next = pools.len();
        let is_flexible = matches!(key, PoolKey::Family(..));
        let pool = *numbers.entry(key).or_insert(next);
        if pool == next {
            pools.push(Pool {
                reserved: Vec::new(),
                is_zonal: one.zone.is_some(),
                is_flexible,
            });
        }
        if let Some(pool) = pools.get_mut(pool) {
            pool.reserved.push(number);
        }
    }
    (pools, numbers)
}

/// The least number of parts of a dollar in which all prices, rates and commitments are whole, if that is not absurd.
pub(crate) fn money_unit(organization: &Organization) -> i128 {
    const MOST: i128 = 1_000_000_000_000_000;
    let tables = organization
        .rates
        .values()
        .chain([&organization.prices.on_demand]);
    let commitments = organization.savings_plans.iter().map(|plan| &plan.commitment);
    let mut unit: i128 = 1;
    for amount in tables.flat_map(BTreeMap::values).chain(commitments) {
        let Some(bottom) = amount.denominator().filter(|bottom| unit % bottom != 0) else {
            continue;
        };
        let common = i128::try_from(gcd(unit.unsigned_abs(), bottom.unsigned_abs())).unwrap_or(1);
        unit = unit
            .checked_mul(bottom / common)
            .filter(|unit| *unit <= MOST)
            .unwrap_or(unit);
    }
    unit
}

/// The lines of usage, or those of unused hours of capacity reservations, equal ones merged.
fn push_lines<'a>(
    organization: &'a Organization,
    is_unused: bool,
    sources: &mut Vec<Source<'a>>,
    problems: &mut BTreeSet<Problem>,
) {
    let all = match is_unused {
        false => &organization.usage_lines,
        true => &organization.unused_reservation_lines,
    };
    let mut lines: Vec<&UsageLine> = all.iter().collect();
    lines.retain(|one| {
        let is_negative = one.quantity.is_negative()
            || match &one.purchase {
                Purchase::OnDemand => false,
                Purchase::Spot(price) | Purchase::CapacityBlock(price) => price.is_negative(),
            };
        if is_negative {
            problems.insert(Problem::Negative { what: one.id.clone() });
        }
        !is_negative
    });
    fn line(one: &UsageLine) -> (&str, &str, &Option<String>, &Priced, &Purchase) {
        (&one.id, &one.account, &one.zone, &one.what, &one.purchase)
    }
    lines.sort_unstable_by(|a, b| line(a).cmp(&line(b)));
    for group in lines.chunk_by(|a, b| line(a) == line(b)) {
        let Some(first) = group.first() else { continue };
        let mut by_hour: BTreeMap<i64, Exact> = BTreeMap::new();
        for one in group {
            let sum = by_hour.entry(one.at.div_euclid(HOUR)).or_default();
            *sum = sum.plus(&one.quantity);
        }
        sources.push(Source::Line {
            first,
            by_hour,
            is_unused,
        });
    }
}

/// All usage in the order of ids, equal records merged.
pub(crate) fn sources<'a>(
    organization: &'a Organization,
    problems: &mut BTreeSet<Problem>,
) -> Vec<Source<'a>> {
    let mut instances: Vec<&Instance> = organization.instances.iter().collect();
    instances.retain(|one| match &one.purchase {
        Purchase::Spot(price) | Purchase::CapacityBlock(price) if price.is_negative() => {
            problems.insert(Problem::Negative { what: one.id.clone() });
            false
        }
        _ => true,
    });
    instances.sort_unstable_by(|a, b| a.id.cmp(&b.id).then_with(|| kind(a).cmp(&kind(b))));
    let mut sources: Vec<Source<'a>> = Vec::with_capacity(instances.len());
    for group in instances.chunk_by(|a, b| a.id == b.id && kind(a) == kind(b)) {
        let Some(first) = group.first() else { continue };
        let running = union(group.iter().flat_map(|one| &one.running).copied().collect());
        sources.push(Source::Instance { first, running });
    }
    for is_unused in [false, true] {
        push_lines(organization, is_unused, &mut sources, problems);
    }
    let reservations = distinct(
        &organization.capacity_reservations,
        |one| (0, one.id.as_str()),
        problems,
    );
    sources.extend(
        reservations
            .into_iter()
            .map(|of| Source::Unused { of, by: Vec::new() }),
    );
    sources.sort_by_key(|source| match source {
        Source::Instance { first, .. } => (first.id.as_str(), 0),
        Source::Line { first, is_unused, .. } => (first.id.as_str(), 1 + i32::from(*is_unused)),
        Source::Unused { of, .. } => (of.id.as_str(), 2),
    });
    let mut users: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, source) in sources.iter().enumerate() {
        if let Source::Instance { first, .. } = source
            && let Some(id) = first.capacity_reservation.as_deref()
        {
            users.entry(id).or_default().push(number);
        }
    }
    for source in &mut sources {
        if let Source::Unused { of, by } = source {
            *by = users.remove(of.id.as_str()).unwrap_or_default();
        }
    }
    sources
}

type Kind<'a> = (&'a str, &'a str, &'a Machine, &'a Purchase, Option<&'a str>);

fn kind(instance: &Instance) -> Kind<'_> {
    let Instance {
        account,
        zone,
        machine,
        purchase,
        capacity_reservation,
        ..
    } = instance;
    (account, zone, machine, purchase, capacity_reservation.as_deref())
}

/// Intervals without overlaps: an instance does not run twice at once.
fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|one| one.start < one.end);
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for one in intervals {
        match merged.last_mut() {
            Some(last) if one.start <= last.end => last.end = last.end.max(one.end),
            _ => merged.push(one),
        }
    }
    merged
}

/// The order of all pairs of a plan and a price: the highest saving, then the lowest rate, then end of term and id of the plan. Pairs that
/// agree in all of it are one bucket, in which usage is taken in the order of ids.
pub(crate) fn buckets(
    organization: &Organization,
    plans: &[&SavingsPlan],
    classes: &[Class<'_>],
    unit: i128,
    problems: &mut BTreeSet<Problem>,
) -> ([Vec<Bucket>; 2], Vec<Vec<usize>>) {
    let mut sets: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let of_kind = [false, true].map(|is_compute| {
        // The share of the price that is still paid, nothing for infinitely much; the rate; the plan; the class.
        let mut pairs: Vec<(Option<Exact>, &Exact, usize, usize)> = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            if (plan.kind == PlanKind::Compute) != is_compute {
                continue;
            }
            let Some(rates) = organization.rates.get(&plan.rates) else {
                problems.insert(Problem::NoRates {
                    plan: plan.id.clone(),
                    rates: plan.rates.clone(),
                });
                continue;
            };
            for (class, of) in classes
                .iter()
                .enumerate()
                .filter(|(_, class)| covers(plan, class.machine))
            {
                let Some(price) = &of.price else { continue };
                let Some(rate) = rates.get(&of.priced).filter(|rate| !rate.is_negative()) else {
                    problems.insert(Problem::NoRate {
                        plan: plan.id.clone(),
                        what: of.priced.to_string(),
                    });
                    continue;
                };
                pairs.push((paid_share(&rate.times_whole(unit), price), rate, number, class));
            }
        }
        // `None` is more than any share.
        pairs.sort_by(|a, b| {
            let share = |pair: &(Option<Exact>, &Exact, usize, usize)| pair.0.is_none();
            (share(a), &a.0, a.1, a.2, a.3).cmp(&(share(b), &b.0, b.1, b.2, b.3))
        });
        let alike = pairs.chunk_by(|a, b| a.0 == b.0 && a.1 == b.1 && a.2 == b.2);
        let mut buckets = Vec::new();
        for pairs in alike {
            let Some((_, rate, plan, _)) = pairs.first() else {
                continue;
            };
            let next = sets.len();
            let of: Vec<usize> = pairs.iter().map(|pair| pair.3).collect();
            buckets.push(Bucket {
                plan: *plan,
                rate: rate.times_whole(unit),
                classes: *sets.entry(of).or_insert(next),
            });
        }
        buckets
    });
    let mut class_sets = vec![Vec::new(); sets.len()];
    for (set, number) in sets {
        if let Some(place) = class_sets.get_mut(number) {
            *place = set;
        }
    }
    (of_kind, class_sets)
}

pub(crate) fn covers(plan: &SavingsPlan, machine: Option<&Machine>) -> bool {
    match &plan.kind {
        PlanKind::Compute => true,
        PlanKind::Ec2Instance { family, region } => machine
            .is_some_and(|machine| machine.region == *region && family_of(&machine.instance_type) == family),
    }
}

/// The share of the price that a plan still pays, nothing if that is infinitely much. What is free saves 0 %.
pub(crate) fn paid_share(rate: &Exact, price: &Exact) -> Option<Exact> {
    if price.is_zero() && rate.is_zero() {
        return Some(Exact::ONE);
    }
    rate.over(price)
}
