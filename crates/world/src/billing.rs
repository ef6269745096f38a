//! What instances cost, hour by hour: `veneer-billing` says what commitments pay, here is what it is told and what a metrics server
//! would tell of it. Everything belongs to one account and runs Linux on shared hardware.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_billing::{
    Allocator, Basis, Covered, Exact, HOUR, Interval, Machine, Organization, PlanKind, Priced, Purchase,
    State, UsageLine,
};
use veneer_steering::commitments::{Observation, Sample, family_of};

use crate::scenario::Commitments;

/// The account that owns everything here.
pub const ACCOUNT: &str = "111122223333";

/// The region, which is one.
const REGION: &str = "here";

/// Instance-hours of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// The type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// Whether it is spot.
    pub is_spot: bool,
}

/// Hours and the list price of each kind that was used.
pub type Used = BTreeMap<Usage, (f64, f64)>;

/// What some hours come to, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bill {
    /// Everything at list prices.
    pub list: f64,
    /// What is paid, unused commitments included.
    pub paid: f64,
    /// The part that spot costs.
    pub spot: f64,
    /// The part that nothing covers.
    pub on_demand: f64,
    /// What commitments cost.
    pub commitments: f64,
    /// The part of that for which nothing was used.
    pub unused: f64,
}

impl Bill {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.list += other.list;
        self.paid += other.paid;
        self.spot += other.spot;
        self.on_demand += other.on_demand;
        self.commitments += other.commitments;
        self.unused += other.unused;
    }
}

/// What happened to the commitments.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// What it costs.
    pub bill: Bill,
    /// Hours covered by reservations, by type and zone.
    pub reserved: BTreeMap<(String, String), f64>,
    /// Dollars used of each plan, in the scenario's order.
    pub plans: Vec<f64>,
}

/// Applies the commitments of `hours` hours to what was used in them. `on_demand` gives list prices by type.
///
/// The allocator bills whole hours. A part of one is an hour in which everything runs as often as on average, times that part.
#[must_use]
pub fn apply(commitments: &Commitments, used: &Used, hours: f64, on_demand: &dyn Fn(&str) -> f64) -> Applied {
    let mut applied = Applied {
        plans: vec![0.0; commitments.savings_plans.len()],
        ..Applied::default()
    };
    let Some(part) = Exact::from_f64(hours).filter(Exact::is_positive) else {
        return applied;
    };
    let organization = organization(commitments, used, &part, on_demand);
    let allocator = Allocator::new(&organization);
    let hour = allocator.hour(HOUR);
    let dollars = |amount: &Exact| amount.times(&part).to_f64();
    let totals = hour.totals();
    applied.bill = Bill {
        list: dollars(&totals.list),
        paid: dollars(&totals.total()),
        spot: dollars(&totals.own_price),
        on_demand: dollars(&totals.on_demand),
        commitments: dollars(&totals.commitments),
        unused: dollars(&totals.unused),
    };
    for usage in hour.usages() {
        let Covered::Instance(machine) = usage.covered() else {
            continue;
        };
        let by_reservations = usage.shares().filter(|share| is_reserved(share.basis()));
        let reserved: Exact = by_reservations.map(|share| share.amount()).sum();
        if reserved.is_positive() {
            let zone = usage.zone().unwrap_or_default().to_owned();
            let key = (machine.instance_type.clone(), zone);
            *applied.reserved.entry(key).or_default() += dollars(&reserved);
        }
    }
    for (number, used) in applied.plans.iter_mut().enumerate() {
        let plan = hour.commitment(&plan_id(number));
        *used = plan.map_or(0.0, |plan| dollars(&plan.used));
    }
    applied
}

fn is_reserved(basis: Basis) -> bool {
    !matches!(basis, Basis::Ec2InstancePlan | Basis::ComputePlan)
}

fn plan_id(number: usize) -> String {
    format!("plan-{number:06}")
}

