//! Lines as they are read: what they say of commitments, prices and rates is noted, and the line waits for its hour.

use std::io;

use veneer_billing::{Exact, HOUR, Interval, PlanKind, Priced};

use crate::facts::{Facts, Plan, Reserved, ReservedFee};
use crate::line::{LineKind, Number, RawLine};
use crate::meter::Meter;
use crate::rows::TIER;
use crate::store::HourStore;
use crate::time;

/// What a line says of its commitment besides its own numbers; empty where it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms<'a> {
    pub(crate) start: &'a str,
    pub(crate) end: &'a str,
    pub(crate) count: &'a str,
    /// The zone of zonal Reserved Instances.
    pub(crate) zone: &'a str,
    pub(crate) hourly: &'a str,
    /// The upfront fee of all of them for the time of the line, or in all.
    pub(crate) upfront_period: &'a str,
    pub(crate) upfront_value: &'a str,
    pub(crate) unused: &'a str,
    pub(crate) unused_recurring: &'a str,
    pub(crate) unused_upfront: &'a str,
    /// Of plans.
    pub(crate) is_plan: bool,
    /// FOCUS does not say what commitments come to: their parts are added up.
    pub(crate) is_focus: bool,
    pub(crate) is_ec2_plan: bool,
    pub(crate) family: &'a str,
    pub(crate) region: &'a str,
    /// What plans with the same rates have in common.
    pub(crate) term: &'a str,
    pub(crate) option: &'a str,
}

/// Reads lines into facts and a store.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pub(crate) facts: Facts,
    pub(crate) lines: u64,
    record: String,
}

impl Intake {
    pub(crate) fn take(
        &mut self,
        line: &RawLine<'_>,
        terms: &Terms<'_>,
        store: &mut impl HourStore,
    ) -> io::Result<()> {
        self.lines += 1;
        let number = |which| line.number(which);
        let (amount, list_rate) = (number(Number::Amount), number(Number::ListRate));
        let mut list_cost = number(Number::ListCost);
        if line.kind == LineKind::Usage && list_rate.is_empty() && list_cost.is_empty() {
            list_cost = number(Number::Cost);
        }
        let has_list_price = matches!(
            line.meter,
            Meter::Instance | Meter::UnusedReservation | Meter::Other
        );
        match line.kind {
            LineKind::Upfront => {
                if terms.is_ec2_plan {
                    self.plan(line, terms);
                }
                return Ok(());
            }
            LineKind::Other => {
                self.facts.add_other(line.account, number(Number::Cost));
                return Ok(());
            }
            LineKind::Usage if line.meter == Meter::None => {
                self.facts.add_other(line.account, number(Number::Cost));
                return Ok(());
            }
            LineKind::ReservedFee => {
                self.reserved_fee(line, terms);
                return Ok(());
            }
            LineKind::Usage | LineKind::DiscountedUsage if has_list_price => {
                self.facts.vote_price(line.what, list_rate, list_cost, amount);
            }
            LineKind::CoveredUsage => {
                if has_list_price {
                    self.facts.vote_price(line.what, list_rate, list_cost, amount);
                    let card = self.plan(line, terms);
                    let (rate, cost) = (number(Number::Rate), number(Number::Effective));
                    self.facts.vote_rate(card, line.what, rate, cost, amount);
                } else {
                    self.plan(line, terms);
                }
            }
            LineKind::PlanFee => {
                self.plan(line, terms);
                self.committed(line);
            }
            LineKind::Unused => {
                if !self.facts.reserved.contains_key(&line.payer) && terms.is_plan {
                    self.plan(line, terms);
                }
            }
            LineKind::Negation => self.facts.has_negations = true,
            LineKind::Usage | LineKind::DiscountedUsage => {}
        }
        if terms.is_focus && line.payer != 0 {
            self.facts
                .add_spend(line.payer, line.start, number(Number::Effective));
        }
        let slot = if line.end.saturating_sub(line.start) > HOUR {
            Interval::new(line.start, line.end)
        } else {
            Interval::hour(line.start.div_euclid(HOUR).saturating_mul(HOUR))
        };
        self.record.clear();
        line.encode(&mut self.record);
        store.append(slot, &self.record)
    }

