//! What is true of every bill, on generated organizations.
#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a bill borrows from its allocator, so its methods are not general enough"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use veneer_billing::{Allocator, Bill, Exact, Instance, Interval, Moment, Organization, Priced, Purchase};
use veneer_billing_reference::generated::{self, Chance};

fn organization(seed: u64) -> Organization {
    generated::organization(&generated::spec(seed))
}

fn bill<T>(organization: &Organization, look: impl FnOnce(&Bill<'_>) -> T) -> T {
    let allocator = Allocator::new(organization);
    look(&allocator.hour(generated::START))
}

/// Everything that a bill says, as text.
fn show(organization: &Organization) -> Vec<String> {
    bill(organization, |bill| {
        let mut lines = Vec::new();
        for usage in bill.usages() {
            let who = (usage.id(), usage.account(), usage.zone(), usage.covered());
            lines.push(format!(
                "{who:?} {} {} {}",
                usage.amount(),
                usage.uncovered(),
                usage.effective_cost()
            ));
            for share in usage.shares() {
                lines.push(format!(
                    "  {} {} {}: {share}",
                    share.id(),
                    share.amount(),
                    share.cost()
                ));
            }
        }
        lines.extend(bill.commitments().map(|one| format!("{one:?}")));
        lines.push(format!("{:?}", bill.totals()));
        lines
    })
}

/// What is uncovered of each usage.
fn uncovered(organization: &Organization) -> BTreeMap<String, Exact> {
    bill(organization, |bill| {
        let usages = bill.usages().filter(|usage| usage.own_price().is_none());
        let key = |usage: &veneer_billing::UsageBill<'_>| {
            format!(
                "{} {} {:?} {:?}",
                usage.id(),
                usage.account(),
                usage.zone(),
                usage.covered()
            )
        };
        let mut open: BTreeMap<String, Exact> = BTreeMap::new();
        for usage in usages {
            let sum = open.entry(key(&usage)).or_default();
            *sum = sum.plus(&usage.uncovered());
        }
        open
    })
}

/// Every amount of money times a factor.
fn scale(organization: &mut Organization, factor: &Exact) {
    let tables = organization
        .rates
        .values_mut()
        .chain([&mut organization.prices.on_demand]);
    for amount in tables.flat_map(BTreeMap::values_mut) {
        *amount = amount.times(factor);
    }
    for one in &mut organization.reserved_instances {
        one.upfront = one.upfront.times(factor);
        one.hourly = one.hourly.times(factor);
    }
    for one in &mut organization.savings_plans {
        one.commitment = one.commitment.times(factor);
    }
    let instances = organization.instances.iter_mut().map(|one| &mut one.purchase);
    let lines = organization.usage_lines.iter_mut().map(|one| &mut one.purchase);
    for purchase in instances.chain(lines) {
        match purchase {
            Purchase::OnDemand => {}
            Purchase::Spot(price) | Purchase::CapacityBlock(price) => *price = price.times(factor),
        }
    }
}

