//! `veneer reconcile` and `veneer savings` on files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use std::io::Write;
use std::path::Path;

use support::{root, veneer, veneer_at};

const EXAMPLES: &str = "crates/reports/tests/examples";

/// Two instances, one of them under a plan; with a mistake if asked for.
fn report(is_wrong: bool) -> String {
    let mut text = "line_item_line_item_type,line_item_usage_start_date,line_item_usage_end_date,line_item_usage_account_id,\
        line_item_usage_type,line_item_operation,line_item_availability_zone,line_item_resource_id,line_item_usage_amount,\
        line_item_unblended_cost,product_region_code,pricing_public_on_demand_rate,savings_plan_savings_plan_a_r_n,\
        savings_plan_savings_plan_rate,savings_plan_savings_plan_effective_cost,savings_plan_total_commitment_to_date,\
        savings_plan_used_commitment,savings_plan_start_time,savings_plan_end_time,savings_plan_offering_type\n"
        .to_owned();
    let plan = "arn:aws:savingsplans::111122223333:savingsplan/1";
    let term = "2026-01-01T00:00:00Z,2026-01-20T00:00:00Z,ComputeSavingsPlans";
    for hour in 0..3 {
        let time = format!(
            "2026-01-05T0{hour}:00:00Z,2026-01-05T0{}:00:00Z,111122223333",
            hour + 1
        );
        let meter = if is_wrong && hour == 1 {
            "SpotUsage"
        } else {
            "BoxUsage"
        };
        text.push_str(&format!(
            "SavingsPlanCoveredUsage,{time},{meter}:m5.large,RunInstances,us-east-1a,i-1,1,0.096,us-east-1,0.096,{plan},0.06,0.06,,,{term}\n\
             Usage,{time},BoxUsage:c5.large,RunInstances,us-east-1a,i-2,1,0.085,us-east-1,0.085,,,,,,,,\n\
             SavingsPlanRecurringFee,{time},ComputeSP:1yrNoUpfront,,,,1,0.08,,,{plan},,,0.08,0.06,{term}\n"
        ));
    }
    text
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_right_bill_is_exit_code_0_and_a_mistake_is_1_and_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let right = veneer(&[
        "reconcile",
        "--cur",
        &file(folder.path(), "right.csv", &report(false)),
    ]);
    assert_eq!(right.code, 0, "{}", right.all());
    insta::assert_snapshot!("right", right.out);
    let wrong = file(folder.path(), "wrong.csv", &report(true));
    let wrong = veneer(&["reconcile", "--cur", &wrong, "-o", "json"]);
    assert_eq!(wrong.code, 1, "{}", wrong.all());
    let json = wrong.json();
    assert_eq!(json["mistakes"][0]["kind"], "plan-on-spot");
    assert!(
        json["mistakes"][0]["examples"][0]["place"]
            .as_str()
            .unwrap()
            .ends_with("wrong.csv:5")
    );
    assert_eq!(json["lineHours"]["unexplained"], 0);
}

#[test]
fn gzip_folders_and_several_files_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let text = report(false);
    let (header, rest) = text.split_once('\n').unwrap();
    let (first, second) = rest.split_at(rest.find("SavingsPlanCoveredUsage,2026-01-05T01").unwrap());
    let (first, second) = (format!("{header}\n{first}"), format!("{header}\n{second}"));
    let plain = file(folder.path(), "a.csv", &first);
    let packed = folder.path().join("b.csv.gz");
    let mut gzip = flate2::write::GzEncoder::new(
        std::fs::File::create(&packed).unwrap(),
        flate2::Compression::fast(),
    );
    gzip.write_all(second.as_bytes()).unwrap();
    gzip.finish().unwrap();
    let whole = file(&tempfile::tempdir().unwrap().keep(), "whole.csv", &text);
    let expected = veneer(&["reconcile", "--cur", &whole, "-o", "json"]).json();
    for paths in [
        vec![plain.as_str(), packed.to_str().unwrap()],
        vec![folder.path().to_str().unwrap()],
    ] {
        let mut arguments = vec!["reconcile", "-o", "json", "--cur"];
        arguments.extend(paths);
        let said = veneer(&arguments);
        assert_eq!(said.code, 0, "{}", said.all());
        assert_eq!(said.json(), expected);
    }
}

