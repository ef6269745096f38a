//! Karpenter's side: a process that answers one scenario at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Answer;
use super::{Facts, Scenario};
use crate::harness::{oracle, oracle_program};

/// How long an oracle without input may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The oracle's programs, built.
pub struct Programs {
    /// Karpenter as it is.
    pub karpenter: PathBuf,
    /// Karpenter with the order of Go's maps taken out.
    pub ordered: PathBuf,
}

impl Programs {
    /// Builds what is missing.
    pub fn build() -> Result<Self> {
        Ok(Self {
            karpenter: oracle()?,
            ordered: oracle_program("ordered")?,
        })
    }
}

/// A running oracle; it ends with its owner.
pub struct Oracle {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a> {
    #[serde(flatten)]
    scenario: &'a Scenario,
    repeat: usize,
}

#[derive(Deserialize)]
struct Answers {
    #[serde(flatten)]
    first: Answer,
    #[serde(default)]
    others: Vec<Answer>,
}

impl Oracle {
    /// Starts `program` with the catalogue of `facts`.
    pub fn start(program: &Path, facts: &Facts) -> Result<Self> {
        let mut child = Command::new(program)
            .arg("schedule")
            .arg("-catalog")
            .arg(&facts.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the oracle has no output")?);
        Ok(Self {
            child,
            questions,
            answers,
        })
    }

    /// The different answers that Karpenter gives when it schedules the scenario `repeat` times.
    pub fn ask(&mut self, scenario: &Scenario, repeat: usize) -> Result<Vec<Answer>> {
        let questions = self.questions.as_mut().context("the oracle has no input")?;
        let mut line = serde_json::to_vec(&Question { scenario, repeat })?;
        line.push(b'\n');
        questions.write_all(&line)?;
        questions.flush()?;
        let mut text = String::new();
        if self.answers.read_line(&mut text)? == 0 {
            bail!("the oracle has ended");
        }
        let value: Value = serde_json::from_str(&text).context("reading the oracle's answer")?;
        if let Some(fault) = value.get("error").or(value.get("panic")) {
            bail!("the oracle fails: {fault}");
        }
        let answers: Answers = serde_json::from_value(value)?;
        let mut all = vec![answers.first];
        all.extend(answers.others);
        for claim in all.iter_mut().flat_map(|answer| &mut answer.new_node_claims) {
            claim.requirements.sort();
        }
        Ok(all)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Without input it ends by itself, and writes what it has counted if it counts coverage; one that is stuck is
        // ended. Killing and waiting fail only if it has ended meanwhile.
        self.questions = None;
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
