//! Bills written from the slow second implementation agree with the replay in every line-hour within a millionth of a dollar.
//!
//! 200 days and 3 months by default; `VENEER_RECONCILE_DAYS=10000 VENEER_RECONCILE_MONTHS=200` ask for more.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the test asks how many bills there shall be; helpers fail the test"
)]

mod written;

use veneer_billing_reference::generated::Chance;
use veneer_billing_reference::periods;
use veneer_reports::Report;

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn agree(seed: u64, hours: i64) -> (Report, usize) {
    let spec = periods::spec(seed, hours);
    let mut bill = written::write(&spec, hours);
    // Reports are not sorted.
    Chance(seed).shuffle(&mut bill.lines);
    let report = written::reconcile(&bill.lines, written::sharing(&spec));
    let near = |a: f64, b: &str| (a - b.parse::<f64>().unwrap()).abs() < 1e-5;
    assert!(report.is_right(), "bill {seed}: {report:#?}\n{spec:#?}");
    assert_eq!(report.line_hours.compared, bill.pairs as u64, "bill {seed}");
    assert_eq!(
        report.line_hours.agreed, bill.pairs as u64,
        "bill {seed}: {report:#?}"
    );
    for (ours, theirs) in [
        (report.total.effective.billed, &bill.effective),
        (report.total.effective.replayed, &bill.effective),
        (report.unused.billed, &bill.unused),
        (report.unused.replayed, &bill.unused),
    ] {
        assert!(
            near(ours, &theirs.decimal()),
            "bill {seed}: {ours} is not {}",
            theirs.decimal()
        );
    }
    (report, bill.lines.len())
}

#[test]
fn generated_days_agree_in_every_line_hour() {
    let days = asked("VENEER_RECONCILE_DAYS", 200);
    let (mut line_hours, mut lines, mut covered, mut with_unused) = (0, 0, 0, 0);
    for seed in 0..days {
        let (report, count) = agree(seed, 24);
        line_hours += report.line_hours.compared;
        lines += count;
        covered += u64::from(report.total.covered.billed > 0.0);
        with_unused += u64::from(report.unused.billed > 0.0);
    }
    println!(
        "{days} days, {lines} lines, {line_hours} line-hours; {covered} days with covered usage, {with_unused} with waste"
    );
    assert!(
        covered * 3 > days && with_unused * 3 > days,
        "the days have hardly any commitments"
    );
}

#[test]
fn generated_months_agree_in_every_line_hour() {
    let months = asked("VENEER_RECONCILE_MONTHS", 3);
    let mut line_hours = 0;
    for seed in 0..months {
        line_hours += agree(1_000_000 + seed, 720).0.line_hours.compared;
    }
    println!("{months} months, {line_hours} line-hours");
}
