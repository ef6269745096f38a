//! `veneer diagnose`: tables, formats, filters, messages and exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use support::{run, veneer, veneer_at};

const DISCOUNTS: &str = "examples/overlays/discounts";
const DEEP: &str = "examples/overlays/proposed/deep-discount.yaml";
const KWOK: &str = "crates/veneer/tests/cases/kwok";
const CATALOG: &str = "crates/veneer/tests/cases/kwok/catalog.json";

#[test]
fn tables_are_readable_at_80_and_200_columns() {
    for columns in [80, 200] {
        for (name, arguments) in [
            ("offerings", &["-l", "size=large"][..]),
            ("wide", &["-l", "size=large", "-o", "wide"]),
            ("overlays", &["--type", "overlay"]),
            ("nodepools", &["--type", "nodepool"]),
        ] {
            if name == "wide" && columns == 80 {
                continue;
            }
            let mut all = vec!["diagnose", "-f", DISCOUNTS, "--propose", DEEP];
            all.extend(arguments);
            let said = veneer_at(columns, &all);
            assert!(
                said.out
                    .lines()
                    .all(|line| line.chars().count() <= usize::from(columns)),
                "{}",
                said.out
            );
            insta::assert_snapshot!(format!("{name}_{columns}"), said.all());
        }
    }
}

#[test]
fn json_yaml_and_csv_say_the_same() {
    let arguments = |format| {
        [
            "diagnose",
            "-f",
            DISCOUNTS,
            "--nodepool",
            "batch",
            "-l",
            "size=large,family=m5",
            "-o",
            format,
        ]
    };
    insta::assert_snapshot!("json", veneer(&arguments("json")).out);
    insta::assert_snapshot!("yaml", veneer(&arguments("yaml")).out);
    insta::assert_snapshot!("csv", veneer(&arguments("csv")).out);
}

#[test]
fn the_same_input_gives_the_same_bytes_and_timing_is_added_on_request() {
    let arguments = ["diagnose", "-f", DISCOUNTS, "-o", "json"];
    let said = veneer(&arguments);
    assert_eq!(said.out, veneer(&arguments).out);
    assert_eq!(said.json().get("timing"), None);
    let timing = &veneer(&["diagnose", "-f", DISCOUNTS, "-o", "json", "--timing"]).json()["timing"];
    for field in ["loadMs", "overlayMs", "solveMs", "peakRssMiB"] {
        assert!(
            timing[field].as_f64().is_some_and(|value| value >= 0.0),
            "{timing}"
        );
    }
}

#[test]
fn rows_are_filtered_and_sorted_as_asked() {
    let rows = |more: &[&str]| {
        let mut arguments = vec!["diagnose", "-f", DISCOUNTS, "-o", "json"];
        arguments.extend(more);
        let report = veneer(&arguments).json();
        report["offerings"].as_array().unwrap().clone()
    };
    let changed = rows(&["--changed-only", "--nodepool", "batch"]);
    assert!(!changed.is_empty());
    assert!(
        changed
            .iter()
            .all(|row| row["price"] != row["listPrice"] && row["nodePool"] == "batch")
    );

    let selected = rows(&[
        "-l",
        "zone=us-east-1a,capacity-type=spot,arch=arm64,family in (m6g)",
    ]);
    assert!(!selected.is_empty());
    for row in &selected {
        assert_eq!(
            (&row["zone"], &row["capacityType"]),
            (&"us-east-1a".into(), &"spot".into())
        );
        assert!(row["instanceType"].as_str().unwrap().starts_with("m6g."));
    }

    let price = |row: &serde_json::Value, field: &str| row[field].as_f64().unwrap();
    let by_price = rows(&["--nodepool", "batch", "--sort", "price"]);
    assert!(
        by_price
            .windows(2)
            .all(|pair| price(&pair[0], "price") <= price(&pair[1], "price"))
    );
    let saving = |row: &serde_json::Value| price(row, "listPrice") - price(row, "price");
    let by_saving = rows(&["--nodepool", "batch", "--sort", "saving"]);
    assert!(
        by_saving
            .windows(2)
            .all(|pair| saving(&pair[0]) >= saving(&pair[1]))
    );
    assert!(saving(&by_saving[0]) > 0.0);

    let named = rows(&["--overlay", "savings-plan-m5"]);
    assert!(!named.is_empty());
    assert!(
        named
            .iter()
            .all(|row| row["instanceType"].as_str().unwrap().starts_with("m5."))
    );
}

#[test]
fn a_table_leaves_out_what_the_pool_cannot_launch_and_says_so() {
    let arguments = [
        "diagnose",
        "-f",
        DISCOUNTS,
        "--nodepool",
        "batch",
        "-l",
        "family=m5",
    ];
    let said = veneer(&arguments);
    assert!(!said.out.contains("spot"), "{}", said.out);
    assert!(
        said.err
            .contains("more offerings that the NodePools' requirements exclude; --all shows them")
    );
    let mut all = arguments.to_vec();
    all.push("--all");
    assert!(veneer(&all).out.contains("spot"));
}

