//! The history of a world as a Cost and Usage Report, so that what it says was paid can be checked like a bill of AWS.
//!
//! A scenario must begin with a clock hour. Instances of one type, zone and purchase option are one resource; each plan has rates of its own.
//! The terms of commitments end with the report if that ends within an hour, because that hour is a part of one.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use veneer_billing::{Allocator, Commitment, Covered, Exact, HOUR};
use veneer_reports::{CurLine, format_time};

use crate::billing::{ACCOUNT, Used, organization};
use crate::world::World;

/// What was used from one moment to another, within an hour.
#[derive(Clone, Debug)]
pub struct SettledHour {
    /// From when.
    pub from: Timestamp,
    /// To when.
    pub to: Timestamp,
    /// Hours and list prices of what was used.
    pub used: Used,
}

/// What became of Reserved Instances in all hours.
#[derive(Default)]
struct ReservedSum {
    hours: Exact,
    unused: Exact,
}

impl World {
    /// The lines of the report up to now; nothing if the hours were not kept ([`World::ledger`]).
    #[must_use]
    pub fn report(&self) -> Vec<CurLine> {
        let Some(ledger) = &self.ledger else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let mut sums: BTreeMap<usize, ReservedSum> = BTreeMap::new();
        let open = self.open_ledger_hour();
        let is_whole = open.from == open.to;
        let start = self.scenario.start.as_second();
        let end = match is_whole {
            true => start + 365 * 24 * HOUR,
            false => self.now.as_second(),
        };
        let term = (format_time(start), format_time(end));
        for hour in ledger.iter().chain((!is_whole).then_some(&open)) {
            self.report_hour(hour, &term, &mut lines, &mut sums);
        }
        for (number, one) in self.scenario.commitments.reserved_instances.iter().enumerate() {
            let Some(sum) = sums.get(&number) else { continue };
            let price = self.prices.get(&one.instance_type).unwrap_or_default();
            let hourly = Exact::from_f64(price)
                .unwrap_or_default()
                .times(&Exact::ONE.minus(&Exact::from_f64(one.discount).unwrap_or_default()));
            lines.push(
                CurLine::new("RIFee", start, self.now.as_second())
                    .with("line_item_usage_account_id", ACCOUNT)
                    .with("line_item_product_code", "AmazonEC2")
                    .with(
                        "line_item_usage_type",
                        &format!("HeavyUsage:{}", one.instance_type),
                    )
                    .with("line_item_operation", "RunInstances")
                    .with("line_item_usage_amount", &sum.hours.decimal(10))
                    .with("line_item_unblended_rate", &hourly.decimal(10))
                    .with("line_item_unblended_cost", &sum.hours.times(&hourly).decimal(10))
                    .with("product_instance_type", &one.instance_type)
                    .with("product_region_code", &self.scenario.region)
                    .with(
                        "reservation_reservation_a_r_n",
                        &reserved_arn(&format!("reserved-{number:06}")),
                    )
                    .with("reservation_number_of_reservations", &one.count.to_string())
                    .with(
                        "reservation_availability_zone",
                        one.zone.as_deref().unwrap_or_default(),
                    )
                    .with("reservation_start_time", &term.0)
                    .with("reservation_end_time", &term.1)
                    .with("reservation_unused_quantity", &sum.unused.decimal(10))
                    .with(
                        "reservation_unused_recurring_fee",
                        &sum.unused.times(&hourly).decimal(10),
                    ),
            );
        }
        lines
    }

