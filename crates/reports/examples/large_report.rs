//! Writes a large, right Cost and Usage Report of a month whose hours are in no order, to measure `veneer reconcile`.
//!
//!     cargo run -p veneer-reports --example large_report -- 1000 > large.csv    # about so many MB
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that is asked how much to write"
)]

use std::error::Error;
use std::io::{self, BufWriter};

use veneer_billing::HOUR;
use veneer_reports::{CurLine, CurWriter, format_time, seconds_of_time};

const HOURS: i64 = 744;
/// Lines for one instance of each kind, and about how many bytes they have together.
const BYTES: i64 = 1450;
const RESERVED: &str = "arn:aws:ec2:us-east-1:111122223333:reserved-instances/c5";
const PLAN: &str = "arn:aws:savingsplans::111122223333:savingsplan/r5";

fn instance(kind: &str, hour: i64, instance_type: &str, id: &str, price: &str) -> CurLine {
    CurLine::new(kind, hour, hour + HOUR)
        .with("line_item_usage_account_id", "444455556666")
        .with("line_item_product_code", "AmazonEC2")
        .with("line_item_usage_type", &format!("BoxUsage:{instance_type}"))
        .with("line_item_operation", "RunInstances")
        .with("line_item_availability_zone", "us-east-1a")
        .with("line_item_resource_id", id)
        .with("line_item_usage_amount", "1.0000000000")
        .with("line_item_unblended_cost", price)
        .with("product_region_code", "us-east-1")
        .with("product_instance_type", instance_type)
        .with("pricing_public_on_demand_rate", price)
        .with("pricing_public_on_demand_cost", price)
}

fn plan(line: CurLine) -> CurLine {
    line.with("savings_plan_savings_plan_a_r_n", PLAN)
        .with("savings_plan_start_time", "2025-06-01T00:00:00Z")
        .with("savings_plan_end_time", "2026-06-01T00:00:00Z")
        .with("savings_plan_offering_type", "EC2InstanceSavingsPlans")
        .with("savings_plan_instance_type_family", "r5")
        .with("savings_plan_region", "us-east-1")
}

fn main() -> Result<(), Box<dyn Error>> {
    let megabytes: i64 = std::env::args().nth(1).unwrap_or_default().parse()?;
    let count = (megabytes * 1_000_000 / HOURS / BYTES).max(1);
    let start = seconds_of_time("2026-01-01T00:00:00Z").unwrap_or_default();
    let mut out = CurWriter::new(BufWriter::new(io::stdout().lock()))?;
    // 305 and 744 have no common divisor: every hour comes once, in no order.
    for hour in (0..HOURS).map(|number| start + number * 305 % HOURS * HOUR) {
        for number in 0..count {
            out.write(&instance(
                "Usage",
                hour,
                "m5.large",
                &format!("i-0a{number:015x}"),
                "0.0960000000",
            ))?;
            let line = instance(
                "DiscountedUsage",
                hour,
                "c5.large",
                &format!("i-0b{number:015x}"),
                "0.0850000000",
            );
            out.write(
                &line
                    .with("line_item_unblended_cost", "0.0000000000")
                    .with("line_item_normalization_factor", "4.0")
                    .with("reservation_reservation_a_r_n", RESERVED)
                    .with("reservation_effective_cost", "0.0530000000"),
            )?;
            let id = format!("i-0c{number:015x}");
            let line = instance("SavingsPlanCoveredUsage", hour, "r5.large", &id, "0.1260000000");
            out.write(
                &plan(line)
                    .with("savings_plan_savings_plan_rate", "0.0790000000")
                    .with("savings_plan_savings_plan_effective_cost", "0.0790000000"),
            )?;
            let line = instance("SavingsPlanNegation", hour, "r5.large", &id, "-0.1260000000");
            out.write(&line.with("savings_plan_savings_plan_a_r_n", PLAN))?;
        }
        let line = CurLine::new("SavingsPlanRecurringFee", hour, hour + HOUR)
            .with("line_item_usage_account_id", "111122223333")
            .with("line_item_usage_type", "EC2SP:r5.1yrNoUpfront")
            .with("line_item_usage_amount", "1")
            .with(
                "line_item_unblended_cost",
                &format!("{}.{:03}", count * 80 / 1000, count * 80 % 1000),
            )
            .with(
                "savings_plan_total_commitment_to_date",
                &format!("{}.{:03}", count * 80 / 1000, count * 80 % 1000),
            )
            .with(
                "savings_plan_used_commitment",
                &format!("{}.{:03}", count * 79 / 1000, count * 79 % 1000),
            );
        out.write(&plan(line))?;
    }
    let fee = CurLine::new("RIFee", start, start + HOURS * HOUR)
        .with("line_item_usage_account_id", "111122223333")
        .with("line_item_product_code", "AmazonEC2")
        .with("line_item_usage_type", "HeavyUsage:c5.large")
        .with("line_item_operation", "RunInstances")
        .with("line_item_usage_amount", &((count + 10) * HOURS).to_string())
        .with("line_item_unblended_rate", "0.053")
        .with("line_item_unblended_cost", &((count + 10) * HOURS).to_string())
        .with("product_region_code", "us-east-1")
        .with("product_instance_type", "c5.large")
        .with("reservation_reservation_a_r_n", RESERVED)
        .with("reservation_number_of_reservations", &(count + 10).to_string())
        .with("reservation_start_time", "2025-06-01T00:00:00Z")
        .with("reservation_end_time", &format_time(start + 5000 * HOUR))
        .with("reservation_unused_quantity", &(10 * HOURS).to_string());
    out.write(&fee)?;
    out.finish()?;
    eprintln!("{} lines", HOURS * (4 * count + 1) + 1);
    Ok(())
}
