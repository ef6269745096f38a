//! Every example of the NodeOverlay proposal and of its earlier draft, with the outcome that the text describes, or
//! the deviation that the guide documents.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use serde_json::Value;
use support::{Said, root, run, veneer};

const POOL: &str = "examples/overlays/nodepool.yaml";

fn diagnose(file: &str, more: &[&str]) -> Said {
    let mut arguments = vec!["diagnose", "-f", POOL, "-f", file, "-o", "json"];
    arguments.extend(more);
    veneer(&arguments)
}

/// The example with one piece of it replaced.
fn diagnose_changed(file: &str, from: &str, to: &str, more: &[&str]) -> Said {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    let mut arguments = vec!["diagnose", "-f", POOL, "-f", "-", "-o", "json"];
    arguments.extend(more);
    run(
        env!("CARGO_BIN_EXE_veneer"),
        &arguments,
        None,
        Some(&text.replace(from, to)),
    )
}

fn overlay<'a>(report: &'a Value, name: &str) -> &'a Value {
    let overlays = report["overlays"].as_array().unwrap();
    overlays.iter().find(|overlay| overlay["name"] == name).unwrap()
}

fn warnings(report: &Value, name: &str) -> Vec<String> {
    let warnings = overlay(report, name)["warnings"].as_array().unwrap();
    warnings
        .iter()
        .map(|warning| warning["rule"].as_str().unwrap().to_owned())
        .collect()
}

fn offerings(report: &Value) -> &[Value] {
    report["offerings"].as_array().unwrap()
}

fn prices(row: &Value) -> (f64, f64) {
    (row["listPrice"].as_f64().unwrap(), row["price"].as_f64().unwrap())
}

fn of_type<'a>(report: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    offerings(report)
        .iter()
        .filter(move |row| row["instanceType"] == name)
}

#[test]
fn a_price_replaces_that_of_on_demand_and_leaves_spot() {
    let said = diagnose("examples/overlays/proposal/price.yaml", &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let report = said.json();
    assert_eq!(overlay(&report, "price-override")["ready"], true);
    for row in offerings(&report) {
        let (list, price) = prices(row);
        let expected = if row["capacityType"] == "on-demand" {
            5.0
        } else {
            list
        };
        assert_eq!(price, expected, "{row}");
    }
    assert!(warnings(&report, "price-override").contains(&"same-price".to_owned()));
}

#[test]
fn an_adjustment_adds_or_takes_away_an_amount_or_a_share() {
    type Change = fn(f64) -> f64;
    let expectations: [(&str, Change); 4] = [
        ("+5.00", |list| list + 5.0),
        ("-7.50", |list| (list - 7.5).max(0.0)),
        ("-10%", |list| list * (1.0 + -10.0 / 100.0)),
        ("+15%", |list| list * (1.0 + 15.0 / 100.0)),
    ];
    for (adjustment, expected) in expectations {
        let file = "examples/overlays/proposal/price-adjustment.yaml";
        let said = diagnose_changed(
            file,
            "priceAdjustment: \"+5.00\"",
            &format!("priceAdjustment: \"{adjustment}\""),
            &[],
        );
        let report = said.json();
        let on_demand = offerings(&report)
            .iter()
            .filter(|row| row["capacityType"] == "on-demand");
        let mut checked = 0;
        for row in on_demand {
            let (list, price) = prices(row);
            assert_eq!(price, expected(list), "{adjustment}: {row}");
            checked += 1;
        }
        assert!(checked > 100, "{checked}");
    }
}

#[test]
fn four_adjustments_in_one_overlay_are_one_too_many() {
    let both = "priceAdjustment: \"+5.00\"\n  priceAdjustment: \"-10%\"";
    let file = "examples/overlays/proposal/price-adjustment.yaml";
    let said = diagnose_changed(file, "priceAdjustment: \"+5.00\"", both, &[]);
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("<stdin>:10: the document cannot be read: duplicate mapping key"),
        "{}",
        said.err
    );
}

