//! What a line can be asked on its own: may this commitment pay for this at all, with this factor, rate and cost.

use veneer_billing::{
    Exact, HOUR, Interval, Machine, PlanKind, Platform, Priced, Sharing, Tenancy, exchange, family_of,
    size_quarters,
};

use crate::facts::{Facts, Plan, Reserved};
use crate::line::{Line, LineKind, Number};
use crate::meter::Meter;
use crate::mistake::Mistake;
use crate::rows::TIER;

/// What is wrong with a line, and what it should cost.
pub(crate) struct Wrong {
    pub(crate) mistake: Mistake,
    pub(crate) expected: Exact,
    pub(crate) note: String,
}

/// Differences up to this are rounding: a millionth of a dollar, or of an hour.
pub(crate) fn is_near(a: &Exact, b: &Exact) -> bool {
    let difference = a.minus(b);
    let size = if difference.is_negative() {
        difference.negated()
    } else {
        difference
    };
    size <= tolerance()
}

pub(crate) fn tolerance() -> Exact {
    Exact::fraction(1, 1_000_000).unwrap_or_default()
}

/// Asks a line of usage everything that can be asked.
pub(crate) fn line(line: &Line, facts: &Facts, sharing: &Sharing) -> Option<Wrong> {
    if let Some(reserved) = facts.reserved.get(&line.payer) {
        return reserved_line(line, reserved, facts, sharing);
    }
    if let Some(plan) = facts.plans.get(&line.payer) {
        return plan_line(line, plan, facts, sharing);
    }
    if line.kind != LineKind::Usage {
        return None;
    }
    if !matches!(
        line.meter,
        Meter::Instance | Meter::UnusedReservation | Meter::Other
    ) {
        return None;
    }
    let price = facts.price(line.what)?;
    let (amount, cost) = (line.or_zero(Number::Amount), line.or_zero(Number::Cost));
    let expected = price.times(&amount);
    if is_near(&cost, &expected) {
        return None;
    }
    let other = elsewhere(facts, line.what, |what| {
        facts
            .price(what)
            .is_some_and(|price| is_near(&cost, &price.times(&amount)))
    });
    Some(match other {
        Some(region) => Wrong {
            mistake: Mistake::PriceOfOtherRegion,
            expected,
            note: format!("the price is that of {region}"),
        },
        None => Wrong {
            mistake: Mistake::WrongPrice,
            expected,
            note: format!("other lines have ${} an hour or unit", price.decimal(10)),
        },
    })
}

/// What the line would cost on demand, or at its own price.
fn on_demand(line: &Line, facts: &Facts) -> Exact {
    match facts.price(line.what) {
        Some(price) if line.meter != Meter::Spot => price.times(&line.or_zero(Number::Amount)),
        _ => line.or_zero(Number::Cost),
    }
}

/// The region in which the same thing satisfies something.
fn elsewhere(facts: &Facts, what: u32, satisfies: impl Fn(u32) -> bool) -> Option<String> {
    let here = facts.things.thing(what)?;
    facts.things.all().find_map(|(number, other)| {
        let region = match (here, other) {
            (Priced::Machine(here), Priced::Machine(other)) => {
                let is_same = here.instance_type == other.instance_type
                    && here.platform == other.platform
                    && here.tenancy == other.tenancy
                    && here.region != other.region;
                is_same.then_some(&other.region)
            }
            (
                Priced::Usage { usage_type, region },
                Priced::Usage {
                    usage_type: other_type,
                    region: other_region,
                },
            ) => {
                let name = |text: &str| text.split(TIER).next().map(ToOwned::to_owned);
                (name(usage_type) == name(other_type) && region != other_region).then_some(other_region)
            }
            _ => None,
        }?;
        satisfies(number).then(|| region.clone())
    })
}

fn is_in_term(line: &Line, term: &Interval) -> bool {
    let end = line.end.max(line.start + HOUR);
    term.overlap(&Interval::new(line.start, end)) > 0
}

