//! Running instances and what they cost.

use std::collections::BTreeMap;

use veneer_billing::{Basis, Bill, Commitment, Exact, Platform, Priced, UsageBill, family_of};

use super::Options;
use super::commitments::tenancy;
use super::exposition::{Exposition, Type};
use crate::instances::{InstanceView, Lifecycle};
use crate::organization::Estimate;
use crate::part::{DataKind, Rows};
use crate::store::Inventory;

/// The platform as Lumina tells it: `windows` or `linux`.
pub(super) fn platform(platform: &Platform) -> &'static str {
    let is_windows = match platform {
        Platform::Windows | Platform::WindowsByol => true,
        // The last digit of the code of a usage operation has a bit for Windows: 0006 is Windows with SQL Server.
        Platform::Other(code) => {
            let last = code.chars().last().and_then(|digit| digit.to_digit(16));
            code.len() == 4 && last.is_some_and(|digit| digit & 2 != 0)
        }
        _ => false,
    };
    if is_windows { "windows" } else { "linux" }
}

/// Running instances by id, with their accounts; each once, also if a page was told twice.
fn running(inventory: &Inventory) -> BTreeMap<&str, (&str, InstanceView<'_>)> {
    let mut running = BTreeMap::new();
    for (part, rows) in inventory.rows(DataKind::Instances) {
        if let Rows::Instances(rows) = rows {
            for row in rows.iter() {
                running.entry(row.id).or_insert((part.account.as_str(), row));
            }
        }
    }
    running
}

pub(super) fn write(
    text: &mut Exposition,
    inventory: &Inventory,
    options: &Options,
    bill: &Bill<'_>,
    estimate: &Estimate,
) {
    if options.without_instances {
        return;
    }
    let names = &options.labels;
    let running = running(inventory);
    let mut families: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    text.metric("ec2_instance", Type::Gauge);
    for (id, (account, row)) in &running {
        let machine = &row.kind.machine;
        let labels: [(&str, &str); _] = [
            (names.account_id.as_str(), *account),
            (&names.account_name, inventory.account_name(account)),
            (&names.region, &machine.region),
            ("instance_type", &machine.instance_type),
            ("availability_zone", &row.kind.zone),
            ("instance_id", id),
            ("tenancy", tenancy(machine.tenancy)),
            ("platform", platform(&machine.platform)),
        ];
        text.sample("ec2_instance", &labels, 1.0);
        let family = [
            *account,
            machine.region.as_str(),
            family_of(&machine.instance_type),
        ];
        *families.entry(family).or_default() += 1;
    }
    text.metric("ec2_instance_count", Type::Gauge);
    for ([account, region, family], count) in families {
        let labels: [(&str, &str); _] = [
            (names.account_id.as_str(), account),
            (&names.account_name, inventory.account_name(account)),
            (&names.region, region),
            ("instance_family", family),
        ];
        text.sample("ec2_instance_count", &labels, count as f64);
    }
    text.metric("ec2_instance_hourly_cost", Type::Gauge);
    for usage in bill.usages() {
        // Unused capacity reservations are no instances.
        let Some((account, row)) = running.get(usage.id()) else {
            continue;
        };
        let kind = row.kind;
        // As Lumina has it: a tag names a node only where the instance belongs to a cluster.
        let node = if kind.cluster.is_empty() {
            ""
        } else {
            row.node_name
        };
        let labels: [(&str, &str); _] = [
            ("instance_id", row.id),
            (&names.account_id, account),
            (&names.account_name, inventory.account_name(account)),
            (&names.region, &kind.machine.region),
            ("instance_type", &kind.machine.instance_type),
            ("cost_type", cost_type(kind.lifecycle, &usage)),
            ("availability_zone", &kind.zone),
            ("lifecycle", kind.lifecycle.name()),
            ("pricing_accuracy", accuracy(&usage, estimate)),
            (&names.node_name, node),
            (&names.cluster_name, &kind.cluster),
            (&names.host_name, row.private_dns_name),
        ];
        let cost = usage.effective_per_hour().to_f64();
        text.sample("ec2_instance_hourly_cost", &labels, cost);
    }
}

/// What pays the largest part of the hour; of equal parts, the one that AWS applies first. A Capacity Block has a price of its own and
/// counts as on demand.
pub(super) fn cost_type(lifecycle: Lifecycle, usage: &UsageBill<'_>) -> &'static str {
    if lifecycle == Lifecycle::Spot {
        return "spot";
    }
    let (mut reserved, mut ec2, mut compute) = (Exact::ZERO, Exact::ZERO, Exact::ZERO);
    for share in usage.shares() {
        let part = match share.basis() {
            Basis::Ec2InstancePlan => &mut ec2,
            Basis::ComputePlan => &mut compute,
            Basis::ZonalReservedInstance
            | Basis::RegionalReservedInstance
            | Basis::SizeFlexibleReservedInstance => &mut reserved,
        };
        *part = part.plus(&share.amount());
    }
    let parts = [
        ("reserved_instance", reserved),
        ("ec2_instance_savings_plan", ec2),
        ("compute_savings_plan", compute),
        ("on_demand", usage.uncovered()),
    ];
    let mut largest = ("on_demand", Exact::ZERO);
    for part in parts {
        if part.1 > largest.1 {
            largest = part;
        }
    }
    largest.0
}

/// `accurate` where every price and rate that counts comes from AWS, else `estimated`.
fn accuracy(usage: &UsageBill<'_>, estimate: &Estimate) -> &'static str {
    let is_open = usage.uncovered().is_positive();
    let has_price = usage.own_price().is_some() || !usage.list_cost().is_zero();
    let is_estimated = estimate.prices.contains(usage.id())
        || (is_open && !has_price)
        || (!estimate.rates.is_empty() && usage.shares().any(|share| is_estimated(&share, usage, estimate)));
    if is_estimated { "estimated" } else { "accurate" }
}

fn is_estimated(share: &veneer_billing::ShareBill<'_>, usage: &UsageBill<'_>, estimate: &Estimate) -> bool {
    let (Some(Commitment::Plan(plan)), veneer_billing::Covered::Instance(machine)) =
        (share.commitment(), usage.covered())
    else {
        return false;
    };
    let key = (plan.rates.clone(), Priced::Machine(machine.clone()));
    estimate.rates.contains(&key)
}