/// The organization of one hour: everything belongs to one account, and each plan has its own rates.
pub(crate) fn organization(
    commitments: &Commitments,
    used: &Used,
    hours: &Exact,
    on_demand: &dyn Fn(&str) -> f64,
) -> Organization {
    let exact = |number: f64| Exact::from_f64(number).unwrap_or_default();
    let paid = |discount: f64| Exact::ONE.minus(&exact(discount));
    let machine = |instance_type: &str| Machine {
        region: REGION.to_owned(),
        instance_type: instance_type.to_owned(),
        ..Machine::default()
    };
    let mut organization = Organization::default();
    for (usage, (count, price)) in used {
        let price = exact(*price);
        let what = Priced::Machine(machine(&usage.instance_type));
        if !usage.is_spot {
            organization.prices.on_demand.insert(what.clone(), price.clone());
            for (number, plan) in commitments.savings_plans.iter().enumerate() {
                let rates = organization.rates.entry(plan_id(number)).or_default();
                rates.insert(what.clone(), price.times(&paid(plan.discount)));
            }
        }
        organization.usage_lines.push(UsageLine {
            id: format!("{}/{}", usage.instance_type, usage.zone),
            account: ACCOUNT.to_owned(),
            zone: Some(usage.zone.clone()),
            what,
            purchase: if usage.is_spot {
                Purchase::Spot(price)
            } else {
                Purchase::OnDemand
            },
            at: HOUR,
            quantity: exact(*count).over(hours).unwrap_or_default(),
        });
    }
    let term = Interval::hour(HOUR);
    for (number, one) in commitments.reserved_instances.iter().enumerate() {
        organization
            .reserved_instances
            .push(veneer_billing::ReservedInstances {
                id: format!("reserved-{number:06}"),
                account: ACCOUNT.to_owned(),
                machine: machine(&one.instance_type),
                zone: one.zone.clone(),
                count: one.count,
                term,
                state: State::Active,
                upfront: Exact::ZERO,
                hourly: exact(on_demand(&one.instance_type)).times(&paid(one.discount)),
            });
    }
    for (number, plan) in commitments.savings_plans.iter().enumerate() {
        organization.savings_plans.push(veneer_billing::SavingsPlan {
            id: plan_id(number),
            account: ACCOUNT.to_owned(),
            kind: match &plan.family {
                None => PlanKind::Compute,
                Some(family) => PlanKind::Ec2Instance {
                    family: family.clone(),
                    region: REGION.to_owned(),
                },
            },
            commitment: exact(plan.commitment),
            rates: plan_id(number),
            term,
            state: State::Active,
        });
        // A plan has rates where nothing runs, too.
        organization.rates.entry(plan_id(number)).or_default();
    }
    organization
}

/// What the exporter says about one moment: `applied` are the commitments of one hour against what runs.
#[derive(Clone, Debug)]
pub struct Export {
    /// The moment.
    pub at: Timestamp,
    region: String,
    commitment: Vec<Sample>,
    remaining: Vec<Sample>,
    utilization: Vec<Sample>,
    reserved: Vec<Sample>,
    reserved_counts: Vec<Sample>,
    running: Vec<Sample>,
}

impl Export {
    /// Looks at the commitments.
    #[must_use]
    pub fn new(commitments: &Commitments, applied: &Applied, region: &str, at: Timestamp) -> Self {
        let mut export = Self {
            at,
            region: region.to_owned(),
            commitment: Vec::new(),
            remaining: Vec::new(),
            utilization: Vec::new(),
            reserved: Vec::new(),
            reserved_counts: Vec::new(),
            running: Vec::new(),
        };
        for (number, (plan, used)) in commitments.savings_plans.iter().zip(&applied.plans).enumerate() {
            let arn = format!("arn:aws:savingsplans::{ACCOUNT}:savingsplan/{number}");
            let type_ = if plan.family.is_some() {
                "ec2_instance"
            } else {
                "compute"
            };
            let base = [
                ("account_id", ACCOUNT),
                ("type", type_),
                ("savings_plan_arn", arn.as_str()),
            ];
            let family = plan.family.as_deref().unwrap_or("all");
            let region = plan.family.as_ref().map_or("all", |_| region);
            let scope = [("instance_family", family), ("region", region)];
            let all: Vec<(&str, &str)> = base.iter().chain(&scope).copied().collect();
            export.commitment.push(Sample::new(&all, plan.commitment));
            export
                .remaining
                .push(Sample::new(&base, (plan.commitment - used).max(0.0)));
            let share = if plan.commitment > 0.0 {
                100.0 * used / plan.commitment
            } else {
                100.0
            };
            export.utilization.push(Sample::new(&base, share));
        }
        let mut of_family: BTreeMap<&str, f64> = BTreeMap::new();
        for one in &commitments.reserved_instances {
            let labels = [
                ("account_id", ACCOUNT),
                ("region", region),
                ("instance_type", one.instance_type.as_str()),
                ("availability_zone", one.zone.as_deref().unwrap_or_default()),
            ];
            // As Lumina has it: that there are some, and how many of the family.
            export.reserved.push(Sample::new(&labels, 1.0));
            let family = family_of(&one.instance_type);
            *of_family.entry(family).or_default() += f64::from(one.count);
        }
        for (family, count) in of_family {
            let labels = [
                ("account_id", ACCOUNT),
                ("region", region),
                ("instance_family", family),
            ];
            export.reserved_counts.push(Sample::new(&labels, count));
        }
        for ((instance_type, zone), count) in &applied.reserved {
            let labels = [
                ("account_id", ACCOUNT),
                ("region", region),
                ("instance_type", instance_type.as_str()),
                ("availability_zone", zone.as_str()),
                ("cost_type", "reserved_instance"),
            ];
            export.running.push(Sample::new(&labels, *count));
        }
        export
    }

