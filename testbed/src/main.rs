//! `testbed`: starts a throw-away cluster of real parts, or builds the parts.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
