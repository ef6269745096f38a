//! What one usage costs and who pays for it, with the rules that say so.

use std::fmt;

use crate::allocator::{Allocator, Source, Usage, counted_size};
use crate::bill::{Commitment, Covered, units, upfront_per_hour};
use crate::exact::Exact;
use crate::organization::{HOUR, Priced, Purchase, ReservedInstances, SavingsPlan};
use crate::pass::{Basis, Payer, Share};
use crate::sharing::Reach;

/// What one usage of an hour costs, and who pays.
#[derive(Clone, Copy)]
pub struct UsageBill<'b> {
    pub(crate) allocator: &'b Allocator<'b>,
    pub(crate) number: usize,
    pub(crate) usage: &'b Usage<'b>,
    pub(crate) amount: &'b Exact,
    pub(crate) left: &'b Exact,
    pub(crate) shares: &'b [Share],
}

impl<'b> UsageBill<'b> {
    /// The id of the instance, the reservation or the line.
    #[must_use]
    pub fn id(&self) -> &'b str {
        self.usage.id()
    }

    /// Whose it is.
    #[must_use]
    pub fn account(&self) -> &'b str {
        match &self.usage.source {
            Source::Instance { first, .. } => &first.account,
            Source::Unused { of, .. } => &of.account,
            Source::Line { first, .. } => &first.account,
        }
    }

    /// The zone, if it has one.
    #[must_use]
    pub fn zone(&self) -> Option<&'b str> {
        match &self.usage.source {
            Source::Instance { first, .. } => Some(&first.zone),
            Source::Unused { of, .. } => Some(&of.zone),
            Source::Line { first, .. } => first.zone.as_deref(),
        }
    }

    /// What it is.
    #[must_use]
    pub fn covered(&self) -> Covered<'b> {
        match &self.usage.source {
            Source::Instance { first, .. } => Covered::Instance(&first.machine),
            Source::Unused { of, .. } => Covered::UnusedReservation(&of.machine),
            Source::Line { first, is_unused, .. } => match &first.what {
                Priced::Machine(machine) if *is_unused => Covered::UnusedReservation(machine),
                Priced::Machine(machine) => Covered::Instance(machine),
                Priced::Usage { usage_type, .. } => Covered::Usage(usage_type),
            },
        }
    }

    /// How much there is of it: hours, or units.
    #[must_use]
    pub fn amount(&self) -> Exact {
        self.amount.over_whole(i128::from(HOUR))
    }

    /// How much of that no commitment pays.
    #[must_use]
    pub fn uncovered(&self) -> Exact {
        self.left.over_whole(i128::from(HOUR))
    }

    /// Spot and Capacity Blocks have a price of their own, in dollars per hour.
    #[must_use]
    pub fn own_price(&self) -> Option<&'b Exact> {
        match self.purchase() {
            Purchase::OnDemand => None,
            Purchase::Spot(price) | Purchase::CapacityBlock(price) => Some(price),
        }
    }

    fn purchase(&self) -> &'b Purchase {
        match &self.usage.source {
            Source::Instance { first, .. } => &first.purchase,
            Source::Line { first, .. } => &first.purchase,
            Source::Unused { .. } => &Purchase::OnDemand,
        }
    }

    /// Money for a second.
    pub(crate) fn price(&self) -> Option<&'b Exact> {
        self.allocator.classes.get(self.usage.class)?.price.as_ref()
    }

    /// What it costs at its list price, or at its own.
    #[must_use]
    pub fn list_cost(&self) -> Exact {
        match self.own_price() {
            Some(price) => self.amount().times(price),
            None => self.at_list(self.amount),
        }
    }

    /// Dollars of this hour that no commitment pays.
    #[must_use]
    pub fn uncovered_cost(&self) -> Exact {
        match self.own_price() {
            Some(price) => self.amount().times(price),
            None => self.at_list(self.left),
        }
    }

    fn at_list(&self, amount: &Exact) -> Exact {
        let cost = self.price().map(|price| price.times(amount)).unwrap_or_default();
        cost.over_whole(self.allocator.scale)
    }

    /// What it costs with its share of the commitments that pay for it (rule 14).
    #[must_use]
    pub fn effective_cost(&self) -> Exact {
        let covered: Exact = self.shares().map(|share| share.cost()).sum();
        covered.plus(&self.uncovered_cost())
    }

    /// [`UsageBill::effective_cost`] for each hour or unit of it.
    #[must_use]
    pub fn effective_per_hour(&self) -> Exact {
        self.effective_cost().over(&self.amount()).unwrap_or_default()
    }

    /// [`UsageBill::uncovered_cost`] for each hour or unit of it. What the bill would be without this usage is another question, which
    /// [`Allocator::marginal`] answers.
    #[must_use]
    pub fn uncovered_per_hour(&self) -> Exact {
        self.uncovered_cost().over(&self.amount()).unwrap_or_default()
    }

    /// Who pays for it, in the order of application.
    pub fn shares(&self) -> impl Iterator<Item = ShareBill<'b>> + use<'b> {
        let (allocator, usage) = (self.allocator, self.usage);
        self.shares.iter().map(move |share| ShareBill {
            allocator,
            usage,
            share,
        })
    }

    /// Why the rest is paid as it is.
    #[must_use]
    pub fn why_uncovered(&self) -> &'static str {
        match (self.purchase(), self.covered()) {
            (Purchase::Spot(_), _) => "Spot: commitments do not apply (rule 2)",
            (Purchase::CapacityBlock(_), _) => "Capacity Block: treated as not eligible (rule 15)",
            (Purchase::OnDemand, Covered::Instance(_)) => {
                "On demand: no commitment is left that covers it (rule 2)"
            }
            (Purchase::OnDemand, Covered::UnusedReservation(_)) => {
                "Unused capacity reservation: billed as if it ran (rule 12)"
            }
            (Purchase::OnDemand, Covered::Usage(_)) => {
                "On demand: no Compute Savings Plan is left for it (rule 10)"
            }
        }
    }
}

