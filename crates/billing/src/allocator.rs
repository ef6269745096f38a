//! An organization made ready for billing: sorted, merged, with prices as whole numbers.
//!
//! Everything that does not depend on the hour is worked out once: which usage is the same, which Reserved Instances compete for
//! it, and the order of all pairs of a plan and a price (rules 9 and 15). Order of input is gone after this.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::bill::Bill;
use crate::exact::Exact;
use crate::organization::{
    CapacityReservation, HOUR, Instance, Interval, Machine, Organization, Priced, Purchase,
    ReservedInstances, SavingsPlan, UsageLine,
};
use crate::platform::{Platform, Tenancy};
use crate::prepare::{buckets, money_unit, plans, pools, reserved, sources};
use crate::problem::Problem;
use crate::sharing::Reach;
use crate::sizes::{family_of, is_size_flexible, size_quarters};

/// Which hour is billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The clock hour that begins then.
    Hour(i64),
    /// An hour in which everything stays as it is at this second.
    Now(i64),
}

impl Moment {
    /// The seconds of the hour that belong to an interval.
    pub(crate) fn seconds(self, interval: &Interval) -> i64 {
        match self {
            Self::Hour(start) => Interval::hour(start).overlap(interval),
            Self::Now(at) if interval.contains(at) => HOUR,
            Self::Now(_) => 0,
        }
    }

    fn clock_hour(self) -> i64 {
        match self {
            Self::Hour(at) | Self::Now(at) => at.div_euclid(HOUR),
        }
    }
}

/// Where usage comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source<'a> {
    Instance {
        first: &'a Instance,
        running: Vec<Interval>,
    },
    Unused {
        of: &'a CapacityReservation,
        by: Vec<usize>,
    },
    Line {
        first: &'a UsageLine,
        by_hour: BTreeMap<i64, Exact>,
        /// Whether these are unused hours of a capacity reservation.
        is_unused: bool,
    },
}

/// One thing that is paid for. Its place in the list is its place in the order of ids.
pub(crate) struct Usage<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) account: usize,
    pub(crate) class: usize,
    pub(crate) zonal_pool: Option<usize>,
    pub(crate) is_eligible: bool,
}

impl<'a> Usage<'a> {
    pub(crate) fn id(&self) -> &'a str {
        match &self.source {
            Source::Instance { first, .. } => &first.id,
            Source::Unused { of, .. } => &of.id,
            Source::Line { first, .. } => &first.id,
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        match self.source {
            Source::Instance { .. } => false,
            Source::Unused { .. } => true,
            Source::Line { is_unused, .. } => is_unused,
        }
    }
}

/// Usage that has one price.
pub(crate) struct Class<'a> {
    pub(crate) machine: Option<&'a Machine>,
    pub(crate) priced: Priced,
    /// Money for a second, as a whole number where possible ([`Allocator::scale`]). A unit of other usage counts as an hour.
    pub(crate) price: Option<Exact>,
    pub(crate) regional_pool: Option<usize>,
    /// Quarters of the normalization factor, where Reserved Instances are size-flexible.
    pub(crate) quarters: Option<u64>,
}

/// Reserved Instances that compete for the same usage, by (end, id).
pub(crate) struct Pool {
    pub(crate) reserved: Vec<usize>,
    pub(crate) is_zonal: bool,
    pub(crate) is_flexible: bool,
}

/// Pairs of one plan and usage of one price and rate, in the order of rules 9 and 15.
pub(crate) struct Bucket {
    pub(crate) plan: usize,
    pub(crate) rate: Exact,
    pub(crate) classes: usize,
}

/// An organization, ready to be billed for any hour.
pub struct Allocator<'a> {
    pub(crate) organization: &'a Organization,
    pub(crate) usages: Vec<Usage<'a>>,
    pub(crate) classes: Vec<Class<'a>>,
    /// By (end, id), as all that follows.
    pub(crate) reserved: Vec<&'a ReservedInstances>,
    pub(crate) plans: Vec<&'a SavingsPlan>,
    pub(crate) reserved_accounts: Vec<usize>,
    pub(crate) plan_accounts: Vec<usize>,
    pub(crate) pools: Vec<Pool>,
    /// Those of EC2 Instance plans, then those of Compute plans.
    pub(crate) buckets: [Vec<Bucket>; 2],
    pub(crate) class_sets: Vec<Vec<usize>>,
    /// The whole numbers of money in a dollar: what costs a dollar an hour costs `scale / 3600` a second.
    pub(crate) scale: i128,
    pub(crate) reaches: Vec<Reach>,
    reach: Vec<Option<Reach>>,
    accounts: usize,
    problems: Vec<Problem>,
}

