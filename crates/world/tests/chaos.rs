//! Thousands of small worlds in which everything goes wrong, and the invariants that hold all the same; and that they
//! notice mistakes that are put in on purpose.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests fail as tests do, and ask how many histories there shall be"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use veneer_world::chaos::{Bug, History, Report, run, shrink};

/// How many histories; the long run asks for more.
fn histories() -> u64 {
    let asked = std::env::var("VENEER_HISTORIES").ok();
    asked.map_or(1_000, |text| text.parse().unwrap())
}

#[test]
fn no_history_breaks_an_invariant() {
    let (next, count) = (AtomicU64::new(1), histories());
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > count {
                        return;
                    }
                    let outcome = run(&History::new(seed)).unwrap();
                    report.lock().unwrap().add(seed, &outcome);
                }
            });
        }
    });
    let report = report.into_inner().unwrap();
    if let Some((seed, what)) = report.failed.iter().min() {
        let smallest = shrink(&History::new(*seed)).unwrap();
        panic!(
            "{} of {} histories fail; seed {seed}: {what}\n  {}",
            report.failed.len(),
            report.histories,
            smallest.command()
        );
    }
    println!(
        "{} histories, {} steps, {} passes",
        report.histories, report.steps, report.passes
    );
    assert!(
        report.steps >= count * 500,
        "only {} steps in {count} histories",
        report.steps
    );
}

/// Histories that once broke an invariant: a replacement beyond the limits of its pool; a launch under way during a kill
/// that no longer counted when its type ran short; pods with a hard spread that were nominated for one node (1, 15, 37); pods that
/// consolidation moved again and again to where kube-scheduler did not put them (60); extra nodes in a zone that did not help (1545).
#[test]
fn histories_that_were_broken_hold() {
    for seed in [18_103, 5_971, 1, 15, 37, 60, 1_545] {
        let outcome = run(&History::new(seed)).unwrap();
        assert!(
            outcome.violation.is_none(),
            "seed {seed}: {:?}",
            outcome.violation
        );
    }
}

#[test]
fn every_bug_that_is_put_in_is_noticed() {
    for bug in Bug::ALL {
        let found = (1..=400).find_map(|seed| {
            let history = History {
                bug: Some(bug),
                ..History::new(seed)
            };
            let violation = run(&history).unwrap().violation?;
            Some((seed, violation.what))
        });
        let (seed, what) = found.unwrap_or_else(|| panic!("{bug:?} is not noticed"));
        println!("{bug:?}: history {seed}: {what}");
    }
}

#[test]
fn a_history_is_the_same_every_time() {
    let history = History::new(42);
    let (one, other) = (run(&history).unwrap(), run(&history).unwrap());
    assert!(one.log == other.log && one.steps == other.steps);
    assert!(one.log.contains("the controllers are killed"));
}
