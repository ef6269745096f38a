//! Why the bill and the replay differ: the order that AWS does not document (rule 15), a mistake that was found, or nothing that is known.

use std::collections::{BTreeMap, BTreeSet};

use veneer_billing::{Exact, PlanKind, Priced, Sharing, size_quarters};

use crate::checks::{is_near, tolerance};
use crate::facts::Facts;
use crate::hour::{Found, Hour, Part, Usage};
use crate::line::Place;
use crate::meter::Meter;
use crate::mistake::Mistake;

/// How the pair of a usage and who pays for it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The same within a millionth of a dollar.
    Agreed,
    /// Equal usage or equal commitments in another order: AWS does not document which.
    OrderAmongEquals,
    /// A mistake, or what follows from one in the same hour.
    Mistaken,
    /// Neither.
    Unexplained,
}

/// By the stage of a commitment and the commitment: the usage that got more and that which got less than in the replay.
type Changed = BTreeMap<(u8, u32), (Vec<usize>, Vec<usize>)>;

/// What decides who is covered first by a commitment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    reach: u8,
    is_unused: bool,
    /// Of Reserved Instances: quarters of the size.
    size: u64,
    /// Of plans: the share of the price that is paid, and the rate.
    paid: Exact,
    rate: Exact,
}

/// Verdicts by (usage, payer), and mistakes that only the comparison shows.
pub(crate) fn explain(hour: &mut Hour, facts: &Facts, sharing: &Sharing) -> BTreeMap<(usize, u32), Verdict> {
    let mut verdicts = BTreeMap::new();
    // By commitment: who got more and who got less than in the replay.
    let mut changed = Changed::new();
    let mut pending: BTreeSet<(usize, u32)> = BTreeSet::new();
    for (number, usage) in hour.usages.iter().enumerate() {
        let price = facts.price(usage.what).cloned().unwrap_or(Exact::ONE);
        for payer in usage.payers() {
            let (billed, replayed) = usage.parts(payer);
            let worth = |part: &Part| part.amount.times(&price);
            let is_same_amount = is_near(&worth(&billed), &worth(&replayed));
            if is_same_amount && is_near(&billed.cost, &replayed.cost) {
                verdicts.insert((number, payer), Verdict::Agreed);
                continue;
            }
            pending.insert((number, payer));
            if payer != 0 && !is_same_amount {
                let (more, less) = changed.entry((stage(payer, facts), payer)).or_default();
                match billed.amount > replayed.amount {
                    true => more.push(number),
                    false => less.push(number),
                }
            }
        }
    }
    if pending.is_empty() {
        return verdicts;
    }
    // What a mistake touches, and what follows from that in the same hour.
    let mut commitments: BTreeSet<u32> = BTreeSet::new();
    let mut usages: BTreeSet<usize> = BTreeSet::new();
    for found in &hour.found {
        if !matches!(
            found.mistake,
            Mistake::DuplicateLine | Mistake::MissingNegation | Mistake::WrongNegation
        ) {
            commitments.extend((found.payer != 0).then_some(found.payer));
            usages.extend(found.usage);
        }
    }
    spread(&changed, &mut commitments, &mut usages);
    let equals = equals(hour, facts);
    let (mut tied, mut tied_usages) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    for ((_, payer), (more, less)) in &changed {
        if commitments.contains(payer) {
            continue;
        }
        let is_equal = more.iter().chain(less).all(|number| equals.contains(number));
        if is_equal {
            tied_usages.extend(more.iter().chain(less));
            continue;
        }
        match compare(hour, *payer, more, less, facts, sharing) {
            Compared::Broken(mistake) => {
                let about = less.first().or(more.first()).copied();
                found.extend(about.and_then(|about| describe(hour, mistake, *payer, about)));
                commitments.insert(*payer);
                usages.extend(more.iter().chain(less));
                spread(&changed, &mut commitments, &mut usages);
            }
            Compared::Tie => {
                tied.insert(*payer);
                tied_usages.extend(more.iter().chain(less));
            }
            Compared::Unknown => {}
        }
    }
    hour.found.extend(found);
    spread(&changed, &mut tied, &mut tied_usages);
    for (number, payer) in pending {
        let verdict = if equals.contains(&number) {
            Verdict::OrderAmongEquals
        } else if commitments.contains(&payer) || usages.contains(&number) {
            Verdict::Mistaken
        } else if tied.contains(&payer) || (payer == 0 && tied_usages.contains(&number)) {
            Verdict::OrderAmongEquals
        } else {
            Verdict::Unexplained
        };
        verdicts.insert((number, payer), verdict);
    }
    verdicts
}