#[derive(PartialEq, Eq, Hash)]
pub(crate) enum PoolKey<'a> {
    Zonal(&'a str, &'a Machine),
    Regional(&'a Machine),
    Family(&'a str, &'a str),
}

/// Whether regional Reserved Instances for this are size-flexible (rule 3); then its size in quarters.
pub(crate) fn flexible_quarters(machine: &Machine) -> Option<u64> {
    let is_flexible = machine.platform == Platform::Linux
        && machine.tenancy == Tenancy::Default
        && is_size_flexible(family_of(&machine.instance_type));
    is_flexible
        .then(|| size_quarters(&machine.instance_type))
        .flatten()
        .filter(|quarters| *quarters > 0)
}

/// What an instance-second of Reserved Instances counts: its size where sizes are flexible, else one.
pub(crate) fn counted_size(reserved: &ReservedInstances) -> u64 {
    match reserved.zone {
        Some(_) => 1,
        None => flexible_quarters(&reserved.machine).unwrap_or(1),
    }
}

/// Whether Reserved Instances exist for this.
pub(crate) fn can_be_reserved(machine: &Machine) -> bool {
    machine.platform.has_reserved_instances() && machine.tenancy != Tenancy::Host
}

pub(crate) fn regional_key(machine: &Machine) -> PoolKey<'_> {
    match flexible_quarters(machine) {
        Some(_) => PoolKey::Family(&machine.region, family_of(&machine.instance_type)),
        None => PoolKey::Regional(machine),
    }
}

impl<'a> Allocator<'a> {
    /// Makes an organization ready. What cannot be billed as it stands is told by [`Allocator::problems`].
    #[must_use]
    pub fn new(organization: &'a Organization) -> Self {
        let mut problems = BTreeSet::new();
        let mut accounts = Accounts::default();
        let reserved = reserved(organization, &mut problems);
        let plans = plans(organization, &mut problems);
        let reserved_accounts = reserved.iter().map(|one| accounts.number(&one.account)).collect();
        let plan_accounts = plans.iter().map(|one| accounts.number(&one.account)).collect();
        let (pools, pool_numbers) = pools(&reserved, &mut problems);
        let unit = money_unit(organization);
        let scale = unit * i128::from(HOUR);

        let sources = sources(organization, &mut problems);
        let mut classes: Vec<Class<'a>> = Vec::new();
        let mut of_machine: HashMap<&Machine, usize> = HashMap::new();
        let mut of_usage: HashMap<&Priced, usize> = HashMap::new();
        let mut usages = Vec::with_capacity(sources.len());
        for source in sources {
            let (account, machine, zone, purchase) = match &source {
                Source::Instance { first, .. } => (
                    &first.account,
                    Some(&first.machine),
                    Some(&first.zone),
                    &first.purchase,
                ),
                Source::Unused { of, .. } => (&of.account, Some(&of.machine), None, &Purchase::OnDemand),
                Source::Line { first, is_unused, .. } => {
                    let machine = match &first.what {
                        Priced::Machine(machine) => Some(machine),
                        Priced::Usage { .. } => None,
                    };
                    let zone = first.zone.as_ref().filter(|_| !is_unused);
                    (&first.account, machine, zone, &first.purchase)
                }
            };
            let number = classes.len();
            let class = match (&source, machine) {
                (_, Some(machine)) => *of_machine.entry(machine).or_insert(number),
                (Source::Line { first, .. }, None) => *of_usage.entry(&first.what).or_insert(number),
                (_, None) => number,
            };
            if class == number {
                let priced = match (&source, machine) {
                    (Source::Line { first, .. }, _) => first.what.clone(),
                    (_, machine) => Priced::Machine(machine.cloned().unwrap_or_default()),
                };
                let price = organization.prices.on_demand.get(&priced);
                let reservable = machine.filter(|machine| can_be_reserved(machine));
                classes.push(Class {
                    machine,
                    price: price
                        .filter(|price| !price.is_negative())
                        .map(|price| price.times_whole(unit)),
                    regional_pool: reservable
                        .and_then(|machine| pool_numbers.get(&regional_key(machine)).copied()),
                    quarters: machine.and_then(flexible_quarters),
                    priced,
                });
            }
            // Zonal Reserved Instances cover what runs, and nothing else (rule 12): the zone of a reservation is no matter.
            let zonal_pool = machine
                .filter(|machine| can_be_reserved(machine))
                .zip(zone)
                .and_then(|(machine, zone)| pool_numbers.get(&PoolKey::Zonal(zone, machine)).copied());
            usages.push(Usage {
                account: accounts.number(account),
                class,
                zonal_pool,
                is_eligible: *purchase == Purchase::OnDemand,
                source,
            });
        }
        let needs_price: BTreeSet<usize> = usages
            .iter()
            .filter(|one| one.is_eligible)
            .map(|one| one.class)
            .collect();
        for class in needs_price.iter().filter_map(|class| classes.get(*class)) {
            if class.price.is_none() {
                problems.insert(Problem::NoPrice {
                    what: class.priced.to_string(),
                });
            }
        }
        let (buckets, class_sets) = buckets(organization, &plans, &classes, unit, &mut problems);
        let (reach, reaches) = accounts.reach(organization);
        Self {
            organization,
            usages,
            classes,
            reserved,
            plans,
            reserved_accounts,
            plan_accounts,
            pools,
            buckets,
            class_sets,
            scale,
            reaches,
            reach,
            accounts: accounts.numbers.len(),
            problems: problems.into_iter().collect(),
        }
    }