    /// What a metrics server answers about it at another moment.
    #[must_use]
    pub fn observed(&self, now: Timestamp) -> Observation {
        let age = now.duration_since(self.at).as_secs_f64();
        let fresh = |data: &str, region: &str| {
            let labels = [("account_id", ACCOUNT), ("region", region), ("data_type", data)];
            Sample::new(&labels, age)
        };
        Observation {
            at: now,
            commitment: Ok(self.commitment.clone()),
            remaining: Ok(self.remaining.clone()),
            utilization: Ok(self.utilization.clone()),
            reserved: Ok(self.reserved.clone()),
            reserved_counts: Ok(self.reserved_counts.clone()),
            counted: Ok(Vec::new()),
            unused: Ok(Vec::new()),
            running: Ok(self.running.clone()),
            freshness: Ok(vec![
                fresh("savings_plans", ""),
                fresh("reserved_instances", &self.region),
                fresh("ec2_instances", &self.region),
            ]),
        }
    }
}

/// What a metrics server that does not answer answers.
#[must_use]
pub fn silence(now: Timestamp) -> Observation {
    let none = || Err("connection refused".to_owned());
    Observation {
        at: now,
        commitment: none(),
        remaining: none(),
        utilization: none(),
        reserved: none(),
        reserved_counts: none(),
        counted: none(),
        unused: none(),
        running: none(),
        freshness: none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{ReservedInstances, SavingsPlan};
    use veneer_steering::commitments::size_factor;

    fn usage(entries: &[(&str, f64, f64)]) -> Used {
        let entry = |(instance_type, hours, price): &(&str, f64, f64)| {
            let (name, is_spot) = match instance_type.strip_prefix("spot ") {
                Some(name) => (name, true),
                None => (*instance_type, false),
            };
            let usage = Usage {
                instance_type: name.to_owned(),
                zone: "a".to_owned(),
                is_spot,
            };
            (usage, (*hours, *price))
        };
        entries.iter().map(entry).collect()
    }

    fn price(instance_type: &str) -> f64 {
        size_factor(instance_type).unwrap_or(1.0) / 40.0
    }

    #[test]
    fn commitments_apply_in_the_order_of_aws_and_are_paid_when_unused() {
        let commitments = Commitments {
            reserved_instances: vec![ReservedInstances {
                instance_type: "m5.xlarge".to_owned(),
                count: 2,
                zone: None,
                discount: 0.5,
            }],
            savings_plans: vec![
                SavingsPlan {
                    family: Some("m5".to_owned()),
                    commitment: 0.1,
                    discount: 0.5,
                },
                SavingsPlan {
                    family: None,
                    commitment: 1.0,
                    discount: 0.2,
                },
            ],
            ..Commitments::default()
        };
        // xlarge costs 0.2, 2xlarge 0.4. One xlarge and half of a 2xlarge are reserved; 0.1 at half price covers 0.2 of the
        // other half; nothing is left for the Compute plan but c5.
        let used = usage(&[
            ("m5.xlarge", 1.0, 0.2),
            ("m5.2xlarge", 1.0, 0.4),
            ("c5.xlarge", 1.0, 0.2),
            ("spot m5.large", 1.0, 0.03),
        ]);
        let Applied {
            bill,
            reserved,
            plans,
        } = apply(&commitments, &used, 1.0, &price);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        near(bill.list, 0.83);
        near(bill.spot, 0.03);
        near(bill.on_demand, 0.0);
        near(bill.commitments, 0.2 + 0.1 + 1.0);
        near(bill.paid, 1.33);
        near(bill.unused, 1.0 - 0.16);
        near(plans[0], 0.1);
        near(plans[1], 0.16);
        near(reserved[&("m5.2xlarge".to_owned(), "a".to_owned())], 0.5);
    }

    #[test]
    fn part_of_an_hour_has_that_part_of_the_commitments() {
        let commitments = Commitments {
            savings_plans: vec![SavingsPlan {
                family: None,
                commitment: 1.0,
                discount: 0.5,
            }],
            ..Commitments::default()
        };
        // A quarter of an hour of twelve instances at 0.2, of which 0.25 at half price pay 2.5 hours.
        let bill = apply(&commitments, &usage(&[("m5.xlarge", 3.0, 0.2)]), 0.25, &price).bill;
        assert!((bill.commitments - 0.25).abs() < 1e-12 && bill.unused == 0.0);
        assert!((bill.on_demand - 0.1).abs() < 1e-12, "{}", bill.on_demand);
        assert_eq!(
            apply(&commitments, &Used::new(), 0.0, &price).bill,
            Bill::default()
        );
    }

    #[test]
    fn families_without_size_flexibility_are_covered_in_their_size_only() {
        let commitments = Commitments {
            reserved_instances: vec![ReservedInstances {
                instance_type: "g5.2xlarge".to_owned(),
                count: 1,
                zone: None,
                discount: 0.5,
            }],
            ..Commitments::default()
        };
        let bill = apply(&commitments, &usage(&[("g5.xlarge", 1.0, 0.2)]), 1.0, &price).bill;
        assert!((bill.on_demand - 0.2).abs() < 1e-12 && (bill.unused - 0.2).abs() < 1e-12);
    }

    #[test]
    fn without_commitments_the_list_is_paid() {
        let used = usage(&[("m5.xlarge", 3.0, 0.2)]);
        let bill = apply(&Commitments::default(), &used, 1.0, &price).bill;
        assert!((bill.paid - bill.list).abs() < 1e-12 && (bill.list - 0.6).abs() < 1e-12);
    }
}
