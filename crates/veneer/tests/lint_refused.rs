//! `veneer lint` against objects that the API server refuses, and against some that it accepts and that lead nowhere.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use serde_json::Value;
use support::{Said, run};

fn lint(text: &str, more: &[&str]) -> Said {
    let mut arguments = vec!["lint", "-f", "-"];
    arguments.extend(more);
    run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(text))
}

/// Rule, line and field of every finding but the one about pools without a bound.
fn findings(text: &str, more: &[&str]) -> Vec<(String, u64, String)> {
    let mut arguments = vec!["-o", "json", "--ignore", "uncapped-pool"];
    arguments.extend(more);
    let report = lint(text, &arguments).json();
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| {
            let line = finding["line"].as_u64().unwrap();
            (text(finding, "rule"), line, text(finding, "field"))
        })
        .collect()
}

/// A NodePool with more lines in its spec, from line 7, and more in its template's, from line 10.
fn pool(spec: &str, template: &str) -> String {
    let shift = |text: &str, by: usize| {
        text.lines()
            .map(|line| format!("{}{line}\n", " ".repeat(by)))
            .collect::<String>()
    };
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\nspec:\n  template:\n    spec:\n      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}}\n{}{}",
        shift(template, 6),
        shift(spec, 2)
    )
}

#[test]
fn what_the_api_server_refuses_in_a_nodepool_is_an_error_with_its_line() {
    let requirements = "requirements: []";
    let cases = [
        ("weight: 5000", requirements, 10, "spec.weight"),
        ("limits: {cpu: lots}", requirements, 10, "spec.limits.cpu"),
        (
            "disruption: {consolidateAfter: 1m, consolidationPolicy: WhenUnderutilized}",
            requirements,
            10,
            "spec.disruption.consolidationPolicy",
        ),
        (
            "disruption:\n  consolidateAfter: 1m\n  budgets:\n  - nodes: \"ten\"",
            requirements,
            13,
            "spec.disruption.budgets[0].nodes",
        ),
        (
            "disruption:\n  consolidateAfter: 1m\n  budgets:\n  - schedule: \"0 9 * * *\"",
            requirements,
            12,
            "spec.disruption.budgets",
        ),
        ("stratagy: x", requirements, 10, "spec.stratagy"),
        (
            "",
            "requirements: []\nexpireAfter: 30 days",
            10,
            "spec.template.spec.expireAfter",
        ),
        (
            "",
            "requirements: []\ntaints:\n- {key: a, effect: NoRun}",
            11,
            "spec.template.spec.taints[0].effect",
        ),
        (
            "",
            "requirements:\n- {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5], minValues: 5}",
            9,
            "spec.template.spec.requirements",
        ),
        ("", "", 7, "spec.template.spec.requirements"),
    ];
    for (spec, template, line, field) in cases {
        let text = pool(spec, template);
        let expected = ("refused".to_owned(), line, field.to_owned());
        assert_eq!(findings(&text, &[]), [expected], "{text}");
    }
    assert_eq!(findings(&pool("weight: 100", requirements), &[]), []);
}

/// As charts leave them; the API server drops such fields before it looks at the rest.
#[test]
fn fields_without_a_value_are_as_if_they_were_not_there() {
    let overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata:\n  name: b\n  labels:\nspec:\n  requirements:\n  \
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}\n  capacity:\n  weight:\n  priceAdjustment: -5%\n";
    let pool = pool(
        "limits:\nweight:\ndisruption:\n  consolidateAfter: 0s\n  budgets:\n",
        "taints:\nstartupTaints:\nexpireAfter:\nrequirements:\n- {key: kubernetes.io/arch, operator: In, values: [amd64]}\n",
    );
    let both = format!("{pool}---\n{overlay}");
    assert_eq!(findings(&both, &[]), []);
    let report = lint(&both, &["--ignore", "uncapped-pool"]);
    assert!(
        report.all().contains("1 NodePools, 1 NodeOverlays"),
        "both are read: {}",
        report.all()
    );
}