/// The commitments that share usage with those that a mistake touches are touched too.
fn spread(changed: &Changed, commitments: &mut BTreeSet<u32>, usages: &mut BTreeSet<usize>) {
    loop {
        let before = (commitments.len(), usages.len());
        for ((_, payer), (more, less)) in changed {
            let of = || more.iter().chain(less).copied();
            if commitments.contains(payer) || of().any(|number| usages.contains(&number)) {
                commitments.insert(*payer);
                usages.extend(of());
            }
        }
        if before == (commitments.len(), usages.len()) {
            return;
        }
    }
}

/// Reserved Instances that are zonal, the others, EC2 Instance plans, Compute plans (rule 2).
fn stage(payer: u32, facts: &Facts) -> u8 {
    match (facts.reserved.get(&payer), facts.plans.get(&payer)) {
        (Some(one), _) if one.zone != 0 => 0,
        (Some(_), _) => 1,
        (_, Some(one)) if one.kind != PlanKind::Compute => 2,
        _ => 3,
    }
}

/// Usage that differs in nothing but its name gets the same in sum: then only the order among equals differs. Commitments that differ in
/// nothing but their name count as one.
fn equals(hour: &Hour, facts: &Facts) -> BTreeSet<usize> {
    let mut groups: BTreeMap<(u32, u32, u32, Meter), Vec<usize>> = BTreeMap::new();
    for (number, usage) in hour.usages.iter().enumerate() {
        let key = (usage.account, usage.zone, usage.what, usage.meter);
        groups.entry(key).or_default().push(number);
    }
    let mut equals = BTreeSet::new();
    for members in groups.values() {
        let mut sums: BTreeMap<Twin, (Part, Part)> = BTreeMap::new();
        let mut price = Exact::ONE;
        for usage in members.iter().filter_map(|number| hour.usages.get(*number)) {
            price = facts.price(usage.what).cloned().unwrap_or(Exact::ONE);
            for payer in usage.payers() {
                let (billed, replayed) = usage.parts(payer);
                let sum = sums.entry(twin(payer, facts)).or_default();
                sum.0.amount = sum.0.amount.plus(&billed.amount);
                sum.0.cost = sum.0.cost.plus(&billed.cost);
                sum.1.amount = sum.1.amount.plus(&replayed.amount);
                sum.1.cost = sum.1.cost.plus(&replayed.cost);
            }
        }
        let is_same = sums.values().all(|(billed, replayed)| {
            is_near(&billed.cost, &replayed.cost)
                && is_near(&billed.amount.times(&price), &replayed.amount.times(&price))
        });
        if is_same {
            equals.extend(members);
        }
    }
    equals
}

/// What equal commitments have in common.
type Twin = (u32, u32, u32, Option<PlanKind>, Exact, i64);

fn twin(payer: u32, facts: &Facts) -> Twin {
    if let Some(one) = facts.reserved.get(&payer) {
        let cost = one.hourly.plus(&one.upfront_hour);
        return (one.account, one.what + 1, one.zone, None, cost, 0);
    }
    if let Some(one) = facts.plans.get(&payer) {
        return (one.account, one.card, 0, Some(one.kind.clone()), Exact::ZERO, 1);
    }
    (0, 0, 0, None, Exact::ZERO, 2)
}

fn rank(usage: &Usage, payer: u32, facts: &Facts, sharing: &Sharing) -> Option<Rank> {
    let owner = match (facts.reserved.get(&payer), facts.plans.get(&payer)) {
        (Some(one), _) => one.account,
        (_, Some(one)) => one.account,
        _ => return None,
    };
    let reach = sharing.reach(facts.words.word(owner), facts.words.word(usage.account))?;
    let thing = facts.things.thing(usage.what)?;
    let mut rank = Rank {
        reach: reach as u8,
        is_unused: usage.meter == Meter::UnusedReservation,
        size: 0,
        paid: Exact::ZERO,
        rate: Exact::ZERO,
    };
    match facts.plans.get(&payer) {
        Some(plan) => {
            rank.rate = facts.rate(plan.card, usage.what)?.clone();
            rank.paid = rank.rate.over(facts.price(usage.what)?).unwrap_or(Exact::ONE);
        }
        None => {
            if let Priced::Machine(machine) = thing {
                rank.size = size_quarters(&machine.instance_type).unwrap_or_default();
            }
        }
    }
    Some(rank)
}

