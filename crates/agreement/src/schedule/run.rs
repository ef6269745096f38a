//! Runs many scenarios and counts what came out, per constraint.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::judge::{Judge, Verdict};
use super::oracle::Programs;
use super::{Constraint, Facts, Scenario, generate};

/// How many differences are kept in full; the rest is only counted.
const KEPT_DIFFERENCES: usize = 20;

/// Which scenarios to run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Where they come from.
    pub seed: u64,
    /// Their numbers under the seed.
    pub numbers: Range<u64>,
    /// The one constraint that they have, if not a mix.
    pub only: Option<Constraint>,
    /// How many are run at once, each with an oracle of its own.
    pub jobs: usize,
    /// Whether an answer that is only as good as Karpenter's is a difference.
    pub strict: bool,
    /// Whether scenarios on which both sides differ are made smaller.
    pub shrink: bool,
}

/// What came out, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Karpenter repeats itself, and we say the same.
    pub same: u64,
    /// It does not, and our answer is one of its answers.
    pub one_of: u64,
    /// It does not, and our answer is what it gives when ties are taken in order.
    pub ordered: u64,
    /// It does not, and our answer is as good.
    pub as_good: u64,
    /// We differ.
    pub differs: u64,
}

impl Tally {
    /// All scenarios.
    #[must_use]
    pub fn cases(&self) -> u64 {
        self.same + self.one_of + self.ordered + self.as_good + self.differs
    }

    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Same => self.same += 1,
            Verdict::OneOf => self.one_of += 1,
            Verdict::Ordered => self.ordered += 1,
            Verdict::AsGood => self.as_good += 1,
            Verdict::Differs(_) => self.differs += 1,
        }
    }
}

/// A scenario on which both sides differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Its number under the seed.
    pub number: u64,
    /// What it exercises.
    pub constraints: Vec<Constraint>,
    /// Where we differ.
    pub details: Vec<String>,
    /// Whether Karpenter gives one answer every time.
    pub repeats: bool,
    /// The scenario, made smaller if that was asked for.
    pub scenario: Scenario,
}

/// What a run gave.
#[derive(Debug, Default)]
pub struct Report {
    /// All scenarios.
    pub total: Tally,
    /// Scenarios with this constraint alone.
    pub alone: BTreeMap<Constraint, Tally>,
    /// Scenarios with this constraint and others.
    pub combined: BTreeMap<Constraint, Tally>,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// Scenarios that the oracle refused, with its reason.
    pub refused: Vec<(u64, String)>,
    /// Pods that were to be scheduled, and how many were.
    pub pods: u64,
    /// Those of them that Karpenter could not place.
    pub unschedulable: u64,
    /// Time that Karpenter's scheduler took, once per scenario.
    pub their_ms: f64,
    /// Time that ours took.
    pub our_ms: f64,
    /// The whole run.
    pub elapsed: Duration,
}

/// Called with the scenarios done and those that differ.
pub(super) type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Runs scenarios through both sides.
pub fn run(facts: &Facts, selection: &Selection, progress: Progress<'_>) -> Result<Report> {
    let started = Instant::now();
    let programs = Programs::build()?;
    let report = Mutex::new(Report::default());
    let next = AtomicU64::new(selection.numbers.start);
    let work = || -> Result<()> {
        let mut judge = Judge::new(facts, &programs, selection.strict)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= selection.numbers.end {
                return Ok(());
            }
            one(facts, &mut judge, selection, number, &report)?;
            if let Ok(report) = report.lock() {
                progress(report.total.cases(), report.total.differs);
            }
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..selection.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().ok().context("a worker panicked")??;
        }
        Ok(())
    })?;
    let mut report = report.into_inner().ok().context("a worker panicked")?;
    report.differences.sort_by_key(|difference| difference.number);
    report.elapsed = started.elapsed();
    Ok(report)
}

fn one(
    facts: &Facts,
    judge: &mut Judge<'_>,
    selection: &Selection,
    number: u64,
    report: &Mutex<Report>,
) -> Result<()> {
    let (constraints, scenario) = generate(facts, selection.seed, number, selection.only);
    let judged = judge.judge(&scenario);
    let constraints: Vec<Constraint> = constraints.into_iter().collect();
    let mut difference = None;
    if let Ok(judgement) = &judged
        && let Verdict::Differs(details) = &judgement.verdict
    {
        let kept = report
            .lock()
            .is_ok_and(|report| report.differences.len() < KEPT_DIFFERENCES);
        let smallest = if selection.shrink && kept {
            judge.shrink(&scenario)?
        } else {
            scenario.clone()
        };
        difference = Some(Difference {
            number,
            constraints: constraints.clone(),
            details: details.clone(),
            repeats: judgement.theirs.len() == 1,
            scenario: smallest,
        });
    }
    let mut report = report.lock().ok().context("a worker panicked")?;
    let judgement = match judged {
        Ok(judgement) => judgement,
        Err(fault) => {
            report.refused.push((number, format!("{fault:#}")));
            return Ok(());
        }
    };
    report.total.count(&judgement.verdict);
    let [alone] = constraints.as_slice() else {
        for constraint in &constraints {
            report
                .combined
                .entry(*constraint)
                .or_default()
                .count(&judgement.verdict);
        }
        return finish(&mut report, &scenario, &judgement, difference);
    };
    report.alone.entry(*alone).or_default().count(&judgement.verdict);
    finish(&mut report, &scenario, &judgement, difference)
}

fn finish(
    report: &mut Report,
    scenario: &Scenario,
    judgement: &super::judge::Judgement,
    difference: Option<Difference>,
) -> Result<()> {
    report.pods += scenario.pending() as u64;
    if let Some(first) = judgement.theirs.first() {
        report.their_ms += first.solve_ms;
        report.unschedulable += first.unschedulable.len() as u64;
    }
    report.our_ms += judgement.ours.solve_ms;
    if report.differences.len() < KEPT_DIFFERENCES {
        report.differences.extend(difference);
    }
    Ok(())
}

/// Holds Karpenter's own answers against the checker, which must find nothing in them.
pub fn check_theirs(facts: &Facts, selection: &Selection) -> Result<Vec<(u64, Vec<String>)>> {
    let mut theirs = super::Oracle::start(&Programs::build()?.karpenter, facts)?;
    let mut found = Vec::new();
    for number in selection.numbers.clone() {
        let (_, scenario) = generate(facts, selection.seed, number, selection.only);
        for answer in theirs.ask(&scenario, 1)? {
            let violations = super::violations(facts, &scenario, &answer)?;
            if !violations.is_empty() {
                found.push((number, violations));
            }
        }
    }
    Ok(found)
}