#[test]
fn capacity_adds_an_extended_resource_to_the_listed_types_alone() {
    let report = diagnose("examples/overlays/proposal/capacity.yaml", &[]).json();
    let overlaid = overlay(&report, "extended-resource");
    assert_eq!(
        (&overlaid["ready"], &overlaid["matchedInstanceTypes"]),
        (&true.into(), &5.into())
    );
    for row in offerings(&report) {
        let name = row["instanceType"].as_str().unwrap();
        let listed = [
            "m5.large",
            "m5.2xlarge",
            "m5.4xlarge",
            "m5.8xlarge",
            "m5.12xlarge",
        ]
        .contains(&name);
        assert_eq!(
            row["capacity"].get("smarter-devices/fuse"),
            listed.then_some(&"1".into()),
            "{row}"
        );
        assert_eq!(row["listPrice"], row["price"]);
    }
}

#[test]
fn huge_pages_are_added_once_the_label_is_one_that_exists() {
    let file = "examples/overlays/proposal/hugepages.yaml";
    let said = diagnose(file, &[]);
    assert_eq!(overlay(&said.json(), "hugepage-overlay")["matchedOfferings"], 0);
    assert!(
        said.err
            .contains("did you mean \"karpenter.k8s.aws/instance-category\"?"),
        "{}",
        said.err
    );

    let report = diagnose_changed(file, "node.kubernetes.io", "karpenter.k8s.aws", &[]).json();
    let row = of_type(&report, "m5.large").next().unwrap();
    assert_eq!(
        row["capacity"],
        serde_json::json!({ "hugepages-1Gi": "2Gi", "hugepages-2Mi": "100Mi" })
    );
    assert_eq!(
        of_type(&report, "t3.large").next().unwrap()["capacity"],
        serde_json::json!({})
    );
}

#[test]
fn memory_is_refused_as_capacity_and_the_overlay_beside_it_goes_on_working() {
    let said = diagnose("examples/overlays/proposal/merge.yaml", &[]);
    assert_eq!(said.code, 2);
    let report = said.json();
    for name in ["default", "memory"] {
        let refused = overlay(&report, name);
        assert_eq!(
            (&refused["ready"], &refused["reason"]),
            (&false.into(), &"RuntimeValidation".into())
        );
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .starts_with("spec.capacity.memory: ")
        );
    }
    assert_eq!(overlay(&report, "extended-resource")["ready"], true);
    assert!(
        said.err
            .contains("merge.yaml:17: NodeOverlay memory: spec.requirements[0].values[0]: 2048 is a number")
    );
    assert!(said.err.contains("fix: write \"2048\""));
}

