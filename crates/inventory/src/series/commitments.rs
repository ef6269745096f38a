//! Savings Plans and Reserved Instances.

use std::collections::{BTreeMap, HashMap};

use veneer_billing::{
    Bill, Commitment, CommitmentBill, Exact, HOUR, Interval, PlanKind, ReservedInstances, SavingsPlan, State,
    Tenancy, family_of,
};

use super::Options;
use super::exposition::{Exposition, Type};
use crate::part::{DataKind, Rows};
use crate::store::Inventory;

/// The name of a tenancy, as EC2 has it.
pub(super) fn tenancy(tenancy: Tenancy) -> &'static str {
    match tenancy {
        Tenancy::Default => "default",
        Tenancy::Dedicated => "dedicated",
        Tenancy::Host => "host",
    }
}

fn plan_type(plan: &SavingsPlan) -> &'static str {
    match plan.kind {
        PlanKind::Ec2Instance { .. } => "ec2_instance",
        PlanKind::Compute => "compute",
    }
}

/// Plans that count now, by ARN.
fn plans(inventory: &Inventory, now: i64) -> BTreeMap<&str, &SavingsPlan> {
    let rows = inventory
        .rows(DataKind::SavingsPlans)
        .filter_map(|(_, rows)| match rows {
            Rows::SavingsPlans(rows) => Some(rows),
            _ => None,
        });
    current(rows.flatten(), now, |plan| (&plan.id, plan.state, plan.term))
}

/// Reserved Instances that count now, by id.
fn reserved(inventory: &Inventory, now: i64) -> BTreeMap<&str, &ReservedInstances> {
    let rows = inventory
        .rows(DataKind::ReservedInstances)
        .filter_map(|(_, rows)| match rows {
            Rows::ReservedInstances(rows) => Some(rows),
            _ => None,
        });
    current(rows.flatten(), now, |one| (&one.id, one.state, one.term))
}

/// The commitments that count now, by id; each once, whoever tells of it.
fn current<'a, T>(
    rows: impl Iterator<Item = &'a T>,
    now: i64,
    about: fn(&'a T) -> (&'a str, State, Interval),
) -> BTreeMap<&'a str, &'a T> {
    let mut found = BTreeMap::new();
    for row in rows {
        let (id, state, term) = about(row);
        if state.counts() && term.contains(now) {
            found.entry(id).or_insert(row);
        }
    }
    found
}

pub(super) fn write(
    text: &mut Exposition,
    inventory: &Inventory,
    options: &Options,
    bill: &Bill<'_>,
    now: i64,
) {
    let bills: HashMap<&str, CommitmentBill<'_>> =
        bill.commitments().map(|one| (one.commitment.id(), one)).collect();
    write_plans(text, inventory, options, &bills, now);
    write_reserved(text, inventory, options, &bills, now);
    write_costs(text, inventory, options, &bills);
}

