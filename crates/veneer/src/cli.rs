//! The arguments of `veneer`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands;

/// Uses the EC2 capacity that is already paid for, the types you prefer and spare nodes that are ready, and shows
/// why a node was chosen.
#[derive(Debug, Parser)]
#[command(
    name = "veneer",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Apply(commands::apply::ApplyArgs),
    Catalog(commands::catalog::CatalogArgs),
    Chaos(commands::chaos::ChaosArgs),
    Convert(commands::convert::ConvertArgs),
    Crds(commands::crds::CrdsArgs),
    Diagnose(commands::diagnose::DiagnoseArgs),
    Explain(commands::explain::ExplainArgs),
    Export(commands::export::ExportArgs),
    IamPolicy(commands::iam_policy::IamPolicyArgs),
    Lint(commands::lint::LintArgs),
    Reconcile(commands::reconcile::ReconcileArgs),
    Run(commands::run::RunArgs),
    Savings(commands::savings::SavingsArgs),
    Simulate(commands::simulate::SimulateArgs),
    Snapshot(commands::snapshot::SnapshotArgs),
}

impl Cli {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::Apply(args) => commands::apply::run(args),
            Command::Catalog(args) => commands::catalog::run(args),
            Command::Chaos(args) => commands::chaos::run(args),
            Command::Convert(args) => commands::convert::run(args),
            Command::Crds(args) => commands::crds::run(args),
            Command::Diagnose(args) => commands::diagnose::run(args),
            Command::Explain(args) => commands::explain::run(args),
            Command::Export(args) => commands::export::run(args),
            Command::IamPolicy(args) => commands::iam_policy::run(args),
            Command::Lint(args) => commands::lint::run(args),
            Command::Reconcile(args) => commands::reconcile::run(args),
            Command::Run(args) => commands::run::run(args),
            Command::Savings(args) => commands::savings::run(args),
            Command::Simulate(args) => commands::simulate::run(args),
            Command::Snapshot(args) => commands::snapshot::run(args),
        }
    }
}
