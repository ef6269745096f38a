//! `veneer explain`: why a decision was made, and what would change it.

mod node;
mod nodeclaim;
mod nodepool;
mod overprovisioner;
mod pod;
mod scene;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

/// Shows why a decision was made, and what would change it
///
/// Reads objects from the live cluster, or from files with -f. Nothing is written to the cluster.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(subcommand)]
    subject: Explain,
}

#[derive(Debug, Subcommand)]
enum Explain {
    Pod(pod::PodArgs),
    Node(node::NodeArgs),
    Nodepool(nodepool::NodepoolArgs),
    Nodeclaim(nodeclaim::NodeclaimArgs),
    Overprovisioner(overprovisioner::OverprovisionerArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    match &args.subject {
        Explain::Pod(args) => pod::run(args),
        Explain::Node(args) => node::run(args),
        Explain::Nodepool(args) => nodepool::run(args),
        Explain::Nodeclaim(args) => nodeclaim::run(args),
        Explain::Overprovisioner(args) => overprovisioner::run(args),
    }
}