#[test]
fn a_refusal_says_what_was_found_what_is_expected_and_the_fix() {
    let text = pool(
        "weight: 5000\ndisruption: {consolidateAfter: 1m, consolidationPolicy: WhenUnderutilized}\nstratagy: x",
        "requirements: []\nexpireAfter: 30 days",
    );
    let said = lint(&text, &[]).out;
    for part in [
        "NodePool a: spec.weight: 5000 is not valid; expected a number from 1 up to 100 [refused]",
        "fix: use a number from 1 up to 100",
        "\"WhenUnderutilized\" is not valid; expected one of WhenEmpty, WhenEmptyOrUnderutilized, Balanced [refused]",
        "fix: use one of WhenEmpty, WhenEmptyOrUnderutilized, Balanced",
        "spec.stratagy: there is no such field [refused]",
        "\"30 days\" is not valid; expected a duration in hours, minutes and seconds, such as 720h or 1h30m, or Never [refused]",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn what_never_launches_anything_is_told_apart_from_what_is_refused() {
    for (requirement, near) in [
        (
            "{key: karpenter.sh/capacity-type, operator: In, values: [ondemand]}",
            "on-demand",
        ),
        (
            "{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5x]}",
            "m5",
        ),
    ] {
        let text = pool("", &format!("requirements:\n- {requirement}"));
        let field = "spec.template.spec.requirements[0].values".to_owned();
        assert_eq!(findings(&text, &[]), [("never-launches".to_owned(), 10, field)]);
        let said = lint(&text, &[]).out;
        assert!(
            said.contains("so the pool never launches anything") && said.contains(near),
            "{said}"
        );
    }
}

#[test]
fn overlays_are_held_against_karpenters_crd_or_ours() {
    let overlay = |spec: &str| {
        format!("apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: o}}\nspec:\n{spec}")
    };
    let refused = |text: &str, mode: &str| {
        let findings = findings(text, &["--mode", mode]);
        let refused = findings.into_iter().filter(|(rule, ..)| rule == "refused");
        refused.map(|(_, _, field)| field).collect::<Vec<_>>()
    };
    let without = overlay("  priceAdjustment: \"-5%\"\n");
    assert_eq!(refused(&without, "companion"), ["spec.requirements"]);
    assert_eq!(refused(&without, "standalone"), [""; 0]);
    let overhead = overlay("  requirements: []\n  overhead: {memory: 1Gi}\n");
    assert_eq!(refused(&overhead, "companion"), ["spec.overhead"]);
    assert_eq!(refused(&overhead, "standalone"), [""; 0]);
    let said = lint(
        &overlay(
            "  requirements: []\n  capacity: {hugepages-3Mi: 6Mi, example.com/a: -1}\n  overhead: {memory: -1Gi}\n",
        ),
        &["--mode", "standalone"],
    );
    for part in [
        "spec.capacity.hugepages-3Mi: there are no huge pages of 3Mi",
        "spec.capacity.example.com/a: -1 is below zero",
        "spec.overhead.memory: -1Gi is below zero",
    ] {
        assert!(said.out.contains(part), "{part}\n{}", said.out);
    }
}

#[test]
fn overprovisioners_are_judged_with_their_schedules_and_pools() {
    let spares = |spec: &str| {
        format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: Overprovisioner\nmetadata: {{name: s}}\nspec:\n  targetNodePools: [a]\n  sizing: {{count: 1}}\n{spec}"
        )
    };
    let window = |schedule: &str, duration: &str, zone: &str| {
        format!(
            "  - {{schedule: \"{schedule}\", duration: {duration}, timeZone: {zone}, sizing: {{count: 2}}}}\n"
        )
    };
    let overrides = |windows: &[String]| spares(&format!("  scheduledOverrides:\n{}", windows.concat()));
    let good = window("0 9 * * mon-fri", "8h", "Europe/Berlin");
    for (text, rule, field) in [
        (
            overrides(&[window("0 25 * * *", "8h", "UTC")]),
            "refused",
            "spec.scheduledOverrides[0].schedule",
        ),
        (
            overrides(&[window("0 9 * * *", "8 hours", "UTC")]),
            "refused",
            "spec.scheduledOverrides[0].duration",
        ),
        (
            overrides(&[window("0 9 * * *", "8h", "Mars/Base")]),
            "invalid-field",
            "spec.scheduledOverrides[0].timeZone",
        ),
        (
            overrides(&[good.clone(), window("0 12 * * mon", "1h", "UTC")]),
            "invalid-field",
            "spec.scheduledOverrides[1].schedule",
        ),
        (spares("  stratagy: x\n"), "refused", "spec.stratagy"),
        (
            spares("").replace("[a]", "[a, a]"),
            "refused",
            "spec.targetNodePools[1]",
        ),
    ] {
        let found: Vec<(String, String)> = findings(&text, &[])
            .into_iter()
            .map(|(rule, _, field)| (rule, field))
            .collect();
        assert_eq!(found, [(rule.to_owned(), field.to_owned())], "{text}");
    }
    assert_eq!(
        findings(&overrides(&[good, window("0 9 * * sat", "8h", "UTC")]), &[]),
        []
    );

    let spot = pool(
        "",
        "requirements:\n- {key: karpenter.sh/capacity-type, operator: In, values: [spot]}",
    );
    let text = format!("{spot}---\n{}", spares("  state: Stopped\n"));
    let found = findings(&text, &[]);
    assert!(
        found
            .iter()
            .any(|(rule, _, field)| rule == "never-launches" && field == "spec.targetNodePools[0]"),
        "{found:?}"
    );
}

#[test]
fn names_labels_and_kinds_that_no_other_check_reads_are_judged_too() {
    let claim = "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata:\n  name: Upper\n  labels: {a b: c}\nspec:\n  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}\n  requirements: []\n";
    let fields: Vec<(u64, String)> = findings(claim, &[])
        .into_iter()
        .map(|(_, line, field)| (line, field))
        .collect();
    assert_eq!(
        fields,
        [
            (4, "metadata.name".to_owned()),
            (5, "metadata.labels.a b".to_owned())
        ]
    );
}

#[test]
fn a_reader_that_goes_away_does_not_turn_a_finding_into_success() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let many = pool("weight: 5000", "requirements: []");
    std::fs::write(file.path(), many).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_veneer"))
        .args(["lint", "-f"])
        .arg(file.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