#[test]
fn an_unknown_overlay_or_pool_is_named_with_the_nearest_and_all_others() {
    let said = veneer(&["diagnose", "-f", DISCOUNTS, "--nodepool", "defualt"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert_eq!(
        said.err,
        "error: there is no NodePool \"defualt\" in examples/overlays/discounts; did you mean default? There are: batch, default\n"
    );
    let said = veneer(&[
        "diagnose",
        "-f",
        DISCOUNTS,
        "--overlay",
        "licence-fee",
        "fuse-devise",
    ]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("no NodeOverlay \"fuse-devise\"") && said.err.contains("did you mean fuse-device?")
    );
}

#[test]
fn an_empty_catalogue_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.json");
    std::fs::write(&file, "[]").unwrap();
    let said = veneer(&["diagnose", "-f", DISCOUNTS, "--catalog", file.to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(
        said.err
            .contains("empty.json has no instance types, so there is nothing to evaluate"),
        "{}",
        said.err
    );
}

#[test]
fn a_broken_folder_shows_what_can_be_read_and_names_the_rest() {
    let said = veneer(&[
        "diagnose",
        "-f",
        "examples/overlays/nodepool.yaml",
        "-f",
        "crates/veneer/tests/cases/broken",
        "-l",
        "family=t3,size=nano",
    ]);
    insta::assert_snapshot!(said.all());
}

#[test]
fn without_files_and_without_a_cluster_the_message_says_what_to_give() {
    let said = veneer(&["diagnose"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(
        said.err
            .contains("found no cluster; to work without a cluster, give files with -f PATH"),
        "{}",
        said.err
    );
    let said = veneer(&["diagnose", "--kubeconfig", "nowhere.yaml"]);
    assert!(
        said.err.contains("cannot read the kubeconfig nowhere.yaml"),
        "{}",
        said.err
    );
}

#[test]
fn overlays_without_a_pool_have_nothing_to_act_on() {
    let said = veneer(&["diagnose", "-f", "examples/overlays/proposal/price.yaml"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("there is no NodePool in examples/overlays/proposal/price.yaml"),
        "{}",
        said.err
    );
}

#[test]
fn a_kwok_pool_asks_for_its_catalogue() {
    let pool = format!("{KWOK}/pool.yaml");
    let said = veneer(&["diagnose", "-f", &pool]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("NodePool kwok uses Karpenter's KWOK provider"),
        "{}",
        said.err
    );
    assert!(said.err.contains("--catalog FILE"), "{}", said.err);
    assert_eq!(veneer(&["diagnose", "-f", &pool, "--catalog", CATALOG]).code, 0);
}

#[test]
fn an_overlay_on_one_entry_of_a_name_also_changes_the_other() {
    let said = veneer(&[
        "diagnose",
        "-f",
        KWOK,
        "--catalog",
        CATALOG,
        "-o",
        "wide",
        "--all",
        "-l",
        "family=m5",
    ]);
    insta::assert_snapshot!(said.all());
}

#[test]
fn capacity_overlays_are_warned_about_what_karpenter_lets_through() {
    let pool = format!("{KWOK}/pool.yaml");
    let overlays = "crates/veneer/tests/cases/capacity";
    let said = veneer(&[
        "diagnose",
        "-f",
        &pool,
        "-f",
        overlays,
        "--catalog",
        CATALOG,
        "--type",
        "overlay",
    ]);
    insta::assert_snapshot!(said.all());
}

#[test]
fn a_discount_that_puts_on_demand_below_spot_is_warned_about() {
    let said = veneer(&[
        "diagnose",
        "-f",
        DISCOUNTS,
        "--propose",
        DEEP,
        "--overlay",
        "deep-discount",
    ]);
    assert_eq!(said.code, 0);
    assert!(
        said.err
            .contains("warning[on-demand-below-spot]: examples/overlays/proposed/deep-discount.yaml:12")
    );
    assert!(
        said.err.contains("aws/karpenter-provider-aws#8704"),
        "{}",
        said.err
    );
}

#[test]
fn lists_json_and_standard_input_are_read() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "half"}, "spec": {"priceAdjustment": "-50%"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]}"#;
    let arguments = [
        "diagnose",
        "-f",
        "examples/overlays/nodepool.yaml",
        "-f",
        "-",
        "-l",
        "size=nano,zone=us-east-1a",
    ];
    let said = run(env!("CARGO_BIN_EXE_veneer"), &arguments, None, Some(list));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("half") && said.err.contains("note: ignored 1 object of other kinds (Pod 1)"));
}

#[test]
fn a_proposal_replaces_what_has_the_same_name() {
    let proposed = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: licence-fee}\nspec: {priceAdjustment: \"+9.00\"}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fee.yaml");
    std::fs::write(&file, proposed).unwrap();
    let file = file.to_str().unwrap();
    let report = veneer(&[
        "diagnose",
        "-f",
        DISCOUNTS,
        "--propose",
        file,
        "--overlay",
        "licence-fee",
        "-o",
        "json",
    ])
    .json();
    assert_eq!(report["overlays"].as_array().unwrap().len(), 1);
    let rows = report["offerings"].as_array().unwrap();
    let raised =
        |row: &serde_json::Value| row["price"].as_f64().unwrap() == row["listPrice"].as_f64().unwrap() + 9.0;
    assert!(rows.iter().any(raised));
}

#[test]
fn bad_usage_is_exit_code_2_and_help_is_0() {
    for arguments in [
        &["diagnose", "--type", "galaxy"][..],
        &["diagnose", "-f", DISCOUNTS, "-l", "=x"],
        &["diagnose", "-f", DISCOUNTS, "--region", "mars-1"],
        &["diagnose", "-f", "no/such/file"],
    ] {
        let said = veneer(arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}");
        assert!(!said.err.is_empty());
    }
    for command in ["diagnose", "lint", "convert"] {
        let said = veneer_at(100, &[command, "--help"]);
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(format!("help_{command}"), said.out);
    }
}