fn write_plans(
    text: &mut Exposition,
    inventory: &Inventory,
    options: &Options,
    bills: &HashMap<&str, CommitmentBill<'_>>,
    now: i64,
) {
    let names = &options.labels;
    let plans = plans(inventory, now);
    text.metric("savings_plan_hourly_commitment", Type::Gauge);
    for plan in plans.values() {
        let (family, region) = match &plan.kind {
            PlanKind::Ec2Instance { family, region } => (family.as_str(), region.as_str()),
            PlanKind::Compute => ("all", "all"),
        };
        let labels: [(&str, &str); _] = [
            ("savings_plan_arn", plan.id.as_str()),
            (&names.account_id, &plan.account),
            (&names.account_name, inventory.account_name(&plan.account)),
            ("type", plan_type(plan)),
            (&names.region, region),
            ("instance_family", family),
        ];
        let commitment = plan.commitment.to_f64();
        text.sample("savings_plan_hourly_commitment", &labels, commitment);
    }
    type Value = fn(&SavingsPlan, Option<&CommitmentBill<'_>>, i64) -> Option<f64>;
    let families: [(&'static str, Value); 4] = [
        ("savings_plan_remaining_hours", |plan, _, now| {
            let seconds = plan.term.end.saturating_sub(now).max(0);
            Some(seconds as f64 / HOUR as f64)
        }),
        ("savings_plan_current_utilization_rate", |_, bill, _| {
            bill.map(|bill| bill.used.to_f64())
        }),
        ("savings_plan_remaining_capacity", |_, bill, _| {
            bill.map(|bill| bill.left().to_f64())
        }),
        ("savings_plan_utilization_percent", |_, bill, _| {
            // A plan of nothing is used up.
            let share = bill.map(|bill| bill.utilization().unwrap_or(Exact::ONE));
            share.map(|share| share.times_whole(100).to_f64())
        }),
    ];
    for (name, value) in families {
        text.metric(name, Type::Gauge);
        for plan in plans.values() {
            let labels: [(&str, &str); _] = [
                ("savings_plan_arn", plan.id.as_str()),
                (&names.account_id, &plan.account),
                (&names.account_name, inventory.account_name(&plan.account)),
                ("type", plan_type(plan)),
            ];
            if let Some(value) = value(plan, bills.get(plan.id.as_str()), now) {
                text.sample(name, &labels, value);
            }
        }
    }
}

/// How many, and how many of those are unused.
#[derive(Default)]
struct Count {
    owned: u64,
    unused: Exact,
}

fn write_reserved(
    text: &mut Exposition,
    inventory: &Inventory,
    options: &Options,
    bills: &HashMap<&str, CommitmentBill<'_>>,
    now: i64,
) {
    let names = &options.labels;
    let reserved = reserved(inventory, now);
    let mut present: BTreeMap<[&str; 4], ()> = BTreeMap::new();
    let mut families: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    let mut exact: BTreeMap<([&str; 4], String, &str), Count> = BTreeMap::new();
    for one in reserved.values() {
        let machine = &one.machine;
        let place = [
            one.account.as_str(),
            &machine.region,
            &machine.instance_type,
            one.zone.as_deref().unwrap_or_default(),
        ];
        present.insert(place, ());
        let family = [
            &one.account,
            machine.region.as_str(),
            family_of(&machine.instance_type),
        ];
        *families.entry(family).or_default() += u64::from(one.count);
        let key = (place, machine.platform.to_string(), tenancy(machine.tenancy));
        let count = exact.entry(key).or_default();
        count.owned += u64::from(one.count);
        if let Some(bill) = bills.get(one.id.as_str()) {
            count.unused = count.unused.plus(&bill.left());
        }
    }
    text.metric("ec2_reserved_instance", Type::Gauge);
    for [account, region, instance_type, zone] in present.into_keys() {
        let labels: [(&str, &str); _] = [
            (names.account_id.as_str(), account),
            (&names.account_name, inventory.account_name(account)),
            (&names.region, region),
            ("instance_type", instance_type),
            ("availability_zone", zone),
        ];
        text.sample("ec2_reserved_instance", &labels, 1.0);
    }
    text.metric("ec2_reserved_instance_count", Type::Gauge);
    for ([account, region, family], count) in families {
        let labels: [(&str, &str); _] = [
            (names.account_id.as_str(), account),
            (&names.account_name, inventory.account_name(account)),
            (&names.region, region),
            ("instance_family", family),
        ];
        text.sample("ec2_reserved_instance_count", &labels, count as f64);
    }
    for (name, value) in [
        (
            "veneer_reserved_instances",
            (|count| count.owned as f64) as fn(&Count) -> f64,
        ),
        ("veneer_reserved_instances_unused", |count| count.unused.to_f64()),
    ] {
        text.metric(name, Type::Gauge);
        for (([account, region, instance_type, zone], platform, tenancy), count) in &exact {
            let labels: [(&str, &str); _] = [
                (names.account_id.as_str(), *account),
                (&names.account_name, inventory.account_name(account)),
                (&names.region, region),
                ("instance_type", instance_type),
                ("availability_zone", zone),
                ("platform", platform),
                ("tenancy", tenancy),
            ];
            text.sample(name, &labels, value(count));
        }
    }
}

fn write_costs(
    text: &mut Exposition,
    inventory: &Inventory,
    options: &Options,
    bills: &HashMap<&str, CommitmentBill<'_>>,
) {
    let names = &options.labels;
    let bills: BTreeMap<&str, &CommitmentBill<'_>> = bills.iter().map(|(id, bill)| (*id, bill)).collect();
    for (name, value) in [
        (
            "veneer_commitment_dollars",
            (|bill| bill.cost.to_f64()) as fn(&CommitmentBill<'_>) -> f64,
        ),
        ("veneer_commitment_unused_dollars", |bill| {
            bill.unused_cost().to_f64()
        }),
    ] {
        text.metric(name, Type::Gauge);
        for (id, bill) in &bills {
            let (kind, region) = match bill.commitment {
                Commitment::Reserved(one) => ("reserved_instance", one.machine.region.as_str()),
                Commitment::Plan(plan) => match &plan.kind {
                    PlanKind::Ec2Instance { region, .. } => (plan_type(plan), region.as_str()),
                    PlanKind::Compute => (plan_type(plan), "all"),
                },
            };
            let account = bill.commitment.account();
            let labels: [(&str, &str); _] = [
                ("commitment", *id),
                (&names.account_id, account),
                (&names.account_name, inventory.account_name(account)),
                ("type", kind),
                (&names.region, region),
            ];
            text.sample(name, &labels, value(bill));
        }
    }
}