    fn plan(&mut self, line: &RawLine<'_>, terms: &Terms<'_>) -> u32 {
        let is_fee = line.kind == LineKind::PlanFee;
        if let Some(plan) = self.facts.plans.get_mut(&line.payer) {
            if is_fee {
                plan.account = line.account;
            }
            // FOCUS says what a plan is for where it is bought or unused, not where it is used.
            if terms.is_ec2_plan && plan.kind == PlanKind::Compute && line.kind != LineKind::CoveredUsage {
                plan.kind = PlanKind::Ec2Instance {
                    family: terms.family.to_owned(),
                    region: terms.region.to_owned(),
                };
            }
            return plan.card;
        }
        let arn = self.facts.words.word(line.payer).to_owned();
        let card = match terms.term.is_empty() && terms.option.is_empty() {
            true => line.payer,
            false => {
                let kind = if terms.is_ec2_plan { "EC2" } else { "Compute" };
                let name = format!("{kind} {} {}", terms.term, terms.option);
                self.facts.words.number(&name)
            }
        };
        let account = match (is_fee, owner(&arn)) {
            (false, Some(owner)) => self.facts.words.number(owner),
            _ => line.account,
        };
        let plan = Plan {
            account,
            kind: match terms.is_ec2_plan {
                true => PlanKind::Ec2Instance {
                    family: terms.family.to_owned(),
                    region: terms.region.to_owned(),
                },
                false => PlanKind::Compute,
            },
            term: Interval::new(
                time::parse(terms.start).unwrap_or(i64::MIN),
                time::parse(terms.end).unwrap_or(i64::MAX),
            ),
            card,
            committed: crate::facts::Votes::default(),
            has_fees: false,
            commitment: None,
        };
        self.facts.plans.insert(line.payer, plan);
        card
    }

    /// What a plan has in a full hour, by one of its fees.
    fn committed(&mut self, line: &RawLine<'_>) {
        let Some(plan) = self.facts.plans.get_mut(&line.payer) else {
            return;
        };
        plan.has_fees = true;
        let period = Interval::new(line.start, line.end);
        let seconds = plan.term.overlap(&period);
        let committed = line.number(Number::Committed);
        if seconds == HOUR {
            plan.committed.add(committed);
        } else if let Some(total) = Exact::parse(committed)
            && seconds > 0
        {
            let hour = total
                .times_whole(i128::from(HOUR))
                .over_whole(i128::from(seconds));
            plan.committed.add(&hour.decimal(8));
        }
    }

    fn reserved_fee(&mut self, line: &RawLine<'_>, terms: &Terms<'_>) {
        let parse = |text: &str| Exact::parse(text);
        let period = Interval::new(line.start, line.end);
        let amount = parse(line.number(Number::Amount)).unwrap_or_default();
        let cost = parse(line.number(Number::Cost)).unwrap_or_default();
        let unused_cost = match (parse(terms.unused_recurring), parse(terms.unused_upfront)) {
            (None, None) => None,
            (recurring, upfront) => Some(recurring.unwrap_or_default().plus(&upfront.unwrap_or_default())),
        };
        let fee = ReservedFee {
            place: line.place,
            period,
            unused: parse(terms.unused),
            unused_cost,
            amount: amount.clone(),
        };
        if let Some(reserved) = self.facts.reserved.get_mut(&line.payer) {
            reserved.fees.push(fee);
            return;
        }
        let term = Interval::new(
            time::parse(terms.start).unwrap_or(period.start),
            time::parse(terms.end).unwrap_or(period.end),
        );
        let hours = |interval: &Interval| {
            Exact::from(interval.end.saturating_sub(interval.start)).over_whole(i128::from(HOUR))
        };
        let count = match terms.count.parse::<u32>() {
            Ok(count) => count,
            Err(_) => {
                let count = amount.over(&hours(&term.common(&period))).unwrap_or_default();
                count.decimal(0).parse().unwrap_or(0)
            }
        };
        let upfront_hour = match (parse(terms.upfront_period), parse(terms.upfront_value)) {
            (Some(upfront), _) => upfront.over(&amount),
            (None, Some(upfront)) => upfront.over(&hours(&term).times_whole(i128::from(count.max(1)))),
            (None, None) => None,
        };
        let reserved = Reserved {
            account: line.account,
            what: line.what,
            zone: self.facts.words.number(terms.zone),
            count,
            term,
            hourly: match parse(terms.hourly) {
                Some(hourly) => hourly,
                None => cost.over(&amount).unwrap_or_default(),
            },
            upfront_hour: upfront_hour.unwrap_or_default(),
            upfront_votes: crate::facts::Votes::default(),
            fees: vec![fee],
        };
        self.facts.reserved.insert(line.payer, reserved);
    }
}

/// The account in an ARN.
fn owner(arn: &str) -> Option<&str> {
    arn.split(':').nth(4).filter(|account| !account.is_empty())
}

/// The family of a priced machine, or the type of other usage: by which totals are made.
pub(crate) fn family(what: &Priced) -> &str {
    match what {
        Priced::Machine(machine) => veneer_billing::family_of(&machine.instance_type),
        Priced::Usage { usage_type, .. } => usage_type.split(TIER).next().unwrap_or_default(),
    }
}
