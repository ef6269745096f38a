//! The simulation as tests: histories without a violation, the same history from the same seed, and bugs that must be noticed.

use std::time::Instant;

use super::bugs::Bug;
use super::history::{Outcome, play};

/// Bugs that only many histories show, so that `./test full` looks for them.
const FOUND_LATE: [Bug; 4] = [
    Bug::VersionsOnlyGrow,
    Bug::ConflictNotRead,
    Bug::LaunchNeverExpires,
    Bug::TrustsPodWatch,
];

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Shows a history again, with everything that happened in it.
fn show(seed: u64, bug: Option<Bug>) -> Outcome {
    let outcome = play(seed, bug, true);
    for line in &outcome.log {
        println!("{line}");
    }
    outcome
}

#[test]
fn rude_servers_break_nothing() {
    let steps = number("VENEER_DRIVER_STEPS", 20_000);
    let first = number("VENEER_DRIVER_SEED", 1);
    let began = Instant::now();
    let (mut done, mut histories) = (0, 0);
    while done < steps {
        let seed = first + histories;
        let outcome = play(seed, None, false);
        done += outcome.steps;
        histories += 1;
        if let Some(violation) = outcome.violation {
            show(seed, None);
            panic!("seed {seed}: {violation} (VENEER_DRIVER_SEED={seed} shows this history again)");
        }
    }
    println!("{done} steps in {histories} histories, {:.1?}", began.elapsed());
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 1..3 {
        let (one, other) = (play(seed, None, true), play(seed, None, true));
        for (line, again) in one.log.iter().zip(&other.log) {
            assert_eq!(line, again, "seed {seed}");
        }
        assert_eq!(one, other, "seed {seed}");
    }
}

/// With `VENEER_DRIVER_SEARCH` all bugs are looked for in so many histories; else those that need few.
#[test]
fn bugs_in_the_drivers_are_noticed() {
    const FEW: u64 = 10;
    let most = number("VENEER_DRIVER_SEARCH", FEW);
    let mut missed = Vec::new();
    let is_wanted = |bug: &Bug| most > FEW || !FOUND_LATE.contains(bug);
    for bug in Bug::ALL.into_iter().filter(is_wanted) {
        let began = Instant::now();
        let found = (1..=most).find_map(|seed| Some((seed, play(seed, Some(bug), false).violation?)));
        match found {
            Some((histories, violation)) => {
                println!(
                    "{bug:?}: {histories} histories, {:.1?}: {violation}",
                    began.elapsed()
                );
            }
            None => {
                println!("{bug:?}: not in {most} histories, {:.1?}", began.elapsed());
                missed.push(bug);
            }
        }
    }
    assert!(missed.is_empty(), "not noticed in {most} histories: {missed:?}");
}
