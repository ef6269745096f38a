//! `agreement schedule`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use veneer_agreement::schedule::{
    Constraint, Difference, Facts, Judge, Programs, Report, Scenario, Selection, Tally, check_theirs,
    generate, run as run_selection,
};

/// How many sentences are shown of one difference.
const SHOWN_DETAILS: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many scenarios
    #[arg(long, default_value_t = 10_000)]
    cases: u64,
    /// Where the scenarios come from; random if not given, and always printed
    #[arg(long)]
    seed: Option<u64>,
    /// Only scenarios with this constraint alone
    #[arg(long, value_name = "CONSTRAINT")]
    only: Option<Constraint>,
    /// Only the scenario of this number
    #[arg(long, value_name = "NUMBER")]
    case: Option<u64>,
    /// Prints the scenario of --case instead of asking anybody
    #[arg(long, requires = "case")]
    print: bool,
    /// A scenario from a file, instead of generated ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["case", "only", "seed"])]
    file: Option<PathBuf>,
    /// Holds Karpenter's own answers against the checker instead
    #[arg(long)]
    check_karpenter: bool,
    /// How many scenarios at once, each with an oracle process of its own
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Takes an answer that is only as good as Karpenter's different ones for a difference
    #[arg(long)]
    strict: bool,
    /// Leaves scenarios on which both sides differ as large as they are
    #[arg(long)]
    no_shrink: bool,
    /// Writes every differing scenario that is shown into this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let facts = Facts::load()?;
    if let Some(file) = &arguments.file {
        return one(&facts, file, arguments);
    }
    let seed = arguments.seed.unwrap_or_else(super::random_seed);
    if let (Some(number), true) = (arguments.case, arguments.print) {
        let (_, scenario) = generate(&facts, seed, number, arguments.only);
        serde_json::to_writer_pretty(std::io::stdout().lock(), &scenario)?;
        return Ok(ExitCode::SUCCESS);
    }
    let selection = Selection {
        seed,
        numbers: arguments
            .case
            .map_or(0..arguments.cases, |number| number..number + 1),
        only: arguments.only,
        jobs: if arguments.case.is_some() {
            1
        } else {
            arguments.jobs
        },
        strict: arguments.strict,
        shrink: !arguments.no_shrink,
    };
    if arguments.check_karpenter {
        let found = check_theirs(&facts, &selection)?;
        let mut out = std::io::stdout().lock();
        for (number, violations) in &found {
            writeln!(out, "--case {number}: {}", violations.join("; "))?;
        }
        writeln!(
            out,
            "seed {seed}: the checker objects to {} of Karpenter's answers",
            found.len()
        )?;
        return Ok(if found.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let live = std::io::stderr().is_terminal();
    let report = run_selection(&facts, &selection, &|done, differing| {
        if live {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r{done} scenarios, {differing} differ ");
            let _ = err.flush();
        }
    })?;
    if live {
        writeln!(std::io::stderr())?;
    }
    if let Some(folder) = &arguments.keep {
        keep(&report, seed, folder)?;
    }
    print(&report, seed, arguments.only)
}

/// Judges a scenario from a file and shows both answers.
fn one(facts: &Facts, file: &PathBuf, arguments: &Arguments) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let scenario: Scenario =
        serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))?;
    let mut judge = Judge::new(facts, &Programs::build()?, arguments.strict)?;
    let judgement = judge.judge(&scenario)?;
    let mut out = std::io::stdout().lock();
    let details = judgement.verdict.details();
    writeln!(
        out,
        "Karpenter gave {} different answers; the first:",
        judgement.theirs.len()
    )?;
    writeln!(out, "{}", serde_json::to_string(&judgement.theirs.first())?)?;
    writeln!(out, "ours:\n{}", serde_json::to_string(&judgement.ours)?)?;
    for detail in details {
        writeln!(out, "  {detail}")?;
    }
    if details.is_empty() {
        writeln!(out, "{:?}", judgement.verdict)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.no_shrink {
        let smallest = judge.shrink(&scenario)?;
        writeln!(
            out,
            "smallest part that differs:\n{}",
            serde_json::to_string(&smallest)?
        )?;
    }
    Ok(ExitCode::FAILURE)
}

fn keep(report: &Report, seed: u64, folder: &PathBuf) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for difference in &report.differences {
        let name = folder.join(format!("{seed}-{}", difference.number));
        std::fs::write(
            name.with_extension("json"),
            serde_json::to_string_pretty(&difference.scenario)?,
        )?;
        std::fs::write(name.with_extension("txt"), describe(difference))?;
    }
    Ok(())
}

fn describe(difference: &Difference) -> String {
    let names: Vec<_> = difference
        .constraints
        .iter()
        .map(|constraint| constraint.name())
        .collect();
    let mut details = difference.details.clone();
    if details.len() > SHOWN_DETAILS {
        let more = details.len() - SHOWN_DETAILS;
        details.truncate(SHOWN_DETAILS);
        details.push(format!("and {more} more"));
    }
    format!("{}\n{}\n", names.join(" "), details.join("\n"))
}

fn print(report: &Report, seed: u64, only: Option<Constraint>) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let alone = only.map_or_else(String::new, |constraint| format!(" --only {}", constraint.name()));
    for difference in &report.differences {
        writeln!(
            out,
            "--seed {seed}{alone} --case {}: {}",
            difference.number,
            describe(difference)
        )?;
        writeln!(out, "  {}\n", serde_json::to_string(&difference.scenario)?)?;
    }
    for (number, reason) in &report.refused {
        writeln!(
            out,
            "--seed {seed}{alone} --case {number} could not be asked: {reason}"
        )?;
    }
    writeln!(
        out,
        "{:<26}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}  agree",
        "", "cases", "same", "one of", "ordered", "as good", "differ"
    )?;
    for (title, tallies) in [("alone", &report.alone), ("with others", &report.combined)] {
        if !tallies.is_empty() {
            writeln!(out, "{title}")?;
        }
        for (constraint, tally) in tallies {
            row(&mut out, &format!("  {}", constraint.name()), tally)?;
        }
    }
    row(&mut out, "all", &report.total)?;
    writeln!(
        out,
        "seed {seed}, {:.1} s; {} pods, {} unschedulable; scheduling took Karpenter {:.1} s and us {:.3} s",
        report.elapsed.as_secs_f64(),
        report.pods,
        report.unschedulable,
        report.their_ms / 1000.0,
        report.our_ms / 1000.0,
    )?;
    let agreed = report.total.differs == 0 && report.refused.is_empty();
    Ok(if agreed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn row(out: &mut impl Write, name: &str, tally: &Tally) -> Result<()> {
    let cases = tally.cases();
    let agreed = 100.0 * (cases - tally.differs) as f64 / cases.max(1) as f64;
    writeln!(
        out,
        "{name:<26}{cases:>8}{:>8}{:>8}{:>8}{:>8}{:>8}  {agreed:.2} %",
        tally.same, tally.one_of, tally.ordered, tally.as_good, tally.differs
    )?;
    Ok(())
}
