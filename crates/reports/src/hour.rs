//! One clock hour of a bill, replayed: what it says was used goes through the allocator, and both answers are laid side by side.

use std::collections::{BTreeMap, HashMap, HashSet};

use veneer_billing::{
    Allocator, Exact, HOUR, Interval, Organization, Priced, Purchase, ReservedInstances, SavingsPlan,
    Sharing, State, UsageLine,
};

use crate::checks::{self, is_near, reserved_hours, tolerance};
use crate::facts::Facts;
use crate::line::{Line, LineKind, Number, Place};
use crate::meter::Meter;
use crate::mistake::Mistake;

/// An account, a machine and a plan.
type Group = (u32, Option<u32>, u32);

/// What somebody pays of something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) amount: Exact,
    pub(crate) cost: Exact,
}

impl Part {
    fn add(&mut self, amount: &Exact, cost: &Exact) {
        self.amount = self.amount.plus(amount);
        self.cost = self.cost.plus(cost);
    }
}

/// Everything that an hour has of one instance, reservation or other usage.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) resource: String,
    pub(crate) account: u32,
    pub(crate) zone: u32,
    pub(crate) what: u32,
    pub(crate) meter: Meter,
    /// What goes through the allocator.
    pub(crate) amount: Exact,
    /// By who pays; 0 is nobody.
    pub(crate) billed: BTreeMap<u32, Part>,
    pub(crate) replayed: BTreeMap<u32, Part>,
    pub(crate) place: Place,
}

impl Usage {
    /// Everyone who pays for it in one of the answers.
    pub(crate) fn payers(&self) -> Vec<u32> {
        let mut payers: Vec<u32> = self.billed.keys().chain(self.replayed.keys()).copied().collect();
        payers.sort_unstable();
        payers.dedup();
        payers
    }

    pub(crate) fn parts(&self, payer: u32) -> (Part, Part) {
        let part = |parts: &BTreeMap<u32, Part>| parts.get(&payer).cloned().unwrap_or_default();
        (part(&self.billed), part(&self.replayed))
    }
}

/// Something that is wrong in an hour.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) mistake: Mistake,
    pub(crate) place: Place,
    pub(crate) account: u32,
    pub(crate) what: Option<u32>,
    pub(crate) resource: String,
    pub(crate) payer: u32,
    pub(crate) billed: Exact,
    pub(crate) expected: Exact,
    pub(crate) note: String,
    /// The usage that it is about.
    pub(crate) usage: Option<usize>,
}

/// What became of a plan in the hour, as its fee says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fee {
    pub(crate) committed: Exact,
    pub(crate) used: Option<Exact>,
    pub(crate) unused_cost: Exact,
    pub(crate) place: Place,
}

