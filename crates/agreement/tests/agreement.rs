//! A fresh random sample of every subject against Karpenter's own packages. The seed is printed with any difference;
//! the `agreement` command repeats it and runs the full numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use veneer_agreement::quantity::Quantities;
use veneer_agreement::requirements::RequirementPairs;
use veneer_agreement::{Subject, check, oracle};

const CASES: u64 = 20_000;

fn agrees<S: Subject>(name: &str, subject: &S) {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock past 1970")
        .as_nanos() as u64
        % 1_000_000_000;
    let oracle = oracle().expect("the oracle builds");
    let report = check(subject, &oracle, seed, 0..CASES, &mut |_, _, _| {}).expect("the oracle answers");
    println!(
        "{name}: {} cases of seed {seed} in {:.1} s",
        report.cases,
        report.elapsed.as_secs_f64()
    );
    assert!(
        report.differences.is_empty(),
        "{} of {CASES} cases differ; repeat with `agreement {name} --seed {seed}`: {:#?}",
        report.differing,
        report.differences
    );
}

#[test]
fn quantities_agree_with_kubernetes() {
    agrees("quantity", &Quantities);
}

#[test]
fn requirements_agree_with_karpenter() {
    agrees("requirements", &RequirementPairs);
}
