//! What a whole report says about commitments, prices and rates. Bounded by how many of these there are, not by how long the report is.
//!
//! Prices and rates are put to the vote: of several values for the same thing, the one that most lines have counts, and lines with another
//! one are told apart later.

use std::collections::{BTreeMap, HashMap};

use veneer_billing::{Exact, HOUR, Interval, PlanKind, Priced};

use crate::line::Place;

/// Words as numbers; 0 is the empty word.
#[derive(Debug)]
pub(crate) struct Words {
    numbers: HashMap<String, u32>,
    words: Vec<String>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            numbers: HashMap::from([(String::new(), 0)]),
            words: vec![String::new()],
        }
    }
}

impl Words {
    pub(crate) fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        self.numbers.insert(word.to_owned(), number);
        self.words.push(word.to_owned());
        number
    }

    pub(crate) fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or("", String::as_str)
    }
}

/// Machines and other usage as numbers.
#[derive(Debug, Default)]
pub(crate) struct Things {
    numbers: HashMap<Priced, u32>,
    things: Vec<Priced>,
}

impl Things {
    pub(crate) fn number(&mut self, thing: Priced) -> u32 {
        if let Some(number) = self.numbers.get(&thing) {
            return *number;
        }
        let number = u32::try_from(self.things.len()).unwrap_or(u32::MAX);
        self.things.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }

    pub(crate) fn thing(&self, number: u32) -> Option<&Priced> {
        self.things.get(number as usize)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Priced)> {
        (0..).zip(&self.things)
    }
}

/// How many lines say which value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Votes(Vec<(String, u64)>);

impl Votes {
    /// More different values than this are not told apart: whatever they are, they are not one price.
    const MOST: usize = 256;

    pub(crate) fn add(&mut self, value: &str) {
        let value = shortest(value);
        if let Some((_, count)) = self.0.iter_mut().find(|(other, _)| other == value) {
            *count += 1;
        } else if self.0.len() < Self::MOST {
            self.0.push((value.to_owned(), 1));
        }
    }

    /// The value that most lines have; the least one, if several do.
    pub(crate) fn winner(&self) -> Option<Exact> {
        let mut best: Option<(u64, Exact)> = None;
        for (text, count) in &self.0 {
            let Some(value) = Exact::parse(text) else { continue };
            let is_better = match &best {
                None => true,
                Some((most, least)) => count > most || (count == most && value < *least),
            };
            if is_better {
                best = Some((*count, value));
            }
        }
        best.map(|(_, value)| value)
    }
}

/// A decimal number without zeros that say nothing.
fn shortest(text: &str) -> &str {
    match text.contains('.') && !text.contains(['e', 'E']) {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// The fee of Reserved Instances for a month, and what it says was unused.
#[derive(Clone, Debug)]
pub(crate) struct ReservedFee {
    pub(crate) place: Place,
    pub(crate) period: Interval,
    /// Instance-hours.
    pub(crate) amount: Exact,
    pub(crate) unused: Option<Exact>,
    pub(crate) unused_cost: Option<Exact>,
}

/// Reserved Instances as their fees describe them.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) account: u32,
    pub(crate) what: u32,
    pub(crate) zone: u32,
    pub(crate) count: u32,
    pub(crate) term: Interval,
    pub(crate) hourly: Exact,
    /// The part of the upfront fee that belongs to an hour.
    pub(crate) upfront_hour: Exact,
    /// What hours say of [`Reserved::upfront_hour`], where fees do not (FOCUS).
    pub(crate) upfront_votes: Votes,
    pub(crate) fees: Vec<ReservedFee>,
}

/// A Savings Plan as its fees describe it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) account: u32,
    pub(crate) kind: PlanKind,
    pub(crate) term: Interval,
    pub(crate) card: u32,
    pub(crate) committed: Votes,
    /// Whether the report has fees of it by the hour.
    pub(crate) has_fees: bool,
    /// The winner of [`Plan::committed`], when everything has been read.
    pub(crate) commitment: Option<Exact>,
}

