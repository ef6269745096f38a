//! `veneer explain`: why something is as it is.

mod pod;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Says why: where a pod goes or why it does not, and what would have to change
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    Pod(pod::PodArgs),
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    match &args.subject {
        Subject::Pod(args) => pod::run(args),
    }
}
