//! `veneer catalog` as a user runs it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn veneer(arguments: &[&str]) -> Output {
    // The width of the terminal would wrap columns.
    Command::new(env!("CARGO_BIN_EXE_veneer"))
        .arg("catalog")
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

fn lines(arguments: &[&str]) -> Vec<String> {
    let output = veneer(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn refusal(arguments: &[&str]) -> String {
    let output = veneer(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn first_words(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn the_table_shows_shape_and_prices() {
    let found = lines(&[
        "--region",
        "us-east-1",
        "-l",
        "node.kubernetes.io/instance-type in (m5.large,m7g.xlarge)",
    ]);
    assert_eq!(
        found,
        [
            "NAME        ARCH   VCPU  MEMORY  GPU  PODS  ON-DEMAND/H  SPOT/H  ZONES",
            "m5.large    amd64     2   8 GiB  -      29       0.0960  0.0317  us-east-1[abcdf]",
            "m7g.xlarge  arm64     4  16 GiB  -      58       0.1632  0.0571  us-east-1[abcdf]",
        ]
    );
}

#[test]
fn rows_can_be_selected_by_any_label_and_sorted() {
    let by_price = lines(&["-l", "family=m5,cpu>2,size!=metal", "--sort", "price"]);
    assert_eq!(
        first_words(&by_price),
        [
            "m5.xlarge",
            "m5.2xlarge",
            "m5.4xlarge",
            "m5.8xlarge",
            "m5.12xlarge",
            "m5.16xlarge",
            "m5.24xlarge"
        ]
    );
    let by_name = lines(&["-l", "family=m5,cpu>2,size!=metal"]);
    assert_eq!(first_words(&by_name)[0], "m5.12xlarge");
    let spot = lines(&["-l", "capacity-type=spot,zone=us-east-1b,family=m5,size=large"]);
    assert!(spot[1].ends_with(" -  0.0317  us-east-1[b]"), "{}", spot[1]);
}

#[test]
fn an_estimated_price_is_marked() {
    let output = veneer(&["--region", "eu-central-1", "-l", "family=m8i,size=large"]);
    let (table, notes) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(table.contains(" ~0.1"), "{table}");
    assert!(
        notes.contains("spot prices are estimates") && notes.contains("~ marks"),
        "{notes}"
    );
}

#[test]
fn json_has_labels_amounts_and_offerings() {
    let output = veneer(&[
        "-l",
        "node.kubernetes.io/instance-type=m5.large,zone=us-east-1a",
        "-o",
        "json",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["region"], "us-east-1");
    let large = &document["instanceTypes"][0];
    assert_eq!(large["labels"]["karpenter.k8s.aws/instance-family"][0], "m5");
    assert_eq!(large["allocatable"]["memory"], "6903Mi");
    assert_eq!(large["hibernation"], true);
    let offerings = large["offerings"].as_array().unwrap();
    assert_eq!(offerings.len(), 2, "one zone, two capacity types");
    assert_eq!(
        (&offerings[0]["price"], &offerings[0]["priceEstimated"]),
        (&0.096.into(), &false.into())
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn faults_name_what_is_wrong_and_what_would_be_right() {
    assert!(
        refusal(&["--region", "mars-1"]).starts_with(
            "error: --region: unknown region \"mars-1\"; the embedded catalogue has af-south-1, "
        )
    );
    assert_eq!(
        refusal(&["-l", "arch in (arm64"]),
        "error: selector \"arch in (arm64\": at character 15, found the end; expected `,` or `)`\n"
    );
    assert!(
        refusal(&["-l", "famly=m5"])
            .starts_with("error: no instance type has the label \"famly\"; there are ")
    );

    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("types.json");
    std::fs::write(
        &file,
        "[{\"name\": \"a\",\n \"offerings\": [{\"Price\": \"x\"}]}]",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    assert_eq!(
        refusal(&["--catalog", path]),
        format!(
            "error: {path}:2:28: instance type 1 (a), field offerings[0].Price: invalid type: string \"x\", expected a \
             price in dollars per hour, like 0.096\n"
        )
    );
    assert!(refusal(&["--catalog", "/absent.json"]).contains("cannot read the catalogue /absent.json"));
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_veneer"))
        .args(["catalog", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}