/// Whether a regional Reserved Instance for one machine is size-flexible for another (rule 3).
fn is_flexible(reserved: &Machine, used: &Machine) -> bool {
    reserved.platform == Platform::Linux
        && reserved.tenancy == Tenancy::Default
        && exchange(&reserved.instance_type, &used.instance_type).is_some()
        && veneer_billing::is_size_flexible(family_of(&reserved.instance_type))
}

/// How many hours of the Reserved Instance's own size an amount takes.
pub(crate) fn reserved_hours(reserved: &Reserved, facts: &Facts, line: &Line) -> Exact {
    let amount = line.or_zero(Number::Amount);
    let (Some(Priced::Machine(own)), Some(Priced::Machine(used))) =
        (facts.things.thing(reserved.what), facts.things.thing(line.what))
    else {
        return amount;
    };
    match exchange(&own.instance_type, &used.instance_type) {
        Some((own, used)) if reserved.zone == 0 => {
            amount.times_whole(i128::from(used)).over_whole(i128::from(own))
        }
        _ => amount,
    }
}

fn reserved_line(line: &Line, reserved: &Reserved, facts: &Facts, sharing: &Sharing) -> Option<Wrong> {
    let on_demand = on_demand(line, facts);
    let wrong = |mistake, note: String| {
        Some(Wrong {
            mistake,
            expected: on_demand.clone(),
            note,
        })
    };
    if line.meter == Meter::Spot {
        return wrong(Mistake::ReservedOnSpot, String::new());
    }
    let (Some(Priced::Machine(own)), Some(thing)) =
        (facts.things.thing(reserved.what), facts.things.thing(line.what))
    else {
        return None;
    };
    let Priced::Machine(used) = thing else {
        return wrong(Mistake::OtherFamily, format!("{thing} is no instance"));
    };
    let of = |own: &dyn std::fmt::Display, used: &dyn std::fmt::Display| {
        format!("the Reserved Instance is for {own}, the line is {used}")
    };
    if own.region != used.region {
        return wrong(Mistake::OtherRegion, of(&own.region, &used.region));
    }
    if family_of(&own.instance_type) != family_of(&used.instance_type) {
        return wrong(Mistake::OtherFamily, of(&own.instance_type, &used.instance_type));
    }
    if !used.platform.has_reserved_instances() {
        return wrong(Mistake::NoSuchReserved, of(&own.platform, &used.platform));
    }
    if own.platform != used.platform {
        return wrong(Mistake::OtherPlatform, of(&own.platform, &used.platform));
    }
    if own.tenancy != used.tenancy {
        let name = |tenancy: Tenancy| format!("{tenancy:?} tenancy").to_lowercase();
        return wrong(Mistake::OtherTenancy, of(&name(own.tenancy), &name(used.tenancy)));
    }
    if reserved.zone != 0 {
        if line.meter == Meter::UnusedReservation {
            return wrong(Mistake::ZonalOnUnused, String::new());
        }
        if reserved.zone != line.zone {
            let word = |number| facts.words.word(number).to_owned();
            return wrong(Mistake::OtherZone, of(&word(reserved.zone), &word(line.zone)));
        }
    }
    let is_same_size = own.instance_type == used.instance_type;
    if !is_same_size && (reserved.zone != 0 || !is_flexible(own, used)) {
        return wrong(Mistake::OtherSize, of(&own.instance_type, &used.instance_type));
    }
    if let Some(wrong) = common(line, &reserved.term, reserved.account, facts, sharing, &on_demand) {
        return Some(wrong);
    }
    let per_hour = reserved.hourly.plus(&reserved.upfront_hour);
    let expected = reserved_hours(reserved, facts, line).times(&per_hour);
    if reserved.zone == 0
        && is_flexible(own, used)
        && let Some(factor) = line.number(Number::Factor).filter(|factor| !factor.is_zero())
        && let Some(quarters) = size_quarters(&used.instance_type)
    {
        let right = Exact::whole(i128::from(quarters)).over_whole(4);
        if *factor != right {
            return Some(Wrong {
                mistake: Mistake::WrongFactor,
                expected,
                note: format!(
                    "the factor is {}, that of {} is {}",
                    factor.decimal(2),
                    used.instance_type,
                    right.decimal(2)
                ),
            });
        }
    }
    (!is_near(&line.effective(), &expected)).then(|| Wrong {
        mistake: Mistake::WrongEffectiveCost,
        note: format!(
            "the fees come to ${} for an hour of the Reserved Instance",
            per_hour.decimal(10)
        ),
        expected,
    })
}

