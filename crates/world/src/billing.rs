//! What instances cost: list prices, Reserved Instances and Savings Plans, applied hour by hour in the order of AWS.
//!
//! Spot pays its own price and nothing else applies. Zonal reservations cover their type and zone, regional ones any size
//! of their family by normalised units, smallest instances first. Then EC2 Instance plans, then Compute plans; each covers
//! usage at its own rate until its commitment of the hour is used up. What is left is on demand. Commitments are paid
//! whether they are used or not.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use veneer_steering::commitments::{Observation, Sample, family_of, size_factor};

use crate::scenario::{Commitments, SavingsPlan};

/// The account that owns everything here.
pub const ACCOUNT: &str = "111122223333";

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
#[must_use]
pub fn apply(commitments: &Commitments, used: &Used, hours: f64, on_demand: &dyn Fn(&str) -> f64) -> Applied {
    let mut applied = Applied {
        plans: vec![0.0; commitments.savings_plans.len()],
        ..Applied::default()
    };
    let bill = &mut applied.bill;
    // What is left to be covered: hours by type and zone, smallest sizes first.
    let mut left: Vec<(&Usage, f64, f64)> = Vec::new();
    for (usage, (count, price)) in used {
        bill.list += count * price;
        if usage.is_spot {
            bill.spot += count * price;
        } else {
            left.push((usage, *count, *price));
        }
    }
    left.sort_by(|a, b| {
        let factor = |one: &Usage| size_factor(&one.instance_type).unwrap_or(f64::MAX);
        factor(a.0).total_cmp(&factor(b.0)).then_with(|| a.0.cmp(b.0))
    });
    let reservations = &commitments.reserved_instances;
    for zonal in [true, false] {
        for one in reservations.iter().filter(|one| one.zone.is_some() == zonal) {
            let rate = on_demand(&one.instance_type) * (1.0 - one.discount);
            let cost = f64::from(one.count) * hours * rate;
            bill.commitments += cost;
            let mut units = f64::from(one.count) * hours;
            let own = size_factor(&one.instance_type);
            for (usage, count, _) in &mut left {
                let fits_zone = one.zone.as_ref().is_none_or(|zone| *zone == usage.zone);
                // How many of the reservations one hour of this type takes.
                let weight = if usage.instance_type == one.instance_type {
                    Some(1.0)
                } else if !zonal && family_of(&usage.instance_type) == family_of(&one.instance_type) {
                    own.zip(size_factor(&usage.instance_type))
                        .map(|(own, other)| other / own)
                } else {
                    None
                };
                let Some(weight) = weight.filter(|_| fits_zone) else {
                    continue;
                };
                let taken = count.min(units / weight);
                if taken > 0.0 {
                    *count -= taken;
                    units -= taken * weight;
                    let key = (usage.instance_type.clone(), usage.zone.clone());
                    *applied.reserved.entry(key).or_default() += taken;
                }
            }
            bill.unused += units * rate;
        }
    }
    for of_family in [true, false] {
        let plans = commitments.savings_plans.iter().zip(&mut applied.plans);
        for (plan, used) in plans.filter(|(plan, _)| plan.family.is_some() == of_family) {
            let owned = plan.commitment * hours;
            bill.commitments += owned;
            for (usage, count, price) in &mut left {
                if !covers(plan, &usage.instance_type) {
                    continue;
                }
                let rate = *price * (1.0 - plan.discount);
                let taken = count.min(((owned - *used) / rate).max(0.0));
                *count -= taken;
                *used += taken * rate;
            }
            bill.unused += owned - *used;
        }
    }
    bill.on_demand = left.iter().map(|(_, count, price)| count * price).sum();
    bill.paid = bill.spot + bill.on_demand + bill.commitments;
    applied
}

fn covers(plan: &SavingsPlan, instance_type: &str) -> bool {
    plan.family
        .as_ref()
        .is_none_or(|family| family_of(instance_type) == family)
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
        running: none(),
        freshness: none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ReservedInstances;

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
    fn without_commitments_the_list_is_paid() {
        let used = usage(&[("m5.xlarge", 3.0, 0.2)]);
        let bill = apply(&Commitments::default(), &used, 1.0, &price).bill;
        assert!((bill.paid - bill.list).abs() < 1e-12 && (bill.list - 0.6).abs() < 1e-12);
    }
}