    /// What could not be billed as it stands.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The bill of the clock hour to which a second belongs.
    #[must_use]
    pub fn hour(&self, at: i64) -> Bill<'_> {
        self.bill(Moment::Hour(at.div_euclid(HOUR).saturating_mul(HOUR)), None)
    }

    /// The bill of an hour in which everything runs on as it does at this second.
    #[must_use]
    pub fn now(&self, at: i64) -> Bill<'_> {
        self.bill(Moment::Now(at), None)
    }

    pub(crate) fn reach(&self, owner: usize, user: usize) -> Option<Reach> {
        self.reach.get(owner * self.accounts + user).copied().flatten()
    }

    /// How much of everything there is in an hour, in the order of ids; what is not there is left out. `changed` is one usage and
    /// how much there shall be of it instead.
    pub(crate) fn amounts(&self, moment: Moment, changed: Option<(usize, i64)>) -> Vec<(usize, Exact)> {
        // The seconds of an instance that belong to an interval.
        let seconds = |number: usize, running: &[Interval], within: &Interval| match changed {
            Some((one, seconds)) if one == number => seconds.min(moment.seconds(within)),
            _ => running
                .iter()
                .map(|one| moment.seconds(&one.common(within)))
                .sum::<i64>(),
        };
        let always = Interval::new(i64::MIN, i64::MAX);
        let mut amounts = Vec::with_capacity(self.usages.len());
        for (number, usage) in self.usages.iter().enumerate() {
            let amount = match &usage.source {
                Source::Instance { running, .. } => Exact::from(seconds(number, running, &always)),
                Source::Unused { of, by } => {
                    let used: i64 = by
                        .iter()
                        .filter_map(|number| match &self.usages.get(*number)?.source {
                            Source::Instance { running, .. } => Some(seconds(*number, running, &of.active)),
                            _ => None,
                        })
                        .sum();
                    let reserved = moment.seconds(&of.active).saturating_mul(i64::from(of.count));
                    Exact::from((reserved - used).max(0))
                }
                Source::Line { by_hour, .. } => {
                    let quantity = by_hour.get(&moment.clock_hour());
                    quantity
                        .map(|quantity| quantity.times_whole(i128::from(HOUR)))
                        .unwrap_or_default()
                }
            };
            if amount.is_positive() {
                amounts.push((number, amount));
            }
        }
        amounts
    }
}

/// Accounts as numbers.
#[derive(Default)]
struct Accounts<'a> {
    numbers: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
}

impl<'a> Accounts<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        number
    }

    /// For each pair of an owner and a user, how near they are; and what occurs, in order.
    fn reach(&self, organization: &Organization) -> (Vec<Option<Reach>>, Vec<Reach>) {
        let owners = self.names.iter();
        let pairs = owners.flat_map(|owner| {
            self.names
                .iter()
                .map(|user| organization.sharing.reach(owner, user))
        });
        let reach: Vec<Option<Reach>> = pairs.collect();
        let reaches = reach.iter().copied().flatten().collect::<BTreeSet<_>>();
        (reach, reaches.into_iter().collect())
    }
}
