//! Adds up what the hours of a report come to, and every difference by its reason.

use std::collections::BTreeMap;

use veneer_billing::Exact;

use crate::explain::Verdict;
use crate::facts::Facts;
use crate::hour::{Found, Hour};
use crate::intake::family;
use crate::line::Place;
use crate::meter::Meter;
use crate::mistake::Mistake;
use crate::time;
use crate::totals::{CommitmentTotals, Example, LineHours, MistakeTotals, Pair, Report, UsageTotals};

const DAY: i64 = 86_400;
/// How many examples of one kind are kept.
const EXAMPLES: usize = 20;

#[derive(Clone, Debug, Default)]
struct Sums {
    on_demand: [Exact; 2],
    covered: [Exact; 2],
    list_covered: [Exact; 2],
    list: Exact,
    spot: Exact,
}

/// Sums are kept with twelve decimals: fractions of thousands of hours would grow without end.
fn rounded(amount: &Exact) -> Exact {
    match amount.denominator() {
        Some(small) if small <= 1_000_000_000_000 && 1_000_000_000_000 % small == 0 => amount.clone(),
        _ => Exact::parse(&amount.decimal(12)).unwrap_or_default(),
    }
}

fn add(sum: &mut Exact, amount: &Exact) {
    *sum = sum.plus(&rounded(amount));
}

fn dollars(amount: &Exact) -> f64 {
    amount.decimal(6).parse().unwrap_or_default()
}

impl Sums {
    fn totals(&self, name: &str) -> UsageTotals {
        let pair = |of: &[Exact; 2]| Pair {
            billed: dollars(&of[0]),
            replayed: dollars(&of[1]),
        };
        let effective = [0, 1].map(|side: usize| {
            let part = |of: &[Exact; 2]| of.get(side).cloned().unwrap_or_default();
            part(&self.on_demand).plus(&part(&self.covered)).plus(&self.spot)
        });
        let percent = |of: &Exact| {
            let share = of.times_whole(100).over(&self.list).unwrap_or_default();
            share.decimal(2).parse().unwrap_or_default()
        };
        UsageTotals {
            name: name.to_owned(),
            on_demand: pair(&self.on_demand),
            covered: pair(&self.covered),
            covered_list: pair(&self.list_covered),
            spot: dollars(&self.spot),
            effective: pair(&effective),
            coverage_percent: Pair {
                billed: percent(&self.list_covered[0]),
                replayed: percent(&self.list_covered[1]),
            },
        }
    }
}

#[derive(Clone, Debug, Default)]
struct CommitmentSums {
    cost: Exact,
    used: [Exact; 2],
    unused: [Exact; 2],
    /// Instance-hours that lines use, for the fees of Reserved Instances.
    hours: Exact,
}

/// Adds hours up.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    first: Option<i64>,
    last: Option<i64>,
    hours: u64,
    long_periods: u64,
    line_hours: LineHours,
    total: Sums,
    accounts: BTreeMap<u32, Sums>,
    /// By days since 1970.
    days: BTreeMap<i64, Sums>,
    families: BTreeMap<String, Sums>,
    commitments: BTreeMap<u32, CommitmentSums>,
    mistakes: BTreeMap<Mistake, MistakeTotals>,
    unexplained: Vec<Example>,
    unknown: BTreeMap<u32, Place>,
}