/// How what a commitment covers in the bill compares to what it covers in the replay.
enum Compared {
    /// A rule is broken.
    Broken(Mistake),
    /// No rule says which is right (rule 15).
    Tie,
    /// It follows from another commitment, or from nothing that is known.
    Unknown,
}

/// Which rule the bill breaks with a commitment; nothing if what it covers is as good as what the replay covers (rule 15).
fn compare(
    hour: &Hour,
    payer: u32,
    more: &[usize],
    less: &[usize],
    facts: &Facts,
    sharing: &Sharing,
) -> Compared {
    let usage = |number: &usize| hour.usages.get(*number);
    let ranks = |numbers: &[usize]| -> Vec<Rank> {
        let of = numbers.iter().filter_map(usage);
        of.filter_map(|usage| rank(usage, payer, facts, sharing))
            .collect()
    };
    let Some(passed_over) = ranks(less).into_iter().min() else {
        return Compared::Unknown;
    };
    // Who pays for what the replay covers with this commitment?
    let instead: BTreeSet<u32> = less
        .iter()
        .filter_map(usage)
        .flat_map(|usage| {
            usage.payers().into_iter().filter(|other| {
                let (billed, replayed) = usage.parts(*other);
                *other != payer && billed.amount.minus(&replayed.amount) > tolerance()
            })
        })
        .collect();
    let own = stage(payer, facts);
    if instead
        .iter()
        .any(|other| *other != 0 && stage(*other, facts) > own)
        && has_room(hour, payer, facts)
    {
        return Compared::Broken(Mistake::WrongOrder);
    }
    match ranks(more).into_iter().max() {
        Some(preferred) if preferred > passed_over => {
            Compared::Broken(if preferred.reach != passed_over.reach {
                Mistake::OwnerNotFirst
            } else if preferred.is_unused != passed_over.is_unused {
                Mistake::UnusedFirst
            } else if preferred.size != passed_over.size {
                Mistake::LargerSizeFirst
            } else {
                Mistake::LowerSavingFirst
            })
        }
        Some(preferred) if preferred == passed_over => Compared::Tie,
        None if has_room(hour, payer, facts) && instead.contains(&0) => {
            Compared::Broken(Mistake::CoverageMissed)
        }
        _ => Compared::Unknown,
    }
}

/// Whether the bill leaves some of a commitment unused.
fn has_room(hour: &Hour, payer: u32, facts: &Facts) -> bool {
    if facts.reserved.contains_key(&payer) {
        let used = hour.reserved.get(&payer).cloned().unwrap_or_default();
        return used.capacity.minus(&used.billed_hours) > tolerance();
    }
    let spent: Exact = hour
        .usages
        .iter()
        .filter_map(|usage| usage.billed.get(&payer))
        .map(|part| &part.cost)
        .sum();
    let capacity = hour.plans.get(&payer).map(|(capacity, _)| capacity.clone());
    capacity.unwrap_or_default().minus(&spent) > tolerance()
}

fn describe(hour: &Hour, mistake: Mistake, payer: u32, about: usize) -> Option<Found> {
    let usage = hour.usages.get(about)?;
    let sum = |parts: &BTreeMap<u32, Part>| parts.values().map(|part| &part.cost).sum::<Exact>();
    let (billed, replayed) = usage.parts(payer);
    Some(Found {
        mistake,
        place: if usage.billed.is_empty() {
            Place::default()
        } else {
            usage.place
        },
        account: usage.account,
        what: Some(usage.what),
        resource: usage.resource.clone(),
        payer,
        billed: sum(&usage.billed),
        expected: sum(&usage.replayed),
        note: format!(
            "the commitment pays {} hours or units of it, by the rules {}",
            billed.amount.decimal(4),
            replayed.amount.decimal(4)
        ),
        usage: Some(about),
    })
}
