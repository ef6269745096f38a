//! Runs the built commands from the root of the repository, so that paths in messages are the same everywhere.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "every test file uses some of it, and helpers fail as tests do"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Everything at once, for snapshots.
    pub(crate) fn all(&self) -> String {
        format!(
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.out, self.err
        )
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

/// Runs `veneer` without a terminal, a kubeconfig or a limit of columns.
pub(crate) fn veneer(arguments: &[&str]) -> Said {
    run(env!("CARGO_BIN_EXE_veneer"), arguments, None, None)
}

/// The same with `COLUMNS` set.
pub(crate) fn veneer_at(columns: u16, arguments: &[&str]) -> Said {
    run(env!("CARGO_BIN_EXE_veneer"), arguments, Some(columns), None)
}

/// Runs a program with text on its standard input.
pub(crate) fn run(program: &str, arguments: &[&str], columns: Option<u16>, input: Option<&str>) -> Said {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(root())
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("COLUMNS")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
