//! The `veneer` command. Everything is in the library beside it; a subcommand is a file under `commands/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    veneer::main(std::env::args_os())
}