/// An hour, billed and replayed.
#[derive(Debug)]
pub(crate) struct Hour {
    pub(crate) slot: Interval,
    pub(crate) usages: Vec<Usage>,
    pub(crate) fees: BTreeMap<u32, Fee>,
    pub(crate) found: Vec<Found>,
    /// What plans have, and what of it the replay used.
    pub(crate) plans: BTreeMap<u32, (Exact, Exact)>,
    /// Instance-hours of Reserved Instances that lines and the replay use, and what these cost.
    pub(crate) reserved: BTreeMap<u32, ReservedUse>,
    /// Commitments that cannot be replayed, because the report does not say what they are.
    pub(crate) unknown: BTreeMap<u32, Place>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedUse {
    pub(crate) billed_hours: Exact,
    pub(crate) replayed_cost: Exact,
    pub(crate) capacity: Exact,
}

/// Reads the lines of an hour, asks each what can be asked, and replays them. Longer times are not replayed.
pub(crate) fn hour(slot: Interval, records: &str, facts: &Facts, sharing: &Sharing) -> Hour {
    let lines = records.lines().filter_map(Line::decode);
    let mut hour = Hour {
        slot,
        usages: Vec::new(),
        fees: BTreeMap::new(),
        found: Vec::new(),
        plans: BTreeMap::new(),
        reserved: BTreeMap::new(),
        unknown: BTreeMap::new(),
    };
    let mut seen: HashSet<(u64, String)> = HashSet::new();
    let mut numbers: HashMap<(String, u32, u32, u32, Meter), usize> = HashMap::new();
    let mut covered: BTreeMap<Group, (Exact, Place)> = BTreeMap::new();
    let mut negated: BTreeMap<Group, (Exact, Place)> = BTreeMap::new();
    for line in lines {
        // Lines without a resource may be alike by chance.
        let has_name = !line.resource.is_empty() || line.kind == LineKind::PlanFee;
        if has_name && !seen.insert((line.fingerprint, line.resource.clone())) {
            let found = Found {
                note: "all its columns are those of another line".to_owned(),
                ..of_line(&line, Mistake::DuplicateLine)
            };
            hour.found.push(found);
            continue;
        }
        // Tiers of other usage are not told apart where they are taken off.
        let machine = (line.meter != Meter::Other).then_some(line.what);
        let group = (line.account, machine, line.payer);
        match line.kind {
            LineKind::PlanFee | LineKind::Unused => hour.fee(&line),
            LineKind::Negation => add(&mut negated, group, &line),
            _ if line.is_usage() => {
                if line.kind == LineKind::CoveredUsage {
                    add(&mut covered, group, &line);
                }
                let wrong = checks::line(&line, facts, sharing);
                let number = hour.usage(&line, facts, &mut numbers);
                if let Some(wrong) = wrong {
                    hour.found.push(Found {
                        expected: wrong.expected,
                        note: wrong.note,
                        usage: Some(number),
                        ..of_line(&line, wrong.mistake)
                    });
                }
            }
            _ => {}
        }
    }
    if facts.has_negations {
        hour.check_negations(&covered, &negated);
    }
    hour.check_plans(facts);
    if hour.is_replayed() {
        hour.check_hours();
        hour.replay(facts, sharing);
        hour.check_reserved(facts);
    }
    hour
}

fn add(sums: &mut BTreeMap<Group, (Exact, Place)>, group: Group, line: &Line) {
    let sum = sums.entry(group).or_insert((Exact::ZERO, line.place));
    sum.0 = sum.0.plus(&line.or_zero(Number::Cost));
}

fn of_line(line: &Line, mistake: Mistake) -> Found {
    Found {
        mistake,
        place: line.place,
        account: line.account,
        what: (line.meter != Meter::None).then_some(line.what),
        resource: line.resource.clone(),
        payer: line.payer,
        billed: line.effective(),
        expected: Exact::ZERO,
        note: String::new(),
        usage: None,
    }
}

impl Hour {
    /// Whether this is a clock hour: longer times are not replayed.
    pub(crate) fn is_replayed(&self) -> bool {
        self.slot == Interval::hour(self.slot.start)
    }

    fn fee(&mut self, line: &Line) {
        let fee = self.fees.entry(line.payer).or_default();
        fee.place = line.place;
        fee.unused_cost = fee.unused_cost.plus(&line.effective());
        if line.kind == LineKind::PlanFee {
            fee.committed = fee.committed.plus(&line.or_zero(Number::Committed));
            fee.used = Some(
                fee.used
                    .take()
                    .unwrap_or_default()
                    .plus(&line.or_zero(Number::Used)),
            );
        }
    }