#[test]
fn the_same_example_with_a_resource_that_is_allowed_merges_by_weight() {
    let file = "examples/overlays/proposal/merge.yaml";
    let said = diagnose_changed(file, "memory: ", "example.com/token: ", &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    let report = said.json();
    let large = of_type(&report, "m5.large").next().unwrap();
    assert_eq!(
        large["capacity"],
        serde_json::json!({ "example.com/token": "50Mi", "smarter-devices/fuse": "1" })
    );
    let nano = of_type(&report, "t3.nano").next().unwrap();
    assert_eq!(
        nano["capacity"],
        serde_json::json!({ "example.com/token": "10Mi" })
    );
    for row in [large, nano] {
        let (list, price) = prices(row);
        assert_eq!(price, list * (1.0 + -10.0 / 100.0));
    }
}

#[test]
fn the_misconfigured_pair_is_refused_as_it_stands() {
    let said = diagnose("examples/overlays/proposal/misconfiguration.yaml", &[]);
    assert_eq!(said.code, 2);
    let report = said.json();
    for name in ["memory-1", "capacity-1"] {
        assert_eq!(overlay(&report, name)["reason"], "RuntimeValidation");
    }
    assert!(
        said.err
            .contains("[\"m5.large\", \"m5.2xlarge\"] does not go with Gt"),
        "{}",
        said.err
    );
}

#[test]
fn of_the_misconfigured_pair_the_first_name_wins_only_if_that_is_asked_for() {
    let file = "examples/overlays/proposal/misconfiguration.yaml";
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    // With a resource that is allowed and values that Gt takes, the two meet on m5.2xlarge as the text says.
    let text = text
        .replace("memory: ", "example.com/token: ")
        .replace("[\"m5.large\", \"m5.2xlarge\"]", "[\"2048\"]");
    let ready = |more: &[&str]| {
        let mut arguments = vec![
            "diagnose", "-f", POOL, "-f", "-", "-o", "json", "--type", "overlay",
        ];
        arguments.extend(more);
        let said = run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(&text));
        assert_eq!(said.code, 0, "{}", said.err);
        let report = said.json();
        ["capacity-1", "memory-1"].map(|name| {
            let overlay = overlay(&report, name);
            (
                overlay["ready"].as_bool().unwrap(),
                overlay["conflictsWith"].clone(),
            )
        })
    };
    let none = serde_json::json!([]);
    let alphabetical = ready(&["--tie-break", "alphabetical"]);
    assert_eq!(
        alphabetical,
        [(true, none.clone()), (false, serde_json::json!(["capacity-1"]))]
    );
    assert_eq!(
        ready(&[]),
        [(false, serde_json::json!(["memory-1"])), (true, none)]
    );
}

#[test]
fn the_diagnosis_of_the_proposal_works_word_for_word() {
    let arguments = [
        "diagnose",
        "--type",
        "instance-type",
        "--overlay",
        "price-modification",
        "extended-resource",
        "--nodepool",
        "default",
        "-f",
        POOL,
        "-f",
        "examples/overlays/proposal/diagnose.yaml",
    ];
    let said = run(env!("CARGO_BIN_EXE_karpenteradm"), &arguments, None, None);
    assert_eq!(said.code, 0, "{}", said.err);
    insta::assert_snapshot!(said.out);
}

#[test]
fn the_proposals_example_as_it_is_indented_there_is_no_yaml() {
    let file = "examples/overlays/proposal/diagnose.yaml";
    let said = diagnose_changed(file, "  priceAdjustment:", "   priceAdjustment:", &[]);
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("error[unreadable]: <stdin>:9: the document cannot be read"),
        "{}",
        said.err
    );
    assert_eq!(overlay(&said.json(), "extended-resource")["ready"], true);
}

#[test]
fn the_skeleton_is_refused_by_a_field_that_is_wrong() {
    let said = diagnose("examples/overlays/proposal/skeleton.yaml", &[]);
    assert_eq!(said.code, 2);
    let expected = "examples/overlays/proposal/skeleton.yaml:11: NodeOverlay default: spec.capacity: invalid type: string \"...\", expected a map";
    assert!(said.err.contains(expected), "{}", said.err);
}

#[test]
fn overlays_inside_a_node_pool_were_not_chosen_and_are_not_read() {
    let said = diagnose("examples/overlays/proposal/nodepool-integration.yaml", &[]);
    assert_eq!(said.code, 2);
    let expected = "apiVersion: \"karpenter.sh/v1alpha5\" is not supported; expected \"karpenter.sh/v1\"";
    assert!(said.err.contains(expected), "{}", said.err);
}

#[test]
fn the_drafts_discount_takes_a_tenth_off_everything() {
    let said = diagnose("examples/overlays/draft/default-discount.yaml", &[]);
    assert_eq!(said.code, 0, "{}", said.err);
    for row in offerings(&said.json()) {
        let (list, price) = prices(row);
        assert_eq!(price, list * (1.0 + -10.0 / 100.0));
    }
    assert!(
        said.err
            .contains("the earlier draft's pricePercent: 90 is now priceAdjustment: \"-10%\"")
    );
    assert!(warnings(&said.json(), "default-discount").contains(&"draft-field".to_owned()));
}