impl Summary {
    pub(crate) fn add(
        &mut self,
        hour: &Hour,
        verdicts: &BTreeMap<(usize, u32), Verdict>,
        facts: &Facts,
        files: &[String],
    ) {
        self.first = Some(
            self.first
                .map_or(hour.slot.start, |first| first.min(hour.slot.start)),
        );
        self.last = Some(self.last.map_or(hour.slot.end, |last| last.max(hour.slot.end)));
        let is_hour = hour.is_replayed();
        match is_hour {
            true => self.hours += 1,
            false => self.long_periods += 1,
        }
        for (number, usage) in hour.usages.iter().enumerate() {
            let price = facts.price(usage.what).cloned().unwrap_or_default();
            let name = facts.things.thing(usage.what).map(family).unwrap_or_default();
            let sums: [&mut Sums; 4] = [
                &mut self.total,
                self.accounts.entry(usage.account).or_default(),
                self.days.entry(hour.slot.start.div_euclid(DAY)).or_default(),
                self.families.entry(name.to_owned()).or_default(),
            ];
            for sums in sums {
                if usage.meter == Meter::Spot {
                    for part in usage.billed.values() {
                        add(&mut sums.spot, &part.cost);
                    }
                    continue;
                }
                add(&mut sums.list, &usage.amount.times(&price));
                for (side, parts) in [
                    &usage.billed,
                    if is_hour { &usage.replayed } else { &usage.billed },
                ]
                .into_iter()
                .enumerate()
                {
                    for (payer, part) in parts {
                        let of = match payer {
                            0 => sums.on_demand.get_mut(side),
                            _ => sums.covered.get_mut(side),
                        };
                        if let Some(sum) = of {
                            add(sum, &part.cost);
                        }
                        if *payer != 0
                            && let Some(sum) = sums.list_covered.get_mut(side)
                        {
                            add(sum, &part.amount.times(&price));
                        }
                    }
                }
            }
            for (side, parts) in [
                &usage.billed,
                if is_hour { &usage.replayed } else { &usage.billed },
            ]
            .into_iter()
            .enumerate()
            {
                for (payer, part) in parts.iter().filter(|(payer, _)| **payer != 0) {
                    let sums = self.commitments.entry(*payer).or_default();
                    if let Some(sum) = sums.used.get_mut(side) {
                        add(sum, &part.cost);
                    }
                }
            }
            if is_hour {
                self.judge(hour, number, verdicts, facts, files);
            }
        }
        for (payer, used) in &hour.reserved {
            let sums = self.commitments.entry(*payer).or_default();
            add(&mut sums.hours, &used.billed_hours);
        }
        for (payer, fee) in &hour.fees {
            let sums = self.commitments.entry(*payer).or_default();
            add(&mut sums.unused[0], &fee.unused_cost);
            add(&mut sums.cost, &fee.committed);
            if !is_hour {
                add(&mut sums.unused[1], &fee.unused_cost);
            }
        }
        for (payer, (capacity, used)) in &hour.plans {
            let sums = self.commitments.entry(*payer).or_default();
            add(&mut sums.unused[1], &capacity.minus(used));
            if hour.fees.get(payer).is_none_or(|fee| fee.used.is_none()) {
                add(&mut sums.cost, capacity);
            }
        }
        for found in &hour.found {
            self.mistake(found, hour.slot.start, facts, files);
        }
        for (payer, place) in &hour.unknown {
            self.unknown.entry(*payer).or_insert(*place);
        }
    }

    fn judge(
        &mut self,
        hour: &Hour,
        number: usize,
        verdicts: &BTreeMap<(usize, u32), Verdict>,
        facts: &Facts,
        files: &[String],
    ) {
        let Some(usage) = hour.usages.get(number) else {
            return;
        };
        for payer in usage.payers() {
            self.line_hours.compared += 1;
            match verdicts.get(&(number, payer)) {
                None | Some(Verdict::Agreed) => self.line_hours.agreed += 1,
                Some(Verdict::OrderAmongEquals) => self.line_hours.order_among_equals += 1,
                Some(Verdict::Mistaken) => self.line_hours.mistaken += 1,
                Some(Verdict::Unexplained) => {
                    self.line_hours.unexplained += 1;
                    if self.unexplained.len() < EXAMPLES {
                        let (billed, replayed) = usage.parts(payer);
                        self.unexplained.push(Example {
                            place: place(usage.place, files),
                            time: time::format(hour.slot.start),
                            account: facts.words.word(usage.account).to_owned(),
                            resource: usage.resource.clone(),
                            what: facts
                                .things
                                .thing(usage.what)
                                .map(ToString::to_string)
                                .unwrap_or_default(),
                            commitment: facts.words.word(payer).to_owned(),
                            billed: dollars(&billed.cost),
                            expected: dollars(&replayed.cost),
                            note: format!(
                                "billed {} hours or units, by the rules {}",
                                billed.amount.decimal(6),
                                replayed.amount.decimal(6)
                            ),
                        });
                    }
                }
            }
        }
    }