/// Everything that a report says besides its lines.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) words: Words,
    pub(crate) things: Things,
    pub(crate) reserved: BTreeMap<u32, Reserved>,
    pub(crate) plans: BTreeMap<u32, Plan>,
    price_votes: HashMap<u32, Votes>,
    rate_votes: HashMap<(u32, u32), Votes>,
    /// Dollars of commitments by hour, where a report does not say what they come to (FOCUS).
    spend: BTreeMap<(u32, i64), Exact>,
    prices: HashMap<u32, Exact>,
    rates: HashMap<(u32, u32), Exact>,
    /// What no commitment can cover, by account.
    pub(crate) other: BTreeMap<u32, Exact>,
    pub(crate) currency: Option<String>,
    /// Whether the report takes covered usage off in lines of its own.
    pub(crate) has_negations: bool,
}

impl Facts {
    pub(crate) fn vote_price(&mut self, what: u32, rate: &str, cost: &str, amount: &str) {
        if let Some(rate) = rate_or_quotient(rate, cost, amount) {
            self.price_votes.entry(what).or_default().add(&rate);
        }
    }

    pub(crate) fn vote_rate(&mut self, card: u32, what: u32, rate: &str, cost: &str, amount: &str) {
        if let Some(rate) = rate_or_quotient(rate, cost, amount) {
            self.rate_votes.entry((card, what)).or_default().add(&rate);
        }
    }

    pub(crate) fn add_spend(&mut self, payer: u32, at: i64, cost: &str) {
        let sum = self.spend.entry((payer, at.div_euclid(HOUR))).or_default();
        *sum = sum.plus(&Exact::parse(cost).unwrap_or_default());
    }

    pub(crate) fn add_other(&mut self, account: u32, cost: &str) {
        let sum = self.other.entry(account).or_default();
        *sum = sum.plus(&Exact::parse(cost).unwrap_or_default());
    }

    /// Counts the votes.
    pub(crate) fn close(&mut self) {
        for ((payer, hour), cost) in std::mem::take(&mut self.spend) {
            let hour = Interval::hour(hour.saturating_mul(HOUR));
            if let Some(plan) = self.plans.get_mut(&payer) {
                let seconds = plan.term.overlap(&hour);
                if seconds > 0 {
                    let full = cost.times_whole(i128::from(HOUR)).over_whole(i128::from(seconds));
                    plan.committed.add(&full.decimal(6));
                }
            }
            if let Some(reserved) = self.reserved.get_mut(&payer) {
                let hours = Exact::from(reserved.term.overlap(&hour)).over_whole(i128::from(HOUR));
                let upfront = cost
                    .over(&hours.times_whole(i128::from(reserved.count)))
                    .map(|cost| cost.minus(&reserved.hourly));
                if let Some(upfront) = upfront {
                    reserved.upfront_votes.add(&upfront.decimal(8));
                }
            }
        }
        for reserved in self.reserved.values_mut() {
            if let Some(upfront) = reserved.upfront_votes.winner() {
                reserved.upfront_hour = upfront;
            }
        }
        for plan in self.plans.values_mut() {
            plan.commitment = plan.committed.winner();
        }
        let winner = |(key, votes): (&u32, &Votes)| Some((*key, votes.winner()?));
        self.prices = self.price_votes.iter().filter_map(winner).collect();
        let winner = |(key, votes): (&(u32, u32), &Votes)| Some((*key, votes.winner()?));
        self.rates = self.rate_votes.iter().filter_map(winner).collect();
    }

    /// The list price of something.
    pub(crate) fn price(&self, what: u32) -> Option<&Exact> {
        self.prices.get(&what)
    }

    /// What a plan pays for a unit.
    pub(crate) fn rate(&self, card: u32, what: u32) -> Option<&Exact> {
        self.rates.get(&(card, what))
    }
}

/// A rate as it is written, or what a cost comes to for each unit.
fn rate_or_quotient(rate: &str, cost: &str, amount: &str) -> Option<String> {
    if !rate.is_empty() {
        return Some(rate.to_owned());
    }
    let quotient = Exact::parse(cost)?.over(&Exact::parse(amount)?)?;
    Some(quotient.decimal(9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_lines_say_what_a_price_is() {
        let mut votes = Votes::default();
        for value in ["0.096", "0.0960000000", "0.192", "0.096"] {
            votes.add(value);
        }
        assert_eq!(votes.winner(), Exact::parse("0.096"));
        assert_eq!(shortest("10"), "10");
        assert_eq!(shortest("10.00"), "10");
        assert_eq!(Votes::default().winner(), None);
    }
}
