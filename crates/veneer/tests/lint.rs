//! `veneer lint`: rules, formats, levels and exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use support::{Said, run, veneer};

const MISTAKES: &str = "examples/overlays/mistakes";

fn lint(more: &[&str]) -> Said {
    let mut arguments = vec!["lint", "-f", MISTAKES];
    arguments.extend(more);
    veneer(&arguments)
}

#[test]
fn every_mistake_is_found_with_its_line_and_a_fix() {
    let said = lint(&["--level", "info"]);
    assert_eq!(said.code, 1);
    insta::assert_snapshot!("text", said.all());
    insta::assert_snapshot!("json", lint(&["-o", "json"]).out);
    insta::assert_snapshot!("github", lint(&["-o", "github"]).out);
    insta::assert_snapshot!("sarif", lint(&["-o", "sarif"]).out);
}

#[test]
fn the_level_decides_what_is_reported_and_what_fails() {
    let levels = |more: &[&str]| {
        let mut arguments = vec!["-o", "json"];
        arguments.extend(more);
        let report = lint(&arguments).json();
        let findings = report["findings"].as_array().unwrap().clone();
        let mut levels: Vec<String> = findings
            .iter()
            .map(|f| f["level"].as_str().unwrap().to_owned())
            .collect();
        levels.sort();
        levels.dedup();
        levels
    };
    assert_eq!(levels(&["--level", "error"]), ["error"]);
    assert_eq!(levels(&[]), ["error", "warning"]);
    assert_eq!(levels(&["--level", "info"]), ["error", "info", "warning"]);
}

#[test]
fn good_manifests_pass_and_ignored_rules_are_left_out() {
    let said = veneer(&["lint", "-f", "examples/overlays/discounts"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    assert!(
        said.err
            .starts_with("no findings; checked 2 NodePools, 3 NodeOverlays, 0 Overprovisioners\n")
    );

    let deep = "examples/overlays/proposed/deep-discount.yaml";
    let pools = "examples/overlays/discounts/nodepools.yaml";
    assert_eq!(veneer(&["lint", "-f", deep, "-f", pools]).code, 1);
    assert_eq!(
        veneer(&[
            "lint",
            "-f",
            deep,
            "-f",
            pools,
            "--ignore",
            "on-demand-below-spot"
        ])
        .code,
        0
    );
    let said = veneer(&["lint", "-f", deep, "--ignore", "on-demand-bellow-spot"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("did you mean on-demand-below-spot?"),
        "{}",
        said.err
    );
}

#[test]
fn unreadable_input_is_exit_code_2_and_a_finding() {
    let said = veneer(&["lint", "-f", "crates/veneer/tests/cases/broken", "-o", "json"]);
    assert_eq!(said.code, 2);
    let report = said.json();
    let rules: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["rule"].as_str().unwrap())
        .collect();
    for rule in ["unreadable", "refused"] {
        assert!(rules.contains(&rule), "{rules:?}");
    }
    assert_eq!(veneer(&["lint", "-f", "no/such/folder"]).code, 2);

    let template = "kind: NodeOverlay\nmetadata:\n  name: {{ .Values.name }}\n";
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["lint", "-f", "-"],
        None,
        Some(template),
    );
    assert_eq!(said.code, 2);
    assert!(
        said.out.contains("render it first (helm template …)"),
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn without_pools_only_what_does_not_depend_on_them_is_said() {
    let overlay = |requirement: &str| {
        format!(
            "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: o}}\nspec:\n  requirements: [{requirement}]\n  priceAdjustment: \"-5%\"\n"
        )
    };
    let judge = |requirement: &str| {
        run(
            env!("CARGO_BIN_EXE_veneer"),
            &["lint", "-f", "-"],
            None,
            Some(&overlay(requirement)),
        )
    };
    let said = judge("{key: team, operator: In, values: [web]}");
    assert_eq!(said.code, 0, "{}", said.out);
    let said = judge("{key: karpenter.sh/nodepool, operator: In, values: [web]}");
    assert_eq!(said.code, 0, "{}", said.out);
    let said = judge("{key: kubernetes.io/arch, operator: In, values: [arm46]}");
    assert_eq!(said.code, 1);
    assert!(said.out.contains("did you mean arm64?"), "{}", said.out);
}

#[test]
fn an_uncapped_pool_and_a_duplicate_are_found() {
    let pool = |name: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}}\n      requirements: []\n---\n"
        )
    };
    let text = format!("{}{}", pool("a"), pool("a"));
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["lint", "-f", "-"],
        None,
        Some(&text),
    );
    assert_eq!(said.code, 1);
    assert!(said.out.contains("[uncapped-pool]"), "{}", said.out);
    assert!(
        said.out
            .contains("<stdin>:12: error: NodePool a: metadata.name: is defined before at <stdin>:3"),
        "{}",
        said.out
    );
}

#[test]
fn every_rule_is_listed_and_documented() {
    let said = veneer(&["lint", "--rules"]);
    assert_eq!(said.code, 0);
    let page = std::fs::read_to_string(support::root().join("docs/src/lint.md")).unwrap();
    for line in said.out.lines().skip(1) {
        let rule = line.split_whitespace().next().unwrap();
        assert!(
            page.contains(&format!("| `{rule}` |")),
            "docs/src/lint.md lacks {rule}"
        );
    }
}

#[test]
fn a_bad_preference_is_found_before_it_is_applied() {
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\n  annotations:\n    veneer.io/preference.1: team=x adjust=20%\n    veneer.io/preference.2: team=x adjust=-20%\nspec:\n  template:\n    spec:\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}\n      requirements: []\n";
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["lint", "-f", "-"],
        None,
        Some(text),
    );
    assert_eq!(said.code, 1);
    let expected =
        "error: NodePool a: metadata.annotations.veneer.io/preference.1: \"adjust=20%\" has no sign";
    assert!(said.out.contains(expected), "{}", said.out);
    assert!(
        said.out.contains("write adjust=-20% or adjust=+20%"),
        "{}",
        said.out
    );
    assert!(!said.out.contains("preference.2"), "{}", said.out);
}

#[test]
fn a_preference_is_judged_as_the_overlay_that_it_becomes() {
    let pool = |annotation: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\n  annotations:\n    {annotation}\nspec:\n  template:\n    spec:\n      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}}\n      requirements:\n      - {{key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: [\"65\"]}}\n"
        )
    };
    let lint = |text: &str| {
        run(
            env!("CARGO_BIN_EXE_veneer"),
            &["lint", "-f", "-"],
            None,
            Some(text),
        )
    };
    let nothing = lint(&pool(
        "veneer.io/preference.1: karpenter.k8s.aws/instance-family=m5x adjust=-20%",
    ));
    assert_eq!(nothing.code, 1, "{}", nothing.out);
    let expected = "<stdin>:6: warning: NodeOverlay pref-a-1: spec.requirements[1]: matches nothing";
    assert!(nothing.out.contains(expected), "{}", nothing.out);

    let overlay = "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: hand}\nspec:\n  weight: 3\n  priceAdjustment: \"-5%\"\n  requirements: []\n";
    let preference = pool("veneer.io/preference.3: karpenter.k8s.aws/instance-family=m5 adjust=-20%");
    let conflict = lint(&format!("{preference}{overlay}"));
    assert!(conflict.out.contains("[conflict]"), "{}", conflict.out);
    assert!(conflict.out.contains("pref-a-3"), "{}", conflict.out);
    assert!(
        conflict
            .all()
            .contains("1 NodePools with 1 preference, 1 NodeOverlays"),
        "{}",
        conflict.all()
    );
}