    fn usage(
        &mut self,
        line: &Line,
        facts: &Facts,
        numbers: &mut HashMap<(String, u32, u32, u32, Meter), usize>,
    ) -> usize {
        let key = (
            line.resource.clone(),
            line.account,
            line.zone,
            line.what,
            line.meter,
        );
        let next = self.usages.len();
        let number = *numbers.entry(key).or_insert(next);
        if number == next {
            self.usages.push(Usage {
                resource: line.resource.clone(),
                account: line.account,
                zone: line.zone,
                what: line.what,
                meter: line.meter,
                amount: Exact::ZERO,
                billed: BTreeMap::new(),
                replayed: BTreeMap::new(),
                place: line.place,
            });
        }
        let amount = line.or_zero(Number::Amount);
        let is_known = line.payer == 0
            || facts.reserved.contains_key(&line.payer)
            || facts
                .plans
                .get(&line.payer)
                .is_some_and(|plan| plan.commitment.is_some());
        if let Some(reserved) = facts.reserved.get(&line.payer) {
            let used = self.reserved.entry(line.payer).or_default();
            used.billed_hours = used.billed_hours.plus(&reserved_hours(reserved, facts, line));
        }
        let Some(usage) = self.usages.get_mut(number) else {
            return number;
        };
        if is_known {
            let part = usage.billed.entry(line.payer).or_default();
            part.add(&amount, &line.effective());
            usage.amount = usage.amount.plus(&amount);
        } else {
            self.unknown.entry(line.payer).or_insert(line.place);
        }
        number
    }

    /// What plans cover is taken off the bill in the same hour: by account, machine and plan.
    fn check_negations(
        &mut self,
        covered: &BTreeMap<Group, (Exact, Place)>,
        negated: &BTreeMap<Group, (Exact, Place)>,
    ) {
        let groups: std::collections::BTreeSet<_> = covered.keys().chain(negated.keys()).collect();
        for group in groups {
            let (cost, place) = covered
                .get(group)
                .or_else(|| negated.get(group))
                .cloned()
                .unwrap_or_default();
            let cost = if covered.contains_key(group) {
                cost
            } else {
                Exact::ZERO
            };
            let taken = negated.get(group).map(|(sum, _)| sum.negated());
            let mistake = match &taken {
                Some(taken) if is_near(taken, &cost) => continue,
                None if is_near(&cost, &Exact::ZERO) => continue,
                Some(_) => Mistake::WrongNegation,
                None => Mistake::MissingNegation,
            };
            let taken = taken.unwrap_or_default();
            self.found.push(Found {
                mistake,
                place,
                account: group.0,
                what: group.1,
                resource: String::new(),
                payer: group.2,
                note: format!("covered ${}, taken off ${}", cost.decimal(6), taken.decimal(6)),
                billed: cost.minus(&taken),
                expected: Exact::ZERO,
                usage: None,
            });
        }
    }

    /// The fee of each plan against its other hours, and against the lines that it pays.
    fn check_plans(&mut self, facts: &Facts) {
        let mut used: BTreeMap<u32, Exact> = BTreeMap::new();
        for usage in &self.usages {
            for (payer, part) in &usage.billed {
                if facts.plans.contains_key(payer) {
                    let sum = used.entry(*payer).or_default();
                    *sum = sum.plus(&part.cost);
                }
            }
        }
        for (arn, plan) in &facts.plans {
            let seconds = plan.term.overlap(&self.slot);
            let Some(commitment) = plan.commitment.as_ref().filter(|_| plan.has_fees) else {
                continue;
            };
            let lines = used.remove(arn).unwrap_or_default();
            let committed = commitment
                .times_whole(i128::from(seconds))
                .over_whole(i128::from(HOUR));
            let mut wrong = |mistake, place, billed: &Exact, expected: &Exact, note: String| {
                self.found.push(Found {
                    mistake,
                    place,
                    account: plan.account,
                    what: None,
                    resource: String::new(),
                    payer: *arn,
                    billed: billed.clone(),
                    expected: expected.clone(),
                    note,
                    usage: None,
                });
            };
            let fee = self.fees.get(arn);
            let place = fee.map(|fee| fee.place).unwrap_or_default();
            match fee {
                None if seconds > 0 => wrong(
                    Mistake::MissingFee,
                    place,
                    &Exact::ZERO,
                    &committed,
                    "the plan has a fee in other hours".to_owned(),
                ),
                Some(fee) if !is_near(&fee.committed, &committed) => {
                    let note = format!(
                        "the fee is ${}, other hours have ${}",
                        fee.committed.decimal(6),
                        committed.decimal(6)
                    );
                    wrong(Mistake::WrongFee, place, &fee.committed, &committed, note);
                }
                _ => {}
            }
            let more = lines.minus(&committed);
            if more > tolerance() {
                let note = format!(
                    "its lines come to ${}, it has ${}",
                    lines.decimal(6),
                    committed.decimal(6)
                );
                wrong(Mistake::CommitmentExceeded, place, &lines, &committed, note);
            } else if let Some(said) = fee.and_then(|fee| fee.used.as_ref())
                && !is_near(said, &lines)
            {
                let note = format!(
                    "the fee says ${}, its lines come to ${}",
                    said.decimal(6),
                    lines.decimal(6)
                );
                let mistake = if *said > lines {
                    Mistake::MissingLine
                } else {
                    Mistake::WrongFee
                };
                wrong(mistake, place, &lines, said, note);
            }
        }
    }

