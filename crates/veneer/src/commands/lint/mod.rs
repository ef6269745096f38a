//! `veneer lint`: judges manifests, for a pull request.

mod formats;
mod pools;
mod reach;
mod refused;
mod sarif;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use veneer_api::NodeOverlay;
use veneer_api::admission::Admission;
use veneer_engine::instance_type::Catalogue;
use veneer_engine::overlay::advice::Level;
use veneer_engine::overlay::nearest;

use crate::finding::{Finding, Rule};
use crate::input::objects::{Objects, Sourced};
use crate::input::{CatalogueArgs, from_files_with_raw};
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

    /// Whose CRDs the cluster has: Karpenter's (companion) or Veneer's own (standalone)
    #[arg(long, value_enum, default_value = "companion", env = "VENEER_MODE")]
    mode: ModeChoice,

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
enum ModeChoice {
    Companion,
    Standalone,
}

impl From<ModeChoice> for veneer_api::Mode {
    fn from(choice: ModeChoice) -> Self {
        match choice {
            ModeChoice::Companion => Self::Companion,
            ModeChoice::Standalone => Self::Standalone,
        }
    }
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
    // Karpenter's charts refuse labels of the provider's domain that it does not set; our own CRDs do so on demand.
    let provider = match args.mode {
        ModeChoice::Companion => Some(args.catalogue.provider()),
        ModeChoice::Standalone => None,
    };
    let admission = Admission::new(args.mode.into(), provider).context("our own CRDs")?;
    let mut objects = from_files_with_raw(&args.files)?;
    objects.settle();
    let pools = objects.node_pools.len();
    objects.add_preferences();
    let mut err = io::stderr().lock();
    let source = args.catalogue.load(&objects)?;
    let mut findings = judge(&mut objects, Arc::new(source.catalogue), args.tie_break)?;
    refused::add(
        objects.raw.as_deref().unwrap_or_default(),
        &admission,
        &mut findings,
    );
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
    let code = if findings.iter().any(|finding| finding.rule == Rule::Unreadable) {
        ExitCode::from(2)
    } else if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    };
    write(&mut out, args.output, &findings)?;
    let is_preference = |overlay: &&Sourced<NodeOverlay>| overlay.origin.made_of.is_some();
    let preferences = objects.node_overlays.iter().filter(is_preference).count();
    writeln!(
        err,
        "{}; checked {pools} NodePools{}, {} NodeOverlays, {} Overprovisioners",
        formats::summary(&findings),
        match preferences {
            0 => String::new(),
            1 => " with 1 preference".to_owned(),
            more => format!(" with {more} preferences"),
        },
        objects.node_overlays.len() - preferences,
        objects.overprovisioners.len()
    )?;
    for note in output::ignored(&objects).iter().chain(&source.notes) {
        writeln!(err, "note: {note}")?;
    }
    Ok(code)
}

fn write(out: &mut impl Write, format: Format, findings: &[Finding]) -> Result<()> {
    match format {
        Format::Text => formats::text(out, findings)?,
        Format::Json => formats::json(out, findings)?,
        Format::Sarif => sarif::write(out, findings)?,
        Format::Github => formats::github(out, findings)?,
    }
    Ok(out.flush()?)
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
    findings.extend(reach::node_pools(&objects.node_pools, &catalogue));
    findings.extend(reach::overlays(&objects.node_overlays));
    findings.extend(reach::overprovisioners(
        &objects.overprovisioners,
        &objects.node_pools,
    ));
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
