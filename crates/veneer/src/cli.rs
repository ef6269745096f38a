//! The arguments of `veneer`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands;

/// Uses the EC2 capacity that is already paid for, the types you prefer and spare nodes that are ready, and shows
/// why a node was chosen.
#[derive(Debug, Parser)]
#[command(
    name = "veneer",
    version = VERSION,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// With the commit that was built and the date of the embedded prices.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("VENEER_BUILD"),
    ", EC2 catalog of ",
    env!("VENEER_CATALOG_DATE"),
    ")"
);

/// What a newcomer looks for first stands first. A command that is in none of the groups fails a test.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["run", "export", "apply"]),
    ("Understand", &["explain", "simulate", "diagnose"]),
    ("Money", &["savings", "reconcile"]),
    ("Check before you apply", &["lint", "convert"]),
    ("Install", &["crds", "iam-policy", "completions", "man"]),
    ("Look up and test", &["catalog", "snapshot", "chaos"]),
];

const EXAMPLES: &str = "Examples:
  veneer run --embedded                      a cluster in memory; nothing to install
  veneer lint -f manifests/                  in a pull request check
  veneer simulate -f manifests/ --propose nodepool.yaml
  veneer explain pod shop/web-0              why it waits, and the smallest change that helps";

#[derive(Debug, Subcommand)]
enum Command {
    Apply(commands::apply::ApplyArgs),
    Catalog(commands::catalog::CatalogArgs),
    Chaos(commands::chaos::ChaosArgs),
    Completions(commands::completions::CompletionsArgs),
    Convert(commands::convert::ConvertArgs),
    Crds(commands::crds::CrdsArgs),
    Diagnose(commands::diagnose::DiagnoseArgs),
    Explain(commands::explain::ExplainArgs),
    Export(commands::export::ExportArgs),
    IamPolicy(commands::iam_policy::IamPolicyArgs),
    Lint(commands::lint::LintArgs),
    Man(commands::man::ManArgs),
    Reconcile(commands::reconcile::ReconcileArgs),
    Run(commands::run::RunArgs),
    Savings(commands::savings::SavingsArgs),
    Simulate(commands::simulate::SimulateArgs),
    Snapshot(commands::snapshot::SnapshotArgs),
}

/// The whole command line, its commands grouped by what they are for.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let mut help = String::new();
    for (title, names) in GROUPS {
        help.push_str(&format!("{title}:\n"));
        let found = names.iter().filter_map(|name| command.find_subcommand(name));
        for subcommand in found {
            let about = subcommand
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            help.push_str(&format!("  {:<12} {about}\n", subcommand.get_name()));
        }
        help.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{help}Options:\n{{options}}\n\n{EXAMPLES}\n"
    );
    command.help_template(template)
}

impl Cli {
    /// The arguments, or what to print instead of running: help, a version, or what is wrong with them.
    pub(crate) fn parse_grouped(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::Apply(args) => commands::apply::run(args),
            Command::Catalog(args) => commands::catalog::run(args),
            Command::Chaos(args) => commands::chaos::run(args),
            Command::Completions(args) => commands::completions::run(args),
            Command::Convert(args) => commands::convert::run(args),
            Command::Crds(args) => commands::crds::run(args),
            Command::Diagnose(args) => commands::diagnose::run(args),
            Command::Explain(args) => commands::explain::run(args),
            Command::Export(args) => commands::export::run(args),
            Command::IamPolicy(args) => commands::iam_policy::run(args),
            Command::Lint(args) => commands::lint::run(args),
            Command::Man(args) => commands::man::run(args),
            Command::Reconcile(args) => commands::reconcile::run(args),
            Command::Run(args) => commands::run::run(args),
            Command::Savings(args) => commands::savings::run(args),
            Command::Simulate(args) => commands::simulate::run(args),
            Command::Snapshot(args) => commands::snapshot::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group() {
        let grouped = |name: &str| {
            GROUPS
                .iter()
                .flat_map(|(_, names)| *names)
                .filter(|one| **one == name)
                .count()
        };
        for subcommand in Cli::command().get_subcommands() {
            assert_eq!(grouped(subcommand.get_name()), 1, "{}", subcommand.get_name());
        }
        let count: usize = GROUPS.iter().map(|(_, names)| names.len()).sum();
        assert_eq!(count, Cli::command().get_subcommands().count());
    }
}