/// Term and sharing, which Reserved Instances and plans have in common.
fn common(
    line: &Line,
    term: &Interval,
    owner: u32,
    facts: &Facts,
    sharing: &Sharing,
    on_demand: &Exact,
) -> Option<Wrong> {
    if !is_in_term(line, term) {
        let when = if line.start < term.start {
            format!("it starts at {}", crate::time::format(term.start))
        } else {
            format!("it ended at {}", crate::time::format(term.end))
        };
        return Some(Wrong {
            mistake: Mistake::OutsideTerm,
            expected: on_demand.clone(),
            note: when,
        });
    }
    let (owner, user) = (facts.words.word(owner), facts.words.word(line.account));
    if sharing.reach(owner, user).is_none() {
        return Some(Wrong {
            mistake: Mistake::OutOfReach,
            expected: on_demand.clone(),
            note: format!("it belongs to {owner}, the line to {user}"),
        });
    }
    None
}

fn plan_line(line: &Line, plan: &Plan, facts: &Facts, sharing: &Sharing) -> Option<Wrong> {
    let on_demand = on_demand(line, facts);
    let wrong = |mistake, note: String| {
        Some(Wrong {
            mistake,
            expected: on_demand.clone(),
            note,
        })
    };
    if line.meter == Meter::Spot {
        return wrong(Mistake::PlanOnSpot, String::new());
    }
    if let PlanKind::Ec2Instance { family, region } = &plan.kind {
        let Some(Priced::Machine(used)) = facts.things.thing(line.what) else {
            return wrong(
                Mistake::OtherFamily,
                format!("the plan is for {family}, the line is no instance"),
            );
        };
        if used.region != *region {
            let note = format!("the plan is for {region}, the line is {}", used.region);
            return wrong(Mistake::OtherRegion, note);
        }
        if family_of(&used.instance_type) != family {
            let note = format!("the plan is for {family}, the line is {}", used.instance_type);
            return wrong(Mistake::OtherFamily, note);
        }
    }
    if let Some(wrong) = common(line, &plan.term, plan.account, facts, sharing, &on_demand) {
        return Some(wrong);
    }
    let rate = facts.rate(plan.card, line.what)?;
    let amount = line.or_zero(Number::Amount);
    let expected = rate.times(&amount);
    let is_other_rate = match line.number(Number::Rate) {
        Some(own) => !is_near(&own.times(&amount), &expected),
        None => !is_near(&line.effective(), &expected),
    };
    if is_other_rate {
        let own = line.number(Number::Rate).cloned();
        let own = own.or_else(|| line.effective().over(&amount)).unwrap_or_default();
        let other = elsewhere(facts, line.what, |what| {
            facts
                .rate(plan.card, what)
                .is_some_and(|rate| is_near(&rate.times(&amount), &own.times(&amount)))
        });
        return Some(match other {
            Some(region) => Wrong {
                mistake: Mistake::RateOfOtherRegion,
                expected,
                note: format!("the rate ${} is that of {region}", own.decimal(10)),
            },
            None => Wrong {
                mistake: Mistake::WrongRate,
                expected,
                note: format!(
                    "the rate is ${}, other lines have ${}",
                    own.decimal(10),
                    rate.decimal(10)
                ),
            },
        });
    }
    (!is_near(&line.effective(), &expected)).then(|| Wrong {
        mistake: Mistake::WrongEffectiveCost,
        note: format!("the rate is ${}", rate.decimal(10)),
        expected,
    })
}
