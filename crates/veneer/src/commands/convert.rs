//! `veneer convert`: rewrites the earlier draft of NodeOverlay to today's fields.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::finding::{Finding, Rule};
use crate::input::objects::Objects;
use crate::input::{budget, documents, texts};
use crate::output;

/// Rewrites NodeOverlays of the earlier draft to today's fields, and prints YAML
///
/// `selector` becomes `requirements`, `pricePercent` becomes `priceAdjustment`, and a missing apiVersion is added.
/// Documents that need no change are printed as they are, comments included. What was changed is said on standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer convert -f draft.yaml > overlays.yaml

Exit codes: 0 fine, 2 bad usage or input (what can be converted is printed all the same).")]
pub(crate) struct ConvertArgs {
    /// File or folder of YAML or JSON; `-` is standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<ExitCode> {
    let mut out = output::stdout();
    let mut err = io::stderr().lock();
    let mut broken = false;
    let mut first = true;
    let texts = texts(&args.files)?;
    let budget = budget(&texts);
    for (file, text) in texts {
        for document in documents::split(&text) {
            let mut objects = Objects::default();
            documents::read_document(&file, &document, budget, &mut objects);
            let findings: Vec<&Finding> = objects
                .findings
                .iter()
                .filter(|finding| is_told(finding))
                .collect();
            for finding in &findings {
                let repaired = if is_repaired(finding) { "; repaired" } else { "" };
                writeln!(err, "{}: {}{repaired}", finding.place(), finding.sentence())?;
            }
            broken |= findings
                .iter()
                .any(|finding| finding.rule != Rule::DraftField && !is_repaired(finding));
            if !first {
                writeln!(out, "---")?;
            }
            first = false;
            let changed = findings
                .iter()
                .any(|finding| finding.rule == Rule::DraftField || is_repaired(finding));
            if !changed || objects.node_overlays.is_empty() {
                writeln!(out, "{}", document.text.trim_matches('\n'))?;
                continue;
            }
            for (at, overlay) in objects.node_overlays.iter().enumerate() {
                if at > 0 {
                    writeln!(out, "---")?;
                }
                output::yaml(&mut out, &overlay.object)?;
                if !overlay.object.spec.overhead.is_empty()
                    || !overlay.object.spec.overhead_percent.is_empty()
                {
                    let message = "overhead stays: Veneer honours it in standalone mode and offline, Karpenter's CRD does not have it";
                    let note = overlay.finding(Rule::DraftField, "spec.overhead", message.to_owned(), "");
                    writeln!(err, "{}: {}", note.place(), note.sentence())?;
                }
            }
        }
    }
    out.flush()?;
    Ok(if broken {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

/// Whether the printed object no longer has the fault.
fn is_repaired(finding: &Finding) -> bool {
    matches!(finding.rule, Rule::MissingApiVersion | Rule::UnquotedValue)
}

/// What concerns the reading of a document; what is wrong with an overlay beyond that, `lint` says.
fn is_told(finding: &Finding) -> bool {
    is_repaired(finding)
        || matches!(
            finding.rule,
            Rule::DraftField
                | Rule::InvalidField
                | Rule::Unreadable
                | Rule::MalformedObject
                | Rule::UnsupportedVersion
        )
}
