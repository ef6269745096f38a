//! `karpenteradm`: the same program under the name that the NodeOverlay proposal uses for `diagnose`.

use std::process::ExitCode;

fn main() -> ExitCode {
    veneer::main(std::env::args_os())
}
