//! The bill of a world, reconciled like one of AWS: the ledger and the report agree to the cent.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail as tests do"
)]

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use veneer_billing::Sharing;
use veneer_reports::{CurWriter, MemoryStore, Reconciliation, Report};
use veneer_world::{Scenario, World, catalogue};

fn played(name: &str, time: SignedDuration) -> World {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.yaml"));
    let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap(), name).unwrap();
    let (catalogue, seed, end) = (
        catalogue(&scenario).unwrap(),
        scenario.seed,
        scenario.start + time,
    );
    let mut world = World::new(Arc::new(scenario), catalogue, seed).unwrap();
    world.ledger = Some(Vec::new());
    world.advance(end);
    world
}

fn reconciled(world: &World) -> Report {
    let mut bytes = Vec::new();
    let mut writer = CurWriter::new(&mut bytes).unwrap();
    for line in world.report() {
        writer.write(&line).unwrap();
    }
    writer.finish().unwrap();
    let mut reconciliation = Reconciliation::new(MemoryStore::default(), Sharing::default());
    reconciliation.read("world.csv", bytes.as_slice()).unwrap();
    reconciliation.finish(|_, _| {}).unwrap()
}

fn agree(world: &World) {
    let (report, bill) = (reconciled(world), world.bill());
    assert!(report.is_right(), "{report:#?}");
    assert_eq!(report.line_hours.agreed, report.line_hours.compared);
    assert!(report.line_hours.compared > 0);
    for (what, ours, theirs) in [
        (
            "paid",
            report.total.effective.billed + report.unused.billed,
            bill.paid,
        ),
        (
            "paid by the rules",
            report.total.effective.replayed + report.unused.replayed,
            bill.paid,
        ),
        ("on demand", report.total.on_demand.billed, bill.on_demand),
        ("spot", report.total.spot, bill.spot),
        ("unused", report.unused.billed, bill.unused),
        (
            "commitments",
            report.commitments.iter().map(|one| one.cost).sum(),
            bill.commitments,
        ),
        (
            "list",
            report.total.covered_list.billed + report.total.on_demand.billed + report.total.spot,
            bill.list,
        ),
    ] {
        assert!(
            (ours - theirs).abs() < 0.005,
            "{what}: {ours} in the report, {theirs} in the ledger"
        );
    }
}

#[test]
fn the_day_of_the_demo_reconciles_to_the_cent() {
    agree(&played("day", SignedDuration::from_hours(24)));
}

#[test]
fn a_report_that_ends_within_an_hour_reconciles_too() {
    agree(&played("plan-fills-up", SignedDuration::from_mins(135)));
}
