//! Habits of a good command line: versions, completions, manual pages, closed pipes, and defaults that cannot hurt.
#![allow(clippy::unwrap_used, reason = "tests fail so")]

mod support;

use std::io::Read;
use std::process::{Command, Stdio};

use support::{root, veneer};

/// Runs `veneer` with a reader of its output that goes away after the first byte.
fn code_with_a_closed_pipe(arguments: &[&str]) -> Option<i32> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_veneer"))
        .args(arguments)
        .current_dir(root())
        .env_remove("KUBECONFIG")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    drop(out);
    child.wait().unwrap().code()
}

#[test]
fn a_closed_pipe_keeps_the_exit_code() {
    for arguments in [
        &["lint", "-f", "crates/veneer/tests/cases/broken"][..],
        &[
            "simulate",
            "-f",
            "examples/simulate/cluster",
            "--fail-on-unschedulable",
            "-o",
            "json",
        ],
        &["catalog"],
    ] {
        let whole = veneer(arguments).code;
        assert_eq!(code_with_a_closed_pipe(arguments), Some(whole), "{arguments:?}");
    }
}

/// The commit stands only in builds that are meant to be used, which tests are not made with.
#[test]
fn the_version_names_the_build_and_the_day_of_the_catalog() {
    let said = veneer(&["--version"]).out;
    assert!(
        said.starts_with("veneer 0.1.0 (") && said.contains("build, EC2 catalog of 20"),
        "{said}"
    );
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let said = veneer(&["completions", shell]);
        assert_eq!(said.code, 0, "{}", said.err);
        for word in ["simulate", "fail-on-unschedulable", "iam-policy"] {
            assert!(said.out.contains(word), "{shell}: {word}");
        }
    }
    let said = veneer(&["completions", "tcsh"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("bash") && said.err.contains("tcsh"),
        "{}",
        said.err
    );
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let said = veneer(&["man", "--output-dir", pages.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    for name in ["veneer", "veneer-run", "veneer-explain-pod", "veneer-iam-policy"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(
            page.contains(&format!(".TH {name}")) && page.contains(".SH SYNOPSIS"),
            "{name}: {page}"
        );
    }
    assert!(veneer(&["man"]).out.contains("EC2 capacity"));
}

#[test]
fn crds_of_a_mode_that_was_not_named_come_with_a_note() {
    let said = veneer(&["crds"]);
    assert!(
        said.err.contains("beside Karpenter, use --mode companion"),
        "{}",
        said.err
    );
    for mode in ["companion", "standalone"] {
        assert_eq!(veneer(&["crds", "--mode", mode]).err, "");
    }
}

#[test]
fn instances_that_nothing_would_mark_as_the_clusters_are_not_launched() {
    let said = veneer(&[
        "run",
        "--mode",
        "standalone",
        "--provider",
        "ec2",
        "--region",
        "us-east-1",
    ]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(
        said.err.contains("aws.clusterName is not set") && said.err.contains("--aws-cluster-name"),
        "{}",
        said.err
    );
}
