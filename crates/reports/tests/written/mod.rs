//! Reports written from the slow second implementation of billing: its hours, as lines.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test; each test file uses a part of them"
)]

use std::collections::{BTreeMap, BTreeSet};

use veneer_billing::{Sharing, SharingMode};
use veneer_billing_reference::generated::{Kind, MILLION, START, Spec, account_name, zone_name};
use veneer_billing_reference::reference::{self, Fraction, factor, is_flexible};
use veneer_reports::{CurLine, CurWriter, MemoryStore, Reconciliation, Report, format_time};

/// A report and what it must come to.
pub(crate) struct Written {
    pub(crate) lines: Vec<CurLine>,
    /// Pairs of usage and who pays for it.
    pub(crate) pairs: usize,
    pub(crate) effective: Fraction,
    pub(crate) unused: Fraction,
}

fn money(millionths: i64) -> Fraction {
    Fraction::new(millionths, MILLION)
}

pub(crate) fn zero() -> Fraction {
    Fraction::new(0, 1)
}

const OPERATIONS: [&str; 8] = ["", ":0010", ":000g", ":0g00", ":0002", ":0800", ":mac", ":0102"];

fn machine(line: CurLine, kind: &Kind, meter: [&str; 3]) -> CurLine {
    let prefix = if kind.region == "eu-west-1" { "EUW1-" } else { "" };
    let usage_type = format!("{prefix}{}:{}", meter[kind.tenancy], kind.instance_type);
    line.with("line_item_product_code", "AmazonEC2")
        .with("line_item_usage_type", &usage_type)
        .with(
            "line_item_operation",
            &format!("RunInstances{}", OPERATIONS[kind.platform]),
        )
        .with("product_instance_type", kind.instance_type)
        .with("product_region_code", kind.region)
}

/// Plans with the same card have the same term and payment option.
fn card(line: CurLine, number: usize) -> CurLine {
    line.with("savings_plan_purchase_term", ["1yr", "3yr"][number % 2])
        .with(
            "savings_plan_payment_option",
            ["No Upfront", "All Upfront"][number / 2],
        )
}

fn plan(line: CurLine, spec: &Spec, id: &str) -> CurLine {
    let one = spec.plans.iter().find(|one| one.id == id).unwrap();
    let line = card(line, one.card)
        .with("savings_plan_savings_plan_a_r_n", id)
        .with("savings_plan_start_time", &format_time(one.term.0))
        .with("savings_plan_end_time", &format_time(one.term.1));
    match one.family {
        None => line.with("savings_plan_offering_type", "ComputeSavingsPlans"),
        Some((family, region)) => line
            .with("savings_plan_offering_type", "EC2InstanceSavingsPlans")
            .with("savings_plan_instance_type_family", family)
            .with("savings_plan_region", region),
    }
}

