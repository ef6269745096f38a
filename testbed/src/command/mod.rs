//! The command line of `testbed`; each subcommand is a file.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod parts;
mod up;

/// Runs a throw-away Kubernetes cluster of real parts on this machine, without containers
///
/// etcd, the API server, the scheduler, the controller manager, kwok and Karpenter (with its KWOK provider) run
/// as ordinary processes on loopback ports. Nodes and Pods are simulated; everything that decides is real.
#[derive(Parser)]
#[command(name = "testbed", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Up),
    Parts(parts::Parts),
}

pub(crate) fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Up(up) => up.run(),
        Command::Parts(parts) => parts.run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // There is nobody left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
