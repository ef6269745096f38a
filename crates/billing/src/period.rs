//! Hours added up: a day or a month.

use std::collections::BTreeMap;

use crate::allocator::Allocator;
use crate::bill::{Commitment, CommitmentBill, Totals};
use crate::exact::Exact;
use crate::organization::{HOUR, Interval, Priced};

/// What was used of one thing, and what it cost before amortization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTotal {
    /// Hours or units.
    pub amount: Exact,
    /// What of it no commitment paid.
    pub uncovered: Exact,
    /// Dollars as on the bill of the day: hourly fees of Reserved Instances for what they covered, rates of plans, list prices; no upfront fees.
    pub unblended: Exact,
}

impl UsageTotal {
    /// The blended rate: dollars per hour or unit over all accounts and payers.
    #[must_use]
    pub fn blended_rate(&self) -> Option<Exact> {
        self.unblended.over(&self.amount)
    }
}

/// The bill of several hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeriodBill<'b> {
    /// How many clock hours.
    pub hours: u64,
    /// What they come to.
    pub totals: Totals,
    /// What became of each commitment, by id.
    pub commitments: BTreeMap<&'b str, CommitmentBill<'b>>,
    /// On-demand usage by what it is, unused capacity reservations apart (`true`).
    pub usages: BTreeMap<(Priced, bool), UsageTotal>,
}

impl<'b> Allocator<'b> {
    /// Bills all clock hours that begin in an interval.
    #[must_use]
    pub fn period<'s: 'b>(&'s self, interval: Interval) -> PeriodBill<'s> {
        let mut period = PeriodBill::default();
        let mut hour = interval
            .start
            .saturating_add(HOUR - 1)
            .div_euclid(HOUR)
            .saturating_mul(HOUR);
        while hour < interval.end {
            self.add_hour(hour, &mut period);
            hour = hour.saturating_add(HOUR);
        }
        period
    }

    fn add_hour<'s>(&'s self, hour: i64, period: &mut PeriodBill<'s>)
    where
        's: 'b,
    {
        let bill = self.hour(hour);
        period.hours += 1;
        period.totals.add(&bill.totals());
        for one in bill.commitments() {
            let id = one.commitment.id();
            match period.commitments.get_mut(id) {
                Some(sum) => {
                    sum.capacity = sum.capacity.plus(&one.capacity);
                    sum.used = sum.used.plus(&one.used);
                    sum.recurring = sum.recurring.plus(&one.recurring);
                    sum.upfront = sum.upfront.plus(&one.upfront);
                    sum.cost = sum.cost.plus(&one.cost);
                }
                None => {
                    period.commitments.insert(id, one);
                }
            }
        }
        let mut by_class: BTreeMap<(usize, bool), UsageTotal> = BTreeMap::new();
        for one in bill.usages().filter(|one| one.own_price().is_none()) {
            let Some(usage) = self.usages.get(one.number) else {
                continue;
            };
            let sum = by_class.entry((usage.class, usage.is_unused())).or_default();
            sum.amount = sum.amount.plus(&one.amount());
            sum.uncovered = sum.uncovered.plus(&one.uncovered());
            sum.unblended = sum.unblended.plus(&one.uncovered_cost());
            for share in one.shares() {
                let paid = match share.commitment() {
                    Some(Commitment::Reserved(reserved)) => share.recurring(reserved),
                    _ => share.cost(),
                };
                sum.unblended = sum.unblended.plus(&paid);
            }
        }
        for ((class, is_unused), one) in by_class {
            let Some(class) = self.classes.get(class) else {
                continue;
            };
            let sum = period
                .usages
                .entry((class.priced.clone(), is_unused))
                .or_default();
            sum.amount = sum.amount.plus(&one.amount);
            sum.uncovered = sum.uncovered.plus(&one.uncovered);
            sum.unblended = sum.unblended.plus(&one.unblended);
        }
    }
}
