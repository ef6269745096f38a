//! What one more instance would cost, and what the bill would be without one that runs.
//!
//! [`Bill::quote`] is quick and looks at what is left: it is exact while what is left pays for all of the instance and nothing that runs
//! would rather have it. [`Allocator::marginal`] and [`Allocator::one_more`] bill the hour again and are exact always: a new instance on
//! which a plan saves more takes the plan from another one.

use crate::allocator::{Allocator, Moment, Source, can_be_reserved, counted_size, flexible_quarters};
use crate::bill::{Bill, Commitment, upfront_per_hour};
use crate::exact::Exact;
use crate::organization::{HOUR, Instance, Machine, PlanKind, Priced, Purchase, ReservedInstances};
use crate::pass::Basis;
use crate::prepare::{covers, paid_share};
use crate::sharing::Reach;
use crate::usage_bill::rules;

/// What a commitment has left for one more instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available<'b> {
    /// The commitment.
    pub commitment: Commitment<'b>,
    /// Why it covers the instance.
    pub basis: Basis,
    /// How near the account is to the owner.
    pub reach: Reach,
    /// The rules that this follows from.
    pub rules: Vec<u8>,
    /// Instance-hours of Reserved Instances of their own size, or dollars of a plan, that nothing uses. Of a Compute plan, usage that
    /// was not given (Fargate, Lambda) may have taken some of it.
    pub left: Exact,
    /// How many hours of such an instance that pays for; nothing if it costs the commitment nothing.
    pub hours: Option<Exact>,
    /// The part of one hour that it pays, after the commitments before it in the list.
    pub pays: Exact,
    /// The dollars of the commitment that this takes: amortized fees of Reserved Instances, or what the plan is charged.
    pub cost: Exact,
}

/// What one more instance would cost for an hour, if it got what nothing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote<'b> {
    /// The commitments that cover it, in the order of application; also those of which nothing is left.
    pub available: Vec<Available<'b>>,
    /// The list price, or its own; nothing if unknown.
    pub list: Option<Exact>,
    /// The part of an hour that nothing pays.
    pub uncovered: Exact,
    /// Dollars per hour on top of what is paid anyway; nothing if the price is unknown.
    pub marginal: Option<Exact>,
    /// [`Quote::marginal`] and what it takes of commitments.
    pub effective: Option<Exact>,
}

