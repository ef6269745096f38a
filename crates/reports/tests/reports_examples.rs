//! AWS's documented examples of report lines (W22–W29, W31) as files, FOCUS, and what cannot be read.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "the test reads its files; helpers fail the test"
)]

use std::path::Path;

use veneer_billing::Sharing;
use veneer_reports::{MemoryStore, Reconciliation, Report};

fn read(name: &str, text: &str) -> Result<Report, String> {
    let mut reconciliation = Reconciliation::new(MemoryStore::default(), Sharing::default());
    reconciliation
        .read(name, text.as_bytes())
        .map_err(|error| error.to_string())?;
    Ok(reconciliation.finish(|_, _| {}).unwrap())
}

fn example(name: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/examples/{name}.csv"));
    let report = read(name, &std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(report.is_right(), "{name}: {report:#?}");
    report
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.005, "{found} is not {expected}");
}

#[test]
fn w22_and_w23_fees_of_a_month() {
    near(example("w22-fee-of-an-m4-large").commitments[0].cost, 22.9896);
    near(example("w23-fee-of-an-m4-xlarge").commitments[0].cost, 45.9792);
}

#[test]
fn w24_an_m4_xlarge_under_two_m4_large_is_two_lines_of_half_an_hour() {
    let report = example("w24-an-m4-xlarge-under-two-m4-large");
    assert_eq!((report.hours, report.line_hours.agreed), (1, 2));
    for one in &report.commitments {
        near(one.used.replayed, 0.0309);
        near(one.unused.replayed, 0.0);
    }
}

#[test]
fn w25_to_w27_effective_and_unused_cost_of_a_c3_8xlarge() {
    let all = example("w25-a-c3-8xlarge-used-all-month");
    near(all.total.effective.billed, 79.4);
    near(all.unused.billed, 0.0);
    // AWS's own numbers: 64.4 recurring; the upfront fee is spread evenly over the hours.
    let part = example("w26-a-c3-8xlarge-used-644-hours");
    near(part.total.effective.billed, 64.4 + 5.0 * 644.0 / 744.0);
    near(part.unused.billed, 10.0 + 5.0 * 100.0 / 744.0);
    let small = example("w27-c3-large-on-a-c3-8xlarge");
    near(small.total.effective.billed, 4.025 + 5.0 * 40.25 / 744.0);
    near(small.unused.billed, 70.375 + 5.0 * 703.75 / 744.0);
}

#[test]
fn w28_and_w31_used_and_unused_hours_of_a_capacity_reservation() {
    let report = example("w28-a-capacity-reservation-of-20-with-15");
    assert_eq!(report.line_hours.agreed, 16);
    near(report.total.on_demand.replayed, 2.0);
    let report = example("w31-a-capacity-reservation-of-10-with-2");
    assert_eq!(report.line_hours.agreed, 3);
    near(report.total.on_demand.replayed, 1.0);
}

#[test]
fn w29_a_day_and_15_minutes() {
    let report = example("w29-24-hours-and-15-minutes");
    assert_eq!((report.hours, report.line_hours.agreed), (25, 25));
    near(report.total.on_demand.replayed, 2.425);
}

const FOCUS: &str = "ChargeCategory,ChargePeriodStart,ChargePeriodEnd,SubAccountId,BilledCost,EffectiveCost,ListCost,ListUnitPrice,\
ConsumedQuantity,RegionId,AvailabilityZone,ResourceId,CommitmentDiscountId,CommitmentDiscountType,CommitmentDiscountStatus,\
x_UsageType,x_Operation,x_ServiceCode\n";

/// Three hours of an m5.large under a plan of 0.08 with a rate of 0.06, and of an m5.xlarge that gets the rest.
fn focus(is_wrong: bool) -> String {
    let mut text = FOCUS.to_owned();
    for hour in 0..3 {
        let time = format!("2026-01-01T0{hour}:00:00Z,2026-01-01T0{}:00:00Z", hour + 1);
        let is_wrong = is_wrong && hour == 1;
        let (small, large) = if is_wrong { ("", "sp-1") } else { ("sp-1", "sp-1") };
        let plan = |arn: &str| match arn {
            "" => ",,".to_owned(),
            arn => format!("{arn},Savings Plan,Used"),
        };
        let mut line = |amount: &str, billed: &str, cost: &str, price: &str, size: &str, arn: &str| {
            text.push_str(&format!(
                "Usage,{time},111122223333,{billed},{cost},,{price},{amount},us-east-1,us-east-1a,i-{size},{},BoxUsage:m5.{size},RunInstances,AmazonEC2\n",
                plan(arn)
            ));
        };
        if is_wrong {
            line("1", "0.096", "0.096", "0.096", "large", small);
            line("0.6153846154", "0", "0.08", "0.192", "xlarge", large);
            line(
                "0.3846153846",
                "0.0738461538",
                "0.0738461538",
                "0.192",
                "xlarge",
                "",
            );
        } else {
            line("1", "0", "0.06", "0.096", "large", small);
            line("0.1538461538", "0", "0.02", "0.192", "xlarge", large);
            line(
                "0.8461538462",
                "0.1624615385",
                "0.1624615385",
                "0.192",
                "xlarge",
                "",
            );
        }
        text.push_str(&format!(
            "Usage,{time},111122223333,0,0,,,,us-east-1,,sp-1,sp-1,Savings Plan,Unused,ComputeSP:1yrNoUpfront,,ComputeSavingsPlans\n"
        ));
    }
    text
}

#[test]
fn focus_is_known_by_its_header_and_replayed_alike() {
    let report = read("focus.csv", &focus(false)).unwrap();
    assert!(report.is_right(), "{report:#?}");
    assert_eq!((report.hours, report.line_hours.agreed), (3, 9));
    let report = read("focus.csv", &focus(true)).unwrap();
    let kinds: Vec<&str> = report.mistakes.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["lower-saving-first"], "{report:#?}");
}

#[test]
fn what_cannot_be_read_is_named_with_its_place_and_a_way_out() {
    let header = "line_item_line_item_type,line_item_usage_start_date,line_item_usage_account_id,line_item_usage_type,\
                  line_item_usage_amount,line_item_unblended_cost\n";
    let cases = [
        (
            "a,b\n1,2\n".to_owned(),
            "x.csv, line 1: column line_item_line_item_type is missing (found 2 columns, the first is \"a\")",
        ),
        (
            format!("{header}Usage,yesterday,1,BoxUsage:m5.large,1,0.1\n"),
            "x.csv, line 2, column line_item_usage_start_date: found \"yesterday\", expected a time like",
        ),
        (
            format!("{header}Usage,2026-01-01T00:00:00Z,1,BoxUsage:m5.large,\"1,5\",0.1\n"),
            "x.csv, line 2, column line_item_usage_amount: found \"1,5\", expected a number like",
        ),
        (
            format!("{header}Usage,2026-01-01T00:00:00Z,1,BoxUsage:m5.large,1\n"),
            "x.csv, line 2: found 5 values, expected 6 as in the header",
        ),
    ];
    for (text, expected) in cases {
        let found = read("x.csv", &text).unwrap_err();
        assert!(found.starts_with(expected), "{found}");
        assert!(found.contains("; "), "there is no way out: {found}");
    }
}
