//! `veneer crds`: prints the CustomResourceDefinitions to install.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::output;

/// Prints the CustomResourceDefinitions to install, as YAML
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  veneer crds --mode companion | kubectl apply --server-side -f -    (beside Karpenter)
  veneer crds --mode standalone | kubectl apply --server-side -f -   (in its place)
  veneer crds --mode standalone --provider ec2

Exit codes: 0 fine, 2 bad usage.")]
pub(crate) struct CrdsArgs {
    /// Who provisions nodes: Karpenter (companion: only Veneer's own kind) or Veneer (standalone, the default: all kinds)
    #[arg(long, value_enum)]
    mode: Option<Mode>,

    /// Refuse labels of this provider's domain that it does not set, as its Karpenter chart does
    #[arg(long, value_enum)]
    provider: Option<Provider>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Companion,
    Standalone,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Provider {
    Ec2,
    Kwok,
}

pub(crate) fn run(args: &CrdsArgs) -> Result<ExitCode> {
    let mode = match args.mode {
        Some(Mode::Companion) => veneer_api::Mode::Companion,
        Some(Mode::Standalone) | None => veneer_api::Mode::Standalone,
    };
    let provider = args.provider.map(|provider| match provider {
        Provider::Ec2 => veneer_api::Provider::Ec2,
        Provider::Kwok => veneer_api::Provider::Kwok,
    });
    let mut out = output::stdout();
    for crd in veneer_api::crds(mode, provider) {
        let yaml = veneer_api::to_yaml(&crd)
            .with_context(|| format!("cannot write the CRD of {} as YAML", crd.spec.names.kind))?;
        write!(out, "---\n{yaml}")?;
    }
    out.flush()?;
    if args.mode.is_none() {
        writeln!(
            io::stderr().lock(),
            "note: these are the CRDs of standalone mode; beside Karpenter, use --mode companion, which leaves Karpenter's own alone"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
