//! What `testbed` says when it cannot do what was asked.
// Clippy knows test functions, but not their helpers.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn testbed(arguments: &[&str], cache: Option<&std::path::Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(arguments);
    if let Some(cache) = cache {
        command.env("VENEER_CACHE", cache);
    }
    command.output().unwrap()
}

#[test]
fn help_says_what_each_command_does() {
    for arguments in [&["--help"][..], &["up", "--help"], &["parts", "--help"]] {
        let help = String::from_utf8(testbed(arguments, None).stdout).unwrap();
        insta::assert_snapshot!(arguments.join(" "), help);
    }
}

#[test]
fn a_missing_part_is_named_with_the_command_that_builds_it() {
    let empty = tempfile::tempdir().unwrap();

    let output = testbed(&["up"], Some(empty.path()));

    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("etcd is not built"), "{message}");
    assert!(
        message.contains(&empty.path().join("parts/bin/etcd").display().to_string()),
        "{message}"
    );
    assert!(message.contains("run testbed/parts/build"), "{message}");
}

#[test]
fn a_kubeconfig_that_testbed_did_not_write_is_never_replaced() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("config");
    std::fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();

    let output = testbed(&["up", "--kubeconfig", path.to_str().unwrap()], None);

    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "apiVersion: v1\nkind: Config\n"
    );
}

#[test]
fn an_unknown_part_is_refused_with_the_known_ones() {
    let empty = tempfile::tempdir().unwrap();

    let output = testbed(&["parts", "kubelet"], Some(empty.path()));

    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("unknown part 'kubelet'") && message.contains("kube-apiserver"),
        "{message}"
    );
}