#[test]
fn the_drafts_selector_selects_types_and_the_resource_is_theirs_in_every_offering() {
    let report = diagnose("examples/overlays/draft/extended-resource.yaml", &[]).json();
    assert_eq!(overlay(&report, "extended-resource")["matchedInstanceTypes"], 5);
    assert!(of_type(&report, "m5.2xlarge").all(|row| row["capacity"]["smarter-devices/fuse"] == "1"));
    assert!(of_type(&report, "m5.xlarge").all(|row| row["capacity"] == serde_json::json!({})));
    // Karpenter keeps capacity by type, so the spot offerings have it although on-demand is selected.
    assert!(warnings(&report, "extended-resource").contains(&"capacity-for-all-offerings".to_owned()));
}

#[test]
fn the_drafts_overhead_of_the_heavier_overlay_replaces_that_of_the_lighter() {
    for file in [
        "examples/overlays/draft/memory.yaml",
        "examples/overlays/draft/merged.yaml",
    ] {
        let said = diagnose(file, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        let report = said.json();
        assert_eq!(
            of_type(&report, "m5.large").next().unwrap()["overhead"]["memory"],
            "50Mi",
            "{file}"
        );
        assert_eq!(
            of_type(&report, "t3.nano").next().unwrap()["overhead"]["memory"],
            "10Mi",
            "{file}"
        );
        assert!(said.err.contains("[overhead]"), "{}", said.err);
    }
    let report = diagnose("examples/overlays/draft/merged.yaml", &[]).json();
    let row = of_type(&report, "m5.large").next().unwrap();
    assert_eq!(row["capacity"]["smarter-devices/fuse"], "1");
    assert_eq!(
        row["overlays"],
        serde_json::json!(["default", "memory", "extended-resource"])
    );
}

#[test]
fn the_draft_converts_to_overlays_that_lint_finds_no_error_in() {
    for file in ["default-discount", "extended-resource", "memory", "merged"] {
        let path = format!("examples/overlays/draft/{file}.yaml");
        let converted = veneer(&["convert", "-f", &path]);
        assert_eq!(converted.code, 0, "{}", converted.err);
        assert!(!converted.out.contains("selector") && !converted.out.contains("pricePercent"));
        // Overhead is a field of ours, which Karpenter's CRD does not have.
        let mode = if converted.out.contains("overhead") {
            "standalone"
        } else {
            "companion"
        };
        let arguments = ["lint", "--level", "error", "--mode", mode, "-f", "-"];
        let said = run(
            env!("CARGO_BIN_EXE_veneer"),
            &arguments,
            None,
            Some(&converted.out),
        );
        assert_eq!(said.code, 0, "{file}: {}{}", said.out, said.err);
    }
    let converted = veneer(&["convert", "-f", "examples/overlays/draft/merged.yaml"]);
    insta::assert_snapshot!(converted.all());
}

#[test]
fn text_that_looks_like_a_number_stays_text() {
    let draft = "kind: NodeOverlay\nmetadata:\n  name: one\nspec:\n  selector:\n    matchLabels: {a: \"1\"}\n  price: \"5.00\"\n  weight: 3\n";
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["convert", "-f", "-"],
        None,
        Some(draft),
    );
    let expected = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata:\n  name: one\nspec:\n  requirements:\n  - key: a\n    operator: In\n    values:\n    - \"1\"\n  price: \"5.00\"\n  weight: 3\n";
    assert_eq!(said.out, expected, "{}", said.err);
}

#[test]
fn what_needs_no_change_is_printed_as_it_is() {
    let text = "# A comment.\napiVersion: v1\nkind: ConfigMap # kept\n---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: one}\nspec: {price: \"1\"}\n";
    let said = run(
        env!("CARGO_BIN_EXE_veneer"),
        &["convert", "-f", "-"],
        None,
        Some(text),
    );
    assert_eq!((said.out.as_str(), said.err.as_str()), (text, ""));
}
