//! A fresh random sample of every subject against Karpenter's own packages. The seed is printed with any difference;
//! the `agreement` command repeats it and runs the full numbers.

#![expect(
    clippy::print_stdout,
    reason = "the seed of a run that passed is worth having, too"
)]

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use veneer_agreement::class_hash::ClassHashes;
use veneer_agreement::disruption::Disruptions;
use veneer_agreement::fleet::Fleets;
use veneer_agreement::launch::Launches;
use veneer_agreement::overlays::Overlays;
use veneer_agreement::quantity::Quantities;
use veneer_agreement::requirements::RequirementPairs;
use veneer_agreement::{Subject, aws_oracle, check, oracle};

fn agrees<S: Subject>(name: &str, subject: &S, oracle: &Path, cases: u64) -> Result<()> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64 % 1_000_000_000;
    let report = check(subject, oracle, seed, 0..cases, &mut |_, _, _| {})?;
    println!(
        "{name}: {} cases of seed {seed} in {:.1} s",
        report.cases,
        report.elapsed.as_secs_f64()
    );
    assert!(
        report.differences.is_empty(),
        "{} of {cases} cases differ; repeat with `agreement {name} --seed {seed}`: {:#?}",
        report.differing,
        report.differences
    );
    Ok(())
}

#[test]
fn quantities_agree_with_kubernetes() -> Result<()> {
    agrees("quantity", &Quantities, &oracle()?, 20_000)
}

#[test]
fn requirements_agree_with_karpenter() -> Result<()> {
    agrees("requirements", &RequirementPairs, &oracle()?, 20_000)
}

#[test]
fn overlays_agree_with_karpenter() -> Result<()> {
    agrees("overlay", &Overlays::new()?, &oracle()?, 500)
}

#[test]
fn fleet_requests_agree_with_the_aws_provider() -> Result<()> {
    agrees("fleet", &Fleets::new()?, &aws_oracle()?, 500)
}

#[test]
fn launch_templates_agree_with_the_aws_provider() -> Result<()> {
    let subject = Launches::new()?;
    agrees("launch", &subject, &aws_oracle()?, 700)?;
    let compared = subject.compared();
    println!("launch: {compared:?} compared");
    assert!(
        compared.len() == 7 && compared.values().sum::<u64>() >= 200,
        "{compared:?}"
    );
    Ok(())
}

#[test]
fn fingerprints_of_node_classes_agree_with_the_aws_provider() -> Result<()> {
    agrees("class-hash", &ClassHashes, &aws_oracle()?, 2_000)
}

#[test]
fn consolidation_saves_at_least_what_karpenter_would() -> Result<()> {
    let subject = Disruptions::default();
    agrees("disruption", &subject, &oracle()?, 100)?;
    println!("disruption: {:?}", subject.totals());
    Ok(())
}
