//! `veneer snapshot`: a live cluster as one file that every offline command reads.
//!
//! Objects are written page by page, so a large cluster is never in memory as a whole. Only listed fields are written:
//! a field that nobody thought of is left out, not let through.

mod anonymise;
mod fields;
mod history;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use veneer_world::Span;

use crate::input::live::{self, Page};
use crate::output;
use anonymise::Anonymiser;

/// Writes what the other commands need of a live cluster to one file
///
/// The file has the NodePools, NodeOverlays, Overprovisioners, node classes, NodeClaims, nodes, pods, DaemonSets, volumes
/// and namespaces, and of each only the fields that scheduling looks at. No environment variable, command, image,
/// annotation, user data, ConfigMap or Secret is written. Every command reads it with -f.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer snapshot -o cluster.yaml
  veneer snapshot --anonymise -o cluster.yaml
  veneer simulate -f cluster.yaml --repack
  veneer snapshot --history 7d --prometheus http://127.0.0.1:9090 -o week.yaml
  veneer simulate --scenario week.yaml

Exit codes: 0 fine, 2 bad usage or input.")]
pub(crate) struct SnapshotArgs {
    /// Where to write; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replaces names, and the values of labels that are not well known, by hashes: the same name by the same hash
    #[arg(long)]
    anonymise: bool,

    /// Makes hashes that only someone who knows TEXT can repeat
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        requires = "anonymise"
    )]
    salt: String,

    /// Writes a scenario for veneer simulate --scenario instead: what ran for this long until now, as kube-state-metrics told
    /// Prometheus
    #[arg(
        long,
        value_name = "SPAN",
        requires = "prometheus",
        conflicts_with = "anonymise"
    )]
    history: Option<Span>,

    /// The Prometheus that remembers
    #[arg(long, value_name = "URL", requires = "history")]
    prometheus: Option<String>,

    /// How close the values of the history are
    #[arg(long, value_name = "SPAN", default_value = "15m", requires = "history")]
    step: Span,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(args: &SnapshotArgs) -> Result<ExitCode> {
    let mut written = 0;
    match &args.output {
        Some(path) => {
            let shown = path.display();
            let what = output::replace_file(path, |out| write(args, out, &mut written))?;
            writeln!(io::stderr().lock(), "note: wrote {written} {what} to {shown}")?;
        }
        None => {
            let mut out = output::stdout();
            write(args, &mut out, &mut written)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes one list per kind, an object a line, or a scenario; says what was written.
fn write(args: &SnapshotArgs, out: &mut impl Write, written: &mut usize) -> Result<&'static str> {
    if let (Some(span), Some(url)) = (args.history, &args.prometheus) {
        let asked = history::Asked {
            url,
            span,
            step: args.step,
            context: args.context.as_deref(),
            kubeconfig: args.kubeconfig.as_deref(),
        };
        let (count, missing) = history::write(&asked, out)?;
        *written = count;
        for one in missing {
            writeln!(io::stderr().lock(), "note: left out: {one}")?;
        }
        return Ok("workloads");
    }
    let anonymiser = args.anonymise.then(|| Anonymiser::new(&args.salt));
    writeln!(
        out,
        "# A cluster as veneer sees it; read it with veneer simulate -f FILE."
    )?;
    let (mut seen, mut is_first) = (BTreeSet::new(), true);
    live::stream(args.context.as_deref(), args.kubeconfig.as_deref(), &mut |page| {
        match page {
            Page::Begin(resource) => {
                is_first = true;
                seen.clear();
                // A document of its own for each kind: long lists of one kind are read fast.
                writeln!(out, "# {}\n---", resource.plural)?;
                write!(out, r#"{{"apiVersion":"v1","kind":"List","items":["#)?;
            }
            Page::Items(resource, items) => {
                for object in items {
                    // After the server has forgotten a page, the list comes from the beginning again.
                    let uid = object.metadata.uid.clone().unwrap_or_default();
                    if !uid.is_empty() && !seen.insert(uid) {
                        continue;
                    }
                    let value = stripped(object, &resource.kind, &resource.api_version, anonymiser.as_ref())?;
                    let comma = if is_first { "" } else { "," };
                    write!(out, "{comma}\n{value}")?;
                    is_first = false;
                    *written += 1;
                }
            }
            Page::End => writeln!(out, "\n]}}")?,
        }
        Ok(())
    })?;
    Ok("objects")
}

/// An object with the fields that are needed.
fn stripped(
    object: DynamicObject,
    kind: &str,
    api_version: &str,
    anonymiser: Option<&Anonymiser>,
) -> Result<Value> {
    let value = serde_json::to_value(&object).with_context(|| format!("cannot read a {kind}"))?;
    let mut kept = fields::keep(kind, value);
    if let Some(anonymiser) = anonymiser {
        anonymiser.hide(&mut kept);
    }
    if let Value::Object(fields) = &mut kept {
        fields.insert("kind".to_owned(), json!(kind));
        fields.insert("apiVersion".to_owned(), json!(api_version));
    }
    Ok(kept)
}