/// The report of so many hours from the start.
pub(crate) fn write(spec: &Spec, hours: i64) -> Written {
    let mut lines = Vec::new();
    let mut pairs = BTreeSet::new();
    let (mut effective, mut unused) = (zero(), zero());
    let mut reserved: BTreeMap<String, (Fraction, Fraction)> = BTreeMap::new();
    let find = |list: &[(String, i64)], name: &str| {
        let found = list.iter().find(|(other, _)| other == name);
        money(found.unwrap().1)
    };
    for start in (0..hours).map(|hour| START + hour * 3600) {
        let hour = reference::hour(spec, start);
        for used in &hour.usages {
            let account = account_name(used.account);
            let base = |kind: &str| {
                let line = CurLine::new(kind, start, start + 3600)
                    .with("line_item_usage_account_id", &account)
                    .with("line_item_resource_id", &used.id);
                match &used.kind {
                    Some(of) => {
                        let meter = match (used.is_unused, used.own_price) {
                            (true, _) => ["UnusedBox", "UnusedDed", "UnusedDed"],
                            (_, Some(_)) => ["SpotUsage"; 3],
                            _ => ["BoxUsage", "DedicatedUsage", "HostBoxUsage"],
                        };
                        machine(line, of, meter)
                            .with("line_item_availability_zone", &zone_name(of.region, used.zone))
                    }
                    None => {
                        let (region, usage_type) = used.name.split_once('/').unwrap();
                        let product = if usage_type.starts_with("Lambda") {
                            "AWSLambda"
                        } else {
                            "AmazonECS"
                        };
                        line.with("line_item_product_code", product)
                            .with("line_item_usage_type", usage_type)
                            .with("product_region_code", region)
                    }
                }
            };
            let price = match used.own_price {
                Some(price) => money(price),
                None => find(&spec.prices, &used.name),
            };
            let listed = |line: CurLine, amount: &Fraction| {
                let line = line.with("line_item_usage_amount", &amount.decimal());
                match used.own_price {
                    Some(_) => line,
                    None => line
                        .with("pricing_public_on_demand_rate", &price.decimal())
                        .with("pricing_public_on_demand_cost", &price.mul(amount).decimal()),
                }
            };
            for (id, amount) in &used.shares {
                pairs.insert((start, used.id.clone(), used.name.clone(), id.clone()));
                if let Some(one) = spec.reserved.iter().find(|one| one.id == *id) {
                    let kind = used.kind.as_ref().unwrap();
                    let is_flexible = one.zone.is_none() && is_flexible(&one.kind);
                    let own = factor(one.kind.instance_type).filter(|_| is_flexible);
                    let size = factor(kind.instance_type).filter(|_| is_flexible);
                    let one_hour = Fraction::new(1, 1);
                    let taken = amount
                        .mul(size.as_ref().unwrap_or(&one_hour))
                        .div(own.as_ref().unwrap_or(&one_hour));
                    let term_hours = Fraction::new(one.term.1 - one.term.0, 3600);
                    let upfront = taken.mul(&money(one.upfront)).div(&term_hours);
                    let recurring = taken.mul(&money(one.hourly));
                    let cost = upfront.add(&recurring);
                    let size = factor(kind.instance_type)
                        .map(|size| size.decimal())
                        .unwrap_or_default();
                    lines.push(
                        listed(base("DiscountedUsage"), amount)
                            .with("line_item_normalization_factor", &size)
                            .with("line_item_unblended_cost", "0")
                            .with("reservation_reservation_a_r_n", id)
                            .with("reservation_effective_cost", &cost.decimal())
                            .with("reservation_amortized_upfront_cost_for_usage", &upfront.decimal())
                            .with("reservation_recurring_fee_for_usage", &recurring.decimal()),
                    );
                    effective = effective.add(&cost);
                } else {
                    let one = spec.plans.iter().find(|one| one.id == *id).unwrap();
                    let rate = find(&spec.cards[one.card], &used.name);
                    let (cost, list) = (rate.mul(amount), price.mul(amount));
                    let covered = plan(listed(base("SavingsPlanCoveredUsage"), amount), spec, id)
                        .with("line_item_unblended_cost", &list.decimal())
                        .with("savings_plan_savings_plan_rate", &rate.decimal())
                        .with("savings_plan_savings_plan_effective_cost", &cost.decimal());
                    lines.push(covered);
                    let negation = base("SavingsPlanNegation")
                        .with("line_item_usage_amount", &amount.decimal())
                        .with("line_item_unblended_cost", &zero().sub(&list).decimal())
                        .with("savings_plan_savings_plan_a_r_n", id);
                    lines.push(negation);
                    effective = effective.add(&cost);
                }
            }
            if !used.left.is_zero() {
                pairs.insert((start, used.id.clone(), used.name.clone(), String::new()));
                let cost = price.mul(&used.left);
                lines.push(
                    listed(base("Usage"), &used.left).with("line_item_unblended_cost", &cost.decimal()),
                );
                effective = effective.add(&cost);
            }
        }
        for one in &hour.committed {
            unused = unused.add(&one.left.mul(&one.unit_cost));
            if one.is_plan {
                let of = spec.plans.iter().find(|plan| plan.id == one.id).unwrap();
                let usage_type = match of.family {
                    None => "ComputeSP:1yrNoUpfront".to_owned(),
                    Some((family, _)) => format!("EC2SP:{family}.1yrNoUpfront"),
                };
                let line = CurLine::new("SavingsPlanRecurringFee", start, start + 3600)
                    .with("line_item_usage_account_id", &account_name(of.account))
                    .with("line_item_product_code", "ComputeSavingsPlans")
                    .with("line_item_usage_type", &usage_type)
                    .with("line_item_usage_amount", "1")
                    .with("line_item_unblended_cost", &one.capacity.decimal())
                    .with("savings_plan_total_commitment_to_date", &one.capacity.decimal())
                    .with(
                        "savings_plan_used_commitment",
                        &one.capacity.sub(&one.left).decimal(),
                    );
                lines.push(plan(line, spec, &one.id));
            } else {
                let sum = reserved.entry(one.id.clone()).or_insert((zero(), zero()));
                sum.0 = sum.0.add(&one.capacity.div(&one.own));
                sum.1 = sum.1.add(&one.left.div(&one.own));
            }
        }
    }
    for (id, (amount, left)) in reserved.iter().filter(|(_, (amount, _))| !amount.is_zero()) {
        let one = spec.reserved.iter().find(|one| one.id == *id).unwrap();
        let term_hours = Fraction::new(one.term.1 - one.term.0, 3600);
        let upfront = |hours: &Fraction| hours.mul(&money(one.upfront)).div(&term_hours).decimal();
        let line = CurLine::new("RIFee", START, START + hours * 3600)
            .with("line_item_usage_account_id", &account_name(one.account))
            .with("line_item_usage_amount", &amount.decimal())
            .with("line_item_unblended_rate", &money(one.hourly).decimal())
            .with(
                "line_item_unblended_cost",
                &amount.mul(&money(one.hourly)).decimal(),
            )
            .with("reservation_reservation_a_r_n", id)
            .with("reservation_number_of_reservations", &one.count.to_string())
            .with("reservation_start_time", &format_time(one.term.0))
            .with("reservation_end_time", &format_time(one.term.1))
            .with("reservation_unused_quantity", &left.decimal())
            .with(
                "reservation_unused_recurring_fee",
                &left.mul(&money(one.hourly)).decimal(),
            )
            .with(
                "reservation_unused_amortized_upfront_fee_for_billing_period",
                &upfront(left),
            )
            .with(
                "reservation_amortized_upfront_fee_for_billing_period",
                &upfront(amount),
            );
        let line = match one.zone {
            Some(zone) => line.with("reservation_availability_zone", &zone_name(one.kind.region, zone)),
            None => line,
        };
        lines.push(machine(
            line,
            &one.kind,
            ["HeavyUsage", "DedicatedHeavyUsage", "DedicatedHeavyUsage"],
        ));
    }
    Written {
        lines,
        pairs: pairs.len(),
        effective,
        unused,
    }
}

/// How the accounts of a spec share.
pub(crate) fn sharing(spec: &Spec) -> Sharing {
    Sharing {
        mode: [
            SharingMode::Off,
            SharingMode::Organization,
            SharingMode::PrioritizedGroup,
            SharingMode::RestrictedGroup,
        ][spec.mode],
        groups: (0..)
            .zip(&spec.groups)
            .filter_map(|(account, group)| Some((account_name(account), group.as_ref()?.to_string())))
            .collect(),
        excluded: (0..spec.excluded.len())
            .filter(|one| spec.excluded[*one])
            .map(account_name)
            .collect(),
    }
}

pub(crate) fn csv(lines: &[CurLine]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CurWriter::new(&mut bytes).unwrap();
    for line in lines {
        writer.write(line).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

pub(crate) fn reconcile(lines: &[CurLine], sharing: Sharing) -> Report {
    let mut reconciliation = Reconciliation::new(MemoryStore::default(), sharing);
    reconciliation.read("report.csv", csv(lines).as_slice()).unwrap();
    reconciliation.finish(|_, _| {}).unwrap()
}
