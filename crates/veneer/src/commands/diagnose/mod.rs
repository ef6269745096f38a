//! `veneer diagnose`: what overlays do to prices and capacity, before they are applied.

mod csv;
mod report;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use veneer_engine::catalogue::selector::Selector;
use veneer_engine::overlay::advice::Level;
use veneer_engine::overlay::nearest;

use crate::finding::{Finding, Rule};
use crate::input::objects::{Named, Objects, Sourced};
use crate::input::{CatalogueArgs, ManifestArgs};
use crate::output::{self, Timing};
use crate::preview::{Preview, TieBreak};
use report::{Filter, Report};

/// Shows what NodeOverlays do to prices and capacity, before they are applied
///
/// Reads NodePools and NodeOverlays from the live cluster, or from files with -f, and evaluates them as Karpenter
/// would. Every row is an offering of a NodePool with its list price, its price, the overlay that sets it and the
/// resources that overlays add. Nothing is written to the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  karpenteradm diagnose --type instance-type --overlay discount device --nodepool default
  veneer diagnose -f manifests/ --propose discount.yaml --changed-only --sort saving
  veneer diagnose -f manifests/ --type overlay -o json

Exit codes: 0 fine, 2 bad usage or input (what can be read is shown all the same).")]
pub(crate) struct DiagnoseArgs {
    /// What a row is about
    #[arg(
        long = "type",
        value_enum,
        default_value = "instance-type",
        value_name = "TYPE"
    )]
    subject: Subject,

    /// Shows what these overlays match (several names may follow); the others still take part
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "NAME")]
    overlay: Vec<String>,

    /// Shows these NodePools (several names may follow)
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "NAME")]
    nodepool: Vec<String>,

    #[command(flatten)]
    manifests: ManifestArgs,

    #[command(flatten)]
    catalogue: CatalogueArgs,

    /// Shows what the label selector matches: = != in notin > <, and short names such as cpu, arch or zone
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    selector: String,

    /// Leaves out offerings that no overlay changes
    #[arg(long)]
    changed_only: bool,

    /// Shows offerings in tables that the NodePool's own requirements exclude, too
    #[arg(long)]
    all: bool,

    /// Order of the rows of a NodePool; saving is the list price less the price, largest first
    #[arg(long, value_enum, default_value = "name")]
    sort: Sort,

    /// Which of two overlays of the same weight comes first
    #[arg(
        long,
        value_enum,
        default_value = "reverse-alphabetical",
        value_name = "ORDER"
    )]
    tie_break: TieBreak,

    /// Output format; table puts zones of the same price into one row, wide has every offering and who lost
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,

    /// Adds how long it took and how much memory
    #[arg(long)]
    timing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    InstanceType,
    Overlay,
    Nodepool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Price,
    Saving,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Csv,
}