fn split_interval(one: &Interval, at: i64) -> Vec<Interval> {
    if one.contains(at) {
        vec![Interval::new(one.start, at), Interval::new(at, one.end)]
    } else {
        vec![*one]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Coverage never exceeds a commitment, and effective total = commitments + uncovered (`support::check`).
    #[test]
    fn every_bill_adds_up(seed: u64) {
        bill(&organization(seed), support::check);
        let organization = organization(seed);
        let allocator = Allocator::new(&organization);
        support::check(&allocator.now(generated::START + 1000));
    }

    #[test]
    fn a_further_commitment_leaves_no_usage_less_covered(seed: u64, other: u64) {
        let mut organization = organization(seed);
        let chance = &mut Chance(other);
        let mut all = organization.clone();
        // One of its own, taken out and put in again: it fits the usage better than one of another organization.
        if chance.one_in(2) && !organization.reserved_instances.is_empty() {
            let number = chance.below(organization.reserved_instances.len());
            let id = organization.reserved_instances[number].id.clone();
            organization.reserved_instances.retain(|one| one.id != id);
        } else if !organization.savings_plans.is_empty() {
            let number = chance.below(organization.savings_plans.len());
            let id = organization.savings_plans[number].id.clone();
            organization.savings_plans.retain(|one| one.id != id);
        } else {
            // One for something that runs.
            let Some(like) = organization.instances.first().cloned() else { return Ok(()) };
            all.reserved_instances.push(veneer_billing::ReservedInstances {
                id: "new".to_owned(),
                account: like.account,
                machine: like.machine,
                zone: chance.one_in(2).then_some(like.zone),
                count: 1,
                term: Interval::new(generated::START, generated::START + 9999),
                state: veneer_billing::State::Active,
                upfront: Exact::ZERO,
                hourly: Exact::ZERO,
            });
        }
        let (before, after) = (uncovered(&organization), uncovered(&all));
        prop_assert_eq!(before.len(), after.len());
        for (usage, left) in &after {
            prop_assert!(left <= &before[usage], "{} has {} left instead of {}", usage, left, before[usage]);
        }
    }

    #[test]
    fn a_further_usage_leaves_no_commitment_less_used(seed: u64, other: u64) {
        let all = organization(seed);
        let mut without = all.clone();
        let chance = &mut Chance(other);
        // Reservations are usage too, and shrink when an instance uses them.
        without.instances.retain(|one| one.capacity_reservation.is_some() || !chance.one_in(3));
        let used = |organization: &Organization| bill(organization, |bill| {
            let of = bill.commitments().map(|one| (one.commitment.id().to_owned(), one.used));
            (of.collect::<BTreeMap<_, _>>(), bill.totals().total())
        });
        let ((before, less), (after, more)) = (used(&without), used(&all));
        for (id, used) in &after {
            prop_assert!(used >= &before[id], "{}: {} instead of {}", id, used, before[id]);
        }
        prop_assert!(less <= more);
    }

    #[test]
    fn the_order_of_input_does_not_matter(seed: u64, other: u64) {
        let one = organization(seed);
        let mut shuffled = one.clone();
        let chance = &mut Chance(other);
        chance.shuffle(&mut shuffled.instances);
        chance.shuffle(&mut shuffled.capacity_reservations);
        chance.shuffle(&mut shuffled.usage_lines);
        chance.shuffle(&mut shuffled.reserved_instances);
        chance.shuffle(&mut shuffled.savings_plans);
        prop_assert_eq!(show(&one), show(&shuffled));
    }

    #[test]
    fn splitting_records_inside_the_hour_changes_nothing(seed: u64, at in 0i64..3600, share in 0i64..=10) {
        let one = organization(seed);
        let mut split = one.clone();
        let at = generated::START + at;
        let pieces = |instance: &Instance| -> Vec<Instance> {
            let intervals = instance.running.iter().flat_map(|one| split_interval(one, at));
            let mut pieces: Vec<Instance> =
                intervals.map(|one| Instance { running: vec![one], ..instance.clone() }).collect();
            pieces.reverse();
            pieces
        };
        split.instances = one.instances.iter().flat_map(pieces).collect();
        split.usage_lines = Vec::new();
        for line in &one.usage_lines {
            for part in [share, 10 - share] {
                let mut line = line.clone();
                line.quantity = line.quantity.times_whole(i128::from(part)).over_whole(10);
                split.usage_lines.push(line);
            }
        }
        prop_assert_eq!(show(&one), show(&split));
    }

    #[test]
    fn all_money_times_a_factor_is_the_bill_times_it(seed: u64, top in 1i128..1000, bottom in 1i128..1000) {
        let factor = Exact::fraction(top, bottom).unwrap();
        let one = organization(seed);
        let mut scaled = one.clone();
        scale(&mut scaled, &factor);
        let totals = bill(&one, |bill| bill.totals());
        let other = bill(&scaled, |bill| bill.totals());
        for (a, b) in [
            (&totals.list, &other.list),
            (&totals.own_price, &other.own_price),
            (&totals.on_demand, &other.on_demand),
            (&totals.commitments, &other.commitments),
            (&totals.unused, &other.unused),
        ] {
            prop_assert_eq!(&a.times(&factor), b);
        }
        prop_assert_eq!(uncovered(&one), uncovered(&scaled));
    }

    /// What a quote promises to pay in full costs nothing more, where there is one account and one commitment of each kind.
    #[test]
    fn what_is_left_in_full_is_never_dearer_than_a_quote_says(seed: u64) {
        let mut organization = organization(seed);
        let Some(like) = organization.instances.first().cloned() else { return Ok(()) };
        organization.reserved_instances.truncate(1);
        organization.savings_plans.clear();
        let candidate = Instance {
            id: "new".to_owned(),
            purchase: Purchase::OnDemand,
            capacity_reservation: None,
            running: Vec::new(),
            ..like
        };
        organization.instances.push(candidate.clone());
        let allocator = Allocator::new(&organization);
        let moment = Moment::Hour(generated::START);
        let quote = allocator.hour(generated::START).quote(&candidate);
        if quote.uncovered.is_zero() {
            prop_assert_eq!(allocator.one_more(moment, "new"), Some(Exact::ZERO));
        }
    }

    /// The marginal cost of alike instances, found once, is that of each of them.
    #[test]
    fn marginal_costs_are_those_of_a_second_bill(seed: u64) {
        let organization = organization(seed);
        let allocator = Allocator::new(&organization);
        let moment = Moment::Hour(generated::START);
        let ids: BTreeSet<&String> = organization.instances.iter().map(|one| &one.id).collect();
        for id in ids {
            // An instance that was several things in the hour is several usages, of which `marginal` takes the first.
            let records = organization.instances.iter().filter(|one| one.id == *id);
            let kinds = records.map(|one| format!("{:?}", Instance { running: Vec::new(), ..one.clone() }));
            if kinds.collect::<BTreeSet<_>>().len() > 1 {
                continue;
            }
            let mut without = organization.clone();
            without.instances.retain(|one| one.id != *id);
            let less = bill(&organization, |bill| bill.totals().total()).minus(&bill(&without, |bill| bill.totals().total()));
            prop_assert_eq!(allocator.marginal(moment, id).unwrap_or_default(), less);
        }
    }
}

/// Prices are keyed by what they are for, so nothing else can matter.
#[test]
fn prices_of_what_nobody_uses_change_nothing() {
    for seed in 0..50 {
        let one = organization(seed);
        let mut more = one.clone();
        let unused = Priced::Usage {
            region: "nowhere".to_owned(),
            usage_type: "nothing".to_owned(),
        };
        more.prices
            .on_demand
            .insert(unused, Exact::fraction(1, 7).unwrap());
        assert_eq!(show(&one), show(&more));
    }
}
