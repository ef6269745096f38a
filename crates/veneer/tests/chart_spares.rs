//! The chart with spares beside Karpenter: the flag, and the rights that the guide lists.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail so")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use support::root;

/// The rendered objects.
fn render(values: &[&str]) -> Vec<Value> {
    let said = Command::new(veneer_testbed::helm().unwrap())
        .args(["template", "veneer"])
        .arg(root().join("charts/veneer"))
        .args(values)
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let objects = text.split("\n---");
    objects.map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

/// The rights of a role, one by one.
fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule[field].as_array().unwrap().iter();
        list.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let verbs = texts(rule, "verbs");
                rights.extend(verbs.iter().map(|verb| format!("{verb} {resource}.{group}")));
            }
        }
    }
    rights
}

#[test]
fn spares_beside_karpenter_have_the_flag_and_the_rights_that_the_guide_lists() {
    let objects = render(&["--set", "overprovisioners=true"]);
    let of = |kind: &str, objects: &[Value]| objects.iter().find(|one| one["kind"] == kind).unwrap().clone();
    let container = &of("Deployment", &objects)["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    assert!(arguments.contains(&json!("--overprovisioners")), "{arguments:?}");
    // The guide's role is proven beside a real Karpenter.
    let guide = include_str!("../../../docs/src/overprovisioner.md");
    let mut roles = guide
        .split("```yaml\n")
        .map(|rest| rest.split("```").next().unwrap());
    let role = roles.find(|text| text.contains("kind: ClusterRole")).unwrap();
    let listed = rights(&serde_saphyr::from_str(role).unwrap());
    let without = rights(&of("ClusterRole", &render(&[])));
    let with = rights(&of("ClusterRole", &objects));
    assert_eq!(
        with.difference(&without).cloned().collect::<BTreeSet<_>>(),
        listed
    );
}