    fn mistake(&mut self, found: &Found, at: i64, facts: &Facts, files: &[String]) {
        let totals = self
            .mistakes
            .entry(found.mistake)
            .or_insert_with(|| MistakeTotals {
                kind: found.mistake.name().to_owned(),
                meaning: found.mistake.meaning().to_owned(),
                rules: found.mistake.rules().to_vec(),
                count: 0,
                dollars: 0.0,
                examples: Vec::new(),
            });
        totals.count += 1;
        totals.dollars = dollars(
            &Exact::from_f64(totals.dollars)
                .unwrap_or_default()
                .plus(&found.billed.minus(&found.expected)),
        );
        if totals.examples.len() < EXAMPLES {
            let thing = found.what.and_then(|what| facts.things.thing(what));
            totals.examples.push(Example {
                place: place(found.place, files),
                time: time::format(at),
                account: facts.words.word(found.account).to_owned(),
                resource: found.resource.clone(),
                what: thing.map(ToString::to_string).unwrap_or_default(),
                commitment: facts.words.word(found.payer).to_owned(),
                billed: dollars(&found.billed),
                expected: dollars(&found.expected),
                note: found.note.clone(),
            });
        }
    }

    pub(crate) fn finish(mut self, lines: u64, facts: &Facts, files: &[String]) -> Report {
        self.reserved_fees(facts, files);
        let word = |number: u32| facts.words.word(number);
        for (payer, place) in std::mem::take(&mut self.unknown) {
            let found = Found {
                mistake: Mistake::MissingFee,
                place,
                account: 0,
                what: None,
                resource: String::new(),
                payer,
                billed: Exact::ZERO,
                expected: Exact::ZERO,
                note: "what it pays for is left out of the replay".to_owned(),
                usage: None,
            };
            self.mistake(&found, self.first.unwrap_or_default(), facts, files);
        }
        let mut unused = [Exact::ZERO, Exact::ZERO];
        let mut commitments = Vec::new();
        for (payer, sums) in &self.commitments {
            let (what, account, end) = describe(*payer, facts);
            for (sum, one) in unused.iter_mut().zip(&sums.unused) {
                add(sum, one);
            }
            commitments.push(CommitmentTotals {
                id: word(*payer).to_owned(),
                what,
                account: word(account).to_owned(),
                end: (end < i64::MAX).then(|| time::format(end)),
                cost: dollars(&sums.cost),
                used: Pair {
                    billed: dollars(&sums.used[0]),
                    replayed: dollars(&sums.used[1]),
                },
                unused: Pair {
                    billed: dollars(&sums.unused[0]),
                    replayed: dollars(&sums.unused[1]),
                },
            });
        }
        commitments.sort_by(|a, b| a.id.cmp(&b.id));
        let mut accounts: Vec<UsageTotals> = self
            .accounts
            .iter()
            .map(|(account, sums)| sums.totals(word(*account)))
            .collect();
        accounts.sort_by(|a, b| a.name.cmp(&b.name));
        let mut notes = Vec::new();
        if self.long_periods > 0 {
            notes.push(format!(
                "{} period(s) of the report are longer than an hour: their lines are checked one by one, but not replayed; export the report by the hour",
                self.long_periods
            ));
        }
        let mut other = Exact::ZERO;
        facts.other.values().for_each(|cost| add(&mut other, cost));
        Report {
            from: self.first.map(time::format),
            to: self.last.map(time::format),
            currency: facts.currency.clone().unwrap_or_else(|| "USD".to_owned()),
            lines,
            hours: self.hours,
            long_periods: self.long_periods,
            line_hours: self.line_hours,
            total: self.total.totals("total"),
            unused: Pair {
                billed: dollars(&unused[0]),
                replayed: dollars(&unused[1]),
            },
            other: dollars(&other),
            accounts,
            days: self
                .days
                .iter()
                .map(|(day, sums)| {
                    let time = time::format(day.saturating_mul(DAY));
                    sums.totals(time.get(..10).unwrap_or(&time))
                })
                .collect(),
            families: self
                .families
                .iter()
                .map(|(name, sums)| sums.totals(name))
                .collect(),
            commitments,
            mistakes: self.mistakes.into_values().collect(),
            unexplained: self.unexplained,
            notes,
        }
    }