    fn report_hour(
        &self,
        hour: &SettledHour,
        term: &(String, String),
        lines: &mut Vec<CurLine>,
        sums: &mut BTreeMap<usize, ReservedSum>,
    ) {
        let seconds = hour.to.duration_since(hour.from).as_secs_f64();
        let part = Exact::from_f64(seconds / 3600.0).filter(Exact::is_positive);
        let Some(part) = part else { return };
        let price = |name: &str| self.prices.get(name).unwrap_or_default();
        let organization = organization(&self.scenario.commitments, &hour.used, &part, &price);
        let allocator = Allocator::new(&organization);
        let bill = allocator.hour(HOUR);
        let scaled = |amount: &Exact| amount.times(&part);
        let (from, to) = (hour.from.as_second(), hour.from.as_second() + HOUR);
        for usage in bill.usages() {
            let Covered::Instance(machine) = usage.covered() else {
                continue;
            };
            let is_spot = usage.own_price().is_some();
            let meter = if is_spot { "SpotUsage" } else { "BoxUsage" };
            let base = |kind: &str, amount: &Exact| {
                let line = CurLine::new(kind, from, to)
                    .with("line_item_usage_account_id", ACCOUNT)
                    .with("line_item_product_code", "AmazonEC2")
                    .with(
                        "line_item_usage_type",
                        &format!("{meter}:{}", machine.instance_type),
                    )
                    .with("line_item_operation", "RunInstances")
                    .with("line_item_availability_zone", usage.zone().unwrap_or_default())
                    .with("line_item_resource_id", usage.id())
                    .with("line_item_usage_amount", &amount.decimal(10))
                    .with("product_instance_type", &machine.instance_type)
                    .with("product_region_code", &self.scenario.region);
                match is_spot {
                    true => line,
                    false => {
                        let list = usage.list_cost().over(&usage.amount()).unwrap_or_default();
                        line.with("pricing_public_on_demand_rate", &list.decimal(10))
                            .with("pricing_public_on_demand_cost", &list.times(amount).decimal(10))
                    }
                }
            };
            for share in usage.shares() {
                let (amount, cost) = (scaled(&share.amount()), scaled(&share.cost()));
                match share.commitment() {
                    Some(Commitment::Reserved(one)) => lines.push(
                        base("DiscountedUsage", &amount)
                            .with("line_item_unblended_cost", "0")
                            .with("reservation_reservation_a_r_n", &reserved_arn(&one.id))
                            .with("reservation_effective_cost", &cost.decimal(10))
                            .with("reservation_recurring_fee_for_usage", &cost.decimal(10)),
                    ),
                    Some(Commitment::Plan(plan)) => {
                        let rate = cost.over(&amount).unwrap_or_default();
                        let line = base("SavingsPlanCoveredUsage", &amount)
                            .with("savings_plan_savings_plan_rate", &rate.decimal(10))
                            .with("savings_plan_savings_plan_effective_cost", &cost.decimal(10));
                        let list = line.get("pricing_public_on_demand_cost").to_owned();
                        lines.push(
                            self.plan(line, &plan.id, term)
                                .with("line_item_unblended_cost", &list),
                        );
                        lines.push(
                            base("SavingsPlanNegation", &amount)
                                .with("line_item_unblended_cost", &format!("-{list}"))
                                .with("savings_plan_savings_plan_a_r_n", &plan_arn(&plan.id)),
                        );
                    }
                    None => {}
                }
            }
            let left = scaled(&usage.uncovered());
            if left.is_positive() {
                let cost = scaled(&usage.uncovered_cost());
                lines.push(base("Usage", &left).with("line_item_unblended_cost", &cost.decimal(10)));
            }
        }
        for one in bill.commitments() {
            match one.commitment {
                Commitment::Reserved(reserved) => {
                    let number = reserved
                        .id
                        .rsplit('-')
                        .next()
                        .and_then(|number| number.parse().ok());
                    let sum = sums.entry(number.unwrap_or_default()).or_default();
                    sum.hours = sum.hours.plus(&rounded(&scaled(&one.capacity)));
                    sum.unused = sum.unused.plus(&rounded(&scaled(&one.left())));
                }
                Commitment::Plan(plan) => {
                    let committed = scaled(&one.capacity).decimal(10);
                    let line = CurLine::new("SavingsPlanRecurringFee", from, to)
                        .with("line_item_usage_account_id", ACCOUNT)
                        .with("line_item_product_code", "ComputeSavingsPlans")
                        .with("line_item_usage_type", "ComputeSP:1yrNoUpfront")
                        .with("line_item_usage_amount", "1")
                        .with("line_item_unblended_cost", &committed)
                        .with("savings_plan_total_commitment_to_date", &committed)
                        .with("savings_plan_used_commitment", &scaled(&one.used).decimal(10));
                    lines.push(self.plan(line, &plan.id, term));
                }
            }
        }
    }

    /// A line of a plan, with what the plan is.
    fn plan(&self, line: CurLine, id: &str, term: &(String, String)) -> CurLine {
        let number: Option<usize> = id.rsplit('-').next().and_then(|number| number.parse().ok());
        let plan = number.and_then(|number| self.scenario.commitments.savings_plans.get(number));
        let line = line
            .with("savings_plan_savings_plan_a_r_n", &plan_arn(id))
            .with("savings_plan_start_time", &term.0)
            .with("savings_plan_end_time", &term.1);
        match plan.and_then(|plan| plan.family.as_deref()) {
            Some(family) => line
                .with("savings_plan_offering_type", "EC2InstanceSavingsPlans")
                .with("savings_plan_instance_type_family", family)
                .with("savings_plan_region", &self.scenario.region),
            None => line.with("savings_plan_offering_type", "ComputeSavingsPlans"),
        }
    }
}

/// Sums of many fractions stay short.
fn rounded(amount: &Exact) -> Exact {
    Exact::parse(&amount.decimal(12)).unwrap_or_default()
}

fn reserved_arn(id: &str) -> String {
    format!("arn:aws:ec2::{ACCOUNT}:reserved-instances/{id}")
}

fn plan_arn(id: &str) -> String {
    format!("arn:aws:savingsplans::{ACCOUNT}:savingsplan/{id}")
}
