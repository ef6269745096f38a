//! `veneer completions`: what a shell needs to complete commands and flags.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use crate::cli;
use crate::output;

/// Prints the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(veneer completions bash)
  veneer completions zsh > \"${fpath[1]}/_veneer\"
  veneer completions fish > ~/.config/fish/completions/veneer.fish

Exit codes: 0 fine, 2 bad usage.")]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "veneer", &mut script);
    output::text(&script)?;
    Ok(ExitCode::SUCCESS)
}