/// What one commitment pays of one usage.
#[derive(Clone, Copy)]
pub struct ShareBill<'b> {
    allocator: &'b Allocator<'b>,
    usage: &'b Usage<'b>,
    share: &'b Share,
}

impl<'b> ShareBill<'b> {
    /// Which commitment.
    #[must_use]
    pub fn commitment(&self) -> Option<Commitment<'b>> {
        match self.share.payer {
            Payer::Reserved(number) => self
                .allocator
                .reserved
                .get(number)
                .map(|one| Commitment::Reserved(one)),
            Payer::Plan(number) => self.allocator.plans.get(number).map(|one| Commitment::Plan(one)),
        }
    }

    /// The ARN or id of the commitment.
    #[must_use]
    pub fn id(&self) -> &'b str {
        self.commitment().map(|one| one.id()).unwrap_or_default()
    }

    /// How many hours or units it pays.
    #[must_use]
    pub fn amount(&self) -> Exact {
        self.share.amount.over_whole(i128::from(HOUR))
    }

    /// [`ShareBill::amount`] in AWS's normalized units, for Reserved Instances of known size.
    #[must_use]
    pub fn units(&self) -> Option<Exact> {
        let machine = self.allocator.classes.get(self.usage.class)?.machine?;
        match self.share.payer {
            Payer::Reserved(_) => units(&machine.instance_type, &self.amount()),
            Payer::Plan(_) => None,
        }
    }

    /// The dollars of the commitment that this takes: amortized fees of Reserved Instances, or what the plan is charged.
    #[must_use]
    pub fn cost(&self) -> Exact {
        match self.commitment() {
            Some(Commitment::Reserved(one)) => {
                let per_hour = one.hourly.plus(&upfront_per_hour(one));
                self.reserved_hours(one).times(&per_hour)
            }
            Some(Commitment::Plan(plan)) => self.rate(plan).times(&self.amount()),
            None => Exact::ZERO,
        }
    }

    /// The hourly fees of Reserved Instances for this.
    pub(crate) fn recurring(&self, reserved: &ReservedInstances) -> Exact {
        self.reserved_hours(reserved).times(&reserved.hourly)
    }

    /// Instance-hours of Reserved Instances of their own size.
    fn reserved_hours(&self, reserved: &ReservedInstances) -> Exact {
        let class = self.allocator.classes.get(self.usage.class);
        let is_flexible = self.share.basis == Basis::SizeFlexibleReservedInstance;
        let size = class
            .and_then(|class| class.quarters)
            .filter(|_| is_flexible)
            .unwrap_or(1);
        let own = i128::from(counted_size(reserved));
        self.amount().times_whole(i128::from(size)).over_whole(own)
    }

    fn rate(&self, plan: &SavingsPlan) -> Exact {
        let rates = self.allocator.organization.rates.get(&plan.rates);
        let class = self.allocator.classes.get(self.usage.class);
        let rate = rates
            .zip(class)
            .and_then(|(rates, class)| rates.get(&class.priced));
        rate.cloned().unwrap_or_default()
    }

    /// Why this commitment covers it.
    #[must_use]
    pub fn basis(&self) -> Basis {
        self.share.basis
    }

    /// How near the account is to the owner.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.share.reach
    }

    /// The rules that this follows from.
    #[must_use]
    pub fn rules(&self) -> Vec<u8> {
        let class = self.allocator.classes.get(self.usage.class);
        let is_metal = class
            .and_then(|class| class.machine)
            .is_some_and(|machine| machine.instance_type.contains(".metal"));
        rules(
            self.share.basis,
            self.share.reach,
            is_metal,
            self.usage.is_unused(),
        )
    }
}

pub(crate) fn rules(basis: Basis, reach: Reach, is_metal: bool, is_unused: bool) -> Vec<u8> {
    let is_reserved = !matches!(basis, Basis::Ec2InstancePlan | Basis::ComputePlan);
    let mut rules = match basis {
        Basis::ZonalReservedInstance | Basis::RegionalReservedInstance => vec![2, 3, 8],
        Basis::SizeFlexibleReservedInstance if is_metal => vec![2, 3, 4, 5, 6, 8],
        Basis::SizeFlexibleReservedInstance => vec![2, 3, 4, 5, 8],
        Basis::Ec2InstancePlan | Basis::ComputePlan => vec![2, 9, 10],
    };
    if reach != Reach::Owner {
        rules.push(if is_reserved { 7 } else { 11 });
    }
    if is_unused {
        rules.push(12);
    }
    rules.sort_unstable();
    rules
}

impl fmt::Display for ShareBill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basis = match self.share.basis {
            Basis::ZonalReservedInstance => {
                "Zonal Reserved Instance of this zone, type, platform and tenancy"
            }
            Basis::RegionalReservedInstance => {
                "Regional Reserved Instance of this type, platform and tenancy"
            }
            Basis::SizeFlexibleReservedInstance => {
                "Size-flexible Reserved Instance of this family, smallest size first"
            }
            Basis::Ec2InstancePlan => {
                "EC2 Instance Savings Plan of this family and region, highest saving first"
            }
            Basis::ComputePlan => "Compute Savings Plan, highest saving first",
        };
        let reach = match self.share.reach {
            Reach::Owner => "of the same account",
            Reach::Group => "of another account of its group",
            Reach::Organization => "of another account of the organization",
        };
        let rules: Vec<String> = self.rules().iter().map(u8::to_string).collect();
        write!(f, "{basis}, {reach} (rules {})", rules.join(", "))
    }
}
