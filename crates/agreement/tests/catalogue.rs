//! Every instance type of both catalogues, held against the Karpenter provider that would construct it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::json;
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::{Catalogue, InstanceType, Offering};
use veneer_engine::labels;
use veneer_engine::quantity::Quantity;
use veneer_engine::requirements::Requirements;
use veneer_engine::resources::ResourceList;
use veneer_engine::vocabulary::Vocabulary;

/// An instance type as the oracle writes it; `oracle/internal/instancetypes` says what the fields mean.
#[derive(Debug, Deserialize)]
struct Described {
    name: String,
    requirements: Labels,
    capacity: Amounts,
    allocatable: Amounts,
    offerings: Vec<DescribedOffering>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct DescribedOffering {
    requirements: Labels,
    price: f64,
    available: bool,
    reserved: i64,
}

type Labels = BTreeMap<String, Values>;
type Amounts = BTreeMap<String, i64>;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Values {
    operator: String,
    values: Vec<String>,
}

#[test]
fn the_kwok_catalogues_are_read_as_the_kwok_provider_reads_them() {
    let karpenter = module("sigs.k8s.io/karpenter");
    let oracle = run(&repository().join("oracle/build"), &[]);
    for (file, expected) in [
        ("kwok/examples/aws_instance_types.json", 1724),
        ("kwok/cloudprovider/instance_types.json", 144),
    ] {
        let path = karpenter.join(file);
        let answers = ask(&oracle, "kwok-instance-types", &json!({ "catalogue": path }));
        let text = std::fs::read_to_string(&path).unwrap();
        let ours = kwok::parse(&text, file).unwrap();
        assert_eq!((answers.len(), ours.types.len()), (expected, expected), "{file}");
        for (theirs, ours_type) in answers.iter().zip(&ours.types) {
            let context = format!("{} of {file}", theirs.name);
            assert_eq!(theirs.name, *ours_type.name);
            compare_type(theirs, ours_type, &ours.vocabulary, &context);
            let all: Vec<&Offering> = ours_type.offerings.iter().collect();
            assert_eq!(
                theirs.offerings,
                offerings(&all, &ours.vocabulary),
                "offerings of {context}"
            );
        }
        eprintln!("{file}: {expected} types agree");
    }
}

#[test]
fn the_embedded_catalogue_is_what_the_aws_provider_makes_of_ec2s_answers() {
    let oracle = run(&repository().join("oracle/build"), &["aws"]);
    let shapes = run(&repository().join("catalog/generate"), &["--shapes"]);
    let known: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(&shapes).unwrap()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut compared = 0;
    for region in aws::regions().unwrap() {
        let ours = aws::region(&region).unwrap();
        let zones: Vec<_> = ours
            .region
            .zones
            .iter()
            .map(|z| json!({ "name": z.name, "id": z.id }))
            .collect();
        let case = json!({
            "shapes": shapes,
            "region": region,
            "zones": zones,
            "offered": offered(&ours.catalogue),
        });
        let answers = ask(&oracle, "instance-types", &case);
        assert_eq!(
            answers.len(),
            ours.catalogue.types.len(),
            "number of types in {region}"
        );
        for (theirs, ours_type) in answers.iter().zip(&ours.catalogue.types) {
            let context = format!("{} in {region}", theirs.name);
            assert_eq!(theirs.name, *ours_type.name);
            compare_type(theirs, ours_type, &ours.catalogue.vocabulary, &context);
            compare_aws_offerings(theirs, ours_type, &ours, &context);
            seen.insert(theirs.name.clone());
            compared += 1;
        }
    }
    let missing: Vec<_> = known.keys().filter(|name| !seen.contains(*name)).collect();
    assert!(
        missing.iter().all(|name| name.starts_with("mac")),
        "not in the catalogue: {missing:?}"
    );
    eprintln!(
        "{} types agree, {compared} over all regions; left out: {missing:?}",
        seen.len()
    );
}

#[test]
fn the_committed_catalogue_is_what_the_generator_makes_of_its_sources() {
    let said = run(&repository().join("catalog/generate"), &["--check"]);
    assert_eq!(said, "catalog/data is up to date");
}

/// Regions for which the provider carries a price table; elsewhere it would use that of us-east-1.
const PRICED_BY_THE_PROVIDER: [&str; 4] = ["cn-north-1", "us-east-1", "us-gov-east-1", "us-gov-west-1"];

fn compare_aws_offerings(theirs: &Described, ours: &InstanceType, aws: &aws::AwsCatalogue, context: &str) {
    if !PRICED_BY_THE_PROVIDER.contains(&&*aws.region.name) {
        return;
    }
    let vocabulary = &aws.catalogue.vocabulary;
    // The provider lists every zone of the region and marks what cannot be had; ours lists what can.
    let theirs: Vec<DescribedOffering> = theirs.offerings.iter().filter(|o| o.available).cloned().collect();
    let available: Vec<&Offering> = ours.offerings.iter().filter(|o| o.available).collect();
    let mut ours = offerings(&available, vocabulary);
    // Its spot prices come from EC2 at run time; until then it takes the on-demand price.
    for (ours, theirs) in ours.iter_mut().zip(&theirs) {
        if ours.requirements[labels::CAPACITY_TYPE].values == [labels::SPOT] {
            assert!(ours.price <= theirs.price, "spot price of {context}");
            ours.price = theirs.price;
        }
    }
    assert_eq!(theirs, ours, "offerings of {context}");
}

fn compare_type(theirs: &Described, ours: &InstanceType, vocabulary: &Vocabulary, context: &str) {
    assert_eq!(
        theirs.requirements,
        describe(&ours.requirements, vocabulary),
        "labels of {context}"
    );
    assert_eq!(theirs.capacity, amounts(&ours.capacity), "capacity of {context}");
    assert_eq!(
        theirs.allocatable,
        amounts(&ours.allocatable()),
        "allocatable of {context}"
    );
}

fn describe(requirements: &Requirements, vocabulary: &Vocabulary) -> Labels {
    let view = |(key, requirement): (_, &veneer_engine::requirements::Requirement)| {
        let values = vocabulary
            .sorted_texts(requirement.values())
            .into_iter()
            .map(str::to_owned)
            .collect();
        (
            vocabulary.text(key).to_owned(),
            Values {
                operator: requirement.operator().to_string(),
                values,
            },
        )
    };
    requirements.iter().map(view).collect()
}

fn amounts(list: &ResourceList) -> Amounts {
    list.iter()
        .map(|(name, quantity)| (name.to_owned(), Quantity::milli_value(quantity)))
        .collect()
}

/// Offerings in the oracle's order: by zone, then by capacity type.
fn offerings(list: &[&Offering], vocabulary: &Vocabulary) -> Vec<DescribedOffering> {
    let mut sorted = list.to_vec();
    sorted.sort_by_key(|offering| (offering.zone(vocabulary), offering.capacity_type(vocabulary)));
    let view = |offering: &Offering| DescribedOffering {
        requirements: describe(&offering.requirements, vocabulary),
        price: offering.price,
        available: offering.available,
        reserved: offering.reservation_capacity,
    };
    sorted.into_iter().map(view).collect()
}

/// Type → zones that offer it.
fn offered(catalogue: &Catalogue) -> BTreeMap<&str, Vec<&str>> {
    let zone = catalogue.vocabulary.get(labels::ZONE).unwrap();
    let zones = |t: &InstanceType| {
        catalogue
            .vocabulary
            .sorted_texts(t.requirements.get(zone).unwrap().values())
    };
    catalogue.types.iter().map(|t| (&*t.name, zones(t))).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Runs a program and gives the last line that it prints.
fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{} {arguments:?} failed",
        program.display()
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .last()
        .unwrap()
        .to_owned()
}

/// The folder of a Go module of the oracle.
fn module(name: &str) -> PathBuf {
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", name])
        .current_dir(repository().join("oracle"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn ask(oracle: &str, verb: &str, case: &serde_json::Value) -> Vec<Described> {
    let mut child = Command::new(oracle)
        .arg(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{case}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}",
            String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(500)])
        )
    })
}
