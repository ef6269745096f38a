//! The CRDs as files: what users install changes only on purpose.
//!
//! `UPDATE_GOLDEN=1 cargo test -p veneer-api --test golden` writes the files anew.

use std::{fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use veneer_api::{Mode, crds, to_yaml};

#[test]
fn the_crds_are_what_the_golden_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut expected_names = Vec::new();
    for crd in crds(Mode::Standalone, None) {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let path = folder.join(&name);
        let yaml = to_yaml(&crd).unwrap();
        if update {
            fs::write(&path, &yaml).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            golden == yaml,
            "{} differs from the types; if that is intended, run UPDATE_GOLDEN=1 cargo test -p veneer-api --test golden",
            path.display()
        );
        expected_names.push(name);
    }
    let mut found: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, expected_names, "files in {}", folder.display());
}

#[test]
fn the_yaml_reads_back_as_the_same_object() {
    for crd in crds(Mode::Standalone, None) {
        let yaml = to_yaml(&crd).unwrap();
        let read: CustomResourceDefinition = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read, crd);
    }
}

#[test]
fn beside_karpenter_only_our_own_kind_is_installed() {
    let kinds = |mode| -> Vec<String> {
        crds(mode, None)
            .into_iter()
            .map(|crd| crd.spec.names.kind)
            .collect()
    };
    assert_eq!(kinds(Mode::Companion), ["Overprovisioner"]);
    assert_eq!(
        kinds(Mode::Standalone),
        [
            "EC2NodeClass",
            "KWOKNodeClass",
            "NodeClaim",
            "NodeOverlay",
            "NodePool",
            "Overprovisioner"
        ]
    );
}

#[test]
fn every_rule_has_a_message_that_says_more_than_the_rule() {
    fn check(value: &serde_json::Value, path: &str, seen: &mut usize) {
        if let Some(rules) = value
            .get("x-kubernetes-validations")
            .and_then(|rules| rules.as_array())
        {
            for rule in rules {
                let message = rule["message"].as_str().unwrap_or_default();
                assert!(message.len() > 10, "{path}: {rule} lacks a message");
                *seen += 1;
            }
        }
        match value {
            serde_json::Value::Object(map) => map
                .iter()
                .for_each(|(k, v)| check(v, &format!("{path}.{k}"), seen)),
            serde_json::Value::Array(list) => list.iter().for_each(|v| check(v, path, seen)),
            _ => {}
        }
    }
    let mut seen = 0;
    for crd in crds(Mode::Standalone, None) {
        check(
            &serde_json::to_value(&crd).unwrap(),
            &crd.spec.names.kind,
            &mut seen,
        );
    }
    assert!(seen > 50, "found {seen} rules only");
}
