//! Thousands of objects that nobody thought of: our CRDs and Karpenter's accept and refuse the same ones, and what is
//! accepted reads as our types.
//!
//! The objects are the cases of the tables with random changes. A run is the same each time; `VENEER_CASES` sets how
//! many objects are tried for each kind, `VENEER_SEED` which ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod support;

use support::{
    cases::tables,
    karpenter,
    random::{Among, Random, random_object},
    server::{Server, Verdict},
    types::through_our_type,
};
use veneer_api::{Mode, crds, to_yaml};

#[tokio::test]
async fn random_objects_get_the_same_verdict_from_our_crds_and_from_karpenters() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (cases, seed) = (number("VENEER_CASES", 300), number("VENEER_SEED", 1));
    let (ours, theirs) = tokio::join!(Server::start(), Server::start());
    let our_crds: Vec<String> = crds(Mode::Standalone, None)
        .iter()
        .map(|crd| to_yaml(crd).unwrap())
        .collect();
    let their_crds = karpenter::neutral();
    tokio::join!(ours.replace_crds(&our_crds), theirs.replace_crds(&their_crds));

    let mut random = Random(seed);
    let (mut accepted, mut refused, mut differences) = (0, 0, Vec::new());
    for (_, table) in tables().iter().filter(|(name, _)| name != "overprovisioner") {
        for case in 0..cases {
            let object = random_object(table, Among::Common, &mut random);
            match tokio::join!(ours.create(&object), theirs.create(&object)) {
                (Verdict::Accepted(stored), Verdict::Accepted(_)) => {
                    through_our_type(&stored);
                    accepted += 1;
                }
                (Verdict::Refused(_), Verdict::Refused(_)) => refused += 1,
                (ours, theirs) => {
                    differences.push(format!("case {case}, {object}:\n  {ours:?}\n  {theirs:?}"));
                }
            }
        }
    }
    println!("{accepted} accepted, {refused} refused by both");
    assert!(
        differences.is_empty(),
        "{} of them differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(
        accepted * 10 > cases && refused * 10 > cases,
        "the objects are too much alike"
    );
}
