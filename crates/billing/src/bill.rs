//! What an hour comes to: who pays which part of what, and what is left of each commitment.

use std::fmt;
use std::ops::Range;

use crate::allocator::{Allocator, Moment, counted_size};
use crate::exact::Exact;
use crate::organization::{HOUR, Machine, PlanKind, Priced, ReservedInstances, SavingsPlan};
use crate::pass::Share;
use crate::sizes::size_quarters;
use crate::usage_bill::UsageBill;

/// What an hour has of one usage, in seconds; a unit of other usage counts as an hour.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) usage: usize,
    pub(crate) amount: Exact,
}

/// What an hour has of one commitment, and what is left of that: size-seconds, or money.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) capacity: Exact,
    pub(crate) left: Exact,
    /// How many seconds of the hour belong to its term.
    pub(crate) seconds: i128,
}

impl Held {
    pub(crate) fn new(capacity: Exact, seconds: i128) -> Self {
        Self {
            left: capacity.clone(),
            capacity,
            seconds,
        }
    }

    fn used(&self) -> Exact {
        self.capacity.minus(&self.left)
    }
}

/// The bill of one hour.
pub struct Bill<'b> {
    pub(crate) allocator: &'b Allocator<'b>,
    pub(crate) moment: Moment,
    lines: Vec<Line>,
    left: Vec<Exact>,
    shares: Vec<Share>,
    ranges: Vec<Range<usize>>,
    pub(crate) reserved: Vec<Held>,
    pub(crate) plans: Vec<Held>,
}

/// A commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commitment<'a> {
    /// Reserved Instances.
    Reserved(&'a ReservedInstances),
    /// A Savings Plan.
    Plan(&'a SavingsPlan),
}

impl<'a> Commitment<'a> {
    /// Its ARN or id.
    #[must_use]
    pub fn id(&self) -> &'a str {
        match self {
            Self::Reserved(one) => &one.id,
            Self::Plan(one) => &one.id,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn account(&self) -> &'a str {
        match self {
            Self::Reserved(one) => &one.account,
            Self::Plan(one) => &one.account,
        }
    }
}

/// What was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered<'a> {
    /// A running instance.
    Instance(&'a Machine),
    /// Unused capacity of a capacity reservation.
    UnusedReservation(&'a Machine),
    /// Other usage, by its type.
    Usage(&'a str),
}

/// What an hour comes to, in dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Everything at list prices; spot and Capacity Blocks at their own.
    pub list: Exact,
    /// What spot and Capacity Blocks cost.
    pub own_price: Exact,
    /// What nothing covers.
    pub on_demand: Exact,
    /// What commitments cost: amortized upfront and hourly fees, and the commitments of plans.
    pub commitments: Exact,
    /// The part of that for which nothing was used.
    pub unused: Exact,
}

impl Totals {
    /// What is paid.
    #[must_use]
    pub fn total(&self) -> Exact {
        self.own_price.plus(&self.on_demand).plus(&self.commitments)
    }

    /// What the usage comes to with its share of the commitments; the rest of [`Totals::total`] is unused.
    #[must_use]
    pub fn effective(&self) -> Exact {
        self.total().minus(&self.unused)
    }

    /// Adds those of another hour.
    pub fn add(&mut self, other: &Self) {
        self.list = self.list.plus(&other.list);
        self.own_price = self.own_price.plus(&other.own_price);
        self.on_demand = self.on_demand.plus(&other.on_demand);
        self.commitments = self.commitments.plus(&other.commitments);
        self.unused = self.unused.plus(&other.unused);
    }
}

/// What became of one commitment in an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitmentBill<'b> {
    /// Which one.
    pub commitment: Commitment<'b>,
    /// Instance-hours of Reserved Instances, or dollars of a plan.
    pub capacity: Exact,
    /// The part of [`CommitmentBill::capacity`] that was used.
    pub used: Exact,
    /// The hourly fees of Reserved Instances.
    pub recurring: Exact,
    /// The upfront fees of Reserved Instances, spread evenly over the term.
    pub upfront: Exact,
    /// What the commitment costs: both fees, or the dollars of the plan.
    pub cost: Exact,
}

impl CommitmentBill<'_> {
    /// The part of [`CommitmentBill::capacity`] that is left.
    #[must_use]
    pub fn left(&self) -> Exact {
        self.capacity.minus(&self.used)
    }

    /// The share that was used; nothing if there was nothing to use.
    #[must_use]
    pub fn utilization(&self) -> Option<Exact> {
        self.used.over(&self.capacity)
    }

    /// The part of an amount that belongs to what was used.
    #[must_use]
    pub fn used_part(&self, of: &Exact) -> Exact {
        self.utilization()
            .map(|share| share.times(of))
            .unwrap_or_default()
    }

    /// Dollars for which nothing was used.
    #[must_use]
    pub fn unused_cost(&self) -> Exact {
        self.cost.minus(&self.used_part(&self.cost))
    }

    /// Used instance-hours in AWS's normalized units, where the size is known.
    #[must_use]
    pub fn used_units(&self) -> Option<Exact> {
        match self.commitment {
            Commitment::Reserved(one) => units(&one.machine.instance_type, &self.used),
            Commitment::Plan(_) => None,
        }
    }

    /// All instance-hours in AWS's normalized units, where the size is known.
    #[must_use]
    pub fn units(&self) -> Option<Exact> {
        match self.commitment {
            Commitment::Reserved(one) => units(&one.machine.instance_type, &self.capacity),
            Commitment::Plan(_) => None,
        }
    }
}