    /// An instance has no more than an hour in an hour.
    fn check_hours(&mut self) {
        let mut hours: HashMap<(&str, u32), Exact> = HashMap::new();
        let mut found = Vec::new();
        for (number, usage) in self.usages.iter().enumerate() {
            let name = usage.resource.rsplit('/').next().unwrap_or_default();
            if !name.starts_with("i-") || !matches!(usage.meter, Meter::Instance | Meter::Spot) {
                continue;
            }
            let sum = hours.entry((name, usage.account)).or_default();
            let before = sum.clone();
            *sum = sum.plus(&usage.amount);
            let limit = Exact::ONE.plus(&tolerance());
            if *sum > limit && before <= limit {
                let billed: Exact = usage.billed.values().map(|part| &part.cost).sum();
                found.push(Found {
                    mistake: Mistake::MoreThanAnHour,
                    place: usage.place,
                    account: usage.account,
                    what: Some(usage.what),
                    resource: usage.resource.clone(),
                    payer: 0,
                    expected: billed.over(sum).unwrap_or_default(),
                    billed,
                    note: format!("{} hours", sum.decimal(4)),
                    usage: Some(number),
                });
            }
        }
        self.found.extend(found);
    }

    /// Reserved Instances have no more than their number of hours (rule 8).
    fn check_reserved(&mut self, facts: &Facts) {
        for (arn, used) in &self.reserved {
            let Some(reserved) = facts.reserved.get(arn) else {
                continue;
            };
            if used.billed_hours.minus(&used.capacity) > tolerance() && used.capacity.is_positive() {
                self.found.push(Found {
                    mistake: Mistake::CommitmentExceeded,
                    place: Place::default(),
                    account: reserved.account,
                    what: Some(reserved.what),
                    resource: String::new(),
                    payer: *arn,
                    billed: used.billed_hours.times(&reserved.hourly),
                    expected: used.capacity.times(&reserved.hourly),
                    note: format!(
                        "its lines come to {} instance-hours, it has {}",
                        used.billed_hours.decimal(4),
                        used.capacity.decimal(4)
                    ),
                    usage: None,
                });
            }
        }
    }

    fn replay(&mut self, facts: &Facts, sharing: &Sharing) {
        // The order of names decides among equals (rule 15), so usage is numbered in that order.
        let name = |number: u32| facts.words.word(number);
        let mut order: Vec<usize> = (0..self.usages.len()).collect();
        order.sort_by_cached_key(|number| {
            let usage = self.usages.get(*number)?;
            Some((
                usage.resource.clone(),
                usage.meter == Meter::UnusedReservation,
                name(usage.account),
                name(usage.zone),
                facts.things.thing(usage.what),
                usage.meter,
            ))
        });
        let organization = self.organization(&order, facts, sharing);
        let allocator = Allocator::new(&organization);
        let bill = allocator.hour(self.slot.start);
        let arns: HashMap<&str, u32> = facts
            .reserved
            .keys()
            .chain(facts.plans.keys())
            .map(|number| (facts.words.word(*number), *number))
            .collect();
        let payer = |id: &str| arns.get(id).copied().unwrap_or_default();
        for replayed in bill.usages() {
            let number = replayed
                .id()
                .parse::<usize>()
                .ok()
                .and_then(|place| order.get(place));
            let Some(usage) = number.and_then(|number| self.usages.get_mut(*number)) else {
                continue;
            };
            for share in replayed.shares() {
                let part = usage.replayed.entry(payer(share.id())).or_default();
                part.add(&share.amount(), &share.cost());
            }
            let left = replayed.uncovered();
            if left.is_positive() {
                let part = usage.replayed.entry(0).or_default();
                part.add(&left, &replayed.uncovered_cost());
            }
        }
        for one in bill.commitments() {
            let number = payer(one.commitment.id());
            match one.commitment {
                veneer_billing::Commitment::Plan(_) => {
                    self.plans.insert(number, (one.capacity, one.used));
                }
                veneer_billing::Commitment::Reserved(_) => {
                    let used = self.reserved.entry(number).or_default();
                    used.replayed_cost = one.used_part(&one.cost);
                    used.capacity = one.capacity;
                }
            }
        }
    }

