//! `veneer lint`: judges manifests, for a pull request.

mod formats;
mod pools;
mod sarif;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::advice::Level;
use veneer_engine::overlay::nearest;

use crate::finding::{Finding, Rule};
use crate::input::objects::Objects;
use crate::input::{CatalogueArgs, from_files};
use crate::output;
use crate::preview::{Preview, TieBreak};

/// Checks NodeOverlays, NodePools and Overprovisioners in files, for a pull request
///
/// Finds what the API server or Karpenter would refuse, and what they accept but nobody means: overlays that match
/// nothing, conflicts, prices that stop spot launches. `--rules` lists the checks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer lint -f manifests/
  veneer lint -f manifests/ --level error -o github
  veneer lint -f manifests/ -o sarif > veneer.sarif

Exit codes: 0 no finding at or above --level, 1 there are some, 2 bad usage or unreadable input.")]
pub(crate) struct LintArgs {
    /// File or folder of YAML or JSON; `-` is standard input
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "PATH",
        required_unless_present = "rules"
    )]
    files: Vec<PathBuf>,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// Findings below this level are not reported and do not fail the check
    #[arg(long, value_enum, default_value = "warning")]
    level: LevelChoice,

    /// Leaves out findings of these rules
    #[arg(long, value_delimiter = ',', value_name = "RULE")]
    ignore: Vec<String>,

    /// Which of two overlays of the same weight comes first
    #[arg(
        long,
        value_enum,
        default_value = "reverse-alphabetical",
        value_name = "ORDER"
    )]
    tie_break: TieBreak,

    /// Output format; github writes annotations of a GitHub workflow
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,

    /// Lists the rules and exits
    #[arg(long)]
    rules: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LevelChoice {
    Error,
    Warning,
    Info,
}

impl From<LevelChoice> for Level {
    fn from(choice: LevelChoice) -> Self {
        match choice {
            LevelChoice::Error => Self::Error,
            LevelChoice::Warning => Self::Warning,
            LevelChoice::Info => Self::Info,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
    Github,
}

pub(crate) fn run(args: &LintArgs) -> Result<ExitCode> {
    let mut out = output::stdout();
    if args.rules {
        formats::rules(&mut out)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    check_rules(&args.ignore)?;
    let mut objects = from_files(&args.files)?;
    objects.settle();
    let pools = objects.node_pools.len();
    let mut err = io::stderr().lock();
    let source = args.catalogue.load(&objects)?;
    let mut findings = judge(&mut objects, Arc::new(source.catalogue), args.tie_break)?;
    let level = Level::from(args.level);
    findings.retain(|finding| {
        finding.level() >= level && !args.ignore.iter().any(|rule| rule == finding.rule.id())
    });
    findings.sort_by(|a, b| {
        let key = |finding: &Finding| {
            (
                finding.file.clone(),
                finding.line,
                std::cmp::Reverse(finding.level()),
                finding.rule,
            )
        };
        key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
    });
    match args.output {
        Format::Text => formats::text(&mut out, &findings)?,
        Format::Json => formats::json(&mut out, &findings)?,
        Format::Sarif => sarif::write(&mut out, &findings)?,
        Format::Github => formats::github(&mut out, &findings)?,
    }
    out.flush()?;
    writeln!(
        err,
        "{}; checked {pools} NodePools, {} NodeOverlays, {} Overprovisioners",
        formats::summary(&findings),
        objects.node_overlays.len(),
        objects.overprovisioners.len()
    )?;
    for note in output::ignored(&objects).iter().chain(&source.notes) {
        writeln!(err, "note: {note}")?;
    }
    Ok(
        if findings.iter().any(|finding| finding.rule == Rule::Unreadable) {
            ExitCode::from(2)
        } else if findings.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        },
    )
}

fn check_rules(ignored: &[String]) -> Result<()> {
    for name in ignored {
        if !Rule::all().any(|rule| rule.id() == name) {
            let hint = nearest(name, Rule::all().map(Rule::id)).map(|near| format!("; did you mean {near}?"));
            bail!(
                "--ignore: there is no rule {name:?}{} --rules lists them",
                hint.unwrap_or_else(|| ";".to_owned())
            );
        }
    }
    Ok(())
}

/// Everything that is to be said about the objects.
fn judge(objects: &mut Objects, catalogue: Arc<Catalogue>, tie_break: TieBreak) -> Result<Vec<Finding>> {
    let mut findings = objects.findings.clone();
    findings.extend(pools::node_pools(&objects.node_pools, &catalogue));
    findings.extend(pools::overprovisioners(
        &objects.overprovisioners,
        &objects.node_pools,
    ));
    if objects.node_pools.is_empty() {
        objects.node_pools = pools::assumed(&objects.node_overlays, &catalogue.rules)?;
    }
    let preview = Preview::new(objects, catalogue, tie_break);
    findings.extend((0..preview.overlays.len()).flat_map(|at| preview.findings(at)));
    Ok(findings)
}