pub(crate) fn run(args: &DiagnoseArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let selector = Selector::parse(&args.selector)?;
    let objects = args.manifests.load()?;
    let source = args.manifests.described();
    check_names(&args.nodepool, &objects.node_pools, &source)?;
    check_names(&args.overlay, &objects.node_overlays, &source)?;
    if objects.node_pools.is_empty() {
        tell(&mut io::stderr().lock(), objects.findings.iter())?;
        bail!(
            "there is no NodePool in {source}; overlays act on the offerings of NodePools, so give one with -f or --propose"
        );
    }
    let loaded = args.catalogue.load(&objects)?;
    let mut catalogue = loaded.catalogue;
    let selected = selector.requirements(&mut catalogue)?;
    let load_ms = output::milliseconds(started);

    let started = Instant::now();
    let preview = Preview::new(&objects, Arc::new(catalogue), args.tie_break);
    let overlay_ms = output::milliseconds(started);
    let filter = Filter {
        overlays: &args.overlay,
        pools: &args.nodepool,
        selected: &selected,
        changed_only: args.changed_only,
        // Programs get everything, with a mark; people get what the pool can launch.
        launchable_only: !args.all && matches!(args.output, Format::Table | Format::Wide),
    };
    let mut report = Report::new(&preview, args.subject, args.sort, &filter);
    let timing = args.timing.then(|| Timing::new(load_ms, overlay_ms));
    let mut out = output::stdout();
    match args.output {
        Format::Table | Format::Wide => table::write(&mut out, &report, args.output == Format::Wide)?,
        Format::Json => {
            report.timing = timing.clone();
            output::json(&mut out, &report)?;
        }
        Format::Yaml => {
            report.timing = timing.clone();
            output::yaml(&mut out, &report)?;
        }
        Format::Csv => csv::write(&mut out, &report)?,
    }
    out.flush()?;

    let mut err = io::stderr().lock();
    let shown = |name: &str| args.overlay.is_empty() || args.overlay.iter().any(|wanted| wanted == name);
    let advice: Vec<Finding> = (0..preview.overlays.len())
        .filter(|at| {
            preview
                .overlays
                .get(*at)
                .is_some_and(|overlay| shown(overlay.name()))
        })
        .flat_map(|at| preview.findings(at))
        .filter(|finding| finding.level() >= Level::Warning || args.subject == Subject::Overlay)
        .collect();
    tell(&mut err, objects.findings.iter().chain(&advice))?;
    if matches!(args.output, Format::Table | Format::Wide) {
        for note in notes(&objects, &report, &loaded.notes) {
            writeln!(err, "note: {note}")?;
        }
        if let Some(timing) = timing {
            writeln!(err, "note: {timing}")?;
        }
    }
    let all = (0..preview.overlays.len()).flat_map(|at| preview.findings(at));
    let broken = objects
        .findings
        .iter()
        .cloned()
        .chain(all)
        .any(|finding| is_bad_input(&finding));
    Ok(if broken {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

/// Whether an object could not be used as it is.
pub(crate) fn is_bad_input(finding: &Finding) -> bool {
    matches!(
        finding.rule,
        Rule::Unreadable | Rule::MalformedObject | Rule::UnsupportedVersion | Rule::InvalidField
    )
}

fn check_names<T: Named>(wanted: &[String], objects: &[Sourced<T>], source: &str) -> Result<()> {
    for name in wanted {
        if objects.iter().any(|object| object.name() == name) {
            continue;
        }
        let names: Vec<&str> = objects.iter().map(Sourced::name).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        let there = if names.is_empty() {
            "There is none at all".to_owned()
        } else {
            format!("There are: {}", names.join(", "))
        };
        bail!("there is no {} {name:?} in {source}{hint} {there}", T::KIND);
    }
    Ok(())
}

/// How bad a finding is here: an error is what makes the command fail, so what was read all the same is a warning.
fn level(finding: &Finding) -> Level {
    match finding.level() {
        Level::Error if !is_bad_input(finding) => Level::Warning,
        level => level,
    }
}

/// Findings on standard error, worst first.
pub(crate) fn tell<'a>(err: &mut impl Write, findings: impl Iterator<Item = &'a Finding>) -> Result<()> {
    let mut findings: Vec<&Finding> = findings.collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(level(finding)));
    for finding in findings {
        let (level, rule, place) = (level(finding), finding.rule.id(), finding.place());
        writeln!(err, "{level}[{rule}]: {place}: {}", finding.sentence())?;
        if !finding.fix.is_empty() {
            writeln!(err, "  fix: {}", finding.fix)?;
        }
    }
    Ok(())
}

fn notes(objects: &Objects, report: &Report, of_catalogue: &[String]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    if report.hidden > 0 {
        notes.push(format!(
            "{} more offerings that the NodePools' requirements exclude; --all shows them",
            report.hidden
        ));
    }
    if objects.node_overlays.is_empty() {
        notes.push("there is no NodeOverlay, so every price is the list price".to_owned());
    }
    if let Some(ignored) = output::ignored(objects) {
        notes.push(ignored);
    }
    notes.extend(of_catalogue.iter().cloned());
    notes
}