pub(crate) fn units(instance_type: &str, hours: &Exact) -> Option<Exact> {
    Some(
        hours
            .times_whole(i128::from(size_quarters(instance_type)?))
            .over_whole(4),
    )
}

impl<'b> Bill<'b> {
    pub(crate) fn new(
        allocator: &'b Allocator<'b>,
        moment: Moment,
        lines: Vec<Line>,
        left: Vec<Exact>,
        shares: Vec<Share>,
        reserved: Vec<Held>,
        plans: Vec<Held>,
    ) -> Self {
        let mut ranges = Vec::with_capacity(lines.len());
        let mut at = 0;
        for line in 0..lines.len() {
            let of_line = shares
                .iter()
                .skip(at)
                .take_while(|share| share.line == line)
                .count();
            ranges.push(at..at + of_line);
            at += of_line;
        }
        Self {
            allocator,
            moment,
            lines,
            left,
            shares,
            ranges,
            reserved,
            plans,
        }
    }

    /// Which hour this is.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// Everything that was used, in the order of ids.
    pub fn usages(&self) -> impl Iterator<Item = UsageBill<'_>> {
        let parts = self.lines.iter().zip(&self.left).zip(&self.ranges);
        parts.filter_map(|((line, left), range)| {
            Some(UsageBill {
                allocator: self.allocator,
                number: line.usage,
                usage: self.allocator.usages.get(line.usage)?,
                amount: &line.amount,
                left,
                shares: self.shares.get(range.clone())?,
            })
        })
    }

    /// The usage with this id; the first one, if an instance was several things in the hour.
    #[must_use]
    pub fn usage(&self, id: &str) -> Option<UsageBill<'_>> {
        self.usages().find(|usage| usage.id() == id)
    }

    /// What became of each commitment whose term the hour belongs to: Reserved Instances, then plans, by (end, id).
    pub fn commitments(&self) -> impl Iterator<Item = CommitmentBill<'b>> {
        let allocator = self.allocator;
        let hour = i128::from(HOUR);
        let reserved = allocator
            .reserved
            .iter()
            .zip(&self.reserved)
            .map(move |(one, held)| {
                let own = i128::from(counted_size(one)) * hour;
                let capacity = held.capacity.over_whole(own);
                let recurring = capacity.times(&one.hourly);
                let upfront = upfront_per_hour(one).times(&capacity);
                CommitmentBill {
                    commitment: Commitment::Reserved(one),
                    used: held.used().over_whole(own),
                    cost: recurring.plus(&upfront),
                    capacity,
                    recurring,
                    upfront,
                }
            });
        let plans = allocator.plans.iter().zip(&self.plans).map(move |(plan, held)| {
            let capacity = held.capacity.over_whole(allocator.scale);
            CommitmentBill {
                commitment: Commitment::Plan(plan),
                used: held.used().over_whole(allocator.scale),
                cost: capacity.clone(),
                capacity,
                recurring: Exact::ZERO,
                upfront: Exact::ZERO,
            }
        });
        let seconds = self.reserved.iter().chain(&self.plans).map(|held| held.seconds);
        let all = reserved.chain(plans).zip(seconds);
        all.filter(|(_, seconds)| *seconds > 0).map(|(bill, _)| bill)
    }

    /// What became of one commitment.
    #[must_use]
    pub fn commitment(&self, id: &str) -> Option<CommitmentBill<'b>> {
        self.commitments().find(|one| one.commitment.id() == id)
    }

    /// What the hour comes to.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (mut list, mut own, mut open) = (Exact::ZERO, Exact::ZERO, Exact::ZERO);
        for usage in self.usages() {
            if let Some(price) = usage.own_price() {
                own = own.plus(&usage.amount.times(price));
            } else if let Some(price) = usage.price() {
                list = list.plus(&usage.amount.times(price));
                if !usage.left.is_zero() {
                    open = open.plus(&usage.left.times(price));
                }
            }
        }
        let mut totals = Totals {
            own_price: own.over_whole(i128::from(HOUR)),
            on_demand: open.over_whole(self.allocator.scale),
            ..Totals::default()
        };
        totals.list = list.over_whole(self.allocator.scale).plus(&totals.own_price);
        for one in self.commitments() {
            totals.unused = totals.unused.plus(&one.unused_cost());
            totals.commitments = totals.commitments.plus(&one.cost);
        }
        totals
    }
}

/// The upfront fee of one Reserved Instance, for each hour of its term.
pub(crate) fn upfront_per_hour(reserved: &ReservedInstances) -> Exact {
    let seconds = reserved.term.end.saturating_sub(reserved.term.start);
    let hours = Exact::from(seconds).over_whole(i128::from(HOUR));
    reserved.upfront.over(&hours).unwrap_or_default()
}

impl fmt::Display for Priced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(machine) => write!(
                f,
                "{} in {} ({}, {:?} tenancy)",
                machine.instance_type, machine.region, machine.platform, machine.tenancy
            ),
            Self::Usage { region, usage_type } => write!(f, "{usage_type} in {region}"),
        }
    }
}

impl fmt::Display for PlanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ec2Instance { family, region } => {
                write!(f, "EC2 Instance Savings Plan for {family} in {region}")
            }
            Self::Compute => f.write_str("Compute Savings Plan"),
        }
    }
}
