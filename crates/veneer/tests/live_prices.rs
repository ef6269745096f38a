//! Today's prices: what the price list says while `veneer run` collects it decides what is launched, not what the embedded catalog says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail the test"
)]

#[path = "support/accounts.rs"]
mod accounts;
mod bed;
#[path = "support/running.rs"]
mod running;

use accounts::{ACCOUNT, REGION, collected, command, organization, price, write};
use bed::Bed;
use running::{Running, eventually};
use serde_json::json;
use veneer_testbed::aws_double::AwsDouble;

#[test]
fn what_is_launched_is_the_cheapest_of_today() {
    let bed = Bed::start();
    bed.pool(
        "default",
        json!({"requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.xlarge", "m5.xlarge", "r5.xlarge"]}]}),
    );
    // The catalog has the c5.xlarge as the cheapest, and the r5.xlarge as the dearest of the three.
    let mut described = organization();
    described.accounts[0].plans.clear();
    described.accounts[0]
        .regions
        .get_mut(REGION)
        .unwrap()
        .reserved
        .clear();
    described.prices = vec![price("c5.xlarge", "0.17"), price("r5.xlarge", "0.01")];
    let double = AwsDouble::start(described).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let accounts = write(folder.path(), "accounts.yaml", &collected());
    let file = format!(
        "commitments: {{source: aws, configFile: {accounts}}}\nreconcileInterval: 200ms\nmetricsBindAddress: \"0\"\nhealthProbeBindAddress: \"0\"\nleaderElection: {{enabled: false}}\naws: {{accountId: \"{ACCOUNT}\", region: {REGION}}}\n"
    );
    let config = write(folder.path(), "veneer.yaml", &file);
    let mut run = command(
        &double,
        &[
            "run",
            "--mode",
            "standalone",
            "--provider",
            "kwok",
            "--config",
            &config,
        ],
    );
    run.envs(bed.cluster.env())
        .env("VENEER_BATCH_IDLE_DURATION", "300ms");
    let running = Running::start(run);
    let told = "prices and offerings of today replace those of the embedded catalog";
    let line = eventually("today's prices are known", || {
        let lines = running.lines(told).into_iter();
        let mut known = lines.filter(|line| line["on_demand_prices"].as_u64() > Some(0));
        known.next().ok_or_else(|| running.log())
    });
    // Two types in each zone of the region.
    assert_eq!(line["on_demand_prices"].as_u64().unwrap() % 2, 0, "{line}");
    bed.deployment("web", 1, json!({"cpu": "3"}), json!({}));
    bed.eventually("the pod runs", || {
        bed::expect((bed.running()?, 1)).map_err(|why| format!("{why}\n{}", running.log()))
    });
    let launched = bed.launched();
    let kinds: Vec<&str> = launched
        .keys()
        .filter_map(|what| what.split(' ').nth(1))
        .collect();
    assert_eq!(kinds, ["r5.xlarge"], "{launched:?}");
}