    fn organization(&self, order: &[usize], facts: &Facts, sharing: &Sharing) -> Organization {
        let mut organization = Organization {
            sharing: sharing.clone(),
            ..Organization::default()
        };
        let mut whats: Vec<u32> = self.usages.iter().map(|usage| usage.what).collect();
        whats.sort_unstable();
        whats.dedup();
        let thing = |what: u32| facts.things.thing(what).cloned();
        for what in &whats {
            if let (Some(thing), Some(price)) = (thing(*what), facts.price(*what)) {
                organization.prices.on_demand.insert(thing, price.clone());
            }
        }
        let word = |number: u32| facts.words.word(number).to_owned();
        for (place, number) in order.iter().enumerate() {
            let Some(usage) = self
                .usages
                .get(*number)
                .filter(|usage| usage.amount.is_positive())
            else {
                continue;
            };
            let Some(what) = thing(usage.what) else { continue };
            let own_price = || {
                let own = usage.billed.get(&0).cloned().unwrap_or_default();
                own.cost.over(&own.amount).unwrap_or_default()
            };
            let line = UsageLine {
                id: format!("{place:09}"),
                account: word(usage.account),
                zone: (usage.zone != 0 && matches!(what, Priced::Machine(_))).then(|| word(usage.zone)),
                what,
                purchase: match usage.meter {
                    Meter::Spot => Purchase::Spot(own_price()),
                    _ => Purchase::OnDemand,
                },
                at: self.slot.start,
                quantity: usage.amount.clone(),
            };
            match usage.meter {
                Meter::UnusedReservation => organization.unused_reservation_lines.push(line),
                _ => organization.usage_lines.push(line),
            }
        }
        let is_active = |term: &Interval| term.overlap(&self.slot) > 0;
        for (arn, one) in facts.reserved.iter().filter(|(_, one)| is_active(&one.term)) {
            let Some(Priced::Machine(machine)) = thing(one.what) else {
                continue;
            };
            let seconds = one.term.end.saturating_sub(one.term.start);
            organization.reserved_instances.push(ReservedInstances {
                id: word(*arn),
                account: word(one.account),
                machine,
                zone: (one.zone != 0).then(|| word(one.zone)),
                count: one.count,
                term: one.term,
                state: State::Active,
                upfront: one
                    .upfront_hour
                    .times_whole(i128::from(seconds))
                    .over_whole(i128::from(HOUR)),
                hourly: one.hourly.clone(),
            });
        }
        for (arn, one) in facts.plans.iter().filter(|(_, one)| is_active(&one.term)) {
            let Some(commitment) = &one.commitment else {
                continue;
            };
            let rates = organization.rates.entry(word(one.card)).or_default();
            for what in &whats {
                if let (Some(thing), Some(rate)) = (thing(*what), facts.rate(one.card, *what)) {
                    rates.insert(thing, rate.clone());
                }
            }
            organization.savings_plans.push(SavingsPlan {
                id: word(*arn),
                account: word(one.account),
                kind: one.kind.clone(),
                commitment: commitment.clone(),
                rates: word(one.card),
                term: one.term,
                state: State::Active,
            });
        }
        organization
    }
}
