//! Runs generated cases through the oracle and collects differences.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Rng;

/// How many differences are kept in full; the rest is only counted.
const KEPT_DIFFERENCES: usize = 20;

/// One kind of question that both sides answer.
pub trait Subject: Sync {
    /// What is asked.
    type Case: Serialize;
    /// What the oracle says.
    type Answer: DeserializeOwned;

    /// The oracle's verb and its flags.
    fn arguments(&self) -> Vec<String>;

    /// The case of a stream.
    fn generate(&self, rng: &mut Rng) -> Self::Case;

    /// Where our answer differs; empty if it does not.
    fn differences(&self, case: &Self::Case, answer: &Self::Answer) -> Vec<String>;
}

/// A case on which the two sides differ.
#[derive(Debug)]
pub struct Difference {
    /// The number of the case under its seed.
    pub number: u64,
    /// What the oracle was asked.
    pub case: String,
    /// What it said.
    pub answer: String,
    /// Where we differ.
    pub details: Vec<String>,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases compared.
    pub cases: u64,
    /// Cases that differ.
    pub differing: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Called with the cases done, the cases that differ and the time taken so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64, Duration);

/// Builds the oracle if needed and gives its path. `VENEER_ORACLE` names another build of it, e.g. one that counts
/// coverage.
pub fn oracle() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("VENEER_ORACLE") {
        return Ok(PathBuf::from(path));
    }
    oracle_program("karpenter")
}

/// The same for the program that asks the AWS provider.
pub fn aws_oracle() -> Result<PathBuf> {
    oracle_program("aws")
}

/// Builds one of the oracle's programs if needed and gives its path.
pub(crate) fn oracle_program(name: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/build");
    let output = Command::new(&script)
        .arg(name)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    ensure!(
        output.status.success(),
        "{} failed; it needs Go 1.26 or later",
        script.display()
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// The folder of Karpenter's module: its catalogue and CRDs are data that tests read.
pub fn karpenter_module() -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle"))
        .stderr(Stdio::inherit())
        .output()
        .context("running go; it needs Go 1.26 or later")?;
    ensure!(output.status.success(), "go does not find Karpenter's module");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Compares the cases `numbers` of `seed`.
pub fn check<S: Subject>(
    subject: &S,
    oracle: &Path,
    seed: u64,
    numbers: std::ops::Range<u64>,
    progress: Progress<'_>,
) -> Result<Report> {
    let started = Instant::now();
    let mut child = Reaped(
        Command::new(oracle)
            .args(subject.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", oracle.display()))?,
    );
    let questions = child.0.stdin.take().context("the oracle has no input")?;
    let answers = BufReader::new(child.0.stdout.take().context("the oracle has no output")?);
    let asked = numbers.clone();
    let mut report = Report::default();
    std::thread::scope(|scope| -> Result<()> {
        // Cases are generated on both sides of the pipe: that is cheaper than keeping those under way.
        let writer = scope.spawn(move || -> Result<()> {
            let mut questions = BufWriter::new(questions);
            for number in asked {
                serde_json::to_writer(&mut questions, &subject.generate(&mut Rng::new(seed, number)))?;
                questions.write_all(b"\n")?;
            }
            Ok(questions.flush()?)
        });
        let mut answers = answers.lines();
        for number in numbers.clone() {
            let Some(answer) = answers.next() else { break };
            compare(subject, seed, number, answer?, &mut report)?;
            if report.cases.is_multiple_of(1000) {
                progress(report.cases, report.differing, started.elapsed());
            }
        }
        // Without a reader the writer would wait for ever.
        drop(answers);
        match writer.join() {
            Ok(written) => written.context("asking the oracle"),
            Err(_) => bail!("generating cases panicked"),
        }
    })?;
    let status = child.0.wait()?;
    let expected = numbers.end.saturating_sub(numbers.start);
    ensure!(
        status.success() && report.cases == expected,
        "the oracle ended ({status}) after {} of {expected} answers",
        report.cases
    );
    report.elapsed = started.elapsed();
    Ok(report)
}

fn compare<S: Subject>(
    subject: &S,
    seed: u64,
    number: u64,
    answer: String,
    report: &mut Report,
) -> Result<()> {
    let case = subject.generate(&mut Rng::new(seed, number));
    let details = match serde_json::from_str::<S::Answer>(&answer) {
        Ok(typed) => subject.differences(&case, &typed),
        Err(error) => match serde_json::from_str::<Value>(&answer) {
            Ok(failed) if failed.get("error").or(failed.get("panic")).is_some() => {
                vec!["the oracle failed on this case".to_owned()]
            }
            _ => return Err(error).with_context(|| format!("reading the answer {answer:?}")),
        },
    };
    report.cases += 1;
    if !details.is_empty() {
        report.differing += 1;
        if report.differences.len() < KEPT_DIFFERENCES {
            let case = serde_json::to_string(&case)?;
            report.differences.push(Difference {
                number,
                case,
                answer,
                details,
            });
        }
    }
    Ok(())
}

/// A child that never outlives its owner.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // Both fail only if the child has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Notes a difference between what the oracle says and what we say.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers compare temporaries and references alike"
)]
pub(crate) fn differ<T: PartialEq + std::fmt::Debug>(
    details: &mut Vec<String>,
    what: impl FnOnce() -> String,
    oracle: T,
    ours: T,
) {
    if oracle != ours {
        details.push(format!("{}: the oracle says {oracle:?}, we say {ours:?}", what()));
    }
}