    /// The fees of Reserved Instances, which are by the month: what they say was unused against what the lines leave.
    fn reserved_fees(&mut self, facts: &Facts, files: &[String]) {
        for (arn, reserved) in &facts.reserved {
            let sums = self.commitments.entry(*arn).or_default();
            let per_hour = reserved.hourly.plus(&reserved.upfront_hour);
            let total = |of: &dyn Fn(&crate::facts::ReservedFee) -> Exact| -> Exact {
                let amounts: Vec<Exact> = reserved.fees.iter().map(of).collect();
                amounts.iter().sum()
            };
            let hours = total(&|fee| fee.amount.clone());
            sums.cost = rounded(&hours.times(&per_hour));
            sums.unused[1] = sums.cost.minus(&sums.used[1]);
            let left = hours.minus(&sums.hours);
            let left_cost = left.times(&per_hour);
            sums.unused[0] = rounded(&left_cost);
            if reserved.fees.iter().all(|fee| fee.unused_cost.is_some()) {
                sums.unused[0] = rounded(&total(&|fee| fee.unused_cost.clone().unwrap_or_default()));
            }
            if !reserved.fees.iter().all(|fee| fee.unused.is_some()) {
                continue;
            }
            let said = total(&|fee| fee.unused.clone().unwrap_or_default());
            // One rounding for each line that was added.
            let near = |a: &Exact, b: &Exact| {
                let difference = a.minus(b);
                let size = if difference.is_negative() {
                    difference.negated()
                } else {
                    difference
                };
                size <= Exact::fraction(1, 10_000).unwrap_or_default()
            };
            let said_cost = sums.unused[0].clone();
            let mistake = if !near(&said, &left) {
                Some(if said < left {
                    Mistake::MissingLine
                } else {
                    Mistake::WrongUnused
                })
            } else if !near(&said_cost, &left_cost) {
                Some(Mistake::WrongUnused)
            } else {
                None
            };
            if let Some(mistake) = mistake {
                let fee = reserved.fees.first();
                let found = Found {
                    mistake,
                    place: fee.map(|fee| fee.place).unwrap_or_default(),
                    account: reserved.account,
                    what: Some(reserved.what),
                    resource: String::new(),
                    payer: *arn,
                    billed: said_cost,
                    expected: rounded(&left_cost),
                    note: format!(
                        "the fee says {} instance-hours unused, its lines leave {}",
                        said.decimal(4),
                        left.decimal(4)
                    ),
                    usage: None,
                };
                let at = fee.map(|fee| fee.period.start).unwrap_or_default();
                self.mistake(&found, at, facts, files);
            }
        }
    }
}

fn place(place: Place, files: &[String]) -> Option<String> {
    let file = files.get(place.file as usize)?;
    (place.row > 0).then(|| format!("{file}:{}", place.row))
}

/// What a commitment is in words, whose it is, and when it ends.
fn describe(payer: u32, facts: &Facts) -> (String, u32, i64) {
    if let Some(one) = facts.reserved.get(&payer) {
        let thing = facts
            .things
            .thing(one.what)
            .map(ToString::to_string)
            .unwrap_or_default();
        let zone = match one.zone {
            0 => String::new(),
            zone => format!(", zone {}", facts.words.word(zone)),
        };
        return (
            format!("{} × Reserved Instance for {thing}{zone}", one.count),
            one.account,
            one.term.end,
        );
    }
    match facts.plans.get(&payer) {
        Some(plan) => {
            let hourly = plan.commitment.as_ref().map(|amount| amount.decimal(4));
            let what = match hourly {
                Some(hourly) => format!("{}, ${hourly}/h", plan.kind),
                None => plan.kind.to_string(),
            };
            (what, plan.account, plan.term.end)
        }
        None => ("unknown".to_owned(), 0, i64::MAX),
    }
}