#[test]
fn the_documented_examples_are_right() {
    let said = veneer(&[
        "reconcile",
        "--cur",
        &format!("{EXAMPLES}/w24-an-m4-xlarge-under-two-m4-large.csv"),
    ]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert!(root().join(EXAMPLES).is_dir());
}

#[test]
fn what_cannot_be_read_is_exit_code_2_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            file(folder.path(), "bad.csv", "a,b\n1,2\n"),
            "column line_item_line_item_type is missing",
        ),
        (
            file(folder.path(), "p.parquet", "PAR1...."),
            "is Parquet, which is not read",
        ),
        (file(folder.path(), "empty.csv", ""), "is empty"),
        (
            folder.path().join("none.csv").display().to_string(),
            "cannot read",
        ),
    ];
    for (path, expected) in &cases {
        let said = veneer(&["reconcile", "--cur", path]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{path}");
        assert!(said.err.contains(expected), "{}", said.err);
    }
    let said = veneer(&["reconcile", "--cur", &cases[0].0, "--sharing", "restricted"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--group"), "{}", said.err);
}

#[test]
fn savings_says_what_is_used_wasted_and_ending() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "bill.csv", &report(false));
    let said = veneer(&["savings", "--cur", &path]);
    assert_eq!(said.code, 0, "{}", said.all());
    insta::assert_snapshot!("savings", said.out);
    let said = veneer(&["savings", "--cur", &path, "--fail-on-waste", "10", "-o", "json"]);
    assert_eq!(said.code, 1, "{}", said.all());
    let json = said.json();
    assert_eq!(json["unusedPercent"], 25.0);
    assert_eq!(json["byCommitment"][0]["endsSoon"], true);
    assert_eq!(json["uncovered"][0]["family"], "c5");
    assert_eq!(json["byDay"][0]["name"], "2026-01-05");
    assert_eq!(
        veneer(&["savings", "--cur", &path, "--fail-on-waste", "30%"]).code,
        0
    );
    let said = veneer(&["savings", "--cur", &path, "--fail-on-waste", "a lot"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("such as 10 or 10%"), "{}", said.err);
    for format in ["csv", "markdown", "html"] {
        let said = veneer(&["savings", "--cur", &path, "-o", format]);
        assert_eq!(said.code, 0, "{}", said.all());
        insta::assert_snapshot!(format!("savings_{format}"), said.out);
    }
}

#[test]
fn help_is_as_it_was() {
    for command in ["reconcile", "savings"] {
        let said = veneer_at(100, &[command, "--help"]);
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(format!("help_{command}"), said.out);
    }
}

#[test]
fn the_bill_of_a_scenario_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.csv").display().to_string();
    let scenario = "examples/scenarios/plan-fills-up.yaml";
    let said = veneer(&[
        "simulate",
        "--scenario",
        scenario,
        "--duration",
        "2h",
        "--cur",
        &path,
        "-o",
        "json",
    ]);
    assert_eq!(said.code, 0, "{}", said.all());
    let paid = said.json()[0]["summary"]["cost"]["paid"].as_f64().unwrap();
    let said = veneer(&["reconcile", "--cur", &path, "-o", "json"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let json = said.json();
    let billed =
        json["total"]["effective"]["billed"].as_f64().unwrap() + json["unused"]["billed"].as_f64().unwrap();
    assert!((billed - paid).abs() < 0.005, "{billed} is not {paid}");
    // The third way to the same number: what the report of savings adds up.
    let said = veneer(&["savings", "--cur", &path, "-o", "json"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let json = said.json();
    let number = |name: &str| json[name].as_f64().unwrap();
    assert!(
        (number("paid") - paid).abs() < 0.005,
        "{} is not {paid}",
        number("paid")
    );
    let without_commitments = number("list") + number("spot") - number("saved");
    assert!(
        (without_commitments - paid).abs() < 0.005,
        "{without_commitments} is not {paid}"
    );
}
