//! The `veneer` command line: arguments, configuration and subcommands.
//!
//! Exit codes: 0 fine, 1 the answer is "no" (findings, unschedulable pods), 2 bad usage or input.

mod cli;
mod columns;
mod commands;
mod config;
mod finding;
mod input;
mod money;
mod output;
mod preview;
mod scheduling;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the command that `arguments` ask for and gives the exit code of the process.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match cli::Cli::parse_grouped(arguments) {
        Ok(cli) => cli,
        Err(help_or_usage) => {
            // Writing can only fail when nobody listens any more.
            let _ = help_or_usage.print();
            return if help_or_usage.use_stderr() {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the reader of our output went away (`veneer catalog | head`), which is no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// How many findings reading `text` as manifests gives. It is what the fuzzer calls: no text may make it panic.
#[doc(hidden)]
#[must_use]
pub fn findings_of(text: &str) -> usize {
    let mut objects = input::objects::Objects {
        cluster: Some(Box::default()),
        ..input::objects::Objects::default()
    };
    let budget = veneer_api::yaml::AliasBudget::for_input(text.len());
    input::documents::read("input", text, budget, &mut objects);
    objects.settle();
    objects.findings.len()
}