impl<'b> Bill<'b> {
    /// What is left for one more instance of a kind.
    #[must_use]
    pub fn quote(&self, candidate: &Instance) -> Quote<'b> {
        let organization = self.allocator.organization;
        let list = match &candidate.purchase {
            Purchase::OnDemand => {
                let priced = Priced::Machine(candidate.machine.clone());
                let price = organization.prices.on_demand.get(&priced);
                price.filter(|price| !price.is_negative()).cloned()
            }
            Purchase::Spot(price) | Purchase::CapacityBlock(price) => Some(price.clone()),
        };
        let mut uncovered = Exact::ONE;
        let mut available = Vec::new();
        if candidate.purchase == Purchase::OnDemand {
            available = self.reserved_for(candidate);
            for plans in [Basis::Ec2InstancePlan, Basis::ComputePlan] {
                available.extend(self.plans_for(candidate, plans, list.as_ref()));
            }
        }
        let mut available: Vec<Available<'b>> = available.into_iter().map(|(_, one)| one).collect();
        for one in &mut available {
            let per_hour = std::mem::take(&mut one.cost);
            one.pays = match &one.hours {
                Some(hours) => hours.clone().min(uncovered.clone()),
                None => uncovered.clone(),
            };
            one.cost = one.pays.times(&per_hour);
            uncovered = uncovered.minus(&one.pays);
        }
        let marginal = list.as_ref().map(|list| list.times(&uncovered));
        let taken: Exact = available.iter().map(|one| &one.cost).sum();
        Quote {
            list,
            effective: marginal.as_ref().map(|marginal| marginal.plus(&taken)),
            marginal,
            uncovered,
            available,
        }
    }

    /// Reserved Instances for a candidate; `cost` is for an hour of it.
    fn reserved_for(&self, candidate: &Instance) -> Vec<(Order, Available<'b>)> {
        let sharing = &self.allocator.organization.sharing;
        let mut found = Vec::new();
        let all = self.allocator.reserved.iter().zip(&self.reserved).enumerate();
        for (number, (reserved, held)) in all.filter(|(_, (_, held))| held.seconds > 0) {
            let Some(basis) = reserved_basis(reserved, &candidate.zone, &candidate.machine) else {
                continue;
            };
            let Some(reach) = sharing.reach(&reserved.account, &candidate.account) else {
                continue;
            };
            let own = i128::from(counted_size(reserved));
            let size = match basis {
                Basis::SizeFlexibleReservedInstance => {
                    i128::from(flexible_quarters(&candidate.machine).unwrap_or(1))
                }
                _ => 1,
            };
            let fee = reserved.hourly.plus(&upfront_per_hour(reserved));
            let available = Available {
                commitment: Commitment::Reserved(reserved),
                basis,
                reach,
                rules: rules(
                    basis,
                    reach,
                    candidate.machine.instance_type.contains(".metal"),
                    false,
                ),
                left: held.left.over_whole(own * i128::from(HOUR)),
                hours: Some(held.left.over_whole(size * i128::from(HOUR))),
                pays: Exact::ZERO,
                cost: fee.times_whole(size).over_whole(own),
            };
            let is_regional = basis != Basis::ZonalReservedInstance;
            found.push(((is_regional, reach, None, Exact::ZERO, number), available));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Plans of a kind for a candidate; `cost` is for an hour of it.
    fn plans_for(
        &self,
        candidate: &Instance,
        basis: Basis,
        price: Option<&Exact>,
    ) -> Vec<(Order, Available<'b>)> {
        let organization = self.allocator.organization;
        let mut found = Vec::new();
        let all = self.allocator.plans.iter().zip(&self.plans).enumerate();
        for (number, (plan, held)) in all.filter(|(_, (_, held))| held.seconds > 0) {
            let is_compute = plan.kind == PlanKind::Compute;
            if is_compute != (basis == Basis::ComputePlan) || !covers(plan, Some(&candidate.machine)) {
                continue;
            }
            let rates = organization.rates.get(&plan.rates);
            let rate = rates.and_then(|rates| rates.get(&Priced::Machine(candidate.machine.clone())));
            let reach = organization.sharing.reach(&plan.account, &candidate.account);
            let (Some(rate), Some(reach), Some(price)) =
                (rate.filter(|rate| !rate.is_negative()), reach, price)
            else {
                continue;
            };
            let left = held.left.over_whole(self.allocator.scale);
            let available = Available {
                commitment: Commitment::Plan(plan),
                basis,
                reach,
                rules: rules(basis, reach, false, false),
                hours: left.over(rate),
                left,
                pays: Exact::ZERO,
                cost: rate.clone(),
            };
            let share = paid_share(rate, price);
            found.push(((share.is_none(), reach, share, rate.clone(), number), available));
        }
        // Owners first, then the highest saving.
        found.sort_by(|(a, _), (b, _)| (a.1, a.0, &a.2, &a.3, a.4).cmp(&(b.1, b.0, &b.2, &b.3, b.4)));
        found
    }
}

/// What decides between commitments of one kind.
type Order = (bool, Reach, Option<Exact>, Exact, usize);

/// Why Reserved Instances cover a machine in a zone, if they do.
fn reserved_basis(reserved: &ReservedInstances, zone: &str, machine: &Machine) -> Option<Basis> {
    if !can_be_reserved(machine) || !can_be_reserved(&reserved.machine) {
        return None;
    }
    let is_same = reserved.machine == *machine;
    if let Some(own) = &reserved.zone {
        return (is_same && own == zone).then_some(Basis::ZonalReservedInstance);
    }
    let family = |machine: &Machine| crate::sizes::family_of(&machine.instance_type).to_owned();
    let flexible = flexible_quarters(&reserved.machine).zip(flexible_quarters(machine));
    match flexible {
        Some(_)
            if reserved.machine.region == machine.region && family(&reserved.machine) == family(machine) =>
        {
            Some(Basis::SizeFlexibleReservedInstance)
        }
        None if is_same => Some(Basis::RegionalReservedInstance),
        _ => None,
    }
}

impl Allocator<'_> {
    /// What the bill of an hour would be lower without an instance, in dollars: less than it costs where a commitment is left
    /// unused then, and at least what no commitment pays of it where others take over its commitments.
    #[must_use]
    pub fn marginal(&self, moment: Moment, id: &str) -> Option<Exact> {
        let with = self.bill(moment, None);
        let number = with.usage(id)?.number;
        self.changed(moment, number, 0, &with)
            .map(|change| change.negated())
    }

    /// What the bill of an hour would be higher if an instance of the organization that does not run in it ran for all of it.
    #[must_use]
    pub fn one_more(&self, moment: Moment, id: &str) -> Option<Exact> {
        let number = self.usages.iter().position(|usage| usage.id() == id)?;
        self.changed(moment, number, HOUR, &self.bill(moment, None))
    }

    fn changed(&self, moment: Moment, number: usize, seconds: i64, from: &Bill<'_>) -> Option<Exact> {
        let is_instance = matches!(self.usages.get(number)?.source, Source::Instance { .. });
        let to = self.bill(moment, Some((number, seconds)));
        is_instance.then(|| to.totals().total().minus(&from.totals().total()))
    }
}
